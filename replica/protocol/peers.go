// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"time"
)

// Whom a home speaks to: the gateways that have a copy of the volume, or may have one (ADR 44).

// peer is what the home knows of another gateway.
type peer struct {
	member  Member // without its Log until met
	met     bool   // a message told which log it has
	joined  bool
	again   bool // it asked for a new stream, and its Welcome has not come
	matched bool // match is valid: the peer sent Welcome in this epoch
	proved  bool
	blind   bool   // it said so
	absent  uint64 // bytes of the log's past that it does not have yet
	match   Position
	seen    Time // when its last message came
	stamp   Time // newest Stamp of its clock
	promise Time // its promise is valid until then
	borrower
	pledge  Time // how long its newest promise was
	greeted Time
	wait    time.Duration // from then until it is greeted again, if it does not answer
	whole   bool          // the newest epochs of a greeting are not enough for it
	moved   Time          // when it last stored something, or lacked nothing
}

// setPeers accepts the list of the federation's gateways.
func (c *Core) setPeers(members []Member) {
	before := c.gateways
	c.gateways = members
	if c.leading() && c.now < c.quietEnd {
		c.lapseNew(before)
	}
	c.choosePeers()
}

// lapseNew assumes that every gateway of the federation that is not a member, and not in before,
// has a lease until quietEnd. It may have a copy of which this gateway knows nothing.
func (c *Core) lapseNew(before []Member) {
	for _, m := range c.gateways {
		p := c.peers[m.Gateway]
		if p == nil {
			p = &peer{member: m}
		}
		was := slices.ContainsFunc(before, func(b Member) bool { return b.Gateway == m.Gateway })
		if m.Gateway != c.cfg.Self.Gateway && !was && !c.votes(p) {
			c.lapsing = append(c.lapsing, lapse{m.Gateway, c.quietEnd})
		}
	}
}

// choosePeers makes peers of the gateways that this volume concerns, and of no others. It is called
// when that may have changed.
func (c *Core) choosePeers() {
	for _, m := range c.gateways {
		p := c.peers[m.Gateway]
		if p != nil && p.member.Pool() != m { // another incarnation: another log
			if p.joined && c.leading() {
				c.emit(Unstream{To: m.Gateway})
			}
			*p = peer{member: m, borrower: p.borrower}
		}
		if p == nil && m.Gateway != c.cfg.Self.Gateway && c.concerns(m) {
			c.peers[m.Gateway] = &peer{member: m}
		}
	}
	for g, p := range c.peersInOrder() {
		if i := slices.IndexFunc(c.gateways, func(m Member) bool { return m.Gateway == g }); i >= 0 && c.concerns(c.gateways[i]) {
			continue
		}
		if p.joined && c.leading() {
			c.emit(Unstream{To: g})
		}
		if p.lease > c.now {
			c.lapsing = append(c.lapsing, lapse{g, p.lease})
		}
		delete(c.peers, g)
	}
}

// concerns reports whether gateway m has a copy of the volume, or may have one: its site is to have
// one, the record counts on it, or it answered in this epoch. Any other that has one asks the home
// (call). A steward looks for heirs too.
func (c *Core) concerns(m Member) bool {
	p := c.peers[m.Gateway]
	return p != nil && p.met || m.Gateway == c.moving || slices.Contains(c.policy.Sites, m.Site) ||
		c.cfg.Blind && slices.Contains(c.policy.Heirs, m.Site) ||
		slices.ContainsFunc(c.voters(), func(v Member) bool { return v.Gateway == m.Gateway })
}

// listed reports whether m's gateway is in the federation, with that pool.
func (c *Core) listed(m Member) bool { return slices.Contains(c.gateways, m.Pool()) }

// whoSaid returns the peer that sent m, or nil. A gateway that has a copy of which the home knew
// nothing becomes a peer with its first word.
func (c *Core) whoSaid(m Message) *peer {
	p := c.peers[m.From.Gateway]
	if p == nil && m.From.Gateway != c.cfg.Self.Gateway && c.listed(m.From) {
		p = &peer{member: m.From.Pool()}
		c.peers[m.From.Gateway] = p
	}
	if p == nil || p.member.Pool() != m.From.Pool() {
		return nil
	}
	return p
}

