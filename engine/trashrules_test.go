// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// TestFullVolumeIsEmptiedByRemoving: when little room is left, what is removed goes for good, and
// the home empties the trash (protocol-15).
func TestFullVolumeIsEmptiedByRemoving(t *testing.T) {
	const room = 1 << 20
	h := newHost(t, func(c *Config) { c.Tuning.Trash, c.Bytes = time.Hour, room })
	ctx := context.Background()
	part := make([]byte, room/16)
	free := func() uint64 {
		s, err := h.Space(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s.FreeBytes
	}
	for i := range 16 {
		if _, err := h.Write(ctx, asRoot, h.make(fmt.Sprint("f", i)), 0, part, true); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(name string) {
		t.Helper()
		if _, err := h.Remove(ctx, asRoot, volume.Root, name); err != nil {
			t.Fatal(err)
		}
	}
	remove("f0")
	remove("f1")
	if got := free(); got != room/8 {
		t.Errorf("%d bytes are free after files were removed from the full volume, want %d", got, room/8)
	}
	remove("f2") // now there is room for a trash
	if got := free(); got != room/8 || h.wastes() != 1 {
		t.Errorf("%d bytes are free, and the trash has %d files", got, h.wastes())
	}
	for _, name := range []string{"g0", "g1"} {
		if _, err := h.Write(ctx, asRoot, h.make(name), 0, part, true); err != nil {
			t.Fatal(err)
		}
	}
	h.clean()
	if got := free(); got != room/16 || h.wastes() != 0 {
		t.Errorf("%d bytes are free, and the trash has %d files; want it empty", got, h.wastes())
	}
	h.checkTree()
}

// TestWhatGoesIntoTheTrash: names that clients give what is removed while it is open do not, and
// nothing does while the volume keeps no trash or a copy does not know it. What is there then goes.
func TestWhatGoesIntoTheTrash(t *testing.T) {
	level := uint32(meta.SnapshotLevel)
	h := newHost(t, func(c *Config) {
		c.Level = func() uint32 { return level }
		c.Tuning.Trash = time.Hour
	})
	ctx := context.Background()
	remove := func(name string, want int) {
		t.Helper()
		h.make(name)
		if _, err := h.Remove(ctx, asRoot, volume.Root, name); err != nil {
			t.Fatal(err)
		}
		if n := h.wastes(); n != want {
			t.Errorf("after %s was removed the trash has %d files, want %d", name, n, want)
		}
	}
	remove("a", 0)
	level = meta.TrashLevel
	remove("a", 1)
	remove(".nfs00000000000a1b2c00000001", 1)
	remove(".nfs0000000000000000000000g1", 2)
	long := strings.Repeat("ä", 127) + "x"
	remove(long, 3)
	remove(long, 4)
	h.clean()
	h.checkTree()
	h.Tune(Tuning{})
	remove("b", 4)
	h.clean()
	if n := h.wastes(); n != 0 {
		t.Errorf("without a trash %d files are in it", n)
	}
	h.checkTree()
	if got := lookTrash(t, withLocks(h.Engine), volume.Root); got != "" {
		t.Errorf("the trash has\n%s", got)
	}
}

// TestTrashIsEmptiedInSmallRecords: however much is in the trash, each record has a part of it, and
// what is younger stays.
func TestTrashIsEmptiedInSmallRecords(t *testing.T) {
	clock := &fakeNow{now: time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)}
	h := newHost(t, func(c *Config) { c.Tuning.Trash, c.Now = time.Hour, clock.Now })
	ctx := context.Background()
	remove := func(name string) {
		t.Helper()
		h.make(name)
		if _, err := h.Remove(ctx, asRoot, volume.Root, name); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		remove(fmt.Sprint("old", i))
	}
	clock.advance(30 * time.Minute)
	remove("young")
	clock.advance(31 * time.Minute)
	records, most := 0, 0
	h.journal.appended = func() {
		records++
		h.journal.mu.Lock()
		defer h.journal.mu.Unlock()
		most = max(most, len(h.journal.entries[len(h.journal.entries)-1].Record.Ops))
	}
	h.clean()
	h.journal.appended = nil
	t.Logf("%d records with up to %d operations", records, most)
	if n := h.wastes(); n != 1 || records < 1000/emptyBatch || most > 12*emptyBatch {
		t.Errorf("%d files are left, after %d records with up to %d operations", n, records, most)
	}
	h.checkTree()
}

// TestRecordOfARemoval: a removal into the trash has the same size however much is there.
func TestRecordOfARemoval(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Tuning.Trash = time.Hour })
	ctx := context.Background()
	ops := func(i int) int {
		t.Helper()
		h.make(fmt.Sprintf("f%04d", i))
		if _, err := h.Remove(ctx, asRoot, volume.Root, fmt.Sprintf("f%04d", i)); err != nil {
			t.Fatal(err)
		}
		h.journal.mu.Lock()
		defer h.journal.mu.Unlock()
		return len(h.journal.entries[len(h.journal.entries)-1].Record.Ops)
	}
	first, second := ops(0), ops(1)
	for i := range 2000 {
		if n := ops(i + 2); n != second {
			t.Fatalf("removal %d has %d operations, the first ones had %d and %d", i, n, first, second)
		}
	}
	t.Logf("%d operations, and %d where there was no trash", second, first)
}

// TestRestoredTreeStays: what is below a directory that was restored is not in the trash any more,
// and does not go when its time is over.
func TestRestoredTreeStays(t *testing.T) {
	clock := &fakeNow{now: time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)}
	h := newHost(t, func(c *Config) { c.Tuning.Trash, c.Now = time.Hour, clock.Now })
	ctx := context.Background()
	dir := volume.Root
	var above []volume.Handle
	for range 4 {
		c, err := h.Create(ctx, asRoot, dir, "d", volume.CreateArgs{Type: volume.Directory, Mode: volume.Guarded})
		if err != nil {
			t.Fatal(err)
		}
		above, dir = append(above, dir), c.Attr.Handle
	}
	c, err := h.Create(ctx, asRoot, dir, "f", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Write(ctx, asRoot, c.Attr.Handle, 0, []byte("data"), true); err != nil {
		t.Fatal(err)
	}
	v := withLocks(h.Engine)
	want := look(t, v, volume.Root)
	if _, err := h.Remove(ctx, asRoot, dir, "f"); err != nil {
		t.Fatal(err)
	}
	for i := len(above) - 1; i >= 0; i-- {
		if _, err := h.Remove(ctx, asRoot, above[i], "d"); err != nil {
			t.Fatal(err)
		}
	}
	if got := look(t, v, volume.Root); got != "" {
		t.Fatalf("after all was removed the volume has\n%s", got)
	}
	bin, err := h.Lookup(ctx, asRoot, volume.Root, volume.TrashDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Rename(ctx, asRoot, bin.Handle, "d", volume.Root, "d"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := look(t, v, volume.Root); got != want {
			t.Fatalf("restored is\n%swant\n%s", got, want)
		}
		h.checkTree()
		h.checkUsed()
		clock.advance(2 * time.Hour)
		h.clean()
	}
	if n := h.wastes(); n != 0 {
		t.Errorf("%d notes of the trash are left", n)
	}
}
