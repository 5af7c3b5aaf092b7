// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"encoding/binary"
	"fmt"
)

const metaVersion = 1

// appendMeta appends the encoding of r's sealed part, without the data of its blocks.
func appendMeta(b []byte, r *Record) []byte {
	b = append(b, metaVersion)
	b = binary.AppendVarint(b, r.Time)
	b = appendBytes(b, r.Slot)
	b = binary.AppendUvarint(b, uint64(r.Seq))
	b = binary.AppendUvarint(b, uint64(r.Index))
	b = appendBytes(b, r.Result)
	b = binary.AppendUvarint(b, uint64(len(r.Touched)))
	for _, ino := range r.Touched {
		b = binary.AppendUvarint(b, ino)
	}
	b = binary.AppendUvarint(b, uint64(len(r.Blocks)))
	for i := range r.Blocks {
		b = binary.AppendUvarint(b, uint64(r.Blocks[i].Size))
	}
	b = binary.AppendUvarint(b, uint64(len(r.Ops)))
	for i := range r.Ops {
		op := &r.Ops[i]
		b = append(b, byte(op.Kind))
		b = appendBytes(b, op.Key)
		switch op.Kind {
		case Set:
			b = appendBytes(b, op.Value)
		case DeleteRange:
			b = appendBytes(b, op.End)
		case SetBlock:
			b = appendBytes(b, op.Value)
			b = binary.AppendUvarint(b, uint64(op.Block))
		}
	}
	return b
}

func appendBytes[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// decodeMeta fills r from b, whose memory r then shares. r.Blocks already has nBlocks elements.
// Counts are bounded by the bytes that are left, so a short input cannot make it allocate much
// memory.
func decodeMeta(b []byte, r *Record) error {
	d := decoder{b: b}
	if v := d.byte(); d.err == nil && v != metaVersion {
		return &CorruptError{Field: "meta version", Why: fmt.Sprintf("%d; written by a newer version?", v)}
	}
	r.Time = d.varint()
	r.Slot = string(d.bytes())
	r.Seq = d.uint32()
	r.Index = d.uint32()
	r.Result = d.bytes()
	if n := d.count(1); n > 0 {
		r.Touched = make([]uint64, n)
		for i := range r.Touched {
			r.Touched[i] = d.uvarint()
		}
	}
	if n := d.count(1); d.err == nil && n != len(r.Blocks) {
		return &CorruptError{Field: "meta block count"}
	}
	for i := range r.Blocks {
		size := d.uvarint()
		if d.err == nil && (size == 0 || size > MaxBlock) {
			return &CorruptError{Field: "meta block size", Why: fmt.Sprint(size)}
		}
		r.Blocks[i].Size = int(size)
	}
	if n := d.count(2); n > 0 {
		r.Ops = make([]Op, n)
		for i := range r.Ops {
			d.op(&r.Ops[i], len(r.Blocks))
		}
	}
	if d.err == nil && len(d.b) != 0 {
		return &CorruptError{Field: "meta", Why: "bytes left over"}
	}
	return d.err
}

// decoder reads b from the front. After the first error it returns only zeros.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(field string) {
	if d.err == nil {
		d.err = &CorruptError{Field: "meta " + field}
	}
	d.b = nil
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail("end")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) uint32() uint32 {
	v := d.uvarint()
	if v > 1<<32-1 {
		d.fail("number")
		return 0
	}
	return uint32(v)
}

// count reads a number of elements. Each element takes at least size bytes.
func (d *decoder) count(size int) int {
	v := d.uvarint()
	if v > uint64(len(d.b)/size) {
		d.fail("count")
		return 0
	}
	return int(v)
}

// bytes returns nil if the length is zero.
func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail("length")
		return nil
	}
	if n == 0 {
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) op(op *Op, blocks int) {
	op.Kind = OpKind(d.byte())
	op.Key = d.bytes()
	switch op.Kind {
	case Set:
		op.Value = d.bytes()
	case Delete:
	case DeleteRange:
		op.End = d.bytes()
	case SetBlock:
		op.Value = d.bytes()
		i := d.uvarint()
		if i >= uint64(blocks) {
			d.fail("block index")
			return
		}
		op.Block = int(i)
	default:
		d.fail("op kind")
	}
}
