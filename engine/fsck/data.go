// SPDX-License-Identifier: Apache-2.0

package fsck

import (
	"bytes"
	"fmt"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
)

// batch is how many blocks are read at a time.
const batch = 64

// wanted is a block, and what it is for.
type wanted struct {
	ref     segment.BlockRef
	finding Finding
	upTo    uint32 // the newest snapshot that may show it; 0: it is of the present
}

// data reads each block that the volume or a snapshot has. What the history has of extents is what
// snapshots have besides.
func (c *checker) data() error {
	if c.Blocks == nil {
		return nil
	}
	c.step("data", c.report.Extents)
	var want []wanted
	add := func(k, value []byte, from, upTo uint32) error {
		x, err := meta.DecodeExtent(k, value)
		if err != nil {
			return nil // allPairs tells it
		}
		f := Finding{Kind: Unreadable, Advice: adviceHeal, snap: from, content: meta.Of(k), From: x.Off, To: x.End(), Block: x.Ref,
			Detail: fmt.Sprintf("bytes %d to %d, block at %d/%d", x.Off, x.End(), x.Ref.Seq, x.Ref.Off)}
		want = append(want, wanted{ref: x.Ref, finding: f, upTo: upTo})
		if len(want) < batch {
			return nil
		}
		err = c.readBlocks(want)
		want = want[:0]
		return err
	}
	lo, hi := meta.AllOf(meta.Extents)
	err := c.each(c.View, lo, hi, func(p meta.Pair) error {
		if meta.CheckPair(p.Key, p.Value) != nil {
			return nil
		}
		return add(p.Key, p.Value, 0, 0)
	})
	if err != nil {
		return err
	}
	var last []byte
	var before uint32
	hlo, hhi := meta.HistoryRange(lo, hi)
	err = c.each(c.View, hlo, hhi, func(p meta.Pair) error {
		if meta.CheckPair(p.Key, p.Value) != nil {
			return nil
		}
		k, gen, err := meta.SplitHistory(p.Key)
		if err != nil {
			return c.stop(err)
		}
		if !bytes.Equal(k, last) {
			last, before = k, 0
		}
		shown := c.after(before, gen)
		before = gen
		value, exists, err := meta.DecodeHistory(p.Key, p.Value)
		if err != nil || !exists || shown == nil {
			return err
		}
		return add(k, value, shown.Gen, gen)
	})
	if err != nil {
		return err
	}
	return c.readBlocks(want)
}

// readBlocks reads blocks, each once.
func (c *checker) readBlocks(want []wanted) error {
	var refs []segment.BlockRef
	at := map[segment.BlockRef]int{}
	size := 0
	for _, w := range want {
		if _, ok := at[w.ref]; !ok {
			at[w.ref] = len(refs)
			refs = append(refs, w.ref)
			size += int(w.ref.Len)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	if c.Pace != nil {
		if err := c.Pace(c.ctx, size); err != nil {
			return err
		}
	}
	bad, err := c.Blocks(c.ctx, refs)
	if err != nil {
		return err
	}
	c.report.Blocks += uint64(len(refs))
	for _, w := range want {
		if why := bad[at[w.ref]]; why != nil {
			w.finding.Detail += ": " + why.Error()
			c.showIn(&w)
			c.add(w.finding)
		}
	}
	c.tell()
	return c.ctx.Err()
}

// showIn has a finding be of a snapshot with a name, if one of those that have the block has one.
func (c *checker) showIn(w *wanted) {
	for s := c.snapshot(w.finding.snap); s != nil; s = c.after(s.Gen, w.upTo) {
		if !s.Moment {
			w.finding.snap = s.Gen
			return
		}
	}
}
