// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

func TestBlockCache(t *testing.T) {
	c := NewBlockCache(100)
	ref := func(n uint64) segment.BlockRef { return segment.BlockRef{Seq: 1, Off: n} }
	a, b := c.namespace(), c.namespace()
	for n := range uint64(3) {
		c.put(a, ref(n), make([]byte, 40))
		if n == 1 {
			c.get(a, ref(0)) // block 1 is the oldest now
		}
	}
	for n, want := range []bool{true, false, true} {
		if got := c.get(a, ref(uint64(n))) != nil; got != want {
			t.Errorf("block %d is cached: %t", n, got)
		}
	}
	if c.get(b, ref(0)) != nil {
		t.Error("a block is found in another namespace")
	}
	c.put(a, ref(9), make([]byte, 101))
	if c.size != 80 || len(c.blocks) != 2 || c.recent.Len() != 2 {
		t.Errorf("cache holds %d bytes in %d blocks", c.size, len(c.blocks))
	}
}

// TestReadAhead reads a file in order and then removes the blocks from the journal. What follows
// must be in the cache already. Reads at random offsets must not start a read-ahead.
func TestReadAhead(t *testing.T) {
	h := newHost(t, nil)
	const step = 128 << 10
	want := make([]byte, 3*aheadWindow/2)
	for i := range want {
		want[i] = byte(i / 4096)
	}
	f, g := newFile(t, h, volume.Root, "f"), newFile(t, h, volume.Root, "g")
	for off := 0; off < len(want); off += 1 << 20 {
		for _, file := range []volume.Handle{f, g} {
			if _, err := h.Write(t.Context(), asRoot, file, uint64(off), want[off:off+1<<20], false); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := make([]byte, step)
	read := func(file volume.Handle, off int) error {
		t.Helper()
		n, _, err := h.Read(t.Context(), asRoot, file, uint64(off), p)
		if err == nil && !bytes.Equal(p[:n], want[off:off+step]) {
			t.Fatalf("read at %d differs", off)
		}
		return err
	}
	for i := range 2 {
		if err := read(f, i*step); err != nil {
			t.Fatal(err)
		}
		if err := read(g, i*5*step); err != nil {
			t.Fatal(err)
		}
	}
	h.ahead.wg.Wait()
	h.journal.forgetBlocks()
	for off := 2 * step; off < aheadWindow; off += step {
		if err := read(f, off); err != nil {
			t.Fatalf("read at %d was not fetched ahead: %v", off, err)
		}
	}
	h.ahead.wg.Wait()
	wantOutcome(t, "read in no order", read(g, 6*step), volume.ErrIO)
}

// TestSmallWrites writes over and into extents and reads across them.
func TestSmallWrites(t *testing.T) {
	h := newHost(t, nil)
	f := newFile(t, h, volume.Root, "f")
	want := make([]byte, 200<<10)
	for i, w := range []struct{ off, n int }{
		{0, 64 << 10}, {10, 5}, {65530, 12}, {64<<10 - 1, 2}, {100 << 10, 100 << 10}, {131071, 1}, {0, 200 << 10}, {77, 65536}, {1, 1},
	} {
		data := bytes.Repeat([]byte{byte(i + 1)}, w.n)
		copy(want[w.off:], data)
		res, err := h.Write(t.Context(), asRoot, f, uint64(w.off), data, i%2 == 0)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want)+1)
		n, eof, err := h.Read(t.Context(), asRoot, f, 0, got)
		if err != nil || !eof || uint64(n) != res.Attr.Size || !bytes.Equal(got[:n], want[:n]) {
			t.Fatalf("after write %d: %d bytes, %t, %v", i, n, eof, err)
		}
	}
}
