// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"

	"github.com/weir-storage/weir/federation"
)

// by is the agreement by which a site of another organization has the volume's copy, or would: one
// that does not end, and has enough room, before others; then the one by which it has it now, then
// one that no quota forbids, and of those the one with most room. Nil: there is none, or it needs
// none, since it is there by another right.
func (p *placer) by(c *Candidate) *Room {
	if c == nil || !c.Closed || len(c.Rooms) == 0 {
		return nil
	}
	if by, ok := p.settled[c.Name]; ok {
		return by
	}
	now := func(r Room) bool { return slices.Contains(p.PresentAgreed, r.Agreement) }
	good := func(r Room) bool { return !r.Ending && p.lacks(&r) <= 0 }
	best := slices.MinFunc(c.Rooms, func(a, b Room) int {
		may := func(r Room) bool { return p.over(c.spot(&r), now(r)) == "" }
		return cmp.Or(first(good(a), good(b)), first(now(a), now(b)), first(may(a), may(b)),
			cmp.Compare(b.Amount-b.Promised, a.Amount-a.Promised), cmp.Compare(a.Agreement, b.Agreement))
	})
	if slices.Contains(p.Present, c.Name) && !slices.ContainsFunc(c.Rooms, now) && !good(best) {
		return nil
	}
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

// lost are the agreements by which the volume has copies, and of which nothing is known: they stay
// in its record.
func (p *placer) lost() (ids []string) {
	for _, id := range p.PresentAgreed {
		if !slices.ContainsFunc(p.Sites, func(c Candidate) bool {
			return slices.ContainsFunc(c.Rooms, func(r Room) bool { return r.Agreement == id })
		}) {
			ids = append(ids, id)
		}
	}
	return ids
}
