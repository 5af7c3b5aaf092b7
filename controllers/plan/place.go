// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/spec"
)

// Candidate is a site that is registered.
type Candidate struct {
	Name, Organization, Region string
	Labels                     map[string]string
	// Keyed: the site has registered the key for which data keys are wrapped. Its gateway does that
	// when it starts.
	Keyed bool
	// Pools are those of its gateways.
	Pools []federation.Pool
	// Closed: it belongs to another organization than the volume, which it lends no room to, but by
	// the agreements of Rooms.
	Closed bool
	Rooms  []Room
	// Lost: a person said that the site does not come back soon, or, with Expelled, its
	// organization is not of the federation any more.
	Lost, Expelled bool
	// Capacity is what the site gives to copies; 0: no limit. Promised is what all volumes, with
	// this one, may take of it.
	Capacity, Promised federation.Bytes
}

// Request is one volume to place.
type Request struct {
	Spec     federation.VolumeSpec
	Selector *metav1.LabelSelector
	// Owner is the volume's organization, and Near the owner's site.
	Owner, Near string
	// Present are the volume's sites now; the first is where it began. PresentSize is its size now.
	Present     []string
	PresentSize federation.Bytes
	// Home is the site of the home now. Needed are the sites whose copies acknowledged writes wait
	// for: a lost site keeps its place while it is one of them, because it may have what nobody
	// else has.
	Home   string
	Needed []string
	// Granted are sites whose clients may use the volume: there no copy can be blind.
	Granted []string
	// Sites are in the order of their names. Place does not change them.
	Sites []Candidate
	// Rooms are lent stores that there are, and PresentStores those that the volume is in now.
	Rooms         []Room
	PresentStores []string
	// PresentAgreed are the agreements by which the volume has copies at sites of others.
	PresentAgreed []string
	// Quotas are those that are about the volume, by name.
	Quotas []Quota
}

// Placement is a choice of sites.
type Placement struct {
	// Sites are those that stay, in the order they had, then the new ones. A new volume begins at
	// the first.
	Sites []string
	// Blind are those of Sites whose copies hold ciphertext only.
	Blind []string
	// Stores are the agreements whose lent stores have the volume.
	Stores []string
	// Agreed are the agreements by which sites of others have copies.
	Agreed []string
	// Refused says for each site that was not chosen why.
	Refused []Refusal
}

// Place chooses the sites of a volume's copies. It takes the required sites, then the others in the
// order of placer.better. It skips a site that a hard rule refuses, and ends at the wanted number.
//
// This greedy choice finds sites whenever a choice exists, and keeps as many present sites as any
// choice could. Each site is in one domain of the spread. So the sets of sites without two of one
// domain are a matroid, and those of them that contain the required sites are one too. In a matroid
// the greedy choice is optimal (Edmonds 1971). With quotas it may not be: see sparingly.
//
// The error is an *Unplaceable. Equal requests get equal answers.
func Place(r Request) (Placement, error) {
	out, err := place(r, false)
	if err != nil {
		return sparingly(r, err)
	}
	return out, nil
}

