// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// Create implements volume.Changer.
func (e *Engine) Create(ctx context.Context, r volume.Request, dir volume.Handle,
	name string, args volume.CreateArgs) (volume.Created, error) {
	p := place{"create", dir.Ino, name}
	return change(ctx, e, r, p, createdResult, false, func(t *tx) (volume.Created, error) {
		var none volume.Created
		if err := volume.CheckEntryName(name); err != nil {
			return none, err
		}
		if err := volume.CheckCreateArgs(args); err != nil {
			return none, err
		}
		d, err := t.directory(dir)
		if err != nil {
			return none, err
		}
		if !volume.Permits(d.Attr, r.Caller, volume.Exec) {
			return none, volume.ErrAccess
		}
		_, exists, err := t.entry(d, name)
		wasted, werr := t.wasted(d)
		switch {
		case err != nil || werr != nil:
			return none, errors.Join(err, werr)
		case exists != nil && e.readOnly.Load() && args.Attr.Size != nil:
			return none, volume.ErrReadOnly
		case exists != nil:
			return t.createExisting(r, d, exists, args)
		case e.readOnly.Load() || wasted:
			return none, volume.ErrReadOnly
		case d.Nlink == 0:
			return none, volume.ErrNotExist
		case !volume.Permits(d.Attr, r.Caller, volume.Write):
			return none, volume.ErrAccess
		}
		n := &meta.Inode{}
		if n.Attr, err = volume.NewAttr(d.Attr, r.Caller, args, t.now); err != nil {
			return none, err
		}
		if err := t.account(0, 1); err != nil {
			return none, err
		}
		number, err := t.number()
		if err != nil {
			return none, err
		}
		n.Handle = volume.Handle{Ino: number, Gen: t.engine.epoch}
		n.Change = number
		n.Exclusive, n.Verf = args.Mode == volume.Exclusive, args.Verf
		if !n.Exclusive {
			n.Verf = [8]byte{}
		}
		switch n.Type {
		case volume.Directory:
			n.Parent = d.Handle
			d.Nlink++
		case volume.Symlink:
			key := meta.TargetKey(n.Ino)
			t.set(key, meta.EncodeBytes(key, []byte(args.Target)))
		}
		t.add(n)
		t.put(d, &meta.Dirent{Name: name, Cookie: number}, n)
		return volume.Created{Attr: n.Attr, New: true, Dir: t.changedDir(d, number)}, nil
	})
}

// createExisting is Create of a name that already exists.
func (t *tx) createExisting(r volume.Request, d, n *meta.Inode, args volume.CreateArgs) (volume.Created, error) {
	var none volume.Created
	switch {
	case args.Mode == volume.Guarded:
		return none, volume.ErrExist
	case n.Type == volume.Directory:
		return none, volume.ErrIsDir
	case n.Type != volume.Regular:
		return none, volume.ErrExist
	case args.Mode == volume.Exclusive && (!n.Exclusive || n.Verf != args.Verf):
		return none, volume.ErrExist
	}
	if args.Mode == volume.Unchecked && args.Attr.Size != nil {
		set := volume.SetAttr{Size: args.Attr.Size}
		if err := volume.CheckSetAttr(n.Attr, r.Caller, set); err != nil {
			return none, err
		}
		if err := t.setAttr(n, r.Caller, set, nil); err != nil {
			return none, err
		}
	}
	return volume.Created{Attr: n.Attr, Dir: volume.DirChange{Before: d.Change, After: d.Change}}, nil
}

