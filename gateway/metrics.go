// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/meters"
	"github.com/weir-storage/weir/replica/protocol"
)

// longWait is how long a request waits that counts as waiting.
const longWait = 5 * time.Second

// state is what is measured when somebody reads the metrics.
func (g *Gateway) state() meters.State {
	s := meters.State{
		Cache: g.cache.Status(), NFS: g.nfs.Counters(), Clients: g.nfs.ClientCounts(), Memory: g.nfs.Room(),
		Waiting: g.nfs.Waiting(longWait),
		Trusted: g.cfg.Registry.Trusted() == nil, Silent: g.answers.Silent(g.cfg.Now()), Ready: g.cfg.Health.Ready() == nil,
		Disputed: g.clocks.Disputed() != nil,
	}
	s.NFS.Panics += g.panics.Load()
	for _, p := range g.pools.All() {
		one := meters.Pool{Name: p.Name, Room: p.Room().Status()}
		if p.Report != nil {
			one.Conditions = p.Report().Conditions
		}
		s.Pools = append(s.Pools, one)
	}
	for _, m := range g.view.Members() {
		s.Gateways = append(s.Gateways, meters.Gateway{Name: m.Gateway, Site: m.Site, Alive: g.view.IsAlive(m.Gateway, "")})
	}
	total, cached := g.pools.Reads()
	s.Reads = total
	all, _ := g.view.Volumes()
	for _, v := range all {
		if v.Record == nil || v.Record.Deleted {
			continue
		}
		one := meters.Volume{Name: v.Record.Name}
		if there, ok := g.copies.State(v.Record.UUID); ok {
			one.Problem = there.Problem != nil
			one.Copy = measure(there.Copy, *v.Record)
			if one.Copy != nil {
				c := cached[v.Record.UUID]
				one.Copy.CacheBytes = c.Small + c.Main + c.Pinned
				one.Copy.Snapshots = g.snapshots.Report(v.Record.UUID)
				one.Copy.Checkpoints = g.copies.Checkpoints().Condition(v.Record.UUID)
			}
		}
		s.Volumes = append(s.Volumes, one)
	}
	slices.SortFunc(s.Volumes, func(a, b meters.Volume) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// nameOf returns the name of a volume that is not deleted.
func (g *Gateway) nameOf(uuid string) (string, bool) {
	r, ok := g.view.Record(uuid)
	return r.Name, ok && !r.Deleted
}

// measure measures a copy. It returns nil for none, and for one that closes.
func measure(c *copies.Copy, v federation.Volume) *meters.Copy {
	if c == nil {
		return nil
	}
	_, done, err := c.Use(context.Background())
	if err != nil {
		return nil
	}
	defer done()
	st := c.Replica.Status()
	m := &meters.Copy{Role: st.Role.String(), Epoch: st.Epoch, LogBytes: c.Log.LocalBytes(), MetadataBytes: c.MetadataBytes(),
		UploadQueue: c.Replica.UploadQueue(), StoredBytes: c.Log.StoredBytes(), Blind: c.Blind()}
	if st.Role == protocol.Home || st.Role == protocol.Starting {
		m.Home, m.Stalled, m.Replicas = true, st.Stalled, c.Replicas(v)
		m.Alone, m.Promised = st.Alone, st.Promised
		m.Serving = c.MayServe() == nil
	}
	return m
}
