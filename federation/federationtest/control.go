// SPDX-License-Identifier: Apache-2.0

package federationtest

import (
	"errors"
	"sync"

	"github.com/weir-storage/weir/federation"
)

func controlSwap(f *fixture) {
	_, _, err := f.r.GetControl(f.ctx, "v1")
	f.is(err, federation.ErrNotFound)
	c := Control("v1", 1, 2)
	rev, err := f.r.SwapControl(f.ctx, "v1", 0, c)
	f.ok(err)
	got, grev, err := f.open().GetControl(f.ctx, "v1")
	f.ok(err)
	if !got.Same(c) || grev != rev || got.Change != 1 {
		f.Fatalf("read %+v at %d, want %+v at %d, change 1", got, grev, c, rev)
	}
	_, err = f.r.SwapControl(f.ctx, "v1", 0, c)
	f.is(err, federation.ErrConflict)
	_, err = f.r.SwapControl(f.ctx, "v1", rev+100, c)
	f.is(err, federation.ErrConflict)
	next := Control("v1", 2, 3)
	rev2, err := f.r.SwapControl(f.ctx, "v1", rev, next)
	f.ok(err)
	if rev2 <= rev {
		f.Fatalf("revision went from %d to %d", rev, rev2)
	}
	_, err = f.r.SwapControl(f.ctx, "v1", rev, next)
	f.is(err, federation.ErrConflict)
	got, _, err = f.r.GetControl(f.ctx, "v1")
	f.ok(err)
	if !got.Same(next) || got.Change != 2 {
		f.Fatalf("read %+v, want %+v, change 2", got, next)
	}
}

func controlRules(f *fixture) {
	prev := Control("v1", 3, 2)
	rev, err := f.r.SwapControl(f.ctx, "v1", 0, prev)
	f.ok(err)
	for name, spoil := range map[string]func(*federation.Control){
		"epoch back":        func(c *federation.Control) { c.Epoch, c.History = 2, c.History[:2] },
		"epoch zero":        func(c *federation.Control) { c.Epoch, c.History = 0, nil },
		"home same epoch":   func(c *federation.Control) { c.Home = c.Members[1] },
		"home incarnation":  func(c *federation.Control) { c.Home.Incarnation, c.Members[0].Incarnation = "x", "x" },
		"home no member":    func(c *federation.Control) { c.Members = c.Members[1:] },
		"twice the gateway": func(c *federation.Control) { c.Members[1].Gateway = c.Members[0].Gateway },
		"no incarnation":    func(c *federation.Control) { c.Members[1].Incarnation = "" },
		"history shorter":   func(c *federation.Control) { c.History = c.History[:2] },
		"history changed":   func(c *federation.Control) { c.History[1].Start.Off++ },
		"history forgets":   func(c *federation.Control) { c.History[1].Forced = true },
		"history future":    func(c *federation.Control) { c.History = append(c.History, federation.EpochStart{Epoch: 4}) },
		"history twice":     func(c *federation.Control) { c.History = append(c.History, federation.EpochStart{Epoch: 3}) },
		"other volume":      func(c *federation.Control) { c.Volume = "v2" },
	} {
		next := prev.Clone()
		spoil(&next)
		if _, err := f.r.SwapControl(f.ctx, "v1", rev, next); !errors.Is(err, federation.ErrInvalid) {
			f.Errorf("%s: error is %v, want %v", name, err, federation.ErrInvalid)
		}
	}
	got, grev, err := f.r.GetControl(f.ctx, "v1")
	f.ok(err)
	if !got.Same(prev) || grev != rev {
		f.Fatalf("a refused swap changed the record to %+v", got)
	}
	_, err = f.r.SwapControl(f.ctx, "a/b", 0, Control("a/b", 1, 1))
	f.is(err, federation.ErrInvalid)
}

// controlRace: of many swaps from one revision, exactly one wins.
func controlRace(f *fixture) {
	rev, err := f.r.SwapControl(f.ctx, "v1", 0, Control("v1", 1, 2))
	f.ok(err)
	const racers = 8
	errs := make([]error, racers)
	var wg sync.WaitGroup
	for i := range racers {
		r := f.open()
		wg.Go(func() { _, errs[i] = r.SwapControl(f.ctx, "v1", rev, Control("v1", uint64(i)+2, 2)) })
	}
	wg.Wait()
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won >= 0:
			f.Fatalf("swaps %d and %d both won", won, i)
		case err == nil:
			won = i
		default:
			f.is(err, federation.ErrConflict)
		}
	}
	got, _, err := f.r.GetControl(f.ctx, "v1")
	f.ok(err)
	if won < 0 || got.Epoch != uint64(won)+2 || got.Change != 2 {
		f.Fatalf("winner %d, but the record is %+v", won, got)
	}
}

func controlDelete(f *fixture) {
	f.is(f.r.DeleteControl(f.ctx, "v1", 7), federation.ErrConflict)
	rev, err := f.r.SwapControl(f.ctx, "v1", 0, Control("v1", 1, 1))
	f.ok(err)
	f.is(f.r.DeleteControl(f.ctx, "v1", rev+1), federation.ErrConflict)
	f.is(f.r.DeleteControl(f.ctx, "v1", 0), federation.ErrConflict)
	f.ok(f.r.DeleteControl(f.ctx, "v1", rev))
	_, _, err = f.r.GetControl(f.ctx, "v1")
	f.is(err, federation.ErrNotFound)
	_, err = f.r.SwapControl(f.ctx, "v1", rev, Control("v1", 2, 1))
	f.is(err, federation.ErrConflict)
}

// guardSees: what one connection sees is kept, and a control record of which later changes were
// seen is refused.
func guardSees(f *fixture) {
	var kept federation.GuardState
	g, err := federation.NewGuard(func() (federation.GuardState, error) { return kept, nil },
		func(s federation.GuardState) error { kept = s; return nil }, nil)
	f.ok(err)
	r := f.h.Open(f.T, g)
	f.Cleanup(func() { _ = r.Close() })
	rev, err := r.SwapControl(f.ctx, "v1", 0, Control("v1", 1, 1))
	f.ok(err)
	h, err := r.Head(f.ctx)
	f.ok(err)
	if kept.Changes["v1"] != 1 || kept.Cluster != h.Cluster || g.Ask().Revision < rev {
		f.Fatalf("guard kept %+v, registry is at %+v, record at %d", kept, h, rev)
	}
	// Behind this gateway's back the record goes back, as a restored backup would have it.
	f.ok(f.r.DeleteControl(f.ctx, "v1", rev))
	_, err = r.SwapControl(f.ctx, "v1", 0, Control("v1", 1, 1))
	f.is(err, federation.ErrRewound)
	rev, err = f.r.SwapControl(f.ctx, "v2", 0, Control("v2", 1, 1))
	f.ok(err)
	_, err = r.SwapControl(f.ctx, "v2", rev, Control("v2", 2, 1))
	f.is(err, federation.ErrRewound)
	if _, _, err := r.GetControl(f.ctx, "v2"); err != nil {
		f.Fatalf("reads go on after the registry went back, got %v", err)
	}
	h, err = r.Head(f.ctx)
	f.ok(err)
	f.ok(g.Accept(h, 0, nil, "1"))
	_, err = r.SwapControl(f.ctx, "v2", rev, Control("v2", 2, 1))
	f.ok(err)
}
