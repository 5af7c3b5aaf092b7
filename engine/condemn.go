// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// condemnBatch is the most segments that one record condemns.
const condemnBatch = 2048

// Uses is what a volume's extents use of the log at a checkpoint.
type Uses struct {
	Live    map[uint64]pack.Live // about what is used, by segment; those of which nothing is are not in it
	Unused  []uint64             // segments that no extent uses and that are not condemned, ascending
	Packs   Packs                // those that count
	Emptied []uint64             // segments that moved into packs, and that no extent uses, ascending
	Empty   []uint64             // packs that are not condemned, and of which no extent uses a block
}

// Uses reads all extents of the state, of the present and of the history.
func (c *Cut) Uses(ctx context.Context) (u Uses, err error) {
	t := &tree{view: c.view}
	gone, err := t.condemned()
	if err != nil {
		return u, err
	}
	if u.Packs, err = t.packs(); err != nil {
		return u, err
	}
	all, err := t.segments()
	if err != nil {
		return u, err
	}
	lengths := make(map[uint64]uint64, len(all))
	for _, s := range all {
		lengths[s.Seq] = s.Len
	}
	if u.Live, err = pack.Count(c.lives(ctx, &u.Packs), func(seq uint64) uint64 { return lengths[seq] }); err != nil {
		return u, err
	}
	lives := map[uint64]bool{}
	for _, s := range all {
		_, used := u.Live[s.Seq]
		_, gone := gone[s.Seq]
		n, moved := u.Packs.Moved[s.Seq]
		switch {
		case !used && !gone:
			u.Unused = append(u.Unused, s.Seq)
		case !used && moved:
			u.Emptied = append(u.Emptied, s.Seq)
		case moved:
			lives[n] = true
		}
	}
	for _, p := range u.Packs.All {
		if p.Condemned == 0 && !lives[p.Number] {
			u.Empty = append(u.Empty, p.Number)
		}
	}
	return u, nil
}

// spaceTables are the tables of which Condemned and Packs tell.
const spaceTables = string(rune(meta.Condemned)) + string(rune(meta.Packs)) + string(rune(meta.Moved))

// touches reports whether records change one of some tables.
func touches(records [][]segment.Op, tables string) bool {
	for _, ops := range records {
		for _, op := range ops {
			if len(op.Key) > 0 && strings.IndexByte(tables, op.Key[0]) >= 0 {
				return true
			}
		}
	}
	return false
}

// countSpace counts, for SpaceChanges and SpaceTables, what was applied just now.
func (e *Engine) countSpace(records [][]segment.Op) {
	if touches(records, spaceTables) {
		e.spaceTables.Add(1)
		e.spaced.Add(1)
	} else if touches(records, string(rune(meta.Checkpoints))) {
		e.spaced.Add(1)
	}
}

// SpaceChanges counts what is applied here that may change what Condemned, Packs and Checkpoints
// tell. While it is the same, they are.
func (e *Engine) SpaceChanges() uint64 { return e.spaced.Load() }

// SpaceTables is SpaceChanges of Condemned and Packs alone, which are long to read in an old
// volume. What was read after it was asked for tells all that it counted.
func (e *Engine) SpaceTables() uint64 { return e.spaceTables.Load() }

// condemned returns the segments that are condemned, and at which checkpoint each was.
func (t *tree) condemned() (map[uint64]uint64, error) {
	out := map[uint64]uint64{}
	lo, hi := meta.AllCondemned()
	for p, err := range t.view.Range(lo, hi) {
		if err != nil {
			return nil, err
		}
		seq, number, err := meta.DecodeCondemned(p.Key, p.Value)
		if err != nil {
			return nil, err
		}
		out[seq] = number
	}
	return out, nil
}

// Condemned returns the segments that are condemned by what is applied here, and durably so, with
// the number of the checkpoint at which each was: the caller may drop them (protocol-14).
func (e *Engine) Condemned() (map[uint64]uint64, error) {
	view := e.store.Snapshot(nil)
	all, err := (&tree{view: view}).condemned()
	if cerr := view.Close(); err == nil {
		err = cerr
	}
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all, e.durable("what is condemned")
}

// Condemn condemns segments that nothing uses at the newest checkpoint, which has that number. The
// home calls it with what Cut.Uses returned of that checkpoint, when all copies that are to go on
// from their own logs have the log up to there. Nobody keeps those segments from then on.
func (e *Engine) Condemn(ctx context.Context, number uint64, seqs []uint64) error {
	p := place{op: "condemn segments", ino: volume.Root.Ino}
	for len(seqs) > 0 {
		n := min(len(seqs), condemnBatch)
		_, err := change(ctx, e, volume.Request{}, p, countResult, false, func(t *tx) (int, error) {
			c, err := t.checkpoints()
			if err != nil {
				return 0, err
			}
			if c.Made.Number != number {
				return 0, fmt.Errorf("checkpoint %d is not the newest, that is %d: %w", number, c.Made.Number, volume.ErrInvalid)
			}
			for _, seq := range seqs[:n] {
				if seq > c.Made.At.Seq {
					return 0, fmt.Errorf("segment %d is after checkpoint %d at %s: %w", seq, number, c.Made.At, volume.ErrInvalid)
				}
				t.set(meta.EncodeCondemned(seq, number))
			}
			return n, nil
		})
		if err != nil {
			return err
		}
		seqs = seqs[n:]
	}
	return nil
}
