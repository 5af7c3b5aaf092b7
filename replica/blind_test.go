// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"testing"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/protocol"
)

// newBlindWorld makes a world whose copy at b is blind. a and c may be home.
func newBlindWorld(t *testing.T) *world {
	w := newWorld(t, "abc", 2)
	w.policy.Sites, w.policy.Blind = []string{"a", "c", "b"}, []string{"b"}
	w.site("b").blind = true
	return w
}

// TestSteward: the home dies, with the blind member the only other one. That takes over, appends
// nothing, and hands on to the keyed copy, which has all that was acknowledged.
func TestSteward(t *testing.T) {
	for _, power := range []bool{false, true} {
		t.Run(map[bool]string{false: "killed", true: "without power"}[power], func(t *testing.T) {
			t.Parallel()
			w := newBlindWorld(t)
			w.up("a", "b")
			w.leads("a", 0)
			w.members("a", "a", "b")
			w.writes(w.site("a"), 1, 40, 900) // some segments
			w.up("c")
			w.until("c follows", func() bool { return w.site("c").log.Durable() == w.site("a").log.End() })
			b := w.site("b").replica
			if err := b.MayServe(); err != journal.ErrNotHome {
				t.Errorf("the blind copy may serve: %v", err)
			}
			w.site("a").kill(power)
			w.until("b leads, as a steward", func() bool {
				_, reigns := b.Reigns()
				return reigns
			})
			_, leads := b.Leading()
			_, err := b.Append(t.Context(), &segment.Record{})
			if leads || err != journal.ErrNotHome || b.MayServe() != journal.ErrNotHome {
				t.Errorf("the steward leads: %t; it appends: %v; it serves: %v", leads, err, b.MayServe())
			}
			w.leads("c", 1)
			w.writes(w.site("c"), 50, 60, 900)
			w.members("c", "b", "c")
			w.up("a")
			w.same(append(numbers(1, 40), numbers(50, 60)...))
			w.until("the blind copy uploads", w.site("b").stored)
			// It goes on after a restart, with what it has.
			w.site("b").kill(power)
			w.up("b")
			w.writes(w.site("c"), 61, 65, 900)
			w.members("c", "b", "c")
			w.same(append(append(numbers(1, 40), numbers(50, 60)...), numbers(61, 65)...))
		})
	}
}

// TestStewardWaits: nobody with a key is left. The blind member keeps the volume, and shows who
// trails, until one with a key is back.
func TestStewardWaits(t *testing.T) {
	t.Parallel()
	w := newBlindWorld(t)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.writes(w.site("a"), 1, 10, 900)
	w.site("a").kill(false)
	b := w.site("b").replica
	w.until("b leads", func() bool { _, reigns := b.Reigns(); return reigns })
	w.pass(10 * testPromise)
	if st := b.Status(); st.Role != protocol.Home || st.Epoch != 2 {
		t.Fatalf("it is %v in epoch %d", st.Role, st.Epoch)
	}
	if len(b.Lag()) == 0 {
		t.Error("it does not say how the copies are")
	}
	w.up("a")
	w.leads("a", 2)
	w.writes(w.site("a"), 11, 20, 900)
	w.same(numbers(1, 20))
}

// TestBlindIsNotTrusted: a copy without a key counts only at a site that the owner calls blind.
func TestBlindIsNotTrusted(t *testing.T) {
	t.Parallel()
	w := newBlindWorld(t)
	w.policy.Blind = nil
	w.up("a", "b")
	w.leads("a", 0)
	w.pass(10 * testPromise)
	w.members("a", "a")
}
