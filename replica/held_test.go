// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/cachepool/readcache"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/protocol"
)

// What cannot be committed does not fill memory and the pool: unstable writes wait too. They go on
// when the member is back.
func TestUncommittedWritesWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 2)
	w.uncommitted = 64 << 10
	a, b := w.site("a"), w.site("b")
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	b.stop()
	const writes = 200
	done := make(chan error, 1)
	m, mu, begun := a.machine, sync.Mutex{}, 0
	go func() { // nothing waits for its commit
		for id := int64(1); id <= writes; id++ {
			if _, _, err := m.append(context.Background(), id, 900); err != nil {
				done <- err
				return
			}
			mu.Lock()
			begun++
			mu.Unlock()
		}
		done <- nil
	}()
	w.until("much is uncommitted", func() bool {
		return a.log.Distance(a.replica.Status().Commit, a.log.End()) > 64<<10
	})
	for range 50 {
		w.step()
		time.Sleep(time.Millisecond)
	}
	if d := a.log.Distance(a.replica.Status().Commit, a.log.End()); d > 70<<10 {
		t.Errorf("%d bytes are uncommitted", d)
	}
	mu.Lock()
	if begun == writes {
		t.Error("no writer waits")
	}
	mu.Unlock()
	w.up("b")
	w.must(w.outcome("all writes", done))
	w.same(numbers(1, writes))
}

// failing is a registry that fails all swaps at once.
type failing struct {
	Controls
	err error

	mu    sync.Mutex
	times []time.Time
}

func (f *failing) SwapControl(context.Context, string, federation.Revision, federation.Control) (federation.Revision, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.times = append(f.times, time.Now())
	return 0, f.err
}

// A registry that fails at once, as an etcd without space does, is asked ever more rarely.
func TestFailedSwapsBackOff(t *testing.T) {
	t.Parallel()
	for _, err := range []error{federation.ErrUnknown, federation.ErrUnavailable} {
		w := newWorld(t, "a", 1)
		f := &failing{Controls: w.site("a").reg, err: err}
		w.site("a").swaps = f
		w.up("a")
		w.until("five attempts", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.times) >= 5
		})
		f.mu.Lock()
		if took := f.times[4].Sub(f.times[0]); took < 750*time.Millisecond {
			t.Errorf("%v: five attempts within %v", err, took)
		}
		f.mu.Unlock()
	}
}

// A site that cannot unwrap the volume's key follows, and has no vote (protocol-17).
func TestSiteWithoutTheKeyHasNoVote(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "abc", 3)
	w.site("b").key = [32]byte{9}
	w.up("a", "b", "c")
	w.leads("a", 0)
	counts := func(name string) bool {
		ctl := w.site("a").replica.Control()
		return ctl != nil && slices.ContainsFunc(ctl.Members, func(m federation.Member) bool { return m.Gateway == name })
	}
	w.until("c is a member", func() bool { return counts("c") })
	w.pass(3 * testPromise)
	if counts("b") {
		t.Error("a site without the key is a member")
	}
}

// After the clock jumped, the home's next record is under another salt (protocol-16), and nothing
// is lost.
func TestNewSaltAfterAJump(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 2)
	a := w.site("a")
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	end := a.log.End()
	if end.Off != segment.HeaderSize {
		t.Fatalf("the log ends at %v, and not after a segment's header", end)
	}
	for i, fails := range []error{nil, log.ErrFull, nil} { // first without a write before
		before := a.log.End().Seq
		a.node.Jumped()
		if fails != nil {
			a.disk.Fail(crashfs.OpCreate, 1, fails)
		}
		w.writes(a, int64(2*i+1), int64(2*i+2), 100)
		if now := a.log.End().Seq; now != before+1 {
			t.Errorf("jump %d: the segment was %d and is %d", i, before, now)
		}
	}
	w.same(numbers(1, 6))
}

// A volume that has nothing to evict gets room from another one of the same pool.
func TestRoomOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", 1)
	a := w.site("a")
	w.up("a")
	w.leads("a", 0)
	idle, err := a.another("bb010000-0000-4000-8000-000000000000", segment.VolumeID{0xbb, 1})
	w.must(err)
	_, err = idle.BeginEpoch(1)
	w.must(err)
	for range 30 {
		raw := make([]byte, 900)
		_, _ = rand.Read(raw) // never fails; what can be compressed takes no room
		_, err = idle.Append(&segment.Record{Epoch: 1, Blocks: []segment.Block{{Raw: raw}}})
		w.must(err)
	}
	w.must(idle.Wait(t.Context(), idle.End()))
	for _, s := range idle.Segments() {
		if s.Name != "" { // it is closed
			w.must(idle.MarkStored(s.Name))
		}
	}
	m := newMachine(w)
	m.applied = idle.End()
	other := a.node.Open(Config{Volume: "bb", Log: idle, Machine: m, Policy: w.policy, DataKey: testKey, Logger: w.logger("a")})
	dir, err := a.pool.Volume("bb010000-0000-4000-8000-000000000000")
	w.must(err)
	cached, err := a.cache.Open("bb", dir, readcache.Share{})
	w.must(err)
	cached.Attach(other)
	before := a.used()
	if freed := a.replica.makeRoom(2 * segmentSize); freed < 2*segmentSize || a.used() > before-freed {
		t.Errorf("%d bytes are freed", freed)
	}
	cached.Detach()
	other.Close()
	if freed := other.Shed(); freed != 0 {
		t.Errorf("a replica that is closed evicts %d bytes", freed)
	}
	w.must(idle.Close())
}

// A gateway that cannot unwrap the volume's key makes nobody give a log up, whatever it says is
// committed (protocol-3).
func TestRefusalNeedsTheKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 1)
	a, b := w.site("a"), w.site("b")
	w.up("a", "b")
	epoch := w.leads("a", 0)
	w.writes(a, 1, 3, 100)
	w.same(numbers(1, 3))
	refuse := func(key [32]byte) {
		more := Position{Seq: a.log.End().Seq + 1}
		m := protocol.Message{Kind: protocol.Refuse, From: b.replica.self, Epoch: epoch, Commit: more, End: more, Epochs: b.log.Epochs()}
		a.node.Deliver([]Envelope{{Volume: testVolume, Message: m, Proof: proof(key, testVolume, m.From, epoch)}})
	}
	refuse([32]byte{9})
	w.writes(a, 4, 6, 100)
	if n := a.ended.Load(); n != 0 {
		t.Fatal("a gave its log up for a gateway without the key")
	}
	refuse(testKey)
	w.until("a gives its log up", func() bool { return a.ended.Load() > 0 })
}
