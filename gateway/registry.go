// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/view"
)

// registryAgain is how long to wait before the registry is tried again.
const registryAgain = time.Second

// wait waits for d or the end of ctx.
func (g *Gateway) wait(ctx context.Context, d time.Duration) {
	select {
	case <-g.cfg.Timers.After(d):
	case <-ctx.Done():
	}
}

// watch keeps the view up to date, and passes control records and gateways on to the replicas.
func (g *Gateway) watch(ctx context.Context) {
	g.view.Listen(g.changed)
	for ctx.Err() == nil {
		err := g.view.Watch(ctx, g.cfg.Registry)
		g.answers.Watched(false)
		if ctx.Err() == nil {
			g.cfg.Logger.Warn("watch of the registry ended; it begins again", "error", err)
			g.wait(ctx, registryAgain)
		}
	}
}

// changed handles a change of the view, before those who wait for it are woken.
func (g *Gateway) changed(c view.Change) {
	if c.Err != nil {
		g.cfg.Logger.Warn("record of the registry cannot be read; what was known of it stays", "kind", c.Kind, "name", c.Name,
			"error", c.Err)
		return
	}
	switch c.Kind {
	case federation.KindControl:
		if c.Control != nil {
			g.node.ControlChanged(c.Name, c.Control, c.Revision)
		}
	case federation.KindSynced:
		g.answers.Watched(true)
		g.node.SetPeers(g.view.Members())
	case federation.KindSite:
		g.node.SetPeers(g.view.Members())
	case federation.KindCharter:
		if c.Charter != nil {
			g.peers.Adopt(c.Charter.Signed, g.cfg.Logger)
		}
	}
}

// site is what this gateway registers.
func (g *Gateway) site() federation.Site {
	cfg := g.cfg
	return federation.Site{
		Name: cfg.Site, Organization: cfg.Organization, Region: cfg.Region, Labels: cfg.Labels, Capacity: cfg.Capacity, Lends: cfg.Lends,
		Store:   cfg.StoreInfo,
		WrapKey: cfg.SiteKey.Public(),
		Gateways: []federation.Gateway{{Name: cfg.Name, Addr: cfg.Addr, NFSAddr: cfg.NFSAddr, Incarnation: g.self.Incarnation,
			Format: engine.Format, Pools: g.told()}},
	}
}

// How often a gateway looks whether the registry went back, and what has become of one that did.
const (
	tendEvery   = 5 * time.Second
	tendRewound = time.Second
)

// tend looks whether the registry went back, until ctx ends. In one that did, the gateway registers
// anew.
func (g *Gateway) tend(ctx context.Context) {
	registered := true
	refused := ""
	for ; ctx.Err() == nil; g.wait(ctx, map[bool]time.Duration{true: tendEvery, false: tendRewound}[refused == ""]) {
		if err := g.cfg.Registry.Tend(ctx, g.cfg.Name, g.cfg.Now()); err == nil {
			g.answers.Note(g.cfg.Now())
		} else if ctx.Err() == nil {
			g.cfg.Logger.Debug("registry cannot be looked after", "error", err)
		}
		now := ""
		if err := g.cfg.Registry.Trusted(); err != nil {
			now = err.Error()
		}
		switch {
		case now == refused:
		case now == "":
			g.cfg.Logger.Info("the registry is believed again: it was reconciled")
		default:
			registered = false
			g.cfg.Logger.Error("the registry is not believed", "error", now)
		}
		refused = now
		if _, _, known := g.view.Gateway(g.cfg.Name); registered && !known && g.view.Synced() {
			g.cfg.Logger.Warn("the registry forgot this gateway; it registers anew")
			registered = false
		}
		if !registered {
			err := g.cfg.Registry.Register(ctx, g.site())
			if registered = err == nil; err != nil {
				g.cfg.Logger.Warn("gateway is not registered anew yet", "error", err)
			}
		}
	}
}

// register registers this gateway and keeps its heartbeat. It tries again until the registry
// accepts it.
func (g *Gateway) register(ctx context.Context) {
	cfg := g.cfg
	for ctx.Err() == nil {
		err := cfg.Registry.Register(ctx, g.site())
		if err == nil {
			break
		}
		cfg.Logger.Warn("gateway is not registered yet; trying again", "error", err)
		g.wait(ctx, registryAgain)
	}
	for ctx.Err() == nil {
		alive := federation.Alive{Gateway: cfg.Name, Site: cfg.Site, Incarnation: g.self.Incarnation}
		beat, err := cfg.Registry.Heartbeat(ctx, alive, cfg.AliveFor)
		if err != nil {
			cfg.Logger.Warn("heartbeat does not reach the registry; trying again", "error", err)
			g.wait(ctx, registryAgain)
			continue
		}
		<-ctx.Done()
		if g.holdsState() {
			return // gateway-2
		}
		stop, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := beat.Stop(stop); err != nil {
			cfg.Logger.Debug("heartbeat's key stays until it expires", "error", err)
		}
	}
}

// holdsState reports whether clients have opens or locks, which they will reclaim from this
// gateway's next process.
func (g *Gateway) holdsState() bool {
	for _, c := range g.nfs.Clients() {
		if c.Opens+c.Locks > 0 {
			return true
		}
	}
	return false
}
