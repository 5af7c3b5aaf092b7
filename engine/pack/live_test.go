// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
)

// TestCount compares estimates with what is live, for blocks of several sizes and for references
// that come several times.
func TestCount(t *testing.T) {
	for _, c := range []struct {
		block, times int
		most         float64 // deviation
	}{
		{60_000, 1, 0.02}, {60_000, 4, 0.02}, {4_000, 1, 0.02}, {4_000, 4, 0.02}, {1_000, 2, 0.03}, {300, 1, 0.05}, {300, 3, 0.05},
	} {
		rng := rand.New(rand.NewPCG(uint64(c.block), uint64(c.times)))
		var all []segment.BlockRef
		want := map[uint64]Live{}
		for seq := uint64(1); seq <= 4; seq++ {
			for off := segment.HeaderSize; off < segment.MaxSize; {
				n := c.block - rng.IntN(c.block/4)
				if rng.IntN(3) == 0 { // a third is live
					for range c.times {
						all = append(all, segment.BlockRef{Seq: seq, Off: uint64(off), Len: uint32(n)})
					}
					want[seq] = Live{want[seq].Bytes + uint64(n), want[seq].Blocks + 1}
				}
				off += n + 150
			}
		}
		all = append(all, segment.BlockRef{Seq: 99, Off: 200, Len: 20})
		got, err := Count(refs(all), func(seq uint64) uint64 {
			if seq == 99 {
				return 0
			}
			return segment.MaxSize
		})
		if err != nil || len(got) != len(want) {
			t.Fatalf("%d segments of %d: %v", len(got), len(want), err)
		}
		worst := 0.0
		for seq, w := range want {
			worst = max(worst, math.Abs(float64(got[seq].Bytes)/float64(w.Bytes)-1), math.Abs(float64(got[seq].Blocks)/float64(w.Blocks)-1))
		}
		t.Logf("blocks of %d bytes, each %d times: %.2f %% off", c.block, c.times, 100*worst)
		if worst > c.most {
			t.Errorf("blocks of %d bytes, each %d times: %.4f off", c.block, c.times, worst)
		}
	}
}

// TestLists: each block once and in order, in little memory.
func TestLists(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	var want []Block
	var all []segment.BlockRef
	for i := range 20_000 {
		b := Block{Off: uint32(segment.HeaderSize + 1000*i), Len: uint32(100 + rng.IntN(900))}
		want = append(want, b)
		for range 1 + rng.IntN(6) {
			all = append(all, segment.BlockRef{Seq: 3, Off: uint64(b.Off), Len: b.Len},
				segment.BlockRef{Seq: 4, Off: uint64(b.Off), Len: 20})
		}
	}
	rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	got, err := Lists(refs(all), func(seq uint64) bool { return seq == 3 })
	if err != nil || len(got) != 1 || !slices.Equal(got[3], want) {
		t.Fatalf("%d lists, %d blocks of %d: %v", len(got), len(got[3]), len(want), err)
	}
	if c := cap(got[3]); c > len(want)*8/5 {
		t.Errorf("memory for %d blocks", c)
	}
	for what, bad := range map[string][]segment.BlockRef{
		"two lengths":     {{Seq: 3, Off: 200, Len: 50}, {Seq: 3, Off: 200, Len: 51}},
		"one over other":  {{Seq: 3, Off: 200, Len: 50}, {Seq: 3, Off: 249, Len: 50}},
		"in the header":   {{Seq: 3, Off: 100, Len: 50}},
		"too long":        {{Seq: 3, Off: 200, Len: maxBlock + 1}},
		"after the end":   {{Seq: 3, Off: maxSource, Len: 50}},
		"very far away":   {{Seq: 3, Off: 1<<32 + 200, Len: 50}},
		"no room for tag": {{Seq: 3, Off: 200, Len: segment.TagSize}},
	} {
		if _, err := Lists(refs(bad), func(uint64) bool { return true }); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func TestErrorsOfReferences(t *testing.T) {
	away := errors.New("metadata are damaged")
	var bad iter.Seq2[segment.BlockRef, error] = func(yield func(segment.BlockRef, error) bool) { yield(segment.BlockRef{}, away) }
	if _, err := Count(bad, func(uint64) uint64 { return 1 }); !errors.Is(err, away) {
		t.Error(err)
	}
	if _, err := Lists(bad, func(uint64) bool { return true }); !errors.Is(err, away) {
		t.Error(err)
	}
}
