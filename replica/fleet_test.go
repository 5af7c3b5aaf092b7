// SPDX-License-Identifier: Apache-2.0

package replica_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/cachepool/readcache"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/protocol"
	storemem "github.com/weir-storage/weir/store/memory"
)

const (
	fleetPromise = 3 * time.Second
	fleetBeat    = fleetPromise / 15
	hangs        = 2 * time.Minute
)

// fleet is many gateways with many idle volumes, over logs in memory, with a clock that only beat
// moves on. Volume v's home is gateway v, modulo holders, and the next gateways have its other
// copies; so the gateways from holders on share nothing with anybody.
type fleet struct {
	testing.TB
	now     atomic.Int64
	beats   int
	names   []string
	nodes   map[string]*replica.Node
	volumes []*idleVolume
	settle  func() // waits until what was sent has arrived
}

type idleVolume struct {
	copies []*replica.Replica // the home's first
}

func (f *fleet) clock() time.Duration { return time.Duration(f.now.Load()) }

// newFleet makes a fleet whose volumes have three copies each, of which two are members. transport
// makes a gateway's transport.
func newFleet(tb testing.TB, gateways, holders, volumes int, transport func(f *fleet, gateway string) replica.Transport) *fleet {
	f := &fleet{TB: tb, nodes: map[string]*replica.Node{}}
	f.now.Store(int64(time.Hour))
	server := memory.NewServer(7)
	var members []protocol.Member
	logger := slog.New(slog.DiscardHandler)
	type machine struct {
		disk  *crashfs.Disk
		open  func(v int) *log.Log
		store *storemem.Store
	}
	machines := map[string]machine{}
	for i := range gateways {
		name := fmt.Sprintf("g%03d", i)
		disk := crashfs.NewDisk(crashfs.Config{Gateway: name, Limit: 8 << 30, Rand: mrand.New(mrand.NewPCG(uint64(i), 5))})
		pool, err := disk.Open()
		f.must(err)
		self := protocol.Member{Gateway: name, Site: name, Incarnation: pool.Incarnation().String()}
		members = append(members, self)
		f.names = append(f.names, name)
		f.nodes[name] = replica.NewQuietNode(replica.NodeConfig{Self: self, Promise: fleetPromise, Heartbeat: fleetBeat, Clock: f.clock,
			Timers: clockwork.NewRealClock(), Registry: server.Client(nil), Transport: transport(f, name),
			Evictor: readcache.New(readcache.Config{Room: pool.Room()}),
			Disks:   []replica.Disk{{Probe: func() error { return nil }, Has: func(string) bool { return true }}}, Logger: logger})
		machines[name] = machine{disk: disk, store: storemem.New(), open: func(v int) *log.Log {
			dir, err := pool.Volume(volumeName(v))
			f.must(err)
			l, err := log.Open(log.Config{Dir: dir, Room: pool.Room(), Volume: segment.VolumeID{1, byte(v), byte(v >> 8)},
				DataKey: segment.DataKey{1}, Sources: func() []log.Source { return nil }, Rand: rand.Reader, Now: time.Now,
				SegmentSize: 8 << 10})
			f.must(err)
			f.Cleanup(func() { _ = l.Close() })
			return l
		}}
	}
	for v := range volumes {
		x := &idleVolume{}
		policy := protocol.Policy{Want: 2}
		for i := range 3 {
			policy.Sites = append(policy.Sites, f.names[(v+i)%holders])
		}
		policy.FirstHome = policy.Sites[0]
		for _, g := range policy.Sites {
			r := f.nodes[g].Open(replica.Config{Volume: volumeName(v), Log: machines[g].open(v), Machine: &idleMachine{}, Policy: policy,
				DataKey: segment.DataKey{1}, Store: machines[g].store, Aside: func(replica.Position) {}, Ended: func(error) {},
				Logger: logger})
			x.copies = append(x.copies, r)
		}
		f.volumes = append(f.volumes, x)
	}
	f.Cleanup(func() {
		for _, n := range f.nodes {
			n.Close()
		}
	})
	for _, n := range f.nodes {
		n.SetPeers(members)
	}
	for _, x := range f.volumes {
		for _, r := range x.copies {
			r.Start()
		}
	}
	return f
}

func volumeName(v int) string { return fmt.Sprintf("aa010000-0000-4000-8000-%012d", v) }

func (f *fleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// beat lets a heartbeat pass at every gateway.
func (f *fleet) beat() {
	f.now.Add(int64(fleetBeat))
	f.beats++
	for _, g := range f.names {
		if f.beats%3 == 0 { // a node does it every quarter of a promise
			f.nodes[g].Probe()
		}
		f.nodes[g].Tick()
	}
	f.settle()
}

// lapsed returns the first volume whose home may not serve, or which a copy does not follow, or
// -1.
func (f *fleet) lapsed() int {
	for v, x := range f.volumes {
		s := x.copies[0].Status()
		if x.copies[0].MayServe() != nil || s.Control == nil || len(s.Control.Members) != 2 {
			return v
		}
		reads := 0
		for _, r := range x.copies[1:] {
			if !r.Status().Joined {
				return v
			}
			if r.MayServe() == nil {
				reads++
			}
		}
		if reads == 0 { // one of them is a member
			return v
		}
	}
	return -1
}

// begin lets all volumes come to rest.
func (f *fleet) begin() {
	f.Helper()
	for end := time.Now().Add(hangs); f.lapsed() >= 0 || f.busy(); {
		f.beat()
		if time.Now().After(end) {
			f.Fatalf("volume %d does not come to rest: %+v", f.lapsed(), f.volumes[f.lapsed()].copies[0].Status())
		}
	}
	for range 3 * int(fleetPromise/fleetBeat) { // what is sent only at the beginning
		f.beat()
	}
}

func (f *fleet) busy() bool {
	for _, n := range f.nodes {
		if n.Busy() {
			return true
		}
	}
	return false
}

// idleMachine is a machine to which nothing happens.
type idleMachine struct {
	mu        sync.Mutex
	committed journal.Position
}

func (m *idleMachine) Ingest([]journal.Entry) error { return nil }
func (m *idleMachine) Behind() bool                 { return false }
func (m *idleMachine) Committed(pos journal.Position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.committed = pos
}
func (m *idleMachine) Drop(journal.Position) error { return nil }
func (m *idleMachine) Applied() journal.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.committed
}
func (m *idleMachine) Persist(journal.Position) (journal.Position, error) { return m.Applied(), nil }
func (m *idleMachine) Lead(context.Context, uint64) error                 { return nil }
func (m *idleMachine) Unlead()                                            {}
func (m *idleMachine) Show(*segment.Record, journal.Position)             {}
