// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	// MaxFrame is the most bytes in a frame, and so in a record.
	MaxFrame = 16 << 20
	// TagSize is how many bytes sealing adds to a block or meta.
	TagSize = 16

	kindRecord  = 1
	framePrefix = 31 // bytes up to the block lengths
	minFrame    = framePrefix + TagSize + 1
	maxSealed   = MaxBlock + 1 + TagSize
	maxBlocks   = 1<<16 - 1
)

// Frame is one frame of a log, as cut from a stream by Next.
type Frame struct {
	Bytes    []byte // the whole frame; aliases the stream
	IsHeader bool   // DecodeHeader decodes it; else it is a record, for Opener.DecodeRecord
}

// Next cuts the first frame off b, and verifies its checksum and lengths. It needs no key. It
// returns ErrShort when b ends inside the frame, and a CorruptError without a place when there is
// no valid frame.
func Next(b []byte) (Frame, error) {
	n, header, err := FrameSize(b)
	if err != nil {
		return Frame{}, err
	}
	if len(b) < n {
		return Frame{}, ErrShort
	}
	f := Frame{Bytes: b[:n:n], IsHeader: header}
	if header {
		_, err = DecodeHeader(f.Bytes)
	} else {
		_, err = parseFrame(f.Bytes)
	}
	if err != nil {
		return Frame{}, err
	}
	return f, nil
}

// FrameSize returns the length of the frame that starts with b, and whether it is a header. It
// examines only the first four bytes. It returns ErrShort for fewer bytes, and a CorruptError for
// an impossible length.
func FrameSize(b []byte) (n int, header bool, err error) {
	if len(b) < 4 {
		return 0, false, ErrShort
	}
	u := binary.BigEndian.Uint32(b)
	if u == binary.BigEndian.Uint32(magic) {
		return HeaderSize, true, nil
	}
	if u < minFrame || u > MaxFrame {
		return 0, false, &CorruptError{Field: "frame length", Why: fmt.Sprint(u)}
	}
	return int(u), false, nil
}

// FrameEpoch returns the epoch in a record frame that Next returned.
func FrameEpoch(frame []byte) uint64 { return binary.BigEndian.Uint64(frame[9:]) }

// FrameBlocks returns how many blocks a record frame has that Next returned.
func FrameBlocks(frame []byte) int { return int(binary.BigEndian.Uint16(frame[29:])) }

// FrameBlockLen returns the length of sealed block i of a record frame, of which b has at least the
// plain part, as OutlineParts says.
func FrameBlockLen(b []byte, i int) uint32 {
	return binary.BigEndian.Uint32(b[framePrefix+4*i:])
}

// layout is the offsets of the parts of a record frame.
type layout struct {
	epoch   uint64
	counter uint64
	n       int // number of blocks
	sealed  int // offset of the first sealed byte
	meta    int // offset of the sealed meta
}

func (l layout) blockLen(frame []byte, i int) uint32 { return FrameBlockLen(frame, i) }

func frameCRC(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:4], castagnoli), castagnoli, frame[8:])
}

// parseFrame verifies the checksum and all lengths of exactly one record frame.
func parseFrame(frame []byte) (layout, error) {
	var l layout
	if len(frame) < minFrame || uint64(len(frame)) != uint64(binary.BigEndian.Uint32(frame)) {
		return l, &CorruptError{Field: "frame length"}
	}
	if frameCRC(frame) != binary.BigEndian.Uint32(frame[4:]) {
		return l, &CorruptError{Field: "record crc"}
	}
	return parsePlain(frame, len(frame))
}

// parsePlain verifies all lengths of a record frame of size bytes, of which frame has at least
// those before its sealed parts.
func parsePlain(frame []byte, size int) (l layout, err error) {
	if frame[8] != kindRecord {
		return l, &CorruptError{Field: "record kind", Why: fmt.Sprintf("%d; written by a newer version?", frame[8])}
	}
	l.epoch = binary.BigEndian.Uint64(frame[9:])
	l.counter = binary.BigEndian.Uint64(frame[17:])
	metaLen := uint64(binary.BigEndian.Uint32(frame[25:]))
	l.n = int(binary.BigEndian.Uint16(frame[29:]))
	l.sealed = framePrefix + 4*l.n
	if l.sealed > len(frame) {
		return l, &CorruptError{Field: "block count"}
	}
	sum := uint64(l.sealed)
	for i := range l.n {
		bl := l.blockLen(frame, i)
		if bl <= TagSize || bl > maxSealed {
			return l, &CorruptError{Field: "block length", Why: fmt.Sprint(bl)}
		}
		sum += uint64(bl)
	}
	if metaLen <= TagSize || sum+metaLen != uint64(size) {
		return l, &CorruptError{Field: "meta length", Why: fmt.Sprint(metaLen)}
	}
	if l.counter+uint64(l.n) < l.counter {
		return l, &CorruptError{Field: "nonce counter"}
	}
	l.meta = int(sum)
	return l, nil
}
