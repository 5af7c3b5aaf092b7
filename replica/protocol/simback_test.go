// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"

	"github.com/weir-storage/weir/federation"
)

// How the simulation's registry goes back, and is brought forward (protocol-7). The gateways' part,
// which is package federation's and not the Core's, is here as short as it goes: what a gateway
// knows of the record outlives its process, and it believes the registry only while that has
// nothing else.

// restoration is a registry that went back.
type restoration struct {
	wentBack bool
	another  bool              // with an identity of its own: who knows anything refuses it at first contact
	noticed  bool              // a gateway wrote that it did: nothing is swapped
	said     map[string]record // testimonies
	tip      record            // the newest that any gateway knew when it went back, and what came from it
	rivals   []record          // what was swapped at the registry since
	times    int               // that it went back
	branched int               // times that a person kept a branch
}

// restore puts the registry back to an earlier record, if there is one, and somebody knows what is
// lost. It is another registry, as `weir registry restore` makes it, or it looks like the one from
// before, as a snapshot of its disks does.
func (s *sim) restore(back int, another bool) bool {
	r, newest := s.record, s.record
	if s.wentBack || !slices.ContainsFunc(s.nodes, func(n *node) bool { return n.kept == newest }) {
		return false
	}
	for i := len(s.old) - 1; i > 0 && back > 0; i-- {
		if o := s.old[i]; o.ctl != nil && r.ctl.DescendsFrom(*o.ctl) && !o.ctl.DescendsFrom(*r.ctl) {
			r = o
			back--
		}
	}
	if r == newest {
		return false
	}
	s.record = r
	s.logf("the registry goes back to: %v", s.registry)
	s.restoration = restoration{wentBack: true, another: another, said: map[string]record{}, tip: newest, times: s.times + 1,
		branched: s.branched}
	return true
}

// sees returns what a gateway makes of a record that it read.
func (n *node) sees(r record) record {
	switch {
	case n.refuses:
		return n.kept
	case n.sim.another && n.kept.ctl != nil:
		n.refuse("it is another")
		return n.kept
	case r.ctl == nil || n.kept.ctl == nil || r.ctl.DescendsFrom(*n.kept.ctl):
		if r.ctl != nil && r.rev > n.kept.rev {
			n.kept = r
			n.sim.learn(r)
		}
		return r
	case n.kept.ctl.DescendsFrom(*r.ctl) && r != n.sim.record:
		return r // read before
	}
	n.refuse("it read " + registry{record: r}.String())
	return n.kept
}

func (n *node) refuse(why string) {
	n.sim.logf("%s refuses the registry: %s", n.name, why)
	n.refuses = true
}

// claims are all records that gateways testify, and the registry's own.
func (s *sim) claims() (out []federation.Control) {
	for _, n := range s.nodes {
		if r := s.said[n.name]; r.ctl != nil {
			out = append(out, *r.ctl)
		}
	}
	return append(out, *s.ctl)
}

// tend is a gateway's look at whether the registry went back.
func (s *sim) tend(n *node) {
	switch {
	case !s.reaches(n) || s.ctl == nil:
		return
	case !s.wentBack:
		if !n.refuses {
			return
		}
		if n.kept.ctl != nil && !s.ctl.DescendsFrom(*n.kept.ctl) {
			s.fail("%s does not believe the reconciled registry: it knows %v", n.name, registry{record: n.kept})
			return
		}
		s.logf("%s believes the registry", n.name)
		n.refuses, n.kept, n.accepted = false, s.record, n.accepted+1
		n.controlRead(s.record)
		return
	case n.refuses:
	case s.noticed:
		n.refuse("another does")
	case s.another && n.kept.ctl != nil:
		n.refuse("it is another")
	case n.kept.ctl != nil && !s.ctl.DescendsFrom(*n.kept.ctl):
		n.refuse("it has an older record, or another")
	default:
		return
	}
	s.noticed = true
	all := slices.DeleteFunc(s.claims(), func(c federation.Control) bool {
		return n.kept.ctl != nil && (n.kept.ctl.DescendsFrom(c) || !c.DescendsFrom(*n.kept.ctl))
	})
	tips := federation.Branches(all)
	if len(tips) == 1 {
		n.kept = record{&tips[0], n.kept.rev + 1}
		s.learn(n.kept)
	}
	s.said[n.name] = n.kept
	if len(tips) == 1 {
		n.controlRead(n.kept)
	}
}

