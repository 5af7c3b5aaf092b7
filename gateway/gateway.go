// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"
	"google.golang.org/grpc"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/nfs"
	"github.com/weir-storage/weir/gateway/nfs/state"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/replica/protocol"
	"github.com/weir-storage/weir/volume"
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
	ready   chan struct{}      // closed when every volume of the registry has its Router
}

// served is a volume that this gateway has opened.
type served struct {
	router  *Router
	copy    *replicaOf // nil: no copy here, or it could not be opened yet
	problem error      // why not
	policy  uint64     // generation of the desired state in force
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
	g := &Gateway{cfg: cfg, mirror: newMirror(), cache: engine.NewBlockCache(cfg.CacheBytes), volumes: map[string]*served{}, aside: make(chan string, 16), ready: make(chan struct{})}
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
	return g, err
}

// run is Run's, once the gateway is made.
func (g *Gateway) run(ctx context.Context) error {
	cfg := g.cfg
	probe, err := newProbe(cfg.Pool)
	if err != nil {
		return err
	}
	defer probe.close()
	g.pebble = pebble.NewCache(64 << 20)
	defer g.pebble.Unref()
	defer g.peers.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	transport := peer.New(g.peers.dial, func(name string) { g.node.PeerDown(name) }, cfg.Logger)
	g.node = replica.NewNode(replica.NodeConfig{Self: g.self, Promise: cfg.Promise, Heartbeat: cfg.Heartbeat, Clock: cfg.Clock,
		Registry: cfg.Registry, Transport: transport, Probe: probe.sync, Logger: cfg.Logger})
	server := grpc.NewServer(serverOptions(cfg.Credentials)...)
	peerpb.RegisterPeerServer(server, &peer.Server{Caller: g.caller, Deliver: g.node.Deliver, Fetched: g.fetched})
	forwardpb.RegisterForwardServer(server, &service{g: g})

	var work sync.WaitGroup
	failed := make(chan error, 2)
	work.Go(func() { g.watch(ctx) })
	work.Go(func() { g.register(ctx) })
	work.Go(func() { g.manage(ctx) })
	work.Go(func() { g.housekeeping(ctx) })
	work.Go(func() { g.lockKeeping(ctx) })
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
			return
		}
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

func (g *Gateway) closeAll() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	for _, s := range g.volumes {
		s.router.setCopy(nil)
		if s.copy != nil {
			err = errors.Join(err, s.copy.close())
		}
	}
	return err
}

