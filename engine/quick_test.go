// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// TestKnownAtOnce: what is known and committed is answered at once. What is not, or is not to be,
// is left to a look.
func TestKnownAtOnce(t *testing.T) {
	h := newHost(t, nil)
	ctx := t.Context()
	settle := func() {
		t.Helper()
		if err := h.WaitApplied(ctx, h.lastEnd()); err != nil {
			t.Fatal(err)
		}
	}
	quick := func(what string, ctx context.Context, r volume.Request, dir volume.Handle, name string, want bool) volume.Attr {
		t.Helper()
		a, ok := h.quickly(ctx, r, dir, name)
		if ok != want {
			t.Errorf("%s: at once: %v, want %v", what, ok, want)
		}
		return a
	}
	f := newFile(t, h, volume.Root, "f")
	settle()
	if a := quick("a name that was made", ctx, asRoot, volume.Root, "f", true); a.Handle != f {
		t.Errorf("the handle is %v, want %v", a.Handle, f)
	}
	quick("a name that is not there", ctx, asRoot, volume.Root, "g", false)
	quick("a name in a file", ctx, asRoot, f, "f", false)
	quick("another generation", ctx, asRoot, volume.Handle{Ino: f.Ino, Gen: f.Gen + 1}, "", false)
	quick("a snapshot", ctx, asRoot, volume.Handle{Ino: f.Ino, Gen: f.Gen, Snap: 1}, "", false)
	quick("an earlier state", journal.Earlier(ctx, segment.Position{}), asRoot, f, "", false)
	h.rolling.Store(1)
	quick("a volume that is being rolled back", ctx, asRoot, volume.Root, "f", false)
	h.rolling.Store(0)
	mode := uint32(0o600)
	if _, err := h.SetAttr(ctx, asRoot, volume.Root, volume.SetAttr{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	settle()
	somebody := volume.Request{Caller: volume.Caller{UID: 7}}
	quick("a name in a directory that one may not search", ctx, somebody, volume.Root, "f", false)
	quick("the attributes of such a directory", ctx, somebody, volume.Root, "", true)

	// What is in the log and not committed is in the overlay.
	h.journal.holdCommits()
	done := make(chan error, 1)
	wrote := make(chan struct{})
	h.journal.appended = func() { h.journal.appended = nil; close(wrote) }
	go func() {
		_, err := h.SetAttr(ctx, asRoot, f, volume.SetAttr{Mode: &mode})
		done <- err
	}()
	<-wrote
	quick("attributes that are not committed", ctx, asRoot, f, "", false)
	quick("a name of what is not committed", ctx, asRoot, volume.Root, "f", false)
	quick("attributes beside that", ctx, asRoot, volume.Root, "", true)
	h.journal.release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	settle()
	if a := quick("attributes that were changed", ctx, asRoot, f, "", true); a.Mode != mode {
		t.Errorf("the mode is %o, want %o", a.Mode, mode)
	}
	h.mu.Lock() // a record of data touches a file without a change of its inode that is in the overlay
	h.data[f.Ino] = segment.Position{Seq: 1 << 30}
	h.mu.Unlock()
	quick("a file with data that are not committed", ctx, asRoot, f, "", false)
	h.mu.Lock()
	delete(h.data, f.Ino)
	h.mu.Unlock()

	if _, err := h.Remove(ctx, asRoot, volume.Root, "f"); err != nil {
		t.Fatal(err)
	}
	quick("a name that was removed", ctx, asRoot, volume.Root, "f", false)
	settle()
	quick("a name that was removed before", ctx, asRoot, volume.Root, "f", false)
}

// TestQuicklyNeedsTheRole: without a promise nothing is answered, and neither if the role ends
// while the promise is asked for.
func TestQuicklyNeedsTheRole(t *testing.T) {
	h := newHost(t, nil)
	f := newFile(t, h, volume.Root, "f")
	if err := h.WaitApplied(t.Context(), h.lastEnd()); err != nil {
		t.Fatal(err)
	}
	h.journal.mayServe = journal.ErrNotHome
	if _, ok := h.quickly(t.Context(), asRoot, f, ""); ok {
		t.Error("without a promise it answers")
	}
	h.journal.mayServe = nil
	h.journal.asked = func() {
		h.journal.asked = nil
		h.Unlead()
	}
	if _, ok := h.quickly(t.Context(), asRoot, f, ""); ok {
		t.Error("after the role ended it answers")
	}
	if _, ok := h.quickly(t.Context(), asRoot, f, ""); ok {
		t.Error("a follower answers")
	}
}

// TestRowsAreBounded: decoded rows count, too.
func TestRowsAreBounded(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Cache = NewBlockCache(1 << 20) })
	for i := range 1000 {
		name := fmt.Sprint(i)
		newFile(t, h, volume.Root, name)
		if err := h.WaitApplied(t.Context(), h.lastEnd()); err != nil {
			t.Fatal(err)
		}
		if _, ok := h.quickly(t.Context(), asRoot, volume.Root, name); !ok {
			t.Fatalf("%s is not known", name)
		}
	}
	size, rows := 0, 0
	for i := range h.rows.cache.shards {
		s := &h.rows.cache.shards[i]
		sum, n := 0, 0
		for r := s.order.next; r != &s.order; r = r.next {
			sum, n = sum+r.size(), n+1
		}
		if sum != s.size || s.size > s.limit || len(s.rows) != n {
			t.Errorf("shard %d: %d bytes of %d, its %d rows take %d", i, s.size, s.limit, len(s.rows), sum)
		}
		size, rows = size+s.size, rows+len(s.rows)
	}
	if rows == 0 || size > 1<<20/8 {
		t.Errorf("%d rows take %d bytes", rows, size)
	}
}
