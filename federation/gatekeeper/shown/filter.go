// SPDX-License-Identifier: Apache-2.0

package shown

import (
	"context"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
)

// what becomes of a record when somebody asks for it.
type what int

const (
	show what = iota
	stub      // that it is there
	omit
)

// all reports whether everything is shown. x.mu is held.
func (x *Index) all() bool { return !x.hides || len(x.notices) > 0 }

// judge says what becomes of a record for an organization. one: the asker named its key. x.mu is
// held.
func (x *Index) judge(organization, key string, value []byte, one bool) (what, federation.Elsewhere) {
	kind, name, _ := strings.Cut(key, "/")
	parts := strings.SplitN(name, "/", 3)
	concerns := func(uuid string) bool { return x.concerns(x.volumes[uuid], organization) }
	own := func(site string) bool { return x.sites[site].organization == organization }
	if x.forged[key] {
		return show, federation.Elsewhere{}
	}
	hidden := omit
	switch federation.Kind(kind) {
	case federation.KindVolume, federation.KindControl, federation.KindKeyring:
		if concerns(name) {
			return show, federation.Elsewhere{}
		}
		if v := x.volumes[name]; v != nil && federation.Kind(kind) == federation.KindVolume {
			return stub, v.is
		}
		return stub, federation.Elsewhere{}
	case kindName:
		uuid := string(value)
		if uuid == "" { // it is deleted
			uuid = x.names[name]
		}
		if concerns(uuid) {
			return show, federation.Elsewhere{}
		}
		if one {
			hidden = stub
		}
	case federation.KindObserved:
		if concerns(parts[0]) {
			return show, federation.Elsewhere{}
		}
	case federation.KindClaim:
		if concerns(parts[0]) || len(parts) > 1 && own(parts[1]) {
			return show, federation.Elsewhere{}
		}
	case federation.KindAttachment:
		if own(parts[0]) || len(parts) > 1 && concerns(parts[1]) {
			return show, federation.Elsewhere{}
		}
	case federation.KindAdmission:
		if len(parts) > 1 && concerns(parts[1]) {
			return show, federation.Elsewhere{}
		}
	case kindTestimony:
		gateway, about, _ := strings.Cut(name, "/")
		if own(x.at[gateway]) {
			return show, federation.Elsewhere{}
		}
		return x.judge(organization, about, nil, false)
	default:
		return show, federation.Elsewhere{}
	}
	return hidden, federation.Elsewhere{}
}

// charter reports whether a change is one of the charter, which may say what is shown.
func (x *Index) charter(e *mvccpb.Event) bool {
	return x.name(e.GetKv()) == string(federation.KindCharter)
}

func (x *Index) hiding() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.hides
}

// patience is how long an answer waits until the index knows as much as etcd.
const patience = 2 * time.Second

// askAgain is how long to wait before etcd is asked again how far it is: it does not say so while
// it has more to send.
const askAgain = 10 * time.Millisecond

// wait returns when everything up to a revision is known.
func (x *Index) wait(ctx context.Context, upTo int64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		x.mu.RLock()
		reached, news := x.applied >= upTo, x.news
		x.mu.RUnlock()
		if reached {
			return nil
		}
		select {
		case x.ask <- struct{}{}:
		default: // somebody asks
		}
		select {
		case <-news:
		case <-time.After(askAgain):
		case <-ctx.Done():
			return status.Error(codes.Unavailable, "the gatekeeper does not know yet what etcd has: try again")
		}
	}
}

