// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/segment"
)

// Source is a segment or a pack, and the blocks of it that are kept.
type Source struct {
	Pack bool   // else it is a segment
	Hash Hash   // BLAKE3 of all its bytes; of a segment it is that of Kept
	Len  uint64 // its bytes
	Kept []Kept // of a segment exactly one; of a pack what Pack.Keep returns
	Read Read   // reads it, in runs of 1 MiB
}

// Built is what Build wrote.
type Built struct {
	Hash  Hash
	Len   uint64
	Index *Pack // as Open returns it
}

// Build writes the pack with the kept blocks of all sources to w, in the order of the sources and
// of their Kept. It reads each source once, from its beginning to its end. It takes at most 8 MiB
// of memory besides the lists and the index that it returns.
//
// Before it returns it has verified all sources. After an error the caller discards what w has.
// ErrTooLarge and impossible lists are found before anything is written. Errors of reading, and
// about sources, are ObjectErrors: one that wraps ErrCorrupt says that a source is damaged, and one
// that wraps ErrNoBlock that the source is whole, so that the metadata, or the list, is wrong.
func Build(volume segment.VolumeID, sources []Source, seal *Sealing, w io.Writer) (Built, error) {
	var all []Kept
	for i := range sources {
		s := &sources[i]
		if !s.Pack && (len(s.Kept) != 1 || s.Kept[0].Hash != s.Hash) {
			return Built{}, fmt.Errorf("build a pack: source %d is a segment with %d lists: want one, with its hash", i, len(s.Kept))
		}
		if most := uint64(maxSource); s.Len > most && !s.Pack {
			return Built{}, fmt.Errorf("build a pack: source %d has %d bytes: a segment has at most %d", i, s.Len, most)
		}
		all = append(all, s.Kept...)
	}
	var with *seals
	var cuts map[place][]byte
	if slices.ContainsFunc(all, func(k Kept) bool { return len(k.Cuts) > 0 }) {
		if seal == nil {
			return Built{}, errors.New("build a pack: it has blocks that are cut, and there is no key")
		}
		all = slices.Clone(all)
		for i := range all {
			all[i].Cuts = slices.Clone(all[i].Cuts)
		}
		is, sealed, err := seal.seal(volume, all)
		if err != nil {
			return Built{}, fmt.Errorf("build a pack: %w", err)
		}
		with, cuts = &is, sealed
	}
	h, index, err := layOut(volume, all, with)
	if err != nil {
		return Built{}, err
	}
	hash := blake3.New()
	b := builder{volume: volume, cuts: cuts, memory: make([]byte, stride), out: bufio.NewWriterSize(io.MultiWriter(hash, w), 256<<10)}
	index = binary.BigEndian.AppendUint32(index, crc32.Checksum(index, castagnoli))
	b.write(h.append(nil))
	b.write(index)
	for i := range sources {
		if err := b.copy(&sources[i]); err != nil {
			return Built{}, fmt.Errorf("build a pack: %w", err)
		}
	}
	if err := b.out.Flush(); err != nil {
		return Built{}, fmt.Errorf("build a pack: write: %w", err)
	}
	if b.size != h.size {
		panic(fmt.Sprintf("pack: wrote %d bytes of %d", b.size, h.size))
	}
	built := Built{Len: h.size}
	hash.Sum(built.Hash[:0])
	if built.Index, err = decodeIndex(h, index); err != nil {
		return Built{}, fmt.Errorf("build a pack: its own index: %w", err)
	}
	built.Index.name = Name(volume, built.Hash)
	return built, nil
}

// builder writes the blocks of a pack.
type builder struct {
	volume segment.VolumeID
	cuts   map[place][]byte // what is put for blocks that are cut
	memory []byte           // for streams
	out    *bufio.Writer
	size   uint64
	err    error // of writing
}

func (b *builder) write(p []byte) {
	if b.err == nil {
		_, b.err = b.out.Write(p)
	}
	b.size += uint64(len(p))
}

// put writes one block.
func (b *builder) put(seq uint64, at Block, sealed []byte) {
	var sum [sumSize]byte
	if cut := b.cuts[place{seq, at.Off}]; cut != nil {
		sealed = cut
	}
	binary.BigEndian.PutUint32(sum[:], blockSum(seq, Block{at.Off, uint32(len(sealed))}, sealed))
	b.write(sealed)
	b.write(sum[:])
}

// copy writes the kept blocks of a source, and verifies all of the source.
func (b *builder) copy(s *Source) error {
	in := newStream(s.Read, s.Len, b.memory)
	name, from := Name(b.volume, s.Hash), b.fromPack
	if !s.Pack {
		name, from = segment.Name(b.volume, s.Kept[0].Seq, s.Hash), b.fromSegment
	}
	err := from(in, s.Kept)
	if b.err != nil {
		return fmt.Errorf("write: %w", b.err)
	}
	if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNoBlock) {
		return about(name, err) // it could not be read
	}
	// Whether the source is damaged or the list is wrong, only the hash of the whole can say.
	sum, ferr := in.finish()
	switch {
	case ferr != nil:
		return about(name, ferr)
	case sum != s.Hash && err != nil && errors.Is(err, ErrCorrupt):
		return about(name, err)
	case sum != s.Hash:
		return about(name, corrupt("hash of its bytes", "%x", sum[:8]))
	}
	return about(name, err)
}

