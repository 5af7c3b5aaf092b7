// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"testing"
)

// A home is stopped for longer than its promises, and goes on. It serves nothing and acknowledges
// nothing of its old epoch.
func TestPausedHome(t *testing.T) {
	for _, what := range []string{"with a write under way", "at rest"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "abc", 2)
			w.up("a", "b")
			w.leads("a", 0)
			w.members("a", "a", "b")
			w.joins("c")
			a, b := w.site("a"), w.site("b")
			w.writes(a, 1, 5, 300)
			var pending <-chan error
			if what != "at rest" {
				w.net.cut("a", "b")
				w.net.cut("a", "c")
				pending = a.write(6, 300)
				w.until("6 is in a's log", func() bool { return a.replica.Status().Commit.Less(a.log.Durable()) })
			}
			a.pause()
			w.leads("b", 1)
			w.writes(b, 10, 12, 300)
			w.net.heal()
			a.resume()
			if a.replica.MayServe() == nil {
				t.Fatal("a serves reads on promises that ended")
			}
			// It may take a while before a knows.
			late := a.write(7, 300)
			if pending != nil {
				if err := w.outcome("write before the pause", pending); err == nil {
					t.Fatal("a acknowledges 6 in its old epoch")
				}
			}
			if err := w.outcome("write after the pause", late); err == nil {
				t.Fatal("a acknowledges 7 in its old epoch")
			}
			w.same(append(numbers(1, 5), numbers(10, 12)...))
			if a.replica.MayServe() != nil {
				// As a member it may read again, but not as home.
				if _, ok := a.replica.Leading(); ok {
					t.Fatal("a leads")
				}
			}
		})
	}
}

// A home that only its members do not hear does not serve for longer than they promised.
func TestHomeThatHearsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 2)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.site("a").reg.SetDown(true) // or it would go on without b
	w.net.cut("b", "a")           // a speaks, b hears it, and its promises are lost
	a := w.site("a")
	w.until("a stops serving", func() bool { return a.replica.MayServe() != nil })
	w.net.cut("a", "b")
	w.leads("b", 1)
	a.reg.SetDown(false)
	w.net.heal()
	w.writes(w.site("b"), 1, 3, 0)
	w.same(numbers(1, 3))
}

// A member is stopped. The volume goes on without it, and it reads no old state when it goes on.
func TestPausedMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "abc", 2)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.joins("c")
	b := w.site("b")
	w.writes(w.site("a"), 1, 2, 0)
	w.until("b has a lease", func() bool { return b.replica.MayServe() == nil })
	b.pause()
	w.must(w.outcome("write without b", w.site("a").write(3, 0)))
	b.resume()
	if b.replica.MayServe() == nil {
		t.Fatal("b reads on a lease although a write was acknowledged without it")
	}
	w.same(numbers(1, 3))
}
