// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/grpc"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/nfs"
	"github.com/weir-storage/weir/gateway/nfs/state"
	"github.com/weir-storage/weir/gateway/node/nodepb"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/replica/protocol"
)

// Gateway is one gateway process. Run makes and runs it.
type Gateway struct {
	cfg    Config
	self   protocol.Member
	mirror *mirror
	peers  *peers
	node   *replica.Node
	nfs    *nfs.Server
	cache  *engine.BlockCache
	pebble *pebble.Cache

	mu      sync.Mutex
	volumes map[string]*served // by UUID
	aside   chan string        // volumes whose copy is to be set aside
	kept    map[string]bool    // volumes with a copy on the pool, open or not; of manage
	ready   chan struct{}      // closed when every volume of the registry has its Router
	// reclaiming is recovering, for whom the NFS server calls with its locks held; it may be true a little longer.
	reclaiming atomic.Bool
}

// served is a volume that this gateway has opened.
type served struct {
	router  *Router
	copy    *replicaOf // nil: no copy here, or it could not be opened yet
	problem error      // why not
	doubted bool       // the log is not its old self, and a member
	leaving *leaving   // not nil: the site is not to have the copy any more
}

// Run serves until ctx ends, or returns why it can not. When it returns, nothing of it runs any more.
func Run(ctx context.Context, cfg Config) error {
	g, err := newGateway(cfg)
	if err != nil {
		return err
	}
	return g.run(ctx)
}

