// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// brokenJournal panics when a record with a slot is in the log, before it is shown.
type brokenJournal struct{ *memJournal }

func (j brokenJournal) Append(ctx context.Context, rec *segment.Record) (segment.Position, error) {
	if rec.Slot != "" {
		panic("a mistake")
	}
	return j.memJournal.Append(ctx, rec)
}

// TestPanicInAChangeEndsTheCopy: after a change that panicked, perhaps with a record in the log
// that is not shown, the engine executes and applies nothing, and asks to be opened again
// (protocol-8).
func TestPanicInAChangeEndsTheCopy(t *testing.T) {
	h := newHostOver(t, nil, func(m *memJournal) journal.Journal { return brokenJournal{m} })
	failed := make(chan error, 2)
	h.cfg.Failed = func(why error) { failed <- why }
	f := newFile(t, h, volume.Root, "f")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is swallowed")
			}
		}()
		_, _ = h.Write(t.Context(), request(1, nil), f, 0, []byte("x"), true)
	}()
	if len(failed) != 1 {
		t.Fatalf("the copy is told %d times that it has failed", len(failed))
	}
	before := records(h)
	_, err := h.Remove(t.Context(), asRoot, volume.Root, "f")
	wantOutcome(t, "change after a change that panicked", err, volume.ErrDelay)
	if records(h) != before {
		t.Error("a record is appended after one that is not shown")
	}
}
