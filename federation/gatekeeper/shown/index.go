// SPDX-License-Identifier: Apache-2.0

// Package shown says what of the registry an organization is shown (gatekeeper-12): what is about
// volumes that concern it, and all that is about no volume.
//
// A volume concerns its owner and those that gave it away, and the organizations of sites that have
// a copy, had one, are to have one, have a grant, or a client that a person of the owner admitted.
// All others see that there is a volume, where, and how large: planners count with that. While a
// gateway says that the registry went back, gateways are shown everything: they then compare all
// that they know.
//
// # How it is kept right
//
// An Index follows one etcd. It may be newer than the answer or the change that it is asked about.
// It is older only where all that was asked for by name is shown by what it knows: else it waits
// until it knows as much. A change of what an organization is shown is a shift. A watch of the
// organization's processes ends at each, as if etcd had forgotten the past, so that they list anew:
// what is shown now may not have changed since long.
//
// An Index only remembers what etcd has, as far as it counts (package signed): who writes etcd past
// the gatekeepers hides nothing by it. What does not count is shown to all, so that those tell it
// who know better. Its methods may be called from many goroutines.
package shown

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
)

// Index knows which organizations each volume concerns.
type Index struct {
	prefix string
	kv     pb.KVClient
	watch  pb.WatchClient
	seal   *signed.Seal
	put    func(key string, value []byte, at int64) // hears of what is written besides
	log    *slog.Logger

	mu      sync.RWMutex
	hides   bool          // it hides what does not concern who asks
	applied int64         // up to this revision everything is known; 0: nothing is
	news    chan struct{} // closed and replaced when applied grows
	ask     chan struct{} // how far etcd is
	filled  int           // counts what began anew with what etcd has
	since   int64         // of shifts before it nothing is known
	era     int           // counts what set since
	shifts  map[string][]int64
	floors  map[string]int64 // by organization: shifts before it are forgotten
	*state
}

// state is what etcd has.
type state struct {
	volumes map[string]*volume
	sites   map[string]site
	at      map[string]string // sites by gateway
	names   map[string]string // volumes, also those that were purged
	notices map[string]bool
	values  map[string][]byte   // what counts, by key
	graves  map[string][]byte   // of sites that were removed
	forged  map[string]change   // what does not count, by key
	papers  map[string][]string // whom alone papers concern, by key, also of those that were deleted
	first   bool                // nothing was known before
}

func newState() *state {
	return &state{volumes: map[string]*volume{}, sites: map[string]site{}, at: map[string]string{}, names: map[string]string{},
		notices: map[string]bool{}, values: map[string][]byte{}, graves: map[string][]byte{}, forged: map[string]change{},
		papers: map[string][]string{}}
}

// volume is whom a volume concerns.
type volume struct {
	is      federation.Elsewhere
	name    string
	owners  []string // and those that gave it away
	named   []string // sites of its record
	members []string // sites of its control record

	clients map[string]string // sites whose clients a person of the owner admitted, by key
	pending []string          // gateways that are to delete what they have of it

	there, ruled, purged bool // there is a record of the volume, of its control, of its purge
}

// change is what was written to a key.
type change struct {
	value   []byte
	deleted bool
}

type site struct {
	organization string
	gateways     []string
}

// mostShifts is how many shifts are remembered for an organization: a watch that is further behind
// ends too.
const mostShifts = 1000

// New returns an index of the keys below a prefix, which knows nothing before List. put is told of
// the charter that List finds, and of each key that is written later, relative to the prefix, with
// its revision. seal says what counts. log hears of this program's own mistakes.
func New(prefix string, kv pb.KVClient, watch pb.WatchClient, seal *signed.Seal, log *slog.Logger,
	put func(key string, value []byte, at int64)) *Index {
	return &Index{prefix: prefix, kv: kv, watch: watch, seal: seal, put: put, log: log,
		news: make(chan struct{}), ask: make(chan struct{}, 1), shifts: map[string][]int64{}, floors: map[string]int64{}, state: newState()}
}

// Hide says whether anything is hidden from a revision on.
func (x *Index) Hide(hides bool, at int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.hides != hides {
		x.hides = true // or it would not turn
		x.turn(at)
		x.hides = hides
	}
}

// turn ends all watches of before a revision. x.mu is held.
func (x *Index) turn(at int64) {
	x.since = at
	if x.hides {
		x.era++
	}
	x.shifts, x.floors = map[string][]int64{}, map[string]int64{}
}

