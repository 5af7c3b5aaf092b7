// SPDX-License-Identifier: Apache-2.0

package crashfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/cachepool"
)

// fileSystem implements vfs.FS on a Disk, for one process.
type fileSystem struct{ pool *pool }

var _ vfs.FS = fileSystem{}

// FS returns the disk's files, for databases, as the process sees them that has the disk open now:
// after a crash everything returns ErrCrashed. It panics if no process has. Names are absolute, and
// lie below a volume's Path. MkdirAll makes volumes too.
//
// File.Sync and File.SyncData make durable what was written to the file, and a directory's Sync
// makes its names durable. SyncTo makes nothing durable, which vfs.File allows. Replacing a file by
// Create is two changes of its directory, of which a crash may leave the first.
func (d *Disk) FS() vfs.FS {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session == nil {
		panic("crashfs: FS of a disk that no process has open")
	}
	return fileSystem{d.session}
}

func (s fileSystem) root() string { return "/crashfs/" + s.pool.disk.cfg.Gateway }

// split returns the elements of a name below the root.
func (s fileSystem) split(name string) ([]string, error) {
	clean := path.Clean(name)
	if clean == s.root() {
		return nil, nil
	}
	rest, ok := strings.CutPrefix(clean, s.root()+"/")
	if !ok {
		return nil, fmt.Errorf("%s: want a name below %s: %w", name, s.root(), fs.ErrInvalid)
	}
	return strings.Split(rest, "/"), nil
}

// volumes returns the root as a directory. Its changes are lost, but for the inodes.
func (s fileSystem) volumes() *directory {
	root := newDirectory()
	for uuid, v := range s.pool.disk.vols {
		root.names[uuid] = &inode{dir: v}
	}
	return root
}

var errNotDir = &fs.PathError{Op: "walk", Err: syscall.ENOTDIR}

// find returns what name names, or an error that wraps fs.ErrNotExist. The caller holds disk.mu.
func (s fileSystem) find(name string) (*inode, error) {
	elems, err := s.split(name)
	n := &inode{dir: s.volumes()}
	for _, e := range elems {
		if n.dir == nil {
			return nil, errNotDir
		}
		if n = n.dir.names[e]; n == nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
	}
	return n, err
}

// parent returns the directory of name, which is not that of the volumes, and its last element. The
// caller holds disk.mu.
func (s fileSystem) parent(name string) (*directory, string, error) {
	elems, err := s.split(name)
	if err != nil {
		return nil, "", err
	}
	if len(elems) < 2 {
		return nil, "", fmt.Errorf("%s: want a name in a volume: %w", name, fs.ErrInvalid)
	}
	n, err := s.find(path.Dir(path.Clean(name)))
	if err != nil {
		return nil, "", err
	}
	if n.dir == nil {
		return nil, "", errNotDir
	}
	return n.dir, elems[len(elems)-1], nil
}

// do runs an operation as a step.
func (s fileSystem) do(op Op, name string, f func() error) error {
	s.pool.disk.mu.Lock()
	defer s.pool.disk.mu.Unlock()
	err := s.pool.disk.step(s.pool, op, strings.TrimPrefix(name, s.root()+"/"), f, nil)
	if err != nil {
		return fmt.Errorf("%s %s: %w", op, name, err)
	}
	return nil
}

