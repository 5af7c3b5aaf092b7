// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
)

// borrower is what the home knows of a gateway without a vote that wants to read under a lease.
type borrower struct {
	lease  Time // its lease is valid until then
	credit int  // how much oftener its clients read than the volume changed; between -maxCredit and maxCredit
	asked  Time // when it last told that its clients read
	lacks  Time // since when it has lacked something that the home has, under its lease; 0: it lacks nothing
	barred Time // it gets no lease before
	// from: changes wait for it since the log ended here. A follower is granted the lease once it
	// has that.
	from Position
}

const (
	maxCredit = 64
	// barFor is for how many promises a gateway gets no lease, because changes waited until its
	// last one ended.
	barFor = 10
)

// changed notes that a change was committed, which a lease may have held up.
func (b *borrower) changed() { b.credit = max(b.credit-1, -maxCredit) }

// demand notes that clients of p, which has no vote, read so many times.
func (c *Core) demand(p *peer, reads int) {
	if reads > 0 {
		p.credit, p.asked = min(p.credit+min(reads, 2*maxCredit), maxCredit), c.now
	}
}

// followerReads notes what clients of a follower read, and lends it a lease as soon as that is
// worth it, and it has all of the log, which ends at end (protocol-26): also what is acknowledged
// without being committed.
func (c *Core) followerReads(p *peer, reads int, end Position) {
	c.demand(p, reads)
	if reads <= 0 || p.lease > c.now || c.role != Home || !p.joined || !c.lends(p) {
		return
	}
	if d := c.term(); d > 0 {
		p.lease, p.from = c.now+d, later(end, c.log.End)
		c.send(p.member.Gateway, c.withLease(p, Message{Kind: Advance, Commit: c.commit}))
	}
}

// lends reports whether p, a follower without a vote, may have a lease: its clients read, and
// oftener than the volume changes, for each change waits for p; it has what is committed, and
// stores what comes. Nobody gets one while the home is about to hand over.
func (c *Core) lends(p *peer) bool {
	return c.worth(p) && c.stores(p) && p.matched && !p.match.Less(c.commit) && !c.votes(p)
}

// renews reports whether p, without a vote, keeps its lease.
func (c *Core) renews(p *peer) bool { return p.lease > c.now && c.lends(p) }

func (c *Core) worth(p *peer) bool {
	return p.credit > 0 && c.now-p.asked < c.lately() && c.now >= p.barred && c.moving == "" && !c.degraded()
}

// stores reports whether p took something in lately, or lacked nothing.
func (c *Core) stores(p *peer) bool { return c.now-p.moved < c.lately() }

// lately is how old a word of who reads may be that is renewed with each Heartbeat.
func (c *Core) lately() time.Duration { return max(c.cfg.Promise/4, 2*c.cfg.Heartbeat) }

// reading handles a message of a gateway without a copy. It tells how far it knows that the log
// reaches: it shows nothing older. That counts as what a member has.
func (c *Core) reading(e Reading) {
	if c.role != Home || e.Epoch != c.epoch {
		return // what it knows may be of a log that was cut
	}
	p := c.readers[e.Gateway]
	if p == nil {
		p = &peer{joined: true, matched: true}
		c.readers[e.Gateway] = p
	}
	p.seen, p.stamp = c.now, e.Stamp
	if p.match.Less(e.Known) {
		p.match, p.moved = e.Known, c.now
	}
	c.demand(p, e.Reads)
	if e.Reads <= 0 || !c.worth(p) || p.lease > c.now && !c.stores(p) {
		return
	}
	if p.lease <= c.now { // whatever it knew, it knows End when it has this lease
		p.match, p.moved = later(p.match, c.log.End), c.now
	}
	if d := c.term(); d > 0 {
		p.lease = max(p.lease, c.now+d)
		c.emit(Lend{To: e.Gateway, Epoch: c.epoch, Grant: d, Echo: e.Stamp, End: c.log.End})
	}
}

