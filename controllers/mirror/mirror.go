// SPDX-License-Identifier: Apache-2.0

// Package mirror is the operator's view of the registry, and what the operator adds to it: which
// objects of the cluster a change is about (News), room that is reserved for volumes that are being
// placed, and whether the registry answers.
//
// All methods may be called from many goroutines. What they return is shared: read it, and do not
// change it.
package mirror

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/upkeep"
	"github.com/weir-storage/weir/federation/view"
)

// Mirror is the copy of the registry that the operator decides by.
type Mirror struct {
	*view.View
	self plan.Self

	mu      sync.Mutex
	down    error // why the registry does not answer; nil: it does
	pending map[string]reservation
	listen  []func(News)

	expelled func(organization string) bool // nil: nobody is
	// vouched says which labels of a site count; nil: all that it says of itself.
	vouched func(site string, own map[string]string) map[string]string
}

// reservation is room for a volume whose record is not in the registry yet.
type reservation struct {
	sites []string
	size  federation.Bytes
}

// New makes an empty mirror for a cluster's operator. Call Watch to fill it.
func New(self plan.Self) *Mirror {
	m := &Mirror{self: self, pending: map[string]reservation{},
		View: view.New(self.Site, federation.KindVolume, federation.KindControl, federation.KindObserved, federation.KindClaim,
			federation.KindSite, federation.KindAlive, federation.KindLost, federation.KindPurged,
			federation.KindCharter, federation.KindPaper)}
	m.View.Listen(m.changed)
	return m
}

// Expel has f say which organizations are not of the federation any more. f is called with locks
// held, and must not call the mirror. Call it before Watch.
func (m *Mirror) Expel(f func(organization string) bool) { m.expelled = f }

// Vouch has f say which labels of a site count, in place of those that it says of itself. f is
// called with locks held, and must not call the mirror. Call it before Watch.
func (m *Mirror) Vouch(f func(site string, own map[string]string) map[string]string) { m.vouched = f }

// Labels are those of a site that count.
func (m *Mirror) Labels(s federation.Site) map[string]string {
	if m.vouched == nil {
		return s.Labels
	}
	return m.vouched(s.Name, s.Labels)
}

// Expelled reports whether a site's organization is not of the federation any more.
func (m *Mirror) Expelled(site string) bool {
	s, ok := m.Site(site)
	return ok && m.expelled != nil && m.expelled(s.Organization)
}

// IsLost reports whether the copies of a site do not count: it was declared lost, or its
// organization was expelled.
func (m *Mirror) IsLost(site string) bool {
	_, lost := m.Lost(site)
	return lost || m.Expelled(site)
}

// Note takes in what this operator has just written, and ends the volume's reservation.
func (m *Mirror) Note(v federation.Volume, rev federation.Revision) {
	m.mu.Lock()
	defer m.mu.Unlock() // so that Candidates counts the room once
	delete(m.pending, v.UUID)
	m.View.Note(v, rev)
}

// Reserve keeps room at sites for a volume until Note or Release.
func (m *Mirror) Reserve(uuid string, sites []string, size federation.Bytes) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending[uuid] = reservation{sites, size}
}

// Release ends a volume's reservation, if there is one.
func (m *Mirror) Release(uuid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pending, uuid)
}

// Candidates returns the sites where a volume of an organization may be placed, by name. What is
// reserved for other volumes counts as promised.
func (m *Mirror) Candidates(uuid, owner string, now time.Time) []plan.Candidate {
	m.mu.Lock()
	defer m.mu.Unlock()
	rooms := map[string][]plan.Room{}
	if owner == m.self.Organization {
		for _, r := range m.rooms(uuid, paper.KindCopy, now) {
			rooms[r.Site] = append(rooms[r.Site], r)
		}
	}
	var out []plan.Candidate
	for _, s := range m.Sites() {
		promised, _ := m.Promised(s.Name)
		for id, r := range m.pending {
			if id != uuid && slices.Contains(r.sites, s.Name) {
				promised += r.size
			}
		}
		c := plan.Candidate{Name: s.Name, Organization: s.Organization, Region: s.Region, Labels: m.Labels(s),
			Keyed: len(s.WrapKey) > 0, Closed: !s.Takes(owner), Lost: m.IsLost(s.Name), Expelled: m.Expelled(s.Name),
			Capacity: s.Capacity, Promised: promised, Rooms: rooms[s.Name]}
		for _, g := range s.Gateways {
			c.Pools = append(c.Pools, g.Pools...)
		}
		out = append(out, c)
	}
	return out
}

// Rooms are the lent stores that this cluster's organization has by agreement at a time, for
// placing a volume.
func (m *Mirror) Rooms(uuid string, now time.Time) []plan.Room {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rooms(uuid, paper.KindStore, now)
}

