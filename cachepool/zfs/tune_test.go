// SPDX-License-Identifier: Apache-2.0

package zfs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/zfs"
	"github.com/weir-storage/weir/cachepool/zfs/zfstest"
)

// TestTune: a volume's dataset has the properties that are asked for, those of others stay, and
// what is not asked for any more is inherited again. What an administrator has set stays.
func TestTune(t *testing.T) {
	name, config := tank(t, zfs.Devices{Data: []string{device(t, "data")}})
	p := watched(t, config, time.Second)
	for _, volume := range []string{"one", "two"} {
		if _, err := p.Volume(volume); err != nil {
			t.Fatal(err)
		}
	}
	const properties = "primarycache,secondarycache,logbias,recordsize"
	get := func(volume string) string {
		out := zfstest.Run(t, "zfs", "get", "-Hp", "-o", "value", properties, name+"/weir/volumes/"+volume)
		return strings.Join(strings.Fields(out), " ")
	}
	until := func(volume, want string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			got := get(volume)
			if got == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("volume %s has %s, want %s", volume, got, want)
			}
		}
	}
	const plain = "all all latency 131072"
	until("one", plain)
	zfstest.Run(t, "zfs", "set", "logbias=throughput", name+"/weir/volumes/two")
	p.Tune("one", cachepool.Tuning{L2ARC: "None", Log: "Throughput", RecordSize: 8192})
	p.Tune("two", cachepool.Tuning{ARC: "Metadata"})
	until("one", "all none throughput 8192")
	until("two", "metadata all throughput 131072")
	p.Tune("one", cachepool.Tuning{L2ARC: "Metadata"})
	until("one", "all metadata latency 131072")
	p.Tune("one", cachepool.Tuning{})
	p.Tune("two", cachepool.Tuning{})
	until("one", plain)
	until("two", "all all throughput 131072")
}