// Read takes what an organization is not shown out of answers that etcd gave at a revision. It
// waits for at most 2 s, and then fails with Unavailable. one tells for each answer whether the
// asker named its key.
func (x *Index) Read(ctx context.Context, organization string, at int64, one []bool, answers ...*pb.RangeResponse) error {
	sure := true // what is shown is shown; what is not may be since a moment ago
	x.mu.RLock()
	if x.all() {
		x.mu.RUnlock()
		return nil
	}
	for i, a := range answers {
		sure = sure && one[i] && !slices.ContainsFunc(a.GetKvs(), func(kv *mvccpb.KeyValue) bool {
			w, _ := x.judge(organization, x.name(kv), kv.GetValue(), true)
			return w != show
		})
	}
	x.mu.RUnlock()
	if sure {
		return nil
	}
	if err := x.wait(ctx, at); err != nil {
		return err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.all() {
		return nil
	}
	for i, a := range answers {
		a.Kvs = slices.DeleteFunc(a.GetKvs(), func(kv *mvccpb.KeyValue) bool {
			w, is := x.judge(organization, x.name(kv), kv.GetValue(), one[i])
			if w == stub && len(kv.GetValue()) > 0 { // else the keys were asked for
				kv.Value = signed.Stub(is)
			}
			return w == omit
		})
	}
	return nil
}

func (x *Index) name(kv *mvccpb.KeyValue) string {
	return strings.TrimPrefix(string(kv.GetKey()), x.prefix)
}

// Watches are those of one stream of etcd. Its methods may be called by one goroutine each.
type Watches struct {
	x            *Index
	organization string
	all          bool
	after        map[int64]place // by number: up to where the asker has everything
	over         map[int64]bool  // they ended here, and etcd goes on
	begun        chan place      // where those begin that etcd did not number yet
}

// place is a revision, and the era in which a watch began there.
type place struct {
	at  int64
	era int
}

// mostBegun is how many watches of a stream may be without a number.
const mostBegun = 64

// Watches returns what an organization's stream shows; all: everything.
func (x *Index) Watches(organization string, all bool) *Watches {
	return &Watches{x: x, organization: organization, all: all,
		after: map[int64]place{}, over: map[int64]bool{}, begun: make(chan place, mostBegun)}
}

// Begin takes in that the asker begins a watch.
func (s *Watches) Begin(c *pb.WatchCreateRequest) error {
	if s.all {
		return nil
	}
	c.PrevKv, c.Fragment = false, false // what it was may not have been shown; a revision's changes arrive together
	s.x.mu.RLock()
	begins := place{c.GetStartRevision() - 1, s.x.era}
	s.x.mu.RUnlock()
	select {
	case s.begun <- begins:
		return nil
	default:
		return status.Error(codes.ResourceExhausted, "the gatekeeper: too many watches at once")
	}
}

// Show takes what is not shown out of what etcd sends, and returns what is sent on: nothing, or
// that, and then perhaps that the watch ends as if etcd had forgotten the past.
func (s *Watches) Show(ctx context.Context, r *pb.WatchResponse) (send []*pb.WatchResponse, err error) {
	if s.all {
		return []*pb.WatchResponse{r}, nil
	}
	id := r.GetWatchId()
	if r.GetCreated() {
		select {
		case after := <-s.begun:
			if after.at < 0 { // from now on
				after.at = r.GetHeader().GetRevision()
			}
			s.after[id] = after
			delete(s.over, id)
		default:
		}
	}
	if r.GetCanceled() {
		delete(s.after, id)
		delete(s.over, id)
		return []*pb.WatchResponse{r}, nil
	}
	if s.over[id] {
		return nil, nil
	}
	send = []*pb.WatchResponse{r}
	after, ok := s.after[id]
	if !ok { // how far etcd is
		return send, nil
	}
	upTo := after.at
	if n := len(r.GetEvents()); n > 0 {
		upTo = r.GetEvents()[n-1].GetKv().GetModRevision()
		if s.x.hiding() || slices.ContainsFunc(r.GetEvents(), s.x.charter) {
			if err := s.x.wait(ctx, upTo); err != nil {
				return nil, err
			}
		}
	}
	if s.x.shifted(s.organization, after, upTo) {
		s.over[id] = true
		end := &pb.WatchResponse{Header: r.GetHeader(), WatchId: id, Canceled: true, CompactRevision: max(upTo, 1),
			CancelReason: "what this organization is shown changed: list everything again"}
		if r.GetCreated() {
			return append(send, end), nil
		}
		return []*pb.WatchResponse{end}, nil
	}
	s.after[id] = place{upTo, after.era}
	if len(r.GetEvents()) > 0 {
		s.x.events(s.organization, r)
		if len(r.GetEvents()) == 0 { // then it says how far the asker is
			r.Header.Revision = upTo
		}
	}
	return send, nil
}

// events takes what is not shown out of changes.
func (x *Index) events(organization string, r *pb.WatchResponse) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.all() {
		return
	}
	r.Events = slices.DeleteFunc(r.GetEvents(), func(e *mvccpb.Event) bool {
		key := x.name(e.GetKv())
		w, is := x.judge(organization, key, e.GetKv().GetValue(), false)
		switch {
		case w == show, w == stub && e.GetType() == mvccpb.DELETE:
			return false
		case w == stub && signed.KindOf(key) == federation.KindVolume:
			e.Kv.Value = signed.Stub(is)
			return false
		}
		return true
	})
}
