// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"time"
)

// fillForGood leaves pools without room until the end.
func (s *sim) fillForGood() {
	for range 1 + s.rnd.IntN(len(s.nodes)-2) {
		s.fill(s.pick(nil), time.Hour)
	}
}

// even configures all gateways with one promise again.
func (s *sim) even() {
	s.mixed = false
	for _, n := range s.nodes {
		if n.promise != promise {
			n.promise = promise
			s.restart(n, false, 0)
		}
	}
}

// settle ends all faults, except perhaps that a pool is full, and checks that the volume comes back
// with everything that was committed, or says for what it waits, and then stays as it is.
func (s *sim) settle() {
	s.bias = func(string, *node, *node) {}
	stays := s.chance(50) // a copy that is to go is still there, and follows whoever is home
	for _, n := range s.nodes {
		keyed := slices.ContainsFunc(s.policy.Sites, func(site string) bool { return !slices.Contains(s.policy.Blind, site) })
		if stays && keyed && !slices.Contains(s.policy.Sites, n.name) && len(s.policy.Sites) >= s.policy.Want {
			s.left++
			stays = false
			continue
		}
		s.returns(n)
	}
	s.tellPolicyOf(s.nodes[0])
	s.mishap = 0
	filled := s.chance(25) && len(s.policy.Sites) == len(s.nodes)
	if filled {
		s.fillForGood()
	}
	s.load(10 * time.Second) // everything that was scheduled ends
	s.down = false
	clear(s.unheard)
	s.nowatch = false
	for _, n := range s.nodes {
		n.start()
		n.run(func() { n.controlRead(s.record) }) // watches begin again, and list what there is
	}
	for range 8 {
		// A person brings it forward when all have spoken, and then all believe it.
		if s.wentBack || slices.ContainsFunc(s.nodes, func(n *node) bool { return n.refuses }) {
			s.load(5 * time.Second)
		}
	}
	if s.mixed {
		s.even()
		s.load(4 * 3 * promise)
	}
	if filled {
		s.load(30 * time.Second)
	}
	s.load(14 * time.Second)
	acked, record := s.acked, s.record
	s.load(5 * time.Second)
	if s.record != record && s.failure == "" {
		s.fail("the record changes without a reason")
	}
	gained := s.acked - acked
	s.advance(2 * time.Second)
	if s.failure != "" {
		return
	}
	var home *node
	for _, n := range s.nodes {
		switch {
		case n.core == nil:
			s.fail("%s does not come back", n.name)
			return
		case n.core.role == Home && home != nil:
			s.fail("two homes at the end: %s and %s", home.name, n.name)
			return
		case n.core.role == Home:
			home = n
		}
	}
	if filled && s.waitsForRoom(gained) {
		return
	}
	switch {
	case home != nil && home.blind:
		s.fail("%s, which is blind, is home at the end", home.name)
		return
	case home == nil || gained == 0 || !home.core.MayServe(home.clock()):
		s.fail("the volume does not come back: home %v, %d acknowledged, record %v", home != nil, gained, s.registry)
		return
	case len(s.ctl.Members) != s.policy.Want && !(filled && s.policy.Continue && len(s.ctl.Members) == s.well(home)):
		s.fail("%d members at the end, %d wanted", len(s.ctl.Members), s.policy.Want)
	case !slices.Equal(home.log.entries[:len(s.truth.committed)], s.truth.committed):
		s.fail("the home's log is not what was committed")
	}
	for _, n := range s.nodes {
		have := len(home.log.entries)
		if n.full > s.now {
			have = min(have, len(n.log.entries))
		}
		if !slices.Equal(n.log.entries, home.log.entries[:have]) {
			s.fail("%s ends at %v and differs from the home, which ends at %v", n.name, n.log.end(), home.log.end())
		}
		if s.ctl.IsMember(n.member) && n.core.MayRead(n.clock()) == n.blind {
			s.fail("%s, a member, may read: %t; it is blind: %t", n.name, !n.blind, n.blind)
		}
	}
}

// well counts the gateways that can store, of which home is one.
func (s *sim) well(home *node) (n int) {
	for _, o := range s.nodes {
		if o == home || o.full <= s.now {
			n++
		}
	}
	return n
}

// waitsForRoom reports whether nothing was gained because a member is full. That must be so only if
// no other copy can take its place, and the home must name the member.
func (s *sim) waitsForRoom(gained int) bool {
	i := slices.IndexFunc(s.nodes, func(n *node) bool { return n.core.leading() })
	if gained > 0 || i < 0 {
		return false
	}
	home := s.nodes[i]
	if home.blind && home.core.role == Home { // else it waits for a member that is full
		if j := slices.IndexFunc(s.nodes, func(n *node) bool { return !n.blind && n.full <= s.now }); j >= 0 {
			s.fail("%s, which is blind, leads, and %s could", home.name, s.nodes[j].name)
		}
		return true
	}
	status := home.core.Status(home.clock())
	stuck := func(p PeerStatus) bool {
		return p.Vote && p.Answers && p.Stuck > 0 && s.node(p.Member.Gateway).full > s.now
	}
	switch {
	case !status.Stalled && !slices.ContainsFunc(status.Peers, stuck):
		s.fail("%s, %v, waits and neither lacks members nor names one that is stuck", home.name, home.core.role)
	case s.policy.Continue || s.well(home) >= s.policy.Want:
		s.fail("%s, %v, waits for a member that is full: %d could store", home.name, home.core.role, s.well(home))
	}
	return true
}
