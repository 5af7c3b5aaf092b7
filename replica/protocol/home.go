// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/weir-storage/weir/engine/segment"
)

// peersInOrder iterates in a fixed order, so that equal inputs give equal effects.
func (c *Core) peersInOrder() iter.Seq2[string, *peer] {
	return func(yield func(string, *peer) bool) {
		for _, g := range slices.Sorted(maps.Keys(c.peers)) {
			if p := c.peers[g]; p != nil && !yield(g, p) {
				return
			}
		}
	}
}

// fromFollower handles a follower's message to its home.
func (c *Core) fromFollower(m Message, end Position) {
	if !c.leading() || m.Epoch != c.epoch {
		return
	}
	p := c.whoSaid(m)
	if p == nil || !c.meet(p, m) {
		return
	}
	p.seen, p.wait = c.now, 0
	p.stamp = max(p.stamp, m.Stamp)
	switch m.Kind {
	case Lost:
		p.stamp = m.Stamp // its clock may have begun again
		if p.joined {
			p.joined, p.again = false, true
			c.emit(Unstream{To: m.From.Gateway})
		}
		p.whole = p.whole || m.Whole
		if c.begun != (Position{}) && c.lively() { // else beat greets it, when there is something to join
			c.greet(m.From.Gateway, p)
		}
		return
	case Welcome:
		p.again = false
		if c.lost(p, m) {
			return
		}
		if p.joined { // it joined again, and we had not noticed that it left
			c.emit(Unstream{To: m.From.Gateway})
		}
		if p.joined = false; m.Start.Less(c.log.Base) {
			c.send(m.From.Gateway, Message{Kind: Behind})
			return
		}
		if !p.matched || p.match.Less(m.End) {
			p.moved = c.now
		}
		p.joined, p.matched, p.match, p.stamp = true, true, m.End, m.Stamp
		p.proved = p.proved || m.Proved
		p.blind, p.absent = m.Blind, m.Lacks
		c.emit(Stream{To: m.From.Gateway, Epoch: c.epoch, From: m.Start})
	case Ack:
		if !p.joined {
			return
		}
		if p.match.Less(m.End) {
			p.match, p.moved = m.End, c.now
		}
		p.absent = m.Lacks
		c.followerReads(p, m.Reads, end)
	}
	if m.Grant > 0 && m.Echo > c.jumpedAt {
		p.promise, p.pledge = max(p.promise, m.Echo+relied(m.Grant)), m.Grant
	}
}

// lost reports whether the log that a follower welcomes us with lacks what that follower must have:
// what it acknowledged in this epoch, or, if it is a member, what is committed. Then it is not that
// member any more, and is told so.
func (c *Core) lost(p *peer, m Message) bool {
	var must Position
	if p.matched {
		must = p.match
	}
	if c.ctl.IsMember(p.member) {
		must = later(must, c.known)
	}
	if !m.End.Less(must) {
		return false
	}
	if p.joined {
		p.joined = false
		c.emit(Unstream{To: m.From.Gateway})
	}
	c.send(m.From.Gateway, Message{Kind: Refuse, Commit: must})
	return true
}

// proofAgain is how long a home waits until it asks a follower that did not prove its key again
// (protocol-17): keys come to gateways at different times.
func (c *Core) proofAgain() time.Duration { return max(4*c.cfg.Promise, 4*time.Second) }

// Stamp returns the Append message for frames that begin at start. The shell calls it for each
// message of a stream.
func (c *Core) Stamp(now Time, to string, start Position) Message {
	c.now = max(c.now, now)
	m := Message{Kind: Append, Start: start, Commit: c.commit}
	if p := c.peers[to]; p != nil {
		m = c.withLease(p, m)
	}
	m.From, m.Epoch, m.Stamp = c.cfg.Self, c.epoch, c.now
	return m
}

// leaving reports whether a swap under way would remove m.
func (c *Core) leaving(m Member) bool { return c.swap != nil && !c.swap.next.IsMember(m) }

// later returns the later of two positions.
func later(a, b Position) Position {
	if a.Less(b) {
		return b
	}
	return a
}

// forever is later than any reading of a clock.
const forever = Time(1<<63 - 1)

// servingUntil returns when the first of the promises that protocol-4 requires ends.
func (c *Core) servingUntil() Time {
	if c.role != Home {
		return 0
	}
	until := forever
	for _, m := range c.voters() {
		if m == c.cfg.Self {
			continue
		}
		p := c.peers[m.Gateway]
		if p == nil || p.member != m {
			return 0
		}
		until = min(until, p.promise)
	}
	return until
}

