// SPDX-License-Identifier: Apache-2.0

package sieve

import (
	"strings"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
)

// index reads what the archive knows by other names than its keys. The caller holds mu.
func (s *Sieve) index() {
	if s.gateways != nil {
		return
	}
	s.gateways, s.names = map[string]string{}, map[string]string{}
	if !s.archives() {
		return
	}
	for _, kind := range []federation.Kind{federation.KindSite, federation.KindVolume} {
		all, err := s.guard.Archive().List(string(kind) + "/")
		if err != nil {
			continue
		}
		for _, r := range all {
			if !r.Deleted {
				s.named(r.Key, nil, r.Value)
			}
		}
	}
}

// named notes what a record says of names. The caller holds mu.
func (s *Sieve) named(key string, was, is []byte) {
	_, name, _ := strings.Cut(key, "/")
	switch signed.KindOf(key) {
	case federation.KindSite:
		for _, g := range signed.GatewaysOf(was) {
			if s.gateways[g] == name {
				delete(s.gateways, g)
			}
		}
		for _, g := range signed.GatewaysOf(is) {
			s.gateways[g] = name
		}
	case federation.KindVolume:
		if n := signed.NameOf(was); n != "" && s.names[n] == name {
			delete(s.names, n)
		}
		if n := signed.NameOf(is); n != "" {
			s.names[n] = name
		}
	}
}
