// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"bytes"
	"errors"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weir-storage/weir/engine/segment"
)

// View is the keys and values at one moment: Pebble, and an overlay over it if there is one. One
// goroutine may use it at a time.
type View struct {
	over *Overlay // nil: none
	base pebble.Reader
	snap *pebble.Snapshot // closed by Close; nil if base is the database itself, or of a Moment
	of   *Moment          // whose snapshot base is; nil: of none
	past *Snapshot        // the view shows the volume as of it; nil: the present
	rows Rows             // nil: none
}

// Rows keeps values that views have read from Pebble. Its methods may be called from any goroutine.
// Nobody changes the keys and values that it gets and returns.
type Rows interface {
	// Get returns the value that Pebble has for key in the view, if that is known.
	Get(key []byte) (value []byte, ok bool)
	// Put tells what Pebble has for key in the view. key is not kept.
	Put(key, value []byte)
}

// Keep has the view ask r before it asks Pebble. It is called before the view is used.
func (v *View) Keep(r Rows) { v.rows = r }

// Close releases the view's snapshot.
func (v *View) Close() error {
	switch {
	case v.of != nil:
		return v.of.Release()
	case v.snap != nil:
		return v.snap.Close()
	}
	return nil
}

// Get returns the value of k, and reports whether there is one. The caller must not change the
// value. pos is the end of the pending record that decided it, or zero if Pebble did.
func (v *View) Get(k []byte) (value []byte, ok bool, pos segment.Position, err error) {
	if v.past != nil && versioned(Table(k[0])) {
		value, ok, err := v.getPast(k)
		return value, ok, segment.Position{}, err
	}
	if v.over != nil {
		if value, ok, known, pos := v.over.get(k); known {
			return value, ok, pos, nil
		}
	}
	if v.rows != nil {
		if value, ok := v.rows.Get(k); ok {
			return value, true, segment.Position{}, nil
		}
	}
	b, closer, err := v.base.Get(k)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, segment.Position{}, nil
	}
	if err != nil {
		return nil, false, segment.Position{}, err
	}
	value = bytes.Clone(b)
	if v.rows != nil {
		v.rows.Put(k, value)
	}
	return value, true, segment.Position{}, closer.Close()
}

// Pair is a key with its value. Both are valid until the next step of the iteration that returned
// them.
type Pair struct{ Key, Value []byte }

// Range iterates over the keys in [lo, hi) in order. An error ends the iteration and comes last.
func (v *View) Range(lo, hi []byte) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		if v.past != nil && versioned(Table(lo[0])) {
			v.rangePast(lo, hi, yield)
			return
		}
		it, err := v.base.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
		if err != nil {
			yield(Pair{}, err)
			return
		}
		more := true
		if v.over == nil || v.over.Empty() {
			for ok := it.First(); ok && more; ok = it.Next() {
				more = yieldBase(it, yield)
			}
		} else {
			more = v.merge(it, lo, hi, yield)
		}
		if err := errors.Join(it.Error(), it.Close()); err != nil && more {
			yield(Pair{}, err)
		}
	}
}

// merge walks the overlay and it together, and stops at an error of it. It returns false if the
// consumer stopped.
func (v *View) merge(it *pebble.Iterator, lo, hi []byte, yield func(Pair, error) bool) bool {
	points := v.over.points.Iter()
	defer points.Release()
	pending := points.Seek(point{key: lo}) && bytes.Compare(points.Item().key, hi) < 0
	stored := it.First()
	for pending || stored {
		if !stored && it.Error() != nil {
			return true // the overlay's next key need not be the next key of the view
		}
		order := -1 // compares the pending key with the stored one
		if !pending {
			order = 1
		} else if stored {
			order = bytes.Compare(points.Item().key, it.Key())
		}
		if order > 0 {
			if s, ok := v.over.covering(it.Key()); ok {
				stored = it.SeekGE(s.hi)
				continue
			}
			if !yieldBase(it, yield) {
				return false
			}
			stored = it.Next()
			continue
		}
		p := points.Item()
		if !p.gone && !yield(Pair{p.key, p.value}, nil) {
			return false
		}
		if order == 0 {
			stored = it.Next()
		}
		pending = points.Next() && bytes.Compare(points.Item().key, hi) < 0
	}
	return true
}

func yieldBase(it *pebble.Iterator, yield func(Pair, error) bool) bool {
	value, err := it.ValueAndErr()
	if err != nil {
		yield(Pair{}, err)
		return false
	}
	return yield(Pair{it.Key(), value}, nil)
}
