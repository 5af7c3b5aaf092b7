// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"

	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// packStore has packs by their names, as a Source.
type packStore map[string][]byte

func (packStore) String() string { return "store" }

func (s packStore) ReadSegment(_ context.Context, name string, off int64, p []byte) error {
	b, ok := s[name]
	if !ok || off+int64(len(p)) > int64(len(b)) {
		return fmt.Errorf("%s does not have %d bytes at %d", name, len(p), off)
	}
	copy(p, b[off:])
	return nil
}

// eager packs whatever has something that is dead.
var eager = pack.Rule{Percent: 112, Write: 16 << 20, Share: 1, Small: 64 << 10, Merge: 3}

// together packs all that there is into one.
var together = pack.Rule{Percent: 112, Write: 1 << 20, Share: 1, Small: 64 << 20, Merge: 1}

// newPackHost is a logHost that reads blocks of segments that moved from packs.
func newPackHost(t *testing.T) (*logHost, packStore) {
	store := packStore{}
	h := &logHost{T: t}
	h.tune = func(cfg *log.Config) {
		cfg.Sources = func() []log.Source { return []log.Source{store} }
		cfg.Moved = h.engine.Moved
	}
	h.begin()
	return h, store
}

// plans makes a checkpoint, and returns its number, what is used, and what is planned by a rule.
func (h *logHost) plans(rule pack.Rule) (number uint64, uses Uses, plans []PackPlan) {
	h.Helper()
	ctx := context.Background()
	h.askAndRoll()
	cut := h.engine.TakeCut()
	if cut == nil {
		h.Fatal("nothing was cut")
	}
	m, _, err := cut.Write(ctx, checkpointKeys, h.objects)
	h.ok(err)
	uses, err = cut.Uses(ctx)
	h.ok(err)
	plans, h.clean, err = cut.Plan(ctx, uses, rule, h.newest)
	h.ok(err)
	h.ok(cut.Close())
	h.ok(h.engine.MadeCheckpoint(ctx, m, cut.Number, 0))
	return cut.Number, uses, plans
}

// packs makes a checkpoint, makes what is planned then, and drops what moved.
func (h *logHost) packs(store packStore) (made int) {
	h.Helper()
	ctx := context.Background()
	number, uses, plans := h.plans(eager)
	h.ok(h.engine.Condemn(ctx, number, uses.Unused))
	h.ok(h.engine.Settle(ctx, number, uses))
	for _, plan := range plans {
		built, whole := h.build(plan, store)
		err := h.engine.Pack(ctx, number, plan, built)
		if errors.Is(err, volume.ErrInvalid) {
			continue // the same pack was there before
		}
		h.ok(err)
		store[built.Index.Name()] = whole
		made++
	}
	h.ok(h.engine.WaitApplied(ctx, h.log.End()))
	gone, err := h.engine.Condemned()
	h.ok(err)
	table, err := h.engine.Packs()
	h.ok(err)
	var now []Pack
	for _, p := range table.All {
		if p.Condemned == 0 {
			now = append(now, p)
			continue
		}
		delete(store, pack.Name(segment.VolumeID(testID), p.Hash))
	}
	for _, p := range now {
		if store[pack.Name(segment.VolumeID(testID), p.Hash)] == nil {
			h.Fatalf("pack %d counts, and was deleted", p.Number)
		}
	}
	h.ok(h.engine.Covers(ctx, now))
	for seq := range gone {
		h.ok(h.log.Drop(seq))
	}
	return made
}

// build builds a pack from segments of the log and from other packs.
func (h *logHost) build(plan PackPlan, store packStore) (pack.Built, []byte) {
	h.Helper()
	var sources []pack.Source
	for _, k := range plan.Kept {
		s, _ := h.log.Segment(k.Seq)
		if !s.Dropped {
			sources = append(sources, pack.Source{Hash: s.Hash, Len: s.Len, Kept: []pack.Kept{k}, Read: func(p []byte, off uint64) error {
				_, err := h.log.ReadSegmentFile(s.Seq, p, int64(off))
				return err
			}})
			continue
		}
		index, err := h.engine.Moved(k.Seq)
		h.ok(err)
		i := slices.IndexFunc(plan.From, func(p Pack) bool { return pack.Name(segment.VolumeID(testID), p.Hash) == index.Name() })
		if i < 0 {
			h.Fatalf("segment %d is in %s, which the plan does not have", k.Seq, index.Name())
		}
		from := plan.From[i]
		sources = append(sources, pack.Source{Pack: true, Hash: from.Hash, Len: from.Len, Kept: []pack.Kept{k},
			Read: func(p []byte, off uint64) error {
				return store.ReadSegment(context.Background(), index.Name(), int64(off), p)
			}})
	}
	var out bytes.Buffer
	built, err := pack.Build(segment.VolumeID(testID), sources, h.sealing(store), &out)
	h.ok(err)
	return built, out.Bytes()
}

