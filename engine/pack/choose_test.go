// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"math/rand/v2"
	"testing"
)

// space is a volume of blocks of one size that are overwritten, as Choose sees it.
type space struct {
	rng     *rand.Rand
	rule    Rule
	where   []*thing // of each block
	objects []*thing
	last    uint64
	wrote   uint64 // blocks that the user wrote
	moved   uint64 // blocks that packing wrote
	most    uint64 // bytes beyond what the rule allows, at most, before rounds
}

// thing is an object: its blocks, some of them dead.
type thing struct {
	blocks   []int
	live     int
	len      uint64
	last     uint64
	segments int
}

const (
	simBlock   = 64 << 10
	simSegment = 1000 // blocks of a segment
)

func newSpace(seed uint64, segments int) *space {
	s := &space{rng: rand.New(rand.NewPCG(seed, 54)), rule: DefaultRule(), where: make([]*thing, segments*simSegment)}
	for i := 0; i < len(s.where); i += simSegment {
		var blocks []int
		for k := range simSegment {
			blocks = append(blocks, i+k)
		}
		s.append(blocks)
	}
	s.wrote = 0
	return s
}

// append writes blocks into a new segment.
func (s *space) append(blocks []int) {
	s.last++
	o := &thing{last: s.last, segments: 1, len: uint64(len(blocks)) * (simBlock + 200)}
	s.put(o, blocks)
	s.wrote += uint64(len(blocks))
}

func (s *space) put(o *thing, blocks []int) {
	o.blocks = append(o.blocks, blocks...)
	for _, b := range blocks {
		if was := s.where[b]; was != nil {
			was.live--
		}
		s.where[b] = o
		o.live++
	}
	s.objects = append(s.objects, o)
}

// view is what Choose gets.
func (s *space) view() (out []Object, stored, need uint64) {
	for _, o := range s.objects {
		v := Object{Len: o.len, Live: Live{uint64(o.live) * simBlock, uint64(o.live)}, Segments: o.segments, Last: o.last}
		out = append(out, v)
		if o.live > 0 {
			stored, need = stored+o.len, need+v.need()
		}
	}
	return out, stored, need
}

// rounds packs until there is nothing to pack.
func (s *space) rounds(t testing.TB) {
	for n := 0; ; n++ {
		view, stored, need := s.view()
		allowed := need*s.rule.Percent/100 + s.rule.Spare
		if n == 0 && stored > allowed {
			s.most = max(s.most, stored-allowed)
		}
		plan := Choose(view, s.rule)
		if len(plan.Packs) == 0 && stored > allowed {
			t.Fatalf("nothing to pack, and %d bytes of %d allowed", stored, allowed)
		}
		if n > 100 {
			t.Fatal("rounds without end")
		}
		gone := map[*thing]bool{}
		for _, i := range plan.Dead {
			gone[s.objects[i]] = true
		}
		wrote := uint64(0)
		for _, p := range plan.Packs {
			o := &thing{}
			var blocks []int
			var size uint64
			for _, i := range p {
				from := s.objects[i]
				if gone[from] {
					t.Fatal("an object twice, or one that is dead")
				}
				gone[from] = true
				for _, b := range from.blocks {
					if s.where[b] == from {
						s.where[b] = nil // it moves
						blocks = append(blocks, b)
					}
				}
				o.last, o.segments = max(o.last, from.last), o.segments+from.segments
				size += view[i].need()
			}
			if size > MaxSize && len(p) > 1 {
				t.Fatalf("a pack of %d bytes", size)
			}
			o.len = uint64(len(blocks))*(simBlock+perBlock) + uint64(o.segments)*perSegment
			s.put(o, blocks)
			s.moved += uint64(len(blocks))
			wrote += size
		}
		if wrote > s.rule.Write+need/s.rule.Share+MaxSize {
			t.Fatalf("a round wrote %d bytes", wrote)
		}
		kept := s.objects[:0]
		for _, o := range s.objects {
			if !gone[o] {
				kept = append(kept, o)
			}
		}
		s.objects = kept
		if len(plan.Packs) == 0 {
			return
		}
	}
}

// TestSpaceComesBack overwrites blocks in some ways, and checks that Choose keeps the volume within
// its rule. It prints how many bytes were moved for each byte that was written.
func TestSpaceComesBack(t *testing.T) {
	const segments = 256 // 16 GiB
	n := segments * simSegment
	for name, next := range map[string]func(s *space, i int) int{
		"uniform": func(s *space, _ int) int { return s.rng.IntN(n) },
		"nine of ten writes go to a tenth": func(s *space, _ int) int {
			if s.rng.IntN(10) > 0 {
				return s.rng.IntN(n / 10)
			}
			return s.rng.IntN(n)
		},
		"in order": func(_ *space, i int) int { return i % n },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpace(1, segments)
			for i := 0; i < 6*n; {
				var blocks []int
				seen := map[int]bool{}
				for len(blocks) < simSegment {
					b := next(s, i)
					i++
					if !seen[b] {
						seen[b] = true
						blocks = append(blocks, b)
					}
				}
				s.append(blocks)
				if s.last%3 == 0 {
					s.rounds(t)
				}
				if i < 3*n {
					s.wrote, s.moved = 0, 0 // until it is as it stays
				}
			}
			_, stored, need := s.view()
			t.Logf("%.2f bytes moved for each written; stored %.3f of what is live", float64(s.moved)/float64(s.wrote),
				float64(stored)/float64(need))
		})
	}
}
