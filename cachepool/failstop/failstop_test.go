// SPDX-License-Identifier: Apache-2.0

package failstop

import (
	"errors"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// disk is a file system on which a rename hangs until it is let go, and a file cannot be made.
type disk struct {
	vfs.FS
	hangs, goes chan struct{}
}

func newDisk() *disk {
	d := &disk{hangs: make(chan struct{}), goes: make(chan struct{})}
	d.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpRename:
			close(d.hangs)
			<-d.goes
		case errorfs.OpCreate:
			return syscall.EIO
		}
		return nil
	}))
	return d
}

func mustNew(t *testing.T, inner vfs.FS, folder string, failed func(error)) *FS {
	t.Helper()
	s, err := New(inner, folder, failed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestChangeUnderWay: the disk fails while another change hangs in the kernel. Nobody waits for it,
// and the folder is not opened again before it has ended.
func TestChangeUnderWay(t *testing.T) {
	d, folder := newDisk(), t.Name()
	told := make(chan error, 2)
	s := mustNew(t, d, folder, func(err error) { told <- err })
	ended := make(chan error, 1)
	go func() { ended <- s.Do(func() error { return s.Rename("a", "b") }) }()
	<-d.hangs
	if _, err := s.Create("c", vfs.WriteCategoryUnspecified); !errors.Is(err, syscall.EIO) {
		t.Fatalf("a file that cannot be made: %v", err)
	}
	if err := <-told; !errors.Is(err, syscall.EIO) {
		t.Errorf("the owner is told %v", err)
	}
	if err := <-ended; !errors.Is(err, syscall.EIO) {
		t.Errorf("who waits for the change is told %v", err)
	}
	if err := s.Remove("a"); !errors.Is(err, syscall.EIO) {
		t.Errorf("a change after the failure: %v", err)
	}
	s.Abandon(nil)
	if _, err := New(d, folder, nil); !errors.Is(err, ErrUnderWay) {
		t.Fatalf("opened again under a change: %v", err)
	}
	mustNew(t, d, "another folder", nil)
	close(d.goes)
	for {
		again, err := New(d, folder, nil)
		if err == nil {
			if again.Err() != nil {
				t.Errorf("the new one has failed: %v", again.Err())
			}
			return
		}
	}
}

// TestFailureOnce: the owner hears of the first failure only, and a folder whose changes have all
// ended is opened again at once.
func TestFailureOnce(t *testing.T) {
	d := newDisk()
	told := make(chan error, 2)
	s := mustNew(t, d, t.Name(), func(err error) { told <- err })
	s.Abandon(nil) // or Create would wait when the FS has stopped
	for range 2 {
		if _, err := s.Create("c", vfs.WriteCategoryUnspecified); !errors.Is(err, syscall.EIO) {
			t.Fatalf("a file that cannot be made: %v", err)
		}
	}
	if err := <-told; !errors.Is(err, syscall.EIO) {
		t.Errorf("the owner is told %v", err)
	}
	if len(told) > 0 {
		t.Errorf("the owner is told twice, also of %v", <-told)
	}
	if err := s.Wait(nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("who waits for the database is told %v", err)
	}
	mustNew(t, d, t.Name(), nil)
}

// TestNoFailure: what is or is not there already is no failure of the disk.
func TestNoFailure(t *testing.T) {
	s := mustNew(t, vfs.NewMem(), t.Name(), func(err error) { t.Errorf("told of %v", err) })
	if err := s.Rename("a", "b"); err == nil || s.Err() != nil {
		t.Errorf("a file that is not there: %v, %v", err, s.Err())
	}
}

// TestFolderThatCannotBeSynced: Pebble panics in a goroutine of its own when it cannot sync its
// folder. Here that goroutine ends, and the process goes on.
func TestFolderThatCannotBeSynced(t *testing.T) {
	var fails atomic.Bool
	inner := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync && fails.Load() {
			return syscall.EIO
		}
		return nil
	}))
	told := make(chan error, 2)
	s := mustNew(t, inner, t.Name(), func(err error) { told <- err })
	if err := s.MkdirAll("db", 0o755); err != nil {
		t.Fatal(err)
	}
	m, _, err := atomicfs.LocateMarker(s, "db", "manifest")
	if err != nil {
		t.Fatal(err)
	}
	fails.Store(true)
	ended, returned := make(chan struct{}), false
	go func() {
		defer close(ended)
		_ = m.Move("MANIFEST-000001") // what it returns is of no interest: it must not panic
		returned = true
	}()
	<-ended
	if err := <-told; !errors.Is(err, syscall.EIO) || returned {
		t.Errorf("the owner is told %v; the database went on: %t", err, returned)
	}
	s.Abandon(nil)
	if err := s.Do(func() error { return m.Move("MANIFEST-000002") }); !errors.Is(err, syscall.EIO) {
		t.Errorf("who waits for the database is told %v", err)
	}
}

// TestAbandonedWhileWriting: a database is closed when what wrote into it has ended, not before.
func TestAbandonedWhileWriting(t *testing.T) {
	d := newDisk()
	s := mustNew(t, d, t.Name(), nil)
	began, goes := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	go func() {
		_ = s.Do(func() error {
			close(began)
			<-goes
			ended.Store(true)
			return nil
		})
	}()
	<-began
	if _, err := s.Create("c", vfs.WriteCategoryUnspecified); !errors.Is(err, syscall.EIO) {
		t.Fatalf("a file that cannot be made: %v", err)
	}
	closed := make(chan bool)
	s.Abandon(func() error {
		closed <- ended.Load()
		return nil
	})
	for range 10_000 { // others run, if they can
		runtime.Gosched()
		select {
		case <-closed:
			t.Fatal("the database is closed while it is written")
		default:
		}
	}
	close(goes)
	if !<-closed {
		t.Error("the database is closed while it is written")
	}
	if err := s.Do(func() error { return nil }); !errors.Is(err, syscall.EIO) {
		t.Errorf("a write after the disk failed: %v", err)
	}
}
