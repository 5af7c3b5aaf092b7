// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"io"
	"math/rand/v2"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
)

// full makes a segment of some 60 MiB with blocks of this size.
func full(b *testing.B, size int) *written {
	rng := rand.New(rand.NewPCG(9, 9))
	return write(b, rng, 1, 60<<20/size/2, func() int { return size })
}

// BenchmarkBuild packs half of a segment. Its bytes are those that it reads.
func BenchmarkBuild(b *testing.B) {
	for name, size := range map[string]int{"64KiB": 64 << 10, "4KiB": 4 << 10} {
		b.Run(name, func(b *testing.B) {
			w := full(b, size)
			s := w.source(w.keep(odd))
			b.SetBytes(int64(len(w.bytes)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Build(testVolume, []Source{s}, nil, io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFind looks for blocks of 4 KiB in any order.
func BenchmarkFind(b *testing.B) {
	w := full(b, 4<<10)
	_, built := build(b, w.source(w.keep(all)))
	rng := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		if _, err := built.Index.Find(w.blocks[rng.IntN(len(w.blocks))].Ref); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(built.Index.memory())/float64(len(w.blocks)), "B/block")
}

// BenchmarkCount counts a million references, and BenchmarkLists lists them.
func BenchmarkCount(b *testing.B) {
	all := million()
	for b.Loop() {
		if _, err := Count(refs(all), func(uint64) uint64 { return segment.MaxSize }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLists(b *testing.B) {
	all := million()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Lists(refs(all), func(uint64) bool { return true }); err != nil {
			b.Fatal(err)
		}
	}
}

func million() (all []segment.BlockRef) {
	for seq := range uint64(100) {
		for i := range uint64(10_000) {
			all = append(all, segment.BlockRef{Seq: seq + 1, Off: 128 + i*5000, Len: 4000})
		}
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all
}
