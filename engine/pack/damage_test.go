// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/segment"
)

// pair makes two segments and a pack of some of their blocks.
func pair(t testing.TB) (a, b *written, sources []Source) {
	rng := rand.New(rand.NewPCG(5, 5))
	size := func() int { return 1 + rng.IntN(30) }
	a, b = write(t, rng, 1, 6, size), write(t, rng, 2, 6, size)
	return a, b, []Source{a.source(a.keep(odd)), b.source(b.keep(odd))}
}

func odd(i int) bool { return i%2 == 1 }

// named says what is wrong with an error about a damaged object.
func named(err error, name string, of error) string {
	var object *ObjectError
	switch {
	case err == nil:
		return "no error"
	case !errors.As(err, &object) || object.Name != name:
		return "the error does not name the object: " + err.Error()
	case !errors.Is(err, of):
		return "another error: " + err.Error()
	}
	return ""
}

// resum corrects the checksums of head and index, as who forges a pack would.
func resum(b []byte) []byte {
	binary.BigEndian.PutUint32(b[headSize-sumSize:], crc32.Checksum(b[:headSize-sumSize], castagnoli))
	if end := headSize + uint64(binary.BigEndian.Uint32(b[40:])); end+sumSize <= uint64(len(b)) {
		binary.BigEndian.PutUint32(b[end:], crc32.Checksum(b[headSize:end], castagnoli))
	}
	return b
}

// TestFormatStays: a release that makes other bytes would have another name for the same pack
// (pack-1).
func TestFormatStays(t *testing.T) {
	_, _, sources := pair(t)
	whole, built := build(t, sources...)
	const want = "588 3127c743643d284ca21a00dc922df7e1f6addcff971906e0afd5264eba65b5a8"
	if got := fmt.Sprintf("%d %x", len(whole), built.Hash); got != want {
		t.Errorf("the pack is %s, want %s", got, want)
	}
}

// TestEveryByteCounts damages each byte of a pack, with the checksums of head and index corrected
// and not, and cuts it at each length. Whoever reads gets an error or the right bytes, and whoever
// verifies the whole finds each.
func TestEveryByteCounts(t *testing.T) {
	a, b, sources := pair(t)
	whole, built := build(t, sources...)
	name := built.Index.Name()
	readAll := func(damaged []byte, length uint64) (err error) {
		p, err := Open(testVolume, built.Hash, length, from(damaged))
		if err != nil {
			return err
		}
		for _, w := range []*written{a, b} {
			for i, block := range w.blocks {
				sealed, rerr := p.Read(block.Ref, from(damaged))
				if rerr != nil {
					if odd(i) {
						err = rerr
					}
				} else if raw, oerr := w.opener.OpenBlock(block.Ref, sealed); oerr == nil && !bytes.Equal(raw, block.Raw) {
					t.Fatalf("block %v: other bytes", block.Ref)
				} else if oerr != nil {
					err = about(name, corrupt("tag", "%v", oerr))
				}
			}
		}
		return err
	}
	if err := readAll(whole, built.Len); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1 << (i % 8)
		if bad := named(readAll(damaged, built.Len), name, ErrCorrupt); bad != "" {
			t.Fatalf("byte %d: %s", i, bad)
		}
		if bad := named(Verify(testVolume, built.Hash, built.Len, from(damaged)), name, ErrCorrupt); bad != "" {
			t.Fatalf("byte %d: Verify: %s", i, bad)
		}
		source := Source{Pack: true, Hash: built.Hash, Len: built.Len, Kept: built.Index.Kept(), Read: from(damaged)}
		if _, err := Build(testVolume, []Source{source}, nil, io.Discard); named(err, name, ErrCorrupt) != "" {
			t.Fatalf("byte %d: Build: %s", i, named(err, name, ErrCorrupt))
		}
		_ = readAll(resum(bytes.Clone(damaged)), built.Len) // no other bytes, and no panic
		forged := resum(bytes.Clone(damaged))
		if !bytes.Equal(forged, whole) {
			if bad := named(Verify(testVolume, built.Hash, built.Len, from(forged)), name, ErrCorrupt); bad != "" {
				t.Fatalf("forged byte %d: Verify: %s", i, bad)
			}
		}
		if bad := named(readAll(whole[:i], uint64(i)), name, ErrCorrupt); bad != "" {
			t.Fatalf("length %d: %s", i, bad)
		}
		if bad := named(Verify(testVolume, built.Hash, uint64(i), from(whole[:i])), name, ErrCorrupt); bad != "" {
			t.Fatalf("length %d: Verify: %s", i, bad)
		}
		if err := readAll(whole[:i], built.Len); err == nil {
			t.Fatalf("cut at %d: no error", i)
		}
	}
}

