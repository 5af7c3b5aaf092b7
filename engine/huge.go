// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// counted is how many recorded bytes a file has in a range, as of a change of the file.
type counted struct {
	content, change, off, end, bytes uint64
}

// countLeast is how long a range is that is worth counting before the critical section.
const countLeast = 16 << 20

// countAhead counts what a change will remove from a file, before its critical section: that may be
// millions of extents, while all others would wait. It returns nil if that is not worth it, or
// cannot be done. Then the change counts.
func (e *Engine) countAhead(ctx context.Context, h volume.Handle, off, end uint64) *counted {
	if h.Snap != 0 || e.home() != nil {
		return nil
	}
	c, err := read(Recent(ctx), e, place{op: "count", ino: h.Ino}, func(t *tree) (*counted, error) {
		n, err := t.file(h)
		end := end
		if err == nil {
			end = min(end, n.Size)
		}
		if err != nil || end < off+countLeast || off == 0 && end == n.Size {
			return nil, err
		}
		bytes, err := t.recordedIn(n, off, end)
		return &counted{n.ContentID(), n.Change, off, end, bytes}, err
	})
	if err != nil {
		return nil // the change meets the error again
	}
	return c
}

// of returns what was counted, if it still holds for n.
func (c *counted) of(n *meta.Inode, off, end uint64) (bytes uint64, ok bool) {
	if c == nil || c.content != n.ContentID() || c.change != n.Change || c.off != off || c.end != end {
		return 0, false
	}
	return c.bytes, true
}

// recordedIn returns how many recorded bytes n has in [off, end). It walks the range and what lies
// outside by turns, and ends when it has walked either: the inode says how many there are in all.
func (t *tree) recordedIn(n *meta.Inode, off, end uint64) (uint64, error) {
	inside, stop := iter.Pull2(t.extents(n.ContentID(), off, end))
	defer stop()
	before, stop := iter.Pull2(t.extents(n.ContentID(), 0, off))
	defer stop()
	after, stop := iter.Pull2(t.extents(n.ContentID(), end, math.MaxUint64))
	defer stop()
	var in, out uint64
	for {
		x, err, more := inside()
		if err != nil || !more {
			return in, err
		}
		in += min(x.End(), end) - max(x.Off, off)
		if x, err, more = before(); more && err == nil {
			out += min(x.End(), off) - x.Off
			continue
		}
		if err == nil {
			x, err, more = after()
		}
		switch {
		case err != nil:
			return 0, err
		case more:
			out += x.End() - max(x.Off, end)
		case out > n.Used:
			return 0, fmt.Errorf("inode %d uses %d bytes, %d are recorded: %w", n.Ino, n.Used, out, errDamaged)
		default:
			return n.Used - out, nil
		}
	}
}

// cutRange makes [off, end) of n a hole and returns how many recorded bytes that removes. One
// operation deletes all extents that begin in the range. Only those at its ends are looked at, and
// trimmed, unless c does not hold any more.
func (t *tx) cutRange(n *meta.Inode, off, end uint64, c *counted) (removed uint64, err error) {
	removed, ok := c.of(n, off, end)
	if !ok {
		if removed, err = t.recordedIn(n, off, end); err != nil {
			return 0, err
		}
	}
	if removed == 0 {
		return 0, nil
	}
	var edges []meta.Extent
	content := n.ContentID()
	for _, at := range []uint64{off, end - 1} { // an extent does not cross the border of a run
		for x, err := range t.extents(content, at, at+1) {
			if err != nil {
				return 0, err
			}
			edges = append(edges, x)
		}
	}
	lo, hi := meta.ExtentRange(content, off, end)
	if err := t.preserveRange(lo, hi); err != nil {
		return 0, err
	}
	t.deleteRange(lo, hi)
	for _, x := range edges {
		if x.Off < off {
			left := meta.Extent{Off: x.Off, Len: uint32(off - x.Off), Skip: x.Skip, Raw: x.Raw, Ref: x.Ref}
			t.set(left.Encode(content))
		}
		if x.End() > end {
			gone := uint32(end - x.Off)
			right := meta.Extent{Off: end, Len: x.Len - gone, Skip: x.Skip + gone, Raw: x.Raw, Ref: x.Ref}
			t.set(right.Encode(content))
		}
	}
	return removed, nil
}
