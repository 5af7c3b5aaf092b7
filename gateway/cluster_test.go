// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/federation/spec"
	"github.com/weir-storage/weir/gateway/checkpoints"
	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/pools"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/store"
	storemem "github.com/weir-storage/weir/store/memory"
	"github.com/weir-storage/weir/volume"
)

// cluster is a federation in one process: real gRPC, TLS and pools, with the registry and the
// stores in memory.
type cluster struct {
	t       testing.TB
	dir     string
	host    string // address of its gateways
	promise time.Duration
	reg     *memory.Server
	ca      *pki.Authority
	nodes   map[string]*clusterNode
	order   []string
	// pool, if not nil, replaces the pool of a gateway that starts.
	pool func(site string, p cachepool.Pool) cachepool.Pool
	// pools are names of further pools of a gateway that starts. Each has the label tier with its
	// name.
	pools func(site string) []string
	// fs, if not nil, replaces the file system below the metadata of a gateway that starts.
	fs func(site string) vfs.FS
	// store, if not nil, replaces the store of a gateway that starts.
	store func(site string, s store.Store) store.Store
	limit int64            // of pools of gateways that start; 0: 1 GiB
	now   func() time.Time // of gateways that start; nil: time.Now
	lease time.Duration    // of clients of gateways that start; 0: the default
	// memory is for blocks, of gateways that start; 0: the default.
	memory int64
	late   *sync.Mutex // not nil: gateways that start hear of no admission while it is held
	// tracer, if not nil, returns what follows requests at a gateway that starts.
	tracer func(site string) Tracer
	links  *links            // not nil: gateways reach each other by these
	asked  *atomic.Int64     // not nil: gateways that start count there how often they ask for a control record
	of     string            // organization of gateways that start; empty: org- and the site
	lent   *lentRooms        // not nil: stores that others lend to gateways that start
	due    checkpoints.Due   // of gateways that start
	look   time.Duration     // how often they look what to read again; 0: as usual
	source *snapshots.Source // of volumes that are made; nil: they begin empty
	own    bool              // gateways that start lend nothing to others
}

type clusterNode struct {
	site    string
	store   *storemem.Counting
	guard   federation.GuardState // as it was saved last
	archive *memory.Archive
	key     keyring.SiteKey
	gateway *Gateway
	grpc    string
	nfs     string
	stop    context.CancelFunc
	done    chan error
}

func newCluster(t testing.TB, sites ...string) *cluster {
	t.Helper()
	return newClusterOf(t, time.Second, sites...)
}

// newClusterOf returns a cluster with promises of that length. With long ones nothing takes over
// from a gateway that waits for a busy machine.
func newClusterOf(t testing.TB, promise time.Duration, sites ...string) *cluster {
	t.Helper()
	ca, err := pki.NewAuthority("test", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, promise: promise, dir: t.TempDir(), reg: memory.NewServer(7), ca: ca, nodes: map[string]*clusterNode{},
		host: ownAddress()}
	t.Cleanup(func() {
		for _, s := range c.order {
			c.stop(s)
		}
	})
	for _, s := range sites {
		c.add(s)
	}
	return c
}

// add starts the gateway of a new site.
func (c *cluster) add(site string) {
	c.t.Helper()
	key, err := keyring.NewSiteKey()
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[site] = &clusterNode{site: site, store: storemem.NewCounting(storemem.New()), key: key, grpc: c.host + ":0", nfs: c.host + ":0",
		archive: memory.NewArchive()}
	c.order = append(c.order, site)
	c.start(site)
}

var clusters atomic.Uint32

// ownAddress returns an address of this machine that no other cluster has, of this process or of
// another. So nobody takes a port while its gateway is stopped.
func ownAddress() string {
	n, pid := clusters.Add(1), os.Getpid()
	return netip.AddrFrom4([4]byte{127, byte(1 + (pid>>8)%250), byte(pid), byte(1 + n%250)}).String()
}

// bootTime is every gateway's clock.
func (c *cluster) bootTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		c.t.Error(err)
	}
	return time.Duration(ts.Nano())
}

