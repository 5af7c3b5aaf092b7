// SPDX-License-Identifier: Apache-2.0

// Package epoch has positions in a volume's log, and where epochs began in it. Other packages know
// these as federation.Position and federation.EpochStart.
package epoch

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

// Start says where in the log an epoch's first record is. A forced takeover may start an epoch
// before the start of the one it replaces: then nothing of that one is left.
type Start struct {
	Epoch uint64   `json:"epoch"`
	Start Position `json:"start"`
	// Forced: a person had it begin, whatever the members had. What an earlier epoch's log has
	// beyond may have been acknowledged, and is kept aside (protocol-6).
	Forced bool `json:"forced,omitempty"`
	// Word is with what that person said so (signed.Takeover). Releases of before had none.
	Word string `json:"word,omitempty"`
}

// String names a start in the digest of a control record (federation.Ancestor): it stays as it is.
func (s Start) String() string {
	if s.Word == "" {
		return fmt.Sprintf("{%d %v %t}", s.Epoch, s.Start, s.Forced)
	}
	return fmt.Sprintf("{%d %v %t %q}", s.Epoch, s.Start, s.Forced, s.Word)
}
