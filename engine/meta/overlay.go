// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"bytes"

	"github.com/tidwall/btree"

	"github.com/weir-storage/weir/engine/segment"
)

// Overlay contains the effect of the log's pending records on the keys: the changes of a home that
// Pebble does not have yet (meta-4). An Overlay is not safe for concurrent use. Only Copy and its
// result may be used while another goroutine reads a copy.
type Overlay struct {
	points *btree.BTreeG[point]
	ranges *btree.BTreeG[span] // disjoint, ordered by lo
}

// point is the newest pending value of one key.
type point struct {
	key, value []byte
	gone       bool
	pos        segment.Position
}

// span is a range of keys that a pending record deleted.
type span struct {
	lo, hi []byte // hi is exclusive
	pos    segment.Position
}

// NewOverlay returns an empty overlay.
func NewOverlay() *Overlay {
	opts := btree.Options{NoLocks: true}
	return &Overlay{
		points: btree.NewBTreeGOptions(func(a, b point) bool { return bytes.Compare(a.key, b.key) < 0 }, opts),
		ranges: btree.NewBTreeGOptions(func(a, b span) bool { return bytes.Compare(a.lo, b.lo) < 0 }, opts),
	}
}

// Empty reports whether o changes nothing.
func (o *Overlay) Empty() bool { return o.points.Len() == 0 && o.ranges.Len() == 0 }

// Copy returns a copy that does not change with o. It takes constant time.
func (o *Overlay) Copy() *Overlay {
	return &Overlay{points: o.points.Copy(), ranges: o.ranges.Copy()}
}

// Apply adds the operations of the record that ends at pos, which must be the newest. The
// operations must be resolved. o keeps their keys and values.
func (o *Overlay) Apply(ops []segment.Op, pos segment.Position) {
	for _, op := range ops {
		switch op.Kind {
		case segment.Set:
			o.points.Set(point{key: op.Key, value: op.Value, pos: pos})
		case segment.Delete:
			o.points.Set(point{key: op.Key, gone: true, pos: pos})
		case segment.DeleteRange:
			o.deleteRange(op.Key, op.End, pos)
		}
	}
}

// deleteRange removes what lies in [lo, hi) and marks the range as deleted.
func (o *Overlay) deleteRange(lo, hi []byte, pos segment.Position) {
	if bytes.Compare(lo, hi) >= 0 {
		return
	}
	var keys [][]byte
	o.points.Ascend(point{key: lo}, func(p point) bool {
		if bytes.Compare(p.key, hi) >= 0 {
			return false
		}
		keys = append(keys, p.key)
		return true
	})
	for _, k := range keys {
		o.points.Delete(point{key: k})
	}
	for _, s := range o.overlapping(lo, hi) {
		o.ranges.Delete(s)
		if bytes.Compare(s.lo, lo) < 0 {
			o.ranges.Set(span{lo: s.lo, hi: lo, pos: s.pos})
		}
		if bytes.Compare(s.hi, hi) > 0 {
			o.ranges.Set(span{lo: hi, hi: s.hi, pos: s.pos})
		}
	}
	o.ranges.Set(span{lo: lo, hi: hi, pos: pos})
}

// overlapping returns the ranges that share a key with [lo, hi).
func (o *Overlay) overlapping(lo, hi []byte) []span {
	var found []span
	if s, ok := o.covering(lo); ok {
		found = append(found, s)
	}
	o.ranges.Ascend(span{lo: lo}, func(s span) bool {
		if bytes.Compare(s.lo, hi) >= 0 {
			return false
		}
		if len(found) == 0 || !bytes.Equal(found[0].lo, s.lo) {
			found = append(found, s)
		}
		return true
	})
	return found
}

// covering returns the range that contains k.
func (o *Overlay) covering(k []byte) (s span, ok bool) {
	o.ranges.Descend(span{lo: k}, func(r span) bool {
		s, ok = r, bytes.Compare(k, r.hi) < 0
		return false
	})
	return s, ok
}

// Drop forgets the operations of a record that is now in Pebble. applied is the applied position,
// at or after the record's end.
func (o *Overlay) Drop(ops []segment.Op, applied segment.Position) {
	for _, op := range ops {
		if op.Kind == segment.DeleteRange {
			for _, s := range o.overlapping(op.Key, op.End) {
				if s.pos.Compare(applied) <= 0 {
					o.ranges.Delete(s)
				}
			}
			continue
		}
		if p, ok := o.points.Get(point{key: op.Key}); ok && p.pos.Compare(applied) <= 0 {
			o.points.Delete(p)
		}
	}
}

// Has reports whether a pending record decides what k has.
func (o *Overlay) Has(k []byte) bool {
	if o.Empty() {
		return false
	}
	_, _, known, _ := o.get(bytes.Clone(k)) // so k may lie on the caller's stack
	return known
}

// Touches reports whether a pending record may decide what keys in [lo, hi) have.
func (o *Overlay) Touches(lo, hi []byte) (found bool) {
	if o.Empty() {
		return false
	}
	o.points.Ascend(point{key: lo}, func(p point) bool {
		found = bytes.Compare(p.key, hi) < 0
		return false
	})
	return found || len(o.overlapping(lo, hi)) > 0
}

// get returns what o knows about k. known is false if only Pebble knows.
func (o *Overlay) get(k []byte) (value []byte, exists, known bool, pos segment.Position) {
	if p, ok := o.points.Get(point{key: k}); ok {
		return p.value, !p.gone, true, p.pos
	}
	if s, ok := o.covering(k); ok {
		return nil, false, true, s.pos
	}
	return nil, false, false, segment.Position{}
}
