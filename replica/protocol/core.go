// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"time"

	"github.com/weir-storage/weir/engine/segment"

	"github.com/weir-storage/weir/federation"
)

// Core is the state machine of one volume at one gateway. Make it with New.
type Core struct {
	cfg    Config
	policy Policy
	now    Time
	out    []Effect

	role   Role
	read   bool                // the control record was read since the start
	ctl    *federation.Control // newest known
	rev    federation.Revision
	swap   *swap
	flying int    // Swap effects without their Swapped event
	epoch  uint64 // newest known; messages of earlier ones are rejected
	log    LogState
	commit Position
	known  Position // certainly committed; unlike commit, it is known from earlier lives too
	synced Time     // last evidence that fsync works

	// As a follower.
	home         string // gateway that sent us Hello in this epoch, "" for none
	joined       bool   // our log is a prefix of the home's
	greeting     *Message
	early        *Message // greeting of an epoch whose record is not known here yet
	cut          Position // where the log is cut before greeting is answered
	homeStamp    Time
	homeHeard    Time // when homeStamp came
	promiseUntil Time
	leaseUntil   Time
	jumpedAt     Time    // what others granted before counts no more
	claims       []claim // in the order of their times, as the next
	settled      []claim // that are committed here
	yieldUntil   Time    // we handed over; until then a record that names us is no reason to take over
	asked        bool    // a ControlRead that we asked for, before a takeover, is due
	askedAt      Time
	calledAt     Time          // when we last asked the home to greet us
	callWait     time.Duration // from then until we ask again
	released     bool          // the home handed over to us
	reads        int           // of which the home was not told

	// As home.
	gateways  []Member // of the federation, this one too; not to be changed
	peers     map[string]*peer
	begun     Position // end of the header that begins the epoch, zero until written
	startedAt Time     // when the epoch began here
	quietEnd  Time     // until then gateways not known yet may have leases from before a restart
	joining   string   // gateway that counts for commit before it is a member
	lapsing   []lapse
	readers   map[string]*peer // gateways without a copy that read, or want to
	lentUntil Time             // until then gateways without a copy may read that are not in readers
	moving    string
	moveEnd   Time
}

type swap struct {
	previous federation.Revision
	next     federation.Control
	takeover bool
	unknown  bool // to be settled by reading back
	doubt    bool // a conflict may come from an earlier attempt of this swap, or answer an earlier swap
}

// lapse is a gateway that is not a member and may read until its lease ends.
type lapse struct {
	gateway string
	until   Time
}

// longest is how long a promise may be that an earlier process gave.
func (c Config) longest() time.Duration { return max(c.Promise, c.Former) }

// New returns the Core of a gateway that just started. It asks for the control record. Its former
// process may have given a promise, so it supports the present home for the length of one.
func New(cfg Config, policy Policy, state LogState, now Time) (*Core, []Effect) {
	c := &Core{cfg: cfg, policy: policy, log: state, known: state.Committed, now: now, peers: map[string]*peer{},
		readers: map[string]*peer{}, synced: now, asked: true}
	if n := len(state.Epochs); n > 0 {
		c.epoch = state.Epochs[n-1].Epoch
	}
	c.promiseUntil = now + cfg.longest()
	if cfg.Lent {
		c.lentUntil = now + cfg.longest()/2
	}
	return c, []Effect{ReadControl{}}
}

// Step handles one event at time now, and returns the effects to carry out, in order.
func (c *Core) Step(now Time, e Event) []Effect {
	c.now = max(c.now, now)
	c.out = nil
	if c.role == Failed {
		return nil
	}
	switch e := e.(type) {
	case ControlRead:
		c.controlRead(e)
	case Swapped:
		c.swapped(e)
	case Received:
		c.received(e.Message, e.End)
	case Appended:
		c.appended(e.Log)
	case Synced:
		news := c.log.Durable.Less(e.Position) || !c.proven() // else the next beat is soon enough
		c.synced = c.now
		if c.log.Durable.Less(e.Position) {
			c.log.Durable = e.Position
		}
		if news && c.role == Follower && c.joined {
			c.ack()
		}
	case LogFailed:
		c.stopLeading()
		c.setRole(Failed)
	case Jumped:
		c.jumped()
	case PeerDown:
		c.peerDown(e.Gateway)
	case PolicyChanged:
		c.policy = e.Policy
		c.choosePeers()
		c.maybeCreate()
	case Peers:
		c.setPeers(e.Members)
	case Wanted:
		c.wanted(e.Reads)
	case Reading:
		c.reading(e)
	case NotLent:
		c.notLent(e.Gateway)
	case Tick:
		c.tick()
	case Force:
		c.force(e)
	case Move:
		c.move(e.To)
		c.choosePeers()
	}
	c.advance()
	return c.out
}

func (c *Core) emit(e Effect) { c.out = append(c.out, e) }

func (c *Core) setRole(r Role) {
	if c.role != r {
		c.role = r
		c.emit(RoleChanged{Role: r, Epoch: c.epoch})
	}
}

