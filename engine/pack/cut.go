// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/zeebo/blake3"

	"github.com/weir-storage/weir/engine/segment"
)

// Range is a run of bytes of a block, counted in what the block has once it is open and unpacked.
type Range struct{ Off, Len uint32 }

func (r Range) end() uint32 { return r.Off + r.Len }

// MaxRanges is the most ranges of a block that is cut.
const MaxRanges = 64

// Cut is a block that a pack has sealed anew: some ranges of it, or all of it (Whole).
type Cut struct {
	Block
	Counter uint64  // of the block's own seal
	Raw     uint32  // bytes of the whole block, once unpacked
	Ranges  []Range // ascending; two of them do not touch; one that is all of it: nothing is cut away
	Size    uint32  // sealed bytes in the pack; Build finds out
}

// IndexSize is at most how many bytes more the index has because a block is cut.
func (c *Cut) IndexSize() int { return 1 + 10 + 3 + 3 + 6*len(c.Ranges) }

// Bytes is how many bytes the ranges have.
func (c *Cut) Bytes() (n uint32) {
	for _, r := range c.Ranges {
		n += r.Len
	}
	return n
}

// Whole reports whether the pack has all of the block: under another key, as it was compressed.
func (c *Cut) Whole() bool { return len(c.Ranges) == 1 && c.Ranges[0] == Range{0, c.Raw} }

// WholeCut is a block that is sealed anew and not cut.
func WholeCut(b Block, counter uint64, raw uint32) Cut {
	return Cut{Block: b, Counter: counter, Raw: raw, Ranges: []Range{{0, raw}}}
}

// Has reports whether one of the ranges has n bytes from byte skip of the block on.
func (c *Cut) Has(skip, n uint32) bool {
	return slices.ContainsFunc(c.Ranges, func(r Range) bool { return r.Off <= skip && uint64(skip)+uint64(n) <= uint64(r.end()) })
}

// check returns an error if c can not be a block that is cut.
func (c *Cut) check() error {
	at := uint32(0)
	ok := c.Raw <= segment.MaxBlock && len(c.Ranges) > 0 && len(c.Ranges) <= MaxRanges
	for i, r := range c.Ranges {
		ok = ok && r.Len > 0 && (i == 0 || r.Off > at) && r.Off <= c.Raw && r.Len <= c.Raw-r.Off
		at = r.end()
	}
	if !ok || c.Bytes() >= c.Raw && !c.Whole() {
		return fmt.Errorf("block at offset %d, %d bytes once unpacked, is cut to %v", c.Off, c.Raw, c.Ranges)
	}
	return nil
}

// append appends what the index has of a cut after the place.
func (c *Cut) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(c.Ranges)))
	for _, n := range []uint64{c.Counter, uint64(c.Raw), uint64(c.Size)} {
		dst = binary.AppendUvarint(dst, n)
	}
	end := uint32(0)
	for _, r := range c.Ranges {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(r.Off-end)), uint64(r.Len))
		end = r.end()
	}
	return dst
}

// cut reads what follows the place of a block; nil: the block is whole.
func (c *cursor) cut(b Block) *Cut {
	n := c.uvarint("number of ranges")
	if n == 0 || c.err != nil {
		return nil
	}
	is := &Cut{Block: b, Counter: c.uvarint("counter")}
	raw, size := c.uvarint("length of the whole block"), c.uvarint("length of what is cut")
	if n > MaxRanges || raw > segment.MaxBlock || size <= segment.TagSize || size > maxBlock {
		c.fail("cut", "%d ranges of %d bytes, %d sealed", n, raw, size)
		return nil
	}
	is.Raw, is.Size = uint32(raw), uint32(size)
	end := uint64(0)
	for range n {
		gap, n := c.uvarint("gap of a range"), c.uvarint("length of a range")
		if end += gap; gap > raw || n > raw || end+n > raw {
			c.fail("range", "gap %d, length %d of a block of %d bytes", gap, n, raw)
			return nil
		}
		is.Ranges = append(is.Ranges, Range{uint32(end), uint32(n)})
		end += n
	}
	err := is.check()
	if err == nil && is.Whole() && is.Size != b.Len {
		err = fmt.Errorf("block at offset %d is whole, with %d sealed bytes of %d", b.Off, size, b.Len)
	}
	if err != nil {
		c.fail("cut", "%v", err)
		return nil
	}
	return is
}

// seals is what a pack's cuts are sealed with, besides the data key.
type seals struct {
	key  uint32 // number of the data key
	salt [32]byte
}

const sealsSize = 4 + 32

// Sealing is what Build needs for cuts.
type Sealing struct {
	Key  uint32 // number of the data key
	Data *segment.DataKey
	// Raw returns blocks once they are open and unpacked, whole, or as Open returns them.
	Raw func(refs []segment.BlockRef) ([][]byte, error)
	// Packed returns whole blocks once they are open, as they were compressed. They are Build's.
	Packed func(refs []segment.BlockRef) ([][]byte, error)
}

// place names a block.
type place struct {
	seq uint64
	off uint32
}

