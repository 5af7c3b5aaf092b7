// SPDX-License-Identifier: Apache-2.0

package protocol

import "slices"

// turn makes a copy blind that has a key, or the other way round. A home hands over before. The
// sites' order says where the home should be, blind copies last.
func (s *sim) turn(n *node) {
	blind := slices.Contains(s.policy.Blind, n.name)
	if len(s.policy.Blind) == 0 || !blind && (n.name == "a" || n.core == nil || n.core.leading() || n.core.role == Candidate) {
		return
	}
	without := func(list []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(site string) bool { return site == n.name })
	}
	s.policy.Sites, s.policy.Blind = without(s.policy.Sites), without(s.policy.Blind)
	if blind {
		s.policy.Sites = slices.Insert(s.policy.Sites, 1, n.name)
	} else {
		s.policy.Sites, s.policy.Blind = append(s.policy.Sites, n.name), append(s.policy.Blind, n.name)
	}
	s.logf("blind copies: %v", s.policy.Blind)
	for _, n := range s.nodes {
		n.run(func() { n.step(PolicyChanged{s.policy}) })
	}
	s.restart(n, false, s.between(0, 300*ms))
}
