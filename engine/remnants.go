// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
)

const (
	// remnantGap is the most bytes between two ranges that are kept as one.
	remnantGap = 64
	// remnantGain is how many bytes must come back for a block that is cut, at least.
	remnantGain = 1 << 10
)

// remnant returns what is kept of a block that is mostly dead: extents of the present and of all
// generations use at most half of it. nil: it stays whole (ADR 64).
func remnant(ref segment.BlockRef, of useOf) []pack.Range {
	slices.SortFunc(of.ranges, func(a, b pack.Range) int { return cmp.Compare(a.Off, b.Off) })
	var out []pack.Range
	for _, r := range of.ranges {
		if n := len(out); n > 0 && r.Off <= out[n-1].Off+out[n-1].Len+remnantGap {
			out[n-1].Len = max(out[n-1].Len, r.Off+r.Len-out[n-1].Off)
		} else {
			out = append(out, r)
		}
	}
	c := pack.Cut{Ranges: out}
	if n := c.Bytes(); len(out) > pack.MaxRanges || n > of.raw/2 || share(ref.Len, n, of.raw)+remnantGain > ref.Len {
		return nil
	}
	return out
}

// share is about how many of n sealed bytes a block has that is cut to used of its raw bytes.
func share(n, used, raw uint32) uint32 {
	return uint32(uint64(n)*uint64(used)/uint64(raw)) + segment.TagSize + 16
}

// cutOf returns how a pack has a block that moved, and the number of the data key that such blocks
// of it are sealed with; nil: it is as it was in its segment.
func (t *tree) cutOf(packs *Packs, ref segment.BlockRef) (*pack.Cut, uint32, error) {
	n, moved := packs.Moved[ref.Seq]
	if !moved || packs.All[n-1].Condemned != 0 {
		return nil, 0, nil
	}
	index, err := t.engine.indexIn(t.view, packs.All[n-1])
	if err != nil || !index.HasCuts() {
		return nil, 0, err
	}
	_, cut, err := index.At(ref)
	return cut, index.Key(), err
}

// eldest says which blocks are sealed anew: those whose data key has a smaller number than newest.
// Zero: none is.
type eldest struct {
	newest uint32
	keys   map[uint64]uint32 // numbers of the data keys of segments
}

// segment reports whether blocks of a segment are to be sealed anew, as they are there.
func (o *eldest) segment(seq uint64) bool { return o.keys[seq] < o.newest }

// pack reports whether something that lives in a pack is to be sealed anew.
func (o *eldest) pack(index *pack.Pack, live map[uint64]pack.Live) bool {
	return o.newest > 0 && slices.ContainsFunc(index.Kept(), func(k pack.Kept) bool {
		return live[k.Seq].Blocks > 0 && (len(k.Cuts) > 0 && index.Key() < o.newest || len(k.Cuts) < len(k.Blocks) && o.segment(k.Seq))
	})
}

// MayReseal reports whether packs may have blocks that are sealed anew and not cut: all copies know
// how to read them.
func (e *Engine) MayReseal() bool { return e.cfg.Level() >= meta.ResealLevel }

// mayCut reports whether packs may have blocks that are cut: all copies know how to read them.
func (c *Cut) mayCut() bool { return c.engine.cfg.Level() >= meta.CutLevel }

// lives iterates over the blocks that extents use, of the present and the history. Each has about
// the length that it would have in a pack.
func (c *Cut) lives(ctx context.Context, packs *Packs) iter.Seq2[segment.BlockRef, error] {
	return func(yield func(segment.BlockRef, error) bool) {
		t, more := &tree{engine: c.engine, view: c.view}, true
		var failed error
		cuts := c.mayCut()
		err := t.runs(ctx, cuts, func(_ use, blocks map[segment.BlockRef]useOf) {
			for ref, of := range blocks {
				cut, _, err := t.cutOf(packs, ref)
				if failed == nil {
					failed = err
				}
				var left []pack.Range
				if cuts {
					left = remnant(ref, of)
				}
				switch is := (pack.Cut{Ranges: left}); {
				case cut != nil && left != nil:
					ref.Len = uint32(uint64(cut.Size) * uint64(min(is.Bytes(), cut.Bytes())) / uint64(cut.Bytes()))
				case cut != nil:
					ref.Len = cut.Size
				case left != nil:
					ref.Len = share(ref.Len, is.Bytes(), of.raw)
				}
				more = more && yield(ref, nil)
			}
		})
		if err == nil {
			err = failed
		}
		if err != nil && more {
			yield(segment.BlockRef{}, err)
		}
	}
}