func (c *Core) send(to string, m Message) {
	m.From, m.Epoch, m.Stamp = c.cfg.Self, c.epoch, c.now
	c.emit(Send{To: to, Message: m})
}

// leading reports whether this gateway is home in the newest epoch that it knows.
func (c *Core) leading() bool { return c.role == Home || c.role == Starting }

// relied returns how much of a duration can be relied on when another gateway's clock measures it.
func relied(d time.Duration) time.Duration { return d - d/16 }

func (c *Core) controlRead(e ControlRead) {
	c.read = true
	if s := c.swap; s != nil {
		same := e.Control != nil && e.Revision > s.previous && e.Control.Same(s.next) // an older record may have the same content
		switch {
		case same && !s.takeover:
			c.applied(e.Revision)
		case same && !s.unknown:
			// Wait for the answer to the swap. The gateway may have written this very record before
			// a restart, and begun its epoch. So an epoch begins only with the answer to its swap.
		case s.unknown && e.Revision == s.previous:
			s.unknown = false
			c.emitSwap() // the same swap again: at most one of the two can be applied
		case e.Revision > s.previous && s.unknown:
			c.conflict()
			c.adopt(e)
		case e.Revision > c.rev:
			c.adopt(e) // the swap is going to fail; wait for its outcome
		}
		return
	}
	asked := c.asked
	c.asked = false
	if e.Control == nil {
		c.maybeCreate()
		return
	}
	c.adopt(e)
	if asked && c.swap == nil && c.mayTakeOver() {
		c.takeOver()
	}
}

// adopt accepts a newer control record. It ignores one with an earlier epoch, which comes from a
// restored registry (protocol-7).
func (c *Core) adopt(e ControlRead) {
	if e.Control == nil || e.Revision <= c.rev || c.ctl != nil && e.Control.Epoch < c.ctl.Epoch {
		return
	}
	ctl := e.Control.Clone()
	first := c.ctl == nil
	c.ctl, c.rev = &ctl, e.Revision
	// A home that a person displaced may have gone on, beside the new one.
	if slices.ContainsFunc(ctl.History, func(s federation.EpochStart) bool { return s.Forced && s.Epoch > c.epoch }) {
		c.claims, c.settled = nil, nil
	}
	if ctl.Epoch > c.epoch {
		c.follow(ctl.Epoch)
	}
	if first { // its home is at work already
		c.calledAt = c.now - c.cfg.Heartbeat
	}
	c.choosePeers()
	if m := c.early; m != nil && ctl.Epoch >= m.Epoch {
		c.early = nil
		c.hello(*m)
	}
}

func (c *Core) maybeCreate() {
	if !c.read || c.ctl != nil || c.swap != nil || c.role != Follower || c.cfg.Blind ||
		c.policy.FirstHome != c.cfg.Self.Site || c.log.End != (Position{}) {
		return
	}
	next := federation.Control{Volume: c.cfg.Volume, Epoch: 1, Home: c.cfg.Self, Members: []Member{c.cfg.Self},
		History: []federation.EpochStart{{Epoch: 1}}}
	c.propose(next, true)
}

func (c *Core) propose(next federation.Control, takeover bool) {
	c.swap = &swap{previous: c.rev, next: next, takeover: takeover, doubt: c.flying > 0}
	if takeover {
		c.setRole(Candidate)
	}
	c.emitSwap()
}

func (c *Core) emitSwap() {
	c.flying++
	c.emit(Swap{Previous: c.swap.previous, Next: c.swap.next.Clone()})
}

func (c *Core) swapped(e Swapped) {
	c.flying = max(0, c.flying-1)
	s := c.swap
	if s == nil {
		return // settled by a control record that was read or watched
	}
	switch {
	case e.Outcome == SwapDone && e.Revision > s.previous:
		c.applied(e.Revision)
	case e.Outcome == SwapDone: // the answer to an earlier swap
	case e.Outcome == SwapConflict && !s.doubt:
		c.conflict()
		c.emit(ReadControl{})
	case e.Outcome == SwapNotMade && !s.doubt:
		c.conflict() // a candidate answers its home again, which may be well
		c.emit(ReadControl{})
	default:
		s.unknown, s.doubt = true, true
		c.emit(ReadControl{})
	}
}

// applied handles that our swap was applied at revision rev. A newer record may be known already.
func (c *Core) applied(rev federation.Revision) {
	if rev > c.rev {
		c.done(rev)
	} else {
		c.conflict()
	}
}

func (c *Core) conflict() {
	c.swap = nil
	c.joining = ""
	if c.role == Candidate {
		// If released is set, it stays: a home that handed over to us does not lead again in its
		// epoch, whatever record won.
		c.promiseUntil = max(c.promiseUntil, c.now+c.cfg.Promise)
		c.setRole(Follower)
	}
}

