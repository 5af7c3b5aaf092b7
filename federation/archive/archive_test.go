// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/archive"
	"github.com/weir-storage/weir/federation/federationtest"
)

// TestArchive: what the archive said is there after a loss of power.
func TestArchive(t *testing.T) {
	disk := vfs.NewCrashableMem()
	federationtest.RunArchive(t, func(t *testing.T) federation.Archive {
		disk = disk.CrashClone(vfs.CrashCloneCfg{}) // without all that was not synced
		a, err := archive.Open(disk, "archive", time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return a
	})
}

// TestDeletedRecordsAreForgotten: the name of a deleted record is kept for 90 days, and no longer.
// One that is made again is no deleted one.
func TestDeletedRecordsAreForgotten(t *testing.T) {
	now := time.Unix(1e9, 0)
	a, err := archive.Open(vfs.NewMem(), "archive", func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	revision := federation.Revision(0)
	put := func(key string, deleted bool) {
		revision++
		if err := a.Put([]federation.Record{{Key: key, Revision: revision, Deleted: deleted}}); err != nil {
			t.Fatal(err)
		}
	}
	there := func(key string) bool {
		_, ok, err := a.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	put("volume/kept", false)
	put("volume/again", true)
	put("volume/again", false)
	put("volume/gone", true)
	put("volume/reborn", true)
	now = now.Add(89 * 24 * time.Hour)
	put("volume/later", true)
	if !there("volume/gone") {
		t.Error("a deleted record is forgotten too early")
	}
	now = now.Add(2 * 24 * time.Hour)
	put("volume/reborn", false)
	if !there("volume/reborn") {
		t.Error("a record that is made again is forgotten with the one that was deleted")
	}
	if there("volume/gone") || !there("volume/kept") || !there("volume/again") || !there("volume/later") {
		t.Errorf("after 91 days: %v %v %v %v", there("volume/gone"), there("volume/kept"), there("volume/again"), there("volume/later"))
	}
}
