// SPDX-License-Identifier: Apache-2.0

// Package dir is a store in a directory, for development and for a machine without an S3 server. An
// object is a file of its name. It is written to ".tmp", synced, and linked into place, which never
// replaces a file; then the folder is synced. Replace, of what is damaged, renames it into place.
// Several processes may use one directory.
package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-storage/weir/store"
)

// Store is a directory.
type Store struct{ root string }

var _ store.Store = (*Store)(nil)

const tmp = ".tmp"

// leftover is how much older than now a temporary file is before it must be a crash's.
const leftover = 24 * time.Hour

// Open makes the directory if it is missing, checks that it can be written, and removes what
// crashes left in it.
func Open(root string) (*Store, error) {
	s := &Store{root: root}
	if err := os.MkdirAll(filepath.Join(root, tmp), 0o700); err != nil {
		return nil, s.fail("open", "", err)
	}
	probe, err := os.CreateTemp(filepath.Join(root, tmp), "probe")
	if err != nil {
		return nil, s.fail("open", "", err)
	}
	defer func() { _ = os.Remove(probe.Name()) }()
	now, err := probe.Stat() // the directory's own clock
	if err = errors.Join(err, probe.Close()); err != nil {
		return nil, s.fail("open", "", err)
	}
	old, err := os.ReadDir(filepath.Join(root, tmp))
	if err != nil {
		return nil, s.fail("open", "", err)
	}
	for _, e := range old {
		if i, err := e.Info(); err == nil && now.ModTime().Sub(i.ModTime()) > leftover {
			_ = os.Remove(filepath.Join(root, tmp, e.Name())) // next time, then
		}
	}
	return s, nil
}

func (s *Store) path(name string) string { return filepath.Join(s.root, filepath.FromSlash(name)) }

// begin checks what every operation needs.
func (s *Store) begin(ctx context.Context, op, name string) error {
	if err := ctx.Err(); err != nil {
		return s.fail(op, name, err)
	}
	return store.CheckName(name)
}

func (s *Store) fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	e := &store.Error{Op: op, Store: "directory " + s.root, Name: name, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Err = store.ErrNotExist
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Err, e.Detail = fmt.Errorf("%w (%w)", store.ErrAccess, err), "let this user read and write the directory"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Err, e.Detail = fmt.Errorf("%w (%w)", store.ErrUnavailable, err), "give the directory's file system more room"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		e.Err, e.Detail = fmt.Errorf("%w (%w)", store.ErrInvalid, err), "a name cannot be the folder of another"
	}
	return e
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, name string, size int64, body io.ReadSeeker) error {
	if err := s.begin(ctx, "put", name); err != nil {
		return err
	}
	if n, err := body.Seek(0, io.SeekEnd); err != nil || n != size {
		return s.fail("put", name, fmt.Errorf("%w: the body has %d bytes (%v), not %d", store.ErrInvalid, n, err, size))
	}
	if _, err := os.Lstat(s.path(name)); err == nil {
		return s.there(name, size)
	}
	err := s.write(name, body, os.Link)
	if errors.Is(err, fs.ErrExist) {
		return s.there(name, size)
	}
	return s.fail("put", name, err)
}

// there ends a Put of what exists. Who wrote it may not have come to sync the folder yet.
func (s *Store) there(name string, size int64) error {
	i, err := os.Lstat(s.path(name))
	if err != nil {
		return s.fail("put", name, err)
	}
	if i.IsDir() {
		return s.fail("put", name, syscall.EISDIR)
	}
	if i.Size() != size {
		return s.fail("put", name, fmt.Errorf("%w: it has %d bytes, not %d: compare both with their hash, and delete the damaged one",
			store.ErrConflict, i.Size(), size))
	}
	return s.fail("put", name, syncDir(filepath.Dir(s.path(name))))
}

