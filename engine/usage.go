// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// Made is the newest checkpoint that a home committed.
type Made = meta.Made

// Usage is what a volume's metadata say of what the log has, at one moment.
type Usage struct {
	Blocks     map[uint64]Blocks // by segment; those of which nothing is used are not in it
	Condemned  map[uint64]uint64 // segments, and the checkpoint at which each was condemned
	Checkpoint Made              // the newest that is committed; Number is 0: there is none
	Packs      Packs
	// Keys has the sealed bytes of blocks that are used, by the number of their data key; but for
	// those of the last segment, which still grows.
	Keys map[uint32]uint64
}

// Blocks says how many bytes a segment's blocks have that are used. A block counts once, however
// many extents name it.
type Blocks struct {
	Present uint64 // sealed bytes that the present uses
	Past    uint64 // sealed bytes that only the history uses
}

// Usage reads what the volume uses, in the state that is applied here. It goes through all extents,
// of the present and of the history, and does not stop anybody meanwhile. A content that only
// snapshots show counts as history. The history counts until Clean removed it, also if no snapshot
// needs it any more.
//
// All extents of a block lie in one run of one content: a write cuts blocks at the borders of runs,
// and what is left of an extent keeps its place. So Usage goes through both tables side by side. It
// remembers the blocks of one run at a time.
func (e *Engine) Usage(ctx context.Context) (Usage, error) {
	view := e.store.Snapshot(nil)
	u, err := (&tree{engine: e, view: view}).usage(ctx)
	if cerr := view.Close(); err == nil {
		err = cerr
	}
	return u, e.wrap(place{op: "count what is used", ino: volume.Root.Ino}, err)
}

func (t *tree) usage(ctx context.Context) (u Usage, err error) {
	if u.Condemned, err = t.condemned(); err != nil {
		return u, err
	}
	if u.Packs, err = t.packs(); err != nil {
		return u, err
	}
	now, err := t.checkpoints()
	if err != nil {
		return u, err
	}
	segments, err := t.segments()
	if err != nil {
		return u, err
	}
	t.engine.mu.Lock()
	closed := t.engine.cutting.closed
	t.engine.mu.Unlock()
	keys := make(map[uint64]uint32, len(segments))
	for _, s := range segments {
		keys[s.Seq] = s.Key
	}
	u.Blocks, u.Checkpoint, u.Keys = map[uint64]Blocks{}, now.Made, map[uint32]uint64{}
	var failed error
	err = t.runs(ctx, false, func(_ use, blocks map[segment.BlockRef]useOf) {
		for ref, of := range blocks {
			b, size := u.Blocks[ref.Seq], uint64(ref.Len)
			number, known := keys[ref.Seq]
			if !known && closed != nil { // after the newest checkpoint
				var s Segment
				s, known = closed(ref.Seq)
				number = s.Key
			}
			if cut, anew, err := t.cutOf(&u.Packs, ref); err != nil {
				failed = err
			} else if cut != nil {
				size, number = uint64(cut.Size), anew
			}
			if known {
				u.Keys[number] += size
			}
			if of.now {
				b.Present += size
			} else {
				b.Past += size
			}
			u.Blocks[ref.Seq] = b
		}
	})
	return u, errors.Join(err, failed)
}

// useOf is what one run's extents use of a block.
type useOf struct {
	now, past bool   // the present uses it, the history does
	raw       uint32 // bytes that it has
	// ranges are those that extents have of it, of the present and the history, as they came; nil
	// unless somebody asked.
	ranges []pack.Range
}

