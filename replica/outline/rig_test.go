// SPDX-License-Identifier: Apache-2.0

package outline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/replica/protocol"
)

const (
	theVolume = "00000000-0000-0000-0000-000000000001"
	// hang is only a guard against hanging.
	hang = 30 * time.Second
)

var (
	theID  = segment.VolumeID{15: 1}
	theKey = segment.DataKey{7}
	salts  = rand.NewChaCha8([32]byte{1})
)

// home is a home whose commits, promises and reign the test decides.
type home struct {
	*log.Log
	mu     sync.Mutex
	epoch  uint64 // 0: it is not home
	commit Position
	moved  chan struct{}
	may    error
	uses   bool
	asked  int // how often it was asked whether it may serve
	lends  time.Duration
	loan   protocol.Lend
	known  Position // what the follower told that it knows
	stamp  time.Duration
}

// Reading lends a lease to whoever reads, if lends is not 0.
func (h *home) Reading(e protocol.Reading) {
	if e.Gateway != "far" {
		panic(e.Gateway)
	}
	h.set(func() {
		h.known, h.stamp = e.Known, e.Stamp
		if e.Reads > 0 && h.lends > 0 && e.Epoch == h.epoch {
			h.loan = protocol.Lend{Epoch: h.epoch, Grant: h.lends, Echo: e.Stamp, End: h.End()}
		}
	})
}

// lent returns the newest loan, and stamped when the follower told something last.
func (h *home) lent() protocol.Lend {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.loan
}

func (h *home) stamped() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stamp
}

func (h *home) Loan(string) (protocol.Lend, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.loan, h.loan != protocol.Lend{}
}

// knows reports whether the follower told that it knows that the log reaches to pos.
func (h *home) knows(pos Position) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known == pos
}

func (h *home) Leading() (uint64, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.epoch, h.epoch > 0
}

func (h *home) Committed() (Position, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commit, h.moved
}

func (h *home) MayServe() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	return h.may
}

// set changes the state of the home.
func (h *home) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.moved)
	h.moved = make(chan struct{})
}

func newLog(t *testing.T, epoch uint64) *log.Log {
	t.Helper()
	cfg := config(t, crashfs.NewDisk(crashfs.Config{Gateway: "home", Limit: 1 << 30, Rand: rand.New(rand.NewPCG(epoch, 1))}))
	l, err := log.Open(cfg)
	if err == nil {
		_, err = l.BeginEpoch(epoch)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func config(t *testing.T, disk *crashfs.Disk) log.Config {
	t.Helper()
	disk.Kill()
	pool, err := disk.Open()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := pool.Volume("v")
	if err != nil {
		t.Fatal(err)
	}
	return log.Config{Dir: dir, Room: pool.Room(), Volume: theID, DataKey: theKey, Rand: salts, Now: time.Now}
}

// write appends a record, which is not committed yet.
func (h *home) write(t *testing.T) Position {
	t.Helper()
	r := &segment.Record{Time: 1, Ops: []segment.Op{{Kind: segment.SetBlock, Key: []byte("k")}},
		Blocks: []segment.Block{{Raw: make([]byte, 60<<10)}}}
	end, err := h.Append(r)
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// machine applies at once, unless it is stopped.
type machine struct {
	mu      sync.Mutex
	applied Position
	queued  Position
	stopped bool
	moved   chan struct{}
	entries int
}

func (m *machine) Ingest(entries []journal.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		if !m.queued.Less(e.End) {
			return fmt.Errorf("%v after %v", e.End, m.queued)
		}
		m.queued = e.End
		m.entries++
	}
	return nil
}

func (m *machine) Behind() bool { return false }

func (m *machine) Committed(Position) { m.set(func() {}) }

func (m *machine) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	if !m.stopped {
		m.applied = m.queued
	}
	close(m.moved)
	m.moved = make(chan struct{})
}

func (m *machine) Applied() Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.applied
}

