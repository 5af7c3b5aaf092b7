// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"github.com/jonboulle/clockwork"

	"context"
	"crypto/rand"
	"log/slog"
	mrand "math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/cachepool/readcache"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/protocol"
	storemem "github.com/weir-storage/weir/store/memory"
)

// A world is a federation in one process: nodes over crashable disks, a network and a registry with
// faults, and a clock that only World.step moves on, so that no promise ends because this machine
// is slow.

const (
	testVolume  = "aa010000-0000-4000-8000-000000000000"
	testBeat    = 100 * time.Millisecond
	testPromise = 4 * time.Second
	segmentSize = 8 << 10
)

var testKey = [32]byte{1, 2, 3}

type world struct {
	*testing.T
	now    atomic.Int64
	server *memory.Server
	net    *network
	sites  []*site
	policy protocol.Policy
	maxLag MaxLag
	// uncommitted is NodeConfig's.
	uncommitted int64
}

type site struct {
	w      *world
	name   string
	disk   *crashfs.Disk
	store  *storemem.Store
	reg    *memory.Client
	swaps  Controls // what the node gets instead of reg, if not nil
	member protocol.Member
	// another opens the log of another volume on the same pool; used is how full that is.
	another func(uuid string, id segment.VolumeID) (*log.Log, error)
	used    func() int64
	seen    federation.Revision
	aside   atomic.Int64 // calls
	ended   atomic.Int64 // calls
	anew    atomic.Int64 // calls
	node    *Node        // nil while down
	cache   *readcache.Cache
	pool    cachepool.Pool
	log     *log.Log
	machine *machine
	other   journal.Machine // what the replica gets instead of machine, if not nil
	// opening is called, if not nil, before the log is opened, and its machine is the replica's.
	opening func(dir cachepool.Dir, cfg *log.Config) volumeMachine
	replica *Replica
	paused  bool
	// staleness is Config's.
	staleness time.Duration
	// key is the data key that this site has; testKey unless a test says otherwise.
	key [32]byte
	// blind: it has no key, and no machine.
	blind bool
}

// newWorld makes a world of sites, one letter each, of which want are members. None is up.
func newWorld(t *testing.T, names string, want int) *world {
	w := &world{T: t, server: memory.NewServer(7)}
	w.net = newNetwork(w)
	w.now.Store(int64(time.Hour))
	for _, c := range names {
		name := string(c)
		w.sites = append(w.sites, &site{w: w, name: name, key: testKey, store: storemem.New(), reg: w.server.Client(nil),
			disk: newDisk(name, 64<<20)})
		w.policy.Sites = append(w.policy.Sites, name)
	}
	w.policy.Want, w.policy.FirstHome = want, names[:1]
	t.Cleanup(func() {
		for _, s := range w.sites {
			if s.paused {
				s.resume()
			}
			s.stop()
		}
		w.net.close()
	})
	return w
}

func newDisk(name string, limit int64) *crashfs.Disk {
	return crashfs.NewDisk(crashfs.Config{Gateway: name, Limit: limit, Rand: mrand.New(mrand.NewPCG(uint64(name[0]), 5))})
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) clock() time.Duration { return time.Duration(w.now.Load()) }

func (w *world) site(name string) *site {
	for _, s := range w.sites {
		if s.name == name {
			return s
		}
	}
	w.Fatalf("no site %s", name)
	return nil
}

