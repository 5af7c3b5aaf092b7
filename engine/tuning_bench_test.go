// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// countedJournal counts what is read from it.
type countedJournal struct {
	journal.Journal
	bytes *atomic.Int64
}

func (c countedJournal) ReadBlocks(ctx context.Context, refs []segment.BlockRef) ([][]byte, error) {
	for _, r := range refs {
		c.bytes.Add(int64(r.Len))
	}
	return c.Journal.ReadBlocks(ctx, refs)
}

// source is about n bytes of the sources of Go, which stand for text.
func source(b *testing.B, n int) []byte {
	b.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Fatal(err)
	}
	var out []byte
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(root)), "src", "*", "*.go"))
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range files {
		if len(out) >= n {
			break
		}
		text, err := os.ReadFile(f)
		if err != nil {
			b.Fatal(err)
		}
		out = append(out, text...)
	}
	return out[:n]
}

// BenchmarkTuning compares what docs/kubernetes/policies.md offers: how much text takes, how fast
// it is written, and how much a read of 8 KiB at random fetches.
func BenchmarkTuning(b *testing.B) {
	const size, part = 16 << 20, 8 << 10
	text := source(b, size)
	for _, c := range []struct {
		name   string
		tuning Tuning
	}{
		{"default", Tuning{ReadAhead: DefaultReadAhead}},
		{"blockSize=8Ki", Tuning{BlockSize: 8 << 10}},
		{"compression=None", Tuning{Compression: segment.None}},
		{"compression=Strong", Tuning{Compression: segment.Strong}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var fetched atomic.Int64
			h := newHostOver(b, func(cfg *Config) { cfg.Cache = NewBlockCache(1 << 20) },
				func(j *memJournal) journal.Journal { return countedJournal{j, &fetched} })
			h.Tune(c.tuning)
			f := newFile(b, h, volume.Root, "f")
			b.SetBytes(size)
			for b.Loop() {
				for off := 0; off < size; off += 1 << 20 {
					if _, err := h.Write(b.Context(), asRoot, f, uint64(off), text[off:off+1<<20], false); err != nil {
						b.Fatal(err)
					}
				}
			}
			var stored int64
			for off := uint64(0); ; {
				refs, next, err := h.Blocks(b.Context(), f, off, 1000)
				if err != nil {
					b.Fatal(err)
				}
				for _, r := range refs {
					stored += int64(r.Len)
				}
				if off = next; next == 0 {
					break
				}
			}
			const reads = 1000
			p := make([]byte, part)
			fetched.Store(0)
			for range reads {
				if _, _, err := h.Read(b.Context(), asRoot, f, mathrand.Uint64N(size/part)*part, p); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(stored)/size, "stored/byte")
			b.ReportMetric(float64(fetched.Load())/reads/1024, "KiB/read")
		})
	}
}
