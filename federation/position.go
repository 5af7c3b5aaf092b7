// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"cmp"
	"fmt"
)

// Position is a place in a volume's log: a byte offset in the segment of that sequence number. The
// zero value is the start of the log.
type Position struct {
	Seq uint64 `json:"seq"`
	Off uint64 `json:"off"` // bytes
}

// Compare is negative when p is before q, positive when after, zero when equal.
func (p Position) Compare(q Position) int {
	if c := cmp.Compare(p.Seq, q.Seq); c != 0 {
		return c
	}
	return cmp.Compare(p.Off, q.Off)
}

// Less reports whether p is before q.
func (p Position) Less(q Position) bool { return p.Compare(q) < 0 }

// IsZero reports whether p is the start of the log.
func (p Position) IsZero() bool { return p == Position{} }

// String is "sequence:offset".
func (p Position) String() string { return fmt.Sprintf("%d:%d", p.Seq, p.Off) }
