// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"net/netip"
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
	volumes    map[string]federation.Volume
	names      map[string]string // volume name → UUID
	controls   map[string]controlAt
	admissions map[admissionKey]federation.Access
	changed    chan struct{} // closed and replaced by each change
}

type controlAt struct {
	control  federation.Control
	revision federation.Revision
}

type admissionKey struct {
	volume string
	client netip.Addr
}

func newMirror() *mirror {
	return &mirror{sites: map[string]federation.Site{}, alive: map[string]federation.Alive{}, volumes: map[string]federation.Volume{},
		names: map[string]string{}, controls: map[string]controlAt{}, admissions: map[admissionKey]federation.Access{}, changed: make(chan struct{})}
}

// take applies an event; site is this gateway's.
func (m *mirror) take(e federation.Event, site string) {
	if e.Err != nil {
		return // unknown is not changed
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e.Kind {
	case federation.KindSite:
		put(m.sites, e.Name, e.Site)
	case federation.KindAlive:
		put(m.alive, e.Name, e.Alive)
	case federation.KindVolume:
		if old, ok := m.volumes[e.Name]; ok {
			delete(m.names, old.Name)
		}
		put(m.volumes, e.Name, e.Volume)
		if e.Volume != nil && !e.Volume.Deleted {
			m.names[e.Volume.Name] = e.Name
		}
	case federation.KindControl:
		if e.Control == nil {
			delete(m.controls, e.Name)
		} else {
			m.controls[e.Name] = controlAt{*e.Control, e.Revision}
		}
	case federation.KindAdmission:
		m.admit(e, site)
	case federation.KindSynced:
		m.synced = true
	default:
		return
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

func put[T any](to map[string]T, name string, v *T) {
	if v == nil {
		delete(to, name)
	} else {
		to[name] = *v
	}
}

// admit takes in an admission; m.mu is held.
func (m *mirror) admit(e federation.Event, site string) {
	volume, at, client := admissionName(e.Name)
	if at != site {
		return
	}
	addr, err := netip.ParseAddr(client)
	if err != nil {
		return // the registry refuses such
	}
	if e.Admission == nil {
		delete(m.admissions, admissionKey{volume, addr})
	} else {
		m.admissions[admissionKey{volume, addr}] = e.Admission.Access
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

// living lists the gateways with a heartbeat.
func (m *mirror) living() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for name := range m.alive {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
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
