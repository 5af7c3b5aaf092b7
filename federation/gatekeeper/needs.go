// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/gatekeeper/papers"
	"github.com/weir-storage/weir/pki"
)

// needs returns the keys that the rules look at for a request, each once. Values that cannot be
// read need nothing: judge refuses them.
func needs(who pki.Identity, writes []write) []string {
	n := needed{has: map[string]bool{}}
	n.add(join(federation.KindSite, who.Site))
	for _, w := range writes {
		if !w.prefixed {
			n.of(w)
		}
	}
	return n.keys
}

type needed struct {
	keys []string
	has  map[string]bool
}

// add stops at more keys than a request can have.
func (n *needed) add(keys ...string) {
	for _, k := range keys {
		if len(n.keys) <= maxOps && !n.has[k] {
			n.keys, n.has[k] = append(n.keys, k), true
		}
	}
}

// volume adds what says whose a volume is, and whether it was purged.
func (n *needed) volume(uuid string) {
	n.add(join(federation.KindVolume, uuid), join(federation.KindPurged, uuid))
}

func (n *needed) of(w write) {
	if w.key == kindCharter {
		n.add(w.key)
		return
	}
	first := path(w.key, 1)
	if first == nil {
		return
	}
	switch kind := federation.Kind(kindOf(w.key)); kind {
	case federation.KindSite, federation.KindVolume, federation.KindControl, federation.KindKeyring, federation.KindPurged, kindName:
		n.add(w.key)
		n.single(kind, first[0], w)
	case federation.KindLost:
		n.gone(w)
		n.add(join(federation.KindSite, first[0]))
	case kindGateway:
		n.add(w.key)
		if len(w.value) > 0 {
			n.add(join(federation.KindSite, string(w.value)))
		}
	case federation.KindAlive, kindNotice, kindCanary:
		n.gone(w)
		n.add(kindGateway + "/" + first[0])
	case kindTestimony:
		g := path(w.key+"/", 2)[0]
		n.gone(w)
		n.add(kindGateway+"/"+g, kindNotice+"/"+g)
	case federation.KindAdmission, federation.KindAttachment:
		if p := path(w.key, 3); p != nil {
			n.gone(w)
			n.add(join(federation.KindSite, p[0]))
			n.volume(p[1])
			if a, err := decode[federation.Admission](w.key, w.value); kind == federation.KindAdmission && err == nil && a != nil &&
				a.Node != "" {
				n.add(join(federation.KindAttachment, p[0], p[1], a.Node))
			}
		}
	case federation.KindClaim:
		if p := path(w.key, 4); p != nil {
			n.gone(w)
			n.add(join(federation.KindSite, p[1]))
			n.volume(p[0])
		}
	case federation.KindPaper:
		n.add(w.key)
		n.add(papers.Keys(w.key, w.value, nil)...)
	case federation.KindObserved:
		if p := path(w.key, 2); p != nil {
			n.gone(w)
			n.add(kindGateway + "/" + p[1])
			n.volume(p[0])
		}
	}
}

// gone adds what a deletion deletes: if it is not there, anybody may.
func (n *needed) gone(w write) {
	if w.deletes {
		n.add(w.key)
	}
}

// single is of for kinds whose keys have one name.
func (n *needed) single(kind federation.Kind, name string, w write) {
	switch kind {
	case federation.KindSite:
		if s, err := decode[federation.Site](w.key, w.value); err == nil && s != nil {
			for _, g := range s.Gateways {
				n.add(kindGateway + "/" + g.Name)
			}
		}
	case federation.KindVolume, federation.KindPurged, federation.KindKeyring:
		n.volume(name)
		if v, err := decode[federation.Volume](w.key, w.value); kind == federation.KindVolume && err == nil && v != nil {
			for _, s := range v.Sites {
				n.add(join(federation.KindSite, s))
			}
		}
		n.add(join(federation.KindControl, name))
	case federation.KindControl:
		n.volume(name)
		n.add(join(federation.KindKeyring, name))
		n.add(kindReconciled)
		if c, err := decode[federation.Control](w.key, w.value); err == nil && c != nil {
			for _, m := range c.Members {
				n.add(kindGateway+"/"+m.Gateway, join(federation.KindSite, m.Site))
			}
		}
	}
}
