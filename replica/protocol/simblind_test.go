// SPDX-License-Identifier: Apache-2.0

package protocol

import "slices"

// turn makes a copy blind that has a key, or the other way round. A home hands over before. The
// sites' order says where the home should be, blind copies last.
func (s *sim) turn(n *node) {
	if s.chance(30) {
		s.leaves(n)
		return
	}
	blind := slices.Contains(s.policy.Blind, n.name)
	if !slices.Contains(s.policy.Sites, n.name) || len(s.policy.Blind) == 0 || !blind && (n.name == "a" || n.core == nil ||
		n.core.leading() || n.core.role == Candidate) {
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
	s.tellPolicyOf(n)
	s.restart(n, false, s.between(0, 300*ms))
}

// leaves takes a site out of the policy, or puts it back. A copy that is to go stays blind, or not.
func (s *sim) leaves(n *node) {
	without := func(site string) bool { return site == n.name }
	keyed := slices.DeleteFunc(slices.Clone(s.policy.Sites), func(site string) bool {
		return site == n.name || slices.Contains(s.policy.Blind, site)
	})
	switch {
	case !slices.Contains(s.policy.Sites, n.name):
		s.returns(n)
	case len(keyed) == 0 || len(s.policy.Sites) <= s.policy.Want:
		return
	default:
		s.policy.Sites = slices.DeleteFunc(slices.Clone(s.policy.Sites), without)
		s.policy.Heirs = append(slices.Clone(s.policy.Heirs), n.name)
		s.policy.Blind = slices.DeleteFunc(slices.Clone(s.policy.Blind), without)
	}
	s.tellPolicyOf(n)
}

// returns puts a site back into the policy, with a copy as it is.
func (s *sim) returns(n *node) {
	if slices.Contains(s.policy.Sites, n.name) {
		return
	}
	s.policy.Heirs = slices.DeleteFunc(slices.Clone(s.policy.Heirs), func(site string) bool { return site == n.name })
	if n.blind {
		s.policy.Sites, s.policy.Blind = append(slices.Clone(s.policy.Sites), n.name), append(slices.Clone(s.policy.Blind), n.name)
	} else {
		s.policy.Sites = slices.Insert(slices.Clone(s.policy.Sites), 0, n.name)
	}
}

func (s *sim) tellPolicyOf(n *node) {
	s.logf("%s: sites %v, blind copies %v", n.name, s.policy.Sites, s.policy.Blind)
	for _, n := range s.nodes {
		n.run(func() { n.step(PolicyChanged{s.policy}) })
	}
}
