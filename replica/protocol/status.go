// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"time"

	"github.com/weir-storage/weir/federation"
)

// Status is a Core's view of the volume, for operators and for the shell.
type Status struct {
	Role     Role
	Epoch    uint64
	Control  *federation.Control // newest known, nil for none; not to be changed
	Revision federation.Revision
	Commit   Position
	End      Position
	Durable  Position
	Joined   bool // follower: receives the log
	Stalled  bool // home: fewer members than wanted, nothing is acknowledged
	Alone    bool // home: there is no other member, and it needs no promise
	// Promised is, at a home with other members, how long the promises of all of them still last;
	// 0: not at all.
	Promised time.Duration
	Peers    []PeerStatus
}

// PeerStatus is what the home knows about a follower.
type PeerStatus struct {
	Member Member
	Joined bool // receives the log
	// Answers: receives the log, or asked lately to begin that again, as a full pool does time and
	// again.
	Answers bool
	Vote    bool // is a member
	Match   Position
	// Matched: Match is known, because the follower answered in this epoch.
	Matched bool
	Lacks   uint64 // bytes of the log's past that it does not have yet
	Seen    Time
	Stuck   time.Duration // how long it has stored nothing, if that is too long; else 0
}

// Status describes the state at time now.
func (c *Core) Status(now Time) Status {
	s := Status{Role: c.role, Epoch: c.epoch, Control: c.ctl, Revision: c.rev, Commit: c.commit, End: c.log.End,
		Durable: c.log.Durable, Joined: c.joined, Stalled: c.leading() && c.degraded()}
	if c.leading() {
		until := c.servingUntil()
		if s.Alone = until == forever; !s.Alone {
			s.Promised = max(until-now, 0)
		}
		for _, p := range c.peersInOrder() {
			x := PeerStatus{Member: p.member, Joined: p.joined, Answers: c.answers(p, now), Match: p.match, Matched: p.matched,
				Lacks: p.absent, Seen: p.seen, Vote: c.ctl != nil && slices.Contains(c.ctl.Members, p.member)}
			if x.Answers && c.stuck(p) { // else it does not answer, which says nothing of its disk
				x.Stuck = now - p.moved
			}
			s.Peers = append(s.Peers, x)
		}
	}
	return s
}

func (c *Core) answers(p *peer, now Time) bool {
	return p.joined || p.again && p.matched && now-p.seen < c.patience()
}

// MayServe reports whether at time now this gateway may, as home, answer a read (protocol-4).
func (c *Core) MayServe(now Time) bool { return !c.cfg.Blind && c.reigns(now) }

// reigns reports whether at time now no other gateway acknowledges anything.
func (c *Core) reigns(now Time) bool { return c.role == Home && now < c.servingUntil() }

// MayRead reports whether at time now this gateway may answer a read from its own copy, as home or
// under a lease (protocol-26). The answer must include every record that its log had when the read
// began.
func (c *Core) MayRead(now Time) bool {
	return c.MayServe(now) || c.role == Follower && now < c.leaseUntil && !c.cfg.Blind
}

// Lent reports whether at time now a gateway without a copy may have a lease that this gateway, or
// an earlier process, lent to it.
func (c *Core) Lent(now Time) bool {
	for _, p := range c.readers {
		if p.lease > now {
			return true
		}
	}
	return c.lentUntil > now
}

// Fresh returns a time of this gateway's clock by which all that was acknowledged, by whichever
// home, is at or before a position that is committed here, and at or before applied (protocol-26).
// false: none is known, or this gateway does not follow, or its disk may hang. The time is that at
// which it sent what the home answered, so it does not depend on how long messages take, nor on the
// home's clock.
func (c *Core) Fresh(now Time, applied Position) (at Time, pos Position, ok bool) {
	if c.role != Follower && c.role != Candidate || now-c.synced > c.cfg.Promise {
		return 0, Position{}, false
	}
	for _, x := range slices.Backward(c.settled) {
		if !applied.Less(x.pos) {
			return x.at, x.pos, true
		}
	}
	return 0, Position{}, false
}

// Commit returns the newest commit position known here.
func (c *Core) Commit() Position { return c.commit }

// Trailed reports whether this gateway leads and a follower lacks, or may lack, something that is
// committed.
func (c *Core) Trailed() bool {
	if !c.leading() {
		return false
	}
	for _, p := range c.peers {
		if p.match.Less(c.commit) || p.absent > 0 {
			return true
		}
	}
	return false
}
