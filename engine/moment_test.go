// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"testing"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// TestMomentIsShared: views that begin between two batches are of one moment, and those that begin
// after a batch are not of a moment before it.
func TestMomentIsShared(t *testing.T) {
	h := newHost(t, nil)
	newFile(t, h, volume.Root, "a")
	settle := func() {
		t.Helper()
		if err := h.WaitApplied(t.Context(), h.lastEnd()); err != nil {
			t.Fatal(err)
		}
	}
	settle()
	look := func() *tree {
		t.Helper()
		v, err := h.look()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	has := func(v *tree, name string) bool {
		t.Helper()
		_, ok, _, err := v.view.Get(meta.NameKey(volume.Root.Ino, name))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	first := look()
	h.mu.Lock()
	of := h.latest.at
	h.mu.Unlock()
	second := look()
	if h.mu.Lock(); of == nil || h.latest.at != of {
		t.Error("each view has a snapshot of its own")
	}
	h.mu.Unlock()
	newFile(t, h, volume.Root, "b")
	settle()
	third := look()
	if has(first, "b") || has(second, "b") || !has(third, "b") || !has(first, "a") {
		t.Error("a view is not of the moment at which it began")
	}
	for _, v := range []*tree{second, first, third} { // the first ones are the last users of theirs
		if err := v.view.Close(); err != nil {
			t.Error(err)
		}
	}
	if h.mu.Lock(); h.latest.at == of {
		t.Error("a moment outlived the batch after it")
	}
	h.mu.Unlock()
}

// TestInodesOfATree: a tree finds what it has read, however much that is, as it was read last.
func TestInodesOfATree(t *testing.T) {
	var s inodes
	if s.get(3) != nil {
		t.Error("an empty set has an inode")
	}
	for round := range 2 {
		for ino := uint64(1); ino <= 9; ino++ {
			s.put(&meta.Inode{Attr: volume.Attr{Handle: volume.Handle{Ino: ino, Gen: uint64(round)}}})
		}
	}
	for ino := uint64(1); ino <= 9; ino++ {
		if n := s.get(ino); n == nil || n.Ino != ino || n.Gen != 1 {
			t.Errorf("inode %d is %v", ino, n)
		}
	}
	if n := s.get(10); n != nil {
		t.Error(fmt.Sprint("there is ", n))
	}
}
