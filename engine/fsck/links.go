// SPDX-License-Identifier: Apache-2.0

package fsck

import (
	"math"
	"sort"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// linked is an inode whose names are looked for.
type linked struct {
	ino, gen, parent uint64 // parent: of a directory
	nlink, found     uint32
	kind             volume.Type // 0: the inode does not parse
}

// links checks that names lead to inodes, and inodes have as many names as they say (fsck-4). It
// takes some of the inodes at a time, and walks over all names for them.
func (s *state) links(what string) error {
	for from, more := uint64(0), true; more; {
		some, next, err := s.some(from)
		if err != nil {
			return err
		}
		if more = next != math.MaxUint64; more || from > 0 {
			s.step(what+", links", s.names)
		}
		if err := s.namesOf(some, from, next); err != nil {
			return err
		}
		for i := range some {
			if err := s.counted(&some[i]); err != nil {
				return err
			}
		}
		from = next
	}
	return nil
}

// some returns inodes from a number on, and the number that the next ones begin with, or
// math.MaxUint64.
func (s *state) some(from uint64) (out []linked, next uint64, err error) {
	_, hi := meta.AllOf(meta.Inodes)
	lo := meta.InodeKey(from)
	next = math.MaxUint64
	for p, err := range s.view.Range(lo[:9], hi) {
		if err != nil {
			return nil, 0, s.stop(err)
		}
		if err := s.tick(len(p.Key) + len(p.Value)); err != nil {
			return nil, 0, err
		}
		if len(p.Key) < 9 {
			continue
		}
		if len(out) == s.Entries {
			return out, meta.Of(p.Key), nil
		}
		l := linked{ino: meta.Of(p.Key)}
		if meta.CheckPair(p.Key, p.Value) == nil {
			n, err := meta.DecodeInode(p.Key, p.Value)
			if err != nil {
				return nil, 0, err
			}
			l.gen, l.nlink, l.kind = n.Gen, n.Nlink, n.Type
			if n.Type == volume.Directory {
				l.parent = n.Parent.Ino
			}
		}
		out = append(out, l)
	}
	return out, next, nil
}

// namesOf looks for the names that lead to inodes in [from, to), of which some are all.
func (s *state) namesOf(some []linked, from, to uint64) error {
	lo, hi := meta.AllOf(meta.Names)
	return s.each(s.view, lo, hi, func(p meta.Pair) error {
		if meta.CheckPair(p.Key, p.Value) != nil {
			return nil
		}
		dir := meta.Of(p.Key)
		d, err := meta.DecodeName(p.Key, p.Value, meta.XattrName(p.Key))
		if err != nil {
			return err
		}
		at := d.Handle.Ino
		if at < from || at >= to && to != math.MaxUint64 {
			return nil
		}
		i := sort.Search(len(some), func(i int) bool { return some[i].ino >= at })
		f := Finding{Inode: dir, below: d.Name, Kind: Name}
		if i == len(some) || some[i].ino != at {
			f.Detail = "the name leads to an inode that is not there"
			s.add(f)
			return nil
		}
		l := &some[i]
		l.found++
		if l.kind == 0 {
			return nil
		}
		switch {
		case d.Handle.Gen != l.gen:
			f.Detail = "the name leads to an inode of another generation"
		case d.Type != l.kind:
			f.Detail = "the name says another type than the inode has"
		case l.kind == volume.Directory && at == volume.Root.Ino:
			f.Detail = "the name leads to the root directory"
		case l.kind == volume.Directory && l.parent != dir:
			f.Kind, f.Detail = Parent, "the directory says that it is in another one"
		default:
			return nil
		}
		s.add(f)
		return nil
	})
}

// counted checks how many names an inode has.
func (s *state) counted(l *linked) error {
	want := l.nlink
	switch {
	case l.kind == 0 || l.ino == volume.Root.Ino:
		return nil
	case l.kind == volume.Directory && l.nlink > 0:
		want = 1
		up, err := s.lookup(l.parent)
		if err != nil {
			return err
		}
		if up != nil && up.Trash == l.ino { // no name leads to a trash
			want = 0
		}
	}
	if l.found != want {
		s.bad(Links, l.ino, "it has %d names, and should have %d", l.found, want)
	}
	return nil
}