// start starts the gateway of a site, on its former pool if it had one.
func (c *cluster) start(site string) {
	c.t.Helper()
	n := c.nodes[site]
	fail := func(err error) {
		c.t.Helper()
		if err != nil {
			c.t.Fatal(err)
		}
	}
	level := slog.LevelWarn
	if os.Getenv("WEIR_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewTextHandler(c.t.Output(), &slog.HandlerOptions{Level: level})).With("at", site)
	opened, err := dir.Open(dir.Config{Path: filepath.Join(c.dir, site), Gateway: "g" + site, Limit: cmp.Or(c.limit, 1<<30),
		Random: rand.Reader, Log: logger})
	fail(err)
	var pool cachepool.Pool = opened
	if c.pool != nil {
		pool = c.pool(site, opened)
	}
	creds := c.credentials(pki.PartGateway, site, "g"+site, netip.MustParseAddrPort(n.grpc).Addr().String())
	grpcL, err := net.Listen("tcp", n.grpc)
	fail(err)
	nfsL, err := net.Listen("tcp", n.nfs)
	fail(err)
	n.grpc, n.nfs = grpcL.Addr().String(), nfsL.Addr().String() // the same addresses after a restart
	guard, err := federation.NewGuard(func() (federation.GuardState, error) { return n.guard, nil },
		func(s federation.GuardState) error { n.guard = s; return nil }, n.archive)
	fail(err)
	var registry federation.Registry = c.reg.Client(guard)
	if c.late != nil {
		registry = lateAdmissions{registry, c.late}
	}
	now := time.Now
	if c.now != nil {
		now = c.now
	}
	if c.asked != nil {
		registry = countingControls{registry, c.asked}
	}
	var objects store.Store = n.store
	if c.store != nil {
		objects = c.store(site, objects)
	}
	var metadata vfs.FS = vfs.Default
	if c.fs != nil {
		metadata = c.fs(site)
	}
	var tracer Tracer
	if c.tracer != nil {
		tracer = c.tracer(site)
	}
	if c.links != nil {
		registry = linked{registry, c.links, site}
	}
	all := []pools.Pool{{Name: "main", Labels: map[string]string{"tier": "main"}, Pool: pool, Report: opened.Report}}
	if c.pools != nil {
		for _, name := range c.pools(site) {
			more, err := dir.Open(dir.Config{Path: filepath.Join(c.dir, site+"-"+name), Gateway: "g" + site, Limit: cmp.Or(c.limit, 1<<30),
				Random: rand.Reader, Log: logger})
			fail(err)
			all = append(all, pools.Pool{Name: name, Labels: map[string]string{"tier": name}, Pool: more, Report: more.Report})
		}
	}
	lends := []string{federation.LendsToAll}
	if c.own {
		lends = nil
	}
	n.gateway, err = newGateway(Config{
		Borrow: c.lent.open("g" + site), Federation: "test", Organization: cmp.Or(c.of, "org-"+site), Site: site, Name: "g" + site,
		Addr: n.grpc, NFSAddr: n.nfs, GRPC: grpcL, NFS: nfsL,
		Registry: registry, Pools: all, FS: metadata, Store: objects,
		StateDir: filepath.Join(c.dir, site, "clients"), Credentials: creds, SiteKey: n.key,
		Promise: c.promise, Alone: time.Nanosecond, Heartbeat: time.Second / 15, Lease: c.lease, Lends: lends,
		AliveFor: time.Second, Clock: c.bootTime, Timers: clockwork.NewRealClock(),
		Now: now, Rand: rand.Reader, Logger: logger, Tracer: tracer, CacheBytes: c.memory, Checkpoints: c.due, ScrubEvery: c.look,
	})
	fail(err)
	ctx, stop := context.WithCancel(context.Background())
	n.stop, n.done = stop, make(chan error, 1)
	g := n.gateway
	go func() {
		err := g.run(ctx)
		for _, p := range all {
			err = errors.Join(err, p.Close())
		}
		n.done <- errors.Join(err, registry.Close())
	}()
}

// countingControls counts the control records that a gateway asks for.
type countingControls struct {
	federation.Registry
	n *atomic.Int64
}

func (r countingControls) GetControl(ctx context.Context, volume string) (federation.Control, federation.Revision, error) {
	r.n.Add(1)
	return r.Registry.GetControl(ctx, volume)
}

// stop ends the gateway of a site in order. The end-to-end tests kill gateways.
func (c *cluster) stop(site string) {
	c.t.Helper()
	n := c.nodes[site]
	if n.stop == nil {
		return
	}
	n.stop()
	select {
	case err := <-n.done:
		if err != nil {
			c.t.Errorf("gateway of %s: %v", site, err)
		}
	case <-time.After(30 * time.Second):
		c.t.Fatalf("gateway of %s does not stop", site)
	}
	n.stop = nil
}

// create makes a volume with the given spec at all sites, as `weir volume create` does.
func (c *cluster) create(name, manifest string) string {
	c.t.Helper()
	return c.createAt(name, manifest, c.order)
}

// createAt makes a volume with copies at some sites.
func (c *cluster) createAt(name, manifest string, sites []string) string {
	c.t.Helper()
	return c.createBlind(name, manifest, sites)
}

// createBlind makes a volume with copies at some sites, of which some are blind.
func (c *cluster) createBlind(name, manifest string, sites []string, blind ...string) string {
	c.t.Helper()
	m, err := spec.Parse([]byte(manifest))
	if err != nil {
		c.t.Fatal(err)
	}
	reg := c.reg.Client(nil)
	defer func() { _ = reg.Close() }()
	id := uuid.NewString()
	keys := map[string][]byte{}
	for _, s := range sites {
		if !slices.Contains(blind, s) {
			keys[s] = c.nodes[s].key.Public()
		}
	}
	ring, _, err := keyring.New(id, keys, rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx := context.Background()
	var grants []federation.Grant // its owner lets all sites write
	for _, s := range slices.Sorted(maps.Keys(c.nodes)) {
		if !slices.Contains(blind, s) {
			grants = append(grants, federation.Grant{Site: s, Namespace: "test", Access: federation.ReadWrite})
		}
	}
	if _, err := reg.CreateVolume(ctx, federation.Volume{UUID: id, Name: name, Owner: "org-a", Grants: grants, Generation: 1, Spec: m.Spec,
		Sites: sites, Blind: blind, Source: c.source, CreatedAt: time.Now()}, ring); err != nil {
		c.t.Fatal(err)
	}
	return id
}

// router waits until the volume is served at a site.
func (c *cluster) router(site, id string) *routing.Router {
	c.t.Helper()
	g := c.nodes[site].gateway
	var r *routing.Router
	c.until("volume is served at "+site, func() error {
		var err error
		if r, err = c.opened(g, id); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := r.GetAttr(ctx, volume.Request{}, volume.Root); err != nil {
			return fmt.Errorf("%w; %+v", err, g.reporter.Status(id))
		}
		return nil
	})
	return r
}

// at returns the gateway of a site.
func (c *cluster) at(site string) *Gateway { return c.nodes[site].gateway }

// opened returns a volume's router once there is one, whether it can answer or not.
func (c *cluster) opened(g *Gateway, id string) (*routing.Router, error) {
	if r := g.routers.Get(id); r != nil {
		return r, nil
	}
	return nil, errors.New("not known here yet")
}

// until waits for a condition of which nothing notifies.
func (c *cluster) until(what string, holds func() error) {
	c.t.Helper()
	c.within(hang, what, holds)
}

// within is until for what needs several rounds of what comes each quarter of a minute.
func (c *cluster) within(long time.Duration, what string, holds func() error) {
	c.t.Helper()
	for deadline := time.Now().Add(long); ; time.Sleep(10 * time.Millisecond) {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("it does not come true that %s: %v", what, err)
		}
	}
}

// rarely returns what calls f with 0, 1 and so on, but only when it did not within a quarter of a
// second. What is waited for may be late since there is more to do with each call.
func rarely(f func(n int)) func() {
	var last time.Time
	n := 0
	return func() {
		if time.Since(last) < time.Second/4 {
			return
		}
		f(n)
		n++
		last = time.Now()
	}
}

// hang is how long a test waits for what is to happen at once. It is only a guard against hanging,
// and longer than what is looked at each half minute takes.
const hang = time.Minute

// with runs f with a connection to the registry.
func (c *cluster) with(f func(federation.Registry) error) {
	c.t.Helper()
	reg := c.reg.Client(nil)
	defer func() { _ = reg.Close() }()
	if err := f(reg); err != nil {
		c.t.Fatal(err)
	}
}

// admit lets NFS clients of this machine use a volume at a site.
func (c *cluster) admit(site, id string) {
	c.t.Helper()
	c.with(func(reg federation.Registry) error {
		return reg.PutAdmission(context.Background(),
			federation.Admission{Volume: id, Site: site, Client: "127.0.0.1", Access: federation.ReadWrite})
	})
	c.until("the admission is heard of", func() error {
		for _, n := range c.nodes {
			heard := n.gateway.view.MayUse(id, site)
			if n.site == site {
				heard = n.gateway.view.Use(id, netip.MustParseAddr("127.0.0.1")).Recorded != nil
			}
			if n.stop != nil && !heard {
				return errors.New("not at " + n.site)
			}
		}
		return nil
	})
}

// mount connects an NFS client to the gateway of a site, which may be restarted. It returns the
// root of a volume to which the client is admitted.
func (c *cluster) mount(ctx context.Context, site, owner, name string) (*nfsclient.Client, nfsclient.FH) {
	c.t.Helper()
	cl, err := nfsclient.Dial(ctx, c.nodes[site].nfs, nfsclient.Options{Owner: owner})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Abandon)
	if err := cl.ReclaimComplete(ctx); err != nil {
		c.t.Fatal(err)
	}
	root, err := cl.Mount(ctx, name)
	if err != nil {
		c.t.Fatal(err)
	}
	return cl, root.FH
}

func manifest(name string, members int) string {
	ack := "acknowledge: Gateway"
	if members > 1 {
		ack = fmt.Sprintf("acknowledge: Sites, sites: %d", members)
	}
	return fmt.Sprintf(`apiVersion: storage.weir.dev/v1alpha1
kind: GeoVolume
metadata: {name: %s}
spec:
  size: 10Gi
  replication: {copies: 3}
  durability: {%s}
`, name, ack)
}
