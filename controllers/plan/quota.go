// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

// Spot is where a copy of a volume is or may be: a site, or a lent store there.
type Spot struct {
	Kind v1alpha1.PlacementKind
	// Agreement is the ID of the agreement by which it is there; empty: it needs none.
	Agreement string
	// Site is the site's name, and the rest is what that site is.
	Site, Organization, Region string
	Labels                     map[string]string
}

// Where selects spots, as a PlacementQuota says.
type Where struct {
	v1alpha1.QuotaWhere
	own      string // the organization of the cluster that decides
	selector labels.Selector
}

// NewWhere reads what a PlacementQuota of an organization's cluster says. A selector that cannot be
// read is an error, and then selects all.
func NewWhere(w v1alpha1.QuotaWhere, own string) (Where, error) {
	sel, err := selector(w.Selector)
	if err != nil {
		sel, err = labels.Everything(), fmt.Errorf("spec.where.selector: %w: correct it", err)
	}
	return Where{w, own, sel}, err
}

// Has reports whether a spot is selected.
func (w Where) Has(s Spot) bool {
	switch {
	case w.Kind != "" && w.Kind != s.Kind,
		w.Whose != "" && (w.Whose == v1alpha1.RoomOwn) != (s.Organization == w.own),
		len(w.Sites) > 0 && !slices.Contains(w.Sites, v1alpha1.SiteName(s.Site)),
		len(w.Organizations) > 0 && !slices.Contains(w.Organizations, v1alpha1.OrganizationName(s.Organization)),
		len(w.Agreements) > 0 && !slices.Contains(w.Agreements, v1alpha1.AgreementName(s.Agreement)):
		return false
	}
	return w.selector.Matches(siteLabels{&Candidate{Organization: s.Organization, Region: s.Region, Labels: s.Labels}})
}

// Quota is a PlacementQuota, as far as it is about one volume.
type Quota struct {
	Name string
	// Who may place the amount, in words.
	Who   string
	Where Where
	// Amount may be placed there in all. Used is what other volumes have placed, with what is
	// reserved for them, and Has is what this one has placed.
	Amount, Used, Has federation.Bytes
}

// over says which quota forbids the volume's copy at a spot beside those that are chosen; empty:
// none does. A copy that is there stays, as long as the volume has no more there than before.
func (p *placer) over(s Spot, present bool) string {
	for i, q := range p.Quotas {
		most := q.Amount - q.Used
		if present {
			most = max(most, q.Has)
		}
		would := p.placed[i] + p.Spec.Size
		switch {
		case would <= most || !q.Where.Has(s):
		case q.Amount == 0:
			return fmt.Sprintf("PlacementQuota %s lets %s place nothing there", q.Name, q.Who)
		default:
			return fmt.Sprintf("PlacementQuota %s is used up: of the %s that %s may place there, other volumes have %s, and this one "+
				"would have %s", q.Name, q.Amount, q.Who, q.Used, would)
		}
	}
	return ""
}

// count has the quotas count a copy at a spot, which was chosen.
func (p *placer) count(s Spot) {
	for i, q := range p.Quotas {
		if q.Where.Has(s) {
			p.placed[i] += p.Spec.Size
		}
	}
}

// spot is where the copy at a site would be, by an agreement or without one (nil).
func (c *Candidate) spot(by *Room) Spot {
	s := Spot{Kind: v1alpha1.PlacedCopy, Site: c.Name, Organization: c.Organization, Region: c.Region, Labels: c.Labels}
	if by != nil {
		s.Agreement = by.Agreement
	}
	return s
}

func (r *Room) spot() Spot {
	return Spot{Kind: v1alpha1.PlacedStore, Agreement: r.Agreement, Site: r.Site, Organization: r.Organization, Region: r.Region,
		Labels: r.Labels}
}

// quotas is how many quotas are about the copy at a site. It is 0 unless few are to be used.
func (p *placer) quotas(c *Candidate) (n int) {
	for _, q := range p.Quotas {
		if p.sparing && q.Where.Has(c.spot(p.by(c))) {
			n++
		}
	}
	return n
}

// sparingly chooses again where the best sites used up a quota that another site needs: those that
// few quotas are about come first. The first choice's error stays if there is no other.
func sparingly(r Request, err error) (Placement, error) {
	u := (*Unplaceable)(nil)
	if !errors.As(err, &u) || !slices.ContainsFunc(u.Refused, func(x Refusal) bool { return x.Rule == RuleQuota }) {
		return Placement{}, err
	}
	if out, again := place(r, true); again == nil {
		return out, nil
	}
	return Placement{}, err
}
