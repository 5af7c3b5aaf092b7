// SPDX-License-Identifier: Apache-2.0

package segment

import "encoding/binary"

// Outline returns a record frame, as Next returned it, without its sealed blocks: what is before
// them, and the sealed meta. It is enough to know what the record changes, and where its blocks
// lie. The result does not share frame's memory. An error is a CorruptError without a place.
func Outline(frame []byte) ([]byte, error) {
	l, err := parseFrame(frame)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, l.sealed+len(frame)-l.meta)
	return append(append(out, frame[:l.sealed]...), frame[l.meta:]...), nil
}

// OutlinePrefix is how many bytes of a frame OutlineParts needs.
const OutlinePrefix = framePrefix

// OutlineParts returns the length of a record frame, of which b has at least the first
// OutlinePrefix bytes, and of the two parts of its outline: the plain one, at its beginning, and
// the sealed meta, at its end. It verifies nothing: DecodeOutline does. ok is false if this is no
// record, or if its lengths are impossible.
func OutlineParts(b []byte) (size, plain, meta int, ok bool) {
	size, header, err := FrameSize(b)
	if err != nil || header || len(b) < OutlinePrefix {
		return 0, 0, 0, false
	}
	plain = framePrefix + 4*FrameBlocks(b)
	sealed := binary.BigEndian.Uint32(b[25:])
	if uint64(plain)+uint64(sealed) > uint64(size) {
		return 0, 0, 0, false
	}
	return size, plain, int(sealed), true
}

// DecodeOutline verifies and decodes the outline of the record frame that starts at offset off of
// the segment. It returns the record as DecodeRecord does, and the length of the whole frame. The
// tag of the meta vouches for all of it, so the checksum, which counts the blocks too, is not
// needed. All errors are CorruptErrors with their place.
func (o *Opener) DecodeOutline(outline []byte, off uint64) (*Record, int, error) {
	l, size, err := parseOutline(outline)
	if err != nil {
		return nil, 0, at(err, o.header.Seq, off)
	}
	r, err := o.open(l, outline, outline[l.sealed:], off)
	if err != nil {
		return nil, 0, at(err, o.header.Seq, off)
	}
	return r, size, nil
}

// parseOutline verifies all lengths of exactly one outline. size is that of its frame.
func parseOutline(outline []byte) (l layout, size int, err error) {
	size, header, err := FrameSize(outline)
	if err != nil || header || len(outline) < minFrame || size < len(outline) {
		return l, 0, &CorruptError{Field: "outline length"}
	}
	if l, err = parsePlain(outline, size); err != nil {
		return l, 0, err
	}
	if l.sealed+size-l.meta != len(outline) {
		return l, 0, &CorruptError{Field: "outline length"}
	}
	return l, size, nil
}
