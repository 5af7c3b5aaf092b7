// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"math"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// run is the size of the aligned runs of a file that an extent lies in (meta-3).
const run = segment.MaxBlock

// maxPoints is the largest number of extents that a write deletes one by one. That costs later
// reads less than a range does.
const maxPoints = 512

// piece is a part of a write that becomes one block.
type piece struct {
	off uint64
	raw []byte
}

// split cuts data at multiples of size, which a run is a multiple of.
func split(off uint64, data []byte, size int) []piece {
	var pieces []piece
	for len(data) > 0 {
		n := min(len(data), size-int(off%uint64(size)))
		pieces = append(pieces, piece{off, data[:n]})
		off, data = off+uint64(n), data[n:]
	}
	return pieces
}

// Write implements volume.Changer.
func (e *Engine) Write(ctx context.Context, r volume.Request, h volume.Handle,
	off uint64, data []byte, stable bool) (volume.Written, error) {
	w, _, err := e.WriteAt(ctx, r, h, off, data, stable)
	return w, err
}

// WriteAt is Write that also returns the end of the write's record. The position is zero if the
// write has no record, or one that is applied.
func (e *Engine) WriteAt(ctx context.Context, r volume.Request, h volume.Handle,
	off uint64, data []byte, stable bool) (volume.Written, segment.Position, error) {
	p := place{op: "write", ino: h.Ino}
	fail := func(err error) (volume.Written, segment.Position, error) {
		return volume.Written{}, segment.Position{}, e.wrap(p, err)
	}
	if len(data) > volume.MaxIO {
		return fail(volume.ErrInvalid)
	}
	if off > volume.MaxSize || uint64(len(data)) > volume.MaxSize-off {
		return fail(volume.ErrTooBig)
	}
	if err := e.home(); err != nil {
		return fail(err)
	}
	done, err := e.largeWrite(ctx, r, len(data))
	if err != nil {
		return fail(err)
	}
	defer done()
	// Compressing and sealing take the longest, so they are done before the critical section.
	tuned := e.tuned.Load()
	pieces := split(off, data, tuned.BlockSize)
	blocks := make([]segment.Block, len(pieces))
	for i, s := range pieces {
		blocks[i].Raw = s.raw
	}
	release := segment.PackAll(blocks, tuned.Compression)
	e.journal.SealAhead(blocks)
	w, pos, err := changeAt(ctx, e, r, p, writtenResult, !stable, func(t *tx) (volume.Written, error) {
		n, err := t.file(h)
		switch {
		case err != nil:
			return volume.Written{}, err
		case e.readOnly.Load():
			return volume.Written{}, volume.ErrReadOnly
		case !volume.PermitsIO(n.Attr, r.Caller, true):
			return volume.Written{}, volume.ErrAccess
		}
		if len(data) > 0 {
			if err := t.write(n, r.Caller, pieces, blocks); err != nil {
				return volume.Written{}, err
			}
		}
		return volume.Written{Attr: n.Attr, Verifier: e.cfg.Verifier(e.epoch)}, nil
	})
	release() // Append has returned
	return w, pos, err
}

const (
	// largeLeast is how many bytes a large write has at least.
	largeLeast = 256 << 10
	// largeMost is how many large writes of a volume are under way. Each has its bytes packed, and
	// sealed, in memory: about 2 MiB.
	largeMost = 16
)

// largeWrite waits until a write of n bytes may begin, if it is a large one. The caller calls done
// at its end. The error is that of ctx, or of yielding.
func (e *Engine) largeWrite(ctx context.Context, r volume.Request, n int) (done func(), err error) {
	if n < largeLeast {
		return func() {}, nil
	}
	free, end := patient(ctx, r)
	defer end()
	select {
	case e.large <- struct{}{}:
		return func() { <-e.large }, nil
	case <-free.Done():
		return nil, free.Err()
	}
}

// write makes the operations of a write that was checked.
func (t *tx) write(n *meta.Inode, c volume.Caller, pieces []piece, blocks []segment.Block) error {
	last := pieces[len(pieces)-1]
	off, end := pieces[0].off, last.off+uint64(len(last.raw))
	removed, err := t.cut(n.ContentID(), off, end)
	if err != nil {
		return err
	}
	grown := int64(end-off) - int64(removed)
	if err := t.account(grown, 0); err != nil {
		return err
	}
	for i, s := range pieces {
		x := meta.Extent{Off: s.off, Len: uint32(len(s.raw)), Raw: uint32(len(s.raw))}
		key, head := x.EncodeHead(n.ContentID())
		t.setBlock(key, head, i)
	}
	t.blocks = blocks
	number, err := t.number()
	if err != nil {
		return err
	}
	n.Used += uint64(grown)
	volume.ApplyWrite(&n.Attr, c, end, t.now)
	n.Change = number
	t.changed(n)
	return nil
}

