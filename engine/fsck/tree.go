// SPDX-License-Identifier: Apache-2.0

package fsck

import (
	"fmt"
	"hash/maphash"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// state is the volume as it is, or as it was in a snapshot, while it is checked.
type state struct {
	*checker
	view  *meta.View
	snap  meta.Snapshot // its Gen is 0 in the present
	used  meta.Accounting
	names uint64 // entries by name
	whole bool   // all of it parses
	loose set    // contents with extents that are not of the inode of that number; see content.go
	given set    // contents with extents of inodes of another number

	inodes, entries, cookies, targets, xattrs, orphans, extents *cursor
}

// set is a sum over a set, or over several of the same thing, that hardly any other has.
type set struct{ n, sum, xor uint64 }

func (s *set) add(h uint64) {
	s.n++
	s.sum += h
	s.xor ^= h
}

// present checks the volume as it is.
func (c *checker) present() error {
	s := &state{checker: c, view: c.View}
	if err := s.check("the volume"); err != nil {
		return err
	}
	was := c.report.Stored
	if was.Counted {
		s.used.Held, s.used.Counted = c.held, true
	}
	c.report.Inodes, c.report.Names, c.report.Recount = s.used.Inodes, s.names, s.used
	c.report.Counted = s.whole && !c.dirty
	if c.report.Counted && was != s.used {
		c.add(Finding{Kind: Quota, Detail: fmt.Sprintf(
			"the volume counts %d bytes, %d inodes and %d bytes that only snapshots hold, it has %d, %d and %d",
			was.Bytes, was.Inodes, was.Held, s.used.Bytes, s.used.Inodes, s.used.Held)})
	}
	return s.contents()
}

// past checks each snapshot that has a name.
func (c *checker) past() error {
	for _, snap := range c.kept {
		if snap.Moment {
			continue
		}
		s := &state{checker: c, view: c.View.At(snap), snap: snap}
		if err := s.check("snapshot " + snap.Name); err != nil {
			return err
		}
		if s.whole && !c.dirty && s.used != snap.Used {
			s.add(Finding{Kind: Quota, Inode: volume.Root.Ino,
				Advice: "it shows in listings of snapshots only, unless the volume is rolled back to it",
				Detail: fmt.Sprintf("the snapshot counts %d bytes and %d inodes, it has %d and %d",
					snap.Used.Bytes, snap.Used.Inodes, s.used.Bytes, s.used.Inodes)})
		}
	}
	return nil
}

// add notes a finding in this state.
func (s *state) add(f Finding) {
	f.snap = s.snap.Gen
	s.checker.add(f)
}

func (s *state) bad(k Kind, ino uint64, format string, args ...any) {
	s.add(Finding{Kind: k, Inode: ino, Detail: fmt.Sprintf(format, args...)})
}

// check walks over all that inodes have, and then over names.
func (s *state) check(what string) error {
	s.whole = true
	total := s.report.Pairs
	if s.snap.Gen != 0 {
		total = 0
	}
	s.step(what, total)
	for table, at := range map[meta.Table]**cursor{
		meta.Inodes: &s.inodes, meta.Names: &s.entries, meta.Cookies: &s.cookies, meta.Targets: &s.targets,
		meta.Xattrs: &s.xattrs, meta.Orphans: &s.orphans, meta.Extents: &s.extents,
	} {
		lo, hi := meta.AllOf(table)
		u, err := s.walk(s.view, lo, hi)
		if err != nil {
			return err
		}
		defer u.stop()
		*at = u
	}
	for {
		of := min(s.inodes.of, s.entries.of, s.cookies.of, s.targets.of, s.xattrs.of, s.orphans.of)
		if of == ^uint64(0) {
			break
		}
		if err := s.inode(of); err != nil {
			return err
		}
	}
	if err := s.looseUpTo(^uint64(0)); err != nil {
		return err
	}
	return s.links(what)
}

// inode checks all that has the number of one inode.
func (s *state) inode(of uint64) error {
	n, parses, err := s.decode(of)
	if err != nil {
		return err
	}
	d, err := s.directory(of)
	if err != nil {
		return err
	}
	target := -1
	targets, _, err := s.targets.each(of, func(p meta.Pair) error {
		b, err := meta.DecodeBytes(p.Key, p.Value)
		target = len(b)
		return err
	})
	if err != nil {
		return err
	}
	xattrs, _, err := s.xattrs.each(of, func(meta.Pair) error { return nil })
	if err != nil {
		return err
	}
	var orphan *volume.Handle
	orphans, _, err := s.orphans.each(of, func(p meta.Pair) error {
		h, err := meta.DecodeOrphan(p.Key, p.Value)
		orphan = &h
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case n == nil && parses:
		if d.names+d.cookies+xattrs+orphans > 0 || target >= 0 {
			s.bad(Belongings, of, "there is no inode, and it has %d entries by name, %d by cookie, %d attributes, %d targets, %d orphans",
				d.names, d.cookies, xattrs, targets, orphans)
		}
		return nil
	case n == nil:
		return nil
	}
	s.used.Inodes++
	if n.Type == volume.Directory {
		s.checkDirectory(n, &d)
		if err := s.trash(n); err != nil {
			return err
		}
		if err := s.leadsUp(n); err != nil {
			return err
		}
	} else if d.names+d.cookies > 0 {
		s.bad(Belongings, of, "it is no directory, and has %d entries by name and %d by cookie", d.names, d.cookies)
	}
	if is := target >= 0; is != (n.Type == volume.Symlink) && (is || targets == 0) {
		s.bad(Belongings, of, "inode has type %d, and a symbolic link's target: %t", n.Type, is)
	} else if is && uint64(target) != n.Size {
		s.bad(Belongings, of, "the symbolic link's target has %d bytes, its inode says %d", target, n.Size)
	}
	if xattrs != n.Xattrs {
		s.bad(Belongings, of, "it has %d extended attributes, its inode says %d", xattrs, n.Xattrs)
	}
	switch {
	case n.Nlink == 0 && orphans == 0:
		s.bad(Orphan, of, "it has no name and is not among those that are to be deleted, so it takes room for ever")
	case n.Nlink > 0 && orphans > 0:
		s.bad(Orphan, of, "it has %d names and is among those without a name", n.Nlink)
	case orphan != nil && orphan.Gen != n.Gen:
		s.bad(Orphan, of, "it has generation %d, as one without a name %d", n.Gen, orphan.Gen)
	case orphan != nil && s.snap.Gen == 0:
		s.report.Orphans++
	}
	return s.file(n)
}

// decode returns an inode; nil: there is none, or it does not parse.
func (s *state) decode(of uint64) (n *meta.Inode, parses bool, err error) {
	_, parses, err = s.inodes.each(of, func(p meta.Pair) (err error) {
		n, err = meta.DecodeInode(p.Key, p.Value)
		return err
	})
	s.whole = s.whole && parses
	return n, parses, err
}

// directory is what is known of a directory's entries.
type directory struct {
	names, cookies, subdirs uint64
	whole                   bool
	byName, byCookie        set
}

// directory walks over the entries that have the number of one inode.
func (s *state) directory(of uint64) (d directory, err error) {
	var wholeNames, wholeCookies bool
	d.names, wholeNames, err = s.entries.each(of, func(p meta.Pair) error {
		e, err := meta.DecodeName(p.Key, p.Value, meta.XattrName(p.Key))
		if err != nil {
			return err
		}
		if err := volume.CheckEntryName(e.Name); err != nil {
			s.add(Finding{Kind: Name, Inode: of, below: e.Name, Detail: fmt.Sprintf("the name %q is none: %v", e.Name, err)})
		}
		if e.Type == volume.Directory {
			d.subdirs++
		}
		d.byName.add(s.entry(&e))
		return nil
	})
	if err != nil {
		return d, err
	}
	d.cookies, wholeCookies, err = s.cookies.each(of, func(p meta.Pair) error {
		e, err := meta.DecodeCookie(p.Key, p.Value)
		if err == nil {
			d.byCookie.add(s.entry(&e))
		}
		return err
	})
	s.names += d.names
	d.whole = wholeNames && wholeCookies
	s.whole = s.whole && d.whole
	return d, err
}

// entry is a hash of what an entry says both by name and by cookie.
func (s *state) entry(e *meta.Dirent) uint64 {
	both := *e
	both.Type = 0
	return maphash.Comparable(s.seed, both)
}

// checkDirectory checks a directory's entries.
func (s *state) checkDirectory(n *meta.Inode, d *directory) {
	if !d.whole {
		return // what does not parse is a finding already
	}
	if d.names != n.Entries {
		s.bad(Entries, n.Ino, "the directory has %d names, its inode says %d", d.names, n.Entries)
	}
	if d.byName != d.byCookie {
		s.bad(Entries, n.Ino, "the directory's %d entries by name and %d by cookie are not the same", d.names, d.cookies)
	}
	if n.Nlink != 0 && uint64(n.Nlink) != d.subdirs+2 {
		s.bad(Links, n.Ino, "it has %d subdirectories, and link count %d instead of %d", d.subdirs, n.Nlink, d.subdirs+2)
	}
}

// trash checks that a directory's trash is there.
func (s *state) trash(n *meta.Inode) error {
	if n.Trash == 0 {
		return nil
	}
	t, err := s.lookup(n.Trash)
	if err != nil {
		return err
	}
	if t == nil || t.Type != volume.Directory || t.Parent != n.Handle || !t.Wasted || t.Nlink == 0 {
		s.bad(Parent, n.Ino, "the directory's trash is inode %d, which is not there or not its trash", n.Trash)
	}
	return nil
}

// lookup returns an inode; nil: there is none, or it does not parse.
func (s *state) lookup(ino uint64) (*meta.Inode, error) {
	key := meta.InodeKey(ino)
	value, ok, err := s.get(s.view, key)
	if err != nil || !ok {
		return nil, err
	}
	n, err := meta.DecodeInode(key, value)
	if err != nil {
		return nil, nil // allPairs tells it
	}
	return n, nil
}

// leadsUp checks that a directory leads up to the root. A circle has a directory whose parent was
// made later, so only those are followed.
func (s *state) leadsUp(n *meta.Inode) error {
	if n.Nlink == 0 || n.Handle == volume.Root || n.Parent.Ino < n.Ino {
		return nil
	}
	// Brent's algorithm: a mark that is moved to where it is at each power of two.
	mark, at := n.Ino, n
	for steps, power := 0, 1; ; steps++ {
		if at.Handle == volume.Root {
			return nil
		}
		key := meta.InodeKey(at.Parent.Ino)
		value, ok, err := s.get(s.view, key)
		if err != nil {
			return err
		}
		if !ok {
			return nil // links tells it
		}
		up, err := meta.DecodeInode(key, value)
		if err != nil || up.Type != volume.Directory {
			return nil // it is told elsewhere
		}
		at = up
		if at.Ino == mark {
			return s.circle(n, at)
		}
		if steps == power {
			mark, steps, power = at.Ino, 0, power*2
		}
	}
}

// circle notes a circle at its directory with the smallest number, if n is in it. Whatever else
// leads into it is told where it leads.
func (s *state) circle(n, in *meta.Inode) error {
	least, has := in.Ino, false
	for at := in; ; {
		has = has || at.Ino == n.Ino
		least = min(least, at.Ino)
		key := meta.InodeKey(at.Parent.Ino)
		value, _, err := s.get(s.view, key)
		if err != nil {
			return err
		}
		if at, err = meta.DecodeInode(key, value); err != nil {
			return nil
		}
		if at.Ino == in.Ino {
			break
		}
	}
	switch {
	case has && least == n.Ino:
		s.bad(Cycle, n.Ino, "the directory is below itself, by its parent %d", n.Parent.Ino)
	case !has:
		s.bad(Cycle, n.Ino, "the directory leads up to directory %d, which is below itself", in.Ino)
	}
	return nil
}
