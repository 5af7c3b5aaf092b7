// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync/atomic"
)

// Sealer seals the records of one new segment. It is the only type that seals, and it makes its own
// salt. So sealing can never continue under a salt that an earlier process used (protocol-16). Only
// one goroutine at a time may call Seal. Any goroutine may call Ahead, Stop and the methods of
// Opener.
type Sealer struct {
	*Opener
	counter atomic.Uint64 // next nonce
	dead    atomic.Bool
}

// NewSealer begins a segment: h with a fresh salt read from rand. h.Salt must be zero.
func NewSealer(key *DataKey, h Header, rand io.Reader) (*Sealer, error) {
	if h.Salt != ([32]byte{}) {
		return nil, fmt.Errorf("begin segment %d: the header has a salt already, a Sealer draws its own", h.Seq)
	}
	salt, err := NewSalt(rand)
	if err != nil {
		return nil, fmt.Errorf("begin segment %d: %w", h.Seq, err)
	}
	h.Salt = salt
	o, err := NewOpener(key, h)
	if err != nil {
		return nil, err
	}
	s := &Sealer{Opener: o}
	s.counter.Store(firstCounter(&h))
	return s, nil
}

// NewSalt reads a segment's salt from rand.
func NewSalt(rand io.Reader) (salt [32]byte, err error) {
	if _, err := io.ReadFull(rand, salt[:]); err != nil {
		return salt, fmt.Errorf("read randomness: %w", err)
	}
	if salt == ([32]byte{}) {
		return salt, errors.New("the source of randomness returns zeros")
	}
	return salt, nil
}

// Stop makes every later Seal fail, because the segment is closed.
func (s *Sealer) Stop() { s.dead.Store(true) }

// take consumes n nonce counters, and returns the first. Nobody gets one of them again.
func (s *Sealer) take(n int) (first uint64) {
	next := s.counter.Add(uint64(n))
	if next-firstCounter(&s.header) > 1<<counterBits {
		panic("segment: nonce counter overflow (protocol-16)")
	}
	return next - uint64(n)
}

// Prepared is a record that was checked, packed and encoded, but not sealed.
type Prepared struct {
	rec  *Record
	meta []byte
	size int
}

// Size is the length of the record's frame in bytes.
func (p Prepared) Size() int { return p.size }

// Ahead reports whether Ahead sealed the record's blocks, as far as Prepare can tell.
func (p Prepared) Ahead() bool { return len(p.rec.Blocks) > 0 && p.rec.Blocks[0].ahead != nil }

// Record returns the record that was prepared.
func (p Prepared) Record() *Record { return p.rec }

// Prepare does the part of encoding that needs no key and no order. It packs blocks that have Raw
// but no Pack, sets their Size from Raw, checks rec and encodes its meta. rec must not change until
// it is sealed. Errors: ErrTooLarge, or one that says what is wrong with the record.
func Prepare(rec *Record) (Prepared, error) {
	p := Prepared{rec: rec}
	if len(rec.Blocks) > maxBlocks {
		return p, fmt.Errorf("prepare record: %d blocks, at most %d: %w", len(rec.Blocks), maxBlocks, ErrTooLarge)
	}
	size := framePrefix + 4*len(rec.Blocks) + TagSize
	for i := range rec.Blocks {
		b := &rec.Blocks[i]
		if b.Raw != nil {
			b.Size = len(b.Raw)
		}
		if b.Size < 1 || b.Size > MaxBlock {
			return p, fmt.Errorf("prepare record: block %d: size %d: want 1 to %d plaintext bytes", i, b.Size, MaxBlock)
		}
		if b.Pack == nil && b.Raw != nil && !b.asIs {
			b.Pack = Pack(b.Raw, Fast)
		}
		if n := b.packed(); n < 2 || n > MaxBlock+1 {
			return p, fmt.Errorf("prepare record: block %d: packed size %d: want the result of Pack", i, n)
		}
		size += b.packed() + TagSize
	}
	for i := range rec.Ops {
		op := &rec.Ops[i]
		if op.Kind < Set || op.Kind > SetBlock {
			return p, fmt.Errorf("prepare record: op %d: unknown kind %d", i, op.Kind)
		}
		if op.Kind == SetBlock && (op.Block < 0 || op.Block >= len(rec.Blocks)) {
			return p, fmt.Errorf("prepare record: op %d: block %d of %d", i, op.Block, len(rec.Blocks))
		}
	}
	p.meta = appendMeta(make([]byte, 0, 64+len(rec.Result)+48*len(rec.Ops)), rec)
	p.size = size + len(p.meta)
	if p.size > MaxFrame {
		return p, fmt.Errorf("prepare record: %d bytes, at most %d: %w", p.size, MaxFrame, ErrTooLarge)
	}
	return p, nil
}

