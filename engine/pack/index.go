// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/weir-storage/weir/engine/segment"
)

// Read fills p from offset off of one object. It returns an error if the object ends before.
type Read func(p []byte, off uint64) error

// Pack is the index of one pack. It has the encoded index, some five bytes for each block, and a
// mark for each run of blocks. It does not change. Any number of goroutines may call its methods.
type Pack struct {
	name  string
	head  head
	index []byte
	seals seals
	parts []part // by sequence
	marks []mark
}

// part is the blocks of one segment in a pack.
type part struct {
	seq         uint64
	hash        segment.Hash
	blocks      int
	first, last int // its marks
	order       int // which one in the pack
}

// mark is where a run of blocks of one segment begins.
type mark struct {
	off  uint32 // of the first block, in the segment
	end  uint32 // of the block before, in the segment
	at   uint32 // in the index
	body uint32 // of the first block, counted from the first of the pack
}

// run is how many blocks lie between two marks: what Find decodes at most.
const run = 32

// SumSize is how many bytes follow each block in a pack: its checksum.
const SumSize = 4

// firstRead is how much Open reads at once. Most packs have a smaller index.
const firstRead = 64 << 10

// Open reads and verifies the index of the pack with that hash and length. It calls read twice at
// most. It does not read the blocks: Pack.Read verifies each. Errors are ObjectErrors.
func Open(volume segment.VolumeID, hash Hash, length uint64, read Read) (*Pack, error) {
	name := Name(volume, hash)
	p, err := open(volume, length, read)
	if err != nil {
		return nil, about(name, err)
	}
	p.name = name
	return p, nil
}

func open(volume segment.VolumeID, length uint64, read Read) (*Pack, error) {
	if length < headSize {
		return nil, corrupt("length", "%d bytes", length)
	}
	b := make([]byte, min(length, firstRead))
	if err := read(b, 0); err != nil {
		return nil, err
	}
	h, err := decodeHead(b[:headSize])
	if err != nil {
		return nil, err
	}
	if h.volume != volume || h.size != length {
		return nil, corrupt("head", "volume %x, length %d: want %x and %d", h.volume, h.size, volume, length)
	}
	index := make([]byte, h.index+sumSize)
	if n := copy(index, b[headSize:]); n < len(index) {
		if err := read(index[n:], headSize+uint64(n)); err != nil {
			return nil, err
		}
	}
	return decodeIndex(h, index)
}

// decodeWhole decodes what Head returned of the pack of that hash and length.
func decodeWhole(hash Hash, length uint64, b []byte) (*Pack, error) {
	decode := func() (head, *Pack, error) {
		if len(b) < headSize {
			return head{}, nil, corrupt("head", "%d bytes", len(b))
		}
		h, err := decodeHead(b[:headSize])
		if err == nil && (h.size != length || uint64(len(b)) != h.body()) {
			err = corrupt("head", "length %d, and %d bytes before the blocks: want %d and %d", h.size, h.body(), length, len(b))
		}
		if err != nil {
			return h, nil, err
		}
		p, err := decodeIndex(h, b[headSize:])
		return h, p, err
	}
	h, p, err := decode()
	name := Name(h.volume, hash)
	if err != nil {
		return nil, about(name, err)
	}
	p.name = name
	return p, nil
}

// decodeIndex verifies an index and its checksum, which follows it. It keeps b.
func decodeIndex(h head, b []byte) (*Pack, error) {
	b, sum := b[:h.index:h.index], binary.BigEndian.Uint32(b[h.index:])
	if crc32.Checksum(b, castagnoli) != sum {
		return nil, corrupt("index crc", "differs")
	}
	p := &Pack{head: h, index: b, parts: make([]part, 0, h.segments), marks: make([]mark, 0, h.segments+h.blocks/run)}
	c := cursor{b: b, cuts: h.cut}
	if h.cut {
		if len(b) < sealsSize {
			return nil, corrupt("index", "%d bytes", len(b))
		}
		p.seals.key, p.seals.salt = binary.BigEndian.Uint32(b), [32]byte(b[4:sealsSize])
		c.b = b[sealsSize:]
	}
	var body uint64
	left := h.blocks
	for i := range h.segments {
		seq, hash, blocks := c.segment()
		if left -= blocks; c.err == nil && left < 0 {
			c.fail("number of blocks", "more than the head says")
		}
		if c.err != nil {
			return nil, c.err
		}
		s := part{seq: seq, hash: hash, blocks: blocks, first: len(p.marks), order: i}
		end := uint64(segment.HeaderSize)
		for k := range blocks {
			at := len(b) - len(c.b)
			place := c.entry(end)
			if c.err != nil {
				return nil, c.err
			}
			if k%run == 0 {
				p.marks = append(p.marks, mark{off: place.Off, end: uint32(end), at: uint32(at), body: uint32(body)})
			}
			end = place.end()
			if body += uint64(place.size()) + sumSize; body > maxBody {
				return nil, corrupt("index", "more bytes of blocks than a pack has")
			}
		}
		s.last = len(p.marks)
		p.parts = append(p.parts, s)
	}
	if left != 0 || len(c.b) != 0 || h.body()+body != h.size {
		return nil, corrupt("index", "%d blocks and %d bytes left over, %d of %d bytes of blocks", left, len(c.b), body, h.size-h.body())
	}
	slices.SortFunc(p.parts, func(a, b part) int { return cmp.Compare(a.seq, b.seq) })
	for i := 1; i < len(p.parts); i++ {
		if p.parts[i].seq == p.parts[i-1].seq {
			return nil, corrupt("index", "segment %d twice", p.parts[i].seq)
		}
	}
	return p, nil
}

