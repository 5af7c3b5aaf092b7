// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/grpc"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/admission"
	"github.com/weir-storage/weir/gateway/blind"
	"github.com/weir-storage/weir/gateway/borrowing"
	"github.com/weir-storage/weir/gateway/caching"
	"github.com/weir-storage/weir/gateway/checking"
	"github.com/weir-storage/weir/gateway/clocks"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/keys"
	"github.com/weir-storage/weir/gateway/locks"
	"github.com/weir-storage/weir/gateway/lodging"
	"github.com/weir-storage/weir/gateway/moving"
	"github.com/weir-storage/weir/gateway/nfs"
	"github.com/weir-storage/weir/gateway/nfs/state/records"
	"github.com/weir-storage/weir/gateway/node/nodepb"
	"github.com/weir-storage/weir/gateway/peers"
	"github.com/weir-storage/weir/gateway/pools"
	"github.com/weir-storage/weir/gateway/report"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/gateway/scrub"
	"github.com/weir-storage/weir/gateway/snapshots"
	"github.com/weir-storage/weir/gateway/space"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/outline"
	"github.com/weir-storage/weir/replica/peer"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/replica/protocol"
	"github.com/weir-storage/weir/track"
	"github.com/weir-storage/weir/volume"
)

// Gateway is one gateway process. Run makes and runs it.
type Gateway struct {
	cfg       Config
	self      protocol.Member
	view      *view.View
	peers     *peers.Peers
	pools     *pools.Pools
	pebble    *pebble.Cache
	cache     *engine.BlockCache
	caching   *caching.Caching
	transport *peer.Transport
	node      *replica.Node
	copies    *copies.Manager
	blind     *blind.Keeper
	keys      *keys.Keeper
	clocks    *clocks.Watch
	routers   *routing.Routers
	nfs       *nfs.Server
	panics    atomic.Uint64 // of calls of other gateways
	expeller  *admission.Expeller
	reporter  *report.Reporter
	mover     *moving.Mover
	borrower  *borrowing.Borrower
	lodging   *lodging.Host
	snapshots *snapshots.Keeper
	scrubber  *scrub.Scrubber
	ready     chan struct{} // closed when every volume of the registry has its Router
	// reclaiming is the last result of recovering. The NFS server calls for it with its locks held.
	reclaiming atomic.Bool
	answers    report.Answers
}

// Run serves until ctx ends, or returns why it cannot serve. When it returns, all its goroutines
// have ended.
func Run(ctx context.Context, cfg Config) error {
	g, err := newGateway(cfg)
	if err != nil {
		return err
	}
	return g.run(ctx)
}

// kinds are the kinds of records that a gateway watches.
var kinds = []federation.Kind{federation.KindSite, federation.KindAlive, federation.KindVolume, federation.KindControl,
	federation.KindAdmission, federation.KindKeyring, federation.KindAttachment, federation.KindPurged, federation.KindClaim,
	federation.KindCharter, federation.KindPaper}

