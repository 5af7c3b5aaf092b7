// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"slices"
	"testing"

	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/replica/protocol"
)

// leads waits until a site serves as home in an epoch after the given one, and returns its epoch.
func (w *world) leads(name string, after uint64) uint64 {
	w.Helper()
	s := w.site(name)
	var epoch uint64
	w.until(name+" serves", func() bool {
		e, ok := s.replica.Leading()
		epoch = e
		return ok && e > after && s.replica.MayServe() == nil
	})
	return epoch
}

// members waits until the record has exactly these members and the home knows it.
func (w *world) members(home string, names ...string) {
	w.Helper()
	w.until("members", func() bool {
		ctl := w.site(home).replica.Control()
		if ctl == nil {
			return false
		}
		var have []string
		for _, m := range ctl.Members {
			have = append(have, m.Gateway)
		}
		slices.Sort(have)
		return slices.Equal(have, names)
	})
}

// write begins a write and returns the channel of its outcome.
func (s *site) write(id int64, size int) <-chan error {
	out := make(chan error, 1)
	m := s.machine
	go func() { out <- m.write(context.Background(), id, size) }()
	return out
}

// outcome steps until a write has ended.
func (w *world) outcome(what string, c <-chan error) error {
	w.Helper()
	var err error
	w.until(what, func() bool {
		select {
		case err = <-c:
			return true
		default:
			return false
		}
	})
	return err
}

// writes writes the numbers from first to last at a site, one after the other.
func (w *world) writes(s *site, first, last int64, size int) {
	w.Helper()
	for id := first; id <= last; id++ {
		w.must(w.outcome("write", s.write(id, size)))
	}
}

func numbers(first, last int64) (out []int64) {
	for id := first; id <= last; id++ {
		out = append(out, id)
	}
	return out
}

// same waits until all sites that are up have applied exactly want and have the same log.
func (w *world) same(want []int64) {
	w.Helper()
	w.until("all have the same", func() bool {
		var end Position
		for _, s := range w.sites {
			if s.node == nil {
				continue
			}
			if !s.blind && !slices.Equal(s.machine.ids(), want) || s.log.Durable() != s.log.End() || end != (Position{}) &&
				end != s.log.End() {
				return false
			}
			end = s.log.End()
		}
		return true
	})
}

// durable returns the numbers in a site's log that are fsynced.
func (s *site) durable() (out []int64) {
	s.w.Helper()
	end := s.log.Durable()
	m := newMachine(s.w)
	s.w.must(s.log.Replay(context.Background(), Position{}, entriesUpTo(end, m)))
	for _, c := range m.pending {
		if c.id != 0 {
			out = append(out, c.id)
		}
	}
	return out
}

// protocol-2: what is acknowledged is fsynced on every member.
func TestCommitOnAllMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "abc", 3)
	w.up("a", "b", "c")
	w.leads("a", 0)
	w.members("a", "a", "b", "c")
	for id := int64(1); id <= 30; id++ {
		w.must(w.outcome("write", w.site("a").write(id, 700)))
		for _, s := range w.sites {
			if !slices.Contains(s.durable(), id) {
				t.Fatalf("%d is acknowledged and not durable at %s", id, s.name)
			}
		}
	}
	w.same(numbers(1, 30))
	// The power fails everywhere: every site that comes back has it all.
	for _, s := range w.sites {
		s.kill(true)
	}
	w.up("b", "c", "a")
	w.leads("a", 1)
	w.same(numbers(1, 30))
}

// A member that stops acknowledging delays the commit until it is removed. Then it is not waited
// for.
func TestSilentMemberIsRemoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "abc", 2)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.joins("c")
	w.writes(w.site("a"), 1, 3, 0)
	w.net.cut("b", "a") // its answers are lost
	c := w.site("a").write(4, 0)
	w.must(w.outcome("write without b", c))
	w.members("a", "a", "c")
	if !slices.Contains(w.site("c").durable(), 4) {
		t.Fatal("4 is acknowledged and not at the new member")
	}
	w.net.heal()
	w.same(numbers(1, 4))
	if st := w.site("b").replica.Status(); st.Role != protocol.Follower {
		t.Fatalf("b is %v", st.Role)
	}
}

// protocol-3: a member whose fsync failed acknowledges nothing any more, and is replaced. The fsync
// is not tried again.
func TestFailedFsyncEndsTheMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "abc", 2)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.joins("c")
	w.writes(w.site("a"), 1, 3, 0)
	b := w.site("b")
	w.settle()
	durable := b.log.Durable()
	b.disk.FailSync(1)
	w.must(w.outcome("write without b", w.site("a").write(4, 0)))
	w.members("a", "a", "c")
	w.pass(testPromise)
	if st := b.replica.Status(); st.Role != protocol.Failed || durable.Less(b.log.Durable()) || durable.Less(st.Durable) {
		t.Fatalf("b is %v and durable up to %v, before the failure %v", st.Role, b.log.Durable(), durable)
	}
	if n := b.ended.Load(); n != 1 {
		t.Errorf("its owner was told %d times that it ended", n)
	}
}

// A write that fails may be in the file all the same: its outcome is not known, and the home ends.
func TestFailedWriteHasNoOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 2)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.writes(w.site("a"), 1, 3, 0)
	a := w.site("a")
	a.disk.FailWrite(1)
	pos, _, err := a.machine.append(context.Background(), 4, 0)
	if err != nil {
		t.Fatalf("append says that nothing was appended: %v", err)
	}
	c := make(chan error, 1)
	go func() { c <- a.replica.WaitCommitted(context.Background(), pos) }()
	if err := w.outcome("commit of a failed write", c); err == nil {
		t.Fatal("a failed write is committed")
	}
	w.leads("b", 1)
}

// A home whose disk makes no file for the next segment ends, as after a failed write: its owner
// opens the copy again.
func TestFailedCreateEndsTheHome(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 2)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.writes(w.site("a"), 1, 3, 0)
	w.settle()
	a := w.site("a")
	a.node.Jumped() // so that the next record begins a segment
	a.disk.Fail(crashfs.OpCreate, 1, crashfs.ErrIO)
	if err := w.outcome("write without a segment", a.write(4, 0)); err == nil {
		t.Fatal("it is acknowledged")
	}
	w.leads("b", 1)
	if n := a.ended.Load(); n != 1 {
		t.Errorf("its owner was told %d times that it ended", n)
	}
}

// A copy is given up, and that cannot be noted on its pool. Its owner is told all the same, and
// opens it again.
func TestDisownThatIsNotNoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 2)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.writes(w.site("a"), 1, 3, 0)
	w.settle()
	b := w.site("b")
	b.disk.FailWrite(1)
	b.replica.enqueue(input{do: func() { b.replica.disown(protocol.Disown{By: "a", Committed: Position{Seq: 9}}) }})
	w.until("b has failed", func() bool { return b.replica.Status().Role == protocol.Failed })
	w.settle()
	if n := b.ended.Load(); n != 1 {
		t.Errorf("its owner was told %d times that it ended", n)
	}
}
