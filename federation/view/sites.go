// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weir-storage/weir/federation"
)

// sites are all sites and the heartbeats of their gateways. View.mu guards it.
type sites struct {
	all   map[string]federation.Site
	alive map[string]federation.Alive // by gateway
	left  map[string]bool             // gateways whose heartbeat has ended and has not begun again
	beats map[string]uint64           // how often a gateway's heartbeat began
	lost  map[string]federation.Lost
}

func newSites() sites {
	return sites{all: map[string]federation.Site{}, alive: map[string]federation.Alive{}, left: map[string]bool{},
		beats: map[string]uint64{}, lost: map[string]federation.Lost{}}
}

// names calls f with every record that is kept of sites.
func (s *sites) names(f func(federation.Kind, string)) {
	for name := range s.all {
		f(federation.KindSite, name)
	}
	for name := range s.alive {
		f(federation.KindAlive, name)
	}
	for name := range s.lost {
		f(federation.KindLost, name)
	}
}

// apply takes in a record, and returns the site that it is about.
func (s *sites) apply(e federation.Event) (site string) {
	if e.Kind == federation.KindAlive {
		return s.beat(e)
	}
	switch {
	case e.Err != nil: // view-2
	case e.Kind == federation.KindSite:
		put(s.all, e.Name, e.Site)
	case e.Kind == federation.KindLost:
		put(s.lost, e.Name, e.Lost)
	}
	return e.Name
}

// beat takes in a heartbeat or its end.
func (s *sites) beat(e federation.Event) (site string) {
	site = s.alive[e.Name].Site
	if e.Err != nil {
		return site
	}
	put(s.alive, e.Name, e.Alive)
	if e.Alive == nil {
		s.left[e.Name] = true
		return site
	}
	delete(s.left, e.Name)
	s.beats[e.Name]++
	return e.Alive.Site
}

func put[K comparable, T any](m map[K]T, name K, value *T) {
	if value == nil {
		delete(m, name)
	} else {
		m[name] = *value
	}
}

// Site returns a site's record.
func (v *View) Site(name string) (federation.Site, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	s, ok := v.sites.all[name]
	return s, ok
}

// Sites returns all sites, by name.
func (v *View) Sites() []federation.Site {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make([]federation.Site, 0, len(v.sites.all))
	for _, name := range slices.Sorted(maps.Keys(v.sites.all)) {
		out = append(out, v.sites.all[name])
	}
	return out
}

// Gateway finds a registered gateway and its site; false: no site has one of that name.
func (v *View) Gateway(name string) (federation.Gateway, federation.Site, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, s := range v.sites.all {
		for _, g := range s.Gateways {
			if g.Name == name {
				return g, s, true
			}
		}
	}
	return federation.Gateway{}, federation.Site{}, false
}

// Members returns the registered gateways of all sites with their present incarnations, by gateway.
func (v *View) Members() (out []federation.Member) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, s := range v.sites.all {
		for _, g := range s.Gateways {
			out = append(out, federation.Member{Gateway: g.Name, Site: s.Name, Incarnation: g.Incarnation})
		}
	}
	slices.SortFunc(out, func(a, b federation.Member) int { return cmp.Compare(a.Gateway, b.Gateway) })
	return out
}

// IsAlive reports whether a gateway has a heartbeat, with that incarnation unless it is empty.
func (v *View) IsAlive(gateway, incarnation string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	a, ok := v.sites.alive[gateway]
	return ok && (incarnation == "" || a.Incarnation == incarnation)
}

// Living returns the gateways with a heartbeat, sorted, and whether the view is synced. Before that
// there may be more.
func (v *View) Living() (_ []string, synced bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.Sorted(maps.Keys(v.sites.alive)), v.synced
}

// First reports whether a gateway is the first of its organization that lives.
func (v *View) First(gateway string) bool {
	living, _ := v.Living()
	_, own, _ := v.Gateway(gateway)
	i := slices.IndexFunc(living, func(g string) bool {
		_, site, ok := v.Gateway(g)
		return ok && site.Organization == own.Organization
	})
	return i >= 0 && living[i] == gateway
}

// Gone reports whether a gateway had a heartbeat that ended. A gateway that never had one here may
// just have started.
func (v *View) Gone(gateway string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.sites.left[gateway]
}

// Beats returns how often the view heard that a gateway's heartbeat began or was renewed by another
// process. When it grows, others may have taken the gateway for dead in between.
func (v *View) Beats(gateway string) uint64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.sites.beats[gateway]
}

// Lost returns a person's declaration that a site is lost; false: nobody declared it.
func (v *View) Lost(site string) (federation.Lost, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	l, ok := v.sites.lost[site]
	return l, ok
}
