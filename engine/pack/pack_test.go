// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/segment"
)

var seed = flag.Uint64("seed", 0, "seed of random tests; 0: 1 to 20")

var (
	testVolume = segment.VolumeID{0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	testKey    = segment.DataKey{1, 2, 3}
)

// from reads b.
func from(b []byte) Read {
	return func(p []byte, off uint64) error {
		if off+uint64(len(p)) > uint64(len(b)) {
			return io.ErrUnexpectedEOF
		}
		copy(p, b[off:])
		return nil
	}
}

// written is a segment as a log writes it, and the blocks in it.
type written struct {
	bytes  []byte
	hash   segment.Hash
	opener *segment.Opener
	blocks []segment.Block // with Raw and Ref
}

// write makes a segment of random records. size returns how many bytes a block has.
func write(t testing.TB, rng *rand.Rand, seq uint64, records int, size func() int) *written {
	t.Helper()
	h := segment.Header{Volume: testVolume, Seq: seq, Epoch: 1}
	if seq > 1 {
		h.Prev = segment.Link{Seq: seq - 1, Len: 1000}
	}
	s, err := segment.NewSealer(&testKey, h, rand.NewChaCha8([32]byte{byte(rng.Uint32()), 1}))
	if err != nil {
		t.Fatal(err)
	}
	w := &written{opener: s.Opener, bytes: segment.AppendHeader(nil, s.Header())}
	for range records {
		r := &segment.Record{Time: 1}
		for range rng.IntN(5) {
			raw := make([]byte, size())
			for i := range raw {
				raw[i] = byte(rng.Uint32())
			}
			r.Blocks = append(r.Blocks, segment.Block{Raw: raw, Pack: segment.Pack(raw, segment.None)})
		}
		p, err := segment.Prepare(r)
		if err != nil {
			t.Fatal(err)
		}
		if w.bytes, err = s.Seal(w.bytes, p, uint64(len(w.bytes))); err != nil {
			t.Fatal(err)
		}
		w.blocks = append(w.blocks, r.Blocks...)
	}
	w.hash = blake3.Sum256(w.bytes)
	return w
}

func small(rng *rand.Rand) func() int { return func() int { return 1 + rng.IntN(300) } }

// keep lists some blocks.
func (w *written) keep(which func(i int) bool) Kept {
	k := Kept{Seq: w.opener.Header().Seq, Hash: w.hash}
	for i, b := range w.blocks {
		if which(i) {
			k.Blocks = append(k.Blocks, Block{Off: uint32(b.Ref.Off), Len: b.Ref.Len})
		}
	}
	return k
}

func (w *written) source(k Kept) Source {
	return Source{Hash: w.hash, Len: uint64(len(w.bytes)), Kept: []Kept{k}, Read: from(w.bytes)}
}

func all(int) bool { return true }

// build builds a pack, which must succeed, and compares its name with its bytes.
func build(t testing.TB, sources ...Source) ([]byte, Built) {
	t.Helper()
	var out bytes.Buffer
	b, err := Build(testVolume, sources, nil, &out)
	if err != nil {
		t.Fatal(err)
	}
	if b.Hash != blake3.Sum256(out.Bytes()) || b.Len != uint64(out.Len()) || b.Index.Name() != Name(testVolume, b.Hash) {
		t.Fatalf("it is not what Build says: %d bytes of %d", out.Len(), b.Len)
	}
	return out.Bytes(), b
}

// check reads the blocks of a segment from a pack, opens them, and compares.
func check(p *Pack, pack []byte, w *written, which func(i int) bool) error {
	for i, b := range w.blocks {
		sealed, err := p.Read(b.Ref, from(pack))
		if !which(i) {
			if !errors.Is(err, ErrNoBlock) || errors.Is(err, ErrCorrupt) {
				return fmt.Errorf("block %v is not in the pack: %w", b.Ref, err)
			}
			continue
		}
		if err != nil {
			return err
		}
		if raw, err := w.opener.OpenBlock(b.Ref, sealed); err != nil || !bytes.Equal(raw, b.Raw) {
			return fmt.Errorf("block %v: other bytes: %w", b.Ref, err)
		}
	}
	return nil
}

// refs iterates over references, each as often as it is there.
func refs(all []segment.BlockRef) iter.Seq2[segment.BlockRef, error] {
	return func(yield func(segment.BlockRef, error) bool) {
		for _, r := range all {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// model is a volume whose blocks die, and whose objects are packed in several generations.
type model struct {
	segments map[uint64]*written
	dead     map[segment.BlockRef]bool
	where    map[uint64]*object // of each segment; none: nothing of it is live
}

// object is a segment or a pack in a store.
type object struct {
	bytes []byte
	hash  Hash
	index *Pack // nil: a segment
}

// live returns all references in a random order, some of them more than once.
func (m *model) live(rng *rand.Rand) (out []segment.BlockRef) {
	for _, seq := range slices.Sorted(maps.Keys(m.segments)) {
		for _, b := range m.segments[seq].blocks {
			if !m.dead[b.Ref] {
				for range 1 + rng.IntN(3) {
					out = append(out, b.Ref)
				}
			}
		}
	}
	rng.Shuffle(len(out), func(i, k int) { out[i], out[k] = out[k], out[i] })
	return out
}

// sources lists sources with all live blocks of the objects. Each copy calls it by itself.
func (m *model) sources(t testing.TB, rng *rand.Rand, objects []*object) (out []Source) {
	lists, err := Lists(refs(m.live(rng)), func(seq uint64) bool { return slices.Contains(objects, m.where[seq]) })
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		s := Source{Pack: o.index != nil, Hash: o.hash, Len: uint64(len(o.bytes)), Read: from(o.bytes)}
		if s.Pack {
			s.Kept = o.index.Keep(lists)
		} else {
			for seq, at := range m.where {
				if at == o && len(lists[seq]) > 0 {
					s.Kept = []Kept{{Seq: seq, Hash: o.hash, Blocks: lists[seq]}}
				}
			}
		}
		if len(s.Kept) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// TestGenerations packs segments, lets blocks die, packs packs and new segments, and so on. All
// that is live opens at any time by the address that it had first, and two copies make the same.
func TestGenerations(t *testing.T) {
	for _, n := range seeds() {
		rng := rand.New(rand.NewPCG(n, 54))
		m := &model{segments: map[uint64]*written{}, dead: map[segment.BlockRef]bool{}, where: map[uint64]*object{}}
		next := uint64(1)
		for generation := range 8 {
			for range 1 + rng.IntN(3) {
				w := write(t, rng, next, 1+rng.IntN(20), small(rng))
				m.segments[next], m.where[next] = w, &object{bytes: w.bytes, hash: w.hash}
				next++
			}
			for _, ref := range m.live(rng) {
				if rng.IntN(4) == 0 {
					m.dead[ref] = true
				}
			}
			var objects []*object
			for _, seq := range slices.Sorted(maps.Keys(m.where)) {
				if o := m.where[seq]; !slices.Contains(objects, o) && rng.IntN(2) == 0 {
					objects = append(objects, o)
				}
			}
			sources := m.sources(t, rng, objects)
			if len(sources) == 0 {
				continue
			}
			pack, built := build(t, sources...)
			again, _ := build(t, m.sources(t, rng, objects)...)
			if !bytes.Equal(pack, again) {
				t.Fatalf("seed %d generation %d: another copy makes another pack", n, generation)
			}
			index, err := Open(testVolume, built.Hash, built.Len, from(pack))
			if err != nil {
				t.Fatalf("seed %d generation %d: %v", n, generation, err)
			}
			for seq, o := range m.where {
				if slices.Contains(objects, o) {
					delete(m.where, seq) // the objects are deleted
				}
			}
			packed := &object{bytes: pack, hash: built.Hash, index: index}
			for _, k := range index.Kept() {
				m.where[k.Seq] = packed
			}
			for seq, w := range m.segments {
				o := m.where[seq]
				alive := func(i int) bool { return !m.dead[w.blocks[i].Ref] }
				switch {
				case o == nil && slices.ContainsFunc(w.blocks, func(b segment.Block) bool { return !m.dead[b.Ref] }):
					t.Fatalf("seed %d generation %d: segment %d is gone with live blocks", n, generation, seq)
				case o == packed:
					if err := check(o.index, o.bytes, w, alive); err != nil {
						t.Fatalf("seed %d generation %d: %v", n, generation, err)
					}
				case o != nil && o.index != nil: // what died since is in it still
					for i, b := range w.blocks {
						if sealed, err := o.index.Read(b.Ref, from(o.bytes)); alive(i) && err != nil {
							t.Fatalf("seed %d generation %d: %v", n, generation, err)
						} else if raw, err := w.opener.OpenBlock(b.Ref, sealed); alive(i) && (err != nil || !bytes.Equal(raw, b.Raw)) {
							t.Fatalf("seed %d generation %d: %v", n, generation, err)
						}
					}
				}
			}
		}
	}
}

func seeds() []uint64 {
	if *seed != 0 {
		return []uint64{*seed}
	}
	out := make([]uint64, 20)
	for i := range out {
		out[i] = uint64(i + 1)
	}
	return out
}

// TestBlindCopyBuilds builds a pack from the index of another copy's pack, and from that pack
// itself.
func TestBlindCopyBuilds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	a, b := write(t, rng, 7, 30, small(rng)), write(t, rng, 3, 30, small(rng))
	pack, built := build(t, a.source(a.keep(func(i int) bool { return i%3 == 0 })), b.source(b.keep(all)))
	kept := built.Index.Kept()
	if len(kept) != 2 || kept[0].Seq != 7 || kept[1].Seq != 3 {
		t.Fatalf("%d lists", len(kept))
	}
	if again, _ := build(t, a.source(kept[0]), b.source(kept[1])); !bytes.Equal(pack, again) {
		t.Error("from the segments: another pack")
	}
	whole := Source{Pack: true, Hash: built.Hash, Len: built.Len, Kept: kept, Read: from(pack)}
	if again, _ := build(t, whole); !bytes.Equal(pack, again) {
		t.Error("from the pack: another pack")
	}
	if err := Verify(testVolume, built.Hash, built.Len, from(pack)); err != nil {
		t.Error(err)
	}
}

// TestOpenReadsTwice: an index of any size takes two reads at most.
func TestOpenReadsTwice(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	for _, records := range []int{1, 30_000} {
		w := write(t, rng, 1, records, func() int { return 1 + rng.IntN(10) })
		if len(w.blocks) == 0 {
			w = write(t, rng, 1, 20, small(rng))
		}
		pack, built := build(t, w.source(w.keep(all)))
		reads, largest := 0, 0
		p, err := Open(testVolume, built.Hash, built.Len, func(b []byte, off uint64) error {
			reads, largest = reads+1, max(largest, len(b))
			return from(pack)(b, off)
		})
		if err != nil || reads > 2 || (records > 1) != (reads == 2) {
			t.Fatalf("%d records: %d reads, %v", records, reads, err)
		}
		if err := check(p, pack, w, all); err != nil {
			t.Fatal(err)
		}
		if n := len(w.blocks); n > 10_000 {
			t.Logf("%d blocks: %.1f bytes of memory for each", n, float64(p.memory())/float64(n))
			if p.memory() > 8*n {
				t.Errorf("%d blocks take %d bytes", n, p.memory())
			}
		}
	}
}

func TestCache(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	var packs []Built
	var contents [][]byte
	for seq := range uint64(3) {
		w := write(t, rng, seq+1, 30, small(rng))
		pack, built := build(t, w.source(w.keep(all)))
		packs, contents = append(packs, built), append(contents, pack)
	}
	c := NewCache(packs[0].Index.memory() + packs[1].Index.memory() + packs[2].Index.memory() - 1)
	reads := 0
	open := func(i int) {
		t.Helper()
		p, err := c.Decode(packs[i].Hash, packs[i].Len, func() ([]byte, error) {
			reads++
			whole, err := Open(testVolume, packs[i].Hash, packs[i].Len, from(contents[i]))
			return whole.Head(), err
		})
		if err != nil || p.Name() != packs[i].Index.Name() {
			t.Fatal(err)
		}
	}
	for step, c := range []struct{ pack, reads int }{{0, 1}, {1, 2}, {0, 2}, {2, 3}, {0, 3}, {1, 4}, {0, 4}, {2, 5}} {
		if open(c.pack); reads != c.reads {
			t.Fatalf("step %d: %d reads, want %d", step, reads, c.reads)
		}
	}
	fails := errors.New("the store is away")
	if _, err := NewCache(1).Decode(Hash{}, 100, func() ([]byte, error) { return nil, fails }); !errors.Is(err, fails) {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	name := Name(testVolume, Hash{1, 31: 2})
	if v, h, err := ParseName(name); v != testVolume || h != (Hash{1, 31: 2}) || err != nil {
		t.Errorf("%s: %x %x %v", name, v, h, err)
	}
	if _, _, _, err := segment.ParseName(name); err == nil {
		t.Errorf("%s is also the name of a segment", name)
	}
	for _, bad := range []string{"", "/p/", name + "0", name[1:], strings.ToUpper(name), strings.Replace(name, "/p/", "/c/", 1),
		strings.Replace(name, "-", "", 1), segment.Name(testVolume, 1, Hash{})} {
		if _, _, err := ParseName(bad); err == nil {
			t.Errorf("%q was taken for a name", bad)
		}
	}
}
