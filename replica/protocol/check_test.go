// SPDX-License-Identifier: Apache-2.0

package protocol

import "sort"

// The invariants that are checked after every event. They do not cover homes of epochs before a
// forced takeover: what these do does not count, and what only they have may be lost.

type truth struct {
	committed []entry // all that a home called committed, in order
	homes     map[uint64]string
	forced    uint64 // newest epoch that a person began
	written   int
	acked     int
	reads     int
	lent      int // of which at a gateway without a vote
	fresh     int
	installed int // copies that began with a checkpoint
	// Of those that began anew: blind ones, and keyed ones that began with what a steward had.
	blindAnew, anewOfSteward int
	condemned                []condemned
	anew                     int // copies that began anew because they were behind
	stewards                 int // reigns of blind copies that began
}

// committed is a node's Committed effect.
func (n *node) committed(pos Position) {
	s := n.sim
	if !n.applied.Less(pos) {
		s.fail("%s: commit goes from %v to %v", n.name, n.applied, pos)
	}
	n.applied = pos
	if k := n.log.index(pos); n.log.posAt(k) != pos || n.log.durable < k {
		s.fail("%s applies %v, durable here are %d of %d entries", n.name, pos, n.log.durable, k)
	}
	if !n.core.leading() || s.outside(n) {
		return
	}
	k := n.log.index(pos)
	if e := n.log.at(k); e.epoch != n.core.epoch {
		s.fail("%s commits %v before its epoch %d has begun on all members", n.name, e, n.core.epoch)
	}
	if both := min(k, len(s.truth.committed)); both > 0 && n.log.at(both) != s.truth.committed[both-1] {
		s.fail("%s commits %v where %v is committed", n.name, n.log.at(both), s.truth.committed[both-1])
	}
	if k > len(s.truth.committed) {
		s.truth.committed = append(s.truth.committed, n.log.entries[len(s.truth.committed):k]...)
		for _, o := range s.nodes {
			for len(o.seen) < k {
				o.seen = append(o.seen, o.clock())
			}
		}
	}
	for id, p := range n.waiting {
		if !pos.Less(p) {
			s.acked++
			delete(n.waiting, id)
		}
	}
}

// holds reports whether n has everything committed.
func (n *node) holds(durable bool) bool {
	k := len(n.sim.truth.committed)
	return k == 0 || n.log.at(k) == n.sim.truth.committed[k-1] && (!durable || n.log.durable >= k)
}

// began checks that an epoch has one home and that the record says where it begins.
func (s *sim) began(n *node, epoch uint64) {
	if !s.outside(n) {
		if h := s.homes[epoch]; h != "" {
			s.fail("epoch %d has two homes: %s and %s", epoch, h, n.name)
		}
		s.homes[epoch] = n.name
	}
	for _, r := range s.old {
		if r.ctl != nil && r.ctl.Epoch == epoch && (s.times == 0 || r.ctl.Home == n.member) {
			h := r.ctl.History[len(r.ctl.History)-1]
			if r.ctl.Home != n.member || h.Epoch != epoch || Position(h.Start) != n.log.end() {
				s.fail("%s begins epoch %d at %v, its record says %v at %v", n.name, epoch, n.log.end(), r.ctl.Home, h)
			}
			return
		}
	}
	s.fail("%s begins epoch %d, of which there is no record", n.name, epoch)
}

// leads checks that a home that begins to serve has its epoch's header on all members of the
// record.
func (s *sim) leads(n *node) {
	if n.blind {
		s.stewards++
	}
	record := s.authority()
	if s.outside(n) || record == nil || record.Epoch != n.core.epoch || len(s.rivals) > 0 {
		return
	}
	for _, o := range s.nodes {
		if record.IsMember(o.member) && o.joinable() && o.log.at(o.log.durable).epoch != n.core.epoch {
			s.fail("%s serves in epoch %d, which has not begun at %s", n.name, n.core.epoch, o.name)
		}
	}
}