// open runs an operation that opens a file.
func (s fileSystem) open(op Op, name string, f func() (*inode, error)) (vfs.File, error) {
	out := &dbFile{file: file{pool: s.pool, name: strings.TrimPrefix(name, s.root()+"/")}, writable: op != OpRead}
	err := s.do(op, name, func() (err error) {
		out.n, err = f()
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Create implements vfs.FS.
func (s fileSystem) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return s.open(OpCreate, name, func() (*inode, error) { return s.create(name) })
}

func (s fileSystem) create(name string) (*inode, error) {
	d, last, err := s.parent(name)
	if err != nil {
		return nil, err
	}
	if old := d.names[last]; old != nil {
		if old.dir != nil {
			return nil, syscall.EISDIR
		}
		d.change(naming{from: last})
	}
	n := &inode{}
	d.change(naming{to: last, node: n})
	return n, nil
}

// Link implements vfs.FS.
func (s fileSystem) Link(from, to string) error {
	return s.do(OpCreate, to, func() error {
		n, err := s.find(from)
		if err != nil {
			return err
		}
		d, last, err := s.parent(to)
		switch {
		case err != nil:
			return err
		case n.dir != nil:
			return syscall.EPERM
		case d.names[last] != nil:
			return fs.ErrExist
		}
		d.change(naming{to: last, node: n})
		return nil
	})
}

// Open implements vfs.FS.
func (s fileSystem) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.open(OpRead, name, func() (*inode, error) { return s.find(name) })
	if err == nil {
		for _, o := range opts {
			o.Apply(f)
		}
	}
	return f, err
}

// OpenDir implements vfs.FS.
func (s fileSystem) OpenDir(name string) (vfs.File, error) { return s.Open(name) }

// OpenReadWrite implements vfs.FS.
func (s fileSystem) OpenReadWrite(name string, _ vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.open(OpCreate, name, func() (*inode, error) {
		n, err := s.find(name)
		if errors.Is(err, fs.ErrNotExist) {
			return s.create(name)
		}
		if err == nil && n.dir != nil {
			err = syscall.EISDIR
		}
		return n, err
	})
	if err == nil {
		for _, o := range opts {
			o.Apply(f)
		}
	}
	return f, err
}

// Remove implements vfs.FS.
func (s fileSystem) Remove(name string) error {
	return s.do(OpRemove, name, func() error {
		d, last, err := s.parent(name)
		if err != nil {
			return err
		}
		n := d.names[last]
		switch {
		case n == nil:
			return fs.ErrNotExist
		case n.dir != nil && len(n.dir.names) > 0:
			return syscall.ENOTEMPTY
		}
		d.change(naming{from: last})
		return nil
	})
}

// RemoveAll implements vfs.FS.
func (s fileSystem) RemoveAll(name string) error {
	names, err := s.List(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil && !errors.Is(err, syscall.ENOTDIR):
		return err
	}
	for _, n := range names {
		if err := s.RemoveAll(path.Join(name, n)); err != nil {
			return err
		}
	}
	return s.Remove(name)
}

// Rename implements vfs.FS. Both names must be in one directory, so that it is one change.
func (s fileSystem) Rename(from, to string) error {
	return s.do(OpRename, from+" "+to, func() error {
		_, err := s.rename(from, to)
		return err
	})
}

func (s fileSystem) rename(from, to string) (*inode, error) {
	d, old, err := s.parent(from)
	if err != nil {
		return nil, err
	}
	target, last, err := s.parent(to)
	if err != nil {
		return nil, err
	}
	n, there := d.names[old], target.names[last]
	switch {
	case n == nil:
		return nil, fs.ErrNotExist
	case d != target:
		return nil, fmt.Errorf("to another directory: %w", errors.ErrUnsupported)
	case there != nil && there != n && there.dir != nil && n.dir == nil:
		return nil, syscall.EISDIR
	case there != nil && there != n && there.dir == nil && n.dir != nil:
		return nil, syscall.ENOTDIR
	case there != nil && there != n && there.dir != nil && len(there.dir.names) > 0:
		return nil, syscall.ENOTEMPTY
	case there == n:
		return n, nil
	}
	d.change(naming{from: old, to: last, node: n})
	return n, nil
}

// ReuseForWrite implements vfs.FS. The file keeps its contents.
func (s fileSystem) ReuseForWrite(from, to string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return s.open(OpRename, to, func() (*inode, error) { return s.rename(from, to) })
}

// MkdirAll implements vfs.FS.
func (s fileSystem) MkdirAll(name string, _ os.FileMode) error {
	return s.do(OpCreate, name, func() error {
		elems, err := s.split(name)
		if err != nil || len(elems) == 0 {
			return err
		}
		vols := s.pool.disk.vols
		if vols[elems[0]] == nil {
			if err := cachepool.CheckName("volume", elems[0]); err != nil {
				return err
			}
			vols[elems[0]] = newDirectory()
		}
		d := vols[elems[0]]
		for _, e := range elems[1:] {
			if d.names[e] == nil {
				d.change(naming{to: e, node: &inode{dir: newDirectory()}})
			}
			if d = d.names[e].dir; d == nil {
				return errNotDir
			}
		}
		return nil
	})
}

// Lock implements vfs.FS. A crash releases the lock.
func (s fileSystem) Lock(name string) (io.Closer, error) {
	err := s.do(OpCreate, name, func() error {
		if s.pool.locked[name] {
			return syscall.EAGAIN
		}
		if _, err := s.create(name); err != nil {
			return err
		}
		s.pool.locked[name] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	return lock{s, name}, nil
}

type lock struct {
	s    fileSystem
	name string
}

func (l lock) Close() error {
	l.s.pool.disk.mu.Lock()
	defer l.s.pool.disk.mu.Unlock()
	delete(l.s.pool.locked, l.name)
	return nil
}

// List implements vfs.FS.
func (s fileSystem) List(name string) (out []string, err error) {
	err = s.do(OpRead, name, func() error {
		n, err := s.find(name)
		if err != nil {
			return err
		}
		if n.dir == nil {
			return errNotDir
		}
		out = sortedKeys(n.dir.names)
		return nil
	})
	return out, err
}

// Stat implements vfs.FS.
func (s fileSystem) Stat(name string) (vfs.FileInfo, error) {
	f, err := s.Open(name)
	if err != nil {
		return nil, err
	}
	return f.Stat()
}

// PathBase implements vfs.FS.
func (fileSystem) PathBase(name string) string { return path.Base(name) }

// PathJoin implements vfs.FS.
func (fileSystem) PathJoin(elem ...string) string { return path.Join(elem...) }

// PathDir implements vfs.FS.
func (fileSystem) PathDir(name string) string { return path.Dir(name) }

// GetDiskUsage implements vfs.FS.
func (s fileSystem) GetDiskUsage(name string) (u vfs.DiskUsage, err error) {
	err = s.do(OpRead, name, func() error {
		for _, v := range s.pool.disk.vols {
			u.UsedBytes += uint64(v.size())
		}
		u.TotalBytes = uint64(s.pool.disk.cfg.Limit)
		u.AvailBytes = u.TotalBytes - min(u.UsedBytes, u.TotalBytes)
		return nil
	})
	return u, err
}

// Unwrap implements vfs.FS.
func (fileSystem) Unwrap() vfs.FS { return nil }