// TestWhatMovedStays: files and snapshots are as before when live blocks moved into packs, from
// segments and from other packs, and all that they were in is gone; after a crash too.
func TestWhatMovedStays(t *testing.T) {
	made, again, kept := 0, 0, 0
	for seed := range uint64(6) {
		rng := mathrand.New(mathrand.NewPCG(seed, 78))
		h, store := newPackHost(t)
		ctx := context.Background()
		pictures := map[string]string{}
		var snaps []volume.Snapshot
		for i := range 400 {
			if err := randomStep(rng, i).do(ctx, h.engine); err != nil && outcomeOf(err) == nil {
				t.Fatal(err)
			}
			switch rng.IntN(40) {
			case 0:
				s, err := h.engine.TakeSnapshot(ctx, asRoot, fmt.Sprint("s", i))
				h.ok(err)
				snaps = append(snaps, s)
				pictures[s.Name] = look(t, withLocks(h.engine), at(volume.Root, s.Snap))
			case 1:
				if n := len(snaps); n > 0 {
					k := rng.IntN(n)
					h.ok(h.engine.DropSnapshot(ctx, asRoot, snaps[k].Name))
					snaps = slices.Delete(snaps, k, k+1)
				}
			case 2:
				_, err := h.engine.Clean(ctx)
				h.ok(err)
			case 3, 4:
				h.ok(h.log.Roll())
			case 5, 6:
				before := look(t, withLocks(h.engine), volume.Root)
				made += h.packs(store)
				table, err := h.engine.Packs()
				h.ok(err)
				for _, p := range table.All {
					again += len(p.From)
				}
				h.crash() // what is in memory goes
				v := withLocks(h.engine)
				if got := look(t, v, volume.Root); got != before {
					t.Fatalf("seed %d: the volume has\n%swant\n%s", seed, got, before)
				}
				for _, s := range snaps {
					kept++
					if got := look(t, v, at(volume.Root, s.Snap)); got != pictures[s.Name] {
						t.Fatalf("seed %d: snapshot %s has\n%swant\n%s", seed, s.Name, got, pictures[s.Name])
					}
				}
				report, err := h.engine.Check(ctx, fsck.Config{Segments: func(seq uint64) (uint64, bool) {
					if end := h.log.End(); end.Seq == seq {
						return end.Off, true
					}
					s, ok := h.log.Segment(seq)
					return s.Len, ok
				}})
				if err != nil || !report.Complete || len(report.Findings) > 0 {
					t.Fatalf("seed %d: the check says %+v, %v", seed, report, err)
				}
			}
		}
	}
	if made < 20 || again < 10 || kept < 20 {
		t.Errorf("only %d packs were made, %d of other packs, and snapshots looked at %d times", made, again, kept)
	}
}

// TestCoversFindsWhatIsMissing: a copy whose metadata name a block that the pack lacks is told, as
// is the check.
func TestCoversFindsWhatIsMissing(t *testing.T) {
	h, store := newPackHost(t)
	h.spoilt = true
	ctx := context.Background()
	f := newFile(t, h.engine, volume.Root, "f")
	p := make([]byte, 256<<10)
	for i := range p {
		p[i] = byte(i * i >> 7)
	}
	_, err := h.engine.Write(ctx, asRoot, f, 0, p, true)
	h.ok(err)
	h.ok(h.log.Roll())
	number, uses, plans := h.plans(together)
	if len(plans) == 0 {
		plans = append(plans, PackPlan{Kept: h.listed(uses)})
	}
	less := plans[0]
	last := &less.Kept[len(less.Kept)-1]
	last.Blocks = last.Blocks[:len(last.Blocks)-1]
	built, whole := h.build(less, store)
	store[built.Index.Name()] = whole
	if err := h.engine.Pack(ctx, number+1, less, built); err == nil {
		t.Error("a pack of a checkpoint that is not made was committed")
	}
	h.ok(h.engine.Pack(ctx, number, less, built))
	if err := h.engine.Pack(ctx, number, less, built); err == nil {
		t.Error("segments moved twice")
	}
	h.ok(h.engine.WaitApplied(ctx, h.log.End()))
	table, err := h.engine.Packs()
	h.ok(err)
	if err := h.engine.Covers(ctx, table.All); err == nil {
		t.Error("the pack does not have all blocks, and may replace the segments")
	}
	report, err := h.engine.Check(ctx, fsck.Config{})
	if h.ok(err); len(report.Findings) == 0 || report.Findings[0].Kind != fsck.Block {
		t.Errorf("the check finds %+v", report.Findings)
	}
	if now := table.All[0]; now.Number != 1 || meta.PackLevel > meta.Format {
		t.Errorf("%+v", now)
	}
}

// listed lists all blocks that live, of all segments.
func (h *logHost) listed(u Uses) (out []pack.Kept) {
	h.Helper()
	lists, err := pack.Lists(blocksOf(references(context.Background(), h.engine.store.Live(nil))), func(uint64) bool { return true })
	h.ok(err)
	for seq := range u.Live {
		s, _ := h.log.Segment(seq)
		out = append(out, pack.Kept{Seq: seq, Hash: s.Hash, Blocks: lists[seq]})
	}
	slices.SortFunc(out, func(a, b pack.Kept) int { return int(a.Seq) - int(b.Seq) })
	return out
}
