// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// condemnBatch is the most segments that one record condemns.
const condemnBatch = 2048

// Uses is what a volume's extents use of the log at a checkpoint.
type Uses struct {
	Bytes  map[uint64]uint64 // sealed bytes of extents' blocks, by segment; a block counts for each extent
	Unused []uint64          // segments that no extent uses and that are not condemned, ascending
}

// Uses reads all extents of the state, of the present and of the history.
func (c *Cut) Uses(ctx context.Context) (Uses, error) {
	u := Uses{Bytes: map[uint64]uint64{}}
	add := func(key, value []byte) error {
		x, err := meta.DecodeExtent(key, value)
		if err == nil {
			u.Bytes[x.Ref.Seq] += uint64(x.Ref.Len)
		}
		return err
	}
	lo, hi := []byte{byte(meta.Extents)}, []byte{byte(meta.Extents) + 1}
	n := 0
	each := func(lo, hi []byte, do func(meta.Pair) error) error {
		for p, err := range c.view.Range(lo, hi) {
			if n++; err == nil && n%4096 == 0 {
				err = ctx.Err()
			}
			if err == nil {
				err = do(p)
			}
			if err != nil {
				return fmt.Errorf("what uses segments: %w", err)
			}
		}
		return nil
	}
	if err := each(lo, hi, func(p meta.Pair) error { return add(p.Key, p.Value) }); err != nil {
		return u, err
	}
	hlo, hhi := meta.HistoryRange(lo, hi)
	if err := each(hlo, hhi, func(p meta.Pair) error {
		value, exists, err := meta.DecodeHistory(p.Key, p.Value)
		if err != nil || !exists {
			return err
		}
		key, _, err := meta.SplitHistory(p.Key)
		if err != nil {
			return err
		}
		return add(key, value)
	}); err != nil {
		return u, err
	}
	t := &tree{view: c.view}
	gone, err := t.condemned()
	if err != nil {
		return u, err
	}
	all, err := t.segments()
	for _, s := range all {
		_, used := u.Bytes[s.Seq]
		if _, gone := gone[s.Seq]; !used && !gone {
			u.Unused = append(u.Unused, s.Seq)
		}
	}
	return u, err
}

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
	e.mu.Lock()
	pos := e.applied // the view has no more
	e.mu.Unlock()
	if kept, err := e.Persist(pos); err != nil || kept.Less(pos) {
		return nil, fmt.Errorf("what is condemned is not durable here up to %s: %w", pos, err)
	}
	return all, nil
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
