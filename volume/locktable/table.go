// SPDX-License-Identifier: Apache-2.0

// Package locktable holds the byte-range locks of a volume in memory. It only
// decides: there is no waiting, no time and no input or output in it. memvol and
// a home's lock registry use it.
//
// Rules, which hold after every method and which Check verifies:
//
//  1. The locks of a file are ordered by Start, then by owner; Start <= End.
//  2. The locks of one owner on one file do not overlap, and two that touch
//     differ in kind (else they would be one).
//  3. Two locks of different owners overlap only if both are shared.
//  4. A table has no entry for a file without locks.
//
// Setting a lock replaces what its owner held of that range, as fcntl does: it
// splits, merges, upgrades and downgrades (POSIX fcntl F_SETLK; RFC 8881,
// section 18.10). An owner never conflicts with itself.
package locktable

import (
	"fmt"
	"iter"

	"github.com/weir-storage/weir/volume"
)

// Table holds the locks of a volume. The zero value holds none. It is not safe
// for concurrent use.
type Table struct {
	files map[volume.Handle]*File
}

// Set grants l on h, replacing what its owner held of the range, or returns the
// *volume.LockConflict that forbids it.
func (t *Table) Set(h volume.Handle, l volume.Lock) error {
	f := t.files[h]
	if f == nil {
		if t.files == nil {
			t.files = make(map[volume.Handle]*File)
		}
		f = new(File)
		t.files[h] = f
	}
	return f.Set(l)
}

// Test returns nil or the *volume.LockConflict that Set would return.
func (t *Table) Test(h volume.Handle, l volume.Lock) error {
	if f := t.files[h]; f != nil {
		return f.Test(l)
	}
	return nil
}

// Unlock takes l's range on h from l's owner and reports whether it held any of it.
func (t *Table) Unlock(h volume.Handle, l volume.Lock) bool {
	f := t.files[h]
	if f == nil {
		return false
	}
	found := f.Unlock(l)
	t.prune(h, f)
	return found
}

// ReleaseFile drops all locks on h, whose inode is gone.
func (t *Table) ReleaseFile(h volume.Handle) { delete(t.files, h) }

// ReleaseOwner drops everything that owner holds and reports whether it held anything.
func (t *Table) ReleaseOwner(owner volume.LockOwner) bool {
	return t.release(func(o volume.LockOwner) bool { return o == owner })
}

// ReleaseGateway drops everything that was registered by gateway and reports
// whether there was anything.
func (t *Table) ReleaseGateway(gateway string) bool {
	return t.release(func(o volume.LockOwner) bool { return o.Gateway == gateway })
}

// Len returns how many locks are held.
func (t *Table) Len() int {
	n := 0
	for _, f := range t.files {
		n += f.Len()
	}
	return n
}

// All returns every lock, those of one file together and by Start. The table
// must not be changed meanwhile.
func (t *Table) All() iter.Seq2[volume.Handle, volume.Lock] {
	return func(yield func(volume.Handle, volume.Lock) bool) {
		for h, f := range t.files {
			for l := range f.All() {
				if !yield(h, l) {
					return
				}
			}
		}
	}
}

// Check returns an error that names the first rule of the package comment that
// does not hold.
func (t *Table) Check() error {
	for h, f := range t.files {
		if f.Len() == 0 {
			return fmt.Errorf("locktable inode %d: rule 4: an entry without locks", h.Ino)
		}
		if err := f.Check(); err != nil {
			return fmt.Errorf("locktable inode %d: %w", h.Ino, err)
		}
	}
	return nil
}

// Check returns an error that names the first rule of the package comment that
// does not hold.
func (f *File) Check() error {
	for i, a := range f.locks {
		if a.Start > a.End {
			return fmt.Errorf("rule 1: lock %+v ends before it starts", a)
		}
		for j, b := range f.locks[i+1:] {
			overlap := b.Start <= a.End && a.Start <= b.End
			touch := a.End != toEnd && a.End+1 == b.Start
			switch {
			case j == 0 && compare(a, b) > 0:
				return fmt.Errorf("rule 1: %+v is kept before %+v", a, b)
			case a.Owner == b.Owner && (overlap || touch && a.Exclusive == b.Exclusive):
				return fmt.Errorf("rule 2: %+v and %+v of one owner", a, b)
			case a.Owner != b.Owner && overlap && (a.Exclusive || b.Exclusive):
				return fmt.Errorf("rule 3: %+v and %+v conflict", a, b)
			}
		}
	}
	return nil
}

func (t *Table) release(drop func(volume.LockOwner) bool) bool {
	found := false
	for h, f := range t.files {
		found = f.Release(drop) || found
		t.prune(h, f)
	}
	return found
}

func (t *Table) prune(h volume.Handle, f *File) {
	if f.Len() == 0 {
		delete(t.files, h)
	}
}
