// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// TestAPackReadsWhatItTakes: what is read inside the turn for the record of a pack, and for those
// that condemn packs, is what they are about: rows of other segments and packs, which can not be
// decoded here, are not looked at. So a turn does not take longer the more packs there ever were.
func TestAPackReadsWhatItTakes(t *testing.T) {
	h, store := newPackHost(t)
	h.spoilt = true
	ctx := context.Background()
	var files []volume.Handle
	for i := range 3 {
		files = append(files, newFile(t, h.engine, volume.Root, string(rune('f'+i))))
	}
	write := func(f volume.Handle, off, n int) {
		p := make([]byte, n)
		for i := range p {
			p[i] = byte((i + off) * (i + 3) >> 7)
		}
		_, err := h.engine.Write(ctx, asRoot, f, uint64(off), p, true)
		h.ok(err)
	}
	for _, f := range files {
		write(f, 0, 256<<10)
		h.ok(h.log.Roll())
	}
	plans := func() (uint64, Uses, []PackPlan) {
		h.askAndRoll()
		cut := h.engine.TakeCut()
		m, _, err := cut.Write(ctx, checkpointKeys, h.objects)
		h.ok(err)
		uses, err := cut.Uses(ctx)
		h.ok(err)
		plans, err := cut.Plan(ctx, uses, eager)
		h.ok(err)
		h.ok(cut.Close())
		h.ok(h.engine.MadeCheckpoint(ctx, m, cut.Number, 0))
		return cut.Number, uses, plans
	}
	for _, f := range files {
		write(f, 0, 128<<10)
	}
	h.packs(store)
	before, err := h.engine.Packs()
	h.ok(err)
	write(files[0], 128<<10, 128<<10) // all that had moved of its segment is dead
	write(files[1], 128<<10, 32<<10)
	number, uses, again := plans()
	i := slices.IndexFunc(again, func(p PackPlan) bool { return len(p.From) > 0 })
	if len(before.Moved) < 3 || i < 0 {
		t.Fatalf("%d segments moved, and no pack is packed again: %+v", len(before.Moved), again)
	}
	plan := again[i]
	built, _ := h.build(plan, store)
	h.ok(h.engine.WaitApplied(ctx, h.log.End()))

	const far = 1 << 40
	spoil := func(keys ...[]byte) {
		for _, k := range keys {
			h.ok(h.engine.store.Apply([][]segment.Op{{setOp(k, []byte("no row"))}}, h.engine.store.State()))
		}
	}
	spoil(meta.MovedKey(far), meta.CondemnedKey(far))
	if _, err := h.engine.Packs(); err == nil {
		t.Fatal("the rows can be read")
	}
	h.ok(h.engine.MayPack(plan, built))
	h.ok(h.engine.Pack(ctx, number, plan, built))
	h.ok(h.engine.WaitApplied(ctx, h.log.End()))
	emptied := 0
	for _, p := range plan.From {
		for seq, n := range before.Moved {
			if n != p.Number || slices.ContainsFunc(plan.Kept, func(k pack.Kept) bool { return k.Seq == seq }) {
				continue
			}
			emptied++
			if _, there, _, err := h.engine.store.Live(nil).Get(meta.MovedKey(seq)); err != nil || there {
				t.Errorf("nothing lives of segment %d, and it is in pack %d: %v", seq, n, err)
			}
		}
	}
	if emptied == 0 {
		t.Error("no segment was emptied")
	}
	if err := h.engine.Pack(ctx, number, PackPlan{}, built); !errors.Is(err, volume.ErrInvalid) {
		t.Errorf("the same pack counts twice: %v", err)
	}
	other := built
	other.Hash[0]++
	for _, of := range []PackPlan{plan, {Kept: plan.Kept}} {
		if err := h.engine.Pack(ctx, number, of, other); !errors.Is(err, volume.ErrInvalid) {
			t.Errorf("what moved, with %d packs, moves once more: %v", len(of.From), err)
		}
	}
	newest := before.All[len(before.All)-1].Number + 1
	spoil(meta.PackKey(1))
	uses.Empty = []uint64{newest}
	h.ok(h.engine.Settle(ctx, number, uses))
	h.ok(h.engine.WaitApplied(ctx, h.log.End()))
	tr := &tree{view: h.engine.store.Live(nil)}
	if is, err := tr.packAt(newest); err != nil || is.Condemned != number {
		t.Errorf("a pack of which nothing lives is %+v, %v", is, err)
	}
}

// TestPacksAreCompared: packs that were added since what was compared outside of the turn are
// compared in it.
func TestPacksAreCompared(t *testing.T) {
	h := newHost(t, nil)
	if err := h.WaitApplied(t.Context(), h.lastEnd()); err != nil { // nobody else applies then
		t.Fatal(err)
	}
	put := func(n uint64, hash byte) {
		p := Pack{Number: n, Hash: pack.Hash{hash}, Len: 1, Made: 1}
		if err := h.store.Apply([][]segment.Op{{setOp(p.Encode())}}, h.store.State()); err != nil {
			t.Fatal(err)
		}
	}
	in := &tree{view: h.store.Live(nil)}
	seen, err := h.comparePacks(pack.Hash{9})
	if err != nil || seen.Number != 0 {
		t.Fatal(seen, err)
	}
	put(1, 1)
	put(2, 2)
	for _, tt := range []struct {
		seen Pack
		hash byte
		want uint64
		err  error
	}{
		{Pack{}, 9, 2, nil},
		{Pack{}, 1, 0, volume.ErrInvalid},
		{Pack{Number: 1, Hash: pack.Hash{1}}, 9, 2, nil},
		{Pack{Number: 1, Hash: pack.Hash{1}}, 2, 0, volume.ErrInvalid},
		{Pack{Number: 2, Hash: pack.Hash{2}}, 9, 2, nil},
		{Pack{Number: 2, Hash: pack.Hash{1}}, 9, 0, errDamaged}, // that was another history
		{Pack{Number: 3, Hash: pack.Hash{3}}, 9, 0, errDamaged},
	} {
		newest, err := in.newestPack(tt.seen, pack.Hash{tt.hash})
		if !errors.Is(err, tt.err) || err == nil && newest.Number != tt.want {
			t.Errorf("after %d, hash %d: %d, %v", tt.seen.Number, tt.hash, newest.Number, err)
		}
	}
	put(4, 4)
	if _, err := in.newestPack(Pack{}, pack.Hash{9}); !errors.Is(err, errDamaged) {
		t.Errorf("pack 3 is missing: %v", err)
	}
}
