// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

// Takes reports whether a site may have another copy of a volume at a time: it is its owner's, or
// lends to it, or to its owner by an agreement that the volume's record names. What is held there
// by that agreement, and volumes that are older, with this one take no more than was agreed on.
func (v *View) Takes(site federation.Site, r federation.Volume, now time.Time, held func(uuid string) bool) bool {
	return site.Takes(r.Owner) || slices.ContainsFunc(r.Agreed, func(id string) bool {
		q, a := v.agreement(id)
		if q == nil || !q.Takes(a, r.Owner, site.Name, now) {
			return false
		}
		taken := r.Spec.Size
		v.each(func(e *Volume) {
			if e.UUID != r.UUID && lodges(e.Record, q) && (held(e.UUID) || older(e.Record, &r)) {
				taken += e.Record.Spec.Size
			}
		})
		return taken <= q.Amount
	})
}

// older reports whether a volume has its place before another: so that of two that come at the same
// time, and do not fit together, one has it.
func older(a, b *federation.Volume) bool {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.UUID, b.UUID)) < 0
}

func (v *View) agreement(id string) (*paper.Request, *paper.Answer) {
	q, _ := v.Paper(paper.RequestName(id))
	a, _ := v.Paper(paper.AnswerName(id))
	return q.Request, a.Answer
}

// each calls f with the volumes that have a record, in no order.
func (v *View) each(f func(*Volume)) {
	v.mu.RLock()
	all := slices.Collect(maps.Values(v.volumes.all))
	v.mu.RUnlock()
	for _, e := range all {
		if e.Record != nil {
			f(e)
		}
	}
}

// lodges reports whether a volume has a copy by an agreement.
func lodges(r *federation.Volume, q *paper.Request) bool {
	return r.Owner == q.Guest && slices.Contains(r.Agreed, q.ID) && slices.Contains(r.Sites, q.Site)
}

// Lodged is how much volumes take by an agreement about copies, or of the site's cache pools. A
// volume counts if counts says so of what is known of it.
func (v *View) Lodged(q *paper.Request, counts func(*Volume) bool) (sum federation.Bytes) {
	v.each(func(e *Volume) {
		r := e.Record
		var takes federation.Bytes
		switch {
		case q.Kind == paper.KindCopy && lodges(r, q):
			takes = r.Spec.Size
		case q.Kind == paper.KindCache && r.Owner == q.Guest:
			takes = reserves(r, q.Site)
		}
		if takes > 0 && counts(e) {
			sum += takes
		}
	})
	return sum
}

// Part is how much of an agreement somebody counts: what he sees taken, of all that is taken; if
// that is more than was agreed on, his part of the amount.
func Part(amount, mine, all federation.Bytes) federation.Bytes {
	if all <= amount || all == 0 {
		return mine
	}
	return federation.Bytes(float64(mine) / float64(all) * float64(amount))
}

// reserves is how much a volume's owner has another's site keep for it. Who may use it there has
// a copy with the key, or was granted it.
func reserves(r *federation.Volume, site string) federation.Bytes {
	if r.Deleted || !hasKey(r, site) && !slices.ContainsFunc(r.Grants, func(g federation.Grant) bool { return g.Site == site }) {
		return 0
	}
	return r.Spec.Cache.Reserve
}

// lodged is what is kept at this site for others.
type lodged struct {
	reserved map[string]federation.Bytes // by volumes, by owner
	pools    []*paper.Request            // about its cache pools
}

// lodgings looks at it if something changed.
func (v *View) lodgings() *lodged {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lodged != nil {
		return v.lodged
	}
	l := &lodged{reserved: map[string]federation.Bytes{}}
	for _, e := range v.volumes.all {
		if e.Record != nil {
			l.reserved[e.Record.Owner] += reserves(e.Record, v.site)
		}
	}
	for _, of := range v.papers {
		for _, p := range of {
			if q := p.Request; q != nil && q.Kind == paper.KindCache && q.Site == v.site {
				l.pools = append(l.pools, q)
			}
		}
	}
	v.lodged = l
	return l
}

// kept is how much each gateway of this site keeps for a volume of another organization: all that
// its owner asks for if the site lends to that. Otherwise it is what was agreed on about the
// site's cache pools, of which each volume has its part, and each gateway.
func (v *View) kept(r *federation.Volume, now time.Time) federation.Bytes {
	asked := r.Spec.Cache.Reserve
	site, known := v.Site(v.site)
	if asked == 0 || !known || site.Takes(r.Owner) {
		return asked
	}
	var agreed federation.Bytes
	l := v.lodgings()
	for _, q := range l.pools {
		if q.Guest == r.Owner {
			if _, a := v.agreement(q.ID); q.Life(a, now).Writes(now) {
				agreed += q.Amount
			}
		}
	}
	return min(asked, Part(agreed, reserves(r, v.site), l.reserved[r.Owner])/federation.Bytes(max(len(site.Gateways), 1)))
}
