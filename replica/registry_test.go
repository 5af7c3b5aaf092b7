// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"slices"
	"testing"

	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/replica/protocol"
)

func (w *world) registry(down bool) {
	for _, s := range w.sites {
		s.reg.SetDown(down)
	}
}

// protocol-7: without the registry, volumes are served as before, nothing takes over and no members
// change. A site that comes back catches up.
func TestRegistryDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "abc", 2)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.joins("c")
	a, b, c := w.site("a"), w.site("b"), w.site("c")
	w.writes(a, 1, 3, 0)
	w.registry(true)
	c.kill(false)
	for round := range int64(5) {
		w.writes(a, 4+round, 4+round, 0)
		w.pass(testPromise)
		if a.replica.MayServe() != nil {
			t.Fatal("a stopped serving")
		}
	}
	before := *a.replica.Control()
	w.up("c") // it does not know the record: it takes no part before it does
	w.pass(2 * testPromise)
	if st := c.replica.Status(); st.Role != protocol.Follower || st.Joined {
		t.Fatalf("c is %v, joined %t, without knowing the record", st.Role, st.Joined)
	}
	a.kill(true)
	w.pass(5 * testPromise)
	for _, s := range []*site{b, c} {
		if st := s.replica.Status(); st.Role != protocol.Follower {
			t.Fatalf("%s is %v without the registry", s.name, st.Role)
		}
		if s.replica.MayServe() == nil {
			t.Fatalf("%s serves", s.name)
		}
	}
	w.registry(false)
	w.leads("b", before.Epoch)
	w.up("a")
	w.writes(b, 9, 12, 0)
	w.same(numbers(1, 12))
}

// A follower that was cut off and is back catches up without the registry.
func TestFollowerCatchesUpWithoutRegistry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "abc", 2)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.joins("c")
	w.registry(true)
	w.net.cut("a", "c")
	w.net.cut("c", "a")
	w.writes(w.site("a"), 1, 20, 900)
	w.net.heal()
	w.same(numbers(1, 20))
}

// The answer to the swap of a takeover is lost: whether it was applied or not, one epoch begins,
// once.
func TestSwapWithoutAnswer(t *testing.T) {
	for _, f := range []struct {
		name  string
		fault []memory.Fault
	}{
		{"applied", []memory.Fault{memory.UnknownApplied}},
		{"lost", []memory.Fault{memory.UnknownLost}},
		{"late", []memory.Fault{memory.UnknownLate}},
		{"twice", []memory.Fault{memory.UnknownApplied, memory.UnknownLost}},
		{"unavailable", []memory.Fault{memory.UnavailableFault, memory.UnknownApplied}},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "abc", 2)
			w.up("a", "b")
			w.leads("a", 0)
			w.members("a", "a", "b")
			w.joins("c")
			w.writes(w.site("a"), 1, 5, 0)
			w.same(numbers(1, 5))
			w.site("a").kill(false)
			w.site("b").reg.Script(f.fault...)
			w.until("b swaps", func() bool { return w.site("b").replica.Status().Role != protocol.Follower })
			w.pass(testPromise / 2)
			w.site("b").reg.Deliver()
			w.leads("b", 1)
			w.up("a")
			w.writes(w.site("b"), 6, 8, 0)
			w.same(numbers(1, 8))
			if ctl := w.site("b").replica.Control(); !slices.Contains(ctl.Members, ctl.Home) || ctl.Home.Gateway != "b" {
				t.Fatalf("record: %+v", ctl)
			}
		})
	}
}

// A wiped disk comes back under its old name: it is another member, and gets everything again.
func TestWipedMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "abc", 2)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.joins("c")
	w.writes(w.site("a"), 1, 10, 900)
	b := w.site("b")
	old := b.member
	b.kill(true)
	b.disk.Wipe()
	w.up("b")
	w.writes(w.site("a"), 11, 12, 0)
	if ctl := w.site("a").replica.Control(); ctl.IsMember(old) {
		t.Fatal("11 is acknowledged, and a disk that is gone is still a member")
	}
	w.same(numbers(1, 12))
}
