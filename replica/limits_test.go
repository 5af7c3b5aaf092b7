// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/protocol"
)

// The queue of a loop that hangs in a disk write is bounded, and the loop goes on when the disk is
// back.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 2)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.writes(w.site("a"), 1, 3, 0)
	w.same(numbers(1, 3))
	a, b := w.site("a"), w.site("b")
	reached := make(chan struct{})
	release := b.holdCommits(reached)
	_ = a.write(4, 0)
	w.until("b's loop hangs", func() bool {
		select {
		case <-reached:
			return true
		default:
			return false
		}
	})
	st := a.replica.Status()
	for range 3 * maxMessages {
		b.node.Deliver([]Envelope{{Volume: testVolume, Message: protocol.Message{Kind: protocol.Advance, From: a.member,
			Epoch: st.Epoch, Stamp: w.clock(), Commit: st.Commit}}})
		b.node.tick()
		b.node.probe(b.node.cfg.Disks[0])
	}
	b.replica.mu.Lock()
	n := len(b.replica.queue)
	b.replica.mu.Unlock()
	if n > maxMessages+10 {
		t.Fatalf("%d events wait", n)
	}
	release()
	w.writes(a, 5, 8, 0)
	w.same(numbers(1, 8))
}

// A follower without room sends Lost once in a while, not for every batch. It goes on when sealed
// segments are in its store.
func TestFullFollower(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 1)
	b := w.site("b")
	b.limit(96 << 10)
	b.store.SetFault(func(op, _ string) error {
		if op == "put" {
			return errors.New("not yet")
		}
		return nil
	})
	lost := make(chan struct{}, 1000)
	w.net.watch(func(to string, e Envelope) {
		if to == "a" && e.Message.Kind == protocol.Lost {
			lost <- struct{}{}
		}
	})
	w.up("a", "b")
	w.leads("a", 0)
	a, began := w.site("a"), w.clock()
	for id := int64(1); id <= 300; id++ {
		w.must(w.outcome("write", a.write(id, 900)))
	}
	w.pass(10 * restFor)
	if n, most := len(lost), 2*int((w.clock()-began)/restFor)+5; n > most {
		t.Fatalf("b asked %d times to begin again, want at most %d", n, most)
	}
	if st := b.replica.Status(); st.Role != protocol.Follower || !st.Joined {
		t.Fatalf("b is %v, joined %t", st.Role, st.Joined)
	}
	b.store.SetFault(nil)
	w.same(numbers(1, 300))
}

// A member whose pool is full and whose store does not take anything goes on promising. The home is
// not held up by it: another copy counts instead. Without one, its gateways say why writes wait.
func TestFullMember(t *testing.T) {
	t.Parallel()
	for _, names := range []string{"abc", "ab"} {
		t.Run(names, func(t *testing.T) {
			w := newWorld(t, names, 2)
			a, b := w.site("a"), w.site("b")
			b.limit(96 << 10)
			b.store.SetFault(func(string, string) error { return errors.New("the store is on fire") })
			w.up("a", "b")
			w.leads("a", 0)
			w.members("a", "a", "b")
			if names == "abc" {
				w.up("c")
			}
			var writes []<-chan error
			for id := int64(1); id <= 300; id++ {
				writes = append(writes, a.write(id, 900))
			}
			all := func() {
				for _, c := range writes {
					w.must(w.outcome("a write", c))
				}
				writes = nil
			}
			if names == "abc" {
				w.members("a", "a", "c")
				all()
			} else {
				w.until("b is named", func() bool {
					i := slices.IndexFunc(a.replica.Lag(), func(r federation.ObservedReplica) bool { return r.StuckSeconds > 0 })
					return i >= 0 && a.replica.Lag()[i].Gateway == "b" && strings.Contains(b.replica.Waiting(), "the store is on fire")
				})
			}
			b.store.SetFault(nil)
			all()
			w.same(a.machine.ids())
			if n := len(b.machine.ids()); n != 300 {
				t.Errorf("b has %d writes", n)
			}
			if why := b.replica.Waiting(); why != "" {
				t.Errorf("b waits for room: %s", why)
			}
		})
	}
}

