// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	mathrand "math/rand/v2"
	"strings"
	"testing"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/volume"
)

// TestPacksWaitForTheLevel: while a copy does not know packs, none is made, and none is committed.
func TestPacksWaitForTheLevel(t *testing.T) {
	level := uint32(meta.PackLevel - 1)
	h := newHost(t, func(c *Config) { c.Level = func() uint32 { return level } })
	if err := h.MayPack(PackPlan{}, pack.Built{}); !errors.Is(err, volume.ErrInvalid) || !strings.Contains(err.Error(), "level 6") {
		t.Errorf("with a copy that does not know packs one may be made: %v", err)
	}
	level = meta.PackLevel
	if err := h.MayPack(PackPlan{}, pack.Built{}); err != nil {
		t.Error(err)
	}
}

// TestEmptiedSegmentsAreCondemnedAnew: when nothing lives any more of a segment that had moved into
// a pack, only a copy that made the checkpoint which found that may drop it without the pack.
func TestEmptiedSegmentsAreCondemnedAnew(t *testing.T) {
	h, store := newPackHost(t)
	ctx := context.Background()
	rng := mathrand.New(mathrand.NewPCG(1, 2))
	kept, gone := newFile(t, h.engine, volume.Root, "kept"), newFile(t, h.engine, volume.Root, "gone")
	write := func(f volume.Handle) {
		p := make([]byte, 200<<10)
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		_, err := h.engine.Write(ctx, asRoot, f, 0, p, true)
		h.ok(err)
	}
	write(kept)
	write(gone)
	h.ok(h.log.Roll())
	write(kept) // what was there before is dead
	h.packs(store)
	table, err := h.engine.Packs()
	h.ok(err)
	condemned, err := h.engine.Condemned()
	h.ok(err)
	if len(table.Moved) == 0 {
		t.Fatal("nothing moved")
	}
	if _, err := h.engine.Remove(ctx, asRoot, volume.Root, "gone"); err != nil {
		t.Fatal(err)
	}
	_, err = h.engine.Clean(ctx)
	h.ok(err)
	h.packs(store)
	now, err := h.engine.Packs()
	h.ok(err)
	anew, err := h.engine.Condemned()
	h.ok(err)
	emptied := 0
	for seq := range table.Moved {
		if _, moved := now.Moved[seq]; moved {
			continue
		}
		emptied++
		if anew[seq] <= condemned[seq] {
			t.Errorf("segment %d was condemned at checkpoint %d, and is not in a pack any more, at %d", seq, condemned[seq], anew[seq])
		}
	}
	if emptied == 0 {
		t.Error("no segment was emptied")
	}
}
