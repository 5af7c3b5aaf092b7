// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// GetAttr implements volume.Reader.
func (e *Engine) GetAttr(ctx context.Context, r volume.Request, h volume.Handle) (volume.Attr, error) {
	if a, ok := e.quickly(ctx, r, h, ""); ok {
		return a, nil
	}
	return read(ctx, e, place{op: "getattr", ino: h.Ino}, func(t *tree) (volume.Attr, error) {
		n, err := t.inode(h)
		if err != nil {
			return volume.Attr{}, err
		}
		return n.Attr, nil
	})
}

// Lookup implements volume.Reader.
func (e *Engine) Lookup(ctx context.Context, r volume.Request, dir volume.Handle, name string) (volume.Attr, error) {
	if name != "" {
		if a, ok := e.quickly(ctx, r, dir, name); ok {
			return a, nil
		}
	}
	return read(ctx, e, place{"lookup", dir.Ino, name}, func(t *tree) (volume.Attr, error) {
		if err := volume.CheckName(name); err != nil {
			return volume.Attr{}, err
		}
		d, err := t.directory(dir)
		if err != nil {
			return volume.Attr{}, err
		}
		if !volume.Permits(d.Attr, r.Caller, volume.Exec) {
			return volume.Attr{}, volume.ErrAccess
		}
		n := d
		switch {
		case dir.Snap == volume.SnapshotDir:
			n, err = t.lookupSnapshot(d, name)
		case name == ".":
		case name == ".." && d.Nlink == 0:
			n = nil
		case name == "..":
			n, err = t.target(d, meta.Dirent{Handle: d.Parent})
		default:
			_, n, err = t.entry(d, name)
			switch {
			case err != nil || n != nil:
			case name == SnapshotDirName && t.hasSnapshotDir(dir):
				dir.Snap = volume.SnapshotDir
				n, err = t.snapshotDir(dir)
			case name == volume.TrashDir && dir.Snap == 0 && d.Trash != 0:
				n, err = t.trash(d)
			}
		}
		if err != nil {
			return volume.Attr{}, err
		}
		if n == nil {
			return volume.Attr{}, volume.ErrNotExist
		}
		return n.Attr, nil
	})
}

// ReadLink implements volume.Reader.
func (e *Engine) ReadLink(ctx context.Context, _ volume.Request, h volume.Handle) (string, error) {
	return read(ctx, e, place{op: "readlink", ino: h.Ino}, func(t *tree) (string, error) {
		n, err := t.inode(h)
		if err != nil {
			return "", err
		}
		if n.Type != volume.Symlink {
			return "", volume.ErrInvalid
		}
		target, ok, err := t.bytes(meta.TargetKey(h.Ino))
		if err == nil && !ok {
			err = errDamaged
		}
		return string(target), err
	})
}

// listing is what ReadDir returns.
type listing struct {
	entries []volume.Entry
	eof     bool
}

// ReadDir implements volume.Reader.
func (e *Engine) ReadDir(ctx context.Context, r volume.Request, dir volume.Handle, after uint64, limit int) ([]volume.Entry, bool, error) {
	l, err := read(ctx, e, place{op: "readdir", ino: dir.Ino}, func(t *tree) (_ listing, err error) {
		if limit < 1 {
			return listing{}, volume.ErrInvalid
		}
		d, err := t.directory(dir)
		if err != nil {
			return listing{}, err
		}
		if !volume.Permits(d.Attr, r.Caller, volume.Read) {
			return listing{}, volume.ErrAccess
		}
		if after == ^uint64(0) {
			return listing{eof: true}, nil
		}
		if dir.Snap == volume.SnapshotDir {
			return t.listSnapshots(d, after, limit)
		}
		var l listing
		t.near = t.view.Cursor()
		defer func() { err = errors.Join(err, t.near.Close()) }()
		lo, hi := meta.CookieRange(dir.Ino, after+1)
		for pair, err := range t.view.Range(lo, hi) {
			if err != nil {
				return listing{}, err
			}
			if len(l.entries) == limit {
				return l, nil
			}
			de, err := meta.DecodeCookie(pair.Key, pair.Value)
			if err != nil {
				return listing{}, err
			}
			n, err := t.target(d, de)
			if err != nil {
				return listing{}, err
			}
			l.entries = append(l.entries, volume.Entry{Name: de.Name, Cookie: de.Cookie, Attr: n.Attr})
		}
		l.eof = true
		return l, nil
	})
	return l.entries, l.eof, err
}

// GetXattr implements volume.Reader.
func (e *Engine) GetXattr(ctx context.Context, r volume.Request, h volume.Handle, name string) ([]byte, error) {
	return read(ctx, e, place{"getxattr", h.Ino, name}, func(t *tree) ([]byte, error) {
		if err := volume.CheckXattrName(name); err != nil {
			return nil, err
		}
		n, err := t.inode(h)
		if err != nil {
			return nil, err
		}
		if err := volume.CheckXattr(n.Attr, r.Caller, false); err != nil {
			return nil, err
		}
		value, ok, err := t.bytes(meta.XattrKey(h.Ino, name))
		if err != nil {
			return nil, err
		}
		if !ok || h.Snap == volume.SnapshotDir {
			return nil, volume.ErrNoXattr
		}
		return append([]byte{}, value...), nil
	})
}

// ListXattr implements volume.Reader.
func (e *Engine) ListXattr(ctx context.Context, r volume.Request, h volume.Handle) ([]string, error) {
	return read(ctx, e, place{op: "listxattr", ino: h.Ino}, func(t *tree) ([]string, error) {
		n, err := t.inode(h)
		if err != nil {
			return nil, err
		}
		if err := volume.CheckXattr(n.Attr, r.Caller, false); err != nil {
			return nil, err
		}
		var names []string
		if h.Snap == volume.SnapshotDir {
			return names, nil
		}
		lo, hi := meta.XattrRange(h.Ino)
		for pair, err := range t.view.Range(lo, hi) {
			if err != nil {
				return nil, err
			}
			if _, err := meta.DecodeBytes(pair.Key, pair.Value); err != nil {
				return nil, err
			}
			names = append(names, meta.XattrName(pair.Key))
		}
		return names, nil
	})
}

// Space implements volume.Reader.
func (e *Engine) Space(ctx context.Context) (volume.Space, error) {
	return read(ctx, e, place{op: "space", ino: volume.Root.Ino}, func(t *tree) (volume.Space, error) {
		a, err := t.accounting()
		if err != nil {
			return volume.Space{}, err
		}
		s := volume.Space{TotalBytes: e.room.bytes.Load(), TotalInodes: e.room.inodes.Load()}
		s.FreeBytes = s.TotalBytes - min(s.TotalBytes, a.Bytes)
		s.FreeInodes = s.TotalInodes - min(s.TotalInodes, a.Inodes)
		return s, nil
	})
}

// HeldBySnapshots returns how many bytes of files only snapshots hold, which Space does not count.
// What was overwritten in part counts whole, up to segment.MaxBlock bytes at each place. It returns
// false if that is not known: the volume had snapshots before it had format level 4.
func (e *Engine) HeldBySnapshots(ctx context.Context) (bytes uint64, known bool, err error) {
	a, err := read(ctx, e, place{op: "held", ino: volume.Root.Ino}, (*tree).accounting)
	if err != nil {
		return 0, false, err
	}
	v, err := read(ctx, e, place{op: "held", ino: volume.Root.Ino}, (*tree).versionsOf)
	return a.Held, a.Counted || v.Last == 0, err
}
