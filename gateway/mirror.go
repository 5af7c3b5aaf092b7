// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/protocol"
)

// mirror is what the registry says, as far as this gateway has heard. Its one writer is the gateway's watch.
type mirror struct {
	mu         sync.Mutex
	synced     bool
	sites      map[string]federation.Site
	alive      map[string]federation.Alive // by gateway
	left       map[string]bool             // gateways whose heartbeat has ended and not begun again
	beats      map[string]uint64           // how often a gateway's heartbeat began
	volumes    map[string]federation.Volume
	controls   map[string]controlAt
	admissions admissions                 // at this gateway's site
	keyrings   map[string]map[string]bool // by volume: the sites that its data key is wrapped for
	admitted   map[string]bool            // names of all admissions
	users      map[siteKey]int            // how many of them each site has
	changed    chan struct{}              // closed and replaced by each change
	known      map[record]bool            // all records that were told and not removed
	listing    map[record]bool            // those that a watch which has just begun told, until it has told all
}

// record names one record of the registry.
type record struct {
	kind federation.Kind
	name string
}

type controlAt struct {
	control federation.Control
	over    context.Context // ends when a later epoch is heard of
	end     context.CancelFunc
}

type siteKey struct{ volume, site string }

func newMirror() *mirror {
	return &mirror{sites: map[string]federation.Site{}, alive: map[string]federation.Alive{}, left: map[string]bool{}, beats: map[string]uint64{},
		volumes: map[string]federation.Volume{}, controls: map[string]controlAt{}, admissions: newAdmissions(), keyrings: map[string]map[string]bool{},
		admitted: map[string]bool{}, users: map[siteKey]int{}, changed: make(chan struct{}), known: map[record]bool{}}
}

// begin is called before each watch, which lists everything first. What an earlier one told and that list does not name was removed in between.
func (m *mirror) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listing = map[record]bool{}
}

// take applies an event; site is this gateway's.
func (m *mirror) take(e federation.Event, site string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e.Kind {
	case federation.KindSite, federation.KindAlive, federation.KindVolume, federation.KindControl, federation.KindAdmission, federation.KindKeyring,
		federation.KindAttachment:
		m.told(e)
	case federation.KindSynced:
		m.forget(e.Revision, site)
	default:
		return // nothing here goes by it
	}
	if e.Err != nil {
		return // unknown is not changed
	}
	m.apply(e, site)
	m.admissions.heard(e.Revision)
	close(m.changed)
	m.changed = make(chan struct{})
}

// told notes that there is such a record, or none any more; m.mu is held.
func (m *mirror) told(e federation.Event) {
	r := record{e.Kind, e.Name}
	if e.Deleted {
		delete(m.known, r)
		delete(m.listing, r)
		return
	}
	m.known[r] = true
	if m.listing != nil {
		m.listing[r] = true
	}
}

// forget takes what begin's watch has not listed for removed; m.mu is held.
func (m *mirror) forget(revision federation.Revision, site string) {
	if m.listing == nil {
		return
	}
	for r := range m.known {
		if !m.listing[r] {
			delete(m.known, r)
			m.apply(federation.Event{Kind: r.kind, Name: r.name, Deleted: true, Revision: revision}, site)
		}
	}
	m.listing = nil
}

// apply changes what is known; m.mu is held.
func (m *mirror) apply(e federation.Event, site string) {
	switch e.Kind {
	case federation.KindSite:
		put(m.sites, e.Name, e.Site)
	case federation.KindAlive:
		put(m.alive, e.Name, e.Alive)
		if m.left[e.Name] = e.Alive == nil; e.Alive != nil {
			m.beats[e.Name]++
		}
	case federation.KindVolume:
		if had, ok := m.volumes[e.Name]; ok && !had.Deleted && (e.Volume == nil || e.Volume.Deleted) {
			m.admissions.ended[e.Name] = true
		}
		put(m.volumes, e.Name, e.Volume)
	case federation.KindControl:
		m.control(e)
	case federation.KindAdmission:
		m.admit(e, site)
	case federation.KindKeyring:
		m.wrapped(e)
	case federation.KindAttachment:
		m.admissions.attach(e, site)
	case federation.KindSynced:
		m.synced = true
	}
}

func put[T any](to map[string]T, name string, v *T) {
	if v == nil {
		delete(to, name)
	} else {
		to[name] = *v
	}
}

