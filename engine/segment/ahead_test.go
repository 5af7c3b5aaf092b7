// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// packed makes blocks of some bytes each.
func packed(rng *rand.Rand, sizes ...int) []Block {
	blocks := make([]Block, len(sizes))
	for i, n := range sizes {
		blocks[i].Raw = make([]byte, n)
		for k := range blocks[i].Raw {
			blocks[i].Raw[k] = byte(rng.Uint32())
		}
	}
	PackAll(blocks, Fast)
	return blocks
}

// nonces collects under which counters something was sealed.
type nonces map[uint64][]byte

// add notes the frame of a record; a counter must have one ciphertext for ever (protocol-16).
func (n nonces) add(t *testing.T, o *Opener, frame []byte, off uint64) *Record {
	t.Helper()
	rec, err := o.DecodeRecord(frame, off)
	if err != nil {
		t.Fatal(err)
	}
	l, err := parseFrame(frame)
	if err != nil {
		t.Fatal(err)
	}
	once := func(counter uint64, sealed []byte) {
		t.Helper()
		if was, ok := n[counter]; ok && !bytes.Equal(was, sealed) {
			t.Fatalf("counter %x sealed two things (protocol-16)", counter)
		}
		n[counter] = slices.Clone(sealed)
	}
	for _, b := range rec.Blocks {
		once(b.Ref.Counter, frame[b.Ref.Off-off:b.Ref.Off-off+uint64(b.Ref.Len)])
	}
	once(l.counter+uint64(l.n), frame[l.meta:])
	return rec
}

// TestAheadNeverRepeatsANonce seals records in all ways: ahead, not ahead, in another order than
// that, some twice, some never. Each opens, with its own blocks, and no counter has two
// ciphertexts.
func TestAheadNeverRepeatsANonce(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for round := range 3 {
		s, err := NewSealer(&testKey, testHeader(), seeded(byte(round)))
		if err != nil {
			t.Fatal(err)
		}
		seen, off := nonces{}, uint64(HeaderSize)
		seal := func(blocks []Block) {
			t.Helper()
			r := &Record{Time: rng.Int64(), Blocks: blocks, Ops: []Op{{Kind: Set, Key: []byte{byte(rng.Uint32())}}}}
			p, err := Prepare(r)
			if err != nil {
				t.Fatal(err)
			}
			frame, err := s.Seal(nil, p, off)
			if err != nil {
				t.Fatal(err)
			}
			got := seen.add(t, s.Opener, frame, off)
			for i, b := range got.Blocks {
				raw, err := s.OpenBlock(b.Ref, slices.Clone(frame[b.Ref.Off-off:b.Ref.Off-off+uint64(b.Ref.Len)]))
				if err != nil || !bytes.Equal(raw, blocks[i].Raw) || blocks[i].Ref != b.Ref {
					t.Fatalf("block %d: %v", i, err)
				}
			}
			off += uint64(len(frame))
		}
		for range 40 {
			sizes := []int{1 + rng.IntN(MaxBlock)}
			for rng.IntN(3) > 0 {
				sizes = append(sizes, 1+rng.IntN(MaxBlock))
			}
			blocks := packed(rng, sizes...)
			more := packed(rng, 50000, 10)
			if rng.IntN(4) > 0 {
				s.Ahead(blocks)
			}
			s.Ahead(more)
			twin := slices.Clone(blocks) // shares what Ahead made
			switch rng.IntN(5) {
			case 0:
				seal(more)
				seal(blocks)
			case 1:
				seal(blocks[:len(blocks)-1]) // a part of them
				seal(blocks)
			case 2:
				seal(append(slices.Clone(blocks), more...))
			case 3:
				slices.Reverse(blocks)
				seal(blocks)
			default:
				seal(blocks)
			}
			seal(twin)
			seal(nil)
		}
	}
}

// TestAheadOfAnotherSegment: what was sealed ahead for a segment does not get into the next one,
// and a Sealer that was stopped seals nothing.
func TestAheadOfAnotherSegment(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	first, err := NewSealer(&testKey, testHeader(), seeded(1))
	if err != nil {
		t.Fatal(err)
	}
	second, err := NewSealer(&testKey, testHeader(), seeded(2))
	if err != nil {
		t.Fatal(err)
	}
	blocks := packed(rng, 30000, 30000)
	first.Ahead(blocks)
	first.Stop()
	p, err := Prepare(&Record{Blocks: blocks})
	if err != nil {
		t.Fatal(err)
	}
	frame, err := second.Seal(nil, p, HeaderSize)
	if err != nil {
		t.Fatal(err)
	}
	rec := nonces{}.add(t, second.Opener, frame, HeaderSize)
	for i, b := range rec.Blocks {
		at := b.Ref.Off - HeaderSize
		if raw, err := second.OpenBlock(b.Ref, frame[at:at+uint64(b.Ref.Len)]); err != nil || !bytes.Equal(raw, blocks[i].Raw) {
			t.Fatalf("block %d: %v", i, err)
		}
	}
	late := packed(rng, 30000)
	before := first.counter.Load()
	first.Ahead(late)
	if first.counter.Load() != before || late[0].ahead != nil {
		t.Error("a stopped Sealer seals ahead")
	}
}

// TestAheadLeavesCounters: blocks that never become part of a record do not use up a segment's
// counters.
func TestAheadLeavesCounters(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	s, err := NewSealer(&testKey, testHeader(), seeded(1))
	if err != nil {
		t.Fatal(err)
	}
	blocks := packed(rng, 30000)
	s.Ahead(blocks)
	if blocks[0].ahead == nil {
		t.Error("nothing is sealed ahead")
	}
	s.counter.Add(aheadMost + 1)
	blocks = packed(rng, 30000)
	s.Ahead(blocks)
	if blocks[0].ahead != nil {
		t.Error("more than half of the counters go to what is sealed ahead")
	}
	p, err := Prepare(&Record{Blocks: blocks})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(nil, p, HeaderSize); err != nil {
		t.Fatal(err)
	}
}

// TestAheadFromMany: many seal ahead while one seals. The race detector finds nothing.
func TestAheadFromMany(t *testing.T) {
	s, err := NewSealer(&testKey, testHeader(), seeded(1))
	if err != nil {
		t.Fatal(err)
	}
	seen, off := nonces{}, uint64(HeaderSize)
	var mu sync.Mutex
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 6))
			for range 20 {
				blocks := packed(rng, MaxBlock, MaxBlock, MaxBlock, MaxBlock, 7)
				s.Ahead(blocks)
				p, err := Prepare(&Record{Blocks: blocks})
				mu.Lock()
				frame, sealed := s.Seal(nil, p, off)
				if err != nil || sealed != nil {
					t.Error(err, sealed)
				} else {
					seen.add(t, s.Opener, frame, off)
					off += uint64(len(frame))
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
}