func (w *world) logger(name string) *slog.Logger {
	if os.Getenv("WEIR_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(w.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("at", name)
}

// up starts sites.
func (w *world) up(names ...string) {
	w.Helper()
	for _, name := range names {
		w.site(name).start()
	}
}

// joins starts a site, and waits until it has the log from the home. One that is started with the
// others may become a member in another's place, if this machine is busy.
func (w *world) joins(name string) {
	w.Helper()
	w.up(name)
	w.until(name+" follows", func() bool { return w.site(name).replica.Status().Joined })
}

func (s *site) start() {
	w := s.w
	w.Helper()
	pool, err := s.disk.Open()
	w.must(err)
	s.pool = pool
	s.used = func() int64 { return pool.Room().Status().Used }
	s.another = func(uuid string, id segment.VolumeID) (*log.Log, error) {
		dir, err := pool.Volume(uuid)
		w.must(err)
		return log.Open(log.Config{Dir: dir, Room: pool.Room(), Volume: id, DataKey: testKey,
			Sources: func() []log.Source { return nil }, Rand: rand.Reader, Now: time.Now, SegmentSize: segmentSize})
	}
	dir, err := pool.Volume(testVolume)
	w.must(err)
	var sources []log.Source
	for _, o := range w.sites {
		if o != s {
			sources = append(sources, source{o, s})
		}
	}
	logConfig := log.Config{Dir: dir, Room: pool.Room(), Volume: segment.VolumeID{0xaa, 1}, DataKey: testKey,
		Sources: func() []log.Source { return sources },
		Rand:    rand.Reader, Now: time.Now, SegmentSize: segmentSize, Blind: s.blind}
	if s.blind {
		logConfig.DataKey = segment.DataKey{}
	}
	var real volumeMachine
	if s.opening != nil {
		real = s.opening(dir, &logConfig)
		s.other = real
	}
	opened, err := log.Open(logConfig)
	w.must(err)
	s.cache = readcache.New(readcache.Config{Room: pool.Room()})
	cached, err := s.cache.Open(testVolume, dir, readcache.Share{})
	w.must(err)
	w.net.mu.Lock()
	s.log = opened // others read sealed segments from it
	w.net.mu.Unlock()
	w.must(s.log.Recovered().Doubt)
	s.machine = newMachine(w)
	if !s.blind && real == nil {
		w.must(s.log.Replay(context.Background(), Position{}, func(e log.Entry) error { return s.machine.Ingest([]log.Entry{e}) }))
	}
	s.member = protocol.Member{Gateway: s.name, Site: s.name, Incarnation: pool.Incarnation().String()}
	var registry Controls = s.reg
	if s.swaps != nil {
		registry = s.swaps
	}
	s.node = newNode(NodeConfig{Uncommitted: w.uncommitted, Self: s.member, Promise: testPromise, Heartbeat: testBeat,
		Evictor: s.cache, Clock: w.clock,
		Timers: clockwork.NewRealClock(), Registry: registry,
		Transport: transport{w.net, s.name},
		Disks:     []Disk{{func() error { return nil }, func(string) bool { return true }}}, Logger: w.logger(s.name)})
	var m journal.Machine = s.machine
	if s.other != nil {
		m = s.other
	}
	cfg := Config{Volume: testVolume, Log: s.log, Machine: m, Policy: w.policy, DataKey: s.key, MaxLag: w.maxLag,
		Staleness: s.staleness, Blind: s.blind,
		Store: s.store, Aside: func(Position) { s.aside.Add(1) }, Ended: func(error) { s.ended.Add(1) },
		Anew: func() { s.anew.Add(1) }, Logger: w.logger(s.name)}
	if s.blind {
		cfg.Machine, cfg.DataKey = nil, [32]byte{}
	}
	if real != nil {
		real.KnowSegments(closedOf(opened))
		w.must(real.Replay(context.Background(), opened, opened.Recovered().Committed))
	}
	s.replica = s.node.Open(cfg)
	s.machine.replica = s.replica
	if real != nil {
		real.Attach(s.replica)
	}
	cached.Attach(s.replica)
	s.seen = 0
	w.net.attach(s)
	s.replica.Start()
	w.introduce()
}

// introduce sends every site the list of sites.
func (w *world) introduce() {
	var all []protocol.Member
	for _, s := range w.sites {
		if s.member.Gateway != "" {
			all = append(all, s.member)
		}
	}
	for _, s := range w.sites {
		if s.node != nil && !s.paused {
			s.node.SetPeers(all)
		}
	}
}

// kill ends the process at once. With power, what was not synced may be lost.
func (s *site) kill(power bool) {
	if power {
		s.disk.Crash()
	} else {
		s.disk.Kill()
	}
	s.stop()
}

// stop ends the process in order.
func (s *site) stop() {
	if s.node == nil {
		return
	}
	s.w.net.detach(s)
	within(s.w.T, "close of node "+s.name, s.node.Close)
	err := s.log.Close()
	if err == nil {
		s.disk.Kill()
	}
	s.node = nil
	for _, o := range s.w.sites {
		if o.node != nil && !o.paused {
			o.node.PeerDown(s.name)
		}
	}
}

// pause stops the process as SIGSTOP does: its replica does nothing, and time goes on.
func (s *site) pause() {
	s.replica.mu.Lock()
	s.paused = true
}

func (s *site) resume() {
	s.paused = false
	s.replica.mu.Unlock()
}

// hangs is how long a wait may take. It is only a guard against hanging.
const hangs = 2 * time.Minute

// within fails the test if f does not return.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(hangs):
		panic(what + " hangs") // so that all goroutines are shown
	}
}
