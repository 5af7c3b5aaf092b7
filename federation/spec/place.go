// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-storage/weir/federation"
)

// PlaceError says why no choice of sites satisfies a manifest.
type PlaceError struct {
	Volume string
	// Problem says what is wrong and what to do.
	Problem string
	// Refused has, by site, why it was not chosen.
	Refused []Refusal
}

// Refusal is why a site gets no copy.
type Refusal struct{ Site, Why string }

func (e *PlaceError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "place volume %s: %s", e.Volume, e.Problem)
	for _, r := range e.Refused {
		fmt.Fprintf(&b, "; site %s: %s", r.Site, r.Why)
	}
	return b.String()
}

// Place chooses the sites of a volume's copies: first where it starts (the first of
// home.preferredSites that was chosen), then the others, best first. It takes the required sites,
// then of those that are not forbidden and share no domain of the spread with one taken, in order:
// preferred as home, preferred, by name. Equal input gives equal output. It does not look at who is
// alive: a site that is down for a moment is still a good place. The error is a *PlaceError, or
// joined FieldErrors for names of sites that are not known. A site of another organization than
// owner is chosen only if it lends to that. One site at least is chosen whose copy is not blind.
func Place(m VolumeManifest, owner string, sites []federation.Site) ([]string, error) {
	r, home := m.Spec.Replication, m.Spec.Home.PreferredSites
	known := make(map[string]federation.Site, len(sites))
	names := make([]string, 0, len(sites))
	for _, s := range sites {
		known[s.Name] = s
		names = append(names, s.Name)
	}
	slices.Sort(names)
	if err := checkKnown(m, known, names); err != nil {
		return nil, err
	}
	lacks := func(name string) bool {
		return len(m.Spec.Cache.Pool) > 0 && !slices.ContainsFunc(known[name].Gateways, func(g federation.Gateway) bool {
			return slices.ContainsFunc(g.Pools, func(p federation.Pool) bool { return p.Has(m.Spec.Cache.Pool) })
		})
	}
	noPool := fmt.Sprintf("none of its pools has the labels of spec.cache.pool (%s)", labels(m.Spec.Cache.Pool))
	fail := func(refused []Refusal, format string, a ...any) error {
		return &PlaceError{Volume: m.Metadata.Name, Problem: fmt.Sprintf(format, a...), Refused: refused}
	}

	if r.Stores > 0 {
		return nil, fail(nil, "spec.replication.stores is %d: lent stores are chosen by a cluster's operator: make the volume as a "+
			"GeoVolume, or take the field out", r.Stores)
	}
	taken := map[string]string{} // domain → site
	var chosen []string
	noRoom := func(name string) string {
		return fmt.Sprintf("it belongs to %s, and lends no room to %s", known[name].Organization, owner)
	}
	for _, name := range r.Sites.Required {
		if !known[name].Takes(owner) {
			return nil, fail([]Refusal{{name, noRoom(name)}},
				"site %s is required and takes no copies of this organization's volumes: ask %s "+
					"to lend (`lends` of its gateways), or require another", name, known[name].Organization)
		}
		if lacks(name) {
			return nil, fail([]Refusal{{name, noPool}}, "site %s is required and has no such pool: give one of its pools these labels "+
				"(pool.labels of its gateway), or change spec.cache.pool", name)
		}
		d := domain(r.Spread, known[name])
		if other, ok := taken[d]; ok {
			return nil, fail(nil, "sites %s and %s are both required and share %s: require only one of them, or spread over Site", other,
				name, d)
		}
		taken[d] = name
		chosen = append(chosen, name)
	}
	rank := func(list []string, name string) int {
		if i := slices.Index(list, name); i >= 0 {
			return i
		}
		return len(list)
	}
	order := slices.Clone(names)
	slices.SortStableFunc(order, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(home, a), rank(home, b)), cmp.Compare(rank(r.Sites.Preferred, a), rank(r.Sites.Preferred, b)))
	})
	var refused []Refusal
	// take takes a site, or says why it cannot be.
	take := func(name string) (why string) {
		d := domain(r.Spread, known[name])
		switch {
		case slices.Contains(r.Sites.Forbidden, name):
			return "forbidden by spec.replication.sites.forbidden"
		case !known[name].Takes(owner):
			return noRoom(name)
		case lacks(name):
			return noPool
		case taken[d] != "":
			return fmt.Sprintf("in %s, which has a copy at %s", d, taken[d])
		}
		taken[d] = name
		chosen = append(chosen, name)
		return ""
	}
	blind := func(name string) bool { return Blind(r, owner, name, known[name].Organization) }
	if !slices.ContainsFunc(chosen, not(blind)) { // first one that has the key
		for _, name := range order {
			if len(chosen) < r.Copies && !blind(name) && take(name) == "" {
				break
			}
		}
	}
	for _, name := range order {
		if slices.Contains(chosen, name) || len(chosen) == r.Copies {
			continue
		}
		if why := take(name); why != "" {
			refused = append(refused, Refusal{name, why})
		}
	}
	if len(chosen) > 0 && !slices.ContainsFunc(chosen, not(blind)) {
		return nil, fail(refused, "all copies would be blind (%s), and one at least has to have the key: require fewer of these sites, "+
			"or see spec.replication.otherOrganizations and sites.blind", strings.Join(chosen, ", "))
	}
	if len(chosen) < r.Copies {
		return nil, fail(refused, "%d copies are wanted, but only %d of the %d known sites can have one (%s): register another site, or "+
			"lower spec.replication.copies%s",
			r.Copies, len(chosen), len(names), cmp.Or(strings.Join(chosen, ", "), "none"), otherRemedies(r, m.Spec.Cache))
	}
	last := func(name string) int {
		if blind(name) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(chosen, func(a, b string) int {
		return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(rank(home, a), rank(home, b)))
	})
	return chosen, nil
}

