// SPDX-License-Identifier: Apache-2.0

// Package locktable keeps the byte-range locks of a volume in memory. It only
// decides: it does not wait, reads no clock, and does no input or output. memvol and
// the home's lock registry use it.
//
// These rules are true after every method, and Check verifies them:
//
//   - locktable-1. The locks of a file are ordered by Start, then by owner. No lock
//     ends before it starts.
//   - locktable-2. The locks of one owner on one file do not overlap. Two that touch
//     differ in kind, since otherwise they would be one.
//   - locktable-3. Two locks of different owners overlap only if both are shared.
//   - locktable-4. A table has no entry for a file without locks.
//
// A new lock replaces what its owner had in that range, as with fcntl. So locks are
// split, merged, upgraded and downgraded (POSIX fcntl, F_SETLK; RFC 8881 section
// 18.10). An owner never conflicts with itself.
package locktable

import (
	"fmt"
	"iter"

	"github.com/weir-storage/weir/volume"
)

// Table has the locks of a volume. The zero value has none. It is not safe for
// concurrent use.
type Table struct {
	files map[volume.Handle]*file
}

// Set grants l on h in place of what its owner had in that range, or returns the
// *volume.LockConflict that forbids it.
func (t *Table) Set(h volume.Handle, l volume.Lock) error {
	f := t.files[h]
	if f == nil {
		if t.files == nil {
			t.files = make(map[volume.Handle]*file)
		}
		f = new(file)
		t.files[h] = f
	}
	return f.set(l)
}

// Test returns nil or the *volume.LockConflict that Set would return.
func (t *Table) Test(h volume.Handle, l volume.Lock) error {
	if f := t.files[h]; f != nil {
		return f.test(l)
	}
	return nil
}

// Unlock takes l's range on h from l's owner, and reports whether the owner had a
// lock there.
func (t *Table) Unlock(h volume.Handle, l volume.Lock) bool {
	f := t.files[h]
	if f == nil {
		return false
	}
	found := f.unlock(l)
	t.prune(h, f)
	return found
}

// ReleaseFile drops all locks on h, whose inode is gone.
func (t *Table) ReleaseFile(h volume.Handle) { delete(t.files, h) }

// ReleaseGateway drops all locks that gateway registered, and reports whether there
// were any.
func (t *Table) ReleaseGateway(gateway string) bool {
	found := false
	for h, f := range t.files {
		found = f.releaseGateway(gateway) || found
		t.prune(h, f)
	}
	return found
}

// Len returns the number of locks.
func (t *Table) Len() int {
	n := 0
	for _, f := range t.files {
		n += f.count()
	}
	return n
}

// All yields every lock. The locks of one file come together, ordered by Start. The
// table must not be changed meanwhile.
func (t *Table) All() iter.Seq2[volume.Handle, volume.Lock] {
	return func(yield func(volume.Handle, volume.Lock) bool) {
		for h, f := range t.files {
			for l := range f.all() {
				if !yield(h, l) {
					return
				}
			}
		}
	}
}

// Check returns an error that names the first rule of the package comment that is
// broken.
func (t *Table) Check() error {
	for h, f := range t.files {
		if f.count() == 0 {
			return fmt.Errorf("locktable inode %d: locktable-4: an entry without locks", h.Ino)
		}
		if err := f.check(); err != nil {
			return fmt.Errorf("locktable inode %d: %w", h.Ino, err)
		}
	}
	return nil
}

// check returns an error that names the first of locktable-1 to 3 that is broken.
func (f *file) check() error {
	for i, a := range f.locks {
		if a.Start > a.End {
			return fmt.Errorf("locktable-1: lock %+v ends before it starts", a)
		}
		for j, b := range f.locks[i+1:] {
			overlap := b.Start <= a.End && a.Start <= b.End
			touch := a.End != toEnd && a.End+1 == b.Start
			switch {
			case j == 0 && compare(a, b) > 0:
				return fmt.Errorf("locktable-1: %+v is kept before %+v", a, b)
			case a.Owner == b.Owner && (overlap || touch && a.Exclusive == b.Exclusive):
				return fmt.Errorf("locktable-2: %+v and %+v of one owner", a, b)
			case a.Owner != b.Owner && overlap && (a.Exclusive || b.Exclusive):
				return fmt.Errorf("locktable-3: %+v and %+v conflict", a, b)
			}
		}
	}
	return nil
}

func (t *Table) prune(h volume.Handle, f *file) {
	if f.count() == 0 {
		delete(t.files, h)
	}
}
