// SPDX-License-Identifier: Apache-2.0

package zfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-storage/weir/cachepool/zfs/zfstest"
)

// TestAsideGoneWithItsDataset: somebody who asks for a folder that was set aside, and that went
// with its dataset, does not settle that the volume's folder went back too (protocol-3).
func TestAsideGoneWithItsDataset(t *testing.T) {
	name, _, p := rewindable(t)
	if err := p.RenameVolume("one", "aside-one"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Volume("one"); err != nil {
		t.Fatal(err)
	}
	isRewound(t, p, "set aside", false, false)
	zfstest.Run(t, "zfs", "rollback", name+"/weir/volumes/one@s")
	if _, err := p.Volume("aside-one"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder that was set aside: %v", err)
	}
	isRewound(t, p, "after the rollback", true, false)
	if _, err := p.Volume("one"); err != nil {
		t.Error(err)
	}
	isRewound(t, p, "asked for again", true, false)
	if err := p.Settled("one", errors.New("another reason")); err != nil {
		t.Error(err)
	}
	isRewound(t, p, "settled for another reason", true, false)
	if err := p.Settled("one", p.Rewound("one")); err != nil {
		t.Error(err)
	}
	isRewound(t, p, "settled", false, false)
}

// TestGoneWithItsDataset: a volume's own folder that went with its dataset is made again, and known
// to have lost what was there.
func TestGoneWithItsDataset(t *testing.T) {
	name, config, p := rewindable(t)
	zfstest.Run(t, "zfs", "destroy", name+"/weir/volumes/two@s")
	if err := p.RenameVolume("two", "else"); err != nil {
		t.Fatal(err)
	}
	zfstest.Run(t, "zfs", "snapshot", name+"/weir/volumes/two@empty")
	if err := p.RenameVolume("else", "two"); err != nil {
		t.Fatal(err)
	}
	zfstest.Run(t, "zfs", "rollback", name+"/weir/volumes/two@empty")
	if _, err := p.Volume("two"); err != nil {
		t.Fatal(err)
	}
	isRewound(t, p, "the folder is gone", false, true)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	isRewound(t, reopen(t, config), "after a restart", false, true)
}

// TestFoundLater: a dataset that could not be used when the pool was opened is looked at when it
// can be.
func TestFoundLater(t *testing.T) {
	name, config, p := rewindable(t)
	if err := p.RenameVolume("one", "aside-one"); err != nil {
		t.Fatal(err)
	}
	zfstest.Run(t, "zfs", "snapshot", name+"/weir/volumes/one@both")
	if _, err := p.Volume("one"); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	dataset := name + "/weir/volumes/one"
	zfstest.Run(t, "zfs", "rollback", dataset+"@both")
	zfstest.Run(t, "zfs", "unmount", dataset)
	below := filepath.Join(config.Path, "volumes", "one", "other")
	if err := os.WriteFile(below, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p = reopen(t, config)
	if _, err := p.Volume("one"); err == nil {
		t.Error("a volume in a dataset that cannot be mounted is used")
	}
	if err := os.Remove(below); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Volume("one"); err != nil {
		t.Fatal(err)
	}
	// Its folder was not there, so it has nothing to lose. What was set aside is known.
	all, err := p.ListVolumes()
	if err != nil || len(all) != 3 || all[0] != "aside-one" {
		t.Errorf("%v, %v", all, err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}

	// With its folder, it is known to have gone back.
	zfstest.Run(t, "zfs", "snapshot", dataset+"@now")
	zfstest.Run(t, "zfs", "rollback", dataset+"@now")
	zfstest.Run(t, "zfs", "unmount", dataset)
	if err := os.WriteFile(below, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p = reopen(t, config)
	if err := os.Remove(below); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Volume("one"); err != nil {
		t.Fatal(err)
	}
	isRewound(t, p, "found later", true, false)
}

// TestMadeByHand: a dataset that an administrator made for a volume, with properties of his own, is
// used as one that the gateway made.
func TestMadeByHand(t *testing.T) {
	name, config, p := rewindable(t)
	zfstest.Run(t, "zfs", "create", "-o", "quota=100M", name+"/weir/volumes/three")
	if _, err := p.Volume("three"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if why := p.Rewound("three"); why != nil {
			t.Error(why)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		p = reopen(t, config)
	}
}
