// SPDX-License-Identifier: Apache-2.0

package xdr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"sync"
)

// Buffer is a pooled byte slice. Its owner calls Free once.
type Buffer struct {
	B     []byte
	class int
}

const (
	minClass = 10 // 1 KiB
	maxClass = 21 // 2 MiB
	// largeClass is for 1 MiB of data with what is around it.
	largeClass = maxClass + 1
	largeSize  = 1<<20 + 128<<10
)

var pools [largeClass + 1]sync.Pool

// NewBuffer returns a buffer of n bytes with undefined content.
func NewBuffer(n int) *Buffer {
	class := max(minClass, bits.Len(uint(max(n, 1)-1)))
	size := 1 << class
	if class == maxClass && n <= largeSize {
		class, size = largeClass, largeSize
	}
	if class > maxClass && class != largeClass || n > 1<<maxClass {
		return &Buffer{B: make([]byte, n), class: -1}
	}
	if b, ok := pools[class].Get().(*Buffer); ok {
		b.B = b.B[:n]
		return b
	}
	return &Buffer{B: make([]byte, n, size), class: class}
}

// Free puts the buffer back into the pool. Nothing may alias it any more. A nil Buffer
// is allowed.
func (b *Buffer) Free() {
	if b == nil || b.class < 0 {
		return
	}
	pools[b.class].Put(b)
}

// lastFragment is the top bit of a record mark, RFC 5531 section 11.
const lastFragment = 1 << 31

// maxFragments bounds how many fragments a record may have: a peer that sends
// empty ones for ever must not keep a reader busy.
const maxFragments = 1024

// ReadRecord reads one record of at most limit bytes. io.EOF means that the
// stream ended between records. A longer record is an error after which the
// stream is unusable.
func ReadRecord(r io.Reader, limit int) (*Buffer, error) {
	buf, _, err := ReadRecordWithin(r, limit, func(int) bool { return true })
	return buf, err
}

// ReadRecordWithin is ReadRecord, and asks room before a record takes more than 16 KiB of memory:
// n bytes in all, maybe more than once. When room returns false, the rest of the record is read and
// thrown away. size is the record's.
func ReadRecordWithin(r io.Reader, limit int, room func(n int) bool) (buf *Buffer, size int, err error) {
	skip := false
	for range maxFragments {
		var h [4]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			if buf != nil {
				buf.Free()
				return nil, 0, unexpected(err)
			}
			return nil, 0, err
		}
		mark := binary.BigEndian.Uint32(h[:])
		n, have := int(mark&^uint32(lastFragment)), 0
		if buf != nil {
			have = len(buf.B)
		}
		if n > limit-size {
			buf.Free()
			return nil, 0, fmt.Errorf("rpc record: more than %d bytes: %w", limit, ErrTooLong)
		}
		size += n
		// The whole record gets memory only if its peer sends more than the mark.
		for end := have + n; !skip && (have < end || buf == nil); {
			to := end
			if have < firstPiece {
				to = min(end, firstPiece)
			} else if !room(end) {
				skip = true
				break
			}
			buf = grow(buf, to)
			if _, err := io.ReadFull(r, buf.B[have:]); err != nil {
				buf.Free()
				return nil, 0, unexpected(err)
			}
			have, n = to, end-to
		}
		if skip {
			if _, err := io.CopyN(io.Discard, r, int64(n)); err != nil {
				buf.Free()
				return nil, 0, unexpected(err)
			}
		}
		if mark&lastFragment != 0 {
			return buf, size, nil
		}
	}
	buf.Free()
	return nil, 0, fmt.Errorf("rpc record: more than %d fragments: %w", maxFragments, ErrTooLong)
}

// firstPiece is how much of a record is read before there is room for all of it.
const firstPiece = 16 << 10

func grow(b *Buffer, n int) *Buffer {
	if b == nil {
		return NewBuffer(n)
	}
	if n <= cap(b.B) {
		b.B = b.B[:n]
		return b
	}
	next := NewBuffer(n)
	copy(next.B, b.B)
	b.Free()
	return next
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// WriteRecord writes the message as one record of one fragment. On a TCP
// connection that is one writev. It must not run concurrently on one connection.
func WriteRecord(w io.Writer, e *Encoder) error {
	var h [4]byte
	binary.BigEndian.PutUint32(h[:], uint32(e.Len())|lastFragment)
	bufs := append(net.Buffers{h[:]}, e.Buffers()...)
	_, err := bufs.WriteTo(w)
	return err
}