// watch keeps the mirror and tells the replicas what concerns them.
func (g *Gateway) watch(ctx context.Context) {
	for ctx.Err() == nil {
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
		Name: g.cfg.Site, Organization: g.cfg.Organization, Region: g.cfg.Region, Labels: g.cfg.Labels, Store: g.cfg.StoreInfo, WrapKey: g.cfg.SiteKey.Public(),
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
		stop, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := beat.Stop(stop); err != nil {
			g.cfg.Logger.Debug("heartbeat's key stays until it expires", "error", err)
		}
	}
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

// manage opens volumes as they appear, changes their policy, and closes them when they go.
func (g *Gateway) manage(ctx context.Context) {
	for ctx.Err() == nil {
		changed := g.mirror.wait()
		again := g.reconcile(ctx)
		var retry <-chan time.Time
		if again {
			retry = time.After(2 * time.Second)
		}
		select {
		case <-changed:
		case <-retry:
		case id := <-g.aside:
			g.reopenAside(id)
		case <-ctx.Done():
		}
	}
}

// reconcile brings what is open in line with what the registry wants, and tells whether something must be tried again.
func (g *Gateway) reconcile(ctx context.Context) (again bool) {
	synced, all := g.mirror.allVolumes()
	for _, v := range all {
		g.servedOf(v)
	}
	if synced {
		select {
		case <-g.ready:
		default:
			close(g.ready)
		}
	}
	for _, v := range all {
		s := g.servedOf(v)
		if s == nil || !hasSite(v, g.cfg.Site) {
			continue
		}
		if s.copy == nil {
			c, err := g.openReplica(ctx, v)
			var doubt *doubtError
			if errors.As(err, &doubt) {
				g.cfg.Logger.Error("the copy of the volume on this pool is not its old self: it is kept aside and made anew", "volume", v.Name, "error", err)
				err = errors.Join(err, g.renew(v.UUID, "doubt"))
			}
			g.mu.Lock()
			s.problem = err
			if err == nil {
				s.copy, s.policy = c, v.Generation
			}
			g.mu.Unlock()
			if err != nil {
				if ctx.Err() == nil {
					g.cfg.Logger.Error("volume is not open here yet; trying again", "volume", v.Name, "error", err)
				}
				again = true
				continue
			}
			s.router.setCopy(c)
		} else if s.policy != v.Generation {
			s.copy.replica.SetPolicy(policyOf(v))
			s.copy.engine.SetRoom(uint64(v.Spec.Size), 1<<32)
			s.policy = v.Generation
		}
	}
	g.closeGone()
	return again
}

func hasSite(v federation.Volume, site string) bool {
	for _, s := range v.Sites {
		if s == site {
			return true
		}
	}
	return false
}

// servedOf returns what is served of a volume, beginning to serve it if that is new.
func (g *Gateway) servedOf(v federation.Volume) *served {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.volumes[v.UUID]
	if s == nil {
		id, err := uuid.Parse(v.UUID)
		if err != nil {
			g.cfg.Logger.Error("volume's UUID can not be read", "volume", v.Name, "uuid", v.UUID, "error", err)
			return nil
		}
		s = &served{router: &Router{g: g, id: volume.ID(id), uuid: v.UUID, holds: map[volume.Handle]int{}, fresh: map[volume.Handle]freshAttr{}}}
		g.volumes[v.UUID] = s
	}
	return s
}

// closeGone closes volumes that are deleted. Their data stays on the pool until they are purged.
func (g *Gateway) closeGone() {
	g.mu.Lock()
	var gone []*served
	for id, s := range g.volumes {
		if v, ok := g.mirror.volume(id); !ok || v.Deleted {
			gone = append(gone, s)
			delete(g.volumes, id)
		}
	}
	g.mu.Unlock()
	for _, s := range gone {
		s.router.setCopy(nil)
		if s.copy != nil {
			if err := s.copy.close(); err != nil {
				g.cfg.Logger.Warn("volume did not close cleanly", "volume", s.copy.uuid, "error", err)
			}
		}
	}
}

// setAside is called when a volume's log here holds what a forced takeover left out.
func (g *Gateway) setAside(id string, _ log.Position) {
	select {
	case g.aside <- id:
	default: // it is called again with the next greeting
	}
}

// housekeeping looks after files without names and the observed state.
func (g *Gateway) housekeeping(ctx context.Context) {
	reap, observe := time.NewTicker(reapEvery), time.NewTicker(observeEvery)
	defer reap.Stop()
	defer observe.Stop()
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
		case <-observe.C:
			g.eachLeading(func(c *replicaOf) {
				if err := g.observe(ctx, c); err != nil && ctx.Err() == nil {
					g.cfg.Logger.Debug("observed state is not in the registry", "volume", c.uuid, "error", err)
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

// lockKeeping registers the locks of this gateway's clients with homes that are new.
func (g *Gateway) lockKeeping(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		changed := g.mirror.wait()
		g.mu.Lock()
		var all []*Router
		for _, s := range g.volumes {
			all = append(all, s.router)
		}
		g.mu.Unlock()
		for _, v := range all {
			call, cancel := context.WithTimeout(ctx, 2*time.Second)
			v.registerSoon(call)
			cancel()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-t.C:
		}
	}
}

// recovering tells whether clients of this gateway still reclaim what they held before it restarted.
func (g *Gateway) recovering() bool { return g.nfs.InGrace() }

// whenDeposed calls f when an epoch after the given one is heard of, until stop is called.
func (g *Gateway) whenDeposed(ctx context.Context, id string, epoch uint64, f func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for {
			changed := g.mirror.wait()
			if _, now := g.mirror.home(id); now > epoch {
				f()
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return cancel
}