// meet notes which log a follower has, and reports whether m is of the log that it has now. A
// follower that began anew is met with its Welcome.
func (c *Core) meet(p *peer, m Message) bool {
	switch {
	case !p.met:
		p.member, p.met = m.From, true
	case p.member == m.From:
	case m.Kind != Welcome:
		if c.now-p.greeted >= c.cfg.Heartbeat && c.lively() {
			c.greet(m.From.Gateway, p)
		}
		return false
	default:
		if p.joined {
			c.emit(Unstream{To: m.From.Gateway})
		}
		*p = peer{member: m.From, met: true, borrower: p.borrower, greeted: p.greeted}
	}
	return true
}

// could reports whether p may be the member m, as far as is known.
func (p *peer) could(m Member) bool {
	return p.member == m || !p.met && p.member.Pool() == m.Pool()
}

// votes reports whether p is a member, or may be one.
func (c *Core) votes(p *peer) bool {
	return c.ctl != nil && slices.ContainsFunc(c.ctl.Members, p.could)
}

func (c *Core) greet(gateway string, p *peer) {
	p.greeted = c.now
	c.send(gateway, Message{Kind: Hello, Epochs: slices.Clone(c.log.Epochs), Forced: c.forced(), End: c.log.End,
		Whole: p.whole})
}

// forced lists the epochs that a person forced.
func (c *Core) forced() (out []uint64) {
	for _, e := range c.ctl.History {
		if e.Forced {
			out = append(out, e.Epoch)
		}
	}
	return out
}

// beat sends a Beat or a Hello to every follower, which renews the members' promises.
func (c *Core) beat() {
	if c.begun == (Position{}) {
		return // the epoch is not in our own log yet
	}
	for g, p := range c.peersInOrder() {
		switch {
		case p.joined && !c.vouched(p) && slices.Contains(c.policy.Sites, p.member.Site) && c.now-p.greeted >= c.proofAgain():
			c.greet(g, p) // the volume's keys may have come since it was asked
		case p.joined:
			c.send(g, c.withLease(p, Message{Kind: Beat, Commit: c.commit, End: c.log.End, Current: c.reigns(c.now)}))
		case c.now-p.greeted >= max(p.wait, c.cfg.Heartbeat) || p.greeted == 0:
			c.greet(g, p)
			p.wait = min(max(2*p.wait, c.cfg.Heartbeat), c.longestWait(p))
		}
	}
}

// longestWait is how long a home waits at most until it greets p again. A member is greeted in time
// to stay one.
func (c *Core) longestWait(p *peer) time.Duration {
	if c.votes(p) {
		return c.cfg.Promise / 4
	}
	return 2 * c.cfg.Promise
}

// call asks the home that the record names to greet this gateway, which has not heard of it for
// some time. The home may not know of this copy, or may be about to greet it much later.
func (c *Core) call() {
	if c.role != Follower || c.swap != nil || c.greeting != nil || c.ctl == nil || c.ctl.Epoch != c.epoch || c.ctl.Home == c.cfg.Self {
		return
	}
	if c.joined && c.now-c.homeHeard < c.cfg.Promise || c.now-c.calledAt < max(c.callWait, c.cfg.Heartbeat) {
		return
	}
	c.calledAt, c.callWait = c.now, min(max(2*c.callWait, c.cfg.Heartbeat), 2*c.cfg.Promise)
	c.send(c.ctl.Home.Gateway, Message{Kind: Lost})
}

// peerDown handles that the connection to a gateway broke.
func (c *Core) peerDown(gateway string) {
	if p := c.peers[gateway]; p != nil && c.leading() {
		p.again = false
		if p.joined {
			p.joined, p.wait = false, 0
			c.emit(Unstream{To: gateway})
		}
	}
	if gateway == c.home && c.joined {
		c.joined, c.calledAt, c.callWait = false, c.now, 0
	}
}

// Linked reports whether the end of the connection to a gateway means anything to this Core: it has
// the log from there, or sends it there.
func (c *Core) Linked(gateway string) bool {
	p := c.peers[gateway]
	return p != nil && (p.joined || p.again) || gateway == c.home && c.joined
}

// newestEpochs is how many epochs a greeting has, unless a follower asks for all. Each start of a
// home begins one, so a log may have thousands.
const newestEpochs = 16

// Newest returns m as it is sent to a release that knows Part: a greeting with the newest epochs
// only. A follower that shares none of them asks for the whole list. The caller must not change
// Epochs.
func Newest(m Message) Message { return m.newest(newestEpochs) }

func (m Message) newest(n int) Message {
	if older := len(m.Epochs) - n; m.Kind == Hello && !m.Whole && older > 0 {
		m.Epochs, m.Part = m.Epochs[older:], true
	}
	return m
}
