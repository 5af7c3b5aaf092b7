// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"encoding/binary"
	"fmt"
)

// AppendBlockRef appends ref's encoding, BlockRefSize bytes, to dst.
func AppendBlockRef(dst []byte, ref BlockRef) []byte {
	dst = binary.BigEndian.AppendUint64(dst, ref.Seq)
	dst = binary.BigEndian.AppendUint64(dst, ref.Off)
	dst = binary.BigEndian.AppendUint32(dst, ref.Len)
	return binary.BigEndian.AppendUint64(dst, ref.Counter)
}

// DecodeBlockRef decodes exactly BlockRefSize bytes. The error is a CorruptError if the reference
// is impossible.
func DecodeBlockRef(b []byte) (BlockRef, error) {
	if len(b) != BlockRefSize {
		return BlockRef{}, &CorruptError{Field: "block reference length", Why: fmt.Sprint(len(b))}
	}
	ref := BlockRef{
		Seq:     binary.BigEndian.Uint64(b),
		Off:     binary.BigEndian.Uint64(b[8:]),
		Len:     binary.BigEndian.Uint32(b[16:]),
		Counter: binary.BigEndian.Uint64(b[20:]),
	}
	return ref, ref.check()
}

// check returns an error if ref cannot name any block.
func (ref BlockRef) check() error {
	if ref.Seq == 0 || ref.Off < HeaderSize || ref.Len <= TagSize || ref.Len > maxSealed || ref.Off > MaxOffset {
		return &CorruptError{Seq: ref.Seq, Off: ref.Off, Field: "block reference"}
	}
	return nil
}

// MaxOffset bounds offsets in a segment. It leaves room for one more frame after MaxSize, as a
// segment always takes at least one record.
const MaxOffset = MaxSize + MaxFrame

// Resolved returns r's operations. Each SetBlock becomes a Set of its value followed by the encoded
// reference of its block. The blocks must have references, so r must have been sealed or decoded.
// Keys, and values of other operations, share r's memory. r.Ops is not changed.
func (r *Record) Resolved() []Op {
	ops := make([]Op, len(r.Ops))
	for i, op := range r.Ops {
		if op.Kind == SetBlock {
			v := make([]byte, 0, len(op.Value)+BlockRefSize)
			v = append(v, op.Value...)
			op = Op{Kind: Set, Key: op.Key, Value: AppendBlockRef(v, r.Blocks[op.Block].Ref)}
		}
		ops[i] = op
	}
	return ops
}