// Replace implements store.Replacer.
func (s *Store) Replace(ctx context.Context, name string, size int64, body io.ReadSeeker) error {
	if err := s.begin(ctx, "replace", name); err != nil {
		return err
	}
	if n, err := body.Seek(0, io.SeekEnd); err != nil || n != size {
		return s.fail("replace", name, fmt.Errorf("%w: the body has %d bytes (%v), not %d", store.ErrInvalid, n, err, size))
	}
	return s.fail("replace", name, s.write(name, body, os.Rename))
}

// write writes a file durably, and then gives it its place.
func (s *Store) write(name string, body io.ReadSeeker, place func(from, to string) error) error {
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Join(s.root, tmp), "put")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = io.Copy(f, body)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	path := s.path(name)
	if err := s.makeDirs(filepath.Dir(path)); err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// makeDirs makes a folder and those above it durably.
func (s *Store) makeDirs(dir string) error {
	if i, err := os.Stat(dir); err == nil && i.IsDir() {
		return nil
	}
	up := filepath.Dir(dir)
	if err := s.makeDirs(up); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		if i, serr := os.Stat(dir); serr != nil || !i.IsDir() {
			return fmt.Errorf("%w (%w)", syscall.ENOTDIR, err)
		}
	}
	return syncDir(up)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// GetRange implements store.Store.
func (s *Store) GetRange(ctx context.Context, name string, off int64, p []byte) error {
	if err := s.begin(ctx, "get", name); err != nil {
		return err
	}
	if off < 0 {
		return s.fail("get", name, fmt.Errorf("%w: offset %d", store.ErrInvalid, off))
	}
	if len(p) == 0 {
		return nil
	}
	f, err := os.Open(s.path(name))
	if err != nil {
		return s.fail("get", name, err)
	}
	defer func() { _ = f.Close() }()
	n, err := f.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case errors.Is(err, syscall.EISDIR):
		return s.fail("get", name, fs.ErrNotExist)
	case errors.Is(err, io.EOF):
		return s.fail("get", name, fmt.Errorf("%w: %d bytes were wanted from %d, %d are there", store.ErrShort, len(p), off, n))
	}
	return s.fail("get", name, err)
}

// Stat implements store.Store.
func (s *Store) Stat(ctx context.Context, name string) (store.Info, error) {
	if err := s.begin(ctx, "stat", name); err != nil {
		return store.Info{}, err
	}
	i, err := os.Lstat(s.path(name))
	if err == nil && i.IsDir() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return store.Info{}, s.fail("stat", name, err)
	}
	return store.Info{Name: name, Size: i.Size(), Modified: i.ModTime()}, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string, fn func(store.Info) error) error {
	return s.list(ctx, "", prefix, fn)
}

// list returns the files below folder, which is empty or ends in a slash.
func (s *Store) list(ctx context.Context, folder, prefix string, fn func(store.Info) error) error {
	entries, err := os.ReadDir(s.path(folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.fail("list", prefix, err)
	}
	// Names sort as "a-b" < "a/b" < "a0": a folder sorts with its slash.
	full := func(e fs.DirEntry) string {
		if e.IsDir() {
			return folder + e.Name() + "/"
		}
		return folder + e.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(full(a), full(b)) })
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return s.fail("list", prefix, err)
		}
		name := full(e)
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if e.IsDir() {
			if strings.HasPrefix(name, prefix) || strings.HasPrefix(prefix, name) {
				if err := s.list(ctx, name, prefix, fn); err != nil {
					return err
				}
			}
			continue
		}
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		i, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return s.fail("list", prefix, err)
		}
		if err := fn(store.Info{Name: name, Size: i.Size(), Modified: i.ModTime()}); err != nil {
			return err
		}
	}
	return nil
}

// Delete implements store.Store. Folders that become empty stay: somebody may be putting into them.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := s.begin(ctx, "delete", name); err != nil {
		return err
	}
	if i, err := os.Lstat(s.path(name)); err == nil && i.IsDir() {
		return nil
	}
	err := os.Remove(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return s.fail("delete", name, err)
	}
	return s.fail("delete", name, syncDir(filepath.Dir(s.path(name))))
}
