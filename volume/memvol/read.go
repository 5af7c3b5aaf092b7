// SPDX-License-Identifier: Apache-2.0

package memvol

import (
	"context"
	"slices"

	"github.com/weir-storage/weir/volume"
)

// GetAttr implements volume.Reader.
func (v *Volume) GetAttr(_ context.Context, _ volume.Request, h volume.Handle) (volume.Attr, error) {
	return read(v, place{op: "getattr", h: h}, func() (volume.Attr, error) {
		n, err := v.get(h)
		if err != nil {
			return volume.Attr{}, err
		}
		return n.attr, nil
	})
}

// Lookup implements volume.Reader.
func (v *Volume) Lookup(_ context.Context, r volume.Request, dir volume.Handle, name string) (volume.Attr, error) {
	return read(v, place{"lookup", dir, name}, func() (volume.Attr, error) {
		if err := volume.CheckName(name); err != nil {
			return volume.Attr{}, err
		}
		d, err := v.directory(dir)
		if err != nil {
			return volume.Attr{}, err
		}
		if !volume.Permits(d.attr, r.Caller, volume.Exec) {
			return volume.Attr{}, volume.ErrAccess
		}
		n := d
		switch {
		case name == ".":
		case name == "..":
			if n = d.dir.parent; d.attr.Nlink == 0 {
				n = nil
			}
		default:
			if n = d.dir.find(name); n == nil && name == volume.TrashDir && dir.Snap == 0 {
				n = d.trash
			}
		}
		if n == nil {
			return volume.Attr{}, volume.ErrNotExist
		}
		return n.attr, nil
	})
}

// ReadLink implements volume.Reader.
func (v *Volume) ReadLink(_ context.Context, _ volume.Request, h volume.Handle) (string, error) {
	return read(v, place{op: "readlink", h: h}, func() (string, error) {
		n, err := v.get(h)
		if err != nil {
			return "", err
		}
		if n.attr.Type != volume.Symlink {
			return "", volume.ErrInvalid
		}
		return n.target, nil
	})
}

// ReadDir implements volume.Reader.
func (v *Volume) ReadDir(_ context.Context, r volume.Request, dir volume.Handle, after uint64, limit int) ([]volume.Entry, bool, error) {
	type listing struct {
		entries []volume.Entry
		eof     bool
	}
	l, err := read(v, place{op: "readdir", h: dir}, func() (listing, error) {
		if limit < 1 {
			return listing{}, volume.ErrInvalid
		}
		d, err := v.directory(dir)
		if err != nil {
			return listing{}, err
		}
		if !volume.Permits(d.attr, r.Caller, volume.Read) {
			return listing{}, volume.ErrAccess
		}
		entries, eof := d.dir.list(after, limit)
		return listing{entries, eof}, nil
	})
	return l.entries, l.eof, err
}

// Read implements volume.Reader.
func (v *Volume) Read(_ context.Context, r volume.Request, h volume.Handle, off uint64, p []byte) (int, bool, error) {
	type answer struct {
		n   int
		eof bool
	}
	a, err := read(v, place{op: "read", h: h}, func() (answer, error) {
		if len(p) > volume.MaxIO {
			return answer{}, volume.ErrInvalid
		}
		n, err := v.file(h)
		if err != nil {
			return answer{}, err
		}
		if !volume.PermitsIO(n.attr, r.Caller, false) {
			return answer{}, volume.ErrAccess
		}
		if off >= n.attr.Size {
			return answer{0, true}, nil
		}
		count := int(min(uint64(len(p)), n.attr.Size-off))
		n.data.read(off, p[:count])
		return answer{count, off+uint64(count) == n.attr.Size}, nil
	})
	return a.n, a.eof, err
}

// Seek implements volume.Reader.
func (v *Volume) Seek(_ context.Context, r volume.Request, h volume.Handle, off uint64, hole bool) (uint64, error) {
	return read(v, place{op: "seek", h: h}, func() (uint64, error) {
		n, err := v.file(h)
		if err != nil {
			return 0, err
		}
		if !volume.PermitsIO(n.attr, r.Caller, false) {
			return 0, volume.ErrAccess
		}
		if off >= n.attr.Size {
			return 0, volume.ErrNoData
		}
		if hole {
			return n.data.nextHole(off), nil
		}
		next, ok := n.data.nextData(off)
		if !ok {
			return 0, volume.ErrNoData
		}
		return next, nil
	})
}

// GetXattr implements volume.Reader.
func (v *Volume) GetXattr(_ context.Context, r volume.Request, h volume.Handle, name string) ([]byte, error) {
	return read(v, place{"getxattr", h, name}, func() ([]byte, error) {
		if err := volume.CheckXattrName(name); err != nil {
			return nil, err
		}
		n, err := v.get(h)
		if err != nil {
			return nil, err
		}
		if err := volume.CheckXattr(n.attr, r.Caller, false); err != nil {
			return nil, err
		}
		value, ok := n.xattrs[name]
		if !ok {
			return nil, volume.ErrNoXattr
		}
		return slices.Clone(value), nil
	})
}

// ListXattr implements volume.Reader.
func (v *Volume) ListXattr(_ context.Context, r volume.Request, h volume.Handle) ([]string, error) {
	return read(v, place{op: "listxattr", h: h}, func() ([]string, error) {
		n, err := v.get(h)
		if err != nil {
			return nil, err
		}
		if err := volume.CheckXattr(n.attr, r.Caller, false); err != nil {
			return nil, err
		}
		return n.xattrNames(), nil
	})
}

// Space implements volume.Reader.
func (v *Volume) Space(_ context.Context) (volume.Space, error) {
	return read(v, place{op: "space", h: volume.Root}, func() (volume.Space, error) {
		return volume.Space{
			TotalBytes: v.bytes, FreeBytes: v.bytes - v.used,
			TotalInodes: v.inodes, FreeInodes: v.inodes - uint64(len(v.table)),
		}, nil
	})
}

// directory returns the directory of h.
func (v *Volume) directory(h volume.Handle) (*inode, error) {
	n, err := v.get(h)
	if err != nil {
		return nil, err
	}
	if n.attr.Type != volume.Directory {
		return nil, volume.ErrNotDir
	}
	return n, nil
}

// file returns the regular file of h.
func (v *Volume) file(h volume.Handle) (*inode, error) {
	n, err := v.get(h)
	switch {
	case err != nil:
		return nil, err
	case n.attr.Type == volume.Directory:
		return nil, volume.ErrIsDir
	case n.attr.Type != volume.Regular:
		return nil, volume.ErrInvalid
	}
	return n, nil
}