// newGateway makes the parts, each from those before it. If it fails, it closes what it made.
func newGateway(cfg Config) (_ *Gateway, err error) {
	cfg.setDefaults()
	g := &Gateway{cfg: cfg, view: view.New(cfg.Site, kinds...), ready: make(chan struct{})}
	g.answers.Begin(cfg.Now())
	g.view.SetClock(cfg.Now)
	defer func() {
		if err != nil {
			err = errors.Join(err, g.release())
		}
	}()
	g.peers = peers.New(cfg.Federation, cfg.Name, cfg.Credentials, g.view, watching(cfg.Tracer, cfg.Meters, cfg.Logger))
	if g.pools, err = pools.Open(pools.Config{Pools: cfg.Pools, Wanted: g.poolOf, Now: cfg.Now, Random: cfg.Rand,
		Logger: cfg.Logger}); err != nil {
		return nil, err
	}
	g.clocks = clocks.New(clocks.Config{Gateway: cfg.Name, Site: cfg.Site, Others: g.view, Ask: g.peers.Forward, Now: cfg.Now,
		Clock: cfg.Clock, Timers: cfg.Timers, Logger: cfg.Logger, Alone: cfg.Alone, Jumped: func() { g.node.Jumped(); g.copies.Jumped() }})
	main := g.pools.Main()
	g.self = protocol.Member{Gateway: cfg.Name, Site: cfg.Site, Incarnation: main.Incarnation().String()}
	g.transport = peer.New(g.peers.Dial, func(name string) { g.node.PeerDown(name) }, cfg.Timers, cfg.Logger)
	g.node = replica.NewNode(replica.NodeConfig{Self: g.self, Promise: cfg.Promise, Former: cfg.Former, Heartbeat: cfg.Heartbeat,
		Evictor: g.pools, Clock: cfg.Clock, Timers: cfg.Timers, Registry: cfg.Registry, Transport: g.transport,
		Disks: g.disks(), Logger: cfg.Logger, Meter: cfg.Meters})
	g.routers = routing.New(routing.Config{
		Gateway: cfg.Name, Site: cfg.Site, Incarnation: g.self.Incarnation, Boot: main.Boot(), Promise: cfg.Promise,
		View: g.view, Peers: g.peers, Registry: cfg.Registry, Clock: cfg.Clock, Timers: cfg.Timers, Logger: cfg.Logger,
		Recovering: g.recovering, Reclaiming: g.reclaiming.Load, Verifier: g.verifier, Forwarded: cfg.Meters.Forwarded,
		Slow: &track.Slow{After: cfg.Slow, Log: cfg.Logger, Now: cfg.Now}, Tracer: cfg.Tracer,
		Prefetch: func() routing.Prefetch { return g.caching },
		Revoke: func(id volume.ID, h volume.Handle, owner volume.LockOwner) bool {
			return g.nfs.RevokeLocks(id, h, owner)
		},
	})
	g.pebble = pebble.NewCache(cfg.CacheBytes / 8 * 3)
	g.cache = engine.NewBlockCache(cfg.CacheBytes)
	g.borrower, err = borrowing.New(borrowing.Config{Gateway: cfg.Name, Organization: cfg.Organization, View: g.view, Open: cfg.Borrow,
		Registry: cfg.Registry, Credentials: cfg.Credentials, Dir: cfg.StateDir, Now: cfg.Now, Timers: cfg.Timers, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	g.keys = &keys.Keeper{Self: g.self, View: g.view, Registry: cfg.Registry, SiteKey: cfg.SiteKey, Now: cfg.Now, Vault: g.pools.Keys,
		After: cfg.Timers.After, Rand: cfg.Rand, Rotates: g.peers.Signed, Forward: g.peers.Forward, Caller: g.peers.Identity,
		Logger: cfg.Logger}
	g.blind = blind.New(blind.Config{Gateway: cfg.Name, View: g.view, Client: g.peers.Segments, Store: cfg.Store, Dir: g.pools.Volume,
		Timers: cfg.Timers, Every: cfg.Checkpoints.Every, Logger: cfg.Logger})
	g.copies, err = copies.NewManager(copies.ManagerConfig{
		Self: g.self, Promise: cfg.Promise, View: g.view, Registry: cfg.Registry, Peers: g.peers, Node: g.node, Pool: g.pools, FS: cfg.FS,
		Store: cfg.Store, Lent: g.borrower.Sources, Cache: g.cache, Pebble: g.pebble, Now: cfg.Now, Timers: cfg.Timers, Rand: cfg.Rand,
		Logger: cfg.Logger, Verifier: g.verifier, Recovering: g.recovering, Keys: g.keys, Blind: g.blind,
		Agreed: g.clocks.Agreed, Clock: cfg.Clock, Heartbeat: cfg.Heartbeat, Follow: g.routers.Follow, Checkpoints: cfg.Checkpoints,
		Serve: g.routers.Serve, Attach: g.routers.Attach, Gone: g.routers.Drop, Heard: g.heard, Synced: cfg.Meters.Synced,
	})
	if err != nil {
		return nil, err
	}
	g.blind.Manage(g.copies)
	g.lodging = lodging.New(lodging.Config{Gateway: cfg.Name, Site: cfg.Site, Organization: cfg.Organization,
		By: cfg.Credentials.Identity().String(), View: g.view, Registry: cfg.Registry, Copies: g.copies, Pools: g.pools, Store: cfg.Store,
		Now: cfg.Now, Timers: cfg.Timers, Logger: cfg.Logger})
	g.caching = caching.New(caching.Config{Gateway: cfg.Name, Site: cfg.Site, Incarnation: g.self.Incarnation, View: g.view,
		Copies: g.copies, Pools: g.pools, Memory: g.cache, Now: cfg.Now, Timers: cfg.Timers, Logger: cfg.Logger, Own: g.ownOrganization})
	kept, err := records.Open(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	g.nfs, err = nfs.New(nfs.Config{
		Gateway: cfg.Name, ServerOwner: cfg.Federation + "/" + cfg.Site + "/" + cfg.Name, ServerScope: cfg.Federation,
		Boot: main.Boot(), Lease: cfg.Lease, Memory: int(cfg.Memory), Log: cfg.Logger, Observe: cfg.Meters.Operation, Slow: cfg.Slow,
		Exports: admission.Exports{View: g.view, Routers: g.routers}, State: kept, Clock: clock{cfg}, Rand: cfg.Rand,
		Tracer: cfg.Tracer, StartTLS: peers.Clients(cfg.Credentials, cfg.Organization, cfg.Site),
	})
	if err != nil {
		return nil, err
	}
	g.reclaiming.Store(g.recovering())
	g.expeller = admission.NewExpeller(cfg.Site, g.view, g.nfs, cfg.Logger)
	g.snapshots = snapshots.New(snapshots.Config{View: g.view, Copies: g.copies, Routers: g.routers, Now: cfg.Now, Timers: cfg.Timers,
		Agreed: g.clocks.Agreed, Disputed: g.clocks.Disputed, Logger: cfg.Logger})
	g.scrubber = scrub.New(scrub.Config{Gateway: cfg.Name, View: g.view, Copies: g.copies, Registry: cfg.Registry, Timers: cfg.Timers,
		Rand: cfg.Rand, Tell: cfg.Meters.Scrubbed, Logger: cfg.Logger, LookEvery: cfg.ScrubEvery})
	g.reporter = report.New(report.Config{Gateway: cfg.Name, View: g.view, Copies: g.copies, Peers: g.peers, Registry: cfg.Registry,
		Snapshots: g.snapshots.Report, Scrubs: g.scrubber, Now: cfg.Now, Timers: cfg.Timers, Logger: cfg.Logger})
	g.mover = moving.New(moving.Config{Self: g.self, Organization: cfg.Organization, Promise: cfg.Promise, View: g.view,
		Registry: cfg.Registry, Copies: g.copies, Peers: g.peers, Reporter: g.reporter, Timers: cfg.Timers, Logger: cfg.Logger,
		Seal: signed.New(cfg.Credentials, nil, nil), Now: cfg.Now})
	return g, nil
}

// release closes what newGateway made, except the NFS server, which is made last.
func (g *Gateway) release() error {
	var err error
	if g.copies != nil {
		err = g.copies.Close()
	}
	if g.node != nil {
		g.node.Close()
		g.transport.Close()
	}
	if g.pebble != nil {
		g.pebble.Unref()
	}
	if g.pools != nil {
		for _, p := range g.pools.All() {
			p.CloseProbe()
		}
	}
	g.peers.Close()
	return err
}

// run runs the gateway until ctx ends or a part fails.
func (g *Gateway) run(ctx context.Context) error {
	cfg := g.cfg
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer cfg.Meters.Watch(g.state, g.nameOf)()
	server := grpc.NewServer(append(g.peers.ServerOptions(), peers.Guarded(cfg.Logger, func() { g.panics.Add(1) })...)...)
	peerpb.RegisterPeerServer(server, &peer.Server{Caller: g.peers.Caller, Deliver: g.node.Deliver,
		Fetched: g.copies.Fetch, May: g.copies.May, Newest: g.blind.Newest, Told: g.blind.Told, Objects: g.copies.Objects})
	peerpb.RegisterOutlinesServer(server, &outline.Server{Caller: g.peers.Caller, Open: g.copies.Home,
		Uses: func(volume, gateway string) bool { return locks.Reads(g.view, volume, gateway) }})
	forwardpb.RegisterForwardServer(server, &service{g: g, Caching: g.caching, Keeper: g.keys, Mover: g.mover, Watch: g.clocks,
		Server: routing.Server{Routers: g.routers, Copies: g.copies},
		Counter: space.New(space.Config{Gateway: cfg.Name, Site: cfg.Site, Organization: cfg.Organization, View: g.view, Copies: g.copies,
			Store: cfg.Store, Caller: g.peers.Identity}), Checks: checking.New(checking.ChecksConfig{Gateway: cfg.Name, Site: cfg.Site,
			Organization: cfg.Organization, View: g.view, Copies: g.copies, Store: cfg.Store, Now: cfg.Now, Timers: cfg.Timers,
			Logger: cfg.Logger, Caller: g.peers.Identity})})
	nodepb.RegisterNodeServer(server, admission.NewNodes(admission.Config{
		Organization: cfg.Organization, Site: cfg.Site, Gateway: cfg.Name, NFSAddr: cfg.NFSAddr, View: g.view, Registry: cfg.Registry,
		Peers: g.peers, Routers: g.routers, Reporter: g.reporter, Server: g.nfs, Timers: cfg.Timers, Now: cfg.Now, Logger: cfg.Logger,
		Ready: g.ready,
	}))

	var work sync.WaitGroup
	failed := make(chan error, 2)
	for _, loop := range []func(context.Context){g.watch, g.register, g.tend, g.copies.Run, g.copies.KeepReaping, g.copies.KeepPurging,
		g.copies.KeepCheckpoints, g.blind.Run, g.reporter.Run, g.expeller.Run, g.keepRegistered, g.clocks.Run, g.caching.Run, g.watchPools,
		g.movePools, g.lodging.Run, g.snapshots.Run, g.scrubber.Run, func(ctx context.Context) { g.borrower.Run(ctx, g.copies) }} {
		work.Go(func() { loop(ctx) })
	}
	work.Go(func() {
		if err := server.Serve(cfg.GRPC); err != nil {
			failed <- fmt.Errorf("serve gRPC on %s: %w", cfg.GRPC.Addr(), err)
		}
	})
	work.Go(func() {
		if err := g.serveNFS(ctx); err != nil {
			failed <- err
		}
	})
	var err error
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
	n := g.nfs.Counters()
	cfg.Logger.Info("nfs server has stopped", "requests", n.Requests, "operations", n.Operations, "errors", n.Errors,
		"repeats", n.Repeats, "dropped", n.Dropped, "panics", n.Panics)
	server.Stop()
	work.Wait()
	return errors.Join(err, g.release())
}

// serveNFS serves clients once there is something to serve (gateway-1).
func (g *Gateway) serveNFS(ctx context.Context) error {
	cfg := g.cfg
	select {
	case <-g.ready:
	case <-ctx.Done():
		_ = cfg.NFS.Close() // nobody was served
		return nil
	}
	cfg.Health.set(func() { cfg.Health.listening = true })
	defer cfg.Health.set(func() { cfg.Health.listening = false })
	if err := g.nfs.Serve(cfg.NFS); err != nil && !errors.Is(err, nfs.ErrServerClosed) && ctx.Err() == nil {
		return fmt.Errorf("serve NFS on %s: %w", cfg.NFS.Addr(), err)
	}
	return nil
}

// heard handles that every volume of the registry has its Router.
func (g *Gateway) heard() {
	g.cfg.Health.set(func() { g.cfg.Health.heard = true })
	close(g.ready)
}

// keepRegistered registers the locks of this gateway's clients with homes that are new.
func (g *Gateway) keepRegistered(ctx context.Context) {
	g.routers.KeepRegistered(ctx, func() { g.reclaiming.Store(g.recovering()) })
}

// recovering reports that clients of this gateway still reclaim what they held before it restarted.
func (g *Gateway) recovering() bool { return g.nfs.InGrace() }

// verifier returns the write verifier of an epoch (gateway-3).
func (g *Gateway) verifier(epoch uint64) volume.Verifier {
	h := sha256.Sum256(fmt.Appendf(nil, "weir verifier\n%s\n%s\n%d\n%d", g.cfg.Name, g.self.Incarnation, g.pools.Main().Boot(), epoch))
	return volume.Verifier(h[:8])
}

// clock is the NFS server's clock.
type clock struct{ cfg Config }

// Now implements nfs.Clock.
func (c clock) Now() time.Time { return c.cfg.Now() }

// After implements nfs.Clock.
func (c clock) After(d time.Duration) <-chan time.Time { return c.cfg.Timers.After(d) }