// Name returns the name of the pack.
func (p *Pack) Name() string { return p.name }

// Len returns the length of the whole pack in bytes.
func (p *Pack) Len() uint64 { return p.head.size }

// memory is about how many bytes the index takes.
func (p *Pack) memory() int { return 128 + len(p.index) + 80*len(p.parts) + 16*len(p.marks) }

// Head returns what the pack begins with, up to its blocks. The caller owns it.
func (p *Pack) Head() []byte {
	b := append(p.head.append(make([]byte, 0, int(p.head.body()))), p.index...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(p.index, castagnoli))
}

// Find returns where the block that ref names begins in the pack. The error is an ObjectError that
// wraps ErrNoBlock.
func (p *Pack) Find(ref segment.BlockRef) (off uint64, err error) {
	off, cut, err := p.At(ref)
	if err == nil && cut != nil {
		return 0, about(p.name, noBlock(ref.Seq, cut.Block, "the pack has it cut"))
	}
	return off, err
}

// part finds a segment.
func (p *Pack) part(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(p.parts, seq, func(s part, seq uint64) int { return cmp.Compare(s.seq, seq) })
}

// At is Find for blocks that are whole, nil, and for those that are cut, of which cut.Size sealed
// bytes begin there.
func (p *Pack) At(ref segment.BlockRef) (off uint64, cut *Cut, err error) {
	i, ok := p.part(ref.Seq)
	want := Block{Off: uint32(ref.Off), Len: ref.Len}
	if !ok || ref.Off > maxSource {
		return 0, nil, about(p.name, noBlock(ref.Seq, want, "the pack has nothing there"))
	}
	s := &p.parts[i]
	marks := p.marks[s.first:s.last]
	m, exact := slices.BinarySearchFunc(marks, want.Off, func(m mark, off uint32) int { return cmp.Compare(m.off, off) })
	if !exact {
		m--
	}
	if m >= 0 {
		c, end, body := cursor{b: p.index[marks[m].at:], cuts: p.head.cut}, uint64(marks[m].end), uint64(marks[m].body)
		for range min(run, s.blocks-m*run) {
			place := c.entry(end) // decodeIndex verified it
			if place.Block == want {
				return p.head.body() + body, place.cut, nil
			}
			end, body = place.end(), body+uint64(place.size())+sumSize
			if place.Off >= want.Off {
				break
			}
		}
	}
	return 0, nil, about(p.name, noBlock(ref.Seq, want, "the pack does not have it"))
}

// Read reads the sealed block that ref names, and verifies its checksum. The result is the
// caller's. segment.Opener.OpenBlock verifies the rest. Errors are ObjectErrors.
func (p *Pack) Read(ref segment.BlockRef, read Read) ([]byte, error) {
	off, err := p.Find(ref)
	if err != nil {
		return nil, err
	}
	b := make([]byte, ref.Len+sumSize)
	if err := read(b, off); err != nil {
		return nil, about(p.name, err)
	}
	return p.Check(ref, b)
}

// Check verifies the bytes that lie from Find's offset on, ref.Len and SumSize of them. It returns
// the sealed block, which shares their memory. So whoever reads several blocks at once can check
// each. Errors are ObjectErrors.
func (p *Pack) Check(ref segment.BlockRef, b []byte) ([]byte, error) {
	want := Block{Off: uint32(ref.Off), Len: ref.Len}
	if uint64(len(b)) != uint64(ref.Len)+sumSize || ref.Off > maxSource {
		return nil, about(p.name, noBlock(ref.Seq, want, "other bytes were read"))
	}
	sealed := b[:ref.Len:ref.Len]
	if blockSum(ref.Seq, want, sealed) != binary.BigEndian.Uint32(b[ref.Len:]) {
		return nil, about(p.name, corrupt("block crc", "segment %d offset %d", ref.Seq, ref.Off))
	}
	return sealed, nil
}

// Kept lists what the pack has, in its order. With this list Build makes the same pack again, from
// the segments or from this one. A copy without a key, which cannot know what is live, builds with
// it. The list takes eight bytes for each block, and is the caller's.
func (p *Pack) Kept() []Kept {
	out := make([]Kept, len(p.parts))
	for _, s := range p.parts {
		k := Kept{Seq: s.seq, Hash: s.hash, Blocks: make([]Block, s.blocks)}
		m := p.marks[s.first]
		c, end := cursor{b: p.index[m.at:], cuts: p.head.cut}, uint64(m.end)
		for i := range k.Blocks {
			e := c.entry(end)
			if k.Blocks[i] = e.Block; e.cut != nil {
				k.Cuts = append(k.Cuts, *e.cut)
			}
			end = k.Blocks[i].end()
		}
		out[s.order] = k
	}
	return out
}