// place chooses; sparing: sites that few quotas are about come first.
func place(r Request, sparing bool) (Placement, error) {
	p := &placer{Request: r, sparing: sparing, taken: map[string]string{}, settled: map[string]*Room{},
		placed: make([]federation.Bytes, len(r.Quotas))}
	sel, err := selector(r.Selector)
	if err != nil {
		return Placement{}, &Unplaceable{Problem: "spec.replication.sites.selector: " + err.Error() + ": correct it"}
	}
	p.selector = sel
	if err := p.require(); err != nil {
		return Placement{}, err
	}
	order := make([]*Candidate, 0, len(r.Sites))
	for i := range r.Sites {
		if !slices.Contains(p.chosen, r.Sites[i].Name) {
			order = append(order, &r.Sites[i])
		}
	}
	slices.SortFunc(order, p.better)
	if !slices.ContainsFunc(p.chosen, p.keyed) { // first one that has the key
		for _, c := range order {
			if rule, _ := p.refuse(c); rule == "" && p.keyed(c.Name) && len(p.chosen) < r.Spec.Replication.Copies {
				p.take(c)
				break
			}
		}
	}
	for _, c := range order {
		if slices.Contains(p.chosen, c.Name) {
			continue
		}
		rule, why := p.refuse(c)
		if rule == "" && len(p.chosen) == r.Spec.Replication.Copies {
			rule, why = RuleNotWanted, "the copies are at sites that come before it"
		}
		if rule != "" {
			p.refused = append(p.refused, Refusal{c.Name, rule, why})
			continue
		}
		p.take(c)
	}
	want := r.Spec.Replication.Copies
	stores, err := p.stores(want - len(p.chosen))
	if err != nil {
		return Placement{}, err
	}
	if len(p.chosen) < p.voices() || len(p.chosen)+len(stores) < want+r.Spec.Replication.Stores {
		return Placement{}, &Unplaceable{Refused: p.refused, Problem: fmt.Sprintf(
			"%d copies are wanted, but only %d of %d sites can have one (%s): %s",
			want, len(p.chosen), len(r.Sites), cmp.Or(strings.Join(p.chosen, ", "), "none"), p.remedies())}
	}
	out := Placement{Sites: p.order(), Stores: stores, Refused: p.refused}
	for _, name := range out.Sites {
		if by := p.by(p.find(name)); by != nil {
			out.Agreed = append(out.Agreed, by.Agreement)
		} else if c := p.find(name); c != nil && c.Closed {
			out.Agreed = append(out.Agreed, p.lost()...)
		}
		if !p.keyed(name) {
			out.Blind = append(out.Blind, name)
		}
	}
	slices.Sort(out.Agreed)
	out.Agreed = slices.Compact(out.Agreed)
	if len(out.Blind) > 0 && len(out.Blind) == len(out.Sites) {
		return Placement{}, &Unplaceable{Refused: p.refused,
			Problem: fmt.Sprintf("all copies would be blind (%s), and one at least has to "+
				"have the key: require fewer of these sites, or see spec.replication.otherOrganizations and sites.blind",
				strings.Join(out.Sites, ", "))}
	}
	return out, nil
}

type placer struct {
	Request
	selector labels.Selector
	taken    map[string]string // by domain, its site
	chosen   []string
	refused  []Refusal
	settled  map[string]*Room // the agreements of sites that are chosen
	sparing  bool
	placed   []federation.Bytes // what is chosen of each quota
}

// voices is how many copies at sites there have to be: lent stores acknowledge nothing.
func (p *placer) voices() int {
	if p.Spec.Durability.Acknowledge == federation.AcknowledgeSites {
		return max(p.Spec.Durability.Sites, 1)
	}
	return 1
}

// require takes the required sites. It refuses a name in required or forbidden that no site has:
// with a mistyped one, data would go where it must not be. In the other lists it does no harm.
func (p *placer) require() error {
	rules := p.Spec.Replication.Sites
	for _, l := range []struct {
		field string
		sites []string
	}{{"required", rules.Required}, {"forbidden", rules.Forbidden}} {
		for _, name := range l.sites {
			if p.find(name) == nil {
				return p.fail(name, RuleUnknown, fmt.Sprintf(
					"spec.replication.sites.%s: no site %s is registered; the federation has %s: "+
						"correct the name, or start a gateway there",
					l.field, name, p.known()))
			}
		}
	}
	for _, name := range rules.Required {
		c := p.find(name)
		if rule, why := p.refuse(c); rule != "" {
			return p.fail(name, rule, fmt.Sprintf("site %s is required, and cannot have a copy: %s: "+
				"remove it from spec.replication.sites.required, or change that", name, why))
		}
		p.take(c)
	}
	if n := p.Spec.Replication.Copies; len(p.chosen) > n {
		return p.fail("", "", fmt.Sprintf(
			"%d sites are required for %d copies: raise spec.replication.copies, or require fewer", len(p.chosen), n))
	}
	return nil
}