func (m *machine) WaitApplied(ctx context.Context, pos Position) error {
	for {
		m.mu.Lock()
		ok, moved := !m.applied.Less(pos), m.moved
		m.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rig is a home and a follower, over loopback.
type rig struct {
	*testing.T
	*Follower
	h        *home
	m        *machine
	disk     *crashfs.Disk
	client   peerpb.OutlinesClient
	clock    time.Duration
	reign    uint64
	over     context.CancelFunc
	changed  chan struct{}
	diverged chan string
	beats    time.Duration // of its heartbeat; 0: an hour
	mu       sync.Mutex
	opened   sync.WaitGroup
	closing  context.CancelFunc // closes the home's copy
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, h: &home{Log: newLog(t, 3), epoch: 3, moved: make(chan struct{}), uses: true}, m: &machine{moved: make(chan struct{})},
		disk:  crashfs.NewDisk(crashfs.Config{Gateway: "far", Limit: 1 << 20, Rand: rand.New(rand.NewPCG(9, 1))}),
		clock: time.Hour, reign: 3, changed: make(chan struct{}), diverged: make(chan string, 1)}
	closes, closing := context.WithCancel(context.Background())
	r.closing = closing
	s := grpc.NewServer()
	peerpb.RegisterOutlinesServer(s, &Server{Caller: func(context.Context) (string, error) { return "far", nil },
		Uses: func(volume, gateway string) bool {
			r.h.mu.Lock()
			defer r.h.mu.Unlock()
			return r.h.uses && volume == theVolume && gateway == "far"
		},
		Open: func(ctx context.Context, _ string) (context.Context, Home, error) {
			r.opened.Add(1)
			ctx, cancel := context.WithCancel(ctx)
			context.AfterFunc(closes, cancel)
			return ctx, Home{Log: r.h.Log, Replica: r.h, Done: r.opened.Done}, nil
		}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r.client = peerpb.NewOutlinesClient(conn)
	r.follow()
	return r
}

// follow starts a follower on the disk.
func (r *rig) follow() {
	r.Helper()
	cfg := config(r.T, r.disk)
	cfg.KnownApplied = r.m.Applied()
	l, err := log.OpenOutline(cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.Follower = Follow(Config{Volume: theVolume, Log: l, Machine: r.m, Heartbeat: cmp.Or(r.beats, time.Hour),
		Clock: func() time.Duration { r.mu.Lock(); defer r.mu.Unlock(); r.clock++; return r.clock },
		Home: func() (peerpb.OutlinesClient, uint64, context.Context, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.reign == 0 {
				return nil, 0, nil, journal.ErrNotHome
			}
			over, end := context.WithCancel(context.Background())
			r.over = end
			return r.client, r.reign, over, nil
		},
		Changed: func() <-chan struct{} { r.mu.Lock(); defer r.mu.Unlock(); return r.changed },
		Timers:  clockwork.NewRealClock(), Logger: slog.New(slog.DiscardHandler),
		Diverged: func(why error) { r.diverged <- why.Error() }})
	r.Start()
	r.Cleanup(r.Close)
}

// pass lets time pass.
func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock += d
}

// rules makes the follower hear of another reign.
func (r *rig) rules(epoch uint64) {
	r.mu.Lock()
	r.reign = epoch
	if r.over != nil {
		r.over()
	}
	close(r.changed)
	r.changed = make(chan struct{})
	r.mu.Unlock()
}

// current waits until Current succeeds.
func (r *rig) current() Position {
	r.Helper()
	for end := time.Now().Add(hang); ; time.Sleep(time.Millisecond) {
		ctx, cancel := context.WithTimeout(r.Context(), hang)
		pos, err := r.Current(ctx)
		cancel()
		if err == nil {
			return pos
		}
		if !errors.Is(err, journal.ErrNotHome) || time.Now().After(end) {
			r.Fatal(err)
		}
	}
}

// waits calls Current, which must not return before release was called.
func (r *rig) waits(release func()) Position {
	r.Helper()
	type result struct {
		pos Position
		err error
	}
	done := make(chan result, 1)
	r.h.mu.Lock()
	was := r.h.asked
	r.h.mu.Unlock()
	go func() {
		ctx, cancel := context.WithTimeout(r.Context(), hang)
		defer cancel()
		pos, err := r.Current(ctx)
		done <- result{pos, err}
	}()
	r.until("the home was asked", func() bool { r.h.mu.Lock(); defer r.h.mu.Unlock(); return r.h.asked > was })
	select {
	case got := <-done:
		r.Fatalf("it returned %v, %v", got.pos, got.err)
	case <-time.After(20 * time.Millisecond):
	}
	release()
	got := <-done
	if got.err != nil {
		r.Fatal(got.err)
	}
	return got.pos
}

func (r *rig) until(what string, holds func() bool) {
	r.Helper()
	for end := time.Now().Add(hang); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("it does not come true that %s", what)
		}
	}
}
