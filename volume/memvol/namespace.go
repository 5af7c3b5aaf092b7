// SPDX-License-Identifier: Apache-2.0

package memvol

import (
	"context"
	"time"

	"github.com/weir-storage/weir/volume"
)

// Create implements volume.Changer.
func (v *Volume) Create(_ context.Context, r volume.Request, dir volume.Handle, name string,
	args volume.CreateArgs) (volume.Created, error) {
	return change(v, r, place{"create", dir, name}, func() (volume.Created, error) {
		var none volume.Created
		if err := volume.CheckEntryName(name); err != nil {
			return none, err
		}
		if err := volume.CheckCreateArgs(args); err != nil {
			return none, err
		}
		d, err := v.directory(dir)
		if err != nil {
			return none, err
		}
		exists := d.dir.find(name)
		if v.readOnly && (exists == nil || args.Attr.Size != nil) || exists == nil && d.wasted() {
			return none, volume.ErrReadOnly
		}
		if !volume.Permits(d.attr, r.Caller, volume.Exec) {
			return none, volume.ErrAccess
		}
		if exists != nil {
			return v.createExisting(r, d, exists, args)
		}
		if d.attr.Nlink == 0 {
			return none, volume.ErrNotExist
		}
		if !volume.Permits(d.attr, r.Caller, volume.Write) {
			return none, volume.ErrAccess
		}
		now := v.now()
		attr, err := volume.NewAttr(d.attr, r.Caller, args, now)
		if err != nil {
			return none, err
		}
		if uint64(len(v.table)) >= v.inodes {
			return none, volume.ErrNoSpace
		}
		number := v.nextChange()
		v.lastIno++
		attr.Handle = volume.Handle{Ino: v.lastIno, Gen: v.epoch}
		attr.Change = number
		n := &inode{attr: attr, target: args.Target}
		if args.Mode == volume.Exclusive {
			n.verf = &args.Verf
		}
		if attr.Type == volume.Directory {
			n.dir = newDirectory()
			n.dir.parent = d
			d.attr.Nlink++
		}
		v.table[attr.Ino] = n
		d.dir.put(name, n)
		return volume.Created{Attr: n.attr, New: true, Dir: d.changed(number, now)}, nil
	})
}

// createExisting is Create of a name that exists.
func (v *Volume) createExisting(r volume.Request, d, n *inode, args volume.CreateArgs) (volume.Created, error) {
	var none volume.Created
	if args.Mode == volume.Guarded {
		return none, volume.ErrExist
	}
	if n.attr.Type == volume.Directory {
		return none, volume.ErrIsDir
	}
	if n.attr.Type != volume.Regular {
		return none, volume.ErrExist
	}
	if args.Mode == volume.Exclusive && (n.verf == nil || *n.verf != args.Verf) {
		return none, volume.ErrExist
	}
	if args.Mode == volume.Unchecked && args.Attr.Size != nil {
		set := volume.SetAttr{Size: args.Attr.Size}
		if err := volume.CheckSetAttr(n.attr, r.Caller, set); err != nil {
			return none, err
		}
		v.setAttr(n, r.Caller, set)
	}
	return volume.Created{Attr: n.attr, Dir: volume.DirChange{Before: d.attr.Change, After: d.attr.Change}}, nil
}

// Link implements volume.Changer.
func (v *Volume) Link(_ context.Context, r volume.Request, h, dir volume.Handle, name string) (volume.Created, error) {
	return change(v, r, place{"link", h, name}, func() (volume.Created, error) {
		var none volume.Created
		if err := volume.CheckEntryName(name); err != nil {
			return none, err
		}
		n, err := v.get(h)
		if err != nil {
			return none, err
		}
		if _, err := v.get(dir); err != nil {
			return none, err
		}
		if n.attr.Type == volume.Directory {
			return none, volume.ErrIsDir
		}
		d, err := v.directory(dir)
		switch {
		case err != nil:
			return none, err
		case v.readOnly || d.wasted():
			return none, volume.ErrReadOnly
		case !volume.Permits(d.attr, r.Caller, volume.Exec):
			return none, volume.ErrAccess
		case d.dir.find(name) != nil:
			return none, volume.ErrExist
		case d.attr.Nlink == 0 || n.attr.Nlink == 0:
			return none, volume.ErrNotExist
		case !volume.Permits(d.attr, r.Caller, volume.Write):
			return none, volume.ErrAccess
		case n.attr.Nlink >= volume.MaxLinks:
			return none, volume.ErrTooManyLinks
		}
		now, number := v.now(), v.nextChange()
		n.attr.Nlink++
		n.attr.Ctime, n.attr.Change = now, number
		d.dir.put(name, n)
		return volume.Created{Attr: n.attr, New: true, Dir: d.changed(number, now)}, nil
	})
}