// text is what of a block is to be sealed.
type text struct {
	order  int // of its segment, in the pack
	seq    uint64
	hash   segment.Hash // of its segment
	cut    *Cut
	packed []byte
}

// seal asks for so many blocks at once, of so many bytes once they are unpacked.
const (
	batchBlocks = 1024
	batchBytes  = 4 << 20
)

// batch returns how many of the first texts seal asks for at once.
func batch(all []text) (n int) {
	for bytes := 0; n < min(len(all), batchBlocks); n++ {
		if bytes += int(all[n].cut.Raw); n > 0 && bytes > batchBytes {
			break
		}
	}
	return n
}

// seal seals all cuts of kept, and sets their Size.
//
// The salt is a keyed hash of all that is sealed, as it was compressed, of all that is
// authenticated with it, and of the nonces. The key is derived from it. So two different texts
// never have one key and one nonce, also if two releases compress otherwise, or if a crash has it
// made twice (protocol-16, ADR 64).
func (s *Sealing) seal(volume segment.VolumeID, kept []Kept) (is seals, out map[place][]byte, err error) {
	var all []text
	for i := range kept {
		for j := range kept[i].Cuts {
			all = append(all, text{i, kept[i].Seq, kept[i].Hash, &kept[i].Cuts[j], nil})
		}
	}
	hashKey, err := hkdf.Key(sha256.New, s.Data[:], nil, "weir pack hash 1"+string(volume[:]), 32)
	if err != nil {
		return is, nil, err
	}
	hash, err := blake3.NewKeyed(hashKey)
	if err != nil {
		return is, nil, err
	}
	is.key = s.Key
	for rest := all; len(rest) > 0; {
		some := rest[:batch(rest)]
		rest = rest[len(some):]
		if err := s.texts(volume, some); err != nil {
			return is, nil, err
		}
		for i := range some {
			t := &some[i]
			t.cut.Size = uint32(len(t.packed) + segment.TagSize)
			aad := t.cut.aad(volume, seals{}, t.seq)
			for _, b := range [][]byte{binary.BigEndian.AppendUint32(nil, uint32(t.order)), aad, t.packed} {
				_, _ = hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b)))) // never fails
				_, _ = hash.Write(b)
			}
		}
	}
	hash.Sum(is.salt[:0])
	aead, err := is.aead(volume, s.Data)
	if err != nil {
		return is, nil, err
	}
	out = make(map[place][]byte, len(all))
	for _, t := range all {
		out[place{t.seq, t.cut.Off}] = aead.Seal(t.packed[:0], nonce(t.order, t.cut.Off), t.packed, t.cut.aad(volume, is, t.seq))
	}
	return is, out, nil
}

// texts finds what is to be sealed of some cuts. What is whole keeps its compression: so it has as
// many bytes as before, whoever seals it.
func (s *Sealing) texts(volume segment.VolumeID, some []text) error {
	var whole, parts []*text
	ask := func(from func([]segment.BlockRef) ([][]byte, error), of []*text) ([][]byte, error) {
		refs := make([]segment.BlockRef, len(of))
		for i, t := range of {
			refs[i] = segment.BlockRef{Seq: t.seq, Off: uint64(t.cut.Off), Len: t.cut.Len, Counter: t.cut.Counter}
		}
		if len(of) == 0 {
			return nil, nil
		}
		return from(refs)
	}
	for i := range some {
		if some[i].cut.Whole() {
			whole = append(whole, &some[i])
		} else {
			parts = append(parts, &some[i])
		}
	}
	packed, err := ask(s.Packed, whole)
	if err != nil {
		return err
	}
	for i, t := range whole {
		raw, err := segment.Unpack(packed[i], nil)
		if err != nil {
			err = corrupt("block", "%v", err)
		}
		if n := uint32(len(packed[i]) + segment.TagSize); err == nil && (uint32(len(raw)) != t.cut.Raw || n != t.cut.Len) {
			err = corrupt("block", "%d bytes, %d sealed: want %d and %d", len(raw), n, t.cut.Raw, t.cut.Len)
		}
		if err != nil {
			return about(segment.Name(volume, t.seq, t.hash), fmt.Errorf("seal the block at offset %d anew: %w", t.cut.Off, err))
		}
		t.packed = packed[i]
	}
	raws, err := ask(s.Raw, parts)
	if err != nil {
		return err
	}
	for i, t := range parts {
		var kept []byte
		for _, r := range t.cut.Ranges {
			b, err := Slice(raws[i], t.cut.Raw, r.Off, r.Len)
			if err != nil {
				return fmt.Errorf("cut the block at %d/%d: %w", t.seq, t.cut.Off, err)
			}
			kept = append(kept, b...)
		}
		t.packed = segment.Pack(kept, segment.Fast)
	}
	return nil
}

func (s seals) aead(volume segment.VolumeID, data *segment.DataKey) (cipher.AEAD, error) {
	k, err := hkdf.Key(sha256.New, data[:], s.salt[:], "weir pack 1"+string(volume[:]), 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(k)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// nonce names a block of a pack: the number of its segment there, and its offset in the segment.
func nonce(order int, off uint32) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(order)), uint64(off))
}

