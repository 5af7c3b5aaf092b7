// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/pki"
)

// kindCharter is a key without a name: there is one.
const kindCharter = string(federation.KindCharter)

// charter is gatekeeper-10.
func (q *request) charter(w write) error {
	if q.who.Part != pki.PartAdministrator || w.deletes {
		return q.deny(w.key, "an administrator replaces the charter, and nobody deletes it")
	}
	next, err := after[federation.Charter](q, w)
	if err != nil {
		return err
	}
	says, err := q.credentials.CheckCharter(next.Signed)
	if err != nil {
		return q.deny(w.key, "%v", err)
	}
	if says.Serial != next.Serial {
		return q.deny(w.key, "it says serial %d, and what is signed has %d", next.Serial, says.Serial)
	}
	if is, ok := q.credentials.Charter(); ok && says.Serial <= is.Serial {
		return q.deny(w.key, "its serial is %d, and the one in force has %d: sign one with a higher serial", says.Serial, is.Serial)
	}
	// What is there may be forged, and then says nothing.
	prev, err := before[federation.Charter](q, w.key)
	if err != nil || prev == nil {
		return nil //nolint:nilerr // as above
	}
	if was, err := q.credentials.CheckCharter(prev.Signed); err == nil && says.Serial <= was.Serial {
		return q.deny(w.key, "its serial is %d, and the one before has %d: sign one with a higher serial", says.Serial, was.Serial)
	}
	return nil
}

// readCharter takes the charter that is in etcd, and returns the revision up to which it was read.
func (g *Gatekeeper) readCharter(ctx context.Context) (int64, error) {
	res, err := g.kv.Range(ctx, &pb.RangeRequest{Key: []byte(g.prefix + kindCharter)})
	if err != nil {
		return 0, err
	}
	for _, kv := range res.GetKvs() {
		g.adopt(kv.GetValue())
	}
	return res.GetHeader().GetRevision(), nil
}

// adopt takes a charter. One that was forged, or is an old one, is told and changes nothing.
func (g *Gatekeeper) adopt(value []byte) {
	c, err := decode[federation.Charter](kindCharter, value)
	news := false
	if err == nil {
		news, err = g.cfg.Credentials.Adopt(c.Signed)
	}
	switch {
	case err != nil:
		g.cfg.Log.Error("the registry has a charter that is not taken; the one in force stays", "error", err)
	case news:
		g.cfg.Log.Info("a charter is in force", "serial", c.Serial)
	}
}

// followCharter takes each charter that comes after a revision, until ctx ends.
func (g *Gatekeeper) followCharter(ctx context.Context, after int64) {
	for ctx.Err() == nil {
		_ = g.watchCharter(ctx, after) // it ended: what came meanwhile is read
		select {
		case <-ctx.Done():
			return
		case <-time.After(charterAgain):
		}
		if at, err := g.readCharter(ctx); err == nil {
			after = at
		}
	}
}

const (
	// charterTime is how long etcd may take to say whether there is a charter: it may be without a
	// majority.
	charterTime = 5 * time.Second
	// charterAgain is how long to wait before it is asked again.
	charterAgain = time.Second
)

func (g *Gatekeeper) watchCharter(ctx context.Context, after int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := g.watch.Watch(ctx)
	if err != nil {
		return err
	}
	if err := w.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(g.prefix + kindCharter), StartRevision: after + 1}}}); err != nil {
		return err
	}
	for {
		r, err := w.Recv()
		if err != nil || r.GetCanceled() {
			return err
		}
		for _, e := range r.GetEvents() {
			if len(e.GetKv().GetValue()) > 0 {
				g.adopt(e.GetKv().GetValue())
			}
		}
	}
}
