// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"testing"

	"github.com/weir-storage/weir/volume"
)

// sparse makes a file with one recorded byte in each of n runs.
func sparse(t testing.TB, v volume.Changer, name string, n int) volume.Handle {
	t.Helper()
	f := newFile(t, v, volume.Root, name)
	for i := range n {
		if _, err := v.Write(t.Context(), asRoot, f, uint64(i)*run, []byte{1}, false); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// BenchmarkTruncate cuts a file of very many extents to 4 KiB, and punches all but its ends.
func BenchmarkTruncate(b *testing.B) {
	for name, cut := range map[string]func(h *host, f volume.Handle, n int) error{
		"to-4KiB": func(h *host, f volume.Handle, _ int) error {
			size := uint64(4 << 10)
			_, err := h.SetAttr(b.Context(), asRoot, f, volume.SetAttr{Size: &size})
			return err
		},
		"to-half": func(h *host, f volume.Handle, n int) error {
			size := uint64(n) / 2 * run
			_, err := h.SetAttr(b.Context(), asRoot, f, volume.SetAttr{Size: &size})
			return err
		},
		"punch": func(h *host, f volume.Handle, n int) error {
			_, err := h.Punch(b.Context(), asRoot, f, 1, uint64(n-1)*run)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			const extents = 200_000
			h := newHost(b, nil)
			for b.Loop() {
				b.StopTimer()
				f := sparse(b, h, "f", extents)
				b.StartTimer()
				if err := cut(h, f, extents); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if _, err := h.Remove(b.Context(), asRoot, volume.Root, "f"); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// recorded sums up the extents of a file in a range, one by one.
func recorded(t *testing.T, e *Engine, f volume.Handle, off, end uint64) (used, sum uint64, n int) {
	t.Helper()
	_, err := read(t.Context(), e, place{}, func(tr *tree) (struct{}, error) {
		ino, err := tr.file(f)
		if err != nil {
			return struct{}{}, err
		}
		used, sum, n = ino.Used, 0, 0
		for x, err := range tr.extents(ino.ContentID(), off, end) {
			if err != nil {
				return struct{}{}, err
			}
			sum += min(x.End(), end) - max(x.Off, off)
			n++
		}
		return struct{}{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return used, sum, n
}

// TestCountedAhead: whether or not a file changes between the count and the change, what a file
// uses is what is recorded.
func TestCountedAhead(t *testing.T) {
	h := newHost(t, nil)
	f := newFile(t, h, volume.Root, "f")
	rng := mathrand.New(mathrand.NewPCG(7, 7))
	const size = 64 << 20
	data := make([]byte, 100_000)
	for round := range 150 {
		for range 1 + rng.IntN(5) {
			if _, err := h.Write(t.Context(), asRoot, f, rng.Uint64N(size), data[:1+rng.IntN(len(data))], false); err != nil {
				t.Fatal(err)
			}
		}
		off := 1 + rng.Uint64N(size)
		end := off + 1 + rng.Uint64N(2*size)
		truncate := rng.IntN(2) == 0
		if truncate {
			end = endOfFile
		}
		ahead := h.countAhead(t.Context(), f, off, end)
		if ahead != nil {
			if _, sum, _ := recorded(t, h.Engine, f, ahead.off, ahead.end); sum != ahead.bytes {
				t.Fatalf("round %d: counted %d bytes in [%d, %d), %d are there", round, ahead.bytes, ahead.off, ahead.end, sum)
			}
		}
		if rng.IntN(2) == 0 { // the count does not hold any more
			if _, err := h.Write(t.Context(), asRoot, f, rng.Uint64N(size), data[:1+rng.IntN(len(data))], false); err != nil {
				t.Fatal(err)
			}
		}
		_, err := change(t.Context(), h.Engine, asRoot, place{}, attrResult, false, func(tx *tx) (volume.Attr, error) {
			n, err := tx.file(f)
			if err != nil || off >= n.Size {
				return volume.Attr{}, err
			}
			if truncate {
				return n.Attr, tx.setAttr(n, asRoot.Caller, volume.SetAttr{Size: &off}, ahead)
			}
			return n.Attr, tx.punch(n, off, min(end, n.Size), ahead)
		})
		if err != nil {
			t.Fatal(err)
		}
		if used, sum, _ := recorded(t, h.Engine, f, 0, endOfFile); used != sum {
			t.Fatalf("round %d: the file says %d bytes, %d are recorded", round, used, sum)
		}
		if _, sum, n := recorded(t, h.Engine, f, off, min(end, 4*size)); sum != 0 {
			t.Fatalf("round %d: %d extents are left in [%d, %d)", round, n, off, end)
		}
	}
}

// TestTruncateLooksAtFew: what a truncation and a hole do while others wait does not grow with the
// file.
func TestTruncateLooksAtFew(t *testing.T) {
	h := newHost(t, nil)
	allocs := map[int]float64{}
	for _, n := range []int{1024, 4096} {
		f := sparse(t, h, fmt.Sprint(n), n)
		half, quarter := uint64(n)/2*run, uint64(n)/4*run
		ahead, hole := h.countAhead(t.Context(), f, half, endOfFile), h.countAhead(t.Context(), f, quarter, half)
		if ahead == nil || hole == nil {
			t.Fatalf("%d extents are not counted ahead", n)
		}
		if err := h.lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		allocs[n] = testing.AllocsPerRun(5, func() {
			tx, err := h.begin()
			if err != nil {
				t.Fatal(err)
			}
			ino, err := tx.file(f)
			if err == nil {
				err = errors.Join(tx.punch(ino, half, ino.Size, ahead), tx.punch(ino, quarter, half, hole))
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		h.unlock()
	}
	if allocs[4096] > 1.5*allocs[1024] {
		t.Errorf("allocations with 1024 and 4096 extents: %v, want about as many", allocs)
	}
}