// TestOtherBlockIsNotTaken puts two blocks of one length in each other's place.
func TestOtherBlockIsNotTaken(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	w := write(t, rng, 1, 10, func() int { return 20 })
	whole, built := build(t, w.source(w.keep(all)))
	first, second := w.blocks[0].Ref, w.blocks[1].Ref
	i, _ := built.Index.Find(first)
	k, _ := built.Index.Find(second)
	n := uint64(first.Len) + SumSize
	swapped := bytes.Clone(whole)
	copy(swapped[i:i+n], whole[k:])
	copy(swapped[k:k+n], whole[i:])
	if _, err := built.Index.Read(first, from(swapped)); named(err, built.Index.Name(), ErrCorrupt) != "" {
		t.Error(named(err, built.Index.Name(), ErrCorrupt))
	}
	for what, ref := range map[string]segment.BlockRef{
		"another length": {Seq: 1, Off: first.Off, Len: first.Len - 1},
		"within a block": {Seq: 1, Off: first.Off + 1, Len: first.Len},
		"before all":     {Seq: 1, Off: 128, Len: first.Len},
		"far away":       {Seq: 1, Off: 1<<32 + first.Off, Len: first.Len},
		"no segment":     {Seq: 2, Off: first.Off, Len: first.Len},
	} {
		if _, err := built.Index.Read(ref, from(whole)); named(err, built.Index.Name(), ErrNoBlock) != "" {
			t.Errorf("%s: %s", what, named(err, built.Index.Name(), ErrNoBlock))
		}
	}
	if _, err := built.Index.Check(first, whole[i:i+n-1]); err == nil {
		t.Error("too few bytes were taken for the block")
	}
}

// TestDamagedSource damages each byte of a segment, and cuts it. Build never succeeds, and names
// the segment.
func TestDamagedSource(t *testing.T) {
	w, _, sources := pair(t)
	name := segment.Name(testVolume, 1, w.hash)
	for i := range w.bytes {
		damaged := bytes.Clone(w.bytes)
		damaged[i] ^= 1 << (i % 8)
		s := slices.Clone(sources)
		s[0].Read = from(damaged)
		if _, err := Build(testVolume, s, nil, io.Discard); named(err, name, ErrCorrupt) != "" {
			t.Fatalf("byte %d: %s", i, named(err, name, ErrCorrupt))
		}
		s[0].Read, s[0].Len = from(w.bytes[:i]), uint64(i)
		if _, err := Build(testVolume, s, nil, io.Discard); named(err, name, ErrCorrupt) != "" {
			t.Fatalf("length %d: %s", i, named(err, name, ErrCorrupt))
		}
	}
}

