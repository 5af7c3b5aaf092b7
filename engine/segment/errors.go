// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"fmt"
)

// ErrCorrupt matches every [CorruptError], for errors.Is.
var ErrCorrupt = errors.New("corrupt")

// ErrTooLarge is returned for a record that does not fit into one frame. The caller splits the
// record.
var ErrTooLarge = errors.New("record too large")

// ErrShort reports that more bytes are needed, because the frame continues after the end of the
// input.
var ErrShort = errors.New("frame is cut short")

// CorruptError reports bytes of a segment that do not verify or do not parse. Clients get EIO. The
// caller logs the error with segment and path, and repairs the bytes from another copy
// (protocol-19).
type CorruptError struct {
	Seq   uint64 // segment; 0 if only the caller knows it
	Off   uint64 // offset of the frame or block in the segment
	Field string // what did not verify, e.g. "record crc", "meta tag"
	Why   string // detail, may be empty; never contents
}

func (e *CorruptError) Error() string {
	s := fmt.Sprintf("segment %d offset %d: corrupt %s", e.Seq, e.Off, e.Field)
	if e.Why != "" {
		s += ": " + e.Why
	}
	return s
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// at returns err. If err is a CorruptError from a function that did not know its place, at fills in
// the place.
func at(err error, seq, off uint64) error {
	var c *CorruptError
	if errors.As(err, &c) {
		c.Seq, c.Off = seq, off
	}
	return err
}