// Remove implements volume.Changer.
func (v *Volume) Remove(_ context.Context, r volume.Request, dir volume.Handle, name string) (volume.DirChange, error) {
	return change(v, r, place{"remove", dir, name}, func() (volume.DirChange, error) {
		var none volume.DirChange
		if err := volume.CheckEntryName(name); err != nil {
			return none, err
		}
		d, err := v.directory(dir)
		switch {
		case err != nil:
			return none, err
		case v.readOnly:
			return none, volume.ErrReadOnly
		case !volume.Permits(d.attr, r.Caller, volume.Exec):
			return none, volume.ErrAccess
		}
		n := d.dir.find(name)
		if n == nil {
			return none, volume.ErrNotExist
		}
		if err := volume.MayDelete(d.attr, n.attr, r.Caller); err != nil {
			return none, err
		}
		if n.dir != nil && len(n.dir.byName) > 0 {
			return none, volume.ErrNotEmpty
		}
		now, number := v.now(), v.nextChange()
		d.dir.remove(name)
		v.part(d, n, name, number, now)
		return d.changed(number, now), nil
	})
}

// Rename implements volume.Changer.
func (v *Volume) Rename(_ context.Context, r volume.Request, from volume.Handle, name string, to volume.Handle,
	newName string) (src, dst volume.DirChange, err error) {
	type changes struct{ src, dst volume.DirChange }
	c, err := change(v, r, place{"rename", from, name}, func() (changes, error) {
		if err := volume.CheckEntryName(name); err != nil {
			return changes{}, err
		}
		if err := volume.CheckEntryName(newName); err != nil {
			return changes{}, err
		}
		for _, h := range []volume.Handle{from, to} {
			if _, err := v.get(h); err != nil {
				return changes{}, err
			}
		}
		a, err := v.directory(from)
		if err != nil {
			return changes{}, err
		}
		b, err := v.directory(to)
		if err != nil {
			return changes{}, err
		}
		if v.readOnly || b.wasted() {
			return changes{}, volume.ErrReadOnly
		}
		if !volume.Permits(a.attr, r.Caller, volume.Exec) || !volume.Permits(b.attr, r.Caller, volume.Exec) {
			return changes{}, volume.ErrAccess
		}
		n, old := a.dir.find(name), b.dir.find(newName)
		if n == nil || b.attr.Nlink == 0 {
			return changes{}, volume.ErrNotExist
		}
		if n == old {
			return changes{
				src: volume.DirChange{Before: a.attr.Change, After: a.attr.Change},
				dst: volume.DirChange{Before: b.attr.Change, After: b.attr.Change},
			}, nil
		}
		if n.dir != nil && n.isAncestorOf(b) {
			return changes{}, volume.ErrInvalid
		}
		var oldAttr *volume.Attr
		if old != nil {
			oldAttr = &old.attr
		}
		if err := volume.CheckRename(a.attr, n.attr, b.attr, oldAttr, r.Caller); err != nil {
			return changes{}, err
		}
		if old != nil && old.dir != nil && len(old.dir.byName) > 0 {
			return changes{}, volume.ErrNotEmpty
		}
		now, number := v.now(), v.nextChange()
		if old != nil {
			v.part(b, old, newName, number, now)
		}
		a.dir.remove(name)
		b.dir.put(newName, n)
		if n.dir != nil {
			n.dir.parent = b
			a.attr.Nlink--
			b.attr.Nlink++
		}
		n.attr.Ctime, n.attr.Change = now, number
		out := changes{src: a.changed(number, now)}
		if out.dst = out.src; a != b {
			out.dst = b.changed(number, now)
		}
		return out, nil
	})
	return c.src, c.dst, err
}

// unlink takes one name in d from n. The entry is removed already.
func (v *Volume) unlink(d, n *inode, number uint64, now time.Time) {
	n.attr.Nlink--
	if n.dir != nil {
		n.attr.Nlink = 0
		d.attr.Nlink--
	}
	n.attr.Ctime, n.attr.Change = now, number
	v.dropIfGone(n)
}

// changed gives the directory d a new change attribute and times.
func (n *inode) changed(number uint64, now time.Time) volume.DirChange {
	c := volume.DirChange{Before: n.attr.Change, After: number}
	n.attr.Change, n.attr.Mtime, n.attr.Ctime = number, now, now
	return c
}

// isAncestorOf reports whether d is n or lies below it.
func (n *inode) isAncestorOf(d *inode) bool {
	for ; ; d = d.dir.parent {
		if d == n {
			return true
		}
		if d == d.dir.parent {
			return false
		}
	}
}