// testify swaps a record in the testimony of its home.
func (s *sim) testify(n *node, e Swap) Swapped {
	old := n.kept
	if old.ctl == nil || old.ctl.Home.Gateway != n.name || e.Next.Home.Gateway != n.name || len(s.said) < len(s.nodes) || !s.wentBack {
		return Swapped{Outcome: SwapNotMade}
	}
	if old.rev != e.Previous {
		return Swapped{Outcome: SwapConflict}
	}
	for _, c := range s.claims() {
		switch {
		case old.ctl.DescendsFrom(c):
		case c.DescendsFrom(*old.ctl):
			return Swapped{Outcome: SwapConflict}
		default:
			return Swapped{Outcome: SwapNotMade}
		}
	}
	if err := federation.CheckSwap(old.ctl, e.Next); err != nil {
		s.fail("%s: %v", n.name, err)
	}
	c := e.Next.Clone()
	c.Succeed(old.ctl)
	n.kept = record{&c, old.rev + 1}
	s.said[n.name] = n.kept
	s.learn(n.kept)
	s.old = append(s.old, n.kept)
	s.logf("%s testifies: %v", n.name, registry{record: n.kept})
	return Swapped{SwapDone, n.kept.rev}
}

// learn follows the newest record of the branch from before.
func (s *sim) learn(r record) {
	if s.wentBack && s.tip.ctl != nil && r.ctl.DescendsFrom(*s.tip.ctl) {
		s.tip = r
	}
}

// reconcile is a person who brings the registry forward, once all have testified. Of branches, the
// person keeps one whose home is there: home, or any.
func (s *sim) reconcile(home string) bool {
	if !s.wentBack || !s.noticed || len(s.said) < len(s.nodes) || s.down {
		return false
	}
	all := s.claims()
	tips := federation.Branches(all)
	top := s.rev
	for _, n := range s.nodes {
		top = max(top, n.kept.rev)
		if n.core != nil {
			top = max(top, n.core.rev)
		}
	}
	kept := tips[0]
	if len(tips) > 1 {
		there := slices.DeleteFunc(slices.Clone(tips), func(c federation.Control) bool {
			n := s.node(c.Home.Gateway)
			return n.member != c.Home || !n.joinable() || home != "" && n.name != home
		})
		if len(there) == 0 {
			return false
		}
		kept = there[0]
		if home == "" {
			kept = there[s.rnd.IntN(len(there))]
		}
		x := federation.Correction{Key: "control/v", Branches: tips}
		i := slices.IndexFunc(tips, func(c federation.Control) bool { return c.DescendsFrom(kept) })
		err := x.Keep(x.Homes()[i], unsaid)
		kept = federation.Control{} // decoding would write into what others know
		if err == nil {
			err = federation.Decode("control", "v", x.Value, &kept)
		}
		if err != nil {
			s.fail("keep: %v", err)
		}
	}
	old := s.tip
	s.record = record{&kept, top + 1}
	s.old = append(s.old, s.record)
	rivals := s.rivals
	s.restoration = restoration{times: s.times, branched: s.branched + min(1, len(tips)-1)}
	s.logf("reconciled, of %d branches: %v", len(tips), s.registry)
	if len(tips) > 1 {
		had := len(s.truth.committed)
		n := s.node(kept.Home.Gateway)
		s.recorded(true, n)
		before := func(c federation.Control) bool { // the branch from before, and what came from it
			return c.Home == kept.Home && c.DescendsFrom(*old.ctl) &&
				!slices.ContainsFunc(rivals, func(r record) bool { return c.DescendsFrom(*r.ctl) })
		}
		if slices.ContainsFunc(tips, before) && len(s.truth.committed) < had {
			s.fail("the branch that is kept loses what was committed in it")
		}
	}
	return true
}

// outside reports whether what a gateway does is in a branch that may be given up, or before a
// forced takeover. A copy is in the branch of the home that it follows, even if it did not read a
// record of that branch yet.
func (s *sim) outside(n *node) bool {
	if n.core.epoch < s.forced || s.rival(n) {
		return true
	}
	return slices.ContainsFunc(s.rivals, func(r record) bool {
		home := s.node(r.ctl.Home.Gateway)
		return r.ctl.Epoch == n.core.epoch && home != n && s.rival(home) && n.core.home == home.name
	})
}

// rival reports whether what a gateway knows came from a record that was swapped at the registry
// after that went back.
func (s *sim) rival(n *node) bool {
	return n.kept.ctl != nil && slices.ContainsFunc(s.rivals, func(r record) bool { return n.kept.ctl.DescendsFrom(*r.ctl) })
}

// authority is the record by which the volume's gateways act.
func (s *sim) authority() *federation.Control {
	if s.wentBack {
		return s.tip.ctl
	}
	return s.ctl
}

// unsaid is nobody's word, where nobody checks it.
func unsaid(string, string, uint64, uint64) (string, error) { return "", nil }
