// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// RewriteRule says when blocks that are mostly dead are written again (ADR 59).
type RewriteRule struct {
	// Percent and Spare are how many bytes the blocks of files may have: that many percent of what
	// files use of them, and Spare more. Blocks that snapshots use do not count.
	Percent, Spare uint64
	// Write and Share are how much one round writes at most: so many bytes, and a Share-th of what
	// all live blocks have.
	Write, Share uint64
}

// DefaultRewriteRule returns the rule of ADR 59: 108 percent and 32 MiB; a round of 16 MiB and a
// thirty-second.
func DefaultRewriteRule() RewriteRule {
	return RewriteRule{Percent: 108, Spare: 32 << 20, Write: 16 << 20, Share: 32}
}

// Remnant is what files use of a block that is mostly dead: they use at most half of it, and no
// snapshot uses it. It lies in one run of one content.
type Remnant struct {
	content, run uint64
	ref          segment.BlockRef
	used         uint32 // bytes
}

const (
	// remnantSteps is how finely remnants are told by how much of their blocks is used.
	remnantSteps = 32
	// remnantsMost is how many remnants a round looks at, of those of which about as much is used.
	remnantsMost = 1 << 14
	// remnantGain is how many bytes must come back for a remnant at least.
	remnantGain = 1 << 10
)

// Remnants returns what is to be written again now, by a rule, given what the extents use: first
// of the blocks of which least is used, until the rule holds, or a round is full. They come in
// order of contents and runs.
func (c *Cut) Remnants(ctx context.Context, u Uses, rule RewriteRule) ([]Remnant, error) {
	var all uint64
	for _, l := range u.Live {
		all += l.Bytes
	}
	if all <= rule.Spare {
		return nil, nil
	}
	budget := rule.Write + all/max(rule.Share, 1)
	var steps [remnantSteps/2 + 1]struct {
		found []Remnant
		bytes uint64
	}
	var size, used uint64 // of blocks that files use, and no snapshot
	share := func(r Remnant, raw uint32) uint64 { return uint64(r.ref.Len) * uint64(r.used) / uint64(raw) }
	gains := map[segment.BlockRef]uint64{}
	err := (&tree{view: c.view}).runs(ctx, func(at use, blocks map[segment.BlockRef]useOf) {
		for ref, of := range blocks {
			if of.past {
				continue
			}
			r := Remnant{at.content, at.run, ref, of.used}
			lives := share(r, of.raw)
			size, used = size+uint64(ref.Len), used+lives
			if of.used > of.raw/2 || uint64(ref.Len)-lives < remnantGain {
				continue
			}
			s := &steps[uint64(of.used)*remnantSteps/uint64(of.raw)]
			if s.bytes >= budget || len(s.found) >= remnantsMost {
				continue
			}
			s.found, s.bytes = append(s.found, r), s.bytes+uint64(of.used)
			gains[ref] = uint64(ref.Len) - lives
		}
	})
	if err != nil {
		return nil, err
	}
	allowed := used*rule.Percent/100 + rule.Spare
	var out []Remnant
	for _, s := range steps {
		slices.SortFunc(s.found, compareRemnants)
		for _, r := range s.found {
			if size <= allowed || budget < uint64(r.used) {
				break
			}
			size, budget = size-gains[r.ref], budget-uint64(r.used)
			out = append(out, r)
		}
	}
	slices.SortFunc(out, compareRemnants)
	return out, nil
}

func compareRemnants(a, b Remnant) int {
	return cmp.Or(cmp.Compare(a.content, b.content), cmp.Compare(a.run, b.run), cmp.Compare(a.ref.Seq, b.ref.Seq),
		cmp.Compare(a.ref.Off, b.ref.Off))
}

const (
	// rewriteBytes is about how many bytes one record writes again.
	rewriteBytes = 512 << 10
	// rewriteRuns is in how many runs these are at most.
	rewriteRuns = 64
)

// stretch is extents of a content that follow each other without a hole, and are written again as
// one.
type stretch struct {
	content uint64
	extents []meta.Extent
}

func (s *stretch) off() uint64 { return s.extents[0].Off }
func (s *stretch) end() uint64 { return s.extents[len(s.extents)-1].End() }

// Rewrite writes some of what Remnants returned again, the first ones, in one record, which nobody
// sees: files have the same bytes and the same attributes. It returns the others, and how many
// bytes it wrote. What was overwritten since, and what a snapshot shows by now, is left as it is.
// The home calls it. It does not wait for room.
//
// Errors are volume.ErrDelay, ErrNoSpace and ErrIO, as of changes. ErrUnknown: the record may be in
// the log. The caller may call it again with the others, or with the same.
func (e *Engine) Rewrite(ctx context.Context, remnants []Remnant) (rest []Remnant, written int, err error) {
	n, size, runs := 0, 0, 0
	for n < len(remnants) && size < rewriteBytes {
		if r := remnants[n]; n == 0 || r.content != remnants[n-1].content || r.run != remnants[n-1].run {
			if runs++; runs > rewriteRuns {
				break
			}
		}
		size += int(remnants[n].used)
		n++
	}
	some, rest := remnants[:n], remnants[n:]
	written, err = e.rewrite(ctx, some)
	return rest, written, e.wrap(place{op: "write what is left of blocks again", ino: volume.Root.Ino}, err)
}

