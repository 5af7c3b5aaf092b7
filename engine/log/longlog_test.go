// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/engine/segment"
)

// BenchmarkLongLog measures what a replica asks of its log for each record, in a log of 1 TiB.
func BenchmarkLongLog(b *testing.B) {
	l := setup{disk: newDisk(1, 1<<40), size: 1 << 24}.mustOpen(b)
	var infos []SegmentInfo
	var link segment.Link
	for seq := uint64(1); seq <= 1<<14; seq++ {
		in := SegmentInfo{Seq: seq, Epoch: 1 + seq/1000, Prev: link, Len: segment.MaxSize, Hash: segment.Hash{byte(seq)}, Uploaded: true}
		link = segment.Link{Seq: in.Seq, Len: in.Len, Hash: in.Hash}
		infos = append(infos, in)
	}
	must(b, l.Adopt(infos))
	for name, ask := range map[string]func(){
		"epochs":   func() { _ = l.Epochs() },
		"distance": func() { _ = l.Distance(Position{Seq: 1<<14 - 2, Off: 5}, l.End()) },
		"segments": func() { _ = l.Segments() },
		"unstored": func() { _ = l.Unstored(0, l.End(), 4) },
		"waiting":  func() { _ = l.UnstoredBytes(l.End()) },
		"sealed":   func() { _ = l.Sealed(l.End()) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ask()
			}
		})
	}
}

// BenchmarkOpenLongLog opens a log whose 16384 segments are all here, closed and not uploaded. The
// segments are small, so that the disk has room; what is printed of long ones would be the same.
func BenchmarkOpenLongLog(b *testing.B) {
	const segments = 1 << 14
	pool, err := dir.Open(dir.Config{Path: b.TempDir(), Gateway: "gw", Limit: 1 << 40, Random: rand.Reader})
	must(b, err)
	d, err := pool.Volume("v")
	must(b, err)
	l := writeLong(b, d, pool.Room(), segments)
	b.Run("", func(b *testing.B) {
		b.ReportAllocs()
		defer func() { b.ReportMetric(heap()/(1<<20), "MiB-heap") }()
		for b.Loop() {
			must(b, l.Close())
			l, err = Open(Config{Dir: d, Room: pool.Room(), Volume: testVolume, DataKey: testKey, Rand: rand.Reader})
			must(b, err)
			must(b, l.Recovered().Doubt)
			if n := len(l.segs); n != segments {
				b.Fatalf("%d segments", n)
			}
		}
	})
	b.Run("mark", func(b *testing.B) {
		b.ReportAllocs()
		for seq := uint64(1); b.Loop(); seq++ {
			if seq == segments {
				b.Skip("there are no more segments")
			}
			must(b, l.MarkStored(nameOf(b, l, seq)))
		}
	})
	must(b, l.Close())
	must(b, pool.Close())
}

// heap returns how many bytes of memory are in use, or were given back to nobody yet.
func heap() float64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return float64(s.HeapSys - s.HeapReleased)
}

// writeLong writes the files and the table of a log, without the fsyncs that a log would do.
func writeLong(b *testing.B, d cachepool.Dir, room Room, n uint64) *Log {
	b.Helper()
	var t table
	var link segment.Link
	for seq := uint64(1); seq <= n; seq++ {
		h := segment.Header{Volume: testVolume, Seq: seq, Epoch: 1, Prev: link}
		binary.BigEndian.PutUint64(h.Salt[:], seq)
		frame := segment.AppendHeader(nil, h)
		f, err := d.Create(fileName(seq))
		must(b, err)
		_, err = f.WriteAt(frame, 0)
		must(b, errors.Join(err, f.Close()))
		s := seg{header: h, len: uint64(len(frame)), closed: true, local: true}
		s.hash, err = rehash(bytes.NewReader(frame), s.len)
		must(b, err)
		link = s.link()
		if seq < n {
			t.entries = append(t.entries, entryOf(&s))
		}
	}
	must(b, room.Reserve(int64(n)*segment.HeaderSize))
	must(b, writeTable(d, t))
	l, err := Open(Config{Dir: d, Room: room, Volume: testVolume, DataKey: testKey, Rand: rand.Reader})
	must(b, err)
	return l
}
