// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/volume"
)

// TestAgeNeedsAnotherClock: neither moments nor the trash go for their age while no other clock
// agrees that they are old, and then as of the time that was agreed on. Nobody is asked while
// nothing is old.
func TestAgeNeedsAnotherClock(t *testing.T) {
	clock := &fakeNow{now: time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)}
	disputed := errors.New("the clock is ahead")
	asked := 0
	var agreed time.Time // zero: disputed
	h := newHost(t, func(c *Config) {
		c.Now, c.Tuning.Window, c.Tuning.Trash = clock.Now, time.Hour, 2*time.Hour
		c.Agreed = func(context.Context) (time.Time, error) {
			if asked++; agreed.IsZero() {
				return clock.Now(), disputed
			}
			return agreed, nil
		}
	})
	ctx := context.Background()
	clean := func(want error) {
		t.Helper()
		if _, err := h.Clean(ctx); !errors.Is(err, want) {
			t.Fatalf("clean: %v, want %v", err, want)
		}
	}
	moments := func() (n int) {
		t.Helper()
		list, err := read(ctx, h.Engine, place{op: "test"}, func(t *tree) (out []bool, err error) {
			all, err := t.snapshotsFrom(1)
			for _, s := range all {
				if s.Moment {
					out = append(out, true)
				}
			}
			return out, err
		})
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	check := func(what string, wantMoments, wantWastes int) {
		t.Helper()
		if m, w := moments(), h.wastes(); m != wantMoments || w != wantWastes {
			t.Errorf("%s: %d moments and %d entries of the trash, want %d and %d", what, m, w, wantMoments, wantWastes)
		}
	}
	for _, name := range []string{"a", "b"} {
		h.make(name)
		clock.advance(10 * time.Second)
		if _, err := h.Remove(ctx, asRoot, volume.Root, name); err != nil {
			t.Fatal(err)
		}
		clock.advance(10 * time.Second)
	}
	clean(nil)
	was := moments()
	if asked != 0 || was < 3 || h.wastes() != 2 {
		t.Fatalf("others were asked %d times; there are %d moments and %d entries of the trash", asked, was, h.wastes())
	}
	right := clock.Now()
	clock.advance(365 * 24 * time.Hour)
	clean(disputed)
	check("while nobody agrees", was, 2)
	agreed = right.Add(30 * time.Minute)
	clean(nil)
	check("by what others say it is half an hour later", was, 2)
	agreed = right.Add(90 * time.Minute)
	clean(nil)
	check("the window is over", 1, 2) // what the volume still has stays
	agreed = right.Add(3 * time.Hour)
	clean(nil)
	check("all is over", 1, 0)
	if asked == 0 {
		t.Error("nobody was asked")
	}
}
