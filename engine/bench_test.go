// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"testing"

	"github.com/weir-storage/weir/volume"
)

func newFile(t testing.TB, v volume.Changer, dir volume.Handle, name string) volume.Handle {
	t.Helper()
	mode := uint32(0o644)
	c, err := v.Create(t.Context(), asRoot, dir, name, volume.CreateArgs{
		Type: volume.Regular, Mode: volume.Guarded, Attr: volume.SetAttr{Mode: &mode},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c.Attr.Handle
}

func BenchmarkCreate(b *testing.B) {
	h := newHost(b, nil)
	mode := uint32(0o644)
	args := volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded, Attr: volume.SetAttr{Mode: &mode}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := volume.Request{ID: volume.OpID{Slot: "client and session", Seq: uint32(i + 1)}}
		if _, err := h.Create(b.Context(), r, volume.Root, fmt.Sprintf("file %d", i), args); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLookup looks up names whose values are known.
func BenchmarkLookup(b *testing.B) {
	h := newHost(b, nil)
	for i := range 1000 {
		newFile(b, h, volume.Root, fmt.Sprint(i))
	}
	if err := h.WaitApplied(b.Context(), h.lastEnd()); err != nil {
		b.Fatal(err)
	}
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := h.Lookup(b.Context(), asRoot, volume.Root, names[i%1000]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreateParallel(b *testing.B) {
	h := newHost(b, nil)
	mode := uint32(0o644)
	args := volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded, Attr: volume.SetAttr{Mode: &mode}}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		slot := fmt.Sprintf("slot %x", mathrand.Uint64())
		for i := 0; pb.Next(); i++ {
			r := volume.Request{ID: volume.OpID{Slot: slot, Seq: uint32(i + 1)}}
			if _, err := h.Create(b.Context(), r, volume.Root, fmt.Sprintf("%s file %d", slot, i), args); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkWrite1MiB(b *testing.B) {
	for name, fill := range map[string]func([]byte){
		"random": func(p []byte) { _, _ = rand.Read(p) },
		"text": func(p []byte) {
			for i := range p {
				p[i] = "the quick brown fox jumps over the lazy dog "[i%44] + byte(i/4096%3)
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			h := newHost(b, nil)
			f := newFile(b, h, volume.Root, "f")
			p := make([]byte, 1<<20)
			fill(p)
			b.SetBytes(1 << 20)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := h.Write(b.Context(), asRoot, f, uint64(i%256)<<20, p, false); err != nil {
					b.Fatal(err)
				}
				h.journal.forgetBlocks()
			}
		})
	}
}

func BenchmarkRead4KiB(b *testing.B) {
	const size = 64 << 20
	for name, cache := range map[string]int64{"cached": 2 * size, "uncached": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			h := newHost(b, func(c *Config) { c.Cache = NewBlockCache(cache) })
			f := newFile(b, h, volume.Root, "f")
			p := make([]byte, 1<<20)
			_, _ = rand.Read(p)
			for off := uint64(0); off < size; off += 1 << 20 {
				if _, err := h.Write(b.Context(), asRoot, f, off, p, false); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(4096)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := h.Read(b.Context(), asRoot, f, mathrand.Uint64N(size/4096)*4096, p[:4096]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
