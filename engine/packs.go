// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/volume"
)

// Pack is a pack that counts: segments, or other packs, were condemned because of it.
type Pack = meta.Pack

// indexMemory is the most memory for indexes of packs that blocks were read from, in bytes.
const indexMemory = 8 << 20

// Packs is what a volume's metadata say of packs.
type Packs struct {
	All   []Pack            // by their numbers, which begin with 1 and have no gap
	Moved map[uint64]uint64 // the pack that has the live blocks of a segment, by its sequence
}

// Now returns the pack that has what lived of pack number n when it was condemned, or that pack
// itself; false: nothing of it lives.
func (p *Packs) Now(n uint64) (Pack, bool) {
	for n > 0 && n <= uint64(len(p.All)) {
		is := p.All[n-1]
		if is.Condemned == 0 {
			return is, true
		}
		n = is.Into
	}
	return Pack{}, false
}

// packs reads what the metadata say of packs.
func (t *tree) packs() (p Packs, err error) {
	p.Moved = map[uint64]uint64{}
	lo, hi := meta.AllOf(meta.Packs)
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			return p, err
		}
		is, err := meta.DecodePack(pair.Key, pair.Value)
		if err == nil && is.Number != uint64(len(p.All))+1 {
			err = fmt.Errorf("after pack %d there is %d: %w", len(p.All), is.Number, errDamaged)
		}
		if err != nil {
			return p, err
		}
		p.All = append(p.All, is)
	}
	lo, hi = meta.AllOf(meta.Moved)
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			return p, err
		}
		seq, number, err := meta.DecodeMoved(pair.Key, pair.Value)
		if err == nil && (number == 0 || number > uint64(len(p.All))) {
			err = fmt.Errorf("segment %d is in pack %d, which there is not: %w", seq, number, errDamaged)
		}
		if err != nil {
			return p, err
		}
		p.Moved[seq] = number
	}
	return p, nil
}

// Packs returns what is applied here of packs, and durably so.
func (e *Engine) Packs() (Packs, error) {
	view := e.store.Snapshot(nil)
	p, err := (&tree{view: view}).packs()
	err = errors.Join(err, view.Close())
	if err != nil || len(p.All) == 0 {
		return p, err
	}
	return p, e.durable("what is known of packs")
}

// durable makes durable what is applied now; what names that in an error.
func (e *Engine) durable(what string) error {
	e.mu.Lock()
	pos := e.applied // a view that was made before has no more
	e.mu.Unlock()
	if kept, err := e.Persist(pos); err != nil || kept.Less(pos) {
		return fmt.Errorf("%s is not durable here up to %s: %w", what, pos, err)
	}
	return nil
}

// PackIndex returns the index of a pack that is not condemned.
func (e *Engine) PackIndex(p Pack) (*pack.Pack, error) {
	return e.indexIn(e.store.Live(nil), p)
}

func (e *Engine) indexIn(view *meta.View, p Pack) (*pack.Pack, error) {
	return e.indexes.Decode(p.Hash, p.Len, func() ([]byte, error) {
		key := meta.PackIndexKey(p.Number)
		value, ok, _, err := view.Get(key)
		if err == nil && !ok {
			err = fmt.Errorf("the index of pack %d is not there: %w", p.Number, errDamaged)
		}
		if err != nil {
			return nil, err
		}
		return meta.DecodeBytes(key, value)
	})
}

// Moved returns the index of the pack that has the live blocks of a segment, by what is applied;
// nil: they are where they were written. Log.Config has it.
func (e *Engine) Moved(seq uint64) (_ *pack.Pack, err error) {
	view := e.store.Snapshot(nil)
	defer func() { err = errors.Join(err, view.Close()) }()
	key := meta.MovedKey(seq)
	value, ok, _, err := view.Get(key)
	if err != nil || !ok {
		return nil, err
	}
	_, number, err := meta.DecodeMoved(key, value)
	if err != nil {
		return nil, err
	}
	key = meta.PackKey(number)
	if value, ok, _, err = view.Get(key); err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("segment %d is in pack %d, which there is not: %w", seq, number, errDamaged)
	}
	p, err := meta.DecodePack(key, value)
	if err != nil {
		return nil, err
	}
	return e.indexIn(view, p)
}