// done handles that our swap was applied at revision rev, which is the newest known.
func (c *Core) done(rev federation.Revision) {
	s := c.swap
	c.swap = nil
	old := c.ctl
	next := s.next.Clone()
	c.ctl, c.rev = &next, rev
	if s.takeover {
		if c.role != Candidate || next.Epoch <= c.epoch { // a newer epoch was seen meanwhile
			if c.role == Candidate {
				c.setRole(Follower)
			}
			return
		}
		c.epoch = next.Epoch
		c.startedAt = c.now
		c.begun, c.released, c.joined, c.home, c.leaseUntil = Position{}, false, false, "", 0
		c.claims, c.settled = nil, nil
		for _, p := range c.peers {
			*p = peer{member: p.member.Pool()}
		}
		c.lapsing, c.quietEnd = nil, 0
		c.forgetReaders()
		c.choosePeers()
		if old != nil && old.Home.Gateway == c.cfg.Self.Gateway {
			c.lapseAll()
		}
		c.setRole(Starting)
		c.emit(BeginEpoch{Epoch: c.epoch})
		return
	}
	c.joining = ""
	if old != nil && c.leading() {
		for _, m := range old.Members { // those that this process gave are in c.peers
			if !next.IsMember(m) && c.quietEnd > c.now {
				c.lapsing = append(c.lapsing, lapse{m.Gateway, c.quietEnd})
			}
		}
	}
}

// lapseAll assumes that every gateway that is not a member has a lease, as a member has that is
// removed before quietEnd. Leases that we gave in an earlier epoch, perhaps as an earlier process,
// are not remembered.
func (c *Core) lapseAll() {
	c.quietEnd = c.now + c.cfg.longest()/2
	c.lapseNew(nil)
}

// follow ends the present role and makes this gateway a follower in epoch e.
func (c *Core) follow(e uint64) {
	c.stopLeading()
	c.epoch = max(c.epoch, e)
	c.joined, c.home, c.greeting, c.leaseUntil, c.released = false, "", nil, 0, false
	c.claims = nil // what was not committed may be cut
	c.promiseUntil = max(c.promiseUntil, c.now+c.cfg.Promise)
	c.calledAt, c.callWait = c.now, 0
	if c.role != Candidate { // a candidate waits for the outcome of its swap
		c.setRole(Follower)
	}
}

func (c *Core) stopLeading() {
	if !c.leading() {
		return
	}
	for g, p := range c.peersInOrder() {
		if p.joined {
			c.emit(Unstream{To: g})
		}
		*p = peer{member: p.member.Pool()}
	}
	c.begun, c.joining, c.moving, c.lapsing = Position{}, "", "", nil
	c.forgetReaders()
}

func (c *Core) appended(l LogState) {
	c.log.End, c.log.Epochs, c.log.Lacks, c.log.Base = l.End, l.Epochs, l.Lacks, l.Base
	if l.End.Less(c.commit) { // only after a forced takeover
		c.commit, c.claims, c.settled = l.End, nil, nil
	}
	c.known = segment.Earlier(c.known, l.End)
	if l.End.Less(c.log.Durable) {
		c.log.Durable = l.End
	}
	if c.log.Durable.Less(l.Durable) {
		c.log.Durable = l.Durable
	}
	if c.role == Starting && c.begun == (Position{}) && len(l.Epochs) > 0 && l.Epochs[len(l.Epochs)-1].Epoch == c.epoch {
		c.begun = l.End
	}
	if c.greeting != nil && !c.cut.Less(l.End) {
		c.welcome()
	}
}

func (c *Core) tick() {
	switch {
	case !c.read, c.swap != nil && c.swap.unknown, c.ctl != nil && c.ctl.Epoch < c.epoch:
		c.emit(ReadControl{})
	case c.role != Follower || c.swap != nil:
	case c.mayTakeOver(),
		c.now >= c.promiseUntil && c.now >= c.askedAt+c.cfg.Promise: // no home; perhaps we became a member without hearing of it
		c.asked, c.askedAt = true, c.now
		c.emit(ReadControl{}) // also shows that the registry answers, before we stop acknowledging
	}
	switch {
	case !c.leading():
		c.call()
	case c.lively():
		c.beat()
		c.noteIdle()
		c.noteReaders()
		c.handOn()
		c.manageMembers()
		c.handOver()
	default:
		c.mute()
	}
}

// lively reports whether a home may have others promise something: its disk works, or there are no
// other members.
func (c *Core) lively() bool { return c.proven() || len(c.voters()) < 2 }

// proven reports whether there is recent evidence that our disk works.
func (c *Core) proven() bool { return c.now-c.synced <= c.cfg.Promise }

// jumped gives up what others promised: by their clocks it may have ended. What was promised to
// others stays, since it ends later by this clock than by theirs.
func (c *Core) jumped() {
	c.jumpedAt, c.leaseUntil, c.claims, c.settled = c.now, 0, nil, nil
	c.startedAt = c.now // as in mute
	for _, p := range c.peers {
		p.promise, p.moved = 0, c.now
	}
}

// mute stops all streams and beats, so that the followers' promises end. A home whose disk hangs
// must not stay home for ever.
func (c *Core) mute() {
	c.startedAt = c.now // the followers are not silent by their own fault
	for g, p := range c.peersInOrder() {
		p.moved = c.now
		if p.joined {
			p.joined = false
			c.emit(Unstream{To: g})
		}
	}
}
