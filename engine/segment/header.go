// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// VolumeID is the identity of a volume, a UUID.
type VolumeID = [16]byte

// Hash is the BLAKE3-256 hash of a whole segment.
type Hash = [32]byte

const (
	// HeaderSize is the size of a header frame in bytes.
	HeaderSize = 128
	// MaxSize is the most bytes in a segment.
	MaxSize = 64 << 20
)

var magic = []byte("WEIRSEG\x01")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Link names a segment's predecessor. It is zero in the first segment.
type Link struct {
	Seq  uint64
	Len  uint64
	Hash Hash
}

// Header is the first frame of a segment. It contains no secret.
type Header struct {
	Volume VolumeID
	Seq    uint64   // from 1
	Epoch  uint64   // of every record in the segment
	Key    uint32   // number of the data key
	Salt   [32]byte // of the segment key
	Prev   Link
}

// AppendHeader appends h's encoding, HeaderSize bytes, to dst.
func AppendHeader(dst []byte, h Header) []byte {
	n := len(dst)
	dst = append(dst, magic...)
	dst = binary.BigEndian.AppendUint32(dst, h.Key)
	dst = append(dst, h.Volume[:]...)
	dst = binary.BigEndian.AppendUint64(dst, h.Seq)
	dst = binary.BigEndian.AppendUint64(dst, h.Epoch)
	dst = append(dst, h.Salt[:]...)
	dst = binary.BigEndian.AppendUint64(dst, h.Prev.Seq)
	dst = binary.BigEndian.AppendUint64(dst, h.Prev.Len)
	dst = append(dst, h.Prev.Hash[:]...)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[n:], castagnoli))
}

// DecodeHeader decodes the header frame at the start of b. It returns ErrShort when b is too short,
// and a CorruptError when the header does not verify.
func DecodeHeader(b []byte) (Header, error) {
	var h Header
	if len(b) < HeaderSize {
		return h, ErrShort
	}
	if !bytes.Equal(b[:8], magic) {
		return h, &CorruptError{Field: "header magic"}
	}
	if crc32.Checksum(b[:124], castagnoli) != binary.BigEndian.Uint32(b[124:]) {
		return h, &CorruptError{Field: "header crc"}
	}
	h.Key = binary.BigEndian.Uint32(b[8:])
	copy(h.Volume[:], b[12:])
	h.Seq = binary.BigEndian.Uint64(b[28:])
	h.Epoch = binary.BigEndian.Uint64(b[36:])
	copy(h.Salt[:], b[44:])
	h.Prev.Seq = binary.BigEndian.Uint64(b[76:])
	h.Prev.Len = binary.BigEndian.Uint64(b[84:])
	copy(h.Prev.Hash[:], b[92:])
	switch {
	case h.Seq == 0:
		return h, &CorruptError{Field: "header sequence", Why: "zero"}
	case h.Seq == 1 && h.Prev != (Link{}):
		return h, &CorruptError{Seq: h.Seq, Field: "header predecessor", Why: "the first segment has none"}
	case h.Seq > 1 && h.Prev.Seq != h.Seq-1:
		return h, &CorruptError{Seq: h.Seq, Field: "header predecessor", Why: "not the sequence before"}
	}
	return h, nil
}

// Name returns the object name of a closed segment.
func Name(volume VolumeID, seq uint64, hash Hash) string {
	b := make([]byte, 0, 36+1+16+1+64) // exact capacity, since logs of thousands of segments are listed often
	for i, part := range [][]byte{volume[:4], volume[4:6], volume[6:8], volume[8:10], volume[10:]} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, part)
	}
	b = hex.AppendEncode(append(b, '/'), binary.BigEndian.AppendUint64(nil, seq))
	b = hex.AppendEncode(append(b, '-'), hash[:])
	return string(b)
}

// ParseName is the inverse of Name. It accepts only names that Name makes.
func ParseName(name string) (volume VolumeID, seq uint64, hash Hash, err error) {
	bad := fmt.Errorf("parse segment name %q: want <volume uuid>/<16 hex digits>-<64 hex digits>", name)
	v, rest, ok := strings.Cut(name, "/")
	s, h, ok2 := strings.Cut(rest, "-")
	if !ok || !ok2 || len(v) != 36 || len(s) != 16 || len(h) != 64 {
		return volume, 0, hash, bad
	}
	seq, err = strconv.ParseUint(s, 16, 64)
	if err != nil {
		return volume, 0, hash, bad
	}
	if _, err := hex.Decode(hash[:], []byte(h)); err != nil {
		return volume, 0, hash, bad
	}
	flat := strings.ReplaceAll(v, "-", "")
	if len(flat) != 32 {
		return volume, 0, hash, bad
	}
	if _, err := hex.Decode(volume[:], []byte(flat)); err != nil {
		return volume, 0, hash, bad
	}
	if Name(volume, seq, hash) != name {
		return volume, 0, hash, bad
	}
	return volume, seq, hash, nil
}

// openMark is where the name of a segment has its last hyphen, and that of an open one something
// else.
const openMark = 36 + 1 + 16

// OpenName returns the name under which gateways ask each other for a segment that may not be
// closed yet, by its salt. No object in a store has such a name.
func OpenName(volume VolumeID, seq uint64, salt [32]byte) string {
	b := []byte(Name(volume, seq, salt))
	b[openMark] = '@'
	return string(b)
}

// ParseOpenName is the inverse of OpenName. It accepts only names that OpenName makes.
func ParseOpenName(name string) (volume VolumeID, seq uint64, salt [32]byte, err error) {
	b := []byte(name)
	if len(b) <= openMark || b[openMark] != '@' {
		return volume, 0, salt, fmt.Errorf("parse name of an open segment %q: want <volume uuid>/<16 hex digits>@<64 hex digits>", name)
	}
	b[openMark] = '-'
	return ParseName(string(b))
}