// references iterates over what extents of a view name, of the present and the history.
func references(ctx context.Context, view *meta.View) iter.Seq2[use, error] {
	return func(yield func(use, error) bool) {
		lo, hi := meta.AllOf(meta.Extents)
		hlo, hhi := meta.HistoryRange(lo, hi)
		n := 0
		for _, u := range []iter.Seq2[use, error]{uses(view.Range(lo, hi), ofPresent), uses(view.Range(hlo, hhi), ofHistory)} {
			for is, err := range u {
				if n++; err == nil && n%4096 == 0 {
					err = ctx.Err()
				}
				if !yield(is, err) || err != nil {
					return
				}
			}
		}
	}
}

// Covers returns an error unless the packs have each block that the metadata here name of a segment
// which moved into one of them. So who is about to drop such segments knows that nothing is lost,
// whatever the home listed. It goes through all extents, of the present and the history.
func (e *Engine) Covers(ctx context.Context, packs []Pack) (err error) {
	view := e.store.Snapshot(nil)
	defer func() { err = errors.Join(err, view.Close()) }()
	table, err := (&tree{view: view}).packs()
	if err != nil {
		return err
	}
	gone, err := (&tree{view: view}).condemned()
	if err != nil {
		return err
	}
	indexes := map[uint64]*pack.Pack{}
	for _, p := range packs {
		if now := table.All[p.Number-1]; now.Condemned != 0 {
			return fmt.Errorf("pack %d was condemned meanwhile", p.Number)
		}
		if indexes[p.Number], err = e.indexIn(view, p); err != nil {
			return err
		}
	}
	for is, err := range references(ctx, view) {
		if err != nil {
			return err
		}
		ref := is.ref
		number, moved := table.Moved[ref.Seq]
		if _, gone := gone[ref.Seq]; gone && !moved {
			return fmt.Errorf("a file, or a snapshot, has a block of segment %d, which is condemned and did not move: %w",
				ref.Seq, errDamaged)
		}
		if index := indexes[number]; index != nil {
			_, cut, err := index.At(ref)
			if err == nil && cut != nil && !cut.Has(is.skip, is.used) {
				err = fmt.Errorf("block at %d/%d is cut to %v, and %d bytes from byte %d on are used", ref.Seq, ref.Off, cut.Ranges,
					is.used, is.skip)
			}
			if err != nil {
				return fmt.Errorf("a file, or a snapshot, has a block that its pack has not: %w", err)
			}
		}
	}
	return nil
}

// PackPlan is a pack that is to be made, of blocks that live at a checkpoint.
type PackPlan struct {
	Kept []pack.Kept
	From []Pack // packs from which some of them come
	// Reseals: something of it was under an older data key than the caller of Plan wants.
	Reseals bool
}

// level is the format level that a volume with such a pack has.
func (p *PackPlan) level() uint32 {
	level := uint32(meta.PackLevel)
	for _, k := range p.Kept {
		for i := range k.Cuts {
			if level = max(level, meta.CutLevel); k.Cuts[i].Whole() {
				return meta.ResealLevel
			}
		}
	}
	return level
}

