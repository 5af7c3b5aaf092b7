// SPDX-License-Identifier: Apache-2.0

package rebuild

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/segment"
)

// mostLooked is how many segments that cannot be applied are looked into for paths.
const mostLooked = 256

// losses finds what is lost of a volume whose metadata are at the end of the chain.
func (b *builder) losses(ctx context.Context, e *engine.Engine, c *chain) error {
	left, unreached := b.beside(c)
	for _, n := range left {
		b.report.Left = append(b.report.Left, n.Name)
	}
	if err := b.unreached(ctx, e, c, unreached); err != nil {
		return err
	}
	packs, err := e.Packs()
	if err != nil {
		return err
	}
	lost, err := e.LostIn(func(seq uint64) bool {
		if b.packed(&packs, seq) {
			return false
		}
		n := c.at(seq)
		return n == nil || !n.Uploaded
	})
	if err != nil {
		return err
	}
	for seq := range lost.Need {
		if c.at(seq) == nil {
			return fmt.Errorf("the metadata name segment %d, and the log ends at %d", seq, len(c.past)+len(c.tail))
		}
	}
	if len(lost.Need) == 0 {
		return nil
	}
	for _, seq := range slices.Sorted(maps.Keys(lost.Need)) {
		n := c.at(seq)
		b.report.Lost = append(b.report.Lost, Loss{What: fmt.Sprintf(
			"segment %s: %s; %d bytes of files are in it", n.Name, n.why, lost.Need[seq])})
	}
	all := Loss{What: fmt.Sprintf("so %d files cannot be read whole", len(lost.Files))}
	if lost.Past > 0 {
		all.What += fmt.Sprintf(", and %d bytes that only snapshots show", lost.Past)
	}
	if err := all.name(e, lost.Files, nil); err != nil {
		return err
	}
	b.report.Lost = append(b.report.Lost, all)
	return nil
}

// packed reports whether the store has the pack into which what lives of a segment moved.
func (b *builder) packed(packs *engine.Packs, seq uint64) bool {
	n, moved := packs.Moved[seq]
	if !moved {
		return false
	}
	is, lives := packs.Now(n)
	return !lives || b.found.packs[is.Hash] == is.Len
}

// unreached tells of segments that the chain does not reach, and which paths they change.
func (b *builder) unreached(ctx context.Context, e *engine.Engine, c *chain, all []*node) error {
	if len(all) == 0 {
		return nil
	}
	first, last := all[0], all[len(all)-1]
	l := Loss{Cut: true, What: fmt.Sprintf("%d segments from %s to %s cannot be applied: ", len(all), first.Name, last.Name)}
	missing := segment.Name(b.found.volume, first.Prev.Seq, first.Prev.Hash)
	switch n := b.found.nodes[missing]; {
	case first.why != "":
		l.What += fmt.Sprintf("segment %s: %s", first.Name, first.why)
	case n == nil && first.Prev.Seq > 0:
		l.What += fmt.Sprintf("segment %s: the store does not have it", missing)
	case n != nil && n.why != "":
		l.What += fmt.Sprintf("segment %s: %s", missing, n.why)
	default:
		l.What += fmt.Sprintf("two histories of epoch %d go on from segment %d, and no epoch decides", first.Epoch, first.Prev.Seq)
	}
	touched := map[uint64]uint64{}
	var later []segment.Op
	for _, n := range all[:min(len(all), mostLooked)] {
		if !n.Uploaded {
			continue
		}
		p, err := b.whole(ctx, n)
		if err != nil {
			continue // it is lost as it is
		}
		entries, _ := b.decode(n, p)
		for _, en := range entries {
			if en.Record == nil {
				continue
			}
			for _, ino := range en.Record.Touched {
				touched[ino]++
			}
			later = append(later, engine.Entries(en.Record.Ops)...)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(all) > mostLooked {
		l.What += fmt.Sprintf("; the paths are those of the first %d", mostLooked)
	}
	if err := l.name(e, touched, later); err != nil {
		return err
	}
	b.report.Lost = append(b.report.Lost, l)
	return nil
}

// name adds the paths of inodes.
func (l *Loss) name(e *engine.Engine, inodes map[uint64]uint64, later []segment.Op) error {
	paths, err := e.PathsOf(inodes, later)
	if err != nil {
		return err
	}
	l.Paths = slices.SortedFunc(maps.Values(paths), cmp.Compare)
	if n := len(l.Paths); n > maxPaths {
		l.Paths, l.More = l.Paths[:maxPaths], n-maxPaths
	}
	return nil
}
