// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// BenchmarkCheck checks a volume with many small files, a thousand in each directory, and tells the
// most memory that was in use meanwhile.
func BenchmarkCheck(b *testing.B) {
	const dirs, files = 200, 1000
	h := newHost(b, nil)
	if err := h.WaitApplied(b.Context(), h.lastEnd()); err != nil {
		b.Fatal(err)
	}
	number := uint64(1)<<40 + 1000
	root := &meta.Inode{Attr: volume.Attr{Handle: volume.Root, Type: volume.Directory, Nlink: 2 + dirs}, Entries: dirs, Parent: volume.Root}
	var ops []segment.Op
	put := func(k, v []byte) { ops = append(ops, segment.Op{Kind: segment.Set, Key: k, Value: v}) }
	link := func(dir uint64, name string, n *meta.Inode) {
		d := meta.Dirent{Name: name, Cookie: n.Ino, Handle: n.Handle, Type: n.Type}
		put(d.EncodeName(dir))
		put(d.EncodeCookie(dir))
		put(n.Encode())
	}
	next := func() volume.Handle {
		number++
		return volume.Handle{Ino: number, Gen: 1}
	}
	for d := range dirs {
		dir := &meta.Inode{Attr: volume.Attr{Handle: next(), Type: volume.Directory, Nlink: 2}, Entries: files, Parent: volume.Root}
		link(volume.Root.Ino, fmt.Sprint("dir", d), dir)
		for f := range files {
			n := &meta.Inode{Attr: volume.Attr{Handle: next(), Type: volume.Regular, Nlink: 1, Size: 4096, Used: 4096}}
			link(dir.Ino, fmt.Sprint("file", f), n)
			x := meta.Extent{Len: 4096, Raw: 4096, Ref: segment.BlockRef{Seq: 1, Off: 128, Len: 4000, Counter: number}}
			put(x.Encode(n.Ino))
		}
		put(root.Encode())
		put(meta.Accounting{Bytes: 4096 * dirs * files, Inodes: 1 + dirs + dirs*files}.Encode())
		if err := h.store.Apply([][]segment.Op{ops}, h.store.State()); err != nil {
			b.Fatal(err)
		}
		ops = ops[:0]
	}
	h.mu.Lock()
	h.counter = number
	h.mu.Unlock()
	runtime.GC()
	var before, during runtime.MemStats
	runtime.ReadMemStats(&before)
	most := before.HeapInuse
	for b.Loop() {
		report, err := h.Check(b.Context(), fsck.Config{Progress: func(fsck.Progress) {
			runtime.ReadMemStats(&during)
			most = max(most, during.HeapInuse)
		}})
		if err != nil || report.Count() != 0 || report.Inodes != 1+dirs+dirs*files {
			b.Fatal(report, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(dirs*files), "ns/file")
	b.ReportMetric(float64(most-before.HeapInuse)/(1<<20), "MB")
}