// Plan returns the packs that are to be made now, by a rule, given what the extents use. What lives
// under data keys with smaller numbers than newest is sealed anew; 0: nothing is for that (ADR 67).
//
// clean is newest if nothing is left for that: all that lives, and has room in a pack, is under
// that key or a later one. Else it is 0: whether the plans are to do something for it, or this
// round has no room for more, or gateways know too little.
func (c *Cut) Plan(ctx context.Context, u Uses, rule pack.Rule, newest uint32) (plans []PackPlan, clean uint32, err error) {
	t := &tree{view: c.view}
	all, err := t.segments()
	if err != nil {
		return nil, 0, err
	}
	gone, err := t.condemned()
	if err != nil {
		return nil, 0, err
	}
	var objects []pack.Object
	var parts [][]uint64 // the sequences of each object
	bySeq := map[uint64]Segment{}
	old := &eldest{keys: map[uint64]uint32{}}
	if c.engine.MayReseal() {
		old.newest = newest
	}
	for _, s := range all {
		if bySeq[s.Seq] = s; u.Live[s.Seq].Blocks <= pack.MaxReseal { // else an index would have no room
			old.keys[s.Seq] = s.Key
		} else {
			old.keys[s.Seq] = old.newest
		}
		if _, gone := gone[s.Seq]; !gone && u.Live[s.Seq].Blocks > 0 {
			objects = append(objects, pack.Object{Len: s.Len, Live: u.Live[s.Seq], Segments: 1, Last: s.Seq, Old: old.segment(s.Seq)})
			parts = append(parts, []uint64{s.Seq})
		}
	}
	segments := len(objects)
	in := map[uint64][]uint64{}
	for seq, n := range u.Packs.Moved {
		if u.Live[seq].Blocks > 0 {
			in[n] = append(in[n], seq)
		}
	}
	var packs []Pack
	for _, p := range u.Packs.All {
		if len(in[p.Number]) == 0 || p.Condemned != 0 {
			continue
		}
		o := pack.Object{Len: p.Len, Segments: len(in[p.Number])}
		for _, seq := range in[p.Number] {
			o.Live.Bytes += u.Live[seq].Bytes
			o.Live.Blocks += u.Live[seq].Blocks
			o.Last = max(o.Last, seq)
		}
		index, err := c.engine.indexIn(c.view, p)
		if err != nil {
			return nil, 0, err
		}
		if o.Live.Blocks > pack.MaxReseal {
			for _, seq := range in[p.Number] {
				old.keys[seq] = old.newest
			}
		}
		o.Old = old.pack(index, u.Live)
		objects, parts, packs = append(objects, o), append(parts, in[p.Number]), append(packs, p)
	}
	chosen := pack.Choose(objects, rule).Packs
	if !slices.ContainsFunc(objects, func(o pack.Object) bool { return o.Old }) {
		clean = old.newest
	}
	if len(chosen) == 0 {
		return nil, clean, nil
	}
	wanted := map[uint64]bool{}
	for _, i := range slices.Concat(chosen...) {
		for _, seq := range parts[i] {
			wanted[seq] = true
		}
	}
	live, err := pack.Lists(blocksOf(references(ctx, c.view)), func(seq uint64) bool { return wanted[seq] })
	if err != nil {
		return nil, 0, err
	}
	cuts, err := c.cuts(ctx, wanted, old)
	if err != nil {
		return nil, 0, err
	}
	for _, some := range chosen {
		var plan PackPlan
		var former []pack.Kept // of the last pack
		room := cutsIndex
		for _, i := range some {
			if i < segments {
				s := bySeq[parts[i][0]]
				k := pack.Kept{Seq: s.Seq, Hash: s.Hash, Blocks: live[s.Seq]}
				if err := cuts.add(&k, nil, &room, old); err != nil {
					return nil, 0, err
				}
				plan.Kept = append(plan.Kept, k)
				continue
			}
			p := packs[i-segments]
			index, err := c.engine.indexIn(c.view, p)
			if err != nil {
				return nil, 0, err
			}
			kept := index.Keep(live)
			for i := range kept {
				if err := cuts.add(&kept[i], index, &room, old); err != nil {
					return nil, 0, err
				}
			}
			plan.Kept = append(plan.Kept, kept...)
			plan.From = append(plan.From, p)
			former = index.Kept()
		}
		if len(plan.From) == 1 && len(some) == 1 && !objects[some[0]].Old && alike(plan.Kept, former) {
			continue // all of it lives
		}
		plan.Reseals = slices.ContainsFunc(some, func(i int) bool { return objects[i].Old })
		plans = append(plans, plan)
	}
	return plans, clean, nil
}

// Pack commits that a pack counts which was made of a plan of the checkpoint of that number: its
// segments and packs are condemned because of it. The home calls it when the pack is in its own
// store, under the conditions of Condemn. built is what Build returned, as it is in the store.
func (e *Engine) Pack(ctx context.Context, number uint64, plan PackPlan, built pack.Built) error {
	p := place{op: "commit a pack", ino: volume.Root.Ino}
	seen, err := e.comparePacks(built.Hash)
	if err != nil {
		return e.wrap(p, err)
	}
	_, err = change(ctx, e, volume.Request{}, p, countResult, false, func(t *tx) (int, error) {
		last, err := t.made(number)
		if err != nil {
			return 0, err
		}
		v, err := t.versionsOf()
		if err != nil {
			return 0, err
		}
		t.versions = &v // no moment is taken for this
		if !t.raise(plan.level()) {
			return 0, fmt.Errorf("%w: packs need format level %d, which not all copies know: upgrade their gateways",
				volume.ErrDelay, plan.level())
		}
		return 0, t.pack(last.At.Seq, number, plan, built, seen)
	})
	return err
}

