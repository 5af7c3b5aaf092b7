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

// Viewer is who asks.
type Viewer struct {
	Organization string
	Gateway, All bool // it is a gateway; it is shown everything
}

// all reports whether everything is shown: to gateways, also while one of them says that the
// registry went back. x.mu is held.
func (x *Index) all(v Viewer) bool { return !x.hides || v.All || v.Gateway && len(x.notices) > 0 }

// Tells reports whether somebody may be told what is wrong with a change of his: he is shown the
// volume that it is about, or there is none.
func (x *Index) Tells(v Viewer, key string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	kind, name, _ := strings.Cut(key, "/")
	parts := strings.SplitN(name, "/", 3)
	uuid := parts[0]
	switch federation.Kind(kind) {
	case kindName:
		uuid = x.names[name]
	case federation.KindAdmission, federation.KindAttachment:
		uuid = ""
		if len(parts) > 1 {
			uuid = parts[1]
		}
	case federation.KindPaper:
		return x.all(v) || x.party(key, nil, v.Organization)
	case federation.KindVolume, federation.KindControl, federation.KindKeyring, federation.KindClaim, federation.KindObserved,
		federation.KindPurged:
	default:
		return true
	}
	is := x.volumes[uuid]
	return is == nil || x.all(v) || x.concerns(is, v.Organization)
}

// judge says what becomes of a record for an organization. one: the asker named its key. x.mu is
// held.
func (x *Index) judge(organization, key string, value []byte, one bool) (what, federation.Elsewhere) {
	kind, name, _ := strings.Cut(key, "/")
	parts := strings.SplitN(name, "/", 3)
	concerns := func(uuid string) bool { return x.concerns(x.volumes[uuid], organization) }
	own := func(site string) bool { return x.sites[site].organization == organization }
	if _, ok := x.forged[key]; ok {
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
		var is federation.Admission
		if len(parts) > 1 && concerns(parts[1]) || own(parts[0]) && (value == nil || record(value, &is) && is.Node != "") {
			return show, federation.Elsewhere{}
		}
	case federation.KindPurged:
		v := x.volumes[name]
		if v == nil || x.concerns(v, organization) || slices.ContainsFunc(v.pending, func(g string) bool { return own(x.at[g]) }) {
			return show, federation.Elsewhere{}
		}
		return stub, federation.Elsewhere{}
	case federation.KindPaper:
		if x.party(key, value, organization) {
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

// askAgain is how long to wait before etcd is asked again how far it is: it does not say so while
// it has more to send.
const askAgain = 10 * time.Millisecond

// wait returns when everything up to a revision is known.
func (x *Index) wait(ctx context.Context, upTo int64) error {
	for begun := -1; ; {
		x.mu.RLock()
		reached, news, filled := x.applied >= upTo, x.news, x.filled
		x.mu.RUnlock()
		if reached {
			return nil
		}
		if begun < 0 {
			begun = filled
		}
		if filled != begun { // etcd may have gone back, and not get there
			return status.Error(codes.Unavailable, "the gatekeeper has read anew what etcd has: try again")
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

// Read takes what somebody is not shown out of answers that etcd gave at a revision, and what would
// tell how much that is. It waits until the index knows as much, while the call lasts. one tells
// for each answer whether the asker named its key.
func (x *Index) Read(ctx context.Context, by Viewer, at int64, one []bool, answers ...*pb.RangeResponse) error {
	sure := true // what is shown is shown; what is not may be since a moment ago
	x.mu.RLock()
	if x.all(by) {
		x.mu.RUnlock()
		return nil
	}
	for i, a := range answers {
		sure = sure && one[i] && !slices.ContainsFunc(a.GetKvs(), func(kv *mvccpb.KeyValue) bool {
			w, _ := x.judge(by.Organization, x.name(kv), kv.GetValue(), true)
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
	for i, a := range answers {
		kept := a.Kvs[:0]
		for part := range slices.Chunk(a.GetKvs(), atOnce) {
			kept = append(kept, x.conceal(by, part, one[i])...)
		}
		a.Kvs, a.Count = kept, int64(len(kept))
	}
	return nil
}

// atOnce is how many records are judged before others have their turn.
const atOnce = 1000

// conceal returns what somebody is shown of records.
func (x *Index) conceal(by Viewer, all []*mvccpb.KeyValue, one bool) []*mvccpb.KeyValue {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.all(by) {
		return all
	}
	return slices.DeleteFunc(all, func(kv *mvccpb.KeyValue) bool {
		w, is := x.judge(by.Organization, x.name(kv), kv.GetValue(), one)
		if w == stub {
			kv.CreateRevision, kv.Version = 0, 0
			if len(kv.GetValue()) > 0 { // else the keys were asked for
				kv.Value = signed.Stub(is)
			}
		}
		return w == omit
	})
}

func (x *Index) name(kv *mvccpb.KeyValue) string {
	return strings.TrimPrefix(string(kv.GetKey()), x.prefix)
}

// Watches are those of one stream of etcd. Its methods may be called by one goroutine each.
type Watches struct {
	x     *Index
	by    Viewer
	after map[int64]place // by number: up to where the asker has everything
	over  map[int64]bool  // they ended here, and etcd goes on
	begun chan place      // where those begin that etcd did not number yet
}

// place is a revision, and the era in which a watch began there, of all keys.
type place struct {
	at    int64
	era   int
	whole bool
}

// mostBegun is how many watches of a stream may be without a number.
const mostBegun = 64

// Watches returns what a stream shows to who asks.
func (x *Index) Watches(by Viewer) *Watches {
	return &Watches{x: x, by: by,
		after: map[int64]place{}, over: map[int64]bool{}, begun: make(chan place, mostBegun)}
}

// Begin takes in that the asker begins a watch.
func (s *Watches) Begin(c *pb.WatchCreateRequest) error {
	if s.by.All {
		return nil
	}
	c.PrevKv, c.Fragment = false, false // what it was may not have been shown; a revision's changes arrive together
	s.x.mu.RLock()
	begins := place{c.GetStartRevision() - 1, s.x.era, string(c.GetKey()) == s.x.prefix}
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
	if s.by.All {
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
	if s.x.shifted(s.by.Organization, after, upTo) {
		s.over[id] = true
		end := &pb.WatchResponse{Header: r.GetHeader(), WatchId: id, Canceled: true, CompactRevision: max(upTo, 1),
			CancelReason: "what this organization is shown changed: list everything again"}
		if r.GetCreated() {
			return append(send, end), nil
		}
		return []*pb.WatchResponse{end}, nil
	}
	s.after[id] = place{upTo, after.era, after.whole}
	if len(r.GetEvents()) > 0 {
		s.x.events(s.by, r)
		if len(r.GetEvents()) == 0 {
			if !after.whole { // it would tell that there is something
				return nil, nil
			}
			r.Header.Revision = upTo // how far the asker is
		}
	}
	return send, nil
}

// events takes what is not shown out of changes.
func (x *Index) events(by Viewer, r *pb.WatchResponse) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.all(by) {
		return
	}
	r.Events = slices.DeleteFunc(r.GetEvents(), func(e *mvccpb.Event) bool {
		key := x.name(e.GetKv())
		w, is := x.judge(by.Organization, key, e.GetKv().GetValue(), false)
		switch {
		case w == show, w == stub && e.GetType() == mvccpb.DELETE:
			return false
		case w == stub && signed.KindOf(key) == federation.KindVolume:
			e.Kv.Value, e.Kv.CreateRevision, e.Kv.Version = signed.Stub(is), 0, 0
			return false
		}
		return true
	})
}
