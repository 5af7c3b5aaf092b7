// SPDX-License-Identifier: Apache-2.0

package xdr

import (
	"encoding/binary"
	"net"
)

// Encoder appends XDR items to a message. Large data is kept by reference. It
// is used by one goroutine at a time; the zero value is ready.
type Encoder struct {
	buf    []byte
	refs   []ref
	refLen int
}

type ref struct {
	at   int // position in buf before which data goes
	data []byte
}

var zeros [4]byte

// NewEncoder returns an Encoder that appends to buf[:0].
func NewEncoder(buf []byte) *Encoder { return &Encoder{buf: buf[:0]} }

// Reset empties the message and keeps the buffer.
func (e *Encoder) Reset() {
	clear(e.refs)
	e.buf, e.refs, e.refLen = e.buf[:0], e.refs[:0], 0
}

// Len returns the length of the message in bytes, referenced data included.
func (e *Encoder) Len() int { return len(e.buf) + e.refLen }

// Mark is a position in a message.
type Mark struct{ buf, refs, refLen int }

// Mark returns the present end of the message.
func (e *Encoder) Mark() Mark { return Mark{len(e.buf), len(e.refs), e.refLen} }

// Truncate removes what was appended since m.
func (e *Encoder) Truncate(m Mark) {
	clear(e.refs[m.refs:])
	e.buf, e.refs, e.refLen = e.buf[:m.buf], e.refs[:m.refs], m.refLen
}

// PatchUint32 overwrites the integer that was appended at m.
func (e *Encoder) PatchUint32(m Mark, v uint32) {
	binary.BigEndian.PutUint32(e.buf[m.buf:], v)
}

// Uint32 appends an unsigned integer or an enum.
func (e *Encoder) Uint32(v uint32) { e.buf = binary.BigEndian.AppendUint32(e.buf, v) }

// Uint64 appends an unsigned hyper.
func (e *Encoder) Uint64(v uint64) { e.buf = binary.BigEndian.AppendUint64(e.buf, v) }

// Int64 appends a hyper.
func (e *Encoder) Int64(v int64) { e.Uint64(uint64(v)) }

// Bool appends a boolean.
func (e *Encoder) Bool(v bool) {
	if v {
		e.Uint32(1)
	} else {
		e.Uint32(0)
	}
}

// fixed appends bytes and their padding, without a length.
func (e *Encoder) fixed(b []byte) {
	e.buf = append(e.buf, b...)
	e.buf = append(e.buf, zeros[:pad(len(b))]...)
}

// Opaque appends variable-length bytes.
func (e *Encoder) Opaque(b []byte) {
	e.Uint32(uint32(len(b)))
	e.fixed(b)
}

// String appends a string.
func (e *Encoder) String(s string) {
	e.Uint32(uint32(len(s)))
	e.buf = append(e.buf, s...)
	e.buf = append(e.buf, zeros[:pad(len(s))]...)
}

// OpaqueRef appends variable-length bytes by reference. b must not change until the
// message was written.
func (e *Encoder) OpaqueRef(b []byte) {
	e.Uint32(uint32(len(b)))
	if len(b) > 0 {
		e.refs = append(e.refs, ref{len(e.buf), b})
		e.refLen += len(b)
	}
	e.buf = append(e.buf, zeros[:pad(len(b))]...)
}

// Raw appends b as it is. b consists of whole XDR items.
func (e *Encoder) Raw(b []byte) { e.buf = append(e.buf, b...) }

// Bytes returns the message as one slice: the Encoder's own buffer if nothing
// was appended by reference, else a copy.
func (e *Encoder) Bytes() []byte {
	if len(e.refs) == 0 {
		return e.buf
	}
	out := make([]byte, 0, e.Len())
	for _, b := range e.Buffers() {
		out = append(out, b...)
	}
	return out
}

// Buffers returns the message as slices that alias the Encoder and the
// referenced data.
func (e *Encoder) Buffers() net.Buffers {
	out := make(net.Buffers, 0, 2*len(e.refs)+1)
	at := 0
	for _, r := range e.refs {
		if r.at > at {
			out = append(out, e.buf[at:r.at])
		}
		out = append(out, r.data)
		at = r.at
	}
	if at < len(e.buf) {
		out = append(out, e.buf[at:])
	}
	return out
}
