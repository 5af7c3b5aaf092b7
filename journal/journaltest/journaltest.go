// SPDX-License-Identifier: Apache-2.0

// Package journaltest is the suite that every journal.Journal passes. It also has a machine that
// notes what it is shown, for the tests of journals.
package journaltest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
)

// Subject is a journal under test. Its gateway is the home, and its machine leads.
type Subject struct {
	journal.Journal
	// HoldCommits prevents the commit of everything appended from now on, until release.
	HoldCommits func() (release func())
	// Resign ends the reign. When it returns, this gateway is no longer the home.
	Resign func()
}

// Opener makes a journal for one test, with an empty log, whose machine is m. It calls m.Lead.
type Opener func(t *testing.T, m *Machine) Subject

// hang is how long a test waits for something that should happen at once.
const hang = 30 * time.Second

// Run runs the suite.
func Run(t *testing.T, open Opener) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Subject, *Machine)
	}{
		{"AppendShowsOnce", appendShowsOnce},
		{"ShownBeforeItIsCommitted", shownBeforeItIsCommitted},
		{"BlocksAreReadFromShowOn", blocksAreReadFromShowOn},
		{"MemoryIsTheCallers", memoryIsTheCallers},
		{"UnknownBlockIsAnError", unknownBlockIsAnError},
		{"WaitEndsWithItsContext", waitEndsWithItsContext},
		{"NoHome", noHome},
		{"WaitersOfAReignThatEnds", waitersOfAReignThatEnds},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := NewMachine()
			c.test(t, open(t, m), m)
		})
	}
}

