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
)

var pools [maxClass + 1]sync.Pool

// NewBuffer returns a buffer of n bytes with undefined content.
func NewBuffer(n int) *Buffer {
	class := max(minClass, bits.Len(uint(max(n, 1)-1)))
	if class > maxClass {
		return &Buffer{B: make([]byte, n), class: -1}
	}
	if b, ok := pools[class].Get().(*Buffer); ok {
		b.B = b.B[:n]
		return b
	}
	return &Buffer{B: make([]byte, n, 1<<class), class: class}
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
	var buf *Buffer
	for range maxFragments {
		var h [4]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			if buf != nil {
				buf.Free()
				return nil, unexpected(err)
			}
			return nil, err
		}
		mark := binary.BigEndian.Uint32(h[:])
		n, have := int(mark&^uint32(lastFragment)), 0
		if buf != nil {
			have = len(buf.B)
		}
		if n > limit-have {
			buf.Free()
			return nil, fmt.Errorf("rpc record: more than %d bytes: %w", limit, ErrTooLong)
		}
		// The whole record gets memory only if its peer sends more than the mark.
		for end := have + n; have < end || buf == nil; {
			to := end
			if have < firstPiece {
				to = min(end, firstPiece)
			}
			buf = grow(buf, to)
			if _, err := io.ReadFull(r, buf.B[have:]); err != nil {
				buf.Free()
				return nil, unexpected(err)
			}
			have = to
		}
		if mark&lastFragment != 0 {
			return buf, nil
		}
	}
	buf.Free()
	return nil, fmt.Errorf("rpc record: more than %d fragments: %w", maxFragments, ErrTooLong)
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
