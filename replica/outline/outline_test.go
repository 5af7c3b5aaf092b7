// SPDX-License-Identifier: Apache-2.0

package outline

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// What was acknowledged when somebody asked is there when the answer is: also what was not
// committed yet, and what is not applied yet here.
func TestCurrent(t *testing.T) {
	r := newRig(t)
	one := r.h.write(t)
	r.h.set(func() { r.h.commit = one })
	if pos := r.current(); pos != one || r.m.Applied() != one {
		t.Fatalf("%v, applied %v of %v", pos, r.m.Applied(), one)
	}
	two := r.h.write(t)
	release := func() {
		r.until("the home syncs what somebody waits for", func() bool { return !r.h.Durable().Less(two) })
		r.h.set(func() { r.h.commit = two })
	}
	if pos := r.waits(release); pos != two {
		t.Errorf("%v of %v that was not committed", pos, two)
	}
	r.m.set(func() { r.m.stopped = true })
	three := r.h.write(t)
	r.h.set(func() { r.h.commit = three })
	if pos := r.waits(func() { r.m.set(func() { r.m.stopped = false }) }); pos != three {
		t.Errorf("%v of %v that was not applied", pos, three)
	}
	if n := r.Received(); n < 3*100 || n > 3*1000 {
		t.Errorf("%d bytes came for three records with blocks", n)
	}
	// A home that may not serve answers nobody. The next question is answered.
	r.h.set(func() { r.h.may = journal.ErrNoLease })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if pos, err := r.Current(ctx); err == nil {
		t.Errorf("a home that may not serve answers %v", pos)
	}
	r.h.set(func() { r.h.may = nil })
	r.current()
}

// A home whose commits stall is not waited for long, and then not at all until it answers again.
func TestStalledHome(t *testing.T) {
	r := newRig(t)
	r.Close()
	r.beats = 20 * time.Millisecond
	r.follow()
	end := r.h.write(t)
	r.h.set(func() { r.h.commit = end })
	r.current()
	end = r.h.write(t)
	for range 2 {
		if pos, err := r.Current(t.Context()); !errors.Is(err, journal.ErrNotHome) {
			t.Fatalf("%v, %v", pos, err)
		}
		r.pass(time.Minute)
	}
	began := time.Now()
	for range 1000 {
		if _, err := r.Current(t.Context()); !errors.Is(err, journal.ErrNotHome) {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > hang {
		t.Errorf("each reader waits for it: %v", took)
	}
	r.h.set(func() { r.h.commit = end })
	if pos := r.current(); pos != end {
		t.Errorf("%v of %v", pos, end)
	}
}

// A claim has an age, by the follower's own clock, and ends with the reign and with a jump.
func TestBounded(t *testing.T) {
	r := newRig(t)
	end := r.h.write(t)
	r.h.set(func() { r.h.commit = end })
	r.SetStaleness(16 * time.Second)
	r.current()
	young := func(want bool) {
		t.Helper()
		if r.Young() != want {
			t.Errorf("a claim is young: %t", !want)
		}
	}
	young(true)
	r.pass(14 * time.Second)
	young(true)
	r.pass(2 * time.Second)
	young(false)
	r.current()
	young(true)
	r.Jumped()
	young(false)
	r.current()
	young(true)
	// The connection ends: what was claimed stays true.
	r.h.set(func() { r.h.epoch = 0 })
	r.until("no home answers", func() bool {
		_, err := r.Current(t.Context())
		return errors.Is(err, journal.ErrNotHome)
	})
	young(true)
	// Another home is known.
	r.h.set(func() { r.h.epoch = 4; r.h.may = journal.ErrNoLease })
	r.rules(4)
	r.until("what another home claimed is forgotten", func() bool { return !r.Young() })
	r.h.set(func() { r.h.may = nil })
	r.current()
	young(true)
	r.SetStaleness(0)
	young(false)
	if _, ok := r.Bounded(); !ok {
		t.Error("of a Strong volume the newest claim is not returned")
	}
}

// A follower that starts again gets only what it has not, and one whose log is another begins anew.
func TestGoesOn(t *testing.T) {
	r := newRig(t)
	for range 50 {
		r.h.write(t)
	}
	r.h.set(func() { r.h.commit = r.h.End() })
	r.current()
	was := r.Received()
	r.Close()
	r.follow()
	end := r.h.write(t)
	r.h.set(func() { r.h.commit = end })
	if pos := r.current(); pos != end || r.Received() > was/10 {
		t.Fatalf("%v of %v, %d bytes after %d", pos, end, r.Received(), was)
	}
	select {
	case why := <-r.diverged:
		t.Fatal(why)
	default:
	}
	// A home that was forced to begin without what the follower has, and has more by now.
	r.h.Log = newLog(t, 9)
	for range 60 {
		r.h.write(t)
	}
	r.h.set(func() { r.h.epoch = 9; r.h.commit = r.h.End() })
	r.rules(9)
	select {
	case <-r.diverged:
	case <-time.After(hang):
		t.Fatal("it does not see that the log is another one")
	}
}

// A log that is the same, but ends before, is another one too.
func TestCutLog(t *testing.T) {
	r := newRig(t)
	kept := r.h.write(t)
	r.h.write(t)
	r.h.set(func() { r.h.commit = r.h.End() })
	r.current()
	r.h.set(func() { r.h.epoch = 0 })
	if err := r.h.Truncate(kept); err != nil {
		t.Fatal(err)
	}
	if _, err := r.h.BeginEpoch(4); err != nil {
		t.Fatal(err)
	}
	r.h.set(func() { r.h.epoch = 4; r.h.commit = r.h.End() })
	r.rules(4)
	select {
	case <-r.diverged:
	case <-time.After(hang):
		t.Fatal("it does not see that the log was cut")
	}
}

// A site that does not use the volume is sent nothing, also when it did until now.
func TestMayNotUse(t *testing.T) {
	r := newRig(t)
	end := r.h.write(t)
	r.h.set(func() { r.h.commit = end })
	r.current()
	r.h.set(func() { r.h.uses = false })
	r.until("the stream ends", func() bool {
		_, err := r.Current(t.Context())
		return errors.Is(err, journal.ErrNotHome)
	})
	stream, err := r.client.Follow(t.Context())
	if err == nil {
		err = stream.Send(&peerpb.FollowRequest{Volume: theVolume})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
}

// A follower that takes nothing in does not keep the home's copy open.
func TestSlowFollower(t *testing.T) {
	r := newRig(t)
	r.Close()
	for range 3000 {
		r.h.write(t)
	}
	r.h.set(func() { r.h.commit = r.h.End() })
	stream, err := r.client.Follow(t.Context())
	if err == nil {
		err = stream.Send(&peerpb.FollowRequest{Volume: theVolume})
	}
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	r.closing()
	done := make(chan struct{})
	go func() { r.opened.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(hang):
		t.Fatal("the home's copy cannot close")
	}
}