// MayPack returns an error that wraps volume.ErrInvalid if Pack would refuse a plan: its segments
// or packs were condemned since, or there was the same pack before. What was built may be zero.
func (e *Engine) MayPack(plan PackPlan, built pack.Built) error {
	p := place{op: "look for packs", ino: volume.Root.Ino}
	_, err := read(Recent(context.Background()), e, p, func(t *tree) (Pack, error) {
		if known := e.cfg.Level(); known < plan.level() {
			return Pack{}, fmt.Errorf("packs need format level %d, and a gateway knows %d only: %w", plan.level(), known,
				volume.ErrInvalid)
		}
		if _, err := t.mayMove(plan); err != nil {
			return Pack{}, err
		}
		return t.newestPack(Pack{}, built.Hash)
	})
	return err
}

// pack adds a pack. Its segments must be at or before segment last. seen is what comparePacks
// returned of it.
func (t *tx) pack(last, number uint64, plan PackPlan, built pack.Built, seen Pack) error {
	newest, err := t.newestPack(seen, built.Hash)
	if err != nil {
		return err
	}
	moves, err := t.mayMove(plan)
	if err != nil {
		return err
	}
	if err := t.findEmptied(&moves); err != nil {
		return err
	}
	n := newest.Number + 1
	is := meta.Pack{Number: n, Hash: built.Hash, Len: built.Len, Made: number}
	for _, was := range moves.from {
		is.From = append(is.From, was.Number)
		was.Condemned, was.Into = number, n
		t.set(was.Encode())
		t.delete(meta.PackIndexKey(was.Number))
	}
	for _, k := range plan.Kept {
		if k.Seq > last {
			return fmt.Errorf("segment %d is after the newest checkpoint: %w", k.Seq, volume.ErrInvalid)
		}
		if !moves.condemned[k.Seq] {
			t.set(meta.EncodeCondemned(k.Seq, number))
		}
		t.set(meta.EncodeMoved(k.Seq, n))
	}
	for _, seq := range moves.emptied { // nothing of it lives any more
		t.emptied(seq, number)
	}
	key := meta.PackIndexKey(n)
	t.set(key, meta.EncodeBytes(key, built.Index.Head()))
	t.set(is.Encode())
	return nil
}

// made returns the newest checkpoint, if it is that of a number, or a later one.
func (t *tx) made(number uint64) (meta.Made, error) {
	c, err := t.checkpoints()
	if err == nil && (number == 0 || number > c.Made.Number) {
		err = fmt.Errorf("checkpoint %d is not made, that is %d: %w", number, c.Made.Number, volume.ErrInvalid)
	}
	return c.Made, err
}

// emptied says that nothing lives any more of a segment that had moved into a pack. So it was
// condemned anew at that checkpoint: only who made that alike may drop it without the pack.
func (t *tx) emptied(seq, number uint64) {
	t.delete(meta.MovedKey(seq))
	t.set(meta.EncodeCondemned(seq, number))
}

// Settle commits that of some segments, which moved into packs, no block lives any more, and
// condemns packs of which none does. Both are what Cut.Uses returned of the checkpoint of that
// number. The home calls it under the conditions of Condemn.
func (e *Engine) Settle(ctx context.Context, number uint64, u Uses) error {
	p := place{op: "condemn packs", ino: volume.Root.Ino}
	for len(u.Emptied)+len(u.Empty) > 0 {
		some, packs := u.Emptied[:min(len(u.Emptied), condemnBatch)], u.Empty[:min(len(u.Empty), condemnBatch)]
		_, err := change(ctx, e, volume.Request{}, p, countResult, false, func(t *tx) (int, error) {
			if _, err := t.made(number); err != nil {
				return 0, err
			}
			for _, seq := range some {
				t.emptied(seq, number)
			}
			for _, n := range packs {
				is, err := t.packAt(n)
				if err != nil {
					return 0, err
				}
				if is.Condemned == 0 {
					is.Condemned = number
					t.set(is.Encode())
					t.delete(meta.PackIndexKey(n))
				}
			}
			return 0, nil
		})
		if err != nil {
			return err
		}
		u.Emptied, u.Empty = u.Emptied[len(some):], u.Empty[len(packs):]
	}
	return nil
}
