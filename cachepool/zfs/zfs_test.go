// SPDX-License-Identifier: Apache-2.0

package zfs_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/pooltest"
	"github.com/weir-storage/weir/cachepool/zfs"
	"github.com/weir-storage/weir/cachepool/zfs/zfstest"
)

func TestMain(m *testing.M) { zfstest.Main(m) }

const mib = 1 << 20

var serial atomic.Int64

// tank makes a ZFS pool of devices, which ends with the test.
func tank(t *testing.T, devices zfs.Devices) (name string, config zfs.Config) {
	t.Helper()
	name = fmt.Sprintf("weir%d-%d", os.Getpid(), serial.Add(1))
	devices.Mountpoint = filepath.Join(t.TempDir(), "tank")
	config = configOf(name)
	config.Path = filepath.Join(t.TempDir(), "weir")
	config.Devices = &devices
	p, err := zfs.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { zfstest.Destroy(t, name) })
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return name, config
}

func device(t *testing.T, name string) string {
	t.Helper()
	path, _ := zfstest.Device(t, name, 256*mib)
	return path
}

func configOf(pool string) zfs.Config {
	return zfs.Config{Path: "/run/" + pool + "/weir", Dataset: pool + "/weir", Gateway: pooltest.Gateway, Limit: pooltest.Limit,
		Random: rand.Reader}
}

func TestSuite(t *testing.T) {
	name, _ := tank(t, zfs.Devices{Data: []string{device(t, "data")}, Cache: []string{device(t, "cache")}, Log: []string{device(t, "log")}})
	pooltest.Run(t, func(t *testing.T) pooltest.Harness {
		config := configOf(name)
		config.Dataset = fmt.Sprintf("%s/suite%d", name, serial.Add(1))
		config.Path = filepath.Join(t.TempDir(), "pool")
		made := false
		t.Cleanup(func() {
			if made {
				zfstest.Destroy(t, config.Dataset)
			}
		})
		return pooltest.Harness{Open: func() (cachepool.Pool, error) {
			p, err := zfs.Open(t.Context(), config)
			if err != nil {
				return nil, err
			}
			made = true
			return p, nil
		}}
	})
}

// TestRefusals: bad input is told with field, value and remedy, and nothing is changed.
func TestRefusals(t *testing.T) {
	blank, other := device(t, "blank"), device(t, "other")
	small, _ := zfstest.Device(t, "small", 32*mib)
	used := device(t, "used")
	zfstest.Run(t, "mkfs.ext4", "-q", used)
	tank(t, zfs.Devices{Data: []string{device(t, "taken")}})
	taken := strings.Fields(zfstest.Run(t, "sh", "-c", "losetup -n -O NAME,BACK-FILE | grep /taken"))[0]
	none, pools := "/dev/weir-none", zfstest.Run(t, "zpool", "list", "-H", "-o", "name")
	for _, c := range []struct {
		why     string
		config  zfs.Config
		is      error
		devices zfs.Devices
		says    []string
	}{
		{why: "a pool that is not there", config: configOf("none"), is: zfs.ErrNoPool, says: []string{"none/weir", "zpool create"}},
		{why: "a whole pool", config: zfs.Config{Dataset: "tank"}, is: cachepool.ErrInvalid, says: []string{`"tank"`, "tank/weir"}},
		{why: "a name that no dataset has", config: zfs.Config{Dataset: "tank/-o x"}, is: cachepool.ErrInvalid,
			says: []string{"tank/-o x"}},
		{why: "a missing device", devices: zfs.Devices{Data: []string{none}}, is: os.ErrNotExist,
			says: []string{"devices.data[0]", none, "lsblk"}},
		{why: "no block device", devices: zfs.Devices{Data: []string{blank}, Log: []string{"/dev/null"}}, is: cachepool.ErrInvalid,
			says: []string{"devices.log[0]", "/dev/null"}},
		{why: "a relative path", devices: zfs.Devices{Data: []string{"sda"}}, is: cachepool.ErrInvalid, says: []string{"sda", "by-id"}},
		{why: "one that is too small", devices: zfs.Devices{Data: []string{blank}, Cache: []string{small}}, is: cachepool.ErrInvalid,
			says: []string{"devices.cache[0]", small, "33554432 bytes"}},
		{why: "one named twice", devices: zfs.Devices{Data: []string{blank, other}, Log: []string{blank}}, is: cachepool.ErrInvalid,
			says: []string{"devices.log[0]", "devices.data[0]"}},
		{why: "one with a file system", devices: zfs.Devices{Data: []string{blank, used}}, is: zfs.ErrInUse,
			says: []string{"devices.data[1]", used, "type ext4", "wipefs"}},
		{why: "one of another pool", devices: zfs.Devices{Data: []string{taken}}, is: zfs.ErrInUse, says: []string{taken}},
		{why: "a layout that nobody knows", devices: zfs.Devices{Data: []string{blank}, Layout: "RAID5"}, is: cachepool.ErrInvalid,
			says: []string{"devices.layout", `"RAID5"`, "Raidz"}},
		{why: "too few devices", devices: zfs.Devices{Data: []string{blank}, Layout: zfs.Mirror}, is: cachepool.ErrInvalid,
			says: []string{"devices.data", "at least 2"}},
		{why: "a mirrored log of one", devices: zfs.Devices{Data: []string{blank}, Log: []string{other}, MirrorLog: true},
			is: cachepool.ErrInvalid, says: []string{"devices.log"}},
	} {
		config := c.config
		if c.devices.Data != nil {
			config = configOf("refused")
			c.devices.Mountpoint = t.TempDir()
			config.Devices = &c.devices
		}
		p, err := zfs.Open(t.Context(), config)
		if err == nil {
			_ = p.Close()
		}
		if !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %v", c.why, err, c.is)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v: want %q", c.why, err, s)
			}
		}
	}
	if out := zfstest.Run(t, "zpool", "list", "-H", "-o", "name"); out != pools {
		t.Errorf("the pools are %s, were %s", out, pools)
	}
	if out := zfstest.Run(t, "blkid", "-p", used); !strings.Contains(out, "ext4") {
		t.Errorf("the device with a file system has %s", out)
	}
}
