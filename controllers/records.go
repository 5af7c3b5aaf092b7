// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

// apply takes a change, and returns what it is about.
func (r *records) apply(e federation.Event, self plan.Self) []notice {
	switch e.Kind {
	case federation.KindVolume:
		return r.applyVolume(e, self)
	case federation.KindControl:
		if e.Err != nil {
			return nil // unknown, never deleted
		}
		return r.change(e.Name, self, false, func(v *entry) { v.control = trimmed(e.Control) })
	case federation.KindObserved:
		return r.applyObserved(e, self)
	case federation.KindClaim:
		return r.applyClaim(e, self)
	case federation.KindSite:
		return r.applySite(e)
	case federation.KindAlive:
		return r.applyAlive(e, self)
	case federation.KindLost:
		if e.Deleted {
			delete(r.lost, e.Name)
		} else if e.Lost != nil {
			r.lost[e.Name] = *e.Lost
		}
		return append(r.at(e.Name, self), notice{site: e.Name})
	}
	return nil
}

func (r *records) applyVolume(e federation.Event, self plan.Self) []notice {
	old := r.volumes[e.Name]
	if old != nil && old.noted && e.Revision < old.revision {
		return nil // older than what this operator wrote itself, and will be told
	}
	was, name := old != nil && old.concerns(self), ""
	if old != nil {
		name = old.name()
	}
	r.setVolume(e.Name, e.Volume, e.Revision, e.Err)
	is := r.volumes[e.Name]
	if is != nil && is.volume != nil {
		name = is.volume.Name
	}
	return []notice{{volume: e.Name, name: name, record: true, mine: was || is != nil && is.concerns(self)}}
}

// setVolume replaces a volume's record; nil removes it, or with a problem marks it unreadable.
func (r *records) setVolume(uuid string, v *federation.Volume, rev federation.Revision, problem error) {
	next := entry{}
	if old := r.volumes[uuid]; old != nil {
		next = *old
		if old.volume != nil && problem == nil {
			r.count(*old.volume, -1)
			delete(r.names, old.volume.Name)
		}
	}
	next.revision, next.problem, next.noted = rev, problem, false
	if problem == nil {
		next.volume = v
	}
	if v != nil {
		r.count(*v, 1)
		r.names[v.Name] = uuid
	}
	r.put(uuid, &next)
}

func (r *records) put(uuid string, e *entry) {
	if e.volume == nil && e.problem == nil && e.control == nil && len(e.observed) == 0 && len(e.claims) == 0 {
		delete(r.volumes, uuid)
		return
	}
	r.volumes[uuid] = e
}

// count adds a volume to its sites' loads, or takes it away. A deleted one counts until it is purged: its data is there.
func (r *records) count(v federation.Volume, sign int32) {
	for _, s := range v.Sites {
		r.promised[s] += v.Spec.Size * federation.Bytes(sign)
		if r.copies[s] += sign; r.copies[s] == 0 {
			delete(r.copies, s)
			delete(r.promised, s)
		}
	}
}

func (r *records) change(uuid string, self plan.Self, record bool, f func(*entry)) []notice {
	next := entry{}
	if old := r.volumes[uuid]; old != nil {
		next = *old
	}
	was := next.concerns(self)
	f(&next)
	r.put(uuid, &next)
	return []notice{{volume: uuid, name: next.name(), record: record, mine: was || next.concerns(self)}}
}

// trimmed leaves out what nobody here asks for: a history may be long.
func trimmed(c *federation.Control) *federation.Control {
	if c == nil {
		return nil
	}
	c.History = nil
	return c
}

func (r *records) applyObserved(e federation.Event, self plan.Self) []notice {
	uuid, gateway, _ := strings.Cut(e.Name, "/")
	if e.Err != nil {
		return nil
	}
	var before, after plan.View
	out := r.change(uuid, self, false, func(v *entry) {
		before = v.look(r)
		v.observed = maps.Clone(v.observed)
		if v.observed == nil {
			v.observed = map[string]*federation.Observed{}
		}
		delete(v.observed, gateway)
		if e.Observed != nil {
			v.observed[gateway] = e.Observed
		}
		after = v.look(r)
	})
	if reflect.DeepEqual(before, after) {
		return nil // gateways report all the time, mostly the same
	}
	return out
}

