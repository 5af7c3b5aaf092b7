// SPDX-License-Identifier: Apache-2.0

package outline

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// borrows reads until there is a lease, and returns up to where the state must reach that is shown
// under it.
func (r *rig) borrows() (pos Position) {
	r.Helper()
	r.until("there is a lease", func() bool {
		_, _ = r.Current(r.Context()) // tells that somebody reads
		got, ok := r.Follower.leased()
		pos = got
		return ok
	})
	return pos
}

func (r *rig) leased(want bool) {
	r.Helper()
	if r.Leased() != want {
		r.Errorf("a lease: %t", !want)
	}
}

// While a follower has a lease, it knows of each change before the home may acknowledge it, and
// then shows nothing without it.
func TestLease(t *testing.T) {
	r := newRig(t)
	r.h.set(func() { r.h.lends = time.Minute })
	one := r.h.write(t)
	r.h.set(func() { r.h.commit = one })
	if pos := r.borrows(); pos != one {
		t.Fatalf("what is shown reaches to %v of %v", pos, one)
	}
	r.h.set(func() { r.h.lends = 0 }) // a new lease would tell it too
	two := r.h.write(t)
	r.h.set(func() {})
	r.until("it answers that it knows", func() bool { return r.h.knows(two) })
	if pos, ok := r.Follower.leased(); !ok || pos != two {
		t.Errorf("a lease: %t, for what reaches to %v, although it knows of %v", ok, pos, two)
	}
	if r.m.Applied() != one {
		t.Errorf("it applied %v, which is not committed", r.m.Applied())
	}
	r.h.set(func() { r.h.commit = two })
	if err := r.m.WaitApplied(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	// With time it ends, a sixteenth before the home's clock says so.
	r.pass(56*time.Second - time.Second)
	r.leased(true)
	r.pass(2 * time.Second)
	r.leased(false)
	r.h.set(func() { r.h.lends = time.Minute })
	r.borrows()
}

// While commits stall, or much is to come, a lease is of no use: readers do not wait for that, and
// do not ask for another one.
func TestLeaseOfAStalledHome(t *testing.T) {
	r := newRig(t)
	r.Close()
	r.beats = 20 * time.Millisecond
	r.follow()
	end := r.h.write(t)
	r.h.set(func() { r.h.lends = time.Hour; r.h.commit = end })
	r.borrows()
	end = r.h.write(t)
	r.h.set(func() {})
	r.until("it knows", func() bool { return r.h.knows(end) })
	if _, err := r.Current(t.Context()); !errors.Is(err, journal.ErrNotHome) { // it waits a little
		t.Fatal(err)
	}
	r.pass(time.Minute)
	r.until("it has told of all reads", func() bool {
		r.Follower.mu.Lock()
		defer r.Follower.mu.Unlock()
		return r.reads == 0
	})
	told := r.h.stamped()
	r.until("the home has heard that", func() bool { return r.h.stamped() > told })
	before := r.h.lent()
	for range 1000 {
		if _, err := r.Current(t.Context()); !errors.Is(err, journal.ErrNotHome) {
			t.Fatalf("with a lease of a home whose commits stall: %v", err)
		}
	}
	r.leased(true)
	r.until("questions are sent", func() bool { return r.h.stamped() > before.Echo+10 })
	if now := r.h.lent(); now != before {
		t.Errorf("it asks for a lease: %+v", now)
	}
	r.h.set(func() { r.h.commit = end })
	if pos := r.current(); pos != end {
		t.Errorf("%v of %v", pos, end)
	}
}

// A follower answers what it heard on this stream: what it knows may be of the log of another
// reign, of which it has not heard yet that it is over.
func TestKnownOfAnotherReign(t *testing.T) {
	r := newRig(t)
	r.h.set(func() { r.h.lends = time.Hour })
	end := r.h.write(t)
	r.h.set(func() { r.h.commit = end })
	r.borrows()
	far := Position{Seq: 9, Off: 9}
	r.Follower.mu.Lock()
	r.known = far
	r.Follower.mu.Unlock()
	next := r.h.write(t)
	r.h.set(func() { r.h.commit = next })
	r.until("it answers", func() bool { return r.h.knows(next) })
	if pos, ok := r.Follower.leased(); !ok || pos != far {
		t.Errorf("a lease: %t, for what reaches to %v", ok, pos)
	}
	// One that says what it likes is not believed.
	r.Close()
	stream, err := r.client.Follow(t.Context())
	if err == nil {
		err = stream.Send(&peerpb.FollowRequest{Volume: theVolume, Stamp: 77, Sent: 77, Known: &peerpb.Position{Seq: 1, Off: next.Off - 1}})
	}
	if err != nil {
		t.Fatal(err)
	}
	r.until("it is heard", func() bool { return r.h.stamped() == 77 })
	if !r.h.knows(Position{}) {
		t.Errorf("it knows what it was not told")
	}
}

// A home tells of many ends before it hears one answer, and a new lease comes then too: the last
// one counts, and the next ones.
func TestManyEndsAreTold(t *testing.T) {
	f := &follower{}
	for n := range uint64(3 * maxAsked) {
		if !f.tells(Position{Seq: 1, Off: n + 1}) || f.tells(Position{Seq: 1, Off: n + 1}) {
			t.Fatal(n)
		}
	}
	last := Position{Seq: 1, Off: 3 * maxAsked}
	if got := f.knows(Position{Seq: 1, Off: 1}); got != (Position{}) {
		t.Errorf("%v, which it was told too long ago", got)
	}
	if got := f.knows(last); got != last {
		t.Errorf("%v, and not %v", got, last)
	}
	if len(f.told) != 1 || !f.tells(Position{Seq: 2}) {
		t.Errorf("%v", f.told)
	}
}

// A lease does not outlast what the follower's clock did not count, nor the reign as it is known
// here.
func TestLeaseEnds(t *testing.T) {
	r := newRig(t)
	r.h.set(func() { r.h.lends = time.Hour })
	end := r.h.write(t)
	r.h.set(func() { r.h.commit = end })
	r.borrows()
	r.h.mu.Lock()
	before := r.h.loan
	r.h.mu.Unlock()
	r.h.set(func() { r.h.lends = 0 })
	r.Jumped()
	r.leased(false)
	r.current()
	// What the home lent before comes late, on a new stream.
	before.Grant++
	r.h.set(func() { r.h.loan = before })
	three := r.h.write(t)
	r.h.set(func() { r.h.commit = three })
	r.until("it answers that it knows", func() bool { return r.h.knows(three) })
	r.leased(false)

	r.h.set(func() { r.h.lends = time.Hour })
	r.borrows()
	r.h.set(func() { r.h.epoch = 4; r.h.lends = 0 })
	r.rules(4)
	r.until("it has no lease of the home before", func() bool { return !r.Leased() })
	r.current()
	r.leased(false)
}

// A lease outlasts its connection. A home that the follower finds again tells it how far the log
// reaches.
func TestLeaseOutlastsTheStream(t *testing.T) {
	r := newRig(t)
	r.h.set(func() { r.h.lends = time.Hour })
	end := r.h.write(t)
	r.h.set(func() { r.h.commit = end })
	r.borrows()
	r.h.set(func() { r.h.uses = false })
	r.until("the stream ends", func() bool { return !r.linkedNow() })
	r.leased(true)
	next := r.h.write(t)
	r.h.set(func() { r.h.uses = true }) // it is looked for again, after a while
	r.until("it answers that it knows", func() bool { return r.h.knows(next) })
	if pos, ok := r.Follower.leased(); !ok || pos != next {
		t.Errorf("a lease: %t, for what reaches to %v of %v", ok, pos, next)
	}
}

func (f *Follower) linkedNow() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.linked
}
