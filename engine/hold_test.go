// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// makes makes a file. The call gives up after a time; 0: never.
func (h *host) makes(name string, patience time.Duration) error {
	r := volume.Request{}
	if patience > 0 {
		yield, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r.Yield = yield
	}
	_, err := h.Create(context.Background(), r, volume.Root, name, volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
	return err
}

// names lists the files of a snapshot; 0: those that there are now.
func (h *host) names(snap uint32) string {
	h.Helper()
	root := volume.Root
	root.Snap = snap
	all, _, err := h.ReadDir(context.Background(), asRoot, root, 0, 100)
	if err != nil {
		h.Fatal(err)
	}
	out := ""
	for _, x := range all {
		out += x.Name + " "
	}
	return out
}

// TestChangesAreHeld: while changes are held none is executed, who cannot wait is told ErrDelay,
// and reads go on. The snapshot has what was there when the hold began, and ends it.
func TestChangesAreHeld(t *testing.T) {
	h, ctx := newHost(t, nil), context.Background()
	if err := h.makes("before", 0); err != nil {
		t.Fatal(err)
	}
	h.rolling.Store(1)
	if err := h.HoldChanges(ctx, "s", "zero", time.Minute); !errors.Is(err, volume.ErrDelay) || h.HoldsChanges("zero") {
		t.Errorf("a hold of a volume that is being rolled back: %v, want ErrDelay", err)
	}
	h.rolling.Store(0)
	if err := h.HoldChanges(ctx, "s", "one", time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := h.makes("given up", 20*time.Millisecond); !errors.Is(err, volume.ErrDelay) || errors.Is(err, volume.ErrUnknown) {
		t.Errorf("a change while changes are held: %v, want ErrDelay", err)
	}
	if err := h.HoldChanges(ctx, "s", "two", time.Minute); !errors.Is(err, volume.ErrDelay) || h.HoldsChanges("two") {
		t.Errorf("another hold: %v, want ErrDelay", err)
	}
	if _, err := h.TakeHeld(ctx, "s", "two"); !errors.Is(err, ErrHoldOver) || errors.Is(err, volume.ErrIO) {
		t.Errorf("taken by a token that holds nothing: %v, want ErrHoldOver", err)
	}
	h.ReleaseChanges("two")
	later := make(chan error, 1)
	go func() { later <- h.makes("later", 0) }()
	select {
	case err := <-later:
		t.Fatalf("a change did not wait: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
	if is := h.names(0); is != "before " || !h.HoldsChanges("one") {
		t.Errorf("while changes are held there is %q", is)
	}
	s, err := h.TakeHeld(ctx, "s", "one")
	if err != nil {
		t.Fatal(err)
	}
	if err := <-later; err != nil {
		t.Errorf("a change that waited: %v", err)
	}
	if is := h.names(s.Snap); is != "before " {
		t.Errorf("the snapshot has %q", is)
	}
	if is := h.names(0); is != "before later " {
		t.Errorf("afterwards there is %q", is)
	}
	if _, err := h.TakeHeld(ctx, "again", "one"); !errors.Is(err, ErrHoldOver) {
		t.Errorf("taken twice: %v", err)
	}
	if err := h.HoldChanges(ctx, "s", "three", time.Minute); !errors.Is(err, volume.ErrExist) {
		t.Errorf("a hold for a snapshot that is there: %v", err)
	}
}

// TestHoldsEnd: a hold ends with its time, and with the reign. No later reign of the same process
// knows its token.
func TestHoldsEnd(t *testing.T) {
	h, ctx := newHost(t, nil), context.Background()
	gone := func(token string) {
		t.Helper()
		if h.HoldsChanges(token) {
			t.Errorf("%s holds", token)
		}
		if _, err := h.TakeHeld(ctx, token, token); !errors.Is(err, ErrHoldOver) {
			t.Errorf("taken by %s: %v, want ErrHoldOver", token, err)
		}
		if err := h.makes("after "+token, 5*time.Second); err != nil {
			t.Errorf("after %s: %v", token, err)
		}
	}
	if err := h.HoldChanges(ctx, "time", "time", 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := h.makes("a", 10*time.Second); err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("a change waited for %v: %v", time.Since(began), err)
	}
	gone("time")

	if err := h.HoldChanges(ctx, "reign", "reign", time.Minute); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- h.makes("of a former reign", 0) }()
	time.Sleep(20 * time.Millisecond)
	h.journal.setHome(false)
	h.Unlead()
	if h.HoldsChanges("reign") {
		t.Error("the hold goes on after its reign")
	}
	if err := <-waiting; !errors.Is(err, volume.ErrDelay) || !errors.Is(err, journal.ErrNotHome) {
		t.Errorf("a change that waited when the reign ended: %v, want one that is asked of the next home", err)
	}
	if err := h.HoldChanges(ctx, "s", "follower", time.Minute); !errors.Is(err, journal.ErrNotHome) {
		t.Errorf("a hold at a follower: %v", err)
	}
	h.lead()
	gone("reign")
	gone("follower")
	if list, err := h.Snapshots(ctx); err != nil || len(list) > 0 {
		t.Errorf("there are %v, %v", list, err)
	}
}

// TestHoldBesideChanges: of changes that are made all the time by many, each after the one before
// it, a snapshot that is taken while changes are held has what was there at its hold.
func TestHoldBesideChanges(t *testing.T) {
	h, ctx := newHost(t, nil), context.Background()
	ctx, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := h.makes(fmt.Sprint(i, "-", n), 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range 10 {
		time.Sleep(3 * time.Millisecond)
		name := fmt.Sprint("s", n)
		if err := h.HoldChanges(ctx, name, name, time.Minute); err != nil {
			t.Fatal(err)
		}
		held, err := h.GetAttr(ctx, asRoot, volume.Root)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(n%3) * time.Millisecond)
		s, err := h.TakeHeld(ctx, name, name)
		if err != nil {
			t.Fatal(err)
		}
		root := volume.Root
		root.Snap = s.Snap
		if is, err := h.GetAttr(ctx, asRoot, root); err != nil || is.Change != held.Change {
			t.Errorf("%s has change %d, and the hold began at %d: %v", name, is.Change, held.Change, err)
		}
	}
	stop()
	work.Wait()
}
