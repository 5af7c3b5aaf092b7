// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/weir-storage/weir/engine/segment"
)

// Hash is the BLAKE3-256 hash of a whole pack.
type Hash = [32]byte

const (
	// MaxBlocks is the most blocks in a pack.
	MaxBlocks = 1 << 19
	// MaxSegments is the most segments of which a pack has blocks.
	MaxSegments = 1 << 12

	headSize = 48
	sumSize  = SumSize
	hashSize = 32
	// maxBlock is the most bytes of a sealed block.
	maxBlock = segment.MaxBlock + 1 + segment.TagSize
	// maxSource is the most bytes of a segment. A frame that begins before MaxSize may end after
	// it.
	maxSource = segment.MaxSize + segment.MaxFrame
	// maxBody is the most bytes of blocks and their checksums. Any one segment fits: each block of
	// a segment has four bytes for its length.
	maxBody = maxSource
	// maxIndex has room for MaxSegments and MaxBlocks: 45 bytes for each segment, 7 for each block.
	maxIndex = 4 << 20
)

var (
	magic      = []byte("WEIRPAK\x01") // no block is cut
	cutMagic   = []byte("WEIRPAK\x02") // some are
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Block is the place of a sealed block in the segment that it was written in.
type Block struct {
	Off uint32 // first byte
	Len uint32 // sealed bytes, tag included
}

// Kept lists the blocks of one segment that are to be in a pack.
type Kept struct {
	Seq    uint64
	Hash   segment.Hash // of the whole segment: says which one of that sequence
	Blocks []Block      // in order of their offsets; at least one
	Cuts   []Cut        // those of them that are cut, in the same order
}

// Name returns the object name of a pack.
func Name(volume segment.VolumeID, hash Hash) string {
	v := volume[:]
	return fmt.Sprintf("%x-%x-%x-%x-%x/p/%x", v[:4], v[4:6], v[6:8], v[8:10], v[10:], hash)
}

// ParseName is the inverse of Name. It accepts only names that Name makes.
func ParseName(name string) (volume segment.VolumeID, hash Hash, err error) {
	bad := fmt.Errorf("parse name of a pack %q: want <volume uuid>/p/<64 hex digits>", name)
	folder, rest, ok := strings.Cut(name, "/p/")
	if !ok || len(rest) != 2*hashSize {
		return volume, hash, bad
	}
	id, err := hex.DecodeString(strings.ReplaceAll(folder, "-", ""))
	if err != nil || len(id) != len(volume) {
		return volume, hash, bad
	}
	if _, err := hex.Decode(hash[:], []byte(rest)); err != nil {
		return volume, Hash{}, bad
	}
	copy(volume[:], id)
	if Name(volume, hash) != name {
		return segment.VolumeID{}, Hash{}, bad
	}
	return volume, hash, nil
}

// blockSum is the checksum of a block and its address.
func blockSum(seq uint64, b Block, sealed []byte) uint32 {
	var at [20]byte
	binary.BigEndian.PutUint64(at[:], seq)
	binary.BigEndian.PutUint64(at[8:], uint64(b.Off))
	binary.BigEndian.PutUint32(at[16:], b.Len)
	return crc32.Update(crc32.Checksum(at[:], castagnoli), castagnoli, sealed)
}

// head is the first part of a pack.
type head struct {
	volume   segment.VolumeID
	size     uint64 // of the whole pack
	segments int
	blocks   int
	index    int  // bytes
	cut      bool // whether blocks are
}

// body is where the blocks begin.
func (h head) body() uint64 { return headSize + uint64(h.index) + sumSize }

func (h head) append(dst []byte) []byte {
	n := len(dst)
	kind := magic
	if h.cut {
		kind = cutMagic
	}
	dst = append(append(dst, kind...), h.volume[:]...)
	dst = binary.BigEndian.AppendUint64(dst, h.size)
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.segments))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.blocks))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.index))
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[n:], castagnoli))
}

// decodeHead decodes the head of a pack from exactly headSize bytes.
func decodeHead(b []byte) (h head, err error) {
	const sum = headSize - sumSize
	h.cut = bytes.Equal(b[:len(magic)], cutMagic)
	if !h.cut && !bytes.Equal(b[:len(magic)], magic) {
		return h, corrupt("magic", "%x; written by a newer version?", b[:len(magic)])
	}
	if crc32.Checksum(b[:sum], castagnoli) != binary.BigEndian.Uint32(b[sum:]) {
		return h, corrupt("head crc", "differs")
	}
	copy(h.volume[:], b[8:])
	h.size = binary.BigEndian.Uint64(b[24:])
	s, n, x := binary.BigEndian.Uint32(b[32:]), binary.BigEndian.Uint32(b[36:]), binary.BigEndian.Uint32(b[40:])
	if s < 1 || s > MaxSegments || n < s || n > MaxBlocks || x > maxIndex {
		return h, corrupt("head", "%d segments, %d blocks, %d bytes of index", s, n, x)
	}
	h.segments, h.blocks, h.index = int(s), int(n), int(x)
	if h.size <= h.body() || h.size > h.body()+maxBody {
		return h, corrupt("length", "%d bytes", h.size)
	}
	return h, nil
}

