// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"fmt"
)

// ErrCorrupt is what every [CorruptError] is, for errors.Is.
var ErrCorrupt = errors.New("corrupt")

// ErrTooLarge is returned for a record that does not fit one frame: split it.
var ErrTooLarge = errors.New("record too large")

// ErrShort says that more bytes are needed to tell: the frame goes on after
// the end of what was given.
var ErrShort = errors.New("frame is cut short")

// CorruptError says that bytes of a segment do not verify or do not parse
// (protocol-19: EIO towards clients, logged with segment and path, healed from
// another copy).
type CorruptError struct {
	Seq   uint64 // segment; 0 where the caller has to know
	Off   uint64 // of the frame or block in the segment
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

// at returns err with the place filled in if it is a CorruptError made by a
// function that did not know it.
func at(err error, seq, off uint64) error {
	var c *CorruptError
	if errors.As(err, &c) {
		c.Seq, c.Off = seq, off
	}
	return err
}