// lists are what an index reads first: earlier ones say whether later ones count. Of some it needs
// the keys only.
var lists = []struct {
	kind federation.Kind
	keys bool
}{{federation.KindSite, false}, {federation.KindVolume, false}, {federation.KindKeyring, false}, {federation.KindControl, false},
	{federation.KindPurged, false}, {federation.KindAdmission, false}, {kindNotice, false}, {federation.KindPaper, false}}

// Kinds of keys that are no federation.Kind.
const (
	kindName      federation.Kind = "name"
	kindNotice    federation.Kind = "rewound"
	kindTestimony federation.Kind = "testimony"
)

// List reads what there is, once, for Run to go on from.
func (x *Index) List(ctx context.Context) error {
	ops := make([]*pb.RequestOp, len(lists))
	for i, l := range lists {
		key := x.prefix + string(l.kind) + "/"
		ops[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key),
			RangeEnd: []byte(key[:len(key)-1] + "0"), KeysOnly: l.keys}}} // 0 comes after the slash
	}
	charter := string(federation.KindCharter)
	ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(x.prefix + charter)}}})
	res, err := x.kv.Txn(ctx, &pb.TxnRequest{Success: ops})
	if err != nil {
		return err
	}
	for _, kv := range res.GetResponses()[len(lists)].GetResponseRange().GetKvs() {
		x.put(charter, kv.GetValue(), res.GetHeader().GetRevision())
	}
	x.fill(res)
	return nil
}

// fill begins anew with what etcd has.
func (x *Index) fill(res *pb.TxnResponse) {
	at := res.GetHeader().GetRevision()
	fresh := newState()
	fresh.first = true
	one := &Index{seal: x.seal, log: x.log, state: fresh, shifts: map[string][]int64{}, floors: map[string]int64{}} // nobody waits for it
	for _, r := range res.GetResponses()[:len(lists)] {
		for _, kv := range r.GetResponseRange().GetKvs() {
			one.apply(strings.TrimPrefix(string(kv.GetKey()), x.prefix), kv.GetValue(), false, at)
		}
	}
	fresh.first = false
	x.mu.Lock()
	defer x.mu.Unlock()
	x.state = fresh
	x.filled++
	x.turn(at)
	x.reached(at)
}

// reached notes how far everything is known. x.mu is held.
func (x *Index) reached(at int64) {
	x.applied = at
	close(x.news)
	x.news = make(chan struct{})
}

// again is how long to wait before etcd is followed again.
const again = 200 * time.Millisecond

// Run follows etcd from what List read, until ctx ends.
func (x *Index) Run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = x.follow(ctx) // it ended: what came meanwhile is read
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(again):
			}
			if x.List(ctx) == nil {
				break
			}
		}
	}
}

// follow applies changes until the watch ends.
func (x *Index) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := x.watch.Watch(ctx)
	if err != nil {
		return err
	}
	x.mu.Lock()
	after := x.applied
	x.mu.Unlock()
	if err := w.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(x.prefix), RangeEnd: []byte(x.prefix[:len(x.prefix)-1] + "0"), StartRevision: after + 1}}}); err != nil {
		return err
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	asking.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-x.ask:
			}
			if w.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{
				ProgressRequest: &pb.WatchProgressRequest{}}}) != nil {
				return
			}
		}
	})
	for {
		r, err := w.Recv()
		if err != nil {
			return err
		}
		if r.GetCanceled() || r.GetCompactRevision() != 0 {
			return errors.New(r.GetCancelReason())
		}
		x.take(r)
	}
}

// take applies what the watch brought: changes, or how far etcd is.
func (x *Index) take(r *pb.WatchResponse) {
	if len(r.GetEvents()) == 0 {
		if r.GetCreated() {
			return
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		if at := r.GetHeader().GetRevision(); at > x.applied {
			x.reached(at)
		}
		return
	}
	for _, e := range r.GetEvents() {
		if e.GetType() == mvccpb.PUT {
			x.put(strings.TrimPrefix(string(e.GetKv().GetKey()), x.prefix), e.GetKv().GetValue(), e.GetKv().GetModRevision())
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range r.GetEvents() {
		x.apply(strings.TrimPrefix(string(e.GetKv().GetKey()), x.prefix), e.GetKv().GetValue(), e.GetType() == mvccpb.DELETE,
			e.GetKv().GetModRevision())
	}
	x.reached(r.GetEvents()[len(r.GetEvents())-1].GetKv().GetModRevision())
}
