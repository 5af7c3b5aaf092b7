// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// miscount makes the store count what is not there.
func miscount(t *testing.T, h *host) {
	t.Helper()
	if err := h.WaitApplied(context.Background(), h.lastEnd()); err != nil {
		t.Fatal(err)
	}
	used, err := meta.DecodeAccounting(meta.AccountingKey(), pairs(t, h.Engine, meta.AccountingKey(), []byte{'b'})[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	used.Bytes += 1000
	used.Inodes--
	if err := h.store.Apply([][]segment.Op{{setOp(used.Encode())}}, h.store.State()); err != nil {
		t.Fatal(err)
	}
	h.rows.namespace.Store(h.cache.namespace()) // as after a start: the engine knows what the store has
}

// during calls f once, while a check is under way.
func during(f func()) fsck.Config {
	return fsck.Config{Progress: func(p fsck.Progress) {
		if f != nil && p.Step == "snapshots" {
			f()
			f = nil
		}
	}}
}

// TestRecount: what a volume counts as used is set right by a record, while it changes.
func TestRecount(t *testing.T) {
	h := newHost(t, nil)
	ctx := t.Context()
	f := newFile(t, h, volume.Root, "f")
	write := func(off uint64) {
		t.Helper()
		if _, err := h.Write(ctx, asRoot, f, off, []byte("0123456789"), true); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	records := func() int { return len(h.journal.entries) }
	before := records()
	if report, err := h.Recount(ctx, fsck.Config{}); err != nil || report.Count() != 0 || records() != before {
		t.Fatalf("recount of a healthy volume: %+v, %v, %d records", report, err, records()-before)
	}
	miscount(t, h)
	report, err := h.Recount(ctx, during(func() {
		write(5)
		newFile(t, h, volume.Root, "g")
	}))
	is, was := meta.Accounting{Bytes: 10, Inodes: 2}, meta.Accounting{Bytes: 1010, Inodes: 1}
	if err != nil || report.Recount != is || report.Stored != was {
		t.Fatalf("recount: %+v, %v", report, err)
	}
	wantHealthy(t, h.Engine)
	space, err := h.Space(ctx)
	if err != nil || space.TotalInodes-space.FreeInodes != 3 {
		t.Errorf("space is %+v, %v", space, err)
	}
	h.crash()
	wantHealthy(t, h.Engine)
}

// TestRecountIsCertain: nothing is set right while a rollback sets it too, where something is
// damaged, or at a gateway that is not home.
func TestRecountIsCertain(t *testing.T) {
	ctx := context.Background()
	h := newHost(t, nil)
	h.damaged = true
	f := newFile(t, h, volume.Root, "f")
	if _, err := h.TakeSnapshot(ctx, asRoot, "s"); err != nil {
		t.Fatal(err)
	}
	newFile(t, h, volume.Root, "g")
	miscount(t, h)
	_, err := h.Recount(ctx, during(func() {
		if err := h.Rollback(ctx, asRoot, "s", "id"); err != nil {
			t.Error(err)
		}
	}))
	if !errors.Is(err, volume.ErrDelay) {
		t.Errorf("recount with a rollback meanwhile: %v", err)
	}
	n, err := meta.DecodeInode(meta.InodeKey(f.Ino), pairs(t, h.Engine, meta.InodeKey(f.Ino), meta.InodeKey(f.Ino+1))[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	n.Used = 7
	if err := h.store.Apply([][]segment.Op{{setOp(n.Encode())}}, h.store.State()); err != nil {
		t.Fatal(err)
	}
	miscount(t, h)
	before := len(h.journal.entries)
	if _, err := h.Recount(ctx, fsck.Config{}); err == nil || len(h.journal.entries) != before {
		t.Errorf("recount of a damaged volume: %v, %d records", err, len(h.journal.entries)-before)
	}
	h.Unlead()
	if _, err := h.Recount(ctx, fsck.Config{}); !errors.Is(err, journal.ErrNotHome) {
		t.Errorf("recount at a follower: %v", err)
	}
}
