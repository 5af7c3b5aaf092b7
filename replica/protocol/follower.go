// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"

	"github.com/weir-storage/weir/engine/segment"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
)

// received handles a message.
func (c *Core) received(m Message, end Position) {
	switch m.Kind {
	case Welcome, Ack, Lost:
		c.fromFollower(m, end)
		return
	case Reject:
		if m.Epoch > c.epoch {
			c.hearsay(m)
		}
		return
	case Refuse:
		c.refused(m)
		return
	}
	if m.Epoch < c.epoch || c.ctl != nil && m.Epoch < c.ctl.Epoch {
		c.emit(Send{To: m.From.Gateway, Message: Message{Kind: Reject, From: c.cfg.Self, Epoch: c.epoch, Stamp: c.now}})
		return
	}
	if !c.read || c.role == Candidate {
		return // not before the record was read, or the outcome of our swap is known
	}
	if m.Kind == Hello {
		c.hello(m)
		return
	}
	if m.Epoch > c.epoch || c.role != Follower || !c.joined || m.From.Gateway != c.home {
		c.sendTo(m, Message{Kind: Lost})
		return
	}
	c.fromHome(m)
}

// sendTo answers m in its epoch.
func (c *Core) sendTo(m Message, answer Message) {
	answer.From, answer.Epoch, answer.Stamp = c.cfg.Self, m.Epoch, c.now
	c.emit(Send{To: m.From.Gateway, Message: answer})
}

// hello makes this gateway follow the home m.From, from where both logs agree. The control record
// must name that home for the epoch: otherwise any gateway could end epochs and cut logs. A
// greeting that comes before the record is answered when the record comes.
func (c *Core) hello(m Message) {
	if c.ctl == nil || c.ctl.Epoch < m.Epoch {
		// A home's append may be under way, and is not in c.log: it waits for the next greeting.
		c.early = nil
		if !c.leading() {
			c.early = &m
		}
		c.hearsay(m)
		return
	}
	if c.ctl.Epoch != m.Epoch || c.ctl.Home != m.From {
		return // not the home of that epoch
	}
	if c.role != Follower {
		return // our own epoch
	}
	c.joined, c.calledAt, c.callWait = false, c.now, 0
	c.home, c.homeStamp, c.homeHeard, c.greeting = m.From.Gateway, m.Stamp, c.now, &m
	var sure bool
	if c.cut, sure = shared(c.log, m.Epochs, m.End); m.Part && !sure {
		c.greeting = nil
		c.sendTo(m, Message{Kind: Lost, Whole: true})
		return
	}
	if n := len(c.log.Epochs); n > 0 && c.log.Epochs[n-1].Epoch == m.Epoch && slices.ContainsFunc(m.Epochs, c.log.Epochs[n-1].Same) {
		c.cut = c.log.End // what we have of this epoch is in the home's log, even if frames came before this Hello
	}
	forced := c.leftOut(c.log.End)
	if c.cut.Less(c.known) {
		forced = c.leftOut(c.known)
	}
	if c.cut.Less(c.known) && !forced {
		// The home's log lacks what is committed. Only a person may give that up.
		c.greeting = nil
		c.sendTo(m, Message{Kind: Refuse, Commit: c.known, End: c.log.End, Epochs: slices.Clone(c.log.Epochs)})
		return
	}
	if c.cut.Less(c.log.End) {
		c.emit(Truncate{To: c.cut, Forced: forced})
		return
	}
	c.welcome()
}

// leftOut reports whether a person forced an epoch later than all epochs of this log up to pos, by
// the control record: a home's word for it is none. Then the home that was left out may have
// acknowledged what is cut. What is committed in a forced epoch or later cannot be left out by it.
func (c *Core) leftOut(pos Position) bool {
	var last uint64
	for _, e := range c.log.Epochs {
		if e.Start.Less(pos) {
			last = e.Epoch
		}
	}
	return last > 0 && slices.ContainsFunc(c.forced(), func(e uint64) bool { return e > last })
}

// shared returns the end of the longest prefix that log own shares with a log that has these epochs
// and this end (protocol-6). Comparing epochs is enough: within one epoch, known by number and
// salt, a single home appended in one order. sure: older epochs of that log than these would not
// change the result.
func shared(own LogState, epochs []log.EpochStart, end Position) (_ Position, sure bool) {
	endOf := func(list []log.EpochStart, i int, end Position) Position {
		if i+1 < len(list) {
			return list[i+1].Start
		}
		return end
	}
	i, j := len(own.Epochs)-1, len(epochs)-1
	for i >= 0 && j >= 0 {
		switch {
		case own.Epochs[i].Epoch > epochs[j].Epoch:
			i--
		case own.Epochs[i].Epoch < epochs[j].Epoch:
			j--
		case !own.Epochs[i].Same(epochs[j]): // two homes began that number
			i--
			j--
		default:
			a, b := endOf(own.Epochs, i, own.End), endOf(epochs, j, end)
			if b.Less(a) {
				return b, true
			}
			return a, true
		}
	}
	return Position{}, i < 0
}

