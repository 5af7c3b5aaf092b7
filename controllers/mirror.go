// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

// mirror is a copy of the registry's records that the operator decides by. Its methods may be called from many goroutines; what they
// return is the caller's to read, and shared, so not to change.
type mirror struct {
	self plan.Self

	mu sync.Mutex
	records
	synced  bool
	loading *records // what a watch that has just begun told, until it has told everything
	seen    federation.Revision
	down    error // why the registry does not answer, when it does not
	pending map[string]reservation
	tell    []func(notice)
}

// notice is what a change is about. Exactly one of volume and site is set.
type notice struct {
	volume, name string // name: of the volume, if known
	// record: its desired state or a claim changed; else only what is observed.
	record bool
	// mine: the volume concerns this cluster: it owns it, has a copy, or a claim.
	mine bool
	site string
}

// reservation is room that is being promised: a placement that is not in the registry yet.
type reservation struct {
	sites []string
	size  federation.Bytes
}

// records is what is kept of the registry.
type records struct {
	volumes map[string]*entry
	names   map[string]string // uuid by name
	sites   map[string]federation.Site
	alive   map[string]federation.Alive
	lost    map[string]federation.Lost
	// promised is how much of each site's capacity volumes may take, and copies how many have one there.
	promised map[string]federation.Bytes
	copies   map[string]int32
	// claims are this site's: volumes by namespace/name.
	claims map[string]map[string]bool
}

// entry is one volume. It is replaced, never changed.
type entry struct {
	volume   *federation.Volume
	revision federation.Revision
	noted    bool  // by this operator, and not told by the watch yet
	problem  error // the record cannot be read
	control  *federation.Control
	observed map[string]*federation.Observed // by gateway
	claims   map[string]federation.Claim     // by site/namespace/name
}

func newRecords() *records {
	return &records{volumes: map[string]*entry{}, names: map[string]string{}, sites: map[string]federation.Site{}, alive: map[string]federation.Alive{},
		lost: map[string]federation.Lost{}, promised: map[string]federation.Bytes{}, copies: map[string]int32{}, claims: map[string]map[string]bool{}}
}

func newMirror(self plan.Self) *mirror {
	return &mirror{self: self, records: *newRecords(), pending: map[string]reservation{}}
}

// listen has f called with every change from now on. It must not wait, nor call the mirror.
func (m *mirror) listen(f func(notice)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tell = append(m.tell, f)
}

// watch follows the registry until ctx ends or the watch fails. It may be called again: what vanished meanwhile is then noticed.
func (m *mirror) watch(ctx context.Context, w federation.Watcher) error {
	m.mu.Lock()
	m.loading = newRecords()
	m.mu.Unlock()
	return w.Watch(ctx, func(e federation.Event) error {
		m.take(e)
		return nil
	})
}

func (m *mirror) take(e federation.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = max(m.seen, e.Revision)
	var about []notice
	switch {
	case e.Kind == federation.KindSynced && m.loading != nil:
		old := m.records
		m.records, m.loading, m.synced = *m.loading, nil, true
		about = m.everything(&old)
	case e.Kind == federation.KindSynced:
	case m.loading != nil:
		m.loading.apply(e, m.self)
	default:
		about = m.records.apply(e, m.self)
	}
	for _, n := range about {
		for _, f := range m.tell {
			f(n)
		}
	}
}

// everything is about all that is known now or was before.
func (m *mirror) everything(old *records) []notice {
	var out []notice
	for _, r := range []*records{&m.records, old} {
		for uuid, v := range r.volumes {
			out = append(out, notice{volume: uuid, name: v.name(), record: true, mine: v.concerns(m.self)})
		}
		for s := range r.sites {
			out = append(out, notice{site: s})
		}
	}
	return out
}

// note takes what this operator has just written, so that its next decision counts with it.
func (m *mirror) note(v federation.Volume, rev federation.Revision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pending, v.UUID)
	if e := m.volumes[v.UUID]; e == nil || rev > e.revision {
		m.records.setVolume(v.UUID, &v, rev, nil)
		m.volumes[v.UUID].noted = true
	}
}

// reserve keeps room at sites for a volume until its record is noted, or release.
func (m *mirror) reserve(uuid string, sites []string, size federation.Bytes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending[uuid] = reservation{sites, size}
}

func (m *mirror) release(uuid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pending, uuid)
}

// ready tells whether the mirror has been filled, and if not, why.
func (m *mirror) ready() (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.synced, m.down
}

// setDown takes note of whether the registry answers, and tells the local site when that changes.
func (m *mirror) setDown(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := (m.down == nil) != (err == nil)
	m.down = err
	if changed {
		for _, f := range m.tell {
			f(notice{site: m.self.Site})
		}
	}
}

// volume returns what is known of a volume; nil: nothing.
func (m *mirror) volume(uuid string) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.volumes[uuid]
}

// named finds a volume by name or UUID; nil: there is none.
func (m *mirror) named(name string) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	if uuid, ok := m.names[name]; ok {
		name = uuid
	}
	if e := m.volumes[name]; e != nil && e.volume != nil {
		return e
	}
	return nil
}

// claimed lists the volumes that a GeoVolume or claim of this site's cluster has a claim on.
func (m *mirror) claimed(namespace, name string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.claims[namespace+"/"+name]))
}

// mine lists the volumes that concern this cluster, and the claims (namespace/name) that it has.
func (m *mirror) mine() (volumes, claims []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uuid, v := range m.volumes {
		if v.concerns(m.self) {
			volumes = append(volumes, uuid)
		}
	}
	return volumes, slices.Collect(maps.Keys(m.claims))
}

// site returns a site's record.
func (m *mirror) site(name string) (federation.Site, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.sites[name]
	return s, ok
}

// siteNames lists all sites.
func (m *mirror) siteNames() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.sites))
}

// load is how much of a site is promised, and to how many copies.
func (m *mirror) load(site string) (federation.Bytes, int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.promised[site], m.copies[site]
}

// candidates are the sites to place a volume at. Reservations of others count as promised.
func (m *mirror) candidates(uuid string) []plan.Candidate {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]plan.Candidate, 0, len(m.sites))
	for name, s := range m.sites {
		_, lost := m.lost[name]
		c := plan.Candidate{Name: name, Organization: s.Organization, Region: s.Region, Labels: s.Labels, Keyed: len(s.WrapKey) > 0, Lost: lost,
			Capacity: s.Capacity, Promised: m.promised[name]}
		for id, r := range m.pending {
			if id != uuid && slices.Contains(r.sites, name) {
				c.Promised += r.size
			}
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b plan.Candidate) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// isAlive tells whether a gateway has a heartbeat, with that incarnation if one is given.
func (m *mirror) isAlive(gateway, incarnation string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.alive[gateway]
	return ok && (incarnation == "" || a.Incarnation == incarnation)
}

// isLost tells whether a person declared the site lost.
func (m *mirror) isLost(site string) (federation.Lost, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.lost[site]
	return l, ok
}
