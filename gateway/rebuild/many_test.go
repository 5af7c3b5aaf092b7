// SPDX-License-Identifier: Apache-2.0

package rebuild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/store/memory"
	"github.com/weir-storage/weir/volume"
)

// counted is a store that counts what is read of it.
type counted struct {
	store.Store
	chunks, segments, headers, bytes atomic.Int64
}

func (c *counted) GetRange(ctx context.Context, name string, off int64, p []byte) error {
	c.bytes.Add(int64(len(p)))
	switch {
	case strings.Contains(name, "/c/") || strings.Contains(name, "/m/"):
		c.chunks.Add(1)
	case len(p) <= 128:
		c.headers.Add(1)
	default:
		c.segments.Add(1)
	}
	return c.Store.GetRange(ctx, name, off, p)
}

// TestFirstReadOfManyFiles: of a volume with many files, a new copy reads the checkpoint and what
// comes after it, and then serves. With WEIR_SOAK=1 there are a million.
func TestFirstReadOfManyFiles(t *testing.T) {
	files := 10_000
	if os.Getenv("WEIR_SOAK") == "1" {
		files = 1_000_000
	}
	h := newHome(t, 9, memory.New())
	const each = 1000
	var dir volume.Handle
	for i := 0; i < files; i += each {
		c, err := h.engine.Create(t.Context(), asRoot, volume.Root, fmt.Sprint("d", i/each),
			volume.CreateArgs{Type: volume.Directory, Mode: volume.Guarded})
		h.ok(err)
		dir = c.Attr.Handle
		all, ctx := errgroup.WithContext(t.Context()) // many share an fsync
		all.SetLimit(200)
		for k := range each {
			all.Go(func() error {
				_, err := h.engine.Create(ctx, asRoot, dir, fmt.Sprint("file ", i+k),
					volume.CreateArgs{Type: volume.FIFO, Mode: volume.Guarded})
				return err
			})
		}
		h.ok(all.Wait())
	}
	m := h.checkpoint()
	_, err := h.engine.Create(t.Context(), asRoot, dir, "last", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
	h.ok(err)
	a, err := h.engine.Lookup(t.Context(), asRoot, dir, "last")
	h.ok(err)
	_, err = h.engine.Write(t.Context(), asRoot, a.Handle, 0, []byte("the last"), true)
	h.ok(err)
	h.ok(h.log.Roll())
	end := h.upload()

	s := &counted{Store: h.store}
	g := newTarget(t, s)
	began := time.Now()
	r, err := Make(t.Context(), g.Config)
	h.ok(err)
	c, err := r.Open(s)
	h.ok(err)
	p := make([]byte, 100)
	n, _, err := c.Read(t.Context(), asRoot, a.Handle, 0, p)
	if took := time.Since(began); err != nil || string(p[:n]) != "the last" {
		t.Fatalf("%q, %v", p[:n], err)
	} else {
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		t.Logf("%d files, %d pairs, %d segments: the first read after %v, %d objects of the checkpoint, %d segments and %d headers, "+
			"%.1f MB of the store; heap %d MiB, the test's own included", files, m.Pairs, end.Seq, took.Round(time.Millisecond),
			s.chunks.Load(), r.Read, s.headers.Load(), float64(s.bytes.Load())/1e6, (mem.HeapSys-mem.HeapReleased)>>20)
	}
	h.ok(errors.Join(c.Close()))
	if r.Checkpoint != m.At || r.Read > 2 || int(s.chunks.Load()) > 3*(len(m.Chunks)+1) {
		t.Fatalf("%+v, of %d chunks %d reads", r, len(m.Chunks), s.chunks.Load())
	}
}