func (c *Cut) aad(volume segment.VolumeID, s seals, seq uint64) []byte {
	b := append([]byte{'c'}, volume[:]...)
	b = append(binary.BigEndian.AppendUint32(b, s.key), s.salt[:]...)
	for _, n := range []uint64{seq, uint64(c.Off), uint64(c.Len)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return c.append(b)
}

// Key returns the number of the data key that the pack's cuts are sealed with.
func (p *Pack) Key() uint32 { return p.seals.key }

// Salt is what the pack's cuts are sealed under: it names them, as no others have it.
func (p *Pack) Salt() [32]byte { return p.seals.salt }

// HasCuts reports whether blocks of the pack are cut, or sealed anew.
func (p *Pack) HasCuts() bool { return p.head.cut }

// Open opens what of a block is in the pack: b lies from At's offset on, and has c.Size and SumSize
// bytes. data is the data key of number Key. Slice reads the result. Errors are ObjectErrors.
func (p *Pack) Open(data *segment.DataKey, seq uint64, c *Cut, b []byte) ([]byte, error) {
	packed, err := p.OpenPacked(data, seq, c, b)
	if err != nil {
		return nil, err
	}
	kept, err := segment.Unpack(packed, nil)
	if err == nil && uint32(len(kept)) != c.Bytes() {
		err = fmt.Errorf("%d bytes", len(kept))
	}
	if err != nil {
		return nil, about(p.name, corrupt("what is cut", "segment %d offset %d: %v", seq, c.Off, err))
	}
	if c.Whole() {
		return kept, nil
	}
	return form(c.Raw, c.Ranges, kept), nil
}

// OpenPacked is Open, but that it returns the ranges one after the other, as they are compressed.
func (p *Pack) OpenPacked(data *segment.DataKey, seq uint64, c *Cut, b []byte) ([]byte, error) {
	if uint64(len(b)) != uint64(c.Size)+sumSize {
		return nil, about(p.name, noBlock(seq, c.Block, "other bytes were read"))
	}
	sealed := b[:c.Size:c.Size]
	if blockSum(seq, Block{c.Off, c.Size}, sealed) != binary.BigEndian.Uint32(b[c.Size:]) {
		return nil, about(p.name, corrupt("block crc", "segment %d offset %d", seq, c.Off))
	}
	i, ok := p.part(seq)
	if !ok {
		return nil, about(p.name, noBlock(seq, c.Block, "the pack has nothing there"))
	}
	aead, err := p.seals.aead(p.head.volume, data)
	if err != nil {
		return nil, about(p.name, err)
	}
	memory := make([]byte, 0, len(sealed)) // has room for the tag when it is sealed anew
	packed, err := aead.Open(memory, nonce(p.parts[i].order, c.Off), sealed, c.aad(p.head.volume, p.seals, seq))
	if err != nil {
		return nil, about(p.name, corrupt("tag", "segment %d offset %d", seq, c.Off))
	}
	return packed, nil
}

// form is how a block that is cut is handed around: raw u32 · number of ranges u32 · ranges · their
// bytes, and one byte more if that were as long as the whole block. So its length says that it is
// not whole.
func form(raw uint32, ranges []Range, kept []byte) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 9+8*len(ranges)+len(kept)), raw)
	b = binary.BigEndian.AppendUint32(b, uint32(len(ranges)))
	for _, r := range ranges {
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, r.Off), r.Len)
	}
	if b = append(b, kept...); uint32(len(b)) == raw {
		b = append(b, 0)
	}
	return b
}

// Slice returns n bytes from byte skip on of a block of raw bytes, given the whole block, or what
// Open returned of one that is cut. It shares b's memory. What was cut away is an error that wraps
// ErrNoBlock, never zeros (protocol-19).
func Slice(b []byte, raw, skip, n uint32) ([]byte, error) {
	if uint64(skip)+uint64(n) > uint64(raw) {
		return nil, corrupt("range", "%d bytes from byte %d on of a block of %d", n, skip, raw)
	}
	if uint32(len(b)) == raw {
		return b[skip : skip+n], nil
	}
	if len(b) < 8 || binary.BigEndian.Uint32(b) != raw {
		return nil, corrupt("block", "has %d bytes, want %d", len(b), raw)
	}
	count := uint64(binary.BigEndian.Uint32(b[4:]))
	at := 8 + 8*count
	if count > MaxRanges || at > uint64(len(b)) {
		return nil, corrupt("block", "has %d bytes, want %d", len(b), raw)
	}
	for i := range count {
		off, size := binary.BigEndian.Uint32(b[8+8*i:]), binary.BigEndian.Uint32(b[12+8*i:])
		if at+uint64(size) > uint64(len(b)) {
			break
		}
		if off <= skip && uint64(skip)+uint64(n) <= uint64(off)+uint64(size) {
			from := at + uint64(skip-off)
			return b[from : from+uint64(n)], nil
		}
		at += uint64(size)
	}
	return nil, fmt.Errorf("%w: bytes %d to %d of the block were cut away", ErrNoBlock, skip, skip+n)
}
