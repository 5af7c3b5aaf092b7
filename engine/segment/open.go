// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"
)

// DataKey is a volume's data key (protocol-16). It is secret.
type DataKey = [32]byte

const keyInfo = "weir segment 1"

// Opener opens the sealed parts of one segment. It cannot seal. Any number of goroutines may call
// its methods.
type Opener struct {
	header Header
	frame  [HeaderSize]byte // encoded header
	aead   cipher.AEAD
}

// scratch is what one call of the cipher needs. It is pooled, because each call would otherwise
// allocate it.
type scratch struct {
	nonce [12]byte
	aad   []byte
}

var scratches = sync.Pool{New: func() any { return &scratch{aad: make([]byte, 0, 512)} }}

// NewOpener derives the segment's key. It does not keep key.
func NewOpener(key *DataKey, h Header) (*Opener, error) {
	o := &Opener{header: h}
	copy(o.frame[:], AppendHeader(nil, h))
	k, err := hkdf.Key(sha256.New, key[:], h.Salt[:], keyInfo+string(h.Volume[:]), 32)
	if err != nil {
		return nil, fmt.Errorf("derive key of segment %d: %w", h.Seq, err)
	}
	block, err := aes.NewCipher(k)
	if err != nil {
		return nil, fmt.Errorf("derive key of segment %d: %w", h.Seq, err)
	}
	o.aead, err = cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("derive key of segment %d: %w", h.Seq, err)
	}
	return o, nil
}

// firstCounter is the first nonce counter of a segment. The counterBits low bits count.
func firstCounter(h *Header) uint64 {
	return binary.BigEndian.Uint64(h.Salt[:]) &^ (1<<counterBits - 1)
}

const counterBits = 24

// CheckRef returns a CorruptError if ref cannot be of this segment, e.g. because it is of a
// truncated segment that had the same sequence.
func (o *Opener) CheckRef(ref BlockRef) error {
	if err := ref.check(); err != nil {
		return err
	}
	if ref.Seq != o.header.Seq || ref.Counter>>counterBits != firstCounter(&o.header)>>counterBits {
		return &CorruptError{Seq: ref.Seq, Off: ref.Off, Field: "block reference", Why: "it is of another segment"}
	}
	return nil
}

// Header returns the header of the segment.
func (o *Opener) Header() Header { return o.header }

func (s *scratch) setNonce(counter uint64) []byte {
	clear(s.nonce[:4])
	binary.BigEndian.PutUint64(s.nonce[4:], counter)
	return s.nonce[:]
}

func (o *Opener) blockAAD(s *scratch, counter uint64) []byte {
	s.aad = append(s.aad[:0], 'b')
	s.aad = binary.BigEndian.AppendUint64(s.aad, counter)
	s.aad = append(s.aad, o.header.Volume[:]...)
	s.aad = append(s.aad, o.header.Salt[:]...)
	return s.aad
}

// metaAAD returns the associated data of a meta. plain is the frame from byte 8 up to its first
// sealed byte.
func (o *Opener) metaAAD(s *scratch, counter, off uint64, plain []byte) []byte {
	s.aad = append(s.aad[:0], 'm')
	s.aad = binary.BigEndian.AppendUint64(s.aad, counter)
	s.aad = append(s.aad, o.frame[:]...)
	s.aad = binary.BigEndian.AppendUint64(s.aad, off)
	s.aad = append(s.aad, plain...)
	return s.aad
}

// DecodeRecord verifies and decodes the record frame that starts at offset off of the segment. The
// blocks of the result have their Size and Ref, but not their data. Their bytes were verified by
// checksum only; OpenBlock verifies their tags. The result does not share frame's memory. All
// errors are CorruptErrors with their place.
func (o *Opener) DecodeRecord(frame []byte, off uint64) (*Record, error) {
	r, err := o.decodeRecord(frame, off)
	if err != nil {
		return nil, at(err, o.header.Seq, off)
	}
	return r, nil
}

func (o *Opener) decodeRecord(frame []byte, off uint64) (*Record, error) {
	l, err := parseFrame(frame)
	if err != nil {
		return nil, err
	}
	return o.open(l, frame, frame[l.meta:], off)
}

// open opens the sealed meta of the record whose frame begins with plain, at offset off.
func (o *Opener) open(l layout, plain, sealed []byte, off uint64) (*Record, error) {
	if l.epoch != o.header.Epoch {
		return nil, &CorruptError{Field: "record epoch", Why: fmt.Sprintf("%d in a segment of epoch %d", l.epoch, o.header.Epoch)}
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	counter := l.counter + uint64(l.n)
	meta, err := o.aead.Open(nil, s.setNonce(counter), sealed, o.metaAAD(s, counter, off, plain[8:l.sealed]))
	if err != nil {
		return nil, &CorruptError{Field: "meta tag"}
	}
	r := &Record{Epoch: l.epoch}
	if l.n > 0 {
		r.Blocks = make([]Block, l.n)
	}
	pos := off + uint64(l.sealed)
	for i := range r.Blocks {
		bl := l.blockLen(plain, i)
		r.Blocks[i].Ref = BlockRef{Seq: o.header.Seq, Off: pos, Len: bl, Counter: l.counter + uint64(i)}
		pos += uint64(bl)
	}
	if err := decodeMeta(meta, r); err != nil {
		return nil, err
	}
	return r, nil
}

// OpenBlock verifies and unpacks the sealed bytes that ref names. It decrypts in place: it
// overwrites sealed, and the result may share its memory. All errors are CorruptErrors with their
// place.
func (o *Opener) OpenBlock(ref BlockRef, sealed []byte) ([]byte, error) {
	pack, err := o.OpenPacked(ref, sealed)
	if err != nil {
		return nil, err
	}
	if pack[0] == codecRaw && len(pack)-1 <= MaxBlock {
		return pack[1:], nil
	}
	raw, err := Unpack(pack, nil)
	if err != nil {
		return nil, at(err, ref.Seq, ref.Off)
	}
	return raw, nil
}

// OpenPacked is OpenBlock, but that the result is as it was compressed: Unpack unpacks it. It
// shares sealed's memory.
func (o *Opener) OpenPacked(ref BlockRef, sealed []byte) ([]byte, error) {
	if err := o.CheckRef(ref); err != nil {
		return nil, err
	}
	if uint64(ref.Len) != uint64(len(sealed)) {
		return nil, &CorruptError{Seq: ref.Seq, Off: ref.Off, Field: "block reference", Why: fmt.Sprintf("%d bytes given", len(sealed))}
	}
	s := scratches.Get().(*scratch)
	pack, err := o.aead.Open(sealed[:0], s.setNonce(ref.Counter), sealed, o.blockAAD(s, ref.Counter))
	scratches.Put(s)
	if err != nil {
		return nil, &CorruptError{Seq: ref.Seq, Off: ref.Off, Field: "block tag"}
	}
	return pack, nil
}