// record returns a record with one block, of the epoch in which m leads.
func record(m *Machine, key, data string) *journal.Record {
	raw := []byte(data)
	return &journal.Record{
		Epoch:  m.Epoch(),
		Ops:    []segment.Op{{Kind: segment.SetBlock, Key: []byte(key)}},
		Blocks: []segment.Block{{Raw: raw, Pack: segment.Pack(raw, segment.Fast)}},
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

func mustAppend(t *testing.T, s Subject, rec *journal.Record) journal.Position {
	t.Helper()
	end, err := s.Append(within(t), rec)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return end
}

func mustCommit(t *testing.T, s Subject, pos journal.Position) {
	t.Helper()
	if err := s.WaitCommitted(within(t), pos); err != nil {
		t.Fatalf("wait for the commit of %v: %v", pos, err)
	}
}

// appendShowsOnce: each record is shown once, in the order of the log, with the epoch and the
// position that Append returns (journal-1).
func appendShowsOnce(t *testing.T, s Subject, m *Machine) {
	before := len(m.Shown())
	var last journal.Position
	for i := range 20 {
		rec := record(m, "key", "data")
		end := mustAppend(t, s, rec)
		shown := m.Shown()
		switch {
		case len(shown) != before+i+1:
			t.Fatalf("%d records are shown after %d", len(shown)-before, i+1)
		case shown[before+i].End != end || shown[before+i].Record != rec:
			t.Fatalf("record %d: shown as the one that ends at %v, appended up to %v", i, shown[before+i].End, end)
		case !last.Less(end):
			t.Fatalf("record %d ends at %v, the one before it at %v", i, end, last)
		case rec.Epoch != m.Epoch():
			t.Fatalf("record %d is of epoch %d, the machine leads in %d", i, rec.Epoch, m.Epoch())
		}
		last = end
	}
	mustCommit(t, s, last)
	if got := m.CommittedUpTo(); got.Less(last) {
		t.Errorf("a wait for the commit of %v has ended, the machine knows of %v", last, got)
	}
}

// shownBeforeItIsCommitted: a record that is not committed is shown, and is not reported as
// committed.
func shownBeforeItIsCommitted(t *testing.T, s Subject, m *Machine) {
	mustCommit(t, s, mustAppend(t, s, record(m, "key", "first")))
	release := s.HoldCommits()
	end := mustAppend(t, s, record(m, "key", "second"))
	shown := m.Shown()
	if len(shown) == 0 || shown[len(shown)-1].End != end {
		t.Error("a record that is appended is not shown")
	}
	if got := m.CommittedUpTo(); !got.Less(end) {
		t.Errorf("the machine is told that %v is committed, while commits are held back", got)
	}
	release()
	mustCommit(t, s, end)
}

// blocksAreReadFromShowOn: whoever reads a record's blocks after Show began finds them.
func blocksAreReadFromShowOn(t *testing.T, s Subject, m *Machine) {
	read := make(chan error, 1)
	m.OnShow(func(rec *journal.Record, _ journal.Position) {
		refs := []segment.BlockRef{rec.Blocks[0].Ref}
		go func() { // Show itself must not call the journal, but other goroutines may
			got, err := s.ReadBlocks(context.Background(), refs)
			if err == nil && string(got[0]) != "early" {
				err = errors.New("read " + string(got[0]))
			}
			read <- err
		}()
	})
	end := mustAppend(t, s, record(m, "key", "early"))
	m.OnShow(nil)
	select {
	case err := <-read:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(hang):
		t.Fatal("the block is not read")
	}
	mustCommit(t, s, end)
}

// memoryIsTheCallers: the caller may change a block's memory after Append, without any effect.
func memoryIsTheCallers(t *testing.T, s Subject, m *Machine) {
	rec := record(m, "key", "as it was")
	end := mustAppend(t, s, rec)
	clear(rec.Blocks[0].Raw)
	clear(rec.Blocks[0].Pack)
	mustCommit(t, s, end)
	got, err := s.ReadBlocks(within(t), []segment.BlockRef{rec.Blocks[0].Ref})
	if err != nil || string(got[0]) != "as it was" {
		t.Errorf("read %q, %v", got, err)
	}
}

// unknownBlockIsAnError: a block that does not exist is an error, never zeros (protocol-19).
func unknownBlockIsAnError(t *testing.T, s Subject, m *Machine) {
	rec := record(m, "key", "data")
	mustCommit(t, s, mustAppend(t, s, rec))
	ref := rec.Blocks[0].Ref
	ref.Counter += 1000
	if got, err := s.ReadBlocks(within(t), []segment.BlockRef{ref}); err == nil {
		t.Errorf("read %q where there is no block", got)
	}
}

// waitEndsWithItsContext: a wait for a commit that does not come ends with its context.
func waitEndsWithItsContext(t *testing.T, s Subject, m *Machine) {
	release := s.HoldCommits()
	end := mustAppend(t, s, record(m, "key", "data"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.WaitCommitted(ctx, end) }()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a wait that was given up ends with %v", err)
		}
	case <-time.After(hang):
		t.Fatal("a wait goes on after the end of its context")
	}
	release()
	mustCommit(t, s, end)
}

// noHome: a gateway that is no longer the home appends nothing and shows nothing.
func noHome(t *testing.T, s Subject, m *Machine) {
	end := mustAppend(t, s, record(m, "key", "data"))
	mustCommit(t, s, end)
	s.Resign()
	shown := len(m.Shown())
	if _, err := s.Append(within(t), record(m, "key", "late")); !errors.Is(err, journal.ErrNotHome) {
		t.Errorf("append after the reign: %v", err)
	}
	if len(m.Shown()) != shown {
		t.Error("a record that was refused is shown")
	}
	if err := s.WaitRoom(within(t)); err != nil && !errors.Is(err, journal.ErrFull) {
		t.Errorf("wait for room after the reign: %v", err)
	}
}

// waitersOfAReignThatEnds: if the reign ends during a wait for a commit, the waiter gets
// ErrNotHome: its outcome is not known.
func waitersOfAReignThatEnds(t *testing.T, s Subject, m *Machine) {
	s.HoldCommits()
	end := mustAppend(t, s, record(m, "key", "data"))
	done := make(chan error, 1)
	go func() { done <- s.WaitCommitted(within(t), end) }()
	s.Resign()
	if err := <-done; !errors.Is(err, journal.ErrNotHome) {
		t.Errorf("a wait in a reign that ended: %v", err)
	}
}
