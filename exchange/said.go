// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"slices"

	"github.com/weir-storage/weir/federation/paper"
)

// Statement is something that a side said of an agreement.
type Statement struct {
	paper.Moment
	Side paper.Party
	What string
}

// deleted is a host's receipt, in words. Of copies the objects are volumes, and bytes their sizes.
func deleted(kind paper.Kind, d *paper.Deletion) string {
	switch kind {
	case paper.KindCopy:
		return fmt.Sprintf("deleted, copies of %d volumes, of %v", d.Objects, d.Bytes)
	case paper.KindCache:
		return "the room is given back"
	}
	return fmt.Sprintf("deleted, %d objects of %v", d.Objects, d.Bytes)
}

// Said is what was said of an agreement, in order of time.
func (a Agreement) Said() (out []Statement) {
	add := func(side paper.Party, what string, m *paper.Moment) {
		if m != nil {
			out = append(out, Statement{*m, side, what})
		}
	}
	r := a.Request
	add(paper.Guest, "asked", &r.Made)
	add(paper.Guest, "withdrawn", r.Withdrawn)
	add(paper.Guest, "notice by the guest", r.Noticed)
	add(paper.Guest, "the host is gone", r.HostGone)
	add(paper.Guest, "drained", r.Drained)
	add(paper.Guest, "confirmed", r.Confirmed)
	if x := a.Answer; x != nil {
		add(paper.Host, "declined", x.Declined)
		if x.Accepted != nil {
			what := "accepted"
			if x.Accepted.Automatic {
				what += ", by the offer's word"
			}
			add(paper.Host, what, &x.Accepted.Moment)
		}
		add(paper.Host, "notice by the host", x.Noticed)
		add(paper.Host, "not paid", x.Unpaid)
		add(paper.Host, "the host deletes", x.Deleting)
		if x.Deleted != nil {
			add(paper.Host, deleted(r.Kind, x.Deleted), &x.Deleted.Moment)
		}
	}
	slices.SortStableFunc(out, func(a, b Statement) int { return a.At.Compare(b.At) })
	return out
}
