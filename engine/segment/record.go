// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"cmp"
	"fmt"
)

// Position is a place in a volume's log: byte Off of the segment with sequence Seq. The empty log
// ends at the zero Position. The first segment has sequence 1. A record's position is that of its
// end. So "committed up to p" and "the log ends at p" mean the records that end at or before p.
type Position struct{ Seq, Off uint64 }

// Compare orders positions along the log: -1, 0 or +1.
func (p Position) Compare(q Position) int {
	if c := cmp.Compare(p.Seq, q.Seq); c != 0 {
		return c
	}
	return cmp.Compare(p.Off, q.Off)
}

// Less reports whether p lies before q.
func (p Position) Less(q Position) bool { return p.Compare(q) < 0 }

// Earlier returns whichever of p and q comes first in the log.
func Earlier(p, q Position) Position {
	if q.Less(p) {
		return q
	}
	return p
}

func (p Position) String() string { return fmt.Sprintf("%d/%d", p.Seq, p.Off) }

// Record is one atomic change of a volume (protocol-8). It has absolute operations on metadata
// keys, the blocks of data that they refer to, and the result for the client.
type Record struct {
	Epoch uint64 // of the home that made it (protocol-6)
	Time  int64  // the home's clock, Unix nanoseconds; for lag, never for order

	// Slot, Seq, Index and Result identify a repeat (protocol-22). They are opaque here. An empty
	// Slot means that the record has none.
	Slot   string
	Seq    uint32
	Index  uint32
	Result []byte

	// Touched lists the inodes whose attributes, data or names the record changes. From it a reader
	// knows whether it must wait for the record.
	Touched []uint64

	Ops    []Op
	Blocks []Block
}

// OpKind is the kind of a metadata operation.
type OpKind uint8

// The kinds of operations. Their numbers are part of the format.
const (
	Set         OpKind = 1 // Key := Value
	Delete      OpKind = 2 // Key is deleted
	DeleteRange OpKind = 3 // all keys in [Key, End) are deleted
	SetBlock    OpKind = 4 // Key := Value followed by the BlockRef of Blocks[Block]
)

// Op is one operation on a metadata key. Operations of a record apply in order.
type Op struct {
	Kind  OpKind
	Key   []byte
	Value []byte // Set, SetBlock
	End   []byte // DeleteRange: exclusive
	Block int    // SetBlock: index into Blocks
}

// Block is a run of file data of at most MaxBlock bytes, before sealing.
type Block struct {
	Raw  []byte // plaintext; nil in a record that was read back from the log
	Pack []byte // codec byte and compressed bytes, which sealing encrypts; nil: PackAll left Raw as it is
	Size int    // plaintext bytes; sealing sets it from Raw if Raw is set
	Ref  BlockRef

	asIs  bool   // PackAll made no Pack: sealing puts Raw behind the codec by itself
	ahead *ahead // what Sealer.Ahead made of it, and of the other blocks of its record
	index int    // among those
}

// packed returns how many bytes sealing encrypts.
func (b *Block) packed() int {
	if b.asIs {
		return 1 + len(b.Raw)
	}
	return len(b.Pack)
}

// MaxBlock is the most plaintext bytes in one block.
const MaxBlock = 64 << 10

// BlockRef names the place of a sealed block and how to open it. Its encoding is BlockRefSize
// bytes, big endian, in the order of the fields.
type BlockRef struct {
	Seq     uint64 // segment
	Off     uint64 // first byte of the sealed block in the segment
	Len     uint32 // sealed bytes, tag included
	Counter uint64 // nonce
}

// BlockRefSize is the size of an encoded BlockRef.
const BlockRefSize = 28