// Blind reports whether the copy at a site of an organization holds ciphertext only: the site is
// named, or the organization is another than the volume's owner and those are blind.
func Blind(r federation.Replication, owner, site, organization string) bool {
	return slices.Contains(r.Sites.Blind, site) || r.OtherOrganizations == federation.CopiesBlind && organization != owner
}

func not(f func(string) bool) func(string) bool { return func(s string) bool { return !f(s) } }

func otherRemedies(r federation.Replication, c federation.Cache) string {
	s := ""
	if r.Spread != federation.SpreadSite {
		s += ", spread over Site"
	}
	if len(r.Sites.Forbidden) > 0 {
		s += ", or forbid fewer sites"
	}
	if len(c.Pool) > 0 {
		s += ", or give pools the labels of spec.cache.pool"
	}
	return s
}

// labels are what a pool is to have, in the order of their names.
func labels(all map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, k+"="+all[k])
	}
	return strings.Join(out, ",")
}

// domain is what no two copies may share. A site without a region is a region of its own.
func domain(spread federation.Spread, s federation.Site) string {
	switch {
	case spread == federation.SpreadOrganization:
		return "organization " + s.Organization
	case spread == federation.SpreadRegion && s.Region != "":
		return "region " + s.Region
	}
	return "site " + s.Name
}

// checkKnown refuses a name that no site has: a typing mistake in a forbidden site would allow it.
func checkKnown(m VolumeManifest, known map[string]federation.Site, names []string) error {
	var p problems
	check := func(field string, list []string) {
		for i, name := range list {
			if _, ok := known[name]; !ok {
				p.add(fmt.Sprintf("%s[%d]", field, i), name, "no such site%s; the federation has %s",
					didYouMean(name, names), cmp.Or(strings.Join(names, ", "), "none"))
			}
		}
	}
	check("spec.replication.sites.required", m.Spec.Replication.Sites.Required)
	check("spec.replication.sites.preferred", m.Spec.Replication.Sites.Preferred)
	check("spec.replication.sites.forbidden", m.Spec.Replication.Sites.Forbidden)
	check("spec.replication.sites.blind", m.Spec.Replication.Sites.Blind)
	check("spec.home.preferredSites", m.Spec.Home.PreferredSites)
	return errors.Join(p...)
}