// A follower whose machine is behind takes no more, without holding up who sends, and goes on when
// it has caught up.
func TestFollowerIsBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 1)
	a, b := w.site("a"), w.site("b")
	w.up("a", "b")
	w.leads("a", 0)
	behind := func(is bool) {
		b.machine.mu.Lock()
		defer b.machine.mu.Unlock()
		b.machine.behind = is
	}
	w.writes(a, 1, 10, 900)
	w.same(numbers(1, 10))
	behind(true)
	w.writes(a, 11, 300, 900)
	if n := len(b.machine.ids()); n != 10 {
		t.Errorf("b has %d writes although it is behind", n)
	}
	behind(false)
	w.same(numbers(1, 300))
}

// A full home evicts segments that are in its store. Without a store, the writer gets an error.
func TestFullHome(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", 1)
	a := w.site("a")
	a.limit(96 << 10)
	w.up("a")
	w.leads("a", 0)
	w.writes(a, 1, 300, 900)
	w.same(numbers(1, 300))
	// What a crash would have it replay is still here: the store may be away then.
	a.machine.mu.Lock()
	kept := a.machine.kept
	a.machine.mu.Unlock()
	gone := 0
	for _, s := range a.log.Segments() {
		if !s.Local {
			gone++
			if kept.Less(Position{Seq: s.Seq, Off: s.Len}) {
				t.Errorf("segment %d is evicted, and the state is durable up to %v", s.Seq, kept)
			}
		}
	}
	if gone == 0 {
		t.Error("nothing is evicted")
	}
}

// A full home whose store is down reports it, accepts removals meanwhile (protocol-15), and goes on
// when the store is back.
func TestFullHomeWithoutItsStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", 1)
	a := w.site("a")
	a.limit(96 << 10)
	a.store.SetFault(func(string, string) error { return errors.New("the store is on fire") })
	w.up("a")
	w.leads("a", 0)
	last := int64(0)
	var waits <-chan error
	for waits == nil {
		last++
		c := a.write(last, 900)
		w.until("it is written or waits", func() bool {
			if a.replica.Waiting() != "" {
				waits = c
				return true
			}
			select {
			case err := <-c:
				w.must(err)
				return true
			default:
				return false
			}
		})
	}
	w.until("the store is blamed", func() bool { return strings.Contains(a.replica.Waiting(), "on fire") })
	if why := a.replica.Waiting(); !strings.Contains(why, "pool.size") {
		t.Fatalf("what is said has no remedy: %s", why)
	}
	w.must(w.outcome("removal", a.write(1000, removal)))
	a.store.SetFault(nil)
	w.must(w.outcome("write that waited", waits))
	w.same(append(append(numbers(1, last-1), 1000), last))
	if why := a.replica.Waiting(); why != "" {
		t.Fatalf("nothing waits any more, and it is said: %s", why)
	}
}

// Close ends whoever waits, whatever for.
func TestCloseWhileOthersWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 2)
	w.maxLag = MaxLag{Bytes: 4 << 10}
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	a := w.site("a")
	w.writes(a, 1, 2, 0)
	w.net.hold("a", "b", "frames", true) // the stream waits
	waits := a.write(3, 1<<10)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	slowed := make(chan error, 1)
	go func() {
		for id := int64(4); ; id++ {
			if _, _, err := a.machine.append(ctx, id, 1<<10); err != nil {
				slowed <- err
				return
			}
		}
	}()
	w.until("the writer is slowed", func() bool { return a.replica.tooFar() })
	within(t, "close", a.replica.Close)
	for _, c := range []<-chan error{waits, slowed} {
		if err := <-c; err == nil {
			t.Fatal("a write succeeds after Close")
		}
	}
	if err := a.replica.MayServe(); !errors.Is(err, errClosed) {
		t.Fatalf("MayServe: %v", err)
	}
	within(t, "second close", a.replica.Close)
}

// A commit that nobody waits for any more leaves nothing behind.
func TestWaitersGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 2)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	a := w.site("a")
	a.reg.SetDown(true)
	w.net.cut("a", "b")
	ctx, cancel := context.WithCancel(context.Background())
	pos, _, err := a.machine.append(ctx, 1, 0)
	w.must(err)
	done := make(chan error, 1)
	go func() { done <- a.replica.WaitCommitted(ctx, pos) }()
	w.until("somebody waits", func() bool { return a.waiting() == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || a.waiting() != 0 {
		t.Fatalf("%v, %d wait", err, a.waiting())
	}
}

func (s *site) waiting() int {
	s.replica.mu.Lock()
	defer s.replica.mu.Unlock()
	return len(s.replica.waiters)
}

// limit gives a site that was never up another disk, with that much room.
func (s *site) limit(n int64) { s.disk = newDisk(s.name, n) }
