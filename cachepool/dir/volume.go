// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/cachepool"
)

// Volume implements cachepool.Volumes.
func (p *Pool) Volume(uuid string) (cachepool.Dir, error) {
	if err := cachepool.CheckName("volume", uuid); err != nil {
		return nil, err
	}
	if p.closed() {
		return nil, p.fail("open volume "+uuid+" on", cachepool.ErrClosed, "")
	}
	path, err := p.folders.Make(uuid)
	if err != nil {
		return nil, p.fail("make volume "+uuid+" on", err, "")
	}
	return &volume{pool: p, path: path, ahead: aheadOn(path)}, nil
}

// ListVolumes implements cachepool.Volumes.
func (p *Pool) ListVolumes() ([]string, error) {
	there, err := p.folders.List()
	if err != nil {
		return nil, p.fail("list", err, "")
	}
	out := slices.AppendSeq([]string{}, maps.Keys(there))
	slices.Sort(out)
	return out, nil
}

// RemoveVolume implements cachepool.Volumes.
func (p *Pool) RemoveVolume(uuid string) error {
	if err := cachepool.CheckName("volume", uuid); err != nil {
		return err
	}
	if err := p.folders.Remove(uuid); err != nil {
		return p.fail("remove volume "+uuid+" on", err, "")
	}
	return nil
}

// RenameVolume implements cachepool.Volumes.
func (p *Pool) RenameVolume(from, to string) error {
	if err := errors.Join(cachepool.CheckName("volume", from), cachepool.CheckName("volume", to)); err != nil {
		return err
	}
	if err := p.folders.Rename(from, to); err != nil {
		return p.fail("rename volume "+from+" to "+to+" on", err, "")
	}
	return nil
}

// Rewound implements cachepool.Volumes.
func (p *Pool) Rewound(uuid string) error { return p.folders.Rewound(uuid) }

// Tune implements cachepool.Volumes: there is nothing that could be tuned.
func (p *Pool) Tune(string, cachepool.Tuning) {}

// Settled implements cachepool.Volumes.
func (p *Pool) Settled(uuid string, why error) error {
	if err := p.folders.Settled(uuid, why); err != nil {
		return p.fail("settle volume "+uuid+" on", err, "")
	}
	return nil
}

// volume implements cachepool.Dir.
type volume struct {
	pool  *Pool
	path  string
	ahead int64
}

func (v *volume) Path() string { return v.path }

// ahead is Ahead on file systems that overwrite in place, and write a journal when a file grows.
const ahead = 128 << 10

func (v *volume) Ahead() int64 { return v.ahead }

// aheadOn is Ahead for files in a folder.
func aheadOn(path string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(path, &s) == nil && (s.Type == unix.EXT4_SUPER_MAGIC || s.Type == unix.XFS_SUPER_MAGIC) {
		return ahead
	}
	return 0 // ZFS and Btrfs write anew what is overwritten
}

func (v *volume) Sync() error { return syncDir(v.path) }

func (v *volume) file(name string) (string, error) {
	if v.pool.closed() {
		return "", fmt.Errorf("file %s: pool %s: %w", name, v.pool.cfg.Path, cachepool.ErrClosed)
	}
	return filepath.Join(v.path, name), cachepool.CheckName("file", name)
}

func (v *volume) open(name string, flag int) (cachepool.File, error) {
	path, err := v.file(name)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|flag, 0o600)
	if err != nil {
		return nil, err
	}
	return &file{f: f, pool: v.pool}, nil
}

func (v *volume) Create(name string) (cachepool.File, error) {
	f, err := v.open(name, os.O_CREATE|os.O_EXCL)
	return f, noRoom(err)
}

// noRoom makes the error of a file that the file system has no room for one that wraps ErrFull.
func noRoom(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("the pool's file system is %w: free space and inodes there, or raise its quota: %w", cachepool.ErrFull, err)
	}
	return err
}

func (v *volume) Open(name string) (cachepool.File, error) { return v.open(name, 0) }

func (v *volume) Remove(name string) error {
	path, err := v.file(name)
	if err != nil {
		return err
	}
	return os.Remove(path)
}

func (v *volume) Rename(from, to string) error {
	a, err := v.file(from)
	if err != nil {
		return err
	}
	b, err := v.file(to)
	if err != nil {
		return err
	}
	return os.Rename(a, b)
}

func (v *volume) List() ([]cachepool.FileInfo, error) {
	entries, err := os.ReadDir(v.path)
	if err != nil {
		return nil, err
	}
	out := []cachepool.FileInfo{}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		i, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, cachepool.FileInfo{Name: e.Name(), Size: i.Size()})
	}
	return out, nil
}

// file implements cachepool.File. It differs from os.File in that it ends with the pool, and
// remembers a failed Sync.
type file struct {
	f    *os.File
	pool *Pool

	mu     sync.Mutex
	failed error
}

func (f *file) usable() error {
	if f.pool.closed() {
		return fmt.Errorf("file %s: pool: %w", f.f.Name(), cachepool.ErrClosed)
	}
	return nil
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if err := f.usable(); err != nil {
		return 0, err
	}
	return f.f.ReadAt(p, off)
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if err := f.usable(); err != nil {
		return 0, err
	}
	return f.f.WriteAt(p, off)
}

func (f *file) Truncate(size int64) error {
	if err := f.usable(); err != nil {
		return err
	}
	return f.f.Truncate(size)
}

func (f *file) Size() (int64, error) {
	if err := f.usable(); err != nil {
		return 0, err
	}
	i, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return i.Size(), nil
}

func (f *file) Sync() error {
	if err := f.usable(); err != nil {
		return err
	}
	// One at a time: the kernel reports a failure to one of the syncs that overlap, and success to
	// the others.
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = syncData(f.f)
	}
	return f.failed
}

// syncData makes contents and size durable (fdatasync). Unlike fsync it leaves out times, so that a
// file which is overwritten in place needs no write of the file system's journal.
func syncData(f *os.File) error {
	return onDescriptor(f, "fdatasync", unix.Fdatasync)
}

// onDescriptor calls the kernel with a file's descriptor, which nobody closes meanwhile.
func onDescriptor(f *os.File, op string, call func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		for failed = unix.EINTR; errors.Is(failed, unix.EINTR); {
			failed = call(int(fd))
		}
	})
	if err != nil { // the file is closed
		failed = cachepool.ErrClosed
	}
	if failed != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: failed}
	}
	return nil
}

// Forget drops the file's clean pages, and among them those that a failed fsync left. Pages that
// are not clean stay: they are what is still to be synced. Linux does not tell whether it dropped
// them all, but it keeps only what is mapped or read at this moment.
func (f *file) Forget() error {
	if err := f.usable(); err != nil {
		return err
	}
	return onDescriptor(f.f, "fadvise", func(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) })
}

func (f *file) Close() error { return f.f.Close() }

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// used sums up the files of all volumes.
func (p *Pool) used() (n int64, err error) {
	there, err := p.folders.List()
	if err != nil {
		return 0, err
	}
	for _, path := range there {
		of, err := size(path)
		if err != nil {
			return 0, err
		}
		n += of
	}
	return n, nil
}

// size sums up the files below a folder.
func size(root string) (int64, error) {
	var n int64
	err := filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		i, err := e.Info()
		if err != nil {
			return err
		}
		n += i.Size()
		return nil
	})
	return n, err
}
