// SPDX-License-Identifier: Apache-2.0

package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-storage/weir/engine/segment"
)

const (
	// maxRun is the most bytes of one ranged read of a Source.
	maxRun = 4 << 20
	// maxSkip is the most unwanted bytes between two blocks of a ranged read.
	maxSkip = 64 << 10
)

// ReadBlocks returns the plaintext of blocks, which the caller then owns, in the order of refs. It
// reads the segment's file, then each Source in turn, and verifies each copy by the block's tag.
// One
// read of a Source covers blocks that lie near each other. It fails if any block fails:
// ErrUnreadable,
// which names the copies, if no copy has a block.
func (l *Log) ReadBlocks(ctx context.Context, refs []segment.BlockRef) ([][]byte, error) {
	out := make([][]byte, len(refs))
	order := make([]int, len(refs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(refs[a].Seq, refs[b].Seq), cmp.Compare(refs[a].Off, refs[b].Off))
	})
	for len(order) > 0 {
		n := 1
		for n < len(order) && refs[order[n]].Seq == refs[order[0]].Seq {
			n++
		}
		if err := l.readSegmentBlocks(ctx, refs, order[:n], out); err != nil {
			return nil, err
		}
		order = order[n:]
	}
	return out, nil
}

// readSegmentBlocks reads the blocks refs[i] of one segment, for each i of order. order is
// ascending by position.
func (l *Log) readSegmentBlocks(ctx context.Context, refs []segment.BlockRef, order []int, out [][]byte) error {
	seq := refs[order[0]].Seq
	l.mu.Lock()
	err := l.usable()
	var s seg
	if sp, ok := l.find(seq); ok {
		s = *sp
	} else if err == nil {
		err = fmt.Errorf("read block in segment %d: %w: this log has no such segment", seq, ErrUnreadable)
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	for _, i := range order {
		if ref := refs[i]; ref.Off < segment.HeaderSize || ref.Off+uint64(ref.Len) > s.len || ref.Len > segment.MaxBlock+1+segment.TagSize {
			return fmt.Errorf("read block: %w", &segment.CorruptError{Seq: seq, Off: ref.Off, Field: "block reference"})
		}
	}
	o, err := l.openers.get(&l.cfg.DataKey, s.header)
	if err != nil {
		return err
	}
	for _, i := range order {
		if err := o.CheckRef(refs[i]); err != nil {
			return fmt.Errorf("read block: %w", err)
		}
	}
	missing := slices.Clone(order)
	for len(missing) > 0 {
		run := cutRun(refs, missing, s.local)
		err := l.fromCopies(ctx, &s, refs[run[0]].Off, true, func(read readFunc) error {
			return openRun(o, read, refs, run, out)
		})
		if err != nil {
			return err
		}
		missing = missing[len(run):]
	}
	return nil
}

// cutRun returns the first of the ascending blocks that one read may cover. From a file it is one
// block. There reading on costs little, and one bad block does not send its neighbours to a Source.
func cutRun(refs []segment.BlockRef, order []int, local bool) []int {
	first := refs[order[0]]
	end, n := first.Off+uint64(first.Len), 1
	for ; !local && n < len(order); n++ {
		r := refs[order[n]]
		if r.Off > end+maxSkip || r.Off+uint64(r.Len) > first.Off+maxRun {
			break
		}
		end = max(end, r.Off+uint64(r.Len))
	}
	return order[:n]
}

// openRun reads one range and opens those blocks in it that are not in out yet. So if a source has
// one bad block, its other blocks are still used.
func openRun(o *segment.Opener, read readFunc, refs []segment.BlockRef, run []int, out [][]byte) error {
	start, end := refs[run[0]].Off, uint64(0)
	for _, i := range run {
		end = max(end, refs[i].Off+uint64(refs[i].Len))
	}
	buf := make([]byte, end-start)
	if err := read(buf, start); err != nil {
		return err
	}
	var errs []error
	for k, i := range run {
		if out[i] != nil {
			continue
		}
		ref := refs[i]
		if k > 0 && refs[run[k-1]] == ref && out[run[k-1]] != nil {
			out[i] = slices.Clone(out[run[k-1]]) // the block was asked for twice, and buf is decrypted already
			continue
		}
		sealed := buf[ref.Off-start : ref.Off-start+uint64(ref.Len)]
		raw, err := o.OpenBlock(ref, sealed)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(run) > 1 && len(raw) > 0 && &raw[0] == &sealed[1] {
			raw = slices.Clone(raw) // a block that is kept must not keep the whole range in memory
		}
		out[i] = raw
	}
	return errors.Join(errs...)
}