// TestWrongLists: a list that does not fit its source is found although the source is whole.
func TestWrongLists(t *testing.T) {
	a, b, _ := pair(t)
	name := segment.Name(testVolume, 1, a.hash)
	good := a.keep(all)
	pack, built := build(t, a.source(good), b.source(b.keep(odd)))
	change := func(f func(*Kept)) Kept {
		k := good
		k.Blocks = slices.Clone(k.Blocks)
		f(&k)
		return k
	}
	later := func(by int) Kept {
		return change(func(k *Kept) { k.Blocks = []Block{{k.Blocks[1].Off + uint32(by), k.Blocks[1].Len - uint32(by)}} })
	}
	for what, s := range map[string]Source{
		"within a block":   a.source(later(1)),
		"not the length":   a.source(change(func(k *Kept) { k.Blocks[len(k.Blocks)-1].Len-- })),
		"in another part":  a.source(change(func(k *Kept) { k.Blocks = []Block{{segment.HeaderSize, 20}} })),
		"after the end":    a.source(change(func(k *Kept) { k.Blocks = append(k.Blocks, Block{uint32(len(a.bytes)), 20}) })),
		"at the very end":  a.source(change(func(k *Kept) { k.Blocks = append(k.Blocks, Block{uint32(len(a.bytes)) - 20, 20}) })),
		"of another frame": a.source(change(func(k *Kept) { k.Blocks = []Block{{k.Blocks[0].Off - 1, k.Blocks[0].Len}} })),
	} {
		if _, err := Build(testVolume, []Source{s}, nil, io.Discard); named(err, name, ErrNoBlock) != "" || errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	both := built.Index.Kept()
	for what, kept := range map[string][]Kept{
		"order":           {both[1], both[0]},
		"another one":     {change(func(k *Kept) { k.Hash[0]++ })},
		"another segment": {change(func(k *Kept) { k.Seq = 9 })},
		"another block":   {change(func(k *Kept) { k.Blocks[1].Off++; k.Blocks[1].Len-- })},
	} {
		s := Source{Pack: true, Hash: built.Hash, Len: built.Len, Kept: kept, Read: from(pack)}
		_, err := Build(testVolume, []Source{s}, nil, io.Discard)
		if named(err, built.Index.Name(), ErrNoBlock) != "" || errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var many []Kept
	for i := range MaxSegments + 1 {
		many = append(many, Kept{Seq: uint64(i + 1), Blocks: []Block{{200, 20}}})
	}
	large := Kept{Seq: 1, Blocks: make([]Block, 700)}
	for i := range large.Blocks {
		large.Blocks[i] = Block{uint32(segment.HeaderSize + i*maxBlock), maxBlock}
	}
	other := large
	other.Seq = 2
	for what, c := range map[string]struct {
		sources []Source
		of      error
	}{
		"nothing":           {nil, ErrTooLarge},
		"no block":          {[]Source{a.source(change(func(k *Kept) { k.Blocks = nil }))}, nil},
		"twice":             {[]Source{a.source(good), a.source(good)}, nil},
		"sequence 0":        {[]Source{a.source(change(func(k *Kept) { k.Seq = 0 }))}, nil},
		"not in order":      {[]Source{a.source(change(func(k *Kept) { slices.Reverse(k.Blocks) }))}, nil},
		"one over another":  {[]Source{a.source(change(func(k *Kept) { k.Blocks[1].Off-- }))}, nil},
		"too small":         {[]Source{a.source(change(func(k *Kept) { k.Blocks[0].Len = segment.TagSize }))}, nil},
		"another hash":      {[]Source{{Hash: a.hash, Len: a.source(good).Len, Kept: []Kept{{Seq: 1, Blocks: good.Blocks}}}}, nil},
		"too many segments": {[]Source{{Pack: true, Len: 1, Kept: many}}, ErrTooLarge},
		"too many bytes":    {[]Source{{Pack: true, Len: 1, Kept: []Kept{large, other}}}, ErrTooLarge},
		"too long":          {[]Source{{Hash: a.hash, Len: maxSource + 1, Kept: []Kept{good}}}, nil},
	} {
		var out bytes.Buffer
		if _, err := Build(testVolume, c.sources, nil, &out); err == nil || c.of != nil && !errors.Is(err, c.of) || out.Len() > 0 {
			t.Errorf("%s: %v, %d bytes written", what, err, out.Len())
		}
	}
}

// TestOtherErrors: what a reader or writer says is passed on, and no damage.
func TestOtherErrors(t *testing.T) {
	w, _, sources := pair(t)
	away := errors.New("away")
	fails := func([]byte, uint64) error { return away }
	_, built := build(t, sources...)
	ref := w.blocks[1].Ref
	broken := slices.Clone(sources)
	broken[0].Read = fails
	_, open := Open(testVolume, built.Hash, built.Len, fails)
	_, read := built.Index.Read(ref, fails)
	_, source := Build(testVolume, broken, nil, io.Discard)
	_, writer := Build(testVolume, sources, nil, failing{away})
	for what, err := range map[string]error{"open": open, "read": read, "source": source, "write": writer,
		"verify": Verify(testVolume, built.Hash, built.Len, fails)} {
		if !errors.Is(err, away) || errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	wrong := segment.VolumeID{1}
	if _, err := Build(wrong, sources, nil, io.Discard); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "volume") {
		t.Errorf("segments of another volume: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// FuzzOpen opens anything as a pack, with its checksums corrected, and looks for what it lists. The
// same list gives the same index.
func FuzzOpen(f *testing.F) {
	_, _, sources := pair(f)
	whole, _ := build(f, sources...)
	f.Add(whole)
	f.Add(whole[:headSize])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= headSize {
			b = resum(bytes.Clone(b))
		}
		hash := blake3.Sum256(b)
		p, err := Open(testVolume, hash, uint64(len(b)), from(b))
		if err != nil {
			return
		}
		kept := p.Kept()
		h, index, err := layOut(testVolume, kept, nil)
		if err != nil || h != p.head || !bytes.Equal(index, p.index) {
			t.Fatalf("the list of this pack makes another one: %v", err)
		}
		end := h.body()
		for _, k := range kept {
			for _, block := range k.Blocks {
				off, err := p.Find(segment.BlockRef{Seq: k.Seq, Off: uint64(block.Off), Len: block.Len})
				if err != nil || off != end {
					t.Fatalf("block at %d: %v", off, err)
				}
				end += uint64(block.Len) + SumSize
			}
		}
		var out bytes.Buffer
		s := Source{Pack: true, Hash: hash, Len: uint64(len(b)), Kept: kept, Read: from(b)}
		built, err := Build(testVolume, []Source{s}, nil, &out)
		if err != nil || built.Len != uint64(len(b)) {
			t.Fatalf("%d bytes: %v", built.Len, err)
		}
		if _, err := Open(testVolume, built.Hash, built.Len, from(out.Bytes())); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzSegment builds a pack from anything that has a segment's name and hash.
func FuzzSegment(f *testing.F) {
	a, _, _ := pair(f)
	good := a.keep(odd).Blocks
	f.Add(a.bytes, good[0].Off, good[0].Len)
	f.Add(a.bytes[:len(a.bytes)-1], good[1].Off, good[1].Len)
	f.Fuzz(func(t *testing.T, b []byte, off, length uint32) {
		hash := blake3.Sum256(b)
		s := Source{Hash: hash, Len: uint64(len(b)), Read: from(b),
			Kept: []Kept{{Seq: 1, Hash: hash, Blocks: []Block{{off, length}}}}}
		var out bytes.Buffer
		built, err := Build(testVolume, []Source{s}, nil, &out)
		if err != nil {
			return
		}
		p, err := Open(testVolume, built.Hash, built.Len, from(out.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Read(segment.BlockRef{Seq: 1, Off: uint64(off), Len: length}, from(out.Bytes()))
		if err != nil || !bytes.Equal(got, b[off:off+length]) {
			t.Fatalf("other bytes, %v", err)
		}
	})
}

// FuzzName: what parses is the name that Name makes.
func FuzzName(f *testing.F) {
	f.Add(Name(testVolume, Hash{1}))
	f.Fuzz(func(t *testing.T, name string) {
		if v, h, err := ParseName(name); err == nil && Name(v, h) != name {
			t.Fatalf("%q", name)
		}
	})
}