// Link implements volume.Changer.
func (e *Engine) Link(ctx context.Context, r volume.Request, h, dir volume.Handle, name string) (volume.Created, error) {
	p := place{"link", h.Ino, name}
	return change(ctx, e, r, p, createdResult, false, func(t *tx) (volume.Created, error) {
		var none volume.Created
		if err := volume.CheckEntryName(name); err != nil {
			return none, err
		}
		n, err := t.inode(h)
		if err != nil {
			return none, err
		}
		if _, err := t.inode(dir); err != nil {
			return none, err
		}
		if n.Type == volume.Directory {
			return none, volume.ErrIsDir
		}
		d, err := t.directory(dir)
		if err != nil {
			return none, err
		}
		if wasted, err := t.wasted(d); err != nil || wasted || e.readOnly.Load() {
			return none, cmp.Or(err, volume.ErrReadOnly)
		}
		if !volume.Permits(d.Attr, r.Caller, volume.Exec) {
			return none, volume.ErrAccess
		}
		_, exists, err := t.entry(d, name)
		switch {
		case err != nil:
			return none, err
		case exists != nil:
			return none, volume.ErrExist
		case d.Nlink == 0 || n.Nlink == 0:
			return none, volume.ErrNotExist
		case !volume.Permits(d.Attr, r.Caller, volume.Write):
			return none, volume.ErrAccess
		case n.Nlink >= volume.MaxLinks:
			return none, volume.ErrTooManyLinks
		}
		number, err := t.number()
		if err != nil {
			return none, err
		}
		n.Nlink++
		n.Ctime, n.Change = t.now, number
		t.changed(n)
		t.put(d, &meta.Dirent{Name: name, Cookie: number}, n)
		return volume.Created{Attr: n.Attr, New: true, Dir: t.changedDir(d, number)}, nil
	})
}

// Remove implements volume.Changer.
func (e *Engine) Remove(ctx context.Context, r volume.Request, dir volume.Handle, name string) (volume.DirChange, error) {
	p := place{"remove", dir.Ino, name}
	return change(ctx, e, r, p, dirResult, false, func(t *tx) (volume.DirChange, error) {
		var none volume.DirChange
		if err := volume.CheckEntryName(name); err != nil {
			return none, err
		}
		d, err := t.directory(dir)
		if err != nil {
			return none, err
		}
		if e.readOnly.Load() {
			return none, volume.ErrReadOnly
		}
		if !volume.Permits(d.Attr, r.Caller, volume.Exec) {
			return none, volume.ErrAccess
		}
		de, n, err := t.entry(d, name)
		if err != nil {
			return none, err
		}
		if n == nil {
			return none, volume.ErrNotExist
		}
		if err := volume.MayDelete(d.Attr, n.Attr, r.Caller); err != nil {
			return none, err
		}
		if n.Entries > 0 {
			return none, volume.ErrNotEmpty
		}
		number, err := t.number()
		if err != nil {
			return none, err
		}
		t.delete(meta.NameKey(d.Ino, name))
		t.delete(meta.CookieKey(d.Ino, de.Cookie))
		d.Entries--
		if err := t.taken(d, de.Cookie); err != nil {
			return none, err
		}
		if err := t.part(d, n, name, number); err != nil {
			return none, err
		}
		return t.changedDir(d, number), nil
	})
}

// Rename implements volume.Changer.
func (e *Engine) Rename(ctx context.Context, r volume.Request, from volume.Handle, name string,
	to volume.Handle, newName string) (src, dst volume.DirChange, err error) {
	p := place{"rename", from.Ino, name}
	out, err := change(ctx, e, r, p, renamedResult, false, func(t *tx) (renamed, error) {
		return t.rename(r, from, name, to, newName)
	})
	return out.src, out.dst, err
}

