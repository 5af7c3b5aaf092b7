// SPDX-License-Identifier: Apache-2.0

package zfs_test

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/zfs"
	"github.com/weir-storage/weir/cachepool/zfs/zfstest"
)

// slow is a disk that is slow also in the eyes of a process that waits long for a processor: the
// ratios below are those of disks, not of a busy machine.
var slow = zfstest.Speed{Delay: 25 * time.Millisecond, Rate: 50 * mib}

// latencies are those of fsyncs.
type latencies []time.Duration

func (l latencies) at(percent int) time.Duration { return l[(len(l)-1)*percent/100] }

func (l latencies) String() string {
	return fmt.Sprintf("p50 %v, p99 %v", l.at(50).Round(10*time.Microsecond), l.at(99).Round(10*time.Microsecond))
}

// fsyncs has 16 writers write 4 KiB and fsync, again and again, and returns how long each took.
func fsyncs(t *testing.T, p cachepool.Pool, volume string, each int) latencies {
	t.Helper()
	d, err := p.Volume(volume)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all latencies
	var work sync.WaitGroup
	for i := range 16 {
		work.Go(func() {
			f, err := d.Create(fmt.Sprintf("f%d", i))
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = f.Close() }()
			block := make([]byte, 4<<10)
			for n := range each {
				_, _ = rand.Read(block) // never fails
				if _, err := f.WriteAt(block, int64(n)*int64(len(block))); err != nil {
					t.Error(err)
					return
				}
				begin := time.Now()
				if err := f.Sync(); err != nil {
					t.Error(err)
					return
				}
				took := time.Since(begin)
				mu.Lock()
				all = append(all, took)
				mu.Unlock()
			}
		})
	}
	work.Wait()
	slices.Sort(all)
	if len(all) == 0 {
		t.Fatal("no fsync succeeded")
	}
	return all
}

// opened opens a pool, and at the end makes its disk fast again and closes it.
func opened(t *testing.T, config zfs.Config, data *zfstest.Disk) *zfs.Pool {
	t.Helper()
	p, err := zfs.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		data.Slow(zfstest.Speed{})
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestSLOG: with a fast log device, fsyncs do not wait for a slow data device. What the devices
// count tells where the writes were durable.
func TestSLOG(t *testing.T) {
	data, log := zfstest.NewDisk(t, "data", 512*mib), zfstest.NewDisk(t, "log", 256*mib)
	name, config := tank(t, zfs.Devices{Data: []string{data.Path}})
	p := opened(t, config, data)
	data.Slow(slow)
	without := fsyncs(t, p, "without", 8)
	data.Slow(zfstest.Speed{})
	zfstest.Run(t, "zpool", "add", "-f", name, "log", log.Path)
	data.Slow(slow)
	before := log.Work()
	with := fsyncs(t, p, "with", 100)
	written := log.Work().WrittenBytes - before.WrittenBytes
	t.Logf("16 writers, 4 KiB and fsync. Without a SLOG: %v. With one: %v. %d KiB written to it", without, with, written>>10)
	if written < 1600*4<<10 {
		t.Errorf("%d bytes were written to the log device, by %d fsyncs", written, len(with))
	}
	for _, percent := range []int{50, 99} {
		if with.at(percent)*5 > without.at(percent) {
			t.Errorf("p%d is %v with a SLOG, and %v without: not five times better", percent, with.at(percent), without.at(percent))
		}
	}
}

// readSet reads blocks of 128 KiB of a file in another order each time, past the kernel's cache,
// and returns bytes a second. Reads in order would be fetched ahead, and those are not kept by the
// L2ARC.
func readSet(t *testing.T, f cachepool.File, blocks []int) (rate float64) {
	t.Helper()
	p := make([]byte, 128<<10)
	if err := f.Forget(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for _, n := range blocks {
		if _, err := f.ReadAt(p, int64(n)*int64(len(p))); err != nil {
			t.Fatal(err)
		}
		if binary.BigEndian.Uint64(p) != uint64(n) {
			t.Fatalf("block %d is not what was written", n)
		}
	}
	return float64(len(blocks)*len(p)) / time.Since(begin).Seconds()
}

// TestL2ARC: a read set of three times the memory, on a slow data device, comes from a fast cache
// device once that has it.
func TestL2ARC(t *testing.T) {
	data, cache := zfstest.NewDisk(t, "data", 512*mib), zfstest.NewDisk(t, "cache", 512*mib)
	name, config := tank(t, zfs.Devices{Data: []string{data.Path}})
	config.Limit = 512 * mib
	p := opened(t, config, data)
	d, err := p.Volume("v")
	if err != nil {
		t.Fatal(err)
	}
	f, err := d.Create("f")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const blocks = 3 * zfstest.Memory / (128 << 10)
	block := make([]byte, 128<<10)
	for n := range blocks {
		_, _ = rand.Read(block) // never fails
		binary.BigEndian.PutUint64(block, uint64(n))
		if _, err := f.WriteAt(block, int64(n)*int64(len(block))); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	zfstest.Run(t, "zfs", "snapshot", name+"/weir/volumes/v@all") // it is on the data device now
	random := mathrand.New(mathrand.NewPCG(1, 2))

	slow := zfstest.Speed{Delay: 25 * time.Millisecond, Rate: 50 * mib}
	data.Slow(slow)
	without := readSet(t, f, random.Perm(blocks)[:blocks/8])
	data.Slow(zfstest.Speed{})
	zfstest.Run(t, "zpool", "add", "-f", name, "cache", cache.Path)
	for begin, passes := time.Now(), 0; ; passes++ {
		before := data.Work()
		readSet(t, f, random.Perm(blocks))
		if missed := data.Work().ReadBytes - before.ReadBytes; missed < blocks*128<<10/20 {
			t.Logf("after %d passes, in %v, the cache device has it", passes+1, time.Since(begin).Round(time.Second))
			break
		}
		if time.Since(begin) > 3*time.Minute {
			t.Fatalf("after %d passes the cache device has %d MiB of %d", passes, cache.Work().WrittenBytes>>20, blocks/8)
		}
	}
	data.Slow(slow)
	was, wasData := cache.Work(), data.Work()
	with := readSet(t, f, random.Perm(blocks)[:blocks/4])
	fromCache, fromData := cache.Work().ReadBytes-was.ReadBytes, data.Work().ReadBytes-wasData.ReadBytes
	t.Logf("%d MiB at random of %d MiB, 25 ms a request. Without an L2ARC: %.1f MiB/s. With one: %.1f MiB/s, %d MiB from it, "+
		"%d from the data device", blocks/32, blocks/8, without/mib, with/mib, fromCache>>20, fromData>>20)
	if fromCache < 4*fromData {
		t.Errorf("%d bytes were read from the cache device, and %d from the data device", fromCache, fromData)
	}
	if with < 3*without {
		t.Errorf("%.0f bytes a second with an L2ARC, %.0f without: not three times better", with, without)
	}
}
