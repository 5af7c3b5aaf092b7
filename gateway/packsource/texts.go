// SPDX-License-Identifier: Apache-2.0

package packsource

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
)

// Blocks that lie near each other in an object are read at once: a store takes as long for one as
// for many. Both are bytes.
const (
	maxRun = 1 << 20  // what is read at once, but for a block that is longer
	maxGap = 32 << 10 // what lies between two blocks, and is read for nothing
)

// found is where a block is.
type found struct {
	object string // its name in a store
	read   pack.Read
	off    uint64
	size   uint32
	// open opens what lies there; packed: it stays as it was compressed. It may use b's memory.
	open func(b []byte, packed bool) ([]byte, error)
}

func (f *found) end() uint64 { return f.off + uint64(f.size) }

// finds finds a block of a segment.
type finds func(ref segment.BlockRef) (found, error)

// open opens a block as it was sealed first.
func (c *Copy) open(ref segment.BlockRef, sealed []byte, packed bool) ([]byte, error) {
	if packed {
		return c.Log.OpenPacked(ref, sealed)
	}
	return c.Log.OpenBlock(ref, sealed)
}

// ofSegment finds blocks of a segment.
func ofSegment(c Copy, name string, read pack.Read) finds {
	return func(ref segment.BlockRef) (found, error) {
		return found{name, read, ref.Off, ref.Len, func(b []byte, packed bool) ([]byte, error) { return c.open(ref, b, packed) }}, nil
	}
}

// ofPack finds blocks of a pack, as they were or sealed anew.
func ofPack(c Copy, p *pack.Pack, read pack.Read) finds {
	return func(ref segment.BlockRef) (found, error) {
		off, cut, err := p.At(ref)
		if err != nil {
			return found{}, err
		}
		if cut == nil {
			return found{p.Name(), read, off, ref.Len + pack.SumSize, func(b []byte, packed bool) ([]byte, error) {
				sealed, err := p.Check(ref, b)
				if err != nil {
					return nil, err
				}
				return c.open(ref, sealed, packed)
			}}, nil
		}
		key, ok := c.Keys.Get(p.Key())
		if !ok {
			return found{}, fmt.Errorf("%s is sealed with data key %d: %w", p.Name(), p.Key(), log.ErrNoKey)
		}
		return found{p.Name(), read, off, cut.Size + pack.SumSize, func(b []byte, packed bool) ([]byte, error) {
			if packed {
				return p.OpenPacked(&key, ref.Seq, cut, b)
			}
			return p.Open(&key, ref.Seq, cut, b)
		}}, nil
	}
}

// texts reads and opens blocks, neighbours with one read. Besides what it returns it takes maxRun
// of memory. An error that is about an object is a pack.ObjectError: damage wraps pack.ErrCorrupt.
func texts(refs []segment.BlockRef, blocks map[uint64]finds, packed bool) ([][]byte, error) {
	all, order := make([]found, len(refs)), make([]int, len(refs))
	for i, ref := range refs {
		var err error
		if all[i], err = blocks[ref.Seq](ref); err != nil {
			return nil, err
		}
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(all[a].object, all[b].object), cmp.Compare(all[a].off, all[b].off))
	})
	out := make([][]byte, len(refs))
	var memory []byte
	for len(order) > 0 {
		first := &all[order[0]]
		n, end := 1, first.end()
		for ; n < len(order); n++ {
			next := &all[order[n]]
			if next.object != first.object || next.off > end+maxGap || next.end() > first.off+maxRun {
				break
			}
			end = max(end, next.end())
		}
		run := slices.Grow(memory[:0], int(end-first.off))[:end-first.off]
		memory = run
		if err := first.read(run, first.off); err != nil {
			return nil, about(first.object, err)
		}
		for _, i := range order[:n] {
			f := &all[i]
			// Each has memory of its own: what is opened in it is sealed anew in it.
			b, err := f.open(slices.Clone(run[f.off-first.off:f.end()-first.off]), packed)
			if err != nil {
				return nil, about(f.object, err)
			}
			out[i] = b
		}
		order = order[n:]
	}
	return out, nil
}

// about adds the name of an object to err.
func about(object string, err error) error {
	if s := new(pack.ObjectError); errors.As(err, &s) {
		return err
	}
	if errors.Is(err, segment.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", pack.ErrCorrupt, err)
	}
	return &pack.ObjectError{Name: object, Err: err}
}
