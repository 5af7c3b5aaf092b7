// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// TestFormerHomeWaitsForItsTail: a former home that is now a follower has unstable writes in its
// tail. The next home may have committed and acknowledged them already. So its reads wait for them
// (ADR 4), whether its log was cut or not.
func TestFormerHomeWaitsForItsTail(t *testing.T) {
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut %t", cut), func(t *testing.T) {
			h := newHost(t, nil)
			f := newFile(t, h, volume.Root, "f")
			other := newFile(t, h, volume.Root, "other")
			if err := h.WaitApplied(t.Context(), h.lastEnd()); err != nil {
				t.Fatal(err)
			}
			h.journal.holdCommits()
			if _, err := h.Write(t.Context(), asRoot, f, 0, []byte("new"), false); err != nil {
				t.Fatal(err)
			}
			kept := h.lastEnd()
			if _, err := h.Write(t.Context(), asRoot, other, 0, []byte("lost"), false); err != nil {
				t.Fatal(err)
			}
			h.journal.setHome(false)
			h.Unlead()
			if cut {
				if err := h.Drop(kept); err != nil {
					t.Fatal(err)
				}
			}
			p := make([]byte, 9)
			for what, do := range map[string]func(ctx context.Context) error{
				"getattr": func(ctx context.Context) error { return second(h.GetAttr(ctx, asRoot, f)) },
				"read":    func(ctx context.Context) error { _, _, err := h.Read(ctx, asRoot, f, 0, p); return err },
			} {
				short, cancel := ended()
				wantOutcome(t, what+" before the record is applied", do(short), volume.ErrDelay)
				cancel()
			}
			h.Committed(kept)
			if n, _, err := h.Read(t.Context(), asRoot, f, 0, p); err != nil || string(p[:n]) != "new" {
				t.Errorf("reads %q, %v", p[:n], err)
			}
			if !cut {
				return
			}
			if a, err := h.GetAttr(t.Context(), asRoot, other); err != nil || a.Size != 0 {
				t.Errorf("a write that was cut off shows: %+v, %v", a, err)
			}
		})
	}
}

// TestCommitGoesBackWithTheLog: after a forced takeover, positions below the old commit may be used
// for other records. Those are not committed just because the old ones were.
func TestCommitGoesBackWithTheLog(t *testing.T) {
	h := newHost(t, nil)
	f := newFile(t, h, volume.Root, "f")
	end := h.lastEnd()
	follower := openEngine(t, vfs.NewMem(), h.journal, nil)
	defer func() {
		if err := follower.Close(); err != nil {
			t.Error(err)
		}
	}()
	entries, _ := h.journal.after(segment.Position{})
	if err := follower.Ingest(entries); err != nil {
		t.Fatal(err)
	}
	// A home's engine is not told of the headers of further segments. They are committed, and then
	// cut off.
	follower.Committed(segment.Position{Seq: 9, Off: segment.HeaderSize})
	if err := follower.WaitApplied(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	if err := follower.Drop(end); err != nil {
		t.Fatal(err)
	}
	h.journal.holdCommits()
	if _, err := h.Write(t.Context(), asRoot, f, 0, []byte("x"), false); err != nil {
		t.Fatal(err)
	}
	entries, _ = h.journal.after(end)
	if err := follower.Ingest(entries); err != nil {
		t.Fatal(err)
	}
	follower.mu.Lock()
	defer follower.mu.Unlock()
	if follower.applying || follower.applied != end || len(follower.pending) != 1 {
		t.Errorf("a record that is not committed is applied up to %s, %d pending", follower.applied, len(follower.pending))
	}
}

// TestLeadAgain: a gateway that could not make the root in an epoch may lead in the same epoch
// later. It uses no number twice.
func TestLeadAgain(t *testing.T) {
	h := &host{TB: t, fs: vfs.NewCrashableMem(), journal: newMemJournal()}
	h.open()
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	h.journal.setHome(false)
	if err := h.Lead(t.Context(), 1); !errors.Is(err, journal.ErrNotHome) {
		t.Fatalf("lead without a log: %v", err)
	}
	h.journal.setHome(true)
	if err := h.Lead(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	a, err := h.GetAttr(t.Context(), asRoot, volume.Root)
	if err != nil || a.Change != 1<<40|2 {
		t.Errorf("change attribute %#x, %v", a.Change, err)
	}
	h.Unlead()
	if err := h.Lead(t.Context(), 1); err == nil {
		t.Error("led twice in one epoch")
	}
}
