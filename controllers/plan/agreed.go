// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"

	"github.com/weir-storage/weir/federation"
)

// by is the agreement by which a site of another organization has the volume's copy, or would: the
// one by which it has it now, before others that do not end, and of those the one with most room.
// Nil: there is none, or it needs none.
func (p *placer) by(c *Candidate) *Room {
	if c == nil || !c.Closed || len(c.Rooms) == 0 {
		return nil
	}
	best := slices.MinFunc(c.Rooms, func(a, b Room) int {
		now := func(r Room) bool { return slices.Contains(p.PresentAgreed, r.Agreement) }
		return cmp.Or(first(!a.Ending, !b.Ending), first(now(a), now(b)), cmp.Compare(b.Amount-b.Promised, a.Amount-a.Promised),
			cmp.Compare(a.Agreement, b.Agreement))
	})
	return &best
}

// lacks is how much of an agreement is missing for the volume's copy.
func (p *placer) lacks(by *Room) federation.Bytes {
	need := p.Spec.Size
	if slices.Contains(p.PresentAgreed, by.Agreement) {
		need -= p.PresentSize
	}
	if need <= 0 {
		return 0
	}
	return by.Promised + need - by.Amount
}
