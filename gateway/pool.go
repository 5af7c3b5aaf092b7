// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"log/slog"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/meters"
	"github.com/weir-storage/weir/gateway/peers"
	"github.com/weir-storage/weir/gateway/pools"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/replica"
)

// poolOf returns the labels that the pool of a volume is to have.
func (g *Gateway) poolOf(volume string) map[string]string {
	r, ok := g.view.Record(volume)
	if !ok {
		return nil
	}
	return g.view.Here(r).Spec.Cache.Pool
}

// disks are the pools, as the node probes them.
func (g *Gateway) disks() (out []replica.Disk) {
	g.cfg.Health.set(func() { g.cfg.Health.main = g.pools.Main().Name })
	for _, p := range g.pools.All() {
		out = append(out, replica.Disk{
			Probe: func() error { return g.cfg.Health.probe(p.Name, p.Probe()) },
			Has:   func(volume string) bool { return g.pools.Of(volume) == p },
		})
	}
	return out
}

// watchPools looks how the pools are, until ctx ends.
func (g *Gateway) watchPools(ctx context.Context) { g.pools.Watch(ctx, g.copies.Reopen) }

// movePools moves volumes to the pools that their policies ask for, until ctx ends.
func (g *Gateway) movePools(ctx context.Context) {
	g.pools.KeepMoving(ctx, pools.Movers{Open: g.copies.Opened, Closed: g.copies.WhileClosed, Changed: g.view.Changed,
		Tuning: g.copies.Tuning, Lost: g.copies.Reopen, After: g.cfg.Timers.After})
}

// told are the pools that are registered. A gateway with one pool without labels tells nothing:
// programs of earlier releases cannot read records with pools.
func (g *Gateway) told() (out []federation.Pool) {
	if all := g.pools.All(); len(all) == 1 && len(all[0].Labels) == 0 {
		return nil
	}
	for _, p := range g.pools.All() {
		out = append(out, federation.Pool{Name: p.Name, Labels: p.Labels})
	}
	return out
}

func watching(t Tracer, m *meters.Meters, log *slog.Logger) (w peers.Watch) {
	if t != nil {
		w = peers.Watch{Client: t.Client(), Server: t.Server()}
	}
	w.Refused = func(id pki.Identity, method string) {
		m.Refused(id, method)
		log.Warn("refused", "audit", "refused", "identity", id.String(), "part", string(id.Part), "method", method)
	}
	return w
}
