// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/volume"
)

// TestNumbersAreNeverUsedAgain: no inode number is given twice, and no change attribute repeats for
// other content, whichever home gave them (protocol-20, protocol-21).
func TestNumbersAreNeverUsedAgain(t *testing.T) {
	h := newHost(t, nil)
	inodes, changes := map[uint64]string{}, map[uint64]bool{}
	note := func(what string, f volume.Handle) {
		t.Helper()
		if was, ok := inodes[f.Ino]; ok {
			t.Errorf("%s has the inode number %d of %s", what, f.Ino, was)
		}
		inodes[f.Ino] = what
	}
	changed := func() {
		t.Helper()
		a, err := h.GetAttr(t.Context(), asRoot, volume.Root)
		if err != nil || changes[a.Change] {
			t.Errorf("change attribute %#x again, %v", a.Change, err)
		}
		changes[a.Change] = true
	}
	for _, reign := range []string{"first", "second", "after a crash"} {
		for _, name := range []string{"1", "2", "3"} {
			note(reign+name, newFile(t, h, volume.Root, reign+name))
			changed()
			if _, err := h.Remove(t.Context(), asRoot, volume.Root, reign+name); err != nil {
				t.Fatal(err)
			}
			changed()
		}
		if reign == "first" {
			h.Unlead()
			h.lead()
		} else {
			h.crash()
		}
	}
}

// TestChangesWaitForTheApplier: changes wait while much is committed that is not applied, so that
// it does not fill memory.
func TestChangesWaitForTheApplier(t *testing.T) {
	h := newHost(t, nil)
	f := newFile(t, h, volume.Root, "f")
	if err := h.WaitApplied(t.Context(), h.lastEnd()); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	h.applying = true // nothing applies
	h.mu.Unlock()
	if _, err := h.Write(t.Context(), asRoot, f, 0, []byte("x"), true); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	h.lag += lagBytes
	h.mu.Unlock()
	again := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.lag, h.applying = h.lag-lagBytes, false
		h.kick()
		h.notify()
	}
	done := make(chan error, 1)
	go func() {
		_, err := h.Write(context.Background(), asRoot, f, 1, []byte("y"), true)
		done <- err
	}()
	select {
	case err := <-done:
		again()
		t.Fatalf("a change does not wait: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	again()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestPersist: what Persist says to be durable is there after a crash.
func TestPersist(t *testing.T) {
	h := newHost(t, nil)
	for i := range 3 {
		newFile(t, h, volume.Root, string(rune('a'+i)))
		end := h.lastEnd()
		if err := h.WaitApplied(t.Context(), end); err != nil {
			t.Fatal(err)
		}
		kept, err := h.Persist(end)
		if err != nil || kept.Less(end) {
			t.Fatalf("applied up to %v, and durable up to %v, %v", end, kept, err)
		}
		disk := h.fs.CrashClone(vfs.CrashCloneCfg{})
		e := openEngine(t, disk, h.journal, nil)
		if e.Applied().Less(kept) {
			t.Errorf("after a crash it is applied up to %v, and was durable up to %v", e.Applied(), kept)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
