// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/weir-storage/weir/volume"
)

// TestSparse1TiB: a file of 1 TiB with bytes at its ends, and with very many in between, is punched
// and cut to 4 KiB. What the change does while others wait takes about as long with many extents as
// with few; the times are printed.
func TestSparse1TiB(t *testing.T) {
	extents := 2_000
	if os.Getenv("WEIR_SOAK") != "" {
		extents = 500_000
	}
	h := newHost(t, nil)
	const size = uint64(1) << 40
	tail := []byte("the last bytes of a terabyte")
	f := newFile(t, h, volume.Root, "f")
	write := func(off uint64, p []byte) {
		t.Helper()
		if _, err := h.Write(t.Context(), asRoot, f, off, p, false); err != nil {
			t.Fatal(err)
		}
	}
	read := func(off uint64, n int) []byte {
		t.Helper()
		p := bytes.Repeat([]byte{0xff}, n) // what is not filled is seen
		got, _, err := h.Read(t.Context(), asRoot, f, off, p)
		if err != nil {
			t.Fatal(err)
		}
		return p[:got]
	}
	head := bytes.Repeat([]byte("head"), 2<<10)
	fill := func() {
		t.Helper()
		write(0, head)
		write(size-uint64(len(tail)), tail)
		for i := range extents {
			write(uint64(i+1)*(size/uint64(extents+2))/run*run+run, []byte{1})
		}
		if err := h.WaitApplied(t.Context(), h.lastEnd()); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	a, err := h.GetAttr(t.Context(), asRoot, f)
	if err != nil || a.Size != size || a.Used != uint64(len(head)+len(tail)+extents) {
		t.Fatalf("%d bytes, %d recorded, %v; want %d, %d", a.Size, a.Used, err, size, len(head)+len(tail)+extents)
	}
	if got := read(size-uint64(len(tail)), 100); !bytes.Equal(got, tail) {
		t.Errorf("the end is %q", got)
	}
	if got := read(size/2+1, 4096); !bytes.Equal(got, make([]byte, 4096)) {
		t.Error("a hole is not zeros")
	}
	began := time.Now()
	if _, err := h.Punch(t.Context(), asRoot, f, uint64(len(head)), size-uint64(len(head)+len(tail))); err != nil {
		t.Fatal(err)
	}
	punched := time.Since(began)
	if a, err = h.GetAttr(t.Context(), asRoot, f); err != nil || a.Size != size || a.Used != uint64(len(head)+len(tail)) {
		t.Errorf("after the hole: %d bytes, %d recorded, %v", a.Size, a.Used, err)
	}
	if got := read(size-uint64(len(tail)), 100); !bytes.Equal(got, tail) {
		t.Errorf("the end after the hole is %q", got)
	}
	fill()
	const left = uint64(4 << 10)
	began = time.Now()
	to := left
	if _, err := h.SetAttr(t.Context(), asRoot, f, volume.SetAttr{Size: &to}); err != nil {
		t.Fatal(err)
	}
	cut := time.Since(began)
	if got := read(0, 1<<20); !bytes.Equal(got, head[:left]) {
		t.Errorf("%d bytes are left, or others", len(got))
	}
	to = size
	if _, err := h.SetAttr(t.Context(), asRoot, f, volume.SetAttr{Size: &to}); err != nil {
		t.Fatal(err)
	}
	if got := read(left, 8<<10); !bytes.Equal(got, make([]byte, 8<<10)) {
		t.Error("what was cut off comes back")
	}
	if used, sum, n := recorded(t, h.Engine, f, 0, endOfFile); used != left || sum != left || n != 1 {
		t.Errorf("%d bytes used, %d recorded in %d extents, want %d in one", used, sum, n, left)
	}
	t.Logf("1 TiB with %d extents: a hole takes %v, to be cut to 4 KiB %v, with what is counted before the turn", extents, punched, cut)
}
