// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"runtime"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// TestUncommitted distinguishes a change that may be undone from one that is only not applied yet.
func TestUncommitted(t *testing.T) {
	h := newHost(t, nil)
	c, err := h.Create(t.Context(), asRoot, volume.Root, "f", volume.CreateArgs{Type: volume.Regular})
	if err != nil {
		t.Fatal(err)
	}
	ino := c.Attr.Ino
	h.settle(t)
	h.journal.holdCommits()
	done := make(chan error, 1)
	go func() {
		_, err := h.Remove(t.Context(), asRoot, volume.Root, "f")
		done <- err
	}()
	for !h.Uncommitted(ino) {
		h.awaitMove(t)
	}
	h.mu.Lock()
	h.applying = true // nobody applies what is committed now
	h.mu.Unlock()
	h.journal.release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if h.Touched(ino) == (segment.Position{}) {
		t.Fatal("the removal is applied: this test does not see what it is about")
	}
	if h.Uncommitted(ino) {
		t.Error("a removal that was answered is said to be not committed")
	}
	h.mu.Lock()
	h.applying = false
	h.kick()
	h.mu.Unlock()
	h.settle(t)
	if h.Uncommitted(ino) {
		t.Error("a removal that is applied is said to be not committed")
	}
}

// settle waits until everything in the log is applied.
func (h *host) settle(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	end := h.end
	h.mu.Unlock()
	if err := h.WaitApplied(t.Context(), end); err != nil {
		t.Fatal(err)
	}
}

// awaitMove lets other goroutines run. It fails the test when its context ends.
func (h *host) awaitMove(t *testing.T) {
	t.Helper()
	if t.Context().Err() != nil {
		t.Fatal(t.Context().Err())
	}
	runtime.Gosched()
}
