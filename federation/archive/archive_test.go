// SPDX-License-Identifier: Apache-2.0

package archive_test

import (
	"testing"

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
		a, err := archive.Open(disk, "archive")
		if err != nil {
			t.Fatal(err)
		}
		return a
	})
}