// voters returns the members; while a swap is under way, the old and the new ones.
func (c *Core) voters() []Member {
	if c.ctl == nil {
		return nil
	}
	if c.swap == nil {
		return c.ctl.Members
	}
	all := slices.Clone(c.ctl.Members)
	for _, m := range c.swap.next.Members {
		if !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}

// committable returns the position up to which all gateways that count for commit are durable.
func (c *Core) committable() Position {
	pos := c.log.Durable
	for _, m := range c.voters() {
		if m == c.cfg.Self {
			continue
		}
		p := c.peers[m.Gateway]
		if p == nil || p.member != m || !p.matched {
			return Position{}
		}
		pos = segment.Earlier(pos, p.match)
	}
	if p := c.peers[c.joining]; p != nil {
		pos = segment.Earlier(pos, p.match)
	}
	if c.lentUntil > c.now {
		return Position{}
	}
	for p := range c.borrowers() {
		if p.lease > c.now { // it reads, and may be no member
			pos = segment.Earlier(pos, p.match)
		}
	}
	c.lapsing = slices.DeleteFunc(c.lapsing, func(l lapse) bool { return l.until <= c.now })
	for _, l := range c.lapsing {
		if p := c.peers[l.gateway]; p != nil && p.matched {
			pos = segment.Earlier(pos, p.match)
		} else {
			return Position{}
		}
	}
	return pos
}

// degraded reports whether there are fewer members than the policy wants before it acknowledges.
func (c *Core) degraded() bool {
	return c.ctl == nil || len(c.ctl.Members) < c.policy.Want && !c.policy.Continue
}

// advance moves the commit position as far as it goes.
func (c *Core) advance() {
	if !c.leading() || c.begun == (Position{}) {
		return
	}
	pos := c.committable()
	if pos.Less(c.begun) {
		return
	}
	if c.degraded() {
		stall := c.begun
		if stall.Less(c.commit) {
			stall = c.commit
		}
		pos = segment.Earlier(pos, stall)
	}
	if c.commit.Less(pos) {
		c.commit, c.known = pos, later(c.known, pos)
		c.emit(Committed{Position: pos})
		for p := range c.borrowers() {
			p.changed()
		}
		for g, p := range c.peersInOrder() {
			if p.joined {
				c.send(g, c.withLease(p, Message{Kind: Advance, Commit: c.commit}))
			}
		}
	}
	if c.role == Starting {
		c.setRole(Home)
	}
}

// patience is how long a member may be silent before the home removes it.
func (c *Core) patience() time.Duration { return c.cfg.Promise * 3 / 4 }

func (c *Core) live(p *peer) bool {
	return p != nil && p.joined && c.heard(p)
}

// heard reports whether p sent a message lately and still promises. A gateway whose disk hangs goes
// on sending, but does not promise.
func (c *Core) heard(p *peer) bool { return c.now-p.seen < c.patience() && c.now < p.promise }

// stuckAfter is how long a member may store nothing while the home waits for it.
func (c *Core) stuckAfter() time.Duration { return max(5*c.cfg.Promise, 10*time.Second) }

// noteIdle notes which followers lack nothing that the home has on its disk.
func (c *Core) noteIdle() {
	for p := range c.borrowers() {
		if p.matched && !p.match.Less(c.log.Durable) {
			p.moved = c.now
		}
	}
}

// stuck reports whether p has stored nothing for long although it lacks something. It may well go
// on promising: a full pool syncs what it has.
func (c *Core) stuck(p *peer) bool { return p != nil && p.matched && c.now-p.moved > c.stuckAfter() }

// candidate returns the best follower that could become a member now, or "". A home whose epoch is
// not committed yet takes only one that has the whole log: it knows no better what is committed,
// and the beginning of its epoch would wait for the follower.
func (c *Core) candidate() string {
	if p := c.peers[c.moving]; p != nil && c.fits(p) {
		return c.moving
	}
	return c.best(c.policy.Sites, c.fits)
}

// fits reports whether p could become a member now.
func (c *Core) fits(p *peer) bool {
	return c.couldJoin(p) && (slices.Contains(c.policy.Sites, p.member.Site) || c.inherits(p))
}

// couldJoin is fits, whichever sites are to have a copy.
func (c *Core) couldJoin(p *peer) bool {
	return c.live(p) && p.absent == 0 &&
		!c.stuck(p) && c.vouched(p) && !c.ctl.IsMember(p.member) && c.commit.Seq <= p.match.Seq+1 && c.outlasts(p) &&
		(c.role == Home || !p.match.Less(c.begun))
}

// best returns the gateway of the first of the sites, which are in order of preference, that is
// good; "": none is.
func (c *Core) best(sites []string, good func(*peer) bool) string {
	for _, site := range sites {
		for g, p := range c.peersInOrder() {
			if p.member.Site == site && good(p) {
				return g
			}
		}
	}
	return ""
}

// accepted reports whether every member welcomed our log in this epoch. If one did not, our log may
// lack what it knows to be committed, and a copy that has our whole log may lack that too.
func (c *Core) accepted() bool {
	return c.begun != (Position{}) && !slices.ContainsFunc(c.ctl.Members, func(m Member) bool {
		p := c.peers[m.Gateway]
		return m != c.cfg.Self && (p == nil || p.member != m || !p.matched)
	})
}

// manageMembers lets the home change the members (protocol-3).
func (c *Core) manageMembers() {
	if c.swap != nil || c.ctl == nil || c.ctl.Epoch != c.epoch {
		return
	}
	var keep, silent []Member
	for _, m := range c.ctl.Members {
		if m == c.cfg.Self || c.holds(m) {
			keep = append(keep, m)
		} else {
			silent = append(silent, m)
		}
	}
	if p := c.peers[c.joining]; c.joining != "" && (!c.live(p) || c.stuck(p) || c.ctl.IsMember(p.member)) {
		c.joining = ""
	}
	moving := slices.DeleteFunc(slices.Clone(keep), func(m Member) bool { return m != c.cfg.Self && c.stuck(c.peers[m.Gateway]) })
	needed := c.staying(moving) < c.policy.Want
	if p := c.peers[c.moving]; p != nil && !c.votes(p) {
		needed = true
	}
	if c.joining == "" && needed && (c.role == Home || c.accepted()) {
		c.joining = c.candidate()
	}
	members := keep
	if p := c.peers[c.joining]; c.joining != "" && p != nil {
		if p.match.Less(later(c.commit, c.begun)) || !c.outlasts(p) {
			if len(silent) == 0 {
				return // commit waits for it from now on, so it catches up
			}
		} else {
			members = append(members, p.member)
		}
	}
	if len(moving) < len(keep) {
		rest := append(moving, members[len(keep):]...)
		if c.policy.Continue || c.staying(rest) >= c.policy.Want {
			members = rest
		}
	}
	if c.role == Home && c.moving == "" && c.joining == "" && len(silent) == 0 && len(members) > max(1, c.policy.Want) {
		members = c.fewest(members)
	}
	if slices.Equal(members, c.ctl.Members) {
		return
	}
	next := c.ctl.Clone()
	next.Members = members
	c.propose(next, false)
}

// staying counts the members whose site is to have a copy. A member of another site is kept until a
// new one has taken its place; then there are more members than wanted, and it is removed.
func (c *Core) staying(members []Member) (n int) {
	for _, m := range members {
		if m == c.cfg.Self || slices.Contains(c.policy.Sites, m.Site) {
			n++
		}
	}
	return n
}

// holds reports whether the home keeps member m. A new home gives every member some time to be
// heard.
func (c *Core) holds(m Member) bool {
	p := c.peers[m.Gateway]
	if p != nil && !p.could(m) {
		return false
	}
	return p != nil && c.heard(p) || c.now < c.startedAt+c.patience()
}

// fewest returns as many members as the policy wants: the home, then those of the most preferred
// sites, and last those that are stuck. Otherwise one that just came for a stuck one would go.
func (c *Core) fewest(members []Member) []Member {
	rank := func(m Member) int {
		if m == c.cfg.Self {
			return -1
		}
		if c.stuck(c.peers[m.Gateway]) {
			return len(c.policy.Sites) + 1
		}
		if i := slices.Index(c.policy.Sites, m.Site); i >= 0 {
			return i
		}
		return len(c.policy.Sites)
	}
	members = slices.Clone(members)
	slices.SortStableFunc(members, func(a, b Member) int { return rank(a) - rank(b) })
	return members[:max(1, c.policy.Want)]
}

// handOver moves the home to another gateway without loss. It stops changes, waits until that
// gateway has everything, and releases it from its promise. The next home gives members time by the
// promise that it is configured with, so no lease may last longer than half of that.
func (c *Core) handOver() {
	if c.moving == "" {
		return
	}
	if c.now >= c.moveEnd || c.isBlind(c.moving) {
		c.moving = ""
		c.emit(Resume{})
		return
	}
	p := c.peers[c.moving]
	if c.role != Home || c.swap != nil || !c.live(p) || !c.ctl.IsMember(p.member) || c.leased(c.now+p.pledge/2) || c.lent() {
		return
	}
	// The next home does not know of leases that former members still have.
	if len(c.lapsing) > 0 || c.commit != c.log.End || p.match != c.log.End || c.servingUntil() <= c.now {
		c.emit(Pause{})
		return
	}
	to := c.moving
	c.send(to, Message{Kind: Release, Commit: c.commit})
	c.yieldUntil = c.now + 2*c.cfg.Promise
	c.follow(c.epoch)
}
