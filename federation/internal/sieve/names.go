// SPDX-License-Identifier: Apache-2.0

package sieve

import (
	"strings"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/internal/records"
	"github.com/weir-storage/weir/federation/signed"
)

// names are what is known by other names than keys: gateways of sites, and names of volumes.
type names struct {
	sites    map[string]string   // by gateway
	gateways map[string][]string // by site
	volumes  map[string]string   // UUIDs by name
	called   map[string]string   // names by UUID
}

// newNames returns the names in what an archive has; of those keys only that present has, nil: all.
func newNames(archive federation.Archive, present map[string]bool) *names {
	n := &names{sites: map[string]string{}, gateways: map[string][]string{}, volumes: map[string]string{}, called: map[string]string{}}
	if archive == nil {
		return n
	}
	for _, kind := range []federation.Kind{federation.KindSite, federation.KindVolume} {
		all, err := archive.List(string(kind) + "/")
		if err != nil {
			continue // then less is known
		}
		for _, r := range all {
			if !r.Deleted && (present == nil || present[r.Key]) {
				n.note(r.Key, r.Value)
			}
		}
	}
	return n
}

// note takes in what a record says now; nil: it is gone.
func (n *names) note(key string, value []byte) {
	_, name, _ := strings.Cut(key, "/")
	switch signed.KindOf(key) {
	case federation.KindSite:
		for _, g := range n.gateways[name] {
			delete(n.sites, g)
		}
		if n.gateways[name] = signed.GatewaysOf(value); len(n.gateways[name]) == 0 {
			delete(n.gateways, name)
		}
		for _, g := range n.gateways[name] {
			n.sites[g] = name
		}
	case federation.KindVolume:
		if was := n.called[name]; n.volumes[was] == name {
			delete(n.volumes, was)
		}
		delete(n.called, name)
		if is := signed.NameOf(value); is != "" {
			n.volumes[is], n.called[name] = name, is
		}
	}
}

// known is the site of a gateway, or the volume of a name; "": none is known.
func (n *names) known(key string) string {
	kind, name, _ := strings.Cut(key, "/")
	if kind == "gateway" {
		return n.sites[name]
	}
	return n.volumes[name]
}

// names returns the index. The caller holds mu.
func (s *Sieve) index() *names {
	if s.names == nil {
		var archive federation.Archive
		if s.archives() {
			archive = s.guard.Archive()
		}
		s.names = newNames(archive, nil)
	}
	return s.names
}

// renamed begins the index anew with a list of all that there is.
func (s *Sieve) renamed(pairs []records.Pair) {
	var archive federation.Archive
	if s.archives() {
		archive = s.guard.Archive()
	}
	present := map[string]bool{}
	for _, p := range pairs {
		present[p.Key] = true
	}
	n := newNames(archive, present)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = n
}
