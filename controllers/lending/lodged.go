// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"context"
	"slices"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/view"
)

// counts has the registry hear what this site's volumes take of room that is no store's, by their
// records: of copies those that a home of the volume has heard of. wait becomes how long it is
// until something is to be said, 0 for never.
func (r *agreements) counts(ctx context.Context, a agreed, wait *time.Duration) error {
	q := a.Request
	if q.Kind == paper.KindStore || q.Guest != r.Organization || a.Answer == nil || a.Answer.Ready == nil {
		return nil
	}
	is, _ := r.Mirror.Paper(paper.UsageName(q.ID, paper.Guest, r.Site))
	there := func(v *view.Volume) bool {
		return a.Answer.Deleted == nil && (q.Kind == paper.KindCache || isAt(v, q.Site))
	}
	taken := view.Part(q.Amount, r.Mirror.Lodged(&q, func(v *view.Volume) bool {
		return r.ownerSite(v.Record) == r.Site && there(v)
	}), r.Mirror.Lodged(&q, there))
	u, later := q.Lodged(r.Site, r.Organization, is.Usage, taken, r.Now())
	if *wait = later; u == nil || later > 0 {
		return nil
	}
	if err := r.Book.PutPapers(ctx, paper.At{Paper: paper.Paper{Usage: u}, Revision: is.Revision}); err != nil {
		return err
	}
	*wait = paper.SaidAgain
	return nil
}

// ownerSite is the site whose operator counts for a volume: of one that a person made, the first
// of its organization.
func (r *agreements) ownerSite(v *federation.Volume) string {
	if v.OwnerSite != "" {
		return v.OwnerSite
	}
	i := slices.IndexFunc(v.Sites, func(name string) bool {
		s, _ := r.Mirror.Site(name)
		return s.Organization == r.Organization
	})
	if i < 0 {
		return ""
	}
	return v.Sites[i]
}

// isAt reports whether a volume's home has heard of its copy at a site, or a former home: a new one
// has not heard of any yet.
func isAt(v *view.Volume, site string) bool {
	for _, o := range v.Observed {
		if slices.ContainsFunc(o.Replicas, func(c federation.ObservedReplica) bool { return c.Site == site && !c.Unheard }) {
			return true
		}
	}
	return false
}

// gateways are those of a site of this organization: each says when it has deleted everything.
func (r *room) gateways(_ context.Context, name string) (names []string, _ error) {
	site, _ := r.Mirror.Site(name)
	for _, g := range site.Gateways {
		names = append(names, g.Name)
	}
	return names, nil
}