func newGateway(cfg Config) (*Gateway, error) {
	cfg.setDefaults()
	g := &Gateway{cfg: cfg, mirror: newMirror(), cache: engine.NewBlockCache(cfg.CacheBytes), volumes: map[string]*served{}, kept: map[string]bool{}, aside: make(chan string, 16), ready: make(chan struct{})}
	g.peers = newPeers(cfg.Credentials, g.mirror)
	g.self = protocol.Member{Gateway: cfg.Name, Site: cfg.Site, Incarnation: cfg.Pool.Incarnation().String()}
	records, err := state.NewDirStore(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	g.nfs, err = nfs.New(nfs.Config{
		Gateway: cfg.Name, ServerOwner: cfg.Federation + "/" + cfg.Site + "/" + cfg.Name, ServerScope: cfg.Federation, Boot: cfg.Pool.Boot(),
		Lease: cfg.Lease, Exports: exports{g}, State: records, Clock: clock{cfg.Now}, Rand: cfg.Rand, Log: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	g.reclaiming.Store(g.nfs.InGrace())
	there, err := cfg.Pool.ListVolumes()
	if err != nil {
		return nil, errors.Join(err, g.nfs.Shutdown(context.Background()))
	}
	for _, id := range there {
		g.kept[id] = true
	}
	return g, nil
}

// run is Run's, once the gateway is made.
func (g *Gateway) run(ctx context.Context) error {
	cfg := g.cfg
	probe, err := newProbe(cfg.Pool)
	if err != nil {
		return errors.Join(err, g.nfs.Shutdown(context.Background()))
	}
	defer probe.close()
	g.pebble = pebble.NewCache(64 << 20)
	defer g.pebble.Unref()
	defer g.peers.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	transport := peer.New(g.peers.dial, func(name string) { g.node.PeerDown(name) }, cfg.Timers, cfg.Logger)
	g.node = replica.NewNode(replica.NodeConfig{Self: g.self, Promise: cfg.Promise, Heartbeat: cfg.Heartbeat, Clock: cfg.Clock, Timers: cfg.Timers,
		Registry: cfg.Registry, Transport: transport, Probe: g.probing(probe.sync), Logger: cfg.Logger})
	server := grpc.NewServer(serverOptions(cfg.Credentials)...)
	peerpb.RegisterPeerServer(server, &peer.Server{Caller: g.caller, Deliver: g.node.Deliver, Fetched: g.fetched})
	forwardpb.RegisterForwardServer(server, &service{g: g})
	nodepb.RegisterNodeServer(server, newNodes(g))

	var work sync.WaitGroup
	failed := make(chan error, 2)
	work.Go(func() { g.watch(ctx) })
	work.Go(func() { g.register(ctx) })
	work.Go(func() { g.manage(ctx) })
	work.Go(func() { g.housekeeping(ctx) })
	work.Go(func() { g.observing(ctx) })
	work.Go(func() { g.lockKeeping(ctx) })
	work.Go(func() { g.expelling(ctx) })
	work.Go(func() {
		if err := server.Serve(cfg.GRPC); err != nil {
			failed <- fmt.Errorf("serve gRPC on %s: %w", cfg.GRPC.Addr(), err)
		}
	})
	work.Go(func() {
		// Before, a client that comes back would be told that its volume is gone.
		select {
		case <-g.ready:
		case <-ctx.Done():
			_ = cfg.NFS.Close() // nobody was served
			return
		}
		cfg.Health.set(func() { cfg.Health.listening = true })
		defer cfg.Health.set(func() { cfg.Health.listening = false })
		if err := g.nfs.Serve(cfg.NFS); err != nil && ctx.Err() == nil {
			failed <- fmt.Errorf("serve NFS on %s: %w", cfg.NFS.Addr(), err)
		}
	})
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	cancel()
	stop, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	if serr := g.nfs.Shutdown(stop); serr != nil {
		cfg.Logger.Warn("nfs server did not stop in time", "error", serr)
	}
	server.Stop()
	work.Wait()
	err = errors.Join(err, g.closeAll())
	g.node.Close()
	transport.Close()
	return err
}

// probing tells the health what comes of probe.
func (g *Gateway) probing(probe func() error) func() error {
	h := g.cfg.Health
	return func() error {
		err := probe()
		h.set(func() { h.probed, h.pool = true, err })
		return err
	}
}

func (g *Gateway) closeAll() error {
	g.mu.Lock()
	var open []*replicaOf
	for _, s := range g.volumes {
		s.router.setCopy(nil)
		if s.copy != nil {
			open = append(open, s.copy)
			s.copy = nil
		}
	}
	g.mu.Unlock()
	var err error
	for _, c := range open {
		err = errors.Join(err, c.close())
	}
	return err
}

// watch keeps the mirror and tells the replicas what concerns them.
func (g *Gateway) watch(ctx context.Context) {
	for ctx.Err() == nil {
		g.mirror.begin()
		err := g.cfg.Registry.Watch(ctx, func(e federation.Event) error {
			if e.Err != nil {
				g.cfg.Logger.Warn("record of the registry can not be read; what was known of it stays", "kind", e.Kind, "name", e.Name, "error", e.Err)
			}
			g.mirror.take(e, g.cfg.Site)
			switch e.Kind {
			case federation.KindControl:
				if e.Control != nil {
					g.node.ControlChanged(e.Name, e.Control, e.Revision)
				}
			case federation.KindSite, federation.KindSynced:
				g.node.SetPeers(g.mirror.members())
			}
			return nil
		})
		if ctx.Err() == nil {
			g.cfg.Logger.Warn("watch of the registry ended; it begins again", "error", err)
			pause(ctx, time.Second)
		}
	}
}

// register tells the registry of this gateway and keeps its heartbeat. It goes on until the registry takes it.
func (g *Gateway) register(ctx context.Context) {
	site := federation.Site{
		Name: g.cfg.Site, Organization: g.cfg.Organization, Region: g.cfg.Region, Labels: g.cfg.Labels, Capacity: g.cfg.Capacity, Store: g.cfg.StoreInfo, WrapKey: g.cfg.SiteKey.Public(),
		Gateways: []federation.Gateway{{Name: g.cfg.Name, Addr: g.cfg.Addr, NFSAddr: g.cfg.NFSAddr, Incarnation: g.self.Incarnation}},
	}
	for ctx.Err() == nil {
		err := g.cfg.Registry.Register(ctx, site)
		if err == nil {
			break
		}
		g.cfg.Logger.Warn("gateway is not registered yet; trying again", "error", err)
		pause(ctx, time.Second)
	}
	for ctx.Err() == nil {
		beat, err := g.cfg.Registry.Heartbeat(ctx, federation.Alive{Gateway: g.cfg.Name, Site: g.cfg.Site, Incarnation: g.self.Incarnation}, g.cfg.AliveFor)
		if err != nil {
			g.cfg.Logger.Warn("heartbeat does not reach the registry; trying again", "error", err)
			pause(ctx, time.Second)
			continue
		}
		<-ctx.Done()
		if g.holdsState() {
			return // the key expires: until then, others wait for the next process to tell what its clients hold
		}
		stop, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := beat.Stop(stop); err != nil {
			g.cfg.Logger.Debug("heartbeat's key stays until it expires", "error", err)
		}
	}
}

// holdsState tells whether clients have something open, which they will reclaim from this gateway's next process.
func (g *Gateway) holdsState() bool {
	for _, c := range g.nfs.Clients() {
		if c.Opens+c.Locks > 0 {
			return true
		}
	}
	return false
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// housekeeping looks after files without names.
func (g *Gateway) housekeeping(ctx context.Context) {
	reap := time.NewTicker(reapEvery)
	defer reap.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-reap.C:
			g.eachLeading(func(c *replicaOf) {
				if err := g.reap(ctx, c); err != nil && ctx.Err() == nil {
					g.cfg.Logger.Debug("files without names are looked at later", "volume", c.uuid, "error", err)
				}
			})
		}
	}
}

func (g *Gateway) eachLeading(f func(*replicaOf)) {
	g.mu.Lock()
	var all []*replicaOf
	for _, s := range g.volumes {
		if s.copy != nil {
			if _, ok := s.copy.replica.Leading(); ok {
				all = append(all, s.copy)
			}
		}
	}
	g.mu.Unlock()
	for _, c := range all {
		f(c)
	}
}
