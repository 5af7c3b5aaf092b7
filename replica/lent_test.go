// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"testing"
)

// protocol-10, protocol-11: a lent store that had everything and falls behind slows writers, as a
// copy does; one that fails, or is busy with other volumes, does not. It is whole only as long as
// nothing that is sealed and committed lies after what it has.
func TestLentStores(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", 1)
	const limit, record = 20 << 10, 1 << 10
	w.maxLag = MaxLag{Bytes: limit}
	w.up("a")
	w.leads("a", 0)
	a := w.site("a")
	w.writes(a, 1, 5, record)
	seal := func() Position {
		t.Helper()
		a.replica.Roll()
		end := a.log.End()
		w.until("what is written is sealed and committed", func() bool {
			return a.log.End().Seq > end.Seq && !a.replica.Status().Commit.Less(end)
		})
		all := a.log.Segments()
		s := all[len(all)-1]
		return Position{Seq: s.Seq, Off: s.Len}
	}
	at := StoreAt{Agreement: "x", Site: "host", End: seal()}
	told := func(whole bool) {
		t.Helper()
		if all := a.replica.Stores(); len(all) != 1 || all[0].Whole != whole || all[0].Site != "host" {
			t.Fatalf("the stores are %+v, want whole: %v", all, whole)
		}
	}
	a.replica.NoteStores([]StoreAt{at})
	told(true)
	if lag := a.replica.Stores()[0].LagBytes; lag != 0 {
		t.Errorf("a store that has everything trails by %d bytes", lag)
	}
	w.writes(a, 6, 6, record) // it is seen to be within the limit
	seal()
	told(false)

	done := make(chan error, 1)
	write := func(from, to int64) {
		for id := from; id <= to; id++ {
			if _, _, err := a.machine.append(context.Background(), id, record); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}
	waits := func() {
		t.Helper()
		w.pass(5 * testBeat)
		select {
		case err := <-done:
			t.Fatalf("the writer does not wait: %v", err)
		default:
		}
	}
	go write(7, 60)
	w.until("the limit is reached", func() bool { return a.log.Distance(at.End, a.log.End()) > limit })
	waits()
	failing := at
	failing.Problem = "no room"
	a.replica.NoteStores([]StoreAt{failing})
	w.must(w.outcome("writes beside a store that fails", done))
	told(false)

	at.End = seal()
	a.replica.NoteStores([]StoreAt{at})
	told(true)
	w.writes(a, 61, 61, record)
	go write(62, 120)
	w.until("the limit is reached again", func() bool { return a.log.Distance(at.End, a.log.End()) > limit })
	waits()
	at.Idle = true
	a.replica.NoteStores([]StoreAt{at})
	w.must(w.outcome("writes beside a store that is busy with others", done))
	w.same(numbers(1, 120))
}

// A lent store has only what is sealed: so a bound that is smaller than a segment does not stop the
// volume, though nothing else seals anything.
func TestLentStoresGetSmallSegments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", 1)
	const limit, record = segmentSize / 4, 200
	w.maxLag = MaxLag{Bytes: limit}
	w.up("a")
	w.leads("a", 0)
	a := w.site("a")
	at := StoreAt{Agreement: "x", Site: "host"}
	takes := func() { // all that is sealed and committed
		for _, s := range a.log.Segments() {
			if end := (Position{Seq: s.Seq, Off: s.Len}); !a.replica.Status().Commit.Less(end) {
				at.End = end
			}
		}
		a.replica.NoteStores([]StoreAt{at})
	}
	takes()
	done := make(chan error, 1)
	go func() {
		for id := int64(1); id <= 200; id++ {
			if _, _, err := a.machine.append(context.Background(), id, record); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	w.until("all is written", func() bool {
		takes()
		return len(done) > 0
	})
	w.must(<-done)
	w.same(numbers(1, 200))
	for _, s := range a.log.Segments() {
		if s.Len > 2*limit {
			t.Errorf("a segment has %d bytes", s.Len)
		}
	}
}