// control takes in a control record; m.mu is held.
func (m *mirror) control(e federation.Event) {
	old, ok := m.controls[e.Name]
	switch {
	case e.Control == nil:
		delete(m.controls, e.Name)
	case ok && old.control.Epoch == e.Control.Epoch:
		m.controls[e.Name] = controlAt{*e.Control, old.over, old.end}
		return
	default:
		over, end := context.WithCancel(context.Background())
		m.controls[e.Name] = controlAt{*e.Control, over, end}
	}
	if ok {
		old.end()
	}
}

// admit takes in an admission; m.mu is held.
func (m *mirror) admit(e federation.Event, site string) {
	volume, at, client := admissionName(e.Name)
	if is := e.Admission != nil; is != m.admitted[e.Name] {
		if is {
			m.admitted[e.Name] = true
			m.users[siteKey{volume, at}]++
		} else {
			delete(m.admitted, e.Name)
			if m.users[siteKey{volume, at}]--; m.users[siteKey{volume, at}] == 0 {
				delete(m.users, siteKey{volume, at})
			}
		}
	}
	if at == site {
		m.admissions.take(volume, client, e.Admission)
	}
}

// admissionName splits "site/volume/client".
func admissionName(name string) (volume, site, client string) {
	i := slices.Index([]byte(name), '/')
	if i < 0 {
		return "", "", ""
	}
	site, rest := name[:i], name[i+1:]
	j := slices.Index([]byte(rest), '/')
	if j < 0 {
		return "", "", ""
	}
	return rest[:j], site, rest[j+1:]
}

// wait returns a channel that is closed at the next change.
func (m *mirror) wait() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// isMember tells whether a log is a member of the volume, as last heard.
func (m *mirror) isMember(volume string, log protocol.Member) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.controls[volume]
	return ok && c.control.IsMember(log)
}

// reign is home, with a context that ends when a later epoch is heard of.
func (m *mirror) reign(volume string) (gateway string, epoch uint64, over context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.controls[volume]
	if !ok {
		return "", 0, context.Background()
	}
	return c.control.Home.Gateway, c.control.Epoch, c.over
}

// home returns the volume's home gateway and epoch as last heard, or "".
func (m *mirror) home(volume string) (gateway string, epoch uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.controls[volume]
	if !ok {
		return "", 0
	}
	return c.control.Home.Gateway, c.control.Epoch
}

// members lists the gateways of all sites with their present incarnations.
func (m *mirror) members() []protocol.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []protocol.Member
	for _, s := range m.sites {
		for _, g := range s.Gateways {
			out = append(out, protocol.Member{Gateway: g.Name, Site: s.Name, Incarnation: g.Incarnation})
		}
	}
	slices.SortFunc(out, func(a, b protocol.Member) int { return cmp.Compare(a.Gateway, b.Gateway) })
	return out
}

// gateway finds a gateway and its site.
func (m *mirror) gateway(name string) (federation.Gateway, federation.Site, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sites {
		for _, g := range s.Gateways {
			if g.Name == name {
				return g, s, true
			}
		}
	}
	return federation.Gateway{}, federation.Site{}, false
}

// living lists the gateways with a heartbeat, and tells whether the registry was heard out once: before, there may be more.
func (m *mirror) living() (_ []string, synced bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.alive)), m.synced
}

// gone tells whether a gateway's heartbeat was heard of and has ended. Who never was heard of may just have started.
func (m *mirror) gone(gateway string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.left[gateway]
}

// beat tells how often a gateway's heartbeat began, as far as heard. When it grows, others may have thought that the gateway was gone.
func (m *mirror) beat(gateway string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.beats[gateway]
}

// mayUse tells whether gateways of a site may use a volume: the site has a copy of it, or clients that are admitted.
func (m *mirror) mayUse(volume, site string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.volumes[volume].Sites, site) || m.users[siteKey{volume, site}] > 0
}

func (m *mirror) volume(uuid string) (federation.Volume, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.volumes[uuid]
	return v, ok
}

// allVolumes lists all volumes that are not deleted, and tells whether the registry was heard out once.
func (m *mirror) allVolumes() (synced bool, _ []federation.Volume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []federation.Volume
	for _, v := range m.volumes {
		if !v.Deleted {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b federation.Volume) int { return cmp.Compare(a.Name, b.Name) })
	return m.synced, out
}