// blocksOf iterates over the blocks of what extents name.
func blocksOf(all iter.Seq2[use, error]) iter.Seq2[segment.BlockRef, error] {
	return func(yield func(segment.BlockRef, error) bool) {
		for is, err := range all {
			if !yield(is.ref, err) {
				return
			}
		}
	}
}

// blockAt names a block.
type blockAt struct{ seq, off uint64 }

// remnants are blocks that are to be cut.
type remnants map[blockAt]pack.Cut

// cuts returns which blocks of the wanted segments are to be cut, or else sealed anew. Each extent
// of the state, of the present and of the history, is looked at once more: a block of which one
// lies outside what would be kept stays whole.
func (c *Cut) cuts(ctx context.Context, wanted map[uint64]bool, old *eldest) (remnants, error) {
	out := remnants{}
	if !c.mayCut() {
		return out, nil
	}
	err := (&tree{engine: c.engine, view: c.view}).runs(ctx, true, func(_ use, blocks map[segment.BlockRef]useOf) {
		for ref, of := range blocks {
			if !wanted[ref.Seq] {
				continue
			}
			if left := remnant(ref, of); left != nil {
				out[blockAt{ref.Seq, ref.Off}] = pack.Cut{Block: pack.Block{Off: uint32(ref.Off), Len: ref.Len}, Counter: ref.Counter,
					Raw: of.raw, Ranges: left}
			} else if old.segment(ref.Seq) {
				out[blockAt{ref.Seq, ref.Off}] = pack.WholeCut(pack.Block{Off: uint32(ref.Off), Len: ref.Len}, ref.Counter, of.raw)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for is, err := range references(ctx, c.view) {
		if err != nil {
			return nil, err
		}
		at := blockAt{is.ref.Seq, is.ref.Off}
		if cut, ok := out[at]; ok && !cut.Has(is.skip, is.used) {
			if delete(out, at); old.segment(is.ref.Seq) {
				out[at] = pack.WholeCut(cut.Block, cut.Counter, cut.Raw)
			}
		}
	}
	return out, nil
}

// cutsIndex is how many bytes of a pack's index say how blocks are cut. What has no room there
// stays whole.
const cutsIndex = 1 << 20

// add adds to a list which of its blocks are cut, or sealed anew. from is the pack that has them
// now; nil: they are in a segment. What is cut in it stays cut. room is what is left of cutsIndex.
func (r remnants) add(k *pack.Kept, from *pack.Pack, room *int, old *eldest) error {
	for _, b := range k.Blocks {
		cut, ok := r[blockAt{k.Seq, uint64(b.Off)}]
		if ok && !cut.Whole() && cut.IndexSize() > *room {
			if ok = old.segment(k.Seq); ok {
				cut = pack.WholeCut(cut.Block, cut.Counter, cut.Raw)
			}
		}
		if from != nil {
			_, was, err := from.At(segment.BlockRef{Seq: k.Seq, Off: uint64(b.Off), Len: b.Len})
			if err != nil {
				return err
			}
			inside := func(s pack.Range) bool { return was.Has(s.Off, s.Len) }
			if was != nil && (!ok || !all(cut.Ranges, inside)) {
				cut, ok = *was, true
			}
		}
		if ok {
			if !cut.Whole() { // of the others, Choose lets no more in than have room
				*room -= cut.IndexSize()
			}
			k.Cuts = append(k.Cuts, cut)
		}
	}
	return nil
}

func all[T any](of []T, is func(T) bool) bool {
	return !slices.ContainsFunc(of, func(v T) bool { return !is(v) })
}

// alike reports whether two lists have the same blocks, cut alike.
func alike(a, b []pack.Kept) bool {
	return slices.EqualFunc(a, b, func(a, b pack.Kept) bool {
		return a.Seq == b.Seq && slices.Equal(a.Blocks, b.Blocks) && slices.EqualFunc(a.Cuts, b.Cuts, func(a, b pack.Cut) bool {
			return a.Off == b.Off && slices.Equal(a.Ranges, b.Ranges)
		})
	})
}
