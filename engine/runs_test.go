// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// TestRunsAreTheFiles: small reads find what a model of the files has, while others write, truncate
// and punch, records are applied meanwhile, and the caches have room for a few runs and blocks
// only. Under -tags invariants memory that is used again is overwritten first.
func TestRunsAreTheFiles(t *testing.T) {
	for seed := range uint64(6) {
		h := newHost(t, func(c *Config) { c.Cache = NewBlockCache(256 << 10) })
		h.Tune(Tuning{BlockSize: 4 << 10})
		var all sync.WaitGroup
		for w := range uint64(3) {
			all.Go(func() { // each has a file of its own, and all share the caches and the applier
				rng := mathrand.New(mathrand.NewPCG(seed, w))
				f := newFile(t, h, volume.Root, string(rune('a'+w)))
				runFile(t, h.Engine, f, rng)
			})
		}
		all.Wait()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		g, p := newFile(t, h, volume.Root, "g"), make([]byte, 100)
		_, err := h.Write(t.Context(), asRoot, g, 0, p, true)
		if err == nil {
			err = h.WaitApplied(t.Context(), h.lastEnd())
		}
		if err == nil {
			_, _, err = h.Read(t.Context(), asRoot, g, 0, p)
		}
		if err != nil {
			t.Fatal(err)
		}
		if c := &h.cache.rows.runs; c.size > c.limit || c.recent.Len() == 0 {
			t.Errorf("seed %d: %d runs of %d bytes, the limit is %d", seed, c.recent.Len(), c.size, c.limit)
		}
	}
}

// runFile changes and reads one file, and compares it with a model.
func runFile(t *testing.T, e *Engine, f volume.Handle, rng *mathrand.Rand) {
	ctx := context.Background()
	const most = 5*run + 1000
	model := []byte{}
	p := make([]byte, run+run/2)
	ok := func(err error) bool {
		if err != nil {
			t.Error(err)
		}
		return err == nil
	}
	for range 600 {
		off, n := rng.IntN(most), 1+rng.IntN(9000)
		var err error
		switch r := rng.IntN(24); {
		case r < 3:
			q := p[:n]
			for i := range q {
				q[i] = byte(rng.Uint32())
			}
			_, err = e.Write(ctx, asRoot, f, uint64(off), q, rng.IntN(2) == 0)
			if end := off + n; end > len(model) {
				model = append(model, make([]byte, end-len(model))...)
			}
			copy(model[off:], q)
		case r == 3 && rng.IntN(3) == 0:
			size := uint64(off)
			_, err = e.SetAttr(ctx, asRoot, f, volume.SetAttr{Size: &size})
			model = append(model[:min(off, len(model))], make([]byte, max(0, off-len(model)))...)
		case r == 4:
			off = min(off, len(model))
			end := min(off+n*8, len(model))
			if end > off {
				_, err = e.Punch(ctx, asRoot, f, uint64(off), uint64(end-off))
				clear(model[off:end])
			}
		default:
			q := p[:1+rng.IntN(len(p))]
			var got int
			got, _, err = e.Read(ctx, asRoot, f, uint64(off), q)
			want := model[min(off, len(model)):min(off+len(q), len(model))]
			if err == nil && !bytes.Equal(q[:got], want) {
				t.Errorf("a read of %d bytes at %d of %d differs", len(q), off, len(model))
				return
			}
		}
		if !ok(err) {
			return
		}
	}
}

// lender is the journal of a follower, whose blocks are those of its home.
type lender struct {
	*memJournal
	home *memJournal
}

func (l lender) ReadBlocks(ctx context.Context, refs []segment.BlockRef) ([][]byte, error) {
	return l.home.ReadBlocks(ctx, refs)
}

