// SPDX-License-Identifier: Apache-2.0

package fsck

import (
	"iter"
	"math"

	"github.com/weir-storage/weir/engine/meta"
)

// cursor walks over a range, one pair at a time. It leaves out what does not parse, which allPairs
// tells.
type cursor struct {
	c    *checker
	next func() (meta.Pair, error, bool)
	stop func()
	pair meta.Pair // valid until the next step
	of   uint64    // number of what the pair is for; math.MaxUint64: there is none
	bad  bool      // the pair does not parse
}

// walk begins at the first pair of a range of a table whose keys begin with a number. The caller
// calls stop.
func (c *checker) walk(v *meta.View, lo, hi []byte) (*cursor, error) {
	u := &cursor{c: c}
	u.next, u.stop = iter.Pull2(v.Range(lo, hi))
	if err := u.step(); err != nil {
		u.stop()
		return nil, err
	}
	return u, nil
}

// step goes to the next pair.
func (u *cursor) step() error {
	p, err, ok := u.next()
	if err != nil {
		return u.c.stop(err)
	}
	if !ok {
		u.pair, u.of = meta.Pair{}, math.MaxUint64
		return nil
	}
	u.pair, u.bad = p, meta.CheckPair(p.Key, p.Value) != nil
	if len(p.Key) < 9 {
		return u.step() // its key is malformed
	}
	u.of = meta.Of(p.Key)
	return u.c.tick(len(p.Key) + len(p.Value))
}

// each calls f with the pairs of one number that parse, and steps beyond all of that number. It
// returns how many there were, and whether all parse.
func (u *cursor) each(of uint64, f func(p meta.Pair) error) (n uint64, whole bool, err error) {
	whole = true
	for u.of == of && of != math.MaxUint64 {
		if u.bad {
			whole = false
		} else if err := f(u.pair); err != nil {
			return n, whole, err
		}
		n++
		if err := u.step(); err != nil {
			return n, whole, err
		}
	}
	return n, whole, nil
}
