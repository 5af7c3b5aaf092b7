// SPDX-License-Identifier: Apache-2.0

// Package failstop lets a database fail where it would end its process, or wait for ever.
//
// Pebble ends the process when its log or its manifest cannot be written, and tries for ever to
// write a table, while those who wait for it hang. A database on an FS of this package has one
// failure: after the first change of the disk that failed, no other is made (protocol-3). Who owns
// the database hears of it, abandons the database, and opens it again on a new FS. That waits for
// changes that the kernel still makes for the old one: a rename that ends late would replace a file
// of the new one.
package failstop

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is a vfs.FS for one opened database. Its methods may be called from many goroutines. Those of
// directories are called from goroutines of the database or of Do only.
type FS struct {
	vfs.FS
	folder string
	failed func(error)

	mu        sync.Mutex
	err       error          // why it stopped
	underWay  int            // changes
	stopped   chan struct{}  // closed when it did
	abandoned chan struct{}  // closed by Abandon
	doing     sync.WaitGroup // calls of f that Do began; none begins when err is set
}

var _ vfs.FS = (*FS)(nil)

// ErrUnderWay is returned while a change of a database that failed is still under way, on a disk
// that hangs.
var ErrUnderWay = errors.New("a change of the files is still under way since the disk failed, they are opened when it has ended")

// hanging counts, by folder, the FSs of this process that stopped with changes under way.
var hanging struct {
	sync.Mutex
	folders map[string]int
}

func hang(folder string, n int) {
	hanging.Lock()
	defer hanging.Unlock()
	if hanging.folders == nil {
		hanging.folders = map[string]int{}
	}
	if hanging.folders[folder] += n; hanging.folders[folder] == 0 {
		delete(hanging.folders, folder)
	}
}

// New returns an FS that makes changes in inner, for a database in folder. failed is called once,
// in a goroutine of its own, with the first that failed. It may be nil. New returns ErrUnderWay
// until all changes that an earlier FS of the folder made have ended.
func New(inner vfs.FS, folder string, failed func(error)) (*FS, error) {
	hanging.Lock()
	defer hanging.Unlock()
	if hanging.folders[folder] > 0 {
		return nil, fmt.Errorf("%s: %w", folder, ErrUnderWay)
	}
	return &FS{FS: inner, folder: folder, failed: failed, stopped: make(chan struct{}), abandoned: make(chan struct{})}, nil
}

// Err returns why no change is made any more; nil: none has failed.
func (s *FS) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Do calls f, which uses the database, and returns what it returns, or earlier why the FS stopped.
// Then f may still run, or never end: nobody else may use what it uses.
func (s *FS) Do(f func() error) error {
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return s.err
	}
	s.doing.Add(1)
	s.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		defer s.doing.Done()
		s.run(f, done)
	}()
	select {
	case err := <-done:
		return err
	case <-s.stopped:
		return s.Err()
	}
}

// run calls f, which Fatal may end.
func (s *FS) run(f func() error, done chan<- error) {
	var err error
	returned := false
	defer func() {
		if !returned {
			p := recover() // nil if Fatal ended the goroutine
			if err = s.Err(); err == nil {
				panic(p)
			}
		}
		done <- err
	}()
	err = f()
	returned = true
}

// Wait waits for ch, and returns nil, or why the FS stopped before.
func (s *FS) Wait(ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-s.stopped:
		return s.Err()
	}
}

// Fatal is for the database's logger: it does not return. It panics, unless the reason is that the
// FS stopped. Then it ends the goroutine, which is one of the database's own or of Do.
func (s *FS) Fatal(message string) {
	if s.Err() == nil {
		panic(message)
	}
	runtime.Goexit()
}

// Abandon is called once, for a database that is not used any more and whose FS stopped. It waits
// for nothing. When what Do began has ended, it closes the database by end as far as that goes: a
// database frees memory when it closes, and a write that is still under way would go into what
// another database has by then. end may be nil.
func (s *FS) Abandon(end func() error) {
	close(s.abandoned)
	if end != nil {
		go func() {
			s.doing.Wait()
			s.run(end, make(chan error, 1))
		}()
	}
}

