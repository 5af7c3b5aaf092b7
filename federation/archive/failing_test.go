// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weir-storage/weir/cachepool/failstop"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/archive"
)

// TestArchiveOfADiskThatFails: whatever fails of the disk, the archive returns it as an error, and
// says nothing that the disk does not know. When the disk is well, it goes on by itself, and has
// all that it took.
func TestArchiveOfADiskThatFails(t *testing.T) {
	kinds := map[errorfs.OpKind]string{errorfs.OpFileWrite: "write", errorfs.OpFileSync: "sync", errorfs.OpFileSyncData: "sync data",
		errorfs.OpFileSyncTo: "sync to", errorfs.OpCreate: "create", errorfs.OpReuseForWrite: "create", errorfs.OpRename: "rename"}
	for i, suffix := range []string{".log", ".sst", "MANIFEST", ""} {
		t.Run("file "+suffix, func(t *testing.T) {
			var ill atomic.Bool
			var failures atomic.Int64
			inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
				if _, change := kinds[op.Kind]; !change || !ill.Load() || !strings.Contains(op.Path, suffix) {
					return nil
				}
				failures.Add(1)
				return syscall.EIO
			})
			disk := vfs.NewCrashableMem()
			var hours atomic.Int64
			now := func() time.Time { return time.Unix(3600*hours.Add(1), 0) }
			a, err := archive.Open(errorfs.Wrap(disk, inject), fmt.Sprint("archive", i), now)
			if err != nil {
				t.Fatal(err)
			}
			took := map[string]string{}
			revision := federation.Revision(0)
			put := func() error {
				revision++
				r := federation.Record{Key: fmt.Sprint("volume/", revision), Revision: revision,
					Value: []byte(strings.Repeat("x", 40<<10))}
				if err := a.Put([]federation.Record{r}); err != nil {
					return err
				}
				took[r.Key] = string(r.Value)
				return nil
			}
			if err := put(); err != nil {
				t.Fatal(err)
			}
			ill.Store(true)
			var failed error
			for range 1000 { // until the log is full, and written to a table
				if failed = put(); failed != nil {
					break
				}
			}
			if failures.Load() == 0 || !errors.Is(failed, syscall.EIO) || !strings.Contains(failed.Error(), "the disk fails") {
				t.Fatalf("a disk that failed %d times: %v", failures.Load(), failed)
			}
			if err := put(); !errors.Is(err, syscall.EIO) {
				t.Fatalf("a record after the failure: %v", err)
			}
			ill.Store(false)
			err = failstop.ErrUnderWay
			for errors.Is(err, failstop.ErrUnderWay) {
				err = put()
			}
			for range 2 {
				err = errors.Join(err, put())
			}
			if err != nil {
				t.Fatalf("the disk is well again: %v", err)
			}
			all, err := a.List("")
			if err != nil || len(all) < len(took) {
				t.Fatalf("it has %d records of %d, %v", len(all), len(took), err)
			}
			for key, value := range took {
				if r, ok, err := a.Get(key); err != nil || !ok || string(r.Value) != value {
					t.Errorf("record %s: %t, %v", key, ok, err)
				}
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
