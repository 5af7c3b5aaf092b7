// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"errors"
	"testing"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/federationtest"
	"github.com/weir-storage/weir/federation/memory"
)

func TestSuite(t *testing.T) {
	federationtest.Run(t, func(*testing.T) federationtest.Harness {
		s := memory.NewServer(7)
		return federationtest.Harness{
			Open: func(_ *testing.T, g *federation.Guard) federation.Registry { return s.Client(g) },
			Abandon: func(t *testing.T, r federation.Registry, gateway string) {
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				s.Expire(gateway)
			},
		}
	})
}

func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		fault   memory.Fault
		err     error
		applied bool // at once
		later   bool // after Deliver
	}{
		{memory.None, nil, true, true},
		{memory.ConflictFault, federation.ErrConflict, false, false},
		{memory.UnavailableFault, federation.ErrUnavailable, false, false},
		{memory.UnknownApplied, federation.ErrUnknown, true, true},
		{memory.UnknownLost, federation.ErrUnknown, false, false},
		{memory.UnknownLate, federation.ErrUnknown, false, true},
	} {
		c := memory.New()
		c.Script(tt.fault)
		_, err := c.SwapControl(t.Context(), "v", 0, federationtest.Control("v", 1, 1))
		if !errors.Is(err, tt.err) {
			t.Errorf("fault %d: error %v, want %v", tt.fault, err, tt.err)
		}
		there := func() bool { _, rev, _ := c.GetControl(t.Context(), "v"); return rev != 0 }
		if there() != tt.applied {
			t.Errorf("fault %d: applied %v, want %v", tt.fault, there(), tt.applied)
		}
		c.Deliver()
		if there() != tt.later {
			t.Errorf("fault %d: applied later %v, want %v", tt.fault, there(), tt.later)
		}
	}
}

// A late swap loses against one that was made meanwhile.
func TestLateIsFenced(t *testing.T) {
	s := memory.NewServer(1)
	a, b := s.Client(nil), s.Client(nil)
	rev, err := a.SwapControl(t.Context(), "v", 0, federationtest.Control("v", 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	a.Script(memory.UnknownLate)
	if _, err := a.SwapControl(t.Context(), "v", rev, federationtest.Control("v", 2, 2)); !errors.Is(err, federation.ErrUnknown) {
		t.Fatal(err)
	}
	if _, err := b.SwapControl(t.Context(), "v", rev, federationtest.Control("v", 5, 2)); err != nil {
		t.Fatal(err)
	}
	a.Deliver()
	c, _, err := a.GetControl(t.Context(), "v")
	if err != nil || c.Epoch != 5 {
		t.Fatalf("%+v, %v: the fenced swap was applied", c, err)
	}
}

func TestDown(t *testing.T) {
	s := memory.NewServer(1)
	a, b := s.Client(nil), s.Client(nil)
	a.SetDown(true)
	if _, err := a.SwapControl(t.Context(), "v", 0, federationtest.Control("v", 1, 1)); !errors.Is(err, federation.ErrUnavailable) {
		t.Fatalf("error %v, want unavailable", err)
	}
	if _, err := b.Head(t.Context()); err != nil {
		t.Fatalf("the other client is up, got %v", err)
	}
	// A watch that starts while the registry is down waits for it.
	enough := errors.New("enough")
	done := make(chan error)
	go func() { done <- a.Watch(t.Context(), func(federation.Event) error { return enough }) }()
	a.SetDown(false)
	if err := <-done; !errors.Is(err, enough) {
		t.Fatal(err)
	}
}

// A watch that was cut off during a compaction hears what vanished and what changed.
func TestWatchOverCompaction(t *testing.T) {
	s := memory.NewServer(1)
	a, b := s.Client(nil), s.Client(nil)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(a.Register(ctx, federationtest.Site("ams", "ams-1")))
	must(a.Register(ctx, federationtest.Site("utr", "utr-1")))
	events := make(chan federation.Event)
	go func() { _ = b.Watch(ctx, func(e federation.Event) error { events <- e; return nil }) }()
	for e := range events {
		if e.Kind == federation.KindSynced {
			break
		}
	}
	b.SetDown(true)
	must(a.RemoveSite(ctx, "ams"))
	must(a.Register(ctx, federationtest.Site("ein", "ein-1")))
	s.Compact()
	b.SetDown(false)
	want := []string{"ams deleted", "ein", ""}
	for _, w := range want {
		e := <-events
		got := e.Name
		if e.Deleted {
			got += " deleted"
		}
		if got != w {
			t.Fatalf("told %q (%+v), want %q", got, e, w)
		}
	}
}

func TestGuardRefusesRestoredBackup(t *testing.T) {
	for name, tamper := range map[string]func(*memory.Server, memory.Backup){
		"revision went back":       func(s *memory.Server, b memory.Backup) { s.Restore(b) },
		"another registry instead": func(s *memory.Server, _ memory.Backup) { s.Restore(memory.NewServer(99).Backup()) },
		"overtook the revision": func(s *memory.Server, b memory.Backup) {
			s.Restore(b)
			for range 10 {
				_ = s.Client(nil).PutObserved(t.Context(), federation.Observed{Volume: "x", Gateway: "y"})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var kept federation.GuardState
			load := func() (federation.GuardState, error) { return kept, nil }
			save := func(s federation.GuardState) error { kept = s; return nil }
			g, err := federation.NewGuard(load, save, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := memory.NewServer(1)
			c := s.Client(g)
			rev, err := c.SwapControl(t.Context(), "v", 0, federationtest.Control("v", 1, 1))
			if err != nil {
				t.Fatal(err)
			}
			backup := s.Backup()
			if _, err := c.SwapControl(t.Context(), "v", rev, federationtest.Control("v", 2, 1)); err != nil {
				t.Fatal(err)
			}
			tamper(s, backup)
			// The process starts again: only what was saved is left.
			g, err = federation.NewGuard(load, save, nil)
			if err != nil {
				t.Fatal(err)
			}
			c = s.Client(g)
			_, rev, _ = c.GetControl(t.Context(), "v")
			if _, err := c.SwapControl(t.Context(), "v", rev, federationtest.Control("v", 2, 1)); !errors.Is(err, federation.ErrRewound) {
				t.Fatalf("error %v, want %v", err, federation.ErrRewound)
			}
		})
	}
}

func TestArchive(t *testing.T) {
	a := memory.NewArchive()
	federationtest.RunArchive(t, func(*testing.T) federation.Archive { return a })
}
