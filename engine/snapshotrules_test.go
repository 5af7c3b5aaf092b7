// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// TestSnapshotRecord: the record of a snapshot does not grow with the volume.
func TestSnapshotRecord(t *testing.T) {
	h := newHost(t, nil)
	taken := 0
	size := func() int {
		taken++
		if _, err := h.TakeSnapshot(context.Background(), asRoot, fmt.Sprint("snapshot ", taken)); err != nil {
			t.Fatal(err)
		}
		h.journal.mu.Lock()
		defer h.journal.mu.Unlock()
		prepared, err := segment.Prepare(h.journal.entries[len(h.journal.entries)-1].Record)
		if err != nil {
			t.Fatal(err)
		}
		return prepared.Size()
	}
	small := size()
	for i := range 3000 {
		if _, err := h.Create(context.Background(), asRoot, volume.Root, fmt.Sprint("f", i),
			volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded}); err != nil {
			t.Fatal(err)
		}
	}
	large := size()
	t.Logf("%d and %d bytes", small, large)
	if small > 1024 || large > small+16 {
		t.Errorf("the record has %d bytes in an empty volume and %d in a larger one", small, large)
	}
}

// TestRollbackIsNews: clients see from the change attribute that a file was rolled back.
func TestRollbackIsNews(t *testing.T) {
	h := newHost(t, nil)
	ctx := context.Background()
	f, err := h.Create(ctx, asRoot, volume.Root, "f", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.TakeSnapshot(ctx, asRoot, "one"); err != nil {
		t.Fatal(err)
	}
	w, err := h.Write(ctx, asRoot, f.Attr.Handle, 0, []byte("x"), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Rollback(ctx, asRoot, "one", "before one"); err != nil {
		t.Fatal(err)
	}
	got, err := h.GetAttr(ctx, asRoot, f.Attr.Handle)
	if err != nil || got.Size != 0 || got.Change <= w.Attr.Change {
		t.Errorf("%+v, %v; before the rollback %+v", got, err, w.Attr)
	}
	if err := h.Rollback(ctx, asRoot, "none", "before none"); !errors.Is(err, volume.ErrNotExist) {
		t.Errorf("to a snapshot that is not there: %v", err)
	}
}

// TestNewerFormat: a copy that meets a format level of a later release stops, and says what to do.
// A volume whose copies do not all know snapshots has none.
func TestNewerFormat(t *testing.T) {
	level := uint32(1)
	failed := make(chan error, 1)
	h := newHost(t, func(c *Config) {
		c.Level = func() uint32 { return level }
		c.Failed = func(why error) { failed <- why }
		c.Tuning.Window = time.Hour
	})
	ctx := context.Background()
	if _, err := h.TakeSnapshot(ctx, asRoot, "one"); !errors.Is(err, volume.ErrDelay) || !strings.Contains(err.Error(), "upgrade") {
		t.Fatalf("with a copy of an earlier release: %v", err)
	}
	if _, err := h.Create(ctx, asRoot, volume.Root, "f", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded}); err != nil {
		t.Fatal(err)
	}
	if n := h.leftovers(); n != 0 {
		t.Fatalf("%d keys of a later format level", n)
	}
	level = 2
	if _, err := h.TakeSnapshot(ctx, asRoot, "one"); err != nil {
		t.Fatal(err)
	}
	follower := openEngine(t, vfs.NewMem(), h.journal, func(c *Config) { c.Failed = func(why error) { failed <- why } })
	defer func() { _ = follower.Close() }()
	key, value := meta.VersionsOf{Level: meta.Format + 1}.Encode()
	end := segment.Position{Seq: 1, Off: 1000}
	rec := &segment.Record{Epoch: 1, Ops: []segment.Op{{Kind: segment.Set, Key: key, Value: value}}}
	if err := follower.Ingest([]journal.Entry{{End: end, Record: rec}}); err != nil {
		t.Fatal(err)
	}
	follower.Committed(end)
	var newer *meta.NewerError
	if err := <-failed; !errors.As(err, &newer) || !strings.Contains(err.Error(), "upgrade this gateway") {
		t.Fatalf("a copy says %v", err)
	}
	if follower.Applied() != (segment.Position{}) {
		t.Fatal("it was applied")
	}
}

// TestRollbackIsExecutedOnce: a rollback that is asked for again does nothing, whoever was home
// when it began, and also if the snapshot that it took first is gone. Another one waits for it.
func TestRollbackIsExecutedOnce(t *testing.T) {
	for records := range 4 { // after so many the first home is lost; 0: it is not
		h := newHost(t, nil)
		h.make("old")
		h.take("one")
		h.make("undone")
		r := volume.Request{ID: volume.OpID{Slot: "rollback/1", Seq: 1}}
		ctx, cancel := context.WithCancel(context.Background())
		appended := 0
		h.journal.appended = func() {
			if appended++; appended == records {
				cancel()
			}
		}
		err := h.Rollback(ctx, r, "one", "before")
		h.journal.appended = nil
		if done := ctx.Err() == nil; done != (err == nil) {
			t.Fatalf("after %d records: %v", records, err)
		}
		if err != nil {
			other := volume.Request{ID: volume.OpID{Slot: "rollback/2", Seq: 1}}
			if err := h.Rollback(context.Background(), other, "before", "other"); !errors.Is(err, volume.ErrDelay) {
				t.Fatalf("another one meanwhile: %v", err)
			}
			h.crash()
		}
		again := func() {
			t.Helper()
			if err := h.Rollback(context.Background(), r, "one", "before"); err != nil {
				t.Fatal(err)
			}
		}
		again()
		cancel()
		if got := look(t, withLocks(h.Engine), volume.Root); !strings.Contains(got, "/old") || strings.Contains(got, "/undone") {
			t.Fatalf("after the rollback the volume has\n%s", got)
		}
		h.make("new")
		if err := h.DropSnapshot(context.Background(), asRoot, "before"); err != nil {
			t.Fatal(err)
		}
		again()
		h.crash()
		again()
		if got := look(t, withLocks(h.Engine), volume.Root); !strings.Contains(got, "/new") {
			t.Errorf("a repeat undid what came later: the volume has\n%s", got)
		}
		h.checkUsed()
	}
}