func (t *tx) rename(r volume.Request, from volume.Handle, name string, to volume.Handle, newName string) (renamed, error) {
	var none renamed
	if err := volume.CheckEntryName(name); err != nil {
		return none, err
	}
	if err := volume.CheckEntryName(newName); err != nil {
		return none, err
	}
	for _, h := range []volume.Handle{from, to} {
		if _, err := t.inode(h); err != nil {
			return none, err
		}
	}
	a, err := t.directory(from)
	if err != nil {
		return none, err
	}
	b, err := t.directory(to)
	if err != nil {
		return none, err
	}
	if wasted, err := t.wasted(b); err != nil || wasted || t.engine.readOnly.Load() {
		return none, cmp.Or(err, volume.ErrReadOnly)
	}
	if !volume.Permits(a.Attr, r.Caller, volume.Exec) || !volume.Permits(b.Attr, r.Caller, volume.Exec) {
		return none, volume.ErrAccess
	}
	de, n, err := t.entry(a, name)
	if err != nil {
		return none, err
	}
	oldEntry, old, err := t.entry(b, newName)
	if err != nil {
		return none, err
	}
	if n == nil || b.Nlink == 0 {
		return none, volume.ErrNotExist
	}
	if n == old {
		return renamed{
			src: volume.DirChange{Before: a.Change, After: a.Change},
			dst: volume.DirChange{Before: b.Change, After: b.Change},
		}, nil
	}
	if n.Type == volume.Directory && a != b {
		below, err := t.isBelow(b, n)
		if err != nil {
			return none, err
		}
		if below {
			return none, volume.ErrInvalid
		}
	}
	var oldAttr *volume.Attr
	if old != nil {
		oldAttr = &old.Attr
	}
	if err := volume.CheckRename(a.Attr, n.Attr, b.Attr, oldAttr, r.Caller); err != nil {
		return none, err
	}
	if old != nil && old.Entries > 0 {
		return none, volume.ErrNotEmpty
	}
	number, err := t.number()
	if err != nil {
		return none, err
	}
	t.delete(meta.NameKey(a.Ino, name))
	t.delete(meta.CookieKey(a.Ino, de.Cookie))
	a.Entries--
	if err := t.taken(a, de.Cookie); err != nil {
		return none, err
	}
	target := &meta.Dirent{Name: newName, Cookie: number}
	if old != nil {
		target.Cookie = oldEntry.Cookie // the new name keeps its place in listings
		b.Entries--
		if err := t.part(b, old, newName, number); err != nil {
			return none, err
		}
	}
	t.put(b, target, n)
	if n.Type == volume.Directory {
		n.Parent = b.Handle
		n.Wasted = false
		a.Nlink--
		b.Nlink++
	}
	n.Ctime, n.Change = t.now, number
	t.changed(n)
	out := renamed{src: t.changedDir(a, number)}
	if out.dst = out.src; a != b {
		out.dst = t.changedDir(b, number)
	}
	return out, nil
}

// isBelow reports whether directory d is top or lies below it.
func (t *tx) isBelow(d, top *meta.Inode) (bool, error) {
	for d.Handle != top.Handle {
		if d.Handle == volume.Root {
			return false, nil
		}
		parent, err := t.find(d.Parent.Ino)
		if err != nil {
			return false, err
		}
		if parent == nil || parent.Handle != d.Parent || parent.Type != volume.Directory {
			return false, errDamaged
		}
		d = parent
	}
	return true, nil
}

// put makes an entry for n in d.
func (t *tx) put(d *meta.Inode, de *meta.Dirent, n *meta.Inode) {
	de.Handle, de.Type = n.Handle, n.Type
	t.set(de.EncodeName(d.Ino))
	t.set(de.EncodeCookie(d.Ino))
	d.Entries++
}

// unlink takes one name in d from n. The caller removes the entry. An inode without a name is
// deleted at once if no client can hold it. Otherwise it becomes an orphan, which stays until Reap
// deletes it.
func (t *tx) unlink(d, n *meta.Inode, number uint64) error {
	n.Nlink--
	if n.Type == volume.Directory {
		n.Nlink = 0
		d.Nlink--
	}
	if n.Nlink == 0 {
		if t.engine.doom(n.Handle) {
			return t.purge(n)
		}
		t.set(meta.EncodeOrphan(n.Handle))
	}
	n.Ctime, n.Change = t.now, number
	t.changed(n)
	return nil
}

// changedDir sets d's new change attribute and times.
func (t *tx) changedDir(d *meta.Inode, number uint64) volume.DirChange {
	c := volume.DirChange{Before: d.Change, After: number}
	d.Change, d.Mtime, d.Ctime = number, t.now, t.now
	t.changed(d)
	return c
}
