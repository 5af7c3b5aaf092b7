// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// extents iterates over the extents of a content that share a byte with [off, end), in order. An
// error ends the iteration and comes last.
func (t *tree) extents(content, off, end uint64) iter.Seq2[meta.Extent, error] {
	return func(yield func(meta.Extent, error) bool) {
		// An extent does not cross the border of a run, so none that matters begins earlier.
		lo, hi := meta.ExtentRange(content, off-off%run, end)
		last := uint64(0)
		for pair, err := range t.view.Range(lo, hi) {
			if err != nil {
				yield(meta.Extent{}, err)
				return
			}
			x, err := meta.DecodeExtent(pair.Key, pair.Value)
			if err == nil && x.Off < last {
				err = fmt.Errorf("extents of content %d overlap at byte %d: %w", content, x.Off, errDamaged)
			}
			if err != nil {
				yield(meta.Extent{}, err)
				return
			}
			if last = x.End(); last <= off {
				continue
			}
			if !yield(x, nil) {
				return
			}
		}
	}
}

// content is what Read and Seek find in a file.
type content struct {
	n       int
	eof     bool
	extents []meta.Extent
}

// Read implements volume.Reader.
func (e *Engine) Read(ctx context.Context, r volume.Request, h volume.Handle, off uint64, p []byte) (int, bool, error) {
	at := place{op: "read", ino: h.Ino}
	var serve content
	_, err := read(ctx, e, at, func(t *tree) (struct{}, error) {
		if len(p) > volume.MaxIO {
			return struct{}{}, volume.ErrInvalid
		}
		n, err := t.file(h)
		if err != nil {
			return struct{}{}, err
		}
		if !volume.PermitsIO(n.Attr, r.Caller, false) {
			return struct{}{}, volume.ErrAccess
		}
		if off >= n.Size {
			serve = content{eof: true}
			return struct{}{}, nil
		}
		serve = content{n: int(min(uint64(len(p)), n.Size-off))}
		end := off + uint64(serve.n)
		serve.eof = end == n.Size
		if serve.extents, err = t.extentsOf(n.ContentID(), off, end); err != nil {
			return struct{}{}, err
		}
		e.ahead.note(e, t, n.ContentID(), off, end, n.Size)
		return struct{}{}, e.fill(ctx, t.cacheGen, serve.extents, off, p[:serve.n])
	})
	if err != nil {
		return 0, false, err
	}
	return serve.n, serve.eof, nil
}

// fill fills p from the extents of a file. p begins at byte off of the file. Only what no extent
// covers becomes zeros.
func (e *Engine) fill(ctx context.Context, gen uint64, extents []meta.Extent, off uint64, p []byte) error {
	var few [4]*cached
	blocks, err := e.blocks(ctx, gen, extents, few[:0])
	defer e.cache.done(blocks...)
	if err != nil {
		return err
	}
	done := off
	for i, x := range extents {
		from, to := max(x.Off, off), min(x.End(), off+uint64(len(p)))
		clear(p[done-off : from-off])
		b, err := pack.Slice(blocks[i].data, x.Raw, x.Skip+uint32(from-x.Off), uint32(to-from))
		if err != nil {
			return fmt.Errorf("block at %d/%d: %w: %w", x.Ref.Seq, x.Ref.Off, err, errDamaged)
		}
		copy(p[from-off:to-off], b)
		done = to
	}
	clear(p[done-off:])
	return nil
}

// blocks appends the plaintext of the blocks of extents to an empty list. One call of ReadBlocks
// reads those that are not in the cache, under the namespace gen, and that nobody else reads at
// this moment. The caller says done for all in the list, also after an error.
func (e *Engine) blocks(ctx context.Context, gen uint64, extents []meta.Extent, blocks []*cached) ([]*cached, error) {
	var mine, theirs wanted
	for i, x := range extents {
		if mine.again(x.Ref, i) || theirs.again(x.Ref, i) {
			blocks = append(blocks, nil)
			continue
		}
		b, wait := e.cache.begin(gen, x.Ref)
		blocks = append(blocks, b)
		switch {
		case b != nil:
		case wait != nil:
			theirs.add(x.Ref, i, len(extents))
			theirs.waits = append(theirs.waits, wait)
		default:
			mine.add(x.Ref, i, len(extents))
		}
	}
	err := func() error {
		defer e.cache.end(gen, mine.refs)
		return e.readBlocks(ctx, gen, &mine, blocks)
	}()
	if err == nil {
		err = e.awaitBlocks(ctx, gen, &theirs, blocks)
	}
	if err != nil {
		return blocks, err
	}
	for i, x := range extents {
		if _, err := pack.Slice(blocks[i].data, x.Raw, x.Skip, x.Len); err != nil {
			return blocks, fmt.Errorf("block at %d/%d: %w: %w", x.Ref.Seq, x.Ref.Off, err, errDamaged)
		}
	}
	return blocks, nil
}