// rooms are those of a kind. m.mu is held.
func (m *Mirror) rooms(uuid string, kind paper.Kind, now time.Time) (out []plan.Room) {
	for _, p := range m.Papers(string(paper.FormRequest) + "/") {
		r := p.Request
		if r == nil || r.Guest != m.self.Organization || r.Kind != kind {
			continue
		}
		a, _ := m.Paper(paper.AnswerName(r.ID))
		life := r.Life(a.Answer, now)
		// A copy stays by an agreement that is over, until it is elsewhere.
		stays := kind == paper.KindCopy && r.Agrees(a.Answer) && a.Answer.Ready != nil
		if !life.Reads() && !stays {
			continue
		}
		site, _ := m.Site(r.Site)
		x := plan.Room{Agreement: r.ID, Site: r.Site, Organization: r.Host, Region: site.Region, Labels: m.Labels(site), Amount: r.Amount,
			Writes: life.Writes(now), Ending: life.Phase != paper.Active || m.IsLost(r.Site)}
		x.Promised, _ = m.Promised(view.StoreLoad(r.ID))
		for id, reserved := range m.pending {
			if id != uuid && slices.Contains(reserved.sites, r.ID) {
				x.Promised += reserved.size
			}
		}
		out = append(out, x)
	}
	return out
}

// Stored reports whether a volume that has a copy at this site is to be in an agreement's store.
func (m *Mirror) Stored(agreement string) bool {
	if _, n := m.Promised(view.StoreLoad(agreement)); n == 0 {
		return false
	}
	all, _ := m.Volumes()
	return slices.ContainsFunc(all, func(v *view.Volume) bool {
		return v.Record != nil && slices.Contains(v.Record.Stores, agreement) && v.IsAt(m.self.Site)
	})
}

// Fills are the gateways that are the home of a volume that is to be in an agreement's store.
func (m *Mirror) Fills(agreement string) map[string]bool {
	out := map[string]bool{}
	if _, n := m.Promised(view.StoreLoad(agreement)); n == 0 {
		return out
	}
	all, _ := m.Volumes()
	for _, v := range all {
		if v.Record != nil && v.Control != nil && slices.Contains(v.Record.Stores, agreement) {
			out[v.Control.Home.Gateway] = true
		}
	}
	return out
}

// Stir has everything looked at again that an agreement is for, which has another state: volumes
// that are in its store, those in a store that ends, and those for which there was no room.
func (m *Mirror) Stir(agreement string, now time.Time) {
	moves := []string{agreement}
	m.mu.Lock()
	for _, r := range append(m.rooms("", paper.KindStore, now), m.rooms("", paper.KindCopy, now)...) {
		if r.Ending {
			moves = append(moves, r.Agreement)
		}
	}
	m.mu.Unlock()
	all, _ := m.Volumes()
	for _, v := range all {
		if v.Record != nil && slices.ContainsFunc(slices.Concat(v.Record.Stores, v.Record.Agreed),
			func(id string) bool { return slices.Contains(moves, id) }) {
			m.tell(News{Volume: v.UUID, Name: v.Name(), Record: true, Mine: m.Concerns(v)})
		}
	}
	m.tell(News{Site: m.self.Site})
}

// StirUnplaced has volumes looked at again for which there was no choice of sites.
func (m *Mirror) StirUnplaced() { m.tell(News{Site: m.self.Site}) }

// Down returns why the registry does not answer; nil: it does.
func (m *Mirror) Down() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down
}

// SetDown notes whether the registry answers. News of this cluster's site follow when that changes.
func (m *Mirror) SetDown(err error) {
	m.mu.Lock()
	changed := (m.down == nil) != (err == nil)
	m.down = err
	m.mu.Unlock()
	if changed {
		m.tell(News{Site: m.self.Site})
	}
}

// Mine returns the volumes that concern this cluster, by UUID.
func (m *Mirror) Mine() (volumes []string) {
	all, _ := m.Volumes()
	for _, v := range all {
		if m.Concerns(v) {
			volumes = append(volumes, v.UUID)
		}
	}
	return volumes
}

// Concerns reports whether this cluster shows a volume: it owns the volume, has a copy of it, or
// has a claim on it. No cluster shows a volume without a record.
func (m *Mirror) Concerns(v *view.Volume) bool {
	if v == nil || v.Record == nil {
		return false
	}
	if m.self.Owns(*v.Record) || slices.Contains(v.Record.Sites, m.self.Site) {
		return true
	}
	for k := range v.Claims {
		if strings.HasPrefix(k, m.self.Site+"/") {
			return true
		}
	}
	return false
}

// scrubs are what gateways reported of their own copies.
func scrubs(v *view.Volume) map[string]*upkeep.Scrubbed {
	out := map[string]*upkeep.Scrubbed{}
	for gateway, o := range v.Observed {
		out[gateway] = o.Scrub
	}
	return out
}

// Look returns what is shown of a volume; v is nil when nothing is known of it.
func (m *Mirror) Look(v *view.Volume) plan.View {
	if v == nil || v.Record == nil {
		return plan.View{}
	}
	return plan.Look(plan.Seen{Volume: *v.Record, Control: v.Control, Observed: v.ObservedByHome(), Alive: m.IsAlive,
		Gateways: func(site string) []string {
			s, _ := m.Site(site)
			var out []string
			for _, g := range s.Gateways {
				out = append(out, g.Name)
			}
			return out
		},
		Lost: m.IsLost, Scrubs: scrubs(v),
	})
}