// fromSegment writes the kept blocks of a segment. Its bytes are not verified yet.
func (b *builder) fromSegment(in *stream, kept []Kept) error {
	seq, rest := kept[0].Seq, kept[0].Blocks
	raw, err := in.next(segment.HeaderSize)
	if err != nil {
		return err
	}
	h, err := segment.DecodeHeader(raw)
	if err != nil {
		return corrupt("header", "%v", err)
	}
	if h.Seq != seq || h.Volume != b.volume {
		return corrupt("header", "segment %d of volume %x", h.Seq, h.Volume)
	}
	for len(rest) > 0 && in.left() > 0 {
		if rest, err = b.fromFrame(in, seq, rest); err != nil {
			return err
		}
	}
	if len(rest) > 0 {
		return noBlock(seq, rest[0], "the segment ends before")
	}
	return nil
}

// fromFrame writes the kept blocks of the next frame. It returns those that come later.
func (b *builder) fromFrame(in *stream, seq uint64, rest []Block) ([]Block, error) {
	start := in.at()
	prefix, err := in.peek(segment.OutlinePrefix)
	if err != nil {
		return nil, err
	}
	size, plain, meta, ok := segment.OutlineParts(prefix)
	if !ok || uint64(size) > in.left() {
		return nil, corrupt("frame", "at offset %d", start)
	}
	if uint64(rest[0].Off) >= start+uint64(size) {
		return rest, in.skip(uint64(size))
	}
	raw, err := in.next(plain)
	if err != nil {
		return nil, err
	}
	lens := make([]uint32, segment.FrameBlocks(raw))
	sum := uint64(plain) + uint64(meta)
	for i := range lens {
		lens[i] = segment.FrameBlockLen(raw, i)
		if lens[i] > maxBlock {
			return nil, corrupt("block length", "%d at offset %d", lens[i], start)
		}
		sum += uint64(lens[i])
	}
	if sum != uint64(size) {
		return nil, corrupt("frame", "its parts have %d of %d bytes, at offset %d", sum, size, start)
	}
	for _, n := range lens {
		place := Block{Off: uint32(in.at()), Len: n}
		sealed, err := in.next(int(n))
		if err != nil {
			return nil, err
		}
		if len(rest) > 0 && rest[0] == place {
			b.put(seq, place, sealed)
			rest = rest[1:]
		} else if len(rest) > 0 && uint64(rest[0].Off) < place.end() {
			return nil, noBlock(seq, rest[0], "the segment has another one there")
		}
	}
	return rest, in.skip(uint64(meta))
}

// fromPack writes the kept blocks of a pack. Its bytes are not verified yet.
func (b *builder) fromPack(in *stream, kept []Kept) error {
	raw, err := in.next(headSize)
	if err != nil {
		return err
	}
	h, err := decodeHead(raw)
	if err != nil {
		return err
	}
	if h.volume != b.volume || h.size != in.length {
		return corrupt("head", "volume %x, length %d", h.volume, h.size)
	}
	index := make([]byte, 0, h.index+sumSize)
	for len(index) < cap(index) {
		part, err := in.next(min(cap(index)-len(index), stride))
		if err != nil {
			return err
		}
		index = append(index, part...)
	}
	if _, err := decodeIndex(h, index); err != nil {
		return err
	}
	c := cursor{b: index[:h.index], cuts: h.cut}
	if h.cut {
		c.b = c.b[sealsSize:]
	}
	for range h.segments {
		seq, hash, blocks := c.segment()
		var rest []Block
		if len(kept) > 0 && kept[0].Seq == seq {
			if kept[0].Hash != hash {
				return noBlock(seq, kept[0].Blocks[0], "the pack has another segment of that sequence")
			}
			rest, kept = kept[0].Blocks, kept[1:]
		}
		if err := b.fromPart(in, &c, seq, blocks, rest); err != nil {
			return err
		}
	}
	if len(kept) > 0 {
		return noBlock(kept[0].Seq, kept[0].Blocks[0], "the pack does not have that segment, or has it in another order")
	}
	return nil
}

// fromPart writes the kept blocks of one segment of a pack, whose index c reads.
func (b *builder) fromPart(in *stream, c *cursor, seq uint64, blocks int, rest []Block) error {
	end := uint64(segment.HeaderSize)
	for range blocks {
		is := c.entry(end)
		end = is.end()
		raw, err := in.next(int(is.size()) + sumSize)
		if err != nil {
			return err
		}
		if len(rest) > 0 && rest[0] == is.Block {
			if is.cut != nil && b.cuts[place{seq, is.Off}] == nil {
				return noBlock(seq, is.Block, "the pack has it cut")
			}
			b.put(seq, is.Block, raw[:is.size()])
			rest = rest[1:]
		}
	}
	if len(rest) > 0 {
		return noBlock(seq, rest[0], "the pack does not have it")
	}
	return nil
}

// Keep returns what a Source has whose pack this is, given the live blocks of its segments by their
// sequence: in the order of the pack, with their hashes, and without segments that have none. So
// blocks that no list has are left out.
func (p *Pack) Keep(live map[uint64][]Block) []Kept {
	out := make([]Kept, len(p.parts))
	for _, s := range p.parts {
		out[s.order] = Kept{Seq: s.seq, Hash: s.hash, Blocks: live[s.seq]}
	}
	return slices.DeleteFunc(out, func(k Kept) bool { return len(k.Blocks) == 0 })
}

// Verify reads a whole pack, and verifies it against its name and length: so a host without a key
// finds damage. Errors are ObjectErrors.
func Verify(volume segment.VolumeID, hash Hash, length uint64, read Read) error {
	b := builder{volume: volume, memory: make([]byte, stride), out: bufio.NewWriter(io.Discard)}
	return b.copy(&Source{Pack: true, Hash: hash, Len: length, Read: read})
}
