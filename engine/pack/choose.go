// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/weir-storage/weir/engine/segment"
)

// MaxSize is the most bytes of blocks in a pack of several sources, as Choose plans: as many as a
// segment has, so that whoever stores, sends and scrubs segments can do so with packs. Larger packs
// would be fewer, but each must become mostly dead as a whole before it is worth moving.
const MaxSize = segment.MaxSize

// MaxReseal is about the most blocks of several objects in one pack: also if each is sealed anew,
// the index has room for them.
const MaxReseal = 1 << 17

// Object is a segment or a pack that may be packed, and what of it is live. All that it has must be
// before a checkpoint that is committed, or else it does not come into question.
type Object struct {
	Len      uint64 // bytes of the whole object
	Live     Live   // the sum of its segments
	Segments int    // how many of them have live blocks
	Last     uint64 // the greatest sequence of its segments
	Old      bool   // something that lives there is to be sealed anew
}

// Rule says when objects are packed.
type Rule struct {
	// Percent and Spare are how many bytes the objects may have together: that many percent of what
	// they would have if all were packed, at least 112, and Spare more.
	Percent, Spare uint64
	// Write and Share are how much one round writes: so many bytes and a Share-th of what the
	// objects would have. It may be one object more.
	Write, Share uint64
	// An object of fewer than Small bytes is small. Once there are Merge of them they are packed
	// together.
	Small uint64
	Merge int
}

// DefaultRule returns the rule of ADR 54: 120 percent and 64 MiB, a round of 64 MiB and a
// twentieth; 64 objects of fewer than 4 MiB.
func DefaultRule() Rule {
	return Rule{Percent: 120, Spare: 64 << 20, Write: 64 << 20, Share: 20, Small: 4 << 20, Merge: 64}
}

// Plan is what a round does. Numbers are those of objects, as Choose got them.
type Plan struct {
	Dead  []int   // have no live block: nothing is packed for them
	Packs [][]int // each becomes one pack, of these objects in this order
}

const (
	// perBlock is about what a block takes in a pack besides its bytes: checksum and place.
	perBlock = sumSize + 5
	// perSegment is about what a segment takes in a pack's index.
	perSegment = 3 + hashSize + 2
)

// need is about how many bytes the live blocks would take in a pack.
func (o Object) need() uint64 {
	return o.Live.Bytes + perBlock*o.Live.Blocks + perSegment*uint64(o.Segments)
}

// gain is how many bytes packing would give back. It is 0 if less than a tenth of the object is
// dead: moving so much for so little is never worth it.
func (o Object) gain() uint64 {
	if n := o.need(); n < o.Len-o.Len/10 {
		return o.Len - n
	}
	return 0
}

// Choose plans one round. It depends on its arguments alone. While the objects that live have more
// bytes than the rule allows, it takes the next best one: that which gives back most for each byte
// that is read and written, weighted with its age, as what is young may die by itself
// (cost-benefit: Rosenblum and Ousterhout, The Design and Implementation of a Log-Structured File
// System, ACM TOCS 10(1), 1992, section 3.5; one reads an object whole, and writes what it needs).
// Besides, it merges small objects when there are many, and takes the eldest of which something is
// to be sealed anew, within the bound of a round. After a round that plans no pack, the
// objects have no more than the rule allows.
func Choose(objects []Object, rule Rule) Plan {
	var plan Plan
	var stored, need, newest uint64
	var small, rest, old []int
	for i, o := range objects {
		if o.Live.Blocks == 0 {
			plan.Dead = append(plan.Dead, i)
			continue
		}
		stored, need, newest = stored+o.Len, need+o.need(), max(newest, o.Last)
		if o.Live.Blocks > MaxBlocks/2 {
			continue // no segment has so many, in practice
		}
		if o.Len < rule.Small && o.Segments <= MaxSegments/2 {
			small = append(small, i)
		}
		if o.gain() > 0 {
			rest = append(rest, i)
		}
		if o.Old {
			old = append(old, i)
		}
	}
	allowed, write := need*rule.Percent/100+rule.Spare, rule.Write+need/max(rule.Share, 1)
	taken := map[int]bool{} // whether it is worth a pack of its own
	take := func(i int, alone bool) {
		if _, again := taken[i]; again || write == 0 {
			if again && alone {
				taken[i] = true
			}
			return
		}
		taken[i] = alone
		stored -= min(objects[i].gain(), stored)
		write -= min(objects[i].need(), write)
	}
	slices.SortFunc(rest, func(a, b int) int {
		return cmp.Or(-compareWorth(objects[a], objects[b], newest), cmp.Compare(objects[a].Last, objects[b].Last), cmp.Compare(a, b))
	})
	for _, i := range rest {
		if stored <= allowed {
			break
		}
		take(i, true)
	}
	if len(small) >= rule.Merge {
		order(objects, small)
		for _, i := range small {
			take(i, false)
		}
	}
	order(objects, old)
	for _, i := range old { // with what of the round's writes is left
		take(i, true)
	}
	plan.Packs = group(objects, taken)
	return plan
}

// order sorts objects by age.
func order(objects []Object, which []int) {
	slices.SortFunc(which, func(a, b int) int {
		return cmp.Or(cmp.Compare(objects[a].Last, objects[b].Last), cmp.Compare(a, b))
	})
}

// compareWorth compares gain × age / (length + need) of two objects, without rounding.
func compareWorth(a, b Object, newest uint64) int {
	product := func(x, y Object) (hi, lo uint64) {
		// A gain has 27 bits, an age fewer than 36, a sum 28.
		age := min(newest-x.Last+1, 1<<35)
		return bits.Mul64(x.gain()*age, y.Len+y.need())
	}
	ahi, alo := product(a, b)
	bhi, blo := product(b, a)
	return cmp.Or(cmp.Compare(ahi, bhi), cmp.Compare(alo, blo))
}

// group makes packs of the taken objects in order of age, so that what was written at one time is
// together. An object that was taken only because it is small is left out if it would be alone.
func group(objects []Object, taken map[int]bool) (packs [][]int) {
	all := make([]int, 0, len(taken))
	for i := range taken {
		all = append(all, i)
	}
	order(objects, all)
	var pack []int
	var size, blocks uint64
	segments := 0
	end := func() {
		if len(pack) > 1 || len(pack) == 1 && taken[pack[0]] {
			packs = append(packs, pack)
		}
		pack, size, blocks, segments = nil, 0, 0, 0
	}
	for _, i := range all {
		o := objects[i]
		if size+o.need() > MaxSize || blocks+o.Live.Blocks > MaxReseal || segments+o.Segments > MaxSegments {
			end()
		}
		pack = append(pack, i)
		size, blocks, segments = size+o.need(), blocks+o.Live.Blocks, segments+o.Segments
	}
	end()
	return packs
}
