// SPDX-License-Identifier: Apache-2.0

package dir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/cachepool"
)

// A file whose Sync failed once fails for ever (protocol-3), though the kernel would say yes the
// next time.
func TestFailedSyncIsNotRetried(t *testing.T) {
	r, w, err := os.Pipe() // which cannot be synced
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	f := &file{f: w, pool: &Pool{open: true}}
	first := f.Sync()
	if first == nil {
		t.Fatal("a pipe was synced")
	}
	good, err := os.Create(filepath.Join(t.TempDir(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = good.Close() }()
	f.f = good
	if err := f.Sync(); err == nil || err.Error() != first.Error() {
		t.Fatalf("the second sync says %v, the first said %v", err, first)
	}
}

// A file system without room for another file is a pool that is full. Other errors are not.
func TestNoRoomForAnotherFile(t *testing.T) {
	for errno, full := range map[unix.Errno]bool{unix.ENOSPC: true, unix.EDQUOT: true, unix.EMFILE: false, unix.EIO: false} {
		err := noRoom(&fs.PathError{Op: "open", Path: "1.seg", Err: errno})
		if errors.Is(err, cachepool.ErrFull) != full || !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if err := noRoom(nil); err != nil {
		t.Error(err)
	}
}