// Punch implements volume.Changer.
func (e *Engine) Punch(ctx context.Context, r volume.Request, h volume.Handle, off, size uint64) (volume.Attr, error) {
	p := place{op: "punch", ino: h.Ino}
	var ahead *counted
	if off+size > off {
		ahead = e.countAhead(ctx, h, off, off+size)
	}
	return change(ctx, e, r, p, attrResult, false, func(t *tx) (volume.Attr, error) {
		if off+size < off {
			return volume.Attr{}, volume.ErrInvalid
		}
		n, err := t.file(h)
		switch {
		case err != nil:
			return volume.Attr{}, err
		case e.readOnly.Load():
			return volume.Attr{}, volume.ErrReadOnly
		case !volume.PermitsIO(n.Attr, r.Caller, true):
			return volume.Attr{}, volume.ErrAccess
		case size == 0 || off >= n.Size:
			return n.Attr, nil
		}
		if err := t.punch(n, off, min(off+size, n.Size), ahead); err != nil {
			return volume.Attr{}, err
		}
		number, err := t.number()
		if err != nil {
			return volume.Attr{}, err
		}
		volume.ApplyWrite(&n.Attr, r.Caller, 0, t.now)
		n.Change = number
		t.changed(n)
		return n.Attr, nil
	})
}

// punch makes [off, end) of n a hole. ahead is what was counted before; nil: nothing was.
func (t *tx) punch(n *meta.Inode, off, end uint64, ahead *counted) error {
	removed := n.Used
	if off == 0 && end >= n.Size {
		if err := t.empty(n); err != nil {
			return err
		}
	} else {
		var err error
		if removed, err = t.cutRange(n, off, end, ahead); err != nil {
			return err
		}
	}
	if removed > n.Used {
		return fmt.Errorf("inode %d uses %d bytes, %d are to go: %w", n.Ino, n.Used, removed, errDamaged)
	}
	n.Used -= removed
	t.changed(n)
	return t.account(-int64(removed), 0)
}

// cut removes [off, end) from the extents of a content and returns how many recorded bytes that
// removes. It trims extents that reach out of the range. If there are very many extents, one
// operation deletes all that begin in the range, because the record could otherwise become too
// large for the log.
func (t *tx) cut(content, off, end uint64) (removed uint64, err error) {
	var left, right *meta.Extent
	var starts []uint64
	for x, err := range t.extents(content, off, end) {
		if err != nil {
			return 0, err
		}
		removed += min(x.End(), end) - max(x.Off, off)
		if x.Off >= off {
			starts = append(starts, x.Off)
		} else {
			left = &meta.Extent{Off: x.Off, Len: uint32(off - x.Off), Skip: x.Skip, Raw: x.Raw, Ref: x.Ref}
		}
		if x.End() > end {
			gone := uint32(end - x.Off)
			right = &meta.Extent{Off: end, Len: x.Len - gone, Skip: x.Skip + gone, Raw: x.Raw, Ref: x.Ref}
		}
	}
	if len(starts) > maxPoints {
		lo, hi := meta.ExtentRange(content, off, end)
		if err := t.preserveRange(lo, hi); err != nil {
			return 0, err
		}
		t.deleteRange(lo, hi)
	} else {
		for _, start := range starts {
			t.delete(meta.ExtentKey(content, start))
		}
	}
	if left != nil {
		t.set(left.Encode(content))
	}
	if right != nil {
		t.set(right.Encode(content))
	}
	return removed, nil
}

// Commit implements volume.Changer. It changes nothing, so it has no record.
func (e *Engine) Commit(ctx context.Context, r volume.Request, h volume.Handle) (volume.Verifier, error) {
	p := place{op: "commit", ino: h.Ino}
	ctx, end := patient(ctx, r)
	defer end()
	if err := e.home(); err != nil {
		return volume.Verifier{}, e.wrap(p, err)
	}
	e.mu.Lock()
	epoch, pos := e.epoch, e.data[h.Ino]
	if names := e.names[h.Ino]; pos.Less(names) {
		pos = names
	}
	e.mu.Unlock()
	_, err := read(ctx, e, p, func(t *tree) (struct{}, error) {
		_, err := t.file(h)
		return struct{}{}, err
	})
	if err != nil {
		return volume.Verifier{}, err
	}
	if err := e.waitCommitted(ctx, pos); err != nil {
		return volume.Verifier{}, e.wrap(p, err)
	}
	// What was written in an earlier epoch is committed or lost, and the verifier of this epoch
	// shows that. A gateway whose role ended meanwhile does not answer.
	if now, err := e.verifiedEpoch(); err != nil || now != epoch {
		return volume.Verifier{}, e.wrap(p, journal.ErrNotHome)
	}
	return e.cfg.Verifier(epoch), nil
}

// home returns journal.ErrNotHome unless this gateway leads.
func (e *Engine) home() error {
	_, err := e.verifiedEpoch()
	return err
}

// verifiedEpoch returns the epoch in which this gateway leads, or journal.ErrNotHome.
func (e *Engine) verifiedEpoch() (uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.leading {
		return 0, journal.ErrNotHome
	}
	return e.epoch, nil
}

// endOfFile is beyond every offset of a file.
const endOfFile = math.MaxUint64