// noteReaders bars those who held up changes until their lease ended, because they did not answer,
// or did not store what came. It forgets gateways without a copy that have not been heard of
// lately.
func (c *Core) noteReaders() {
	for p := range c.borrowers() {
		switch {
		case p.lease > c.now && !p.match.Less(c.log.Durable):
			p.lacks = 0
		case p.lease > c.now:
			p.lacks = cmp.Or(p.lacks, c.now)
		case p.lacks > 0:
			if p.lease-max(p.lacks, p.moved) >= c.cfg.Promise/8 {
				p.barred = c.now + barFor*c.cfg.Promise
			}
			p.lacks = 0
		}
	}
	maps.DeleteFunc(c.readers, func(_ string, p *peer) bool {
		return p.lease <= c.now && c.now >= p.barred && c.now-p.seen > c.cfg.Promise
	})
}

// Unknown reports whether at time now a gateway without a vote may answer reads that does not know
// of all up to pos. With counts it is noted that something waits for that.
func (c *Core) Unknown(now Time, pos Position, counts bool) (some bool) {
	for p := range c.borrowers() {
		if p.lease > now && p.match.Less(pos) && !c.votes(p) {
			if some = true; counts {
				p.changed()
			}
		}
	}
	return some || c.lentUntil > now || slices.ContainsFunc(c.lapsing, func(l lapse) bool {
		p := c.peers[l.gateway]
		return l.until > now && (p == nil || !p.matched || p.match.Less(pos))
	})
}

// notLent takes back a lease of which its holder was not told.
func (c *Core) notLent(gateway string) {
	if p := c.readers[gateway]; p != nil {
		p.lease, p.lacks, p.barred = 0, 0, c.now+barFor*c.cfg.Promise
	}
}

// borrowers iterates over all that may have a lease, in no order.
func (c *Core) borrowers() iter.Seq[*peer] {
	return func(yield func(*peer) bool) {
		for _, list := range []map[string]*peer{c.peers, c.readers} {
			for _, p := range list {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// lent reports whether a gateway that is no member has a lease. The next home would not know of it.
func (c *Core) lent() bool {
	for p := range c.borrowers() {
		if p.lease > c.now && !c.votes(p) {
			return true
		}
	}
	return c.lentUntil > c.now
}

// forgetReaders forgets the gateways without a copy, but not until when they may read.
func (c *Core) forgetReaders() {
	for _, p := range c.readers {
		c.lentUntil = max(c.lentUntil, p.lease)
	}
	c.readers = map[string]*peer{}
}

// term returns how long a lease may last that is given now.
func (c *Core) term() time.Duration { return min(c.cfg.Promise/2, c.servingUntil()-c.now) }

// withLease adds a read lease to m if p may have one: p is a member, or its clients want to read,
// and every promise that we rely on outlasts the lease.
func (c *Core) withLease(p *peer, m Message) Message {
	m.Echo = p.stamp
	if c.role != Home || !p.joined || p.stamp == 0 || c.ctl == nil || !c.renews(p) && (!c.ctl.IsMember(p.member) || c.leaving(p.member)) {
		return m
	}
	d := c.term()
	if to := c.peers[c.moving]; to != nil && to.pledge > 0 {
		d = min(d, to.pledge/2)
	}
	if d > 0 {
		p.lease = max(p.lease, c.now+d)
		if c.ctl.IsMember(p.member) || !p.match.Less(p.from) {
			m.Grant = d
		}
	}
	return m
}

// outlasts reports whether p's promise outlasts every lease given so far, also by an earlier
// process. A new member must not take over while a gateway that its swap removed still reads under
// a lease.
func (c *Core) outlasts(p *peer) bool { return p.promise >= max(c.now+c.cfg.Promise/2, c.quietEnd) }

// leased reports whether a lease that we gave, perhaps as an earlier process, may last longer than
// until t.
func (c *Core) leased(t Time) bool {
	for _, p := range c.peers {
		if p.lease > t {
			return true
		}
	}
	return c.quietEnd > t
}
