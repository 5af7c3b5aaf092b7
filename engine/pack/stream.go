// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"github.com/zeebo/blake3"
)

// stride is how much of a source is read at once.
const stride = 1 << 20

// stream reads an object of known length once, from its beginning to its end, and hashes all of it.
type stream struct {
	read   Read
	length uint64
	fetch  uint64 // offset up to which the object was read
	buf    []byte // what was read and not consumed, within memory
	memory []byte
	hash   *blake3.Hasher
}

func newStream(read Read, length uint64, memory []byte) *stream {
	return &stream{read: read, length: length, memory: memory, hash: blake3.New()}
}

// at is the offset of the next byte.
func (s *stream) at() uint64 { return s.fetch - uint64(len(s.buf)) }

// left is how many bytes follow.
func (s *stream) left() uint64 { return s.length - s.at() }

// peek returns the next n bytes, at most stride, which stay valid until the next call. It returns
// an error that wraps ErrCorrupt if the object ends before.
func (s *stream) peek(n int) ([]byte, error) {
	if uint64(n) > s.left() {
		return nil, corrupt("length", "%d bytes, more expected at %d", s.length, s.at())
	}
	if len(s.buf) < n {
		have := copy(s.memory, s.buf)
		more := int(min(uint64(len(s.memory)-have), s.length-s.fetch))
		fresh := s.memory[have : have+more]
		if err := s.read(fresh, s.fetch); err != nil {
			return nil, err
		}
		_, _ = s.hash.Write(fresh) // never fails
		s.fetch += uint64(more)
		s.buf = s.memory[:have+more]
	}
	return s.buf[:n:n], nil
}

// next is peek, and consumes the bytes.
func (s *stream) next(n int) ([]byte, error) {
	b, err := s.peek(n)
	if err == nil {
		s.buf = s.buf[n:]
	}
	return b, err
}

// skip consumes n bytes.
func (s *stream) skip(n uint64) error {
	if n > s.left() {
		return corrupt("length", "%d bytes, %d expected at %d", s.length, n, s.at())
	}
	for n > 0 {
		b, err := s.next(int(min(n, stride)))
		if err != nil {
			return err
		}
		n -= uint64(len(b))
	}
	return nil
}

// finish reads what is left, and returns the hash of the whole object.
func (s *stream) finish() (sum Hash, err error) {
	if err := s.skip(s.left()); err != nil {
		return sum, err
	}
	s.hash.Sum(sum[:0])
	return sum, nil
}
