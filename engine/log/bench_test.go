// SPDX-License-Identifier: Apache-2.0

package log

import (
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/engine/segment"
)

// onDisk opens a log in a real directory.
func onDisk(b *testing.B) *Log {
	b.Helper()
	pool, err := dir.Open(dir.Config{Path: b.TempDir(), Gateway: "gw", Limit: 1 << 40, Random: rand.Reader})
	must(b, err)
	d, err := pool.Volume("v")
	must(b, err)
	l, err := Open(Config{Dir: d, Room: pool.Room(), Volume: testVolume, DataKey: testKey, Rand: rand.Reader})
	must(b, err)
	b.Cleanup(func() {
		must(b, l.Close())
		must(b, pool.Close())
	})
	_, err = l.BeginEpoch(1)
	must(b, err)
	return l
}

// BenchmarkAppend1MiB appends records of sixteen incompressible blocks, packed beforehand, and
// makes them durable eight at a time.
func BenchmarkAppend1MiB(b *testing.B) {
	l := onDisk(b)
	raw := make([]byte, 1<<20)
	_, _ = rand.Read(raw) // never fails
	var packs [][]byte
	for off := 0; off < len(raw); off += segment.MaxBlock {
		packs = append(packs, segment.Pack(raw[off:off+segment.MaxBlock], segment.Fast))
	}
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		r := &segment.Record{Blocks: make([]segment.Block, len(packs))}
		for i, p := range packs {
			r.Blocks[i] = segment.Block{Pack: p, Size: segment.MaxBlock}
		}
		end, err := l.Append(r)
		must(b, err)
		if n++; n%8 == 0 {
			must(b, l.Wait(b.Context(), end))
		}
		if n%1024 == 0 { // keep the disk small
			b.StopTimer()
			must(b, l.Truncate(Position{}))
			_, err := l.BeginEpoch(uint64(n))
			must(b, err)
			b.StartTimer()
		}
	}
}

// BenchmarkAppendSmall appends records of 200 bytes from many goroutines. Each waits until its own
// record is durable.
func BenchmarkAppendSmall(b *testing.B) {
	l := onDisk(b)
	b.SetParallelism(64)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			end, err := l.Append(&segment.Record{Slot: "client",
				Ops: []segment.Op{{Kind: segment.Set, Key: make([]byte, 20), Value: make([]byte, 180)}}})
			if err == nil {
				err = l.Wait(b.Context(), end)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkAppendSmallUnsynced measures the cost of a small record without the disk.
func BenchmarkAppendSmallUnsynced(b *testing.B) {
	l := onDisk(b)
	b.ReportAllocs()
	for b.Loop() {
		_, err := l.Append(&segment.Record{Slot: "client",
			Ops: []segment.Op{{Kind: segment.Set, Key: make([]byte, 20), Value: make([]byte, 180)}}})
		must(b, err)
	}
}

// BenchmarkSyncEach appends records of 4 KiB from some workers, each of which waits until its
// record is durable, with zeros ahead and without. Both take turns, so that they meet the same
// noise.
func BenchmarkSyncEach(b *testing.B) {
	const n, rounds = 200, 6
	raw := make([]byte, 4<<10)
	_, _ = rand.Read(raw) // never fails
	for _, workers := range []int{1, 16} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			logs := []*Log{onDisk(b), onDisk(b)}
			logs[1].ahead = 0
			var took [2]time.Duration
			for range rounds {
				for k, l := range logs {
					began := time.Now()
					var all sync.WaitGroup
					for range workers {
						all.Go(func() {
							for range n {
								end, err := l.Append(&segment.Record{Blocks: []segment.Block{{Raw: raw}}})
								if err == nil {
									err = l.Wait(b.Context(), end)
								}
								if err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					all.Wait()
					took[k] += time.Since(began)
				}
			}
			b.ReportMetric(float64(took[0].Microseconds())/(n*rounds), "us/sync")
			b.ReportMetric(float64(took[1].Microseconds())/(n*rounds), "us/sync-without")
			b.ReportMetric(float64(took[1])/float64(took[0]), "x-without")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkRoll begins segments. Each has one record, which is durable before the roll, or not, and
// only the roll is timed.
func BenchmarkRoll(b *testing.B) {
	for _, durable := range []bool{true, false} {
		b.Run(fmt.Sprintf("durable=%t", durable), func(b *testing.B) {
			l := onDisk(b)
			for b.Loop() {
				b.StopTimer()
				end, err := l.Append(&segment.Record{
					Ops: []segment.Op{{Kind: segment.Set, Key: make([]byte, 20), Value: make([]byte, 4096)}}})
				must(b, err)
				if durable {
					must(b, l.Wait(b.Context(), end))
				}
				b.StartTimer()
				must(b, l.Roll())
			}
		})
	}
}