// layOut checks what is to be in a pack, and returns its head and encoded index. The error wraps
// ErrTooLarge if there is too much.
func layOut(volume segment.VolumeID, kept []Kept, with *seals) (head, []byte, error) {
	h := head{volume: volume, segments: len(kept), cut: with != nil}
	var index []byte
	if with != nil {
		index = append(binary.BigEndian.AppendUint32(index, with.key), with.salt[:]...)
	}
	var body uint64
	seen := make(map[uint64]bool, len(kept))
	for _, k := range kept {
		if k.Seq == 0 || seen[k.Seq] || len(k.Blocks) == 0 {
			return h, nil, fmt.Errorf("lay out a pack: segment %d with %d blocks: list each segment once, with its blocks",
				k.Seq, len(k.Blocks))
		}
		seen[k.Seq] = true
		if h.blocks += len(k.Blocks); h.blocks > MaxBlocks || h.segments > MaxSegments {
			return h, nil, fmt.Errorf("lay out a pack: %d segments, %d blocks: at most %d and %d: %w",
				h.segments, h.blocks, MaxSegments, MaxBlocks, ErrTooLarge)
		}
		index = append(binary.AppendUvarint(index, k.Seq), k.Hash[:]...)
		index = binary.AppendUvarint(index, uint64(len(k.Blocks)))
		end, cuts := uint64(segment.HeaderSize), k.Cuts
		for _, b := range k.Blocks {
			if err := b.check(end); err != nil {
				return h, nil, fmt.Errorf("lay out a pack: segment %d: %w", k.Seq, err)
			}
			index = binary.AppendUvarint(index, uint64(b.Off)-end)
			index = binary.AppendUvarint(index, uint64(b.Len))
			end = b.end()
			size := b.Len
			if len(cuts) > 0 && cuts[0].Block == b {
				if err := cuts[0].check(); err != nil || with == nil {
					return h, nil, fmt.Errorf("lay out a pack: segment %d: %w", k.Seq, err)
				}
				index, size, cuts = cuts[0].append(index), cuts[0].Size, cuts[1:]
			} else if with != nil {
				index = append(index, 0)
			}
			body += uint64(size) + sumSize
		}
		if len(cuts) > 0 {
			return h, nil, fmt.Errorf("lay out a pack: segment %d: the block at offset %d is cut, and not kept", k.Seq, cuts[0].Off)
		}
	}
	if len(index) > maxIndex {
		return h, nil, fmt.Errorf("lay out a pack: %d segments, an index of %d bytes: at most %d: %w", len(kept), len(index), maxIndex,
			ErrTooLarge)
	}
	if len(kept) == 0 || body > maxBody {
		return h, nil, fmt.Errorf("lay out a pack: %d segments, %d bytes of blocks: want 1 or more, and up to %d: %w",
			len(kept), body, maxBody, ErrTooLarge)
	}
	h.index = len(index)
	h.size = h.body() + body
	return h, index, nil
}

func (b Block) end() uint64 { return uint64(b.Off) + uint64(b.Len) }

// check returns an error if b cannot be a block that begins at or after min.
func (b Block) check(min uint64) error {
	if uint64(b.Off) < min || b.end() > maxSource || b.Len <= segment.TagSize || b.Len > maxBlock {
		return fmt.Errorf("block at offset %d, %d bytes: want one from offset %d on, of %d to %d bytes",
			b.Off, b.Len, min, segment.TagSize+1, maxBlock)
	}
	return nil
}

// cursor reads an encoded index from the front. After the first error it returns only zeros.
type cursor struct {
	b    []byte
	err  error
	cuts bool // blocks may be cut
}

func (c *cursor) fail(field, format string, args ...any) {
	if c.err == nil {
		c.err = corrupt(field, format, args...)
	}
	c.b = nil
}

// uvarint accepts only the shortest encoding, so that one index has one encoding.
func (c *cursor) uvarint(field string) uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 || n > 1 && c.b[n-1] == 0 {
		c.fail(field, "no number")
		return 0
	}
	c.b = c.b[n:]
	return v
}

// segment reads what comes before the places of a segment.
func (c *cursor) segment() (seq uint64, hash segment.Hash, blocks int) {
	seq = c.uvarint("sequence")
	if len(c.b) < hashSize {
		c.fail("hash of a segment", "cut short")
		return 0, hash, 0
	}
	copy(hash[:], c.b)
	c.b = c.b[hashSize:]
	n := c.uvarint("number of blocks")
	if c.err == nil && (seq == 0 || n < 1 || n > uint64(len(c.b)/2)) {
		c.fail("segment", "sequence %d, %d blocks in %d bytes", seq, n, len(c.b))
		return 0, hash, 0
	}
	return seq, hash, int(n)
}

// entry is a block of a pack.
type entry struct {
	Block
	cut *Cut // nil: it is whole
}

// size is how many sealed bytes the pack has of it.
func (e *entry) size() uint32 {
	if e.cut != nil {
		return e.cut.Size
	}
	return e.Len
}

// entry reads a block whose predecessor ends at end.
func (c *cursor) entry(end uint64) (e entry) {
	if e.Block = c.place(end); c.cuts {
		e.cut = c.cut(e.Block)
	}
	return e
}

// place reads the place of a block whose predecessor ends at end.
func (c *cursor) place(end uint64) Block {
	gap, n := c.uvarint("gap"), c.uvarint("length")
	if c.err == nil && (gap > maxSource || n > maxBlock) {
		c.fail("place", "gap %d, length %d", gap, n)
	}
	if c.err != nil {
		return Block{}
	}
	b := Block{Off: uint32(end + gap), Len: uint32(n)}
	if err := b.check(end); err != nil {
		c.fail("place", "%v", err)
		return Block{}
	}
	return b
}