func (r *records) applyClaim(e federation.Event, self plan.Self) []notice {
	uuid, rest, _ := strings.Cut(e.Name, "/")
	if e.Err != nil {
		return nil
	}
	if site, claim, _ := strings.Cut(rest, "/"); site == self.Site {
		if r.claims[claim] == nil {
			r.claims[claim] = map[string]bool{}
		}
		r.claims[claim][uuid] = true
		if e.Deleted {
			delete(r.claims[claim], uuid)
		}
		if len(r.claims[claim]) == 0 {
			delete(r.claims, claim)
		}
	}
	return r.change(uuid, self, true, func(v *entry) {
		v.claims = maps.Clone(v.claims)
		if v.claims == nil {
			v.claims = map[string]federation.Claim{}
		}
		delete(v.claims, rest)
		if e.Claim != nil {
			v.claims[rest] = *e.Claim
		}
	})
}

func (r *records) applySite(e federation.Event) []notice {
	if e.Deleted {
		delete(r.sites, e.Name)
	} else if e.Site != nil {
		r.sites[e.Name] = *e.Site
	}
	return []notice{{site: e.Name}}
}

func (r *records) applyAlive(e federation.Event, self plan.Self) []notice {
	site := r.alive[e.Name].Site
	if e.Deleted {
		delete(r.alive, e.Name)
	} else if e.Alive != nil {
		r.alive[e.Name], site = *e.Alive, e.Alive.Site
	}
	return append(r.at(site, self), notice{site: site})
}

// at is about the volumes that have a copy at a site, and that concern this cluster.
func (r *records) at(site string, self plan.Self) []notice {
	var out []notice
	for uuid, v := range r.volumes {
		if v.concerns(self) && v.isAt(site) {
			out = append(out, notice{volume: uuid, name: v.name(), mine: true})
		}
	}
	return out
}

func (v *entry) name() string {
	if v.volume == nil {
		return ""
	}
	return v.volume.Name
}

// concerns tells whether a cluster shows the volume: it owns it, has a copy of it, or a claim on it.
func (v *entry) concerns(self plan.Self) bool {
	if v.volume == nil {
		return false
	}
	if self.Owns(*v.volume) || slices.Contains(v.volume.Sites, self.Site) {
		return true
	}
	for k := range v.claims {
		if strings.HasPrefix(k, self.Site+"/") {
			return true
		}
	}
	return false
}

func (v *entry) isAt(site string) bool {
	return v.volume != nil && slices.Contains(v.volume.Sites, site) ||
		v.control != nil && slices.ContainsFunc(v.control.Members, func(m federation.Member) bool { return m.Site == site })
}

// allClaims are sorted by site, namespace and name.
func (v *entry) allClaims() []federation.Claim {
	var out []federation.Claim
	for _, k := range slices.Sorted(maps.Keys(v.claims)) {
		out = append(out, v.claims[k])
	}
	return out
}

func (v *entry) claimsOf(site string) []federation.Claim {
	var out []federation.Claim
	for _, c := range v.allClaims() {
		if c.Site == site {
			out = append(out, c)
		}
	}
	return out
}

// home is what the present home has reported; nil while it has not.
func (v *entry) home() *federation.Observed {
	if v.control == nil {
		return nil
	}
	return v.observed[v.control.Home.Gateway]
}

// look makes the view of a volume. The caller holds the mirror's lock.
func (v *entry) look(r *records) plan.View {
	if v.volume == nil {
		return plan.View{}
	}
	return plan.Look(plan.Seen{Volume: *v.volume, Control: v.control, Observed: v.home(),
		Alive: func(gateway, incarnation string) bool {
			a, ok := r.alive[gateway]
			return ok && (incarnation == "" || a.Incarnation == incarnation)
		},
		Gateways: func(site string) []string {
			var out []string
			for _, g := range r.sites[site].Gateways {
				out = append(out, g.Name)
			}
			return out
		},
		Lost: func(site string) bool { _, ok := r.lost[site]; return ok },
	})
}

// view is what is shown of a volume.
func (m *mirror) view(e *entry) plan.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return e.look(&m.records)
}
