// SPDX-License-Identifier: Apache-2.0

package crashfs

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// dbFile implements vfs.File: a file with a place where the next Read or Write is, or a directory.
type dbFile struct {
	file
	at       int64 // guarded by disk.mu, as no two of Read, or of Write, run at the same time
	writable bool
}

var _ vfs.File = (*dbFile)(nil)

// ReadAt implements vfs.File.
func (f *dbFile) ReadAt(p []byte, off int64) (int, error) {
	if f.n.dir != nil {
		return 0, syscall.EISDIR
	}
	return f.file.ReadAt(p, off)
}

// Read implements vfs.File.
func (f *dbFile) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.at)
	f.at += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// Write implements vfs.File.
func (f *dbFile) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, f.at)
	f.at += int64(n)
	return n, err
}

// WriteAt implements vfs.File.
func (f *dbFile) WriteAt(p []byte, off int64) (int, error) {
	switch {
	case f.n.dir != nil:
		return 0, syscall.EISDIR
	case !f.writable:
		return 0, syscall.EBADF
	}
	return f.file.WriteAt(p, off)
}

// Sync implements vfs.File.
func (f *dbFile) Sync() error {
	if f.n.dir == nil {
		return f.file.Sync()
	}
	return f.do(OpDirSync, func() error { f.n.dir.sync(); return nil }, nil)
}

// SyncData implements vfs.File.
func (f *dbFile) SyncData() error { return f.Sync() }

// SyncTo implements vfs.File. It makes nothing durable.
func (f *dbFile) SyncTo(int64) (fullSync bool, err error) { return false, nil }

// Preallocate implements vfs.File. It does nothing.
func (f *dbFile) Preallocate(int64, int64) error { return nil }

// Prefetch implements vfs.File. It does nothing.
func (f *dbFile) Prefetch(int64, int64) error { return nil }

// Fd implements vfs.File.
func (f *dbFile) Fd() uintptr { return vfs.InvalidFd }

// Stat implements vfs.File.
func (f *dbFile) Stat() (vfs.FileInfo, error) {
	out := info{name: path.Base(f.name)}
	err := f.do(OpRead, func() error {
		out.dir, out.size = f.n.dir != nil, int64(len(f.n.data))
		return nil
	}, nil)
	return out, err
}

// info implements vfs.FileInfo.
type info struct {
	name string
	size int64
	dir  bool
}

func (i info) Name() string { return i.name }

func (i info) Size() int64 { return i.size }

func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

// ModTime implements fs.FileInfo. A Disk has no clock.
func (i info) ModTime() time.Time { return time.Unix(0, 0) }

func (i info) IsDir() bool { return i.dir }

func (i info) Sys() any { return nil }

// DeviceID implements vfs.FileInfo.
func (i info) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