// runs calls visit with the blocks that each run of each content uses, of the present and of the
// history, in order of contents and runs. A content that only snapshots show counts as history. The
// map is visit's only until that returns. ranges: it has them.
func (t *tree) runs(ctx context.Context, ranges bool, visit func(at use, blocks map[segment.BlockRef]useOf)) error {
	c := counter{tree: t, ranges: ranges, blocks: map[segment.BlockRef]useOf{}, visit: visit}
	lo, hi := []byte{byte(meta.Extents)}, []byte{byte(meta.Extents) + 1}
	hlo, hhi := meta.HistoryRange(lo, hi)
	nextNow, stopNow := iter.Pull2(uses(t.view.Range(lo, hi), ofPresent))
	defer stopNow()
	nextWas, stopWas := iter.Pull2(uses(t.view.Range(hlo, hhi), ofHistory))
	defer stopWas()
	present, nowErr, moreNow := nextNow()
	past, wasErr, moreWas := nextWas()
	for n := 0; moreNow || moreWas; n++ {
		if nowErr == nil {
			nowErr = wasErr
		}
		if nowErr == nil && n%4096 == 0 {
			nowErr = ctx.Err()
		}
		if nowErr != nil {
			return nowErr
		}
		var err error
		if moreNow && (!moreWas || !past.before(present)) {
			err = c.add(present, true)
			present, nowErr, moreNow = nextNow()
		} else {
			err = c.add(past, false)
			past, wasErr, moreWas = nextWas()
		}
		if err != nil {
			return err
		}
	}
	c.end()
	return nil
}

// use is a block that an extent names, in a run of a content.
type use struct {
	content, run uint64
	ref          segment.BlockRef
	skip, used   uint32 // which bytes of the block the extent has
	raw          uint32 // bytes of the block
}

func (u use) before(o use) bool {
	return u.content < o.content || u.content == o.content && u.run < o.run
}

// uses iterates over what extents name; of makes an extent's key and value from a pair, or nil.
func uses(pairs iter.Seq2[meta.Pair, error], of func(meta.Pair) (key, value []byte, err error)) iter.Seq2[use, error] {
	return func(yield func(use, error) bool) {
		for p, err := range pairs {
			var key, value []byte
			if err == nil {
				key, value, err = of(p)
			}
			if err == nil && key == nil {
				continue
			}
			var x meta.Extent
			if err == nil {
				x, err = meta.DecodeExtent(key, value)
			}
			if err != nil {
				yield(use{}, fmt.Errorf("what the volume uses: %w", err))
				return
			}
			if !yield(use{meta.Of(key), x.Off / segment.MaxBlock, x.Ref, x.Skip, x.Len, x.Raw}, nil) {
				return
			}
		}
	}
}

func ofPresent(p meta.Pair) (key, value []byte, err error) { return p.Key, p.Value, nil }

func ofHistory(p meta.Pair) (key, value []byte, err error) {
	value, exists, err := meta.DecodeHistory(p.Key, p.Value)
	if err != nil || !exists {
		return nil, nil, err
	}
	key, _, err = meta.SplitHistory(p.Key)
	return key, value, err
}

// counter gathers the blocks of one run after the other.
type counter struct {
	tree   *tree
	ranges bool
	at     use  // in the present run; only content and run say something
	dead   bool // no inode has the content
	blocks map[segment.BlockRef]useOf
	visit  func(at use, blocks map[segment.BlockRef]useOf)
}

// add adds what an extent names. now: it is one of the present.
func (c *counter) add(u use, now bool) error {
	if u.content != c.at.content || u.run != c.at.run {
		c.end()
	}
	if u.content != c.at.content {
		_, dead, _, err := c.tree.view.Get(meta.DeadKey(u.content))
		if err != nil {
			return err
		}
		c.dead = dead
	}
	c.at = use{content: u.content, run: u.run}
	of := c.blocks[u.ref]
	if of.raw = u.raw; now && !c.dead {
		of.now = true
	} else {
		of.past = true
	}
	if c.ranges {
		of.ranges = append(of.ranges, pack.Range{Off: u.skip, Len: u.used})
	}
	c.blocks[u.ref] = of
	return nil
}

// end ends the run.
func (c *counter) end() {
	if len(c.blocks) > 0 {
		c.visit(c.at, c.blocks)
	}
	clear(c.blocks)
}
