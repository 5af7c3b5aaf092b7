// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"iter"

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
// reads those that are not in the cache, under the namespace gen. The caller says done for all in
// the list, also after an error.
func (e *Engine) blocks(ctx context.Context, gen uint64, extents []meta.Extent, blocks []*cached) ([]*cached, error) {
	var missing []segment.BlockRef
	var slots map[segment.BlockRef][]int // where in blocks those go; nil: the only one goes to the only place
	if len(extents) > 1 {
		slots = make(map[segment.BlockRef][]int)
	}
	for i, x := range extents {
		b := e.cache.get(gen, x.Ref)
		blocks = append(blocks, b)
		if b != nil {
			continue
		}
		if slots[x.Ref] == nil {
			missing = append(missing, x.Ref)
		}
		if slots != nil {
			slots[x.Ref] = append(slots[x.Ref], i)
		}
	}
	if len(missing) > 0 {
		read, err := e.journal.ReadBlocks(ctx, missing)
		if err != nil {
			return blocks, fmt.Errorf("read %d blocks from segment %d on: %w", len(missing), missing[0].Seq, err)
		}
		for i, ref := range missing {
			if slots == nil {
				blocks[0] = e.cache.put(e.share, gen, ref, read[i], 1)
				break
			}
			b := e.cache.put(e.share, gen, ref, read[i], len(slots[ref]))
			for _, slot := range slots[ref] {
				blocks[slot] = b
			}
		}
	}
	for i, x := range extents {
		if _, err := pack.Slice(blocks[i].data, x.Raw, x.Skip, x.Len); err != nil {
			return blocks, fmt.Errorf("block at %d/%d: %w: %w", x.Ref.Seq, x.Ref.Off, err, errDamaged)
		}
	}
	return blocks, nil
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
