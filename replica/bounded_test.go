// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-storage/weir/replica/protocol"
)

// TestBoundedStaleness: at a follower without a vote, under writes, while links are cut and homes
// stop, are killed and come back, no read shows what was true more than two seconds before. The
// test owns the clock.
func TestBoundedStaleness(t *testing.T) {
	const most, reads = 2 * time.Second, 10_000
	w := newWorld(t, "abc", 2)
	for _, s := range w.sites {
		s.staleness = most
	}
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.joins("c")
	rnd := rand.New(rand.NewPCG(11, 12))
	type acked struct {
		id int64
		at time.Duration
	}
	var all []acked
	open := map[int64]<-chan error{} // writes without an answer
	next := int64(1)
	shown, stale, refused := 0, 0, 0
	c := w.site("c")
	var down *site
	for trouble := time.Duration(0); shown < reads; {
		now := w.clock()
		if now >= trouble { // another one begins, or the last one ends
			trouble = now + time.Duration(rnd.Int64N(int64(8*time.Second)))
			switch {
			case down != nil && down.paused:
				down.resume()
				down = nil
			case down != nil:
				down.start()
				down = nil
			}
			w.net.heal()
			home := w.home()
			switch k := rnd.IntN(8); {
			case k == 0 && home != nil:
				down = home
				home.pause()
			case k == 1 && home != nil:
				down = home
				for id := range open { // its answers never come
					delete(open, id)
				}
				home.kill(rnd.IntN(2) == 0)
			case k == 2 && home != nil:
				w.net.cut(home.name, "c")
			case k == 3 && home != nil:
				w.net.cut("c", home.name)
			case k == 4:
				w.net.cut("a", "b")
				w.net.cut("b", "a")
			}
		}
		if home := w.home(); home != nil && !home.paused && len(open) < 4 {
			for range rnd.IntN(3) {
				open[next] = home.write(next, rnd.IntN(300))
				next++
			}
		}
		w.step()
		for id, done := range open {
			select {
			case err := <-done:
				delete(open, id)
				if err == nil {
					all = append(all, acked{id, w.clock()})
				}
			default:
			}
		}
		for range 5 { // while time goes on and nothing comes
			if c.node == nil || c.paused {
				break
			}
			pos, ok := c.replica.Bounded()
			if !ok {
				refused++
				break
			}
			if c.machine.Applied().Less(pos) {
				w.settle()
			}
			if now := c.machine.Applied(); now.Less(pos) {
				t.Fatalf("c has applied up to %v, and says that all up to %v is committed", now, pos)
			}
			shown++
			slices.SortFunc(all, func(a, b acked) int { return cmp.Compare(a.id, b.id) })
			ids, newest := c.machine.ids(), w.clock()
			for _, x := range slices.Backward(all) {
				if slices.Contains(ids, x.id) {
					break // and all before it
				}
				newest = x.at
			}
			if old := w.clock() - newest; old > most {
				t.Fatalf("a read at %v does not show what was acknowledged %v before", w.clock(), old)
			} else if old > 0 {
				stale++
			}
			w.now.Add(int64(rnd.Int64N(int64(20 * time.Millisecond))))
		}
	}
	if down != nil && down.paused {
		down.resume()
	}
	t.Logf("%d reads showed a state of at most %v before, %d of them not the newest; %d were refused; %d writes were acknowledged",
		shown, most, stale, refused, len(all))
	if refused == 0 || stale == 0 || len(all) < 1000 {
		t.Error("the test had no trouble")
	}
}

// home returns the site that leads; nil: none does.
func (w *world) home() *site {
	for _, s := range w.sites {
		if s.node != nil && !s.paused && s.replica.Status().Role == protocol.Home {
			return s
		}
	}
	return nil
}

// TestBounded: a follower knows how old its state is, with and without its home, and a home and a
// volume with another policy do not say so.
func TestBounded(t *testing.T) {
	w := newWorld(t, "abc", 2)
	for _, s := range w.sites {
		s.staleness = 2 * time.Second
	}
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.joins("c")
	a, c := w.site("a"), w.site("c")
	w.writes(a, 1, 5, 100)
	w.until("c knows all", func() bool {
		pos, ok := c.replica.Bounded()
		return ok && !pos.Less(a.log.End())
	})
	if _, ok := a.replica.Bounded(); ok {
		t.Error("the home shows an earlier state")
	}
	if c.replica.MayServe() == nil {
		t.Error("a follower without a vote has a lease")
	}
	c.replica.SetStaleness(0)
	if _, ok := c.replica.Bounded(); ok {
		t.Error("a volume whose readers are shown everything shows an earlier state")
	}
	c.replica.SetStaleness(2 * time.Second)
	w.net.cut("a", "c")
	began := w.clock()
	w.until("c does not know any more", func() bool { _, ok := c.replica.Bounded(); return !ok })
	if took := w.clock() - began; took < time.Second || took > 2*time.Second {
		t.Errorf("without its home c shows its state for %v", took)
	}
	w.net.heal()
	w.until("c knows again", func() bool { _, ok := c.replica.Bounded(); return ok })
	c.node.Jumped() // the machine stood still, nobody knows for how long
	w.settle()
	if _, ok := c.replica.Bounded(); ok {
		t.Error("after the clock jumped, c believes what it knew before")
	}
	w.until("c knows once more", func() bool { _, ok := c.replica.Bounded(); return ok })
}