func (p *placer) fail(site string, rule Rule, problem string) error {
	e := &Unplaceable{Problem: problem}
	if rule != "" {
		e.Refused = []Refusal{{site, rule, "refused by " + string(rule)}}
	}
	return e
}

func (p *placer) find(name string) *Candidate {
	i, ok := slices.BinarySearchFunc(p.Sites, name, func(c Candidate, n string) int { return cmp.Compare(c.Name, n) })
	if !ok {
		return nil
	}
	return &p.Sites[i]
}

func (p *placer) known() string {
	var all []string
	for i, c := range p.Sites {
		if i == shownRefusals {
			all = append(all, "…")
			break
		}
		all = append(all, c.Name)
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

func (p *placer) take(c *Candidate) {
	p.taken[p.domain(c)] = c.Name
	p.chosen = append(p.chosen, c.Name)
	p.settled[c.Name] = p.by(c)
	p.count(c.spot(p.by(c)))
}

// refuse returns the hard rule that forbids a site beside those that are chosen, or "".
func (p *placer) refuse(c *Candidate) (Rule, string) {
	present, by := slices.Contains(p.Present, c.Name), p.by(c)
	need := p.Spec.Size
	if present {
		need -= p.PresentSize
	}
	switch {
	case slices.Contains(p.Spec.Replication.Sites.Forbidden, c.Name):
		return RuleForbidden, "forbidden by spec.replication.sites.forbidden"
	case !p.selector.Empty() && !p.selector.Matches(siteLabels{c}):
		return RuleSelector, fmt.Sprintf("its labels do not match spec.replication.sites.selector (%s)", p.selector)
	case len(p.Spec.Cache.Pool) > 0 && !(present && len(c.Pools) == 0) && !slices.ContainsFunc(c.Pools, p.suits):
		return RulePool, fmt.Sprintf("none of its pools has the labels of spec.cache.pool (%s); it has %s", labels.Set(p.Spec.Cache.Pool),
			poolsOf(c))
	case by != nil && by.Ending && !present:
		return RuleEnding, "the agreement with " + c.Organization + " ends"
	case by != nil && !by.Writes && present && p.Spec.Size > p.PresentSize:
		return RuleEnding, "the agreement with " + c.Organization + " ends: a copy there does not grow"
	case by != nil && p.lacks(by) > 0:
		return RuleCapacity, fmt.Sprintf("it lacks room: of the %s agreed on with %s, %s are promised, and %s too little is left",
			by.Amount, c.Organization, by.Promised, p.lacks(by))
	case c.Closed && by == nil && !present:
		return RuleLends, fmt.Sprintf("it belongs to %s, and lends no room to the volume's organization", c.Organization)
	case c.Lost && !(present && slices.Contains(p.Needed, c.Name)):
		if c.Expelled {
			return RuleLost, fmt.Sprintf("organization %q is not of the federation any more", c.Organization)
		}
		return RuleLost, "it was declared lost"
	case !p.keyed(c.Name) && slices.Contains(p.Granted, c.Name):
		return RuleGranted, "its clients may use the volume, and its copy would be blind"
	case !c.Keyed && !present && p.keyed(c.Name):
		return RuleNoKey, "no gateway has registered its key yet: start one there"
	case need > 0 && c.Capacity > 0 && c.Promised+need > c.Capacity:
		return RuleCapacity, fmt.Sprintf("it lacks room: %s more are needed, and of its %s, %s are promised", need, c.Capacity, c.Promised)
	}
	if why := p.over(c.spot(by), present && (by == nil || slices.Contains(p.PresentAgreed, by.Agreement))); why != "" {
		return RuleQuota, why
	}
	if other := p.taken[p.domain(c)]; other != "" && other != c.Name {
		return RuleSpread, fmt.Sprintf("in %s, which has a copy at %s", p.domain(c), other)
	}
	return "", ""
}

// suits reports whether the volume may be on a pool.
func (p *placer) suits(pool federation.Pool) bool { return pool.Has(p.Spec.Cache.Pool) }

// poolsOf lists a site's pools with their labels.
func poolsOf(c *Candidate) string {
	var out []string
	for _, pool := range c.Pools {
		out = append(out, fmt.Sprintf("%s (%s)", pool.Name, cmp.Or(labels.Set(pool.Labels).String(), "no labels")))
	}
	return cmp.Or(strings.Join(out, ", "), "none that its gateway tells of")
}

// domain is what no two copies may share. A site without a region is a region of its own.
func (p *placer) domain(c *Candidate) string {
	switch spread := p.Spec.Replication.Spread; {
	case spread == federation.SpreadOrganization:
		return "organization " + c.Organization
	case spread == federation.SpreadRegion && c.Region != "":
		return "region " + c.Region
	}
	return "site " + c.Name
}

// better orders sites. First come the sites that have a copy, the home before the others. Then come
// the sites preferred as home, the preferred ones, the owner's own, and those that have promised
// the smallest part of their capacity. The name decides last.
func (p *placer) better(a, b *Candidate) int {
	home, preferred := p.Spec.Home.PreferredSites, p.Spec.Replication.Sites.Preferred
	present := func(c *Candidate) bool { return slices.Contains(p.Present, c.Name) }
	goes := func(c *Candidate) bool { by := p.by(c); return by != nil && by.Ending }
	return cmp.Or(
		first(!goes(a), !goes(b)),
		first(present(a), present(b)),
		cmp.Compare(p.quotas(a), p.quotas(b)),
		first(a.Name == p.Home, b.Name == p.Home),
		cmp.Compare(rank(home, a.Name), rank(home, b.Name)),
		cmp.Compare(rank(preferred, a.Name), rank(preferred, b.Name)),
		first(a.Name == p.Near, b.Name == p.Near),
		cmp.Compare(rank(p.Present, a.Name), rank(p.Present, b.Name)),
		cmp.Compare(a.load(), b.load()),
		cmp.Compare(a.Name, b.Name))
}

// load is the part of the capacity that is promised. Without a limit it is the promised TiB.
func (c *Candidate) load() float64 {
	if c.Capacity > 0 {
		return float64(c.Promised) / float64(c.Capacity)
	}
	return float64(c.Promised) / (1 << 40)
}

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func rank(list []string, name string) int {
	if i := slices.Index(list, name); i >= 0 {
		return i
	}
	return len(list)
}

// keyed reports whether the copy at a site is to have the volume's key.
func (p *placer) keyed(name string) bool {
	c := p.find(name)
	return c != nil && !spec.Blind(p.Spec.Replication, p.Owner, name, c.Organization)
}

// order returns the chosen sites. The present ones keep their order, since a volume without a home
// begins at the first. Of a new volume the first is the best home among the chosen. Sites whose
// copies are blind come last.
func (p *placer) order() []string {
	var out []string
	for _, name := range p.Present {
		if slices.Contains(p.chosen, name) {
			out = append(out, name)
		}
	}
	var added []string
	for _, name := range p.chosen {
		if !slices.Contains(p.Present, name) {
			added = append(added, name)
		}
	}
	slices.SortStableFunc(added, func(a, b string) int {
		home := p.Spec.Home.PreferredSites
		return cmp.Or(cmp.Compare(rank(home, a), rank(home, b)), first(a == p.Near, b == p.Near))
	})
	out = append(out, added...)
	slices.SortStableFunc(out, func(a, b string) int { return first(p.keyed(a), p.keyed(b)) })
	return out
}

func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// siteLabels are a site's labels, with its organization and region.
type siteLabels struct{ c *Candidate }

// Has implements labels.Labels.
func (l siteLabels) Has(key string) bool { _, ok := l.Lookup(key); return ok }

// Get implements labels.Labels.
func (l siteLabels) Get(key string) string { v, _ := l.Lookup(key); return v }

// Lookup implements labels.Labels.
func (l siteLabels) Lookup(key string) (string, bool) {
	switch key {
	case v1alpha1.OrganizationLabel:
		return l.c.Organization, true
	case v1alpha1.RegionLabel:
		return l.c.Region, l.c.Region != ""
	}
	v, ok := l.c.Labels[key]
	return v, ok
}
