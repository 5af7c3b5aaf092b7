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

// File holds the locks of one inode. The zero value holds none. It is not safe
// for concurrent use.
type File struct {
	locks []volume.Lock // rules 1 to 3 of the package comment
}

// Test returns nil, or the *volume.LockConflict with the lowest lock of another
// owner that forbids l.
func (f *File) Test(l volume.Lock) error {
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

// Set grants l in place of whatever its owner held of that range, or returns
// what Test returns and changes nothing.
func (f *File) Set(l volume.Lock) error {
	if err := f.Test(l); err != nil {
		return err
	}
	f.Unlock(l)
	// Merge with the owner's neighbours of the same kind. What touches l is at
	// most one lock before it and one after it, because of rule 2.
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

// Unlock takes l's range from l's owner, cutting what reaches beyond it, and
// reports whether the owner held any of it.
func (f *File) Unlock(l volume.Lock) bool {
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

// Release drops every lock whose owner satisfies drop, and reports whether
// there was one.
func (f *File) Release(drop func(volume.LockOwner) bool) bool {
	n := len(f.locks)
	f.locks = slices.DeleteFunc(f.locks, func(held volume.Lock) bool { return drop(held.Owner) })
	return len(f.locks) != n
}

// Len returns how many locks are held.
func (f *File) Len() int { return len(f.locks) }

// All returns the locks by Start. The file must not be changed meanwhile.
func (f *File) All() iter.Seq[volume.Lock] { return slices.Values(f.locks) }

func (f *File) insert(l volume.Lock) {
	i, _ := slices.BinarySearchFunc(f.locks, l, compare)
	f.locks = slices.Insert(f.locks, i, l)
}

// compare orders locks by start; the owner only makes the order of shared locks
// that begin at one byte definite.
func compare(a, b volume.Lock) int {
	return cmp.Or(
		cmp.Compare(a.Start, b.Start),
		cmp.Compare(a.Owner.Gateway, b.Owner.Gateway),
		cmp.Compare(a.Owner.Owner, b.Owner.Owner),
	)
}
