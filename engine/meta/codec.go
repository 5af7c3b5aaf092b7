// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// ErrCorrupt is wrapped by every error about a value that does not parse.
var ErrCorrupt = errors.New("metadata does not parse")

// CorruptError names a value that does not parse, and the reason. It wraps ErrCorrupt.
type CorruptError struct {
	Table  Table
	Key    []byte
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s at key %x: %s: %v", e.Table, e.Key, e.Reason, ErrCorrupt)
}

// Unwrap returns ErrCorrupt.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

func corrupt(key []byte, format string, args ...any) error {
	e := &CorruptError{Key: append([]byte(nil), key...), Reason: fmt.Sprintf(format, args...)}
	if len(key) > 0 {
		e.Table = Table(key[0])
	}
	return e
}

const (
	version = 1
	sumSize = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func begin(size int) []byte { return append(make([]byte, 0, 1+size+sumSize), version) }

// seal completes a value that begin started.
func seal(key, value []byte) []byte {
	return binary.BigEndian.AppendUint32(value, sum(key, value))
}

func sum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// open checks a value and returns a reader of its body.
func open(key, value []byte) (reader, error) {
	if !fits(key) {
		return reader{}, corrupt(key, "the key has not the form of its table's")
	}
	if len(value) < 1+sumSize {
		return reader{}, corrupt(key, "value has %d bytes", len(value))
	}
	if value[0] != version {
		return reader{}, corrupt(key, "value has version %d, known is %d", value[0], version)
	}
	body := value[:len(value)-sumSize]
	if binary.BigEndian.Uint32(value[len(body):]) != sum(key, body) {
		return reader{}, corrupt(key, "checksum differs")
	}
	return reader{key: key, left: body[1:]}, nil
}

// reader takes fields from a body. If a field is missing, done fails.
type reader struct {
	key   []byte
	left  []byte
	short bool
	bad   string // a field that cannot be; empty: none
}

func (r *reader) take(n int) []byte {
	if len(r.left) < n {
		r.short = true
		r.left = nil
		return make([]byte, n)
	}
	b := r.left[:n]
	r.left = r.left[n:]
	return b
}

// flag reads a byte that is 0 or 1.
func (r *reader) flag() bool {
	v := r.u8()
	if v > 1 {
		r.bad = fmt.Sprintf("flags %#x", v)
	}
	return v == 1
}

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

// rest takes everything that is left.
func (r *reader) rest() []byte { return r.take(len(r.left)) }

// done returns an error unless exactly the body was read.
func (r *reader) done() error {
	switch {
	case r.short:
		return corrupt(r.key, "value is too short")
	case r.bad != "":
		return corrupt(r.key, "%s", r.bad)
	}
	if len(r.left) > 0 {
		return corrupt(r.key, "value has %d bytes too many", len(r.left))
	}
	return nil
}
