// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"

	"github.com/weir-storage/weir/engine/segment"
)

// Live is what of a segment is live: about, as Count says.
type Live struct {
	Bytes  uint64 // sealed bytes of its live blocks
	Blocks uint64
}

// Count walks over the references to blocks that a volume's metadata have, present and history, and
// returns what of each segment is live. length returns a segment's length, 0 for one that shall not
// be counted. A segment that the result does not have is not referred to at all.
//
// Many extents may refer to one block: what is left of an overwritten one, and snapshots. Counting
// each block once would take a set of all of them. Instead, each segment has a bitmap, one bit for
// 4 KiB of its length, where a block sets the bit that a hash of its offset names. A second one
// with the same bit is taken for the same block, and the result is corrected by how full the bitmap
// is (linear counting: Whang, Vander-Zanden, Taylor, ACM TODS 15(2), 1990). A segment without
// repeated bits is exact. For blocks of 1 KiB and more the error is two percent at most. If blocks
// are so small that all bits are set, each reference counts. That takes 2 KiB for a segment of 64
// MiB, 32 MiB for a log of 1 TiB. Lists says exactly what is live in what was chosen.
func Count(refs iter.Seq2[segment.BlockRef, error], length func(seq uint64) uint64) (map[uint64]Live, error) {
	tallies := map[uint64]*tally{}
	for ref, err := range refs {
		if err != nil {
			return nil, fmt.Errorf("count live blocks: %w", err)
		}
		t := tallies[ref.Seq]
		if t == nil {
			if n := length(ref.Seq); n > 0 {
				t = newTally(n)
			} else {
				t = &tally{}
			}
			tallies[ref.Seq] = t
		}
		t.add(ref)
	}
	out := make(map[uint64]Live, len(tallies))
	for seq, t := range tallies {
		if t.bits != nil {
			out[seq] = t.live()
		}
	}
	return out, nil
}

// tally counts the blocks of one segment.
type tally struct {
	bits  []uint64 // nil: not counted
	refs  uint64   // references
	all   uint64   // their sealed bytes
	set   uint64   // bits that are set
	first uint64   // sealed bytes of those that set one
}

const (
	// bitFor is how many bytes of a segment have one bit in the tally.
	bitFor = 4 << 10
	// leastBits is how many bits a tally has at least.
	leastBits = 1 << 10
)

func newTally(length uint64) *tally {
	n := max(leastBits, min(length, maxSource)/bitFor)
	return &tally{bits: make([]uint64, 1<<bits.Len64(n-1)/64)}
}

func (t *tally) add(ref segment.BlockRef) {
	if t.bits == nil {
		return
	}
	t.refs++
	t.all += uint64(ref.Len)
	h := mix(ref.Off) % uint64(64*len(t.bits))
	if word, bit := &t.bits[h/64], uint64(1)<<(h%64); *word&bit == 0 {
		*word |= bit
		t.set++
		t.first += uint64(ref.Len)
	}
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (t *tally) live() Live {
	m := float64(64 * len(t.bits))
	if t.set == t.refs || float64(t.set) >= m {
		return Live{Bytes: t.all, Blocks: t.refs}
	}
	// There are not more blocks than references, and not fewer than bits.
	n := min(-m*math.Log1p(-float64(t.set)/m), float64(t.refs))
	size := min(float64(t.first)*n/float64(t.set), float64(t.all))
	return Live{Bytes: uint64(math.Round(size)), Blocks: uint64(math.Round(n))}
}

// Lists walks over the same references, and returns exactly which blocks of the chosen segments are
// live, by sequence: in order of their offsets, each once. A chosen segment that the result does
// not have has none. It takes eight bytes for each of these blocks, and up to two thirds more. The
// lists are the caller's. It is an error if two references contradict each other.
func Lists(refs iter.Seq2[segment.BlockRef, error], chosen func(seq uint64) bool) (map[uint64][]Block, error) {
	lists := map[uint64]*growing{}
	for ref, err := range refs {
		if err != nil {
			return nil, fmt.Errorf("list live blocks: %w", err)
		}
		if !chosen(ref.Seq) {
			continue
		}
		b := Block{Off: uint32(ref.Off), Len: ref.Len}
		if ref.Off > maxSource {
			return nil, fmt.Errorf("list live blocks: segment %d: reference to offset %d: a segment has at most %d bytes",
				ref.Seq, ref.Off, maxSource)
		}
		if err := b.check(segment.HeaderSize); err != nil {
			return nil, fmt.Errorf("list live blocks: segment %d: reference to a %w", ref.Seq, err)
		}
		l := lists[ref.Seq]
		if l == nil {
			l = &growing{}
			lists[ref.Seq] = l
		}
		l.add(b)
	}
	out := make(map[uint64][]Block, len(lists))
	for seq, l := range lists {
		l.tidy()
		for i := 1; i < len(l.blocks); i++ {
			if a, b := l.blocks[i-1], l.blocks[i]; a.end() > uint64(b.Off) {
				return nil, fmt.Errorf("list live blocks: segment %d: references to offset %d, %d bytes, and to offset %d, %d bytes, "+
					"contradict each other", seq, a.Off, a.Len, b.Off, b.Len)
			}
		}
		out[seq] = l.blocks
	}
	return out, nil
}

// growing is the blocks of one segment while references come.
type growing struct {
	blocks []Block
	full   int // how many there may be before it looks for those that came again
}

func (l *growing) add(b Block) {
	if n := len(l.blocks); n > 0 && l.blocks[n-1] == b {
		return
	}
	if len(l.blocks) == cap(l.blocks) && len(l.blocks) > l.full {
		l.tidy()
		l.full = len(l.blocks) + len(l.blocks)/4
	}
	l.blocks = append(l.blocks, b)
}

// tidy sorts the blocks, and keeps each once.
func (l *growing) tidy() {
	slices.SortFunc(l.blocks, func(a, b Block) int {
		if c := cmp.Compare(a.Off, b.Off); c != 0 {
			return c
		}
		return cmp.Compare(a.Len, b.Len)
	})
	l.blocks = slices.Compact(l.blocks)
}
