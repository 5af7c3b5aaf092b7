// SPDX-License-Identifier: Apache-2.0

package zfs_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-storage/weir/cachepool/zfs"
	"github.com/weir-storage/weir/cachepool/zfs/zfstest"
)

// TestElsewhere: a ZFS pool that another machine may use is refused, until that machine has
// exported it or a person says otherwise. Nothing of it is changed.
func TestElsewhere(t *testing.T) {
	zfstest.NeedElsewhere(t)
	name, config := tank(t, zfs.Devices{Data: []string{device(t, "data")}, Log: []string{device(t, "log")}})
	zfstest.Run(t, "zpool", "export", name)
	zfstest.Elsewhere(t, "zpool import -d /dev "+name+"; zfs list "+name+"/weir")
	_, err := zfs.Open(t.Context(), config)
	if !errors.Is(err, zfs.ErrElsewhere) || !strings.Contains(err.Error(), "zpool import -f "+name) {
		t.Fatalf("a pool that another machine has: %v", err)
	}
	zfstest.Elsewhere(t, "zpool import -d /dev -f "+name+"; zpool export "+name)
	p, err := zfs.Open(t.Context(), config)
	if err != nil {
		t.Fatalf("once the other machine has exported it: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
