// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

// Takes reports whether a site may have another copy of a volume at a time: it is its owner's, or
// lends to it, or to its owner by an agreement that the volume's record names. What volumes take of
// that agreement, with this one, is no more than was agreed on.
func (v *View) Takes(site federation.Site, r federation.Volume, now time.Time) bool {
	return site.Takes(r.Owner) || slices.ContainsFunc(r.Agreed, func(id string) bool {
		q, a := v.agreement(id)
		if q == nil || !q.Takes(a, r.Owner, site.Name, now) {
			return false
		}
		promised, _ := v.Promised(StoreLoad(id))
		return promised <= federation.Bytes(q.Amount)
	})
}

// Evicts reports whether a volume's copy goes from a site although the volume's record names it:
// the agreement by which it is there is over, its guest did not drain, and its host deletes.
func (v *View) Evicts(site federation.Site, r federation.Volume, now time.Time) bool {
	return slices.Contains(r.Sites, site.Name) && !v.Takes(site, r, now) && slices.ContainsFunc(r.Agreed, func(id string) bool {
		q, a := v.agreement(id)
		return q != nil && q.Kind == paper.KindCopy && q.Guest == r.Owner && q.Site == site.Name && q.Agrees(a) && a.Deleting != nil
	})
}

func (v *View) agreement(id string) (*paper.Request, *paper.Answer) {
	q, _ := v.Paper(paper.RequestName(id))
	a, _ := v.Paper(paper.AnswerName(id))
	return q.Request, a.Answer
}

// Lodged is how much volumes take by an agreement about copies, or of the site's cache pools. A
// volume counts if counts says so of what is known of it; nil: all do.
func (v *View) Lodged(q *paper.Request, counts func(*Volume) bool) (sum federation.Bytes) {
	all, _ := v.Volumes()
	for _, e := range all {
		if e.Record == nil || e.Record.Owner != q.Guest || counts != nil && !counts(e) {
			continue
		}
		switch r := e.Record; {
		case q.Kind == paper.KindCopy && slices.Contains(r.Agreed, q.ID) && slices.Contains(r.Sites, q.Site):
			sum += r.Spec.Size
		case q.Kind == paper.KindCache:
			sum += reserves(r, q.Site)
		}
	}
	return sum
}

// reserves is how much a volume's owner has another's site keep for it. Who may use it there has
// a copy with the key, or was granted it.
func reserves(r *federation.Volume, site string) federation.Bytes {
	if r.Deleted || !hasKey(r, site) && !slices.ContainsFunc(r.Grants, func(g federation.Grant) bool { return g.Site == site }) {
		return 0
	}
	return r.Spec.Cache.Reserve
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
	var kept federation.Bytes
	for _, p := range v.Papers(string(paper.FormRequest) + "/") {
		q := p.Request
		if q == nil || q.Kind != paper.KindCache || q.Guest != r.Owner || q.Site != v.site {
			continue
		}
		_, a := v.agreement(q.ID)
		if all := v.Lodged(q, nil); all > 0 && q.Life(a, now).Writes(now) {
			part := float64(reserves(r, v.site)) / float64(all) * float64(min(all, federation.Bytes(q.Amount)))
			kept += federation.Bytes(part / float64(max(len(site.Gateways), 1)))
		}
	}
	return min(kept, asked)
}
