// SPDX-License-Identifier: Apache-2.0

package locktable

import (
	"cmp"
	"iter"
	"slices"

	"github.com/weir-storage/weir/volume"
)

// toEnd is the End of a lock that reaches to the end of the file, whatever its size.
const toEnd = ^uint64(0)

// file has the locks of one inode. The zero value has none. It is not safe for
// concurrent use.
type file struct {
	locks []volume.Lock // locktable-1 to locktable-3
}

// test returns nil, or the *volume.LockConflict with the lowest lock of another
// owner that forbids l.
func (f *file) test(l volume.Lock) error {
	for _, held := range f.locks {
		if held.Start > l.End {
			break
		}
		if held.End >= l.Start && held.Owner != l.Owner && (held.Exclusive || l.Exclusive) {
			return &volume.LockConflict{Held: held}
		}
	}
	return nil
}

// set grants l in place of what its owner had in that range. If test returns an
// error, set returns it and changes nothing.
func (f *file) set(l volume.Lock) error {
	if err := f.test(l); err != nil {
		return err
	}
	f.unlock(l)
	// Merge with the owner's neighbours of the same kind. At most one lock touches l
	// before it and one after it, because of locktable-2.
	f.locks = slices.DeleteFunc(f.locks, func(held volume.Lock) bool {
		if held.Owner != l.Owner || held.Exclusive != l.Exclusive {
			return false
		}
		switch {
		case held.End != toEnd && held.End+1 == l.Start:
			l.Start = held.Start
		case l.End != toEnd && l.End+1 == held.Start:
			l.End = held.End
		default:
			return false
		}
		return true
	})
	f.insert(l)
	return nil
}

// unlock takes l's range from l's owner, and reports whether the owner had a lock
// there. Locks that reach beyond the range are cut.
func (f *file) unlock(l volume.Lock) bool {
	var rest []volume.Lock
	n := len(f.locks)
	f.locks = slices.DeleteFunc(f.locks, func(held volume.Lock) bool {
		if held.Owner != l.Owner || held.End < l.Start || held.Start > l.End {
			return false
		}
		if held.Start < l.Start {
			left := held
			left.End = l.Start - 1
			rest = append(rest, left)
		}
		if held.End > l.End {
			right := held
			right.Start = l.End + 1
			rest = append(rest, right)
		}
		return true
	})
	found := len(f.locks) != n
	for _, r := range rest {
		f.insert(r)
	}
	return found
}

// releaseGateway drops every lock that gateway registered, and reports whether
// there was one.
func (f *file) releaseGateway(gateway string) bool {
	n := len(f.locks)
	f.locks = slices.DeleteFunc(f.locks, func(held volume.Lock) bool { return held.Owner.Gateway == gateway })
	return len(f.locks) != n
}

// count returns the number of locks.
func (f *file) count() int { return len(f.locks) }

// all yields the locks, ordered by Start. The file must not be changed meanwhile.
func (f *file) all() iter.Seq[volume.Lock] { return slices.Values(f.locks) }

func (f *file) insert(l volume.Lock) {
	i, _ := slices.BinarySearchFunc(f.locks, l, compare)
	f.locks = slices.Insert(f.locks, i, l)
}

// compare orders locks by Start. The owner only decides between shared locks that
// begin at the same byte.
func compare(a, b volume.Lock) int {
	return cmp.Or(
		cmp.Compare(a.Start, b.Start),
		cmp.Compare(a.Owner.Gateway, b.Owner.Gateway),
		cmp.Compare(a.Owner.Owner, b.Owner.Owner),
	)
}