// recorded follows a change of the record.
func (s *sim) recorded(forced bool, n *node) {
	if !forced {
		return
	}
	s.forced = s.ctl.Epoch
	k := min(len(s.truth.committed), n.log.durable)
	for k > 0 && s.truth.committed[k-1] != n.log.entries[k-1] {
		k--
	}
	if k < len(s.truth.committed) {
		s.logf("force loses %d entries", len(s.truth.committed)-k)
	}
	s.truth.committed = s.truth.committed[:k:k]
	for _, o := range s.nodes {
		o.seen = o.seen[:k:k]
	}
}

func (s *sim) check() {
	if s.failure != "" {
		return
	}
	s.checkReaders()
	var serving *node
	for _, n := range s.nodes {
		// protocol-2 and protocol-3: every member that has not lost its disk has everything
		// committed.
		if n.rewound && n.holds(true) {
			n.rewound = false // it has caught up
		}
		if r := s.authority(); r != nil && r.IsMember(n.member) && n.joinable() && !n.holds(true) && len(s.rivals) == 0 {
			s.fail("%s, member in epoch %d, does not hold what is committed, up to %v", n.name, s.ctl.Epoch,
				s.truth.committed[len(s.truth.committed)-1])
		}
		// protocol-3: a member has the log's whole past.
		if r := s.authority(); r != nil && r.IsMember(n.member) && n.joinable() && n.log.lacks > 0 && s.forced == 0 && len(s.rivals) == 0 {
			s.fail("%s, member in epoch %d, lacks the first %d entries", n.name, s.ctl.Epoch, n.log.lacks)
		}
		if n.core == nil || s.outside(n) {
			continue
		}
		now := n.clock()
		// protocol-4: one home serves.
		if n.core.reigns(now) {
			if serving != nil {
				s.fail("%s and %s both serve, in epochs %d and %d", serving.name, n.name, serving.core.epoch, n.core.epoch)
			}
			serving = n
		}
		// protocol-26: what a follower takes for fresh has all that was acknowledged by then.
		if at, pos, ok := n.core.Fresh(now, n.applied); ok {
			s.fresh++
			k := sort.Search(len(n.seen), func(i int) bool { return n.seen[i] >= at })
			if k > 0 && (n.log.at(k) != s.truth.committed[k-1] || pos.Less(n.log.posAt(k)) || n.applied.Less(pos)) {
				s.fail("%s, applied %v, takes %v for all that was acknowledged by %v, without %v", n.name, n.applied, pos, at,
					s.truth.committed[k-1])
			}
		}
		// protocol-26: a node that may read has everything that was acknowledged.
		if n.core.MayRead(now) {
			s.reads++
			if n.core.ctl != nil && !n.core.ctl.IsMember(n.member) && n.core.role == Follower {
				s.lent++
			}
			if !n.holds(false) {
				s.fail("%s reads in epoch %d without %v", n.name, n.core.epoch, s.truth.committed[len(s.truth.committed)-1])
			}
		}
	}
	// protocol-4 and protocol-5: when a node may take over because its promise has ended, no other
	// serves or reads.
	for _, n := range s.nodes {
		if n.core == nil {
			continue
		}
		// The machine may be suspended: its core must not see how time goes on.
		was := n.core.now
		n.core.now = max(was, n.clock())
		may := n.core.mayTakeOver()
		n.core.now = was
		if s.wentBack || !may || s.ctl == nil || !s.ctl.IsMember(n.member) || n.core.epoch < s.forced {
			continue
		}
		if n.core.ctl.Home == n.member && n.core.rev != s.rev {
			continue // by an old record it is home and need not wait; its swap will be refused
		}
		for _, o := range s.nodes {
			if o == n || o.core == nil || o.core.epoch < s.forced {
				continue
			}
			if o.core.reigns(o.clock()) || o.core.MayRead(o.clock()) && !n.core.released && !s.isHome(n) {
				s.fail("%s may take over while %s, in epoch %d, serves or reads", n.name, o.name, o.core.epoch)
			}
		}
	}
}