// TestRunsInTime: small reads find what a model has, at the home and at a follower that applies
// later, now and in snapshots, before and after the volume is rolled back.
func TestRunsInTime(t *testing.T) {
	ctx := t.Context()
	for seed := range uint64(8) {
		rng := mathrand.New(mathrand.NewPCG(seed, 77))
		h := newHost(t, func(c *Config) { c.Cache = NewBlockCache(256 << 10) })
		h.Tune(Tuning{BlockSize: 4 << 10})
		own := newMemJournal()
		follower := openEngine(t, vfs.NewMem(), lender{own, h.journal}, func(c *Config) { c.Cache = NewBlockCache(256 << 10) })
		own.machine = follower
		f := newFile(t, h, volume.Root, "f")
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		const most = 3*run + 1000
		var model, behind []byte // at the home and at the follower
		fed := false
		snaps := map[string][]byte{}
		handles := map[string]uint32{}
		look := func(who string, e *Engine, f volume.Handle, want []byte) {
			t.Helper()
			off, q := rng.IntN(most), make([]byte, 1+rng.IntN(run))
			n, _, err := e.Read(ctx, asRoot, f, uint64(off), q)
			ok(err)
			if want = want[min(off, len(want)):min(off+len(q), len(want))]; !bytes.Equal(q[:n], want) {
				t.Fatalf("seed %d, %s: a read of %d bytes at %d differs", seed, who, len(q), off)
			}
		}
		for i := range 500 {
			off, n := rng.IntN(most), 1+rng.IntN(9000)
			switch r := rng.IntN(16); {
			case r < 4:
				q := make([]byte, n)
				for k := range q {
					q[k] = byte(rng.Uint32())
				}
				_, err := h.Write(ctx, asRoot, f, uint64(off), q, rng.IntN(2) == 0)
				ok(err)
				model = append(model, make([]byte, max(0, off+n-len(model)))...)
				copy(model[off:], q)
			case r == 4:
				size := uint64(off)
				_, err := h.SetAttr(ctx, asRoot, f, volume.SetAttr{Size: &size})
				ok(err)
				model = append(model[:min(off, len(model))], make([]byte, max(0, off-len(model)))...)
			case r == 5:
				off = min(off, len(model))
				if end := min(off+n*8, len(model)); end > off {
					_, err := h.Punch(ctx, asRoot, f, uint64(off), uint64(end-off))
					ok(err)
					clear(model[off:end])
				}
			case r == 6 && len(snaps) < 6:
				name := fmt.Sprint("s", i)
				snap, err := h.TakeSnapshot(ctx, asRoot, name)
				ok(err)
				snaps[name], handles[name] = bytes.Clone(model), snap.Snap
			case r == 7 && len(snaps) > 0 && rng.IntN(4) == 0:
				name := slices.Sorted(maps.Keys(snaps))[rng.IntN(len(snaps))]
				ok(h.Rollback(ctx, asRoot, name, fmt.Sprint("before", i)))
				ok(h.DropSnapshot(ctx, asRoot, fmt.Sprint("before", i)))
				model = bytes.Clone(snaps[name])
			case r < 10:
				entries, _ := h.journal.after(follower.lastEnd())
				ok(follower.Ingest(entries))
				follower.Committed(follower.lastEnd())
				ok(follower.WaitApplied(ctx, follower.lastEnd()))
				behind, fed = bytes.Clone(model), true
			}
			look("home", h.Engine, f, model)
			if fed {
				look("follower", follower, f, behind)
			}
			for name, want := range snaps {
				if rng.IntN(4) == 0 {
					look(name, h.Engine, at(f, handles[name]), want)
				}
			}
		}
		ok(follower.Close())
	}
}

// TestBlocksAreUsedAgain: the memory of a block comes back when it is neither in the cache nor read
// by anybody, and not before.
func TestBlocksAreUsedAgain(t *testing.T) {
	c := NewBlockCache(20 << 10)
	ns, one := c.namespace(), c.open()
	ref := func(n uint64) segment.BlockRef { return segment.BlockRef{Seq: 1, Off: n} }
	block := func(v byte) []byte { return bytes.Repeat([]byte{v}, 8<<10) }
	first := c.put(one, ns, ref(1), block(1), 2)
	other := c.put(one, ns, ref(1), block(9), 1) // two have read it at once
	if other == first || !other.out {
		t.Error("a block is in the cache twice")
	}
	c.done(other, nil)
	for n := range uint64(4) { // pushes it out
		c.done(c.put(one, ns, ref(10+n), block(2), 1))
	}
	if c.has(ns, ref(1)) || !first.out || !bytes.Equal(first.data, block(1)) {
		t.Error("a block that is still read is not whole")
	}
	c.done(first)
	if first.data == nil {
		t.Error("the memory came back before the last one had read it")
	}
	c.done(first)
	if first.data != nil || other.data != nil {
		t.Error("memory that nobody reads did not come back")
	}
	if b := c.get(ns, ref(13)); b == nil || !bytes.Equal(b.data, block(2)) {
		t.Error("a block that is kept is not whole")
	}
}
