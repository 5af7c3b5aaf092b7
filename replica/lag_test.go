// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"testing"
)

// protocol-11: while a copy that answers trails too far, the home's writers wait. The copy is never
// further behind than the policy says, except for one record.
func TestMaxLagSlowsWriters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 1)
	const limit, record = 20 << 10, 1 << 10
	w.maxLag = MaxLag{Bytes: limit}
	w.up("a", "b")
	w.leads("a", 0)
	a, b := w.site("a"), w.site("b")
	w.writes(a, 1, 2, record)
	w.same(numbers(1, 2))
	w.net.hold("a", "b", "frames", true)
	done := make(chan error, 1)
	go func() {
		for id := int64(3); id <= 60; id++ {
			pos, _, err := a.machine.append(context.Background(), id, record)
			if err != nil {
				done <- err
				return
			}
			if d := a.log.Distance(b.log.Durable(), pos); d > limit+4*record { // and headers
				t.Errorf("b trails by %d bytes", d)
			}
		}
		done <- nil
	}()
	w.until("the limit is reached", func() bool { return a.log.Distance(b.log.Durable(), a.log.End()) > limit })
	w.pass(5 * testBeat)
	select {
	case err := <-done:
		t.Fatalf("the writer does not wait: %v", err)
	default:
	}
	w.net.hold("a", "b", "frames", false)
	w.must(w.outcome("writes", done))
	// The volume goes on when the copy does not answer any more.
	w.net.hold("a", "b", "frames", true)
	w.net.cut("b", "a")
	w.writes(a, 61, 120, record)
	w.net.hold("a", "b", "frames", false)
	w.net.heal()
	w.same(numbers(1, 120))
}

// A new copy, and one that is back, have much to catch up: that is not a reason to stop the volume.
func TestJoiningCopyDoesNotStopWriters(t *testing.T) {
	for name, limit := range map[string]MaxLag{"bytes": {Bytes: 4 << 10}, "time": {Time: testPromise}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "ab", 1)
			w.maxLag = limit
			w.up("a")
			w.leads("a", 0)
			a := w.site("a")
			w.writes(a, 1, 20, 1<<10)
			w.pass(2 * testPromise)
			w.net.hold("a", "b", "frames", true) // it answers, and gets no frames yet
			w.up("b")
			w.until("b is greeted", func() bool { return w.site("b").replica.Status().Joined })
			w.pass(2 * testPromise)
			w.writes(a, 21, 40, 1<<10)
			w.net.hold("a", "b", "frames", false)
			w.same(numbers(1, 40))
		})
	}
}

// With maxLag in time, what is written is sealed in time, and so reaches the store.
func TestSealedInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", 1)
	w.maxLag = MaxLag{Time: testPromise}
	w.up("a")
	w.leads("a", 0)
	a := w.site("a")
	w.writes(a, 1, 3, 0)
	end := a.log.End()
	w.until("1 to 3 are in the store", func() bool {
		s := a.log.Segments()
		return len(s) > 0 && s[len(s)-1].Uploaded && end.Compare(Position{Seq: s[len(s)-1].Seq, Off: s[len(s)-1].Len}) <= 0
	})
	w.writes(a, 4, 5, 0)
	w.same(numbers(1, 5))
}