func (e *Engine) rewrite(ctx context.Context, remnants []Remnant) (written int, err error) {
	if err := e.home(); err != nil {
		return 0, err
	}
	chosen := make(map[segment.BlockRef]bool, len(remnants))
	for _, r := range remnants {
		chosen[r.ref] = true
	}
	p := place{op: "look at blocks", ino: volume.Root.Ino}
	found, err := read(Recent(ctx), e, p, func(t *tree) ([]stretch, error) { return t.stretches(remnants, chosen) })
	if err != nil || len(found) == 0 {
		return 0, err
	}
	contents, err := e.contents(ctx, found)
	if err != nil {
		return 0, err
	}
	tuned := e.tuned.Load()
	var pieces []piece
	var blocks []segment.Block
	of := make([]int, len(found)) // how many of the pieces are up to the end of each stretch
	for i := range found {
		for _, s := range split(found[i].off(), contents[i], tuned.BlockSize) {
			pieces, blocks = append(pieces, s), append(blocks, segment.Block{Raw: s.raw})
		}
		of[i] = len(pieces)
	}
	release := segment.PackAll(blocks, tuned.Compression)
	e.journal.SealAhead(blocks)
	done, err := execute(ctx, e, volume.Request{}, countResult, false, func(t *tx) (int, error) {
		v, err := t.versionsOf()
		if err != nil {
			return 0, err
		}
		t.versions = &v // no moment is taken for this: it changes nothing that is seen
		n, from := 0, 0
		for i := range found {
			more, err := t.rewrite(&found[i], pieces[from:of[i]], blocks[from:of[i]])
			if err != nil {
				return 0, err
			}
			n, from = n+more, of[i]
		}
		return n, nil
	})
	release() // Append has returned
	if err == nil {
		if werr := e.waitCommitted(ctx, done.shown); werr != nil {
			err = fmt.Errorf("%w: commit of record at %s: %s", volume.ErrUnknown, done.shown, werr.Error())
		}
	}
	return done.value, err
}

// stretches returns where the remnants are now, of the blocks in chosen.
func (t *tree) stretches(remnants []Remnant, chosen map[segment.BlockRef]bool) (out []stretch, err error) {
	for i, r := range remnants {
		if i > 0 && r.content == remnants[i-1].content && r.run == remnants[i-1].run {
			continue
		}
		var last *stretch // ends where the next extent may go on
		for x, err := range t.extents(r.content, r.run*run, (r.run+1)*run) {
			switch {
			case err != nil:
				return nil, err
			case !chosen[x.Ref]:
				last = nil
			case last != nil && last.end() == x.Off:
				last.extents = append(last.extents, x)
			default:
				out = append(out, stretch{r.content, []meta.Extent{x}})
				last = &out[len(out)-1]
			}
		}
	}
	return out, nil
}

// contents reads the bytes of stretches. They do not come into the cache.
func (e *Engine) contents(ctx context.Context, all []stretch) ([][]byte, error) {
	at := map[segment.BlockRef]int{}
	var refs []segment.BlockRef
	for _, s := range all {
		for _, x := range s.extents {
			if _, ok := at[x.Ref]; !ok {
				at[x.Ref], refs = len(refs), append(refs, x.Ref)
			}
		}
	}
	blocks, err := e.journal.ReadBlocks(ctx, refs)
	if err != nil {
		return nil, fmt.Errorf("read %d blocks from segment %d on: %w", len(refs), refs[0].Seq, err)
	}
	out := make([][]byte, len(all))
	for i, s := range all {
		for _, x := range s.extents {
			b := blocks[at[x.Ref]]
			if len(b) != int(x.Raw) {
				return nil, fmt.Errorf("block at %d/%d has %d bytes, its extent says %d: %w",
					x.Ref.Seq, x.Ref.Off, len(b), x.Raw, errDamaged)
			}
			out[i] = append(out[i], b[x.Skip:x.Skip+x.Len]...)
		}
	}
	return out, nil
}

// rewrite has a stretch lie in blocks of its own, which have its bytes, and returns how many these
// are. It does nothing if the stretch is not any more what it was when they were read, or if a
// snapshot shows it: then the former blocks are needed anyway.
func (t *tx) rewrite(s *stretch, pieces []piece, blocks []segment.Block) (int, error) {
	_, dead, _, err := t.view.Get(meta.DeadKey(s.content))
	if err != nil || dead {
		return 0, err
	}
	var now []meta.Extent
	for x, err := range t.extents(s.content, s.off(), s.end()) {
		if err != nil {
			return 0, err
		}
		now = append(now, x)
	}
	if !slices.Equal(now, s.extents) {
		return 0, nil
	}
	for _, x := range now {
		key := meta.ExtentKey(s.content, x.Off)
		if t.versions.Newest == 0 || !meta.Seen(key, t.versions.Number) {
			continue
		}
		if past, err := t.view.Preserved(key, t.versions.Newest); err != nil || !past {
			return 0, err
		}
	}
	begins := map[uint64]bool{}
	for i, p := range pieces {
		begins[p.off] = true
		x := meta.Extent{Off: p.off, Len: uint32(len(p.raw)), Raw: uint32(len(p.raw))}
		key, head := x.EncodeHead(s.content)
		t.setBlock(key, head, len(t.blocks)+i)
	}
	for _, x := range now {
		if !begins[x.Off] {
			t.delete(meta.ExtentKey(s.content, x.Off))
		}
	}
	t.blocks = append(t.blocks, blocks...)
	return int(s.end() - s.off()), nil
}