// Seal appends the frame of a prepared record to dst. off is the offset at which the frame will
// start in the segment. It sets the record's Epoch, and the Ref of its blocks. The counters are
// consumed, whatever happens to the bytes. If dst is nil, the frame is not copied from the memory
// into which Ahead sealed the blocks. The caller owns it.
func (s *Sealer) Seal(dst []byte, p Prepared, off uint64) ([]byte, error) {
	rec, n := p.rec, len(p.rec.Blocks)
	if s.dead.Load() {
		return dst, fmt.Errorf("seal record: segment %d is closed", s.header.Seq)
	}
	if off < HeaderSize || off > MaxSize {
		return dst, fmt.Errorf("seal record: offset %d lies outside segment %d", off, s.header.Seq)
	}
	a := s.claim(rec.Blocks)
	if a == nil {
		a = &ahead{first: s.take(n + 1)}
	}
	first := a.first
	rec.Epoch = s.header.Epoch

	start, own := len(dst), dst == nil && a.frame != nil
	if own {
		dst = a.frame[:0]
	} else {
		dst = slices.Grow(dst, p.size)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(p.size))
	dst = append(dst, 0, 0, 0, 0)
	dst = append(dst, kindRecord)
	dst = binary.BigEndian.AppendUint64(dst, rec.Epoch)
	dst = binary.BigEndian.AppendUint64(dst, first)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(p.meta)+TagSize))
	dst = binary.BigEndian.AppendUint16(dst, uint16(n))
	for i := range rec.Blocks {
		dst = binary.BigEndian.AppendUint32(dst, uint32(rec.Blocks[i].packed()+TagSize))
	}
	plainEnd := len(dst)

	at := off + uint64(plainEnd-start)
	for i := range rec.Blocks {
		b := &rec.Blocks[i]
		b.Ref = BlockRef{Seq: s.header.Seq, Off: at, Len: uint32(b.packed() + TagSize), Counter: first + uint64(i)}
		at += uint64(b.Ref.Len)
	}
	crc := a.crc
	switch {
	case own:
		dst = a.frame
	case a.frame != nil:
		dst = append(dst, a.frame[plainEnd-start:]...)
	default:
		dst, crc = s.sealBlocks(dst, rec.Blocks, first)
	}
	a.frame = nil
	blocksEnd := len(dst)
	sc := scratches.Get().(*scratch)
	defer scratches.Put(sc)
	c := first + uint64(n)
	dst = s.aead.Seal(dst, sc.setNonce(c), p.meta, s.metaAAD(sc, c, off, dst[start+8:plainEnd]))
	frame := dst[start:]
	sum := crc32.Update(crc32.Checksum(frame[:4], castagnoli), castagnoli, frame[8:plainEnd-start])
	sum = joinCRC(sum, crc, blocksEnd-plainEnd)
	binary.BigEndian.PutUint32(frame[4:], crc32.Update(sum, castagnoli, frame[blocksEnd-start:]))
	if invariants {
		s.checkSealed(frame, p, off)
	}
	return dst, nil
}

// checkSealed opens what was just sealed, and panics if it differs from p.
func (s *Sealer) checkSealed(frame []byte, p Prepared, off uint64) {
	got, err := s.DecodeRecord(frame, off)
	if err != nil {
		panic(fmt.Sprintf("segment: a sealed record does not open: %v", err))
	}
	if len(frame) != p.size {
		panic("segment: a frame has not its prepared size")
	}
	for i := range got.Blocks {
		ref := got.Blocks[i].Ref
		if ref != p.rec.Blocks[i].Ref {
			panic("segment: block reference differs")
		}
		rel := ref.Off - off
		raw, err := s.OpenBlock(ref, slices.Clone(frame[rel:rel+uint64(ref.Len)]))
		if err != nil || len(raw) != got.Blocks[i].Size {
			panic(fmt.Sprintf("segment: a sealed block does not open: %v", err))
		}
	}
}