// rivals reports whether two logs have an epoch of the same number that two homes began.
func rivals(a, b []log.EpochStart) bool {
	return slices.ContainsFunc(a, func(x log.EpochStart) bool {
		return slices.ContainsFunc(b, func(y log.EpochStart) bool { return x.Epoch == y.Epoch && !x.Same(y) })
	})
}

// hearsay handles that another gateway speaks of an epoch of which there is no record here. The
// record decides, not who says so. A home believes a member as far as to stop, since without that
// member nothing can be committed anyway.
func (c *Core) hearsay(m Message) {
	if c.leading() && m.Epoch > c.epoch && c.ctl.IsMember(m.From) {
		c.follow(c.epoch)
	}
	c.emit(ReadControl{})
}

// refused handles that another gateway knows of something committed which this log does not have.
// Then this log lost it: this gateway does not lead or vote with it any more (protocol-3). Any
// gateway of the federation may send a refusal. It counts only from one that proved the volume's
// key, and a home believes it only if the refuser's log could have what it speaks of.
func (c *Core) refused(m Message) {
	switch {
	case !m.Proved && (c.ctl == nil || !c.ctl.CountsOn(m.From)) || m.Epoch != c.epoch || !c.listed(m.From):
		return
	case c.leading():
		if !m.couldKnow() {
			return
		}
		have, _ := shared(c.log, m.Epochs, m.End)
		if !have.Less(m.Commit) {
			return // we have it
		}
		if n := len(c.log.Epochs); have == (Position{}) && n > 0 && c.log.Epochs[0].Epoch <= m.Epochs[0].Epoch {
			return // only a log that lost its beginning shares nothing with one of the same volume
		}
		if rivals(c.log.Epochs, m.Epochs) {
			return // it followed another branch, which nobody saw; that is no loss of ours
		}
	case c.ctl == nil || c.ctl.Epoch != m.Epoch || c.ctl.Home != m.From || !c.log.End.Less(m.Commit):
		return
	}
	c.emit(Disown{Committed: m.Commit, By: m.From.Gateway})
	c.stopLeading()
	c.setRole(Failed)
}

// couldKnow reports whether the refusal m describes a log of its epoch that reaches to what it says
// is committed.
func (m Message) couldKnow() bool {
	if len(m.Epochs) == 0 || !m.Epochs[0].Start.Less(m.Commit) || m.End.Less(m.Commit) {
		return false
	}
	for i, e := range m.Epochs {
		if e.Epoch > m.Epoch || m.End.Less(e.Start) || i > 0 && (e.Epoch <= m.Epochs[i-1].Epoch || e.Start.Less(m.Epochs[i-1].Start)) {
			return false
		}
	}
	return true
}

func (c *Core) welcome() {
	m := *c.greeting
	c.greeting = nil
	c.joined = true
	c.sendTo(m, Message{Kind: Welcome, Start: c.log.End, End: c.log.Durable, Echo: m.Stamp, Grant: c.promise(),
		Blind: c.cfg.Blind, Lacks: c.log.Lacks})
}

// promise extends our promise to the home and returns its length. It returns 0 without recent
// evidence that our disk works (protocol-4).
func (c *Core) promise() Time {
	if !c.proven() {
		return 0
	}
	// Not from now: our own fsyncs must not extend the promise to a silent home.
	c.promiseUntil = max(c.promiseUntil, c.homeHeard+c.cfg.Promise)
	return c.cfg.Promise
}

func (c *Core) ack() {
	c.send(c.home, Message{Kind: Ack, End: c.log.Durable, Echo: c.homeStamp, Grant: c.promise(), Reads: c.reads,
		Lacks: c.log.Lacks})
	c.reads = 0
}

// wanted notes reads, of which the next Ack tells the home. Without a lease that is at once.
func (c *Core) wanted(reads int) {
	c.reads = min(c.reads+max(reads, 0), 2*maxCredit)
	if c.role == Follower && c.joined && c.now >= c.leaseUntil {
		c.ack()
	}
}

