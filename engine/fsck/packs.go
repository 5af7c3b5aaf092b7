// SPDX-License-Identifier: Apache-2.0

package fsck

import (
	"errors"
	"fmt"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/pack"
)

// packs is what the metadata say of packs.
type packs struct {
	moved   map[uint64]uint64 // the number of the pack that has what lives of a segment
	all     map[uint64]meta.Pack
	view    *meta.View
	indexes *pack.Cache
}

// indexMemory is the most memory for indexes of packs, in bytes.
const indexMemory = 32 << 20

// beginPacks reads what all steps need of packs.
func (c *checker) beginPacks() error {
	c.packs = packs{moved: map[uint64]uint64{}, all: map[uint64]meta.Pack{}, view: c.View, indexes: pack.NewCache(indexMemory)}
	lo, hi := meta.AllOf(meta.Moved)
	err := c.each(c.View, lo, hi, func(p meta.Pair) error {
		seq, n, err := meta.DecodeMoved(p.Key, p.Value)
		if err == nil {
			c.packs.moved[seq] = n
		}
		return nil // allPairs tells what does not parse
	})
	if err != nil {
		return err
	}
	lo, hi = meta.AllOf(meta.Packs)
	return c.each(c.View, lo, hi, func(p meta.Pair) error {
		if is, err := meta.DecodePack(p.Key, p.Value); err == nil {
			c.packs.all[is.Number] = is
		}
		return nil
	})
}

// lies returns why a block is not in pack number n; empty: it is there.
func (p *packs) lies(n uint64, x *meta.Extent) string {
	ref := x.Ref
	is, ok := p.all[n]
	switch {
	case !ok:
		return fmt.Sprintf("segment %d moved into pack %d, which there is not", ref.Seq, n)
	case is.Condemned != 0:
		return fmt.Sprintf("segment %d moved into pack %d, which was condemned", ref.Seq, n)
	}
	index, err := p.indexes.Decode(is.Hash, is.Len, func() ([]byte, error) {
		key := meta.PackIndexKey(n)
		value, ok, _, err := p.view.Get(key)
		if err == nil && !ok {
			err = errors.New("the metadata do not have its index")
		}
		if err != nil {
			return nil, err
		}
		return meta.DecodeBytes(key, value)
	})
	if err == nil {
		_, cut, aerr := index.At(ref)
		if err = aerr; err == nil && cut != nil && (cut.Raw != x.Raw || !cut.Has(x.Skip, x.Len)) {
			err = fmt.Errorf("it is cut to %v, and the extent has %d bytes from byte %d on", cut.Ranges, x.Len, x.Skip)
		}
	}
	if err != nil {
		return fmt.Sprintf("segment %d moved into pack %d: %v", ref.Seq, n, err)
	}
	return ""
}
