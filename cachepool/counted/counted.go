// SPDX-License-Identifier: Apache-2.0

// Package counted counts what databases take of a pool's room, on the pool's own file system.
package counted

import (
	"errors"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// New returns a file system that tells count of each change of what is taken, in bytes
// (protocol-15). Pebble does not ask before it writes: it must be able to, or nothing can be
// deleted any more. So what it takes is missing for logs. count must not block.
func New(on vfs.FS, count func(bytes int64)) vfs.FS { return counting{on, count} }

// counting is what New returns.
type counting struct {
	vfs.FS
	count func(bytes int64)
}

var _ vfs.FS = counting{}

// size returns the bytes of a file, 0 if there is none.
func (c counting) size(name string) int64 {
	i, err := c.Stat(name)
	if err != nil || i.IsDir() {
		return 0
	}
	return i.Size()
}

// gone runs f, which removes what a name had, and gives its room back.
func (c counting) gone(name string, f func() error) error {
	n := c.size(name)
	err := f()
	if err == nil {
		c.count(-n)
	}
	return err
}

func (c counting) Create(name string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	err = c.gone(name, func() error {
		f, err = c.FS.Create(name, category)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &file{File: f, count: c.count, added: true}, nil
}

func (c counting) Link(from, to string) error {
	err := c.FS.Link(from, to)
	if err == nil {
		c.count(c.size(to)) // as removing it gives back
	}
	return err
}

func (c counting) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := c.FS.OpenReadWrite(name, category, opts...)
	if err != nil {
		return nil, err
	}
	return &file{File: f, count: c.count}, nil
}

func (c counting) Remove(name string) error {
	return c.gone(name, func() error { return c.FS.Remove(name) })
}

func (c counting) RemoveAll(name string) error {
	n, err := Size(c.FS, name)
	if err == nil {
		err = c.FS.RemoveAll(name)
	}
	if err == nil {
		c.count(-n)
	}
	return err
}

func (c counting) Rename(from, to string) error {
	if from == to {
		return c.FS.Rename(from, to)
	}
	return c.gone(to, func() error { return c.FS.Rename(from, to) })
}

// ReuseForWrite does not reuse, which vfs.FS allows.
func (c counting) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := c.Remove(from); err != nil {
		return nil, err
	}
	return c.Create(to, category)
}

func (c counting) Unwrap() vfs.FS { return c.FS }

// file is a file that is written. If added is true, Write adds to its end.
type file struct {
	vfs.File
	count func(bytes int64)
	added bool
}

func (f *file) Write(p []byte) (n int, err error) {
	if !f.added {
		return f.grow(func() (int, error) { return f.File.Write(p) })
	}
	n, err = f.File.Write(p)
	f.count(int64(n))
	return n, err
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	return f.grow(func() (int, error) { return f.File.WriteAt(p, off) })
}

// grow runs a write and counts by how much the file is longer after it.
func (f *file) grow(write func() (int, error)) (int, error) {
	before, err := f.Stat()
	if err != nil {
		return 0, err
	}
	n, err := write()
	after, serr := f.Stat()
	if serr == nil {
		f.count(after.Size() - before.Size())
	}
	return n, errors.Join(err, serr)
}

// Size returns the bytes of all files in a folder, 0 if there is none.
func Size(on vfs.FS, path string) (n int64, err error) {
	names, err := on.List(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, name := range names {
		full := on.PathJoin(path, name)
		i, serr := on.Stat(full)
		switch {
		case errors.Is(serr, fs.ErrNotExist): // it is gone meanwhile
		case serr != nil:
			err = errors.Join(err, serr)
		case i.IsDir():
			below, berr := Size(on, full)
			n, err = n+below, errors.Join(err, berr)
		default:
			n += i.Size()
		}
	}
	return n, err
}
