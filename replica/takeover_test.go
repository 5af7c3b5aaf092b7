// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"slices"
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/protocol"
)

// protocol-5, with what each way to lose a home leaves behind.
func TestTakeover(t *testing.T) {
	for _, power := range []bool{false, true} {
		t.Run(map[bool]string{false: "killed", true: "without power"}[power], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "abc", 2)
			w.up("a", "b")
			w.leads("a", 0)
			w.members("a", "a", "b")
			w.joins("c")
			w.writes(w.site("a"), 1, 20, 500)
			// A suffix that nobody else gets, but that is durable here.
			w.net.cut("a", "b")
			w.net.cut("a", "c")
			lost := w.site("a").write(21, 500)
			w.until("21 is durable at a", func() bool { return slices.Contains(w.site("a").durable(), 21) })
			w.site("a").kill(power)
			if err := w.outcome("unanswered write", lost); err == nil {
				t.Fatal("21 was acknowledged")
			}
			w.net.heal()
			w.leads("b", 1)
			w.writes(w.site("b"), 30, 40, 500)
			of := func(gateway string) federation.ObservedReplica {
				all := w.site("b").replica.Lag()
				return all[slices.IndexFunc(all, func(o federation.ObservedReplica) bool { return o.Gateway == gateway })]
			}
			if o := of("a"); !o.Unheard || o.LagBytes != 0 || o.LagSeconds != 0 {
				t.Fatalf("nobody knows how far a trails: %+v", o)
			}
			// The old home is back, cuts what nobody has, and follows.
			w.up("a")
			want := append(numbers(1, 20), numbers(30, 40)...)
			w.same(want)
			w.until("a is heard", func() bool { return !of("a").Unheard })
			if st := w.site("a").replica.Status(); st.Role != protocol.Follower || !st.Joined {
				t.Fatalf("a is %v", st.Role)
			}
			if n := w.site("a").aside.Load(); n != 0 {
				t.Fatal("the old home was set aside")
			}
		})
	}
}

// protocol-5: a home that starts again takes a new epoch, with all that it acknowledged.
func TestHomeRestarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 1)
	w.up("a", "b")
	epoch := w.leads("a", 0)
	var want []int64
	for round := range int64(4) {
		w.writes(w.site("a"), 10*round+1, 10*round+3, 900)
		want = append(want, numbers(10*round+1, 10*round+3)...)
		w.site("a").kill(round%2 == 1)
		w.up("a")
		epoch = w.leads("a", epoch)
	}
	w.same(want)
}

// A new home dies before its first commit: the next one finds what was acknowledged before both.
func TestNewHomeDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "abc", 3)
	w.up("a", "b", "c")
	w.leads("a", 0)
	w.members("a", "a", "b", "c")
	w.writes(w.site("a"), 1, 10, 500)
	w.site("a").kill(true)
	var second *site
	w.until("somebody takes over", func() bool {
		for _, s := range w.sites[1:] {
			if st := s.replica.Status(); st.Role == protocol.Starting || st.Role == protocol.Home {
				second = s
			}
		}
		return second != nil
	})
	second.kill(true)
	w.up("a")
	var third *site
	w.until("another serves", func() bool {
		for _, s := range w.sites {
			if s.node != nil && s.replica.MayServe() == nil {
				if _, ok := s.replica.Leading(); ok {
					third = s
				}
			}
		}
		return third != nil
	})
	w.up(second.name)
	w.writes(third, 11, 15, 500)
	w.same(numbers(1, 15))
}

// A planned move loses nothing and nobody waits for a promise to end.
func TestMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 2)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.writes(w.site("a"), 1, 5, 0)
	began := w.clock()
	w.site("a").replica.Move("b")
	w.leads("b", 1)
	if took := w.clock() - began; took > testPromise {
		t.Fatalf("the move took %v, longer than a promise", took)
	}
	w.writes(w.site("b"), 6, 9, 0)
	w.same(numbers(1, 9))
}

// protocol-6: after a forced takeover, a log with acknowledged changes that were left out is kept,
// not cut, even if they are not applied yet. The old home may have restarted meanwhile, and have
// forgotten what it had acknowledged.
func TestForcedTakeoverLeavesSalvage(t *testing.T) {
	for _, c := range []struct {
		name            string
		lazy, restarted bool
	}{{"applied", false, false}, {"committed", true, false}, {"restarted", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "ab", 1)
			w.up("a", "b")
			w.leads("a", 0)
			w.writes(w.site("a"), 1, 5, 0)
			w.same(numbers(1, 5))
			a := w.site("a")
			a.machine.mu.Lock()
			a.machine.lazy = c.lazy
			a.machine.mu.Unlock()
			w.net.cut("a", "b")
			w.net.cut("b", "a")
			w.writes(a, 6, 8, 0)
			if c.restarted {
				a.kill(true)
			}
			ctl := w.site("b").replica.Control()
			w.site("b").replica.Force(ctl.Epoch, ctl.Change, "")
			w.leads("b", 1)
			w.writes(w.site("b"), 9, 9, 0)
			w.net.heal()
			if c.restarted {
				w.up("a")
			}
			w.until("a is set aside", func() bool { return a.aside.Load() > 0 })
			if have := a.durable(); !slices.Equal(have, numbers(1, 8)) {
				t.Fatalf("a has %v", have)
			}
			if st := a.replica.Status(); st.Role != protocol.Follower || st.Joined {
				t.Fatalf("a is %v, joined %t", st.Role, st.Joined)
			}
		})
	}
}
