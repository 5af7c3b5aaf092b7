// SPDX-License-Identifier: Apache-2.0

package xdr

import (
	"encoding/binary"
	"errors"
)

// errShort says that a message ended before the item that was to be decoded.
var errShort = errors.New("xdr: message too short")

// ErrTooLong says that a variable-length item exceeds its limit.
var ErrTooLong = errors.New("xdr: item exceeds its limit")

// errBadBool says that a boolean was neither 0 nor 1.
var errBadBool = errors.New("xdr: boolean is neither 0 nor 1")

// Decoder reads XDR items from one message. Its error is sticky. It is used by
// one goroutine at a time.
type Decoder struct {
	buf []byte
	off int
	err error
}

// NewDecoder returns a Decoder of b, which it aliases.
func NewDecoder(b []byte) *Decoder { return &Decoder{buf: b} }

// Err returns the first error, or nil.
func (d *Decoder) Err() error { return d.err }

// Offset returns how many bytes were consumed.
func (d *Decoder) Offset() int { return d.off }

// Len returns how many bytes are left.
func (d *Decoder) Len() int { return len(d.buf) - d.off }

// Rest returns the bytes that are left, without consuming them.
func (d *Decoder) Rest() []byte { return d.buf[d.off:] }

// Fail makes err the sticky error, unless there is one.
func (d *Decoder) Fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *Decoder) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n > len(d.buf)-d.off {
		d.err = errShort
		return nil
	}
	b := d.buf[d.off : d.off+n : d.off+n]
	d.off += n
	return b
}

// Uint32 reads an unsigned integer or an enum.
func (d *Decoder) Uint32() uint32 {
	b := d.take(4)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// Uint64 reads an unsigned hyper.
func (d *Decoder) Uint64() uint64 {
	b := d.take(8)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// Int64 reads a hyper.
func (d *Decoder) Int64() int64 { return int64(d.Uint64()) }

// Bool reads a boolean; anything but 0 and 1 is an error.
func (d *Decoder) Bool() bool {
	v := d.Uint32()
	if v > 1 {
		d.Fail(errBadBool)
	}
	return v == 1
}

// fixed reads n bytes and their padding. The result aliases the message.
func (d *Decoder) fixed(n int) []byte {
	b := d.take(n)
	d.take(pad(n))
	if d.err != nil {
		return nil
	}
	return b
}

// Opaque reads variable-length bytes, at most limit. The result aliases the message.
func (d *Decoder) Opaque(limit int) []byte {
	n := d.Uint32()
	if d.err != nil {
		return nil
	}
	if uint64(n) > uint64(limit) {
		d.err = ErrTooLong
		if int64(n) > int64(d.Len()) {
			d.err = errShort
		}
		return nil
	}
	return d.fixed(int(n))
}

// String reads variable-length bytes, at most limit, into a string.
func (d *Decoder) String(limit int) string { return string(d.Opaque(limit)) }

// Count reads the length of an array whose items take at least itemSize bytes
// each; a length that the rest of the message cannot hold is an error.
func (d *Decoder) Count(limit, itemSize int) int {
	n := d.Uint32()
	if d.err != nil {
		return 0
	}
	if uint64(n)*uint64(itemSize) > uint64(d.Len()) {
		d.err = errShort
		return 0
	}
	if uint64(n) > uint64(limit) {
		d.err = ErrTooLong
		return 0
	}
	return int(n)
}

func pad(n int) int { return -n & 3 }
