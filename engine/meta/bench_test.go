// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/segment"
)

const benchKeys = 100_000

// benchStore returns a store that has as many bytes as an inode under each of many keys.
func benchStore(b *testing.B) *Store {
	b.Helper()
	s, err := Open(Options{FS: vfs.NewMem(), Dir: "meta", DataKey: [32]byte{1}, Rand: rand.Reader, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	var ops []segment.Op
	for i := range uint64(benchKeys) {
		ops = append(ops, segment.Op{Kind: segment.Set, Key: InodeKey(i), Value: make([]byte, inodeSize)})
	}
	if err := s.Apply([][]segment.Op{ops}, State{}); err != nil {
		b.Fatal(err)
	}
	if err := s.Flush(); err != nil {
		b.Fatal(err)
	}
	return s
}

func benchOps(i uint64) []segment.Op {
	var ops []segment.Op
	for k := range uint64(5) {
		ops = append(ops, segment.Op{Kind: segment.Set, Key: InodeKey((i*5 + k) % benchKeys), Value: make([]byte, inodeSize)})
	}
	return ops
}

// BenchmarkApply applies a batch of 100 records with five keys each.
func BenchmarkApply(b *testing.B) {
	s := benchStore(b)
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		records := make([][]segment.Op, 100)
		for k := range records {
			records[k] = benchOps(i*100 + uint64(k))
		}
		if err := s.Apply(records, State{Position: segment.Position{Seq: 1, Off: i}}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkView looks up one key and lists a hundred, through an overlay of 1000 pending records
// and without one.
func BenchmarkView(b *testing.B) {
	s := benchStore(b)
	over := NewOverlay()
	for i := range uint64(1000) {
		over.Apply(benchOps(i*17), segment.Position{Seq: 1, Off: i + 1})
	}
	for name, o := range map[string]*Overlay{"overlay": over, "none": nil} {
		b.Run("get/"+name, func(b *testing.B) {
			v := s.Live(o)
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				if _, ok, _, err := v.Get(InodeKey(i * 7919 % benchKeys)); err != nil || !ok {
					b.Fatal(ok, err)
				}
			}
		})
		b.Run("range/"+name, func(b *testing.B) {
			v := s.Live(o)
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				n := 0
				lo := i * 7919 % (benchKeys - 100)
				for p, err := range v.Range(InodeKey(lo), InodeKey(lo+100)) {
					if err != nil || binary.BigEndian.Uint64(p.Key[1:]) != lo+uint64(n) {
						b.Fatal(err)
					}
					n++
				}
			}
		})
	}
}

// BenchmarkOverlay measures a change at a home: a copy of the overlay, a record of five keys, and
// its removal when it is applied.
func BenchmarkOverlay(b *testing.B) {
	over := NewOverlay()
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		_ = over.Copy()
		pos := segment.Position{Seq: 1, Off: i + 1}
		over.Apply(benchOps(i), pos)
		if i >= 100 {
			over.Drop(benchOps(i-100), pos)
		}
	}
}