// wanted is blocks, each once, with the places in a list where they go.
type wanted struct {
	refs  []segment.BlockRef
	slots map[segment.BlockRef][]int // nil: the only one goes to the only place
	waits []<-chan struct{}          // for each of refs, if somebody else reads them
}

// again notes another place of a block that is there already.
func (w *wanted) again(ref segment.BlockRef, slot int) bool {
	if w.slots[ref] == nil {
		return false
	}
	w.slots[ref] = append(w.slots[ref], slot)
	return true
}

// add adds a block for a place in a list of n.
func (w *wanted) add(ref segment.BlockRef, slot, n int) {
	w.refs = append(w.refs, ref)
	if n > 1 && w.slots == nil {
		w.slots = make(map[segment.BlockRef][]int)
	}
	if w.slots != nil {
		w.slots[ref] = append(w.slots[ref], slot)
	}
}

// places returns where a block goes.
func (w *wanted) places(ref segment.BlockRef) []int {
	if w.slots == nil {
		return []int{0}
	}
	return w.slots[ref]
}

// readBlocks reads blocks, and puts them into the cache and into their places.
func (e *Engine) readBlocks(ctx context.Context, gen uint64, w *wanted, blocks []*cached) error {
	if len(w.refs) == 0 {
		return nil
	}
	read, err := e.journal.ReadBlocks(ctx, w.refs)
	if err != nil {
		return fmt.Errorf("read %d blocks from segment %d on: %w", len(w.refs), w.refs[0].Seq, err)
	}
	for i, ref := range w.refs {
		at := w.places(ref)
		b := e.cache.put(e.share, gen, ref, read[i], len(at))
		for _, slot := range at {
			blocks[slot] = b
		}
	}
	return nil
}

// awaitMost is how long a reader waits for blocks that others read: one of those may be slow to
// come from another site, or never come, for the sake of other blocks that they read with it.
const awaitMost = 50 * time.Millisecond

// awaitBlocks waits for blocks that others read. It reads those that the cache does not have then:
// they could not be read, there was no room for them, or it took too long.
func (e *Engine) awaitBlocks(ctx context.Context, gen uint64, w *wanted, blocks []*cached) error {
	if len(w.refs) == 0 {
		return nil
	}
	rest := wanted{slots: w.slots}
	patience, late := e.cfg.Clock.NewTimer(awaitMost), false
	defer patience.Stop()
	for i, ref := range w.refs {
		for wait := w.waits[i]; wait != nil && !late; {
			select {
			case <-wait:
				wait = nil
			case <-patience.Chan():
				late = true
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		b := e.cache.get(gen, ref, len(w.places(ref)))
		if b == nil {
			rest.refs = append(rest.refs, ref)
			continue
		}
		for _, slot := range w.places(ref) {
			blocks[slot] = b
		}
	}
	return e.readBlocks(ctx, gen, &rest, blocks)
}

// Blocks returns where the blocks of a file lie in the log, from its byte off on, up to limit of
// them. next is the byte to go on from; 0: there are no more.
func (e *Engine) Blocks(ctx context.Context, h volume.Handle, off uint64, limit int) (refs []segment.BlockRef, next uint64, err error) {
	_, err = read(ctx, e, place{op: "blocks", ino: h.Ino}, func(t *tree) (struct{}, error) {
		refs, next = nil, 0
		n, err := t.file(h)
		if err != nil {
			return struct{}{}, err
		}
		for x, err := range t.extents(n.ContentID(), off, endOfFile) {
			if err != nil {
				return struct{}{}, err
			}
			if len(refs) == limit {
				next = x.Off
				break
			}
			if n := len(refs); n == 0 || refs[n-1] != x.Ref {
				refs = append(refs, x.Ref)
			}
		}
		return struct{}{}, nil
	})
	return refs, next, err
}

// Seek implements volume.Reader.
func (e *Engine) Seek(ctx context.Context, r volume.Request, h volume.Handle, off uint64, hole bool) (uint64, error) {
	return read(ctx, e, place{op: "seek", ino: h.Ino}, func(t *tree) (uint64, error) {
		n, err := t.file(h)
		if err != nil {
			return 0, err
		}
		if !volume.PermitsIO(n.Attr, r.Caller, false) {
			return 0, volume.ErrAccess
		}
		if off >= n.Size {
			return 0, volume.ErrNoData
		}
		for x, err := range t.extents(n.ContentID(), off, endOfFile) {
			switch {
			case err != nil:
				return 0, err
			case !hole:
				return max(off, x.Off), nil
			case x.Off > off:
				return off, nil
			}
			off = x.End()
		}
		if !hole {
			return 0, volume.ErrNoData
		}
		return off, nil
	})
}