// fromHome handles Append, Advance, Beat and Release from the home that we joined.
func (c *Core) fromHome(m Message) {
	if m.Kind == Append {
		if c.log.End.Less(m.Start) && (m.Start.Seq != c.log.End.Seq+1 || m.Start.Off != 0) {
			c.joined = false
			c.sendTo(m, Message{Kind: Lost})
			return
		}
		c.emit(Ingest{})
	}
	if c.homeStamp < m.Stamp {
		c.homeStamp, c.homeHeard = m.Stamp, c.now
	}
	if m.Grant > 0 && m.Echo > c.jumpedAt && m.Echo <= c.now { // a later Echo is from before a reboot
		c.leaseUntil = max(c.leaseUntil, m.Echo+relied(m.Grant))
	}
	if m.Current && m.Echo > c.jumpedAt && m.Echo <= c.now {
		c.claim(claim{m.Echo, later(m.Commit, m.End)})
	}
	// The commit position never passes what is durable here: what is applied must be in the log
	// after a crash.
	if reach := segment.Earlier(m.Commit, c.log.Durable); c.commit.Less(reach) {
		c.commit, c.known = reach, later(c.known, reach)
		c.emit(Committed{Position: reach})
	}
	c.settleClaims()
	switch m.Kind {
	case Beat:
		c.ack()
	case Behind:
		if c.ctl == nil || !c.ctl.IsMember(c.cfg.Self) { // of a member a home needs all
			c.joined = false
			c.emit(Anew{})
		}
	case Release:
		if c.log.Durable != c.log.End || c.log.End != m.Commit {
			return
		}
		c.released, c.promiseUntil, c.leaseUntil = true, c.now, 0
		if c.mayTakeOver() {
			c.takeOver()
		} else { // the record that made us a member may not have come yet
			c.asked, c.askedAt = true, c.now
			c.emit(ReadControl{})
		}
	}
}

// claim is a home's word: all that was acknowledged when our clock was at is at or before pos.
type claim struct {
	at  Time
	pos Position
}

// Most claims whose positions are not committed here yet, and most that are.
const (
	maxClaims  = 64
	maxSettled = 16
)

// claim notes a claim. Of too many, every second one is forgotten, so that they still reach as far.
func (c *Core) claim(x claim) {
	if n := len(c.claims); n > 0 && x.at <= c.claims[n-1].at {
		return
	} else if n == maxClaims {
		for i := range maxClaims / 2 {
			c.claims[i] = c.claims[2*i]
		}
		c.claims = c.claims[:maxClaims/2]
	}
	c.claims = append(c.claims, x)
}

// settleClaims moves the claims whose positions are committed here.
func (c *Core) settleClaims() {
	for len(c.claims) > 0 && !c.commit.Less(c.claims[0].pos) {
		if n := len(c.settled); n == 0 || c.claims[0].at > c.settled[n-1].at {
			c.settled = append(c.settled, c.claims[0])
		}
		c.claims = c.claims[1:]
	}
	if n := len(c.settled) - maxSettled; n > 0 {
		c.settled = slices.Delete(c.settled, 0, n)
	}
}

// mayTakeOver reports whether protocol-5 allows this gateway to try a takeover.
func (c *Core) mayTakeOver() bool {
	if c.role != Follower || !c.read || c.swap != nil || c.ctl == nil || !c.ctl.IsMember(c.cfg.Self) || c.ctl.Epoch < c.epoch ||
		!c.proven() {
		return false
	}
	// Since our epoch began in our log, we have promised nothing to an earlier home. If the record
	// names us but our log does not begin the epoch, the swap may have arrived late, after we
	// followed the earlier home again.
	if c.ctl.Home == c.cfg.Self && c.began(c.ctl.Epoch) {
		return c.now >= c.yieldUntil
	}
	return c.released || c.now >= c.promiseUntil+c.yields()
}

// began reports whether the log's newest epoch is epoch.
func (c *Core) began(epoch uint64) bool {
	n := len(c.log.Epochs)
	return n > 0 && c.log.Epochs[n-1].Epoch == epoch
}

// takeOver asks the registry for the next epoch. Nothing is acknowledged until the outcome is
// known.
func (c *Core) takeOver() {
	next := c.ctl.Clone()
	next.Epoch = max(c.epoch, c.ctl.Epoch) + 1
	next.Home = c.cfg.Self
	if c.ctl.Home != c.cfg.Self && !c.released {
		next.Members = nil
		for _, m := range c.ctl.Members {
			if m != c.ctl.Home {
				next.Members = append(next.Members, m)
			}
		}
	}
	next.Begin(federation.EpochStart{Epoch: next.Epoch, Start: federation.Position(c.log.End)})
	c.leaseUntil, c.joined, c.greeting = 0, false, nil
	c.propose(next, true)
}

// force is takeOver by a person's decision, without regard to the members. It was about one record,
// and holds for no other.
func (c *Core) force(e Force) {
	if c.role != Follower || c.swap != nil || !c.read || c.ctl == nil || c.ctl.Epoch != e.Epoch || c.ctl.Change != e.Change {
		return
	}
	next := c.ctl.Clone()
	next.Epoch = max(c.epoch, c.ctl.Epoch) + 1
	next.Home, next.Members = c.cfg.Self, []Member{c.cfg.Self}
	next.Begin(federation.EpochStart{Epoch: next.Epoch, Start: federation.Position(c.log.End), Forced: true,
		Word: e.Word})
	c.leaseUntil, c.joined, c.greeting = 0, false, nil
	c.propose(next, true)
}