// fail notes that a change failed. It returns err.
func (s *FS) fail(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return err
	}
	s.err = fmt.Errorf("the disk fails: %w", err)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		s.err = fmt.Errorf("the disk has no room, delete something else there or make it larger: %w", err)
	}
	hang(s.folder, 1) // until end was called for all, also for this one
	close(s.stopped)
	if s.failed != nil {
		go s.failed(s.err)
	}
	return err
}

// change makes a change, unless one has failed.
func (s *FS) change(f func() error) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	return s.fail(f())
}

// begin notes that a change begins, or returns why none may.
func (s *FS) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.underWay++
	}
	return s.err
}

// end notes that a change has ended.
func (s *FS) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.underWay--; s.underWay == 0 && s.err != nil {
		hang(s.folder, -1)
	}
}

// create makes a file. When the FS has stopped it waits for the end: the database tries again at
// once, and for ever, what it could not write.
func (s *FS) create(f func() (vfs.File, error)) (out vfs.File, err error) {
	if s.Err() != nil {
		<-s.abandoned
	}
	err = s.change(func() (err error) {
		out, err = f()
		return err
	})
	if err != nil {
		return nil, err
	}
	return &file{out, s}, nil
}

// Create implements vfs.FS.
func (s *FS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return s.create(func() (vfs.File, error) { return s.FS.Create(name, category) })
}

// OpenReadWrite implements vfs.FS.
func (s *FS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return s.create(func() (vfs.File, error) { return s.FS.OpenReadWrite(name, category, opts...) })
}

// ReuseForWrite implements vfs.FS.
func (s *FS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return s.create(func() (vfs.File, error) { return s.FS.ReuseForWrite(from, to, category) })
}

// OpenDir implements vfs.FS.
func (s *FS) OpenDir(name string) (vfs.File, error) {
	d, err := s.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &folder{file{d, s}}, nil
}

// Link implements vfs.FS.
func (s *FS) Link(from, to string) error {
	return s.change(func() error { return s.FS.Link(from, to) })
}

// Rename implements vfs.FS.
func (s *FS) Rename(from, to string) error {
	return s.change(func() error { return s.FS.Rename(from, to) })
}

// MkdirAll implements vfs.FS.
func (s *FS) MkdirAll(dir string, perm os.FileMode) error {
	return s.change(func() error { return s.FS.MkdirAll(dir, perm) })
}

// Remove implements vfs.FS. A file that stays does no harm.
func (s *FS) Remove(name string) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	return s.FS.Remove(name)
}

// RemoveAll implements vfs.FS.
func (s *FS) RemoveAll(name string) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	return s.FS.RemoveAll(name)
}

// Lock implements vfs.FS. It locks nothing: the pool belongs to this process (pool-1), and a
// database that was abandoned may never give its lock back.
func (s *FS) Lock(string) (io.Closer, error) { return unlocked{}, nil }

type unlocked struct{}

func (unlocked) Close() error { return nil }

// Unwrap implements vfs.FS.
func (s *FS) Unwrap() vfs.FS { return s.FS }

// folder is a directory that is synced.
type folder struct{ file }

// Sync implements vfs.File. If it fails it does not return, as Fatal: Pebble would panic, and with
// it end the process and all its other volumes.
func (f *folder) Sync() error {
	err := f.file.Sync()
	if err != nil && f.fs.Err() != nil {
		runtime.Goexit()
	}
	return err
}

// SyncData implements vfs.File.
func (f *folder) SyncData() error { return f.Sync() }

// file is a file that is written.
type file struct {
	vfs.File
	fs *FS
}

func (f *file) Write(p []byte) (n int, err error) {
	err = f.fs.change(func() (err error) {
		n, err = f.File.Write(p)
		return err
	})
	return n, err
}

func (f *file) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.fs.change(func() (err error) {
		n, err = f.File.WriteAt(p, off)
		return err
	})
	return n, err
}

func (f *file) Sync() error { return f.fs.change(f.File.Sync) }

func (f *file) SyncData() error { return f.fs.change(f.File.SyncData) }

func (f *file) SyncTo(length int64) (full bool, err error) {
	err = f.fs.change(func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}
