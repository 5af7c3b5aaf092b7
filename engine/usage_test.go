// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"testing"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// usedPlainly counts what Usage does, with all blocks of the volume in memory.
func usedPlainly(t *testing.T, e *Engine) map[uint64]Blocks {
	t.Helper()
	view := e.store.Snapshot(nil)
	defer func() { _ = view.Close() }() // nothing was written
	now := map[segment.BlockRef]bool{}
	lo, hi := meta.AllHistory(nil)
	for p, err := range view.Range(lo, hi) {
		if err != nil {
			t.Fatal(err)
		}
		k, _, err := meta.SplitHistory(p.Key)
		if err != nil {
			t.Fatal(err)
		}
		value, exists, err := meta.DecodeHistory(p.Key, p.Value)
		if err != nil || !exists || meta.Table(k[0]) != meta.Extents {
			continue
		}
		x, err := meta.DecodeExtent(k, value)
		if err != nil {
			t.Fatal(err)
		}
		now[x.Ref] = false
	}
	for p, err := range view.Range([]byte{byte(meta.Extents)}, []byte{byte(meta.Extents) + 1}) {
		if err != nil {
			t.Fatal(err)
		}
		x, err := meta.DecodeExtent(p.Key, p.Value)
		if err != nil {
			t.Fatal(err)
		}
		_, dead, _, err := view.Get(meta.DeadKey(meta.Of(p.Key)))
		if err != nil {
			t.Fatal(err)
		}
		now[x.Ref] = now[x.Ref] || !dead
	}
	out := map[uint64]Blocks{}
	for ref, present := range now {
		b := out[ref.Seq]
		if present {
			b.Present += uint64(ref.Len)
		} else {
			b.Past += uint64(ref.Len)
		}
		out[ref.Seq] = b
	}
	return out
}

// TestUsage: each block counts once, and nothing counts that no extent names.
func TestUsage(t *testing.T) {
	past, looks := 0, 0
	for seed := range uint64(12) {
		rng := mathrand.New(mathrand.NewPCG(seed, 54))
		h := newLogHost(t)
		ctx := context.Background()
		var names []string
		for i := range 300 {
			if err := randomStep(rng, i).do(ctx, h.engine); err != nil && outcomeOf(err) == nil {
				t.Fatal(err)
			}
			switch rng.IntN(30) {
			case 0:
				names = append(names, fmt.Sprint("s", i))
				_, err := h.engine.TakeSnapshot(ctx, asRoot, names[len(names)-1])
				h.ok(err)
			case 1:
				if len(names) > 0 {
					h.ok(h.engine.DropSnapshot(ctx, asRoot, names[0]))
					names = names[1:]
				}
			case 2:
				if len(names) > 0 && rng.IntN(3) == 0 {
					h.ok(h.engine.Rollback(ctx, asRoot, names[0], fmt.Sprint("before ", i)))
				}
			case 3:
				_, err := h.engine.Clean(ctx)
				h.ok(err)
			case 4, 5:
				h.ok(h.log.Roll())
			case 6:
				h.condemn()
			case 7, 8, 9:
				newFile(t, h.engine, volume.Root, fmt.Sprint("look ", i))
				h.ok(h.engine.WaitApplied(ctx, h.log.End()))
				u, err := h.engine.Usage(ctx)
				h.ok(err)
				if want := usedPlainly(t, h.engine); !maps.Equal(u.Blocks, want) {
					t.Fatalf("seed %d, step %d: %v is used, want %v", seed, i, u.Blocks, want)
				}
				looks++
				for seq, b := range u.Blocks {
					_, gone := u.Condemned[seq]
					if s, ok := h.log.Segment(seq); gone || ok && (s.Dropped || b.Present+b.Past >= s.Len) {
						t.Fatalf("seed %d, step %d: %+v is used of segment %+v", seed, i, b, s)
					}
					if b.Past > 0 {
						past++
					}
				}
			}
		}
	}
	if looks < 50 || past < 20 {
		t.Errorf("%d looks, which found %d segments with a history", looks, past)
	}
}
