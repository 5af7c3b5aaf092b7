// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// TestReadBounded: where readers may be shown an earlier state, a follower answers with one that
// has what it must have, without a lease, and without waiting for what is not committed. A home
// does not.
func TestReadBounded(t *testing.T) {
	home := newHost(t, nil)
	first := newFile(t, home, volume.Root, "first")
	entries, _ := home.journal.after(segment.Position{})
	committed := entries[len(entries)-1].End
	second := newFile(t, home, volume.Root, "second")
	entries, _ = home.journal.after(segment.Position{})

	j := newMemJournal()
	e := openEngine(t, vfs.NewMem(), j, nil)
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := e.Ingest(entries); err != nil {
		t.Fatal(err)
	}
	e.Committed(committed)
	if err := e.WaitApplied(t.Context(), committed); err != nil {
		t.Fatal(err)
	}
	j.mayServe = journal.ErrNotHome
	ctx := t.Context()
	if _, err := e.GetAttr(ctx, asRoot, first); err == nil {
		t.Error("a follower without a lease answers")
	}
	j.isBounded, j.recent = true, committed
	if _, err := e.GetAttr(ctx, asRoot, first); err == nil {
		t.Error("a read that does not ask for an earlier state is answered with one")
	}
	ctx = journal.Earlier(t.Context(), committed)
	if _, err := e.GetAttr(ctx, asRoot, first); err != nil {
		t.Error(err)
	}
	_, err := e.Lookup(ctx, asRoot, volume.Root, "second")
	wantOutcome(t, "what is not committed", err, volume.ErrNotExist)
	// A state that lacks what must be shown, or what the reader saw, is not shown.
	end := entries[len(entries)-1].End
	_, err = e.GetAttr(journal.Earlier(t.Context(), end), asRoot, first)
	wantOutcome(t, "a state that lacks what the reader saw", err, volume.ErrDelay)
	j.recent = end
	_, err = e.GetAttr(ctx, asRoot, first)
	wantOutcome(t, "a state that lacks what must be shown", err, volume.ErrDelay)
	e.Committed(end)
	if err := e.WaitApplied(ctx, end); err != nil {
		t.Fatal(err)
	}
	for _, ctx := range []context.Context{ctx, journal.Earlier(t.Context(), end)} {
		if _, err := e.GetAttr(ctx, asRoot, second); err != nil {
			t.Error(err)
		}
	}
	home.journal.isBounded, home.journal.recent = true, j.recent
	_, err = home.GetAttr(ctx, asRoot, second)
	wantOutcome(t, "a home that is asked for an earlier state", err, volume.ErrDelay)
}
