// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/zeebo/blake3"
)

// Pair is a key with its value. A key has at least one byte.
type Pair struct{ Key, Value []byte }

// MaxPair is the most bytes of key and value together. A volume's largest pair is an extended
// attribute, which has a sixtieth of that.
const MaxPair = 4 << 20

// contentVersion begins the content of chunks and manifests, and changesVersion that of manifests
// with changes.
const (
	contentVersion = 1
	changesVersion = 2
)

// shape is the sizes of chunks in bytes of content. It is part of the format, since names follow
// from it.
type shape struct {
	min  int  // no border before
	max  int  // a border at the latest, unless one pair is larger
	bits uint // of about how many bytes come between two borders
}

var standard = shape{min: 64 << 10, max: 1 << 20, bits: 18}

// cutter encodes pairs and says where chunks end. One goroutine at a time may use it.
type cutter struct {
	shape
	hash  *blake3.Hasher // keyed with the border key
	chunk []byte         // content so far; empty: no pair
	first []byte
	last  []byte // key of the last pair, also that of the chunk before; nil: none
	pairs int
}

func newCutter(s *secrets, shape shape) *cutter {
	return &cutter{shape: shape, hash: newHasher(s.border)}
}

// fits reports whether p may go into the present chunk. Else the chunk ends before p.
func (c *cutter) fits(p Pair) bool {
	return len(c.chunk) == 0 || len(c.chunk)+len(p.Key)+len(p.Value)+3*binary.MaxVarintLen32 <= c.max
}

// add appends p to the chunk. It reports whether the chunk ends after p. p must fit, and its key
// must come after the last.
func (c *cutter) add(p Pair) (ends bool) {
	shared := 0
	if len(c.chunk) == 0 {
		c.chunk = append(c.chunk, contentVersion)
		c.first = bytes.Clone(p.Key)
		c.pairs = 0
	} else {
		shared = sharedPrefix(c.last, p.Key)
	}
	c.chunk = appendPair(c.chunk, shared, p)
	c.last = append(c.last[:0], p.Key...)
	c.pairs++
	return len(c.chunk) >= c.min && c.border(p)
}

// border reports whether p's key ends a chunk.
func (c *cutter) border(p Pair) bool {
	class := uint64(1)
	for class < uint64(len(p.Key)+len(p.Value)) {
		class <<= 1
	}
	if class >= 1<<c.bits {
		return true
	}
	var sum Hash
	c.hash.Reset()
	_, _ = c.hash.Write(p.Key) // it never fails
	c.hash.Sum(sum[:0])
	return binary.BigEndian.Uint64(sum[:]) < class<<(64-c.bits)
}

// take returns the chunk, and begins another in the memory of next.
func (c *cutter) take(next []byte) (content, first []byte, pairs int) {
	content, first, pairs = c.chunk, c.first, c.pairs
	c.chunk = next[:0]
	return content, first, pairs
}

// check returns an error if p cannot follow the pair with the key last. n is p's number, from 0.
// Keys have names of files in them, so the error has none.
func check(n uint64, last []byte, p Pair) error {
	switch {
	case len(p.Key) == 0:
		return fmt.Errorf("pair %d has an empty key, a key has at least one byte", n)
	case len(p.Key)+len(p.Value) > MaxPair:
		return fmt.Errorf("pair %d, of table %q, has %d bytes of key and %d of value, at most %d fit together",
			n, p.Key[0], len(p.Key), len(p.Value), MaxPair)
	case last != nil && bytes.Compare(last, p.Key) >= 0:
		return fmt.Errorf("pair %d, of table %q, does not come after the pair before it: sort the pairs by key, each key once", n, p.Key[0])
	}
	return nil
}

func sharedPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func appendPair(b []byte, shared int, p Pair) []byte {
	b = binary.AppendUvarint(b, uint64(shared))
	b = binary.AppendUvarint(b, uint64(len(p.Key)-shared))
	b = binary.AppendUvarint(b, uint64(len(p.Value)))
	b = append(b, p.Key[shared:]...)
	return append(b, p.Value...)
}

// decodeChunk is the inverse of what a cutter does. It accepts only what a cutter makes, but for
// the sizes. Values share the memory of content. Errors wrap ErrCorrupt.
func decodeChunk(content []byte) ([]Pair, error) {
	d := decoderOf(content, contentVersion)
	var pairs []Pair
	var last []byte
	for len(d.b) > 0 && d.err == nil {
		shared, rest, value := d.number(), d.number(), d.number()
		left := uint64(len(d.b))
		if d.err != nil {
			break
		}
		if shared > uint64(len(last)) || rest == 0 || rest > left || value > left-rest || shared+rest+value > MaxPair {
			return nil, corrupt("lengths", "of pair %d", len(pairs))
		}
		// The first byte that differs is greater, or the key before it ended.
		if shared < uint64(len(last)) && d.b[0] <= last[shared] {
			return nil, corrupt("order of keys", "at pair %d", len(pairs))
		}
		key := make([]byte, 0, shared+rest)
		key = append(append(key, last[:shared]...), d.b[:rest]...)
		pairs = append(pairs, Pair{Key: key, Value: d.b[rest : rest+value : rest+value]})
		last, d.b = key, d.b[rest+value:]
	}
	if d.err == nil && len(pairs) == 0 {
		return nil, corrupt("pairs", "a chunk has none")
	}
	return pairs, d.err
}

// reader takes fields from a content. After the first error it returns only zeros.
type reader struct {
	b   []byte
	err error
}

// decoderOf returns a reader of what comes after the version of a content, which is at most newest.
func decoderOf(content []byte, newest byte) *reader {
	switch {
	case len(content) == 0:
		return &reader{err: corrupt("version", "missing")}
	case content[0] == 0 || content[0] > newest:
		return &reader{err: corrupt("version", "%d; written by a newer version?", content[0])}
	}
	return &reader{b: content[1:]}
}

// number reads a uvarint in its shortest form.
func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 1 && r.b[n-1] == 0 {
		if r.err == nil {
			r.err = corrupt("number", "cut short or too long")
		}
		r.b = nil
		return 0
	}
	r.b = r.b[n:]
	return v
}
