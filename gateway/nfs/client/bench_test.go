// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// The benchmarks measure client and server together over the loopback device,
// with a volume in memory: an upper bound for what the protocol allows.

func benchmark(b *testing.B) (*client.Client, client.FH) {
	s := &site{t: b, vol: memvol.New(volume.ID{1})}
	s.start()
	b.Cleanup(s.stop)
	return s.dial(s.options())
}

func BenchmarkGetAttr(b *testing.B) {
	c, root := benchmark(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.GetAttr(b.Context(), root); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkData(b *testing.B) {
	for _, size := range []int{4 << 10, 1 << 20} {
		for _, write := range []bool{false, true} {
			b.Run(fmt.Sprintf("size=%d/write=%v", size, write), func(b *testing.B) { benchmarkData(b, size, write) })
		}
	}
}

func benchmarkData(b *testing.B, size int, write bool) {
	c, root := benchmark(b)
	mode := uint32(0o600)
	f, err := c.Open(b.Context(), root, "f", client.OpenArgs{Create: true, Attr: volume.SetAttr{Mode: &mode}})
	if err != nil {
		b.Fatal(err)
	}
	const pieces = 64
	data := make([]byte, size)
	for i := range uint64(pieces) {
		if _, err := f.WriteAt(b.Context(), data, i*uint64(size), xdr.FILE_SYNC4); err != nil {
			b.Fatal(err)
		}
	}
	var next atomic.Uint64
	b.SetBytes(int64(size))
	b.SetParallelism(4)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		p := make([]byte, size)
		for pb.Next() {
			off := next.Add(1) % pieces * uint64(size)
			var err error
			if write {
				_, err = f.WriteAt(b.Context(), p, off, xdr.FILE_SYNC4)
			} else {
				_, _, err = f.ReadAt(b.Context(), p, off)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}
