// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
)

// The simulation: gateways with disks that lose what was not synced and may hang, clocks of
// different speed that begin again after a reboot, connections that break, and a registry
// (simreg_test.go) that may answer late, never, or with an unknown outcome. Messages to one gateway
// stay in order among themselves, frames too, but frames and messages overtake each other. The
// invariants are in check_test.go.

const (
	ms      = time.Millisecond
	promise = 2000 * ms
	beat    = 150 * ms
)

type happening struct {
	at  time.Duration
	seq int
	do  func()
}

type agenda []happening

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(happening)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = happening{}
	*a = (*a)[:last]
	return x
}

type sim struct {
	rnd     *rand.Rand
	fixed   bool // stories: every delay is the middle of its range
	now     time.Duration
	agenda  agenda
	seq     int
	nodes   []*node
	policy  Policy
	network map[string]*direction
	registry
	truth
	outliners outliners
	bias      func(what string, n, o *node) // faults that follow from what happens
	salts     int                           // of segments that began an epoch
	left      int                           // copies at the end that are to go
	mixed     bool                          // gateways come back with another promise
	trace     []string
	failure   string
}

// direction is a connection, one way: "a>b".
type direction struct {
	cut  bool
	dead bool // broke, and the sender does not know yet
	life int
	last [2]time.Duration // delivery of the last message and of the last frames
}

func newSim(seed uint64, policy Policy, sites string) *sim {
	s := &sim{rnd: rand.New(rand.NewPCG(seed, 7)), network: map[string]*direction{}, policy: policy, bias: func(string, *node, *node) {}}
	s.registry.init()
	s.truth.homes = map[uint64]string{}
	for _, c := range sites {
		name := string(c)
		n := &node{sim: s, name: name, rate: 1, offset: time.Hour, member: Member{Gateway: name, Site: name, Incarnation: "1"},
			incarnation: 1, promise: promise}
		s.nodes = append(s.nodes, n)
		for _, o := range sites {
			s.network[name+">"+string(o)] = &direction{}
		}
	}
	return s
}

func (s *sim) between(lo, hi time.Duration) time.Duration {
	if s.fixed {
		return (lo + hi) / 2
	}
	return lo + time.Duration(s.rnd.Int64N(int64(hi-lo)+1))
}

// chance is never true in a story.
func (s *sim) chance(percent int) bool { return !s.fixed && s.rnd.IntN(100) < percent }

func (s *sim) logf(format string, a ...any) {
	s.trace = append(s.trace, fmt.Sprintf("%7.3f ", s.now.Seconds())+fmt.Sprintf(format, a...))
}

func (s *sim) fail(format string, a ...any) {
	if s.failure == "" {
		s.failure = fmt.Sprintf(format, a...)
		s.logf("FAILURE %s", s.failure)
	}
}

func (s *sim) after(d time.Duration, do func()) {
	s.seq++
	heap.Push(&s.agenda, happening{s.now + d, s.seq, do})
}

// advance advances the world by d, and checks it after every event.
func (s *sim) advance(d time.Duration) {
	end := s.now + d
	for s.failure == "" && len(s.agenda) > 0 && s.agenda[0].at <= end {
		h := heap.Pop(&s.agenda).(happening)
		s.now = max(s.now, h.at)
		h.do()
		s.check()
	}
	s.now = end
	s.check()
}

func (s *sim) node(name string) *node {
	for _, n := range s.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

type node struct {
	sim         *sim
	name        string
	member      Member
	incarnation int
	logs        int // that it had
	log         simLog
	core        *Core // nil while down
	life        int
	paused      time.Duration // until
	slow        time.Duration // no fsync returns before
	full        time.Duration // its pool has no room before
	rests       bool          // it ignores frames for lack of room
	promise     time.Duration // as it is configured
	former      time.Duration // the longest that it was configured with
	backlog     []func()      // what waits for the end of the pause
	rate        float64
	offset      time.Duration
	streams     map[string]Position
	arrived     []entry // frames of the message being stepped
	forcing     bool
	forced      *federation.Control // the last swap of a forced takeover
	stopped     bool                // by a hand-over
	waiting     map[int]Position
	applied     Position
	doubted     bool   // its log lost something, and it knows
	rewound     bool   // its log and watermark went back, and it does not know
	kept        record // what it knows of the record, also after a restart
	refuses     bool   // it does not believe the registry
	accepted    int    // times that it believed it again
	seen        []Time // what its clock showed when each of truth.committed was
	blind       bool   // since it was started
}

func (n *node) clock() Time { return n.offset + time.Duration(float64(n.sim.now)*n.rate) }

// setClock changes what the clock shows or how fast it goes.
func (n *node) setClock(reading Time, rate float64) {
	n.rate = rate
	n.offset += reading - n.clock()
	for i := range n.seen {
		n.seen[i] = min(n.seen[i], reading) // it was before
	}
}

func (n *node) config() Config {
	if n.sim.mixed && n.sim.chance(50) { // somebody configured it anew
		n.promise = []time.Duration{promise, 3 * promise}[n.sim.rnd.IntN(2)]
		n.sim.logf("%s promises for %v", n.name, n.promise)
	}
	n.former = max(n.former, n.promise)
	if slices.Contains(n.sim.policy.Sites, n.name) { // one that leaves stays as it is
		n.blind = slices.Contains(n.sim.policy.Blind, n.name)
	}
	return Config{Self: n.member, Volume: "v", Promise: n.promise, Former: n.former, Heartbeat: beat, Lent: n.sim.outliners.rnd != nil,
		Blind: n.blind}
}

func (n *node) start() {
	if n.core != nil {
		return
	}
	if n.doubted && !n.renew() {
		return
	}
	n.life++
	n.rests = false
	n.install()
	n.streams, n.waiting, n.stopped, n.applied, n.backlog = map[string]Position{}, map[int]Position{}, false, Position{}, nil
	core, effects := New(n.config(), n.sim.policy, n.log.state(), n.clock())
	n.core = core
	n.do(effects)
	n.sim.stale(n)
	n.step(Peers{n.sim.present()})
	n.tickLater()
}

func (s *sim) present() []Member {
	var all []Member
	for _, n := range s.nodes {
		all = append(all, n.member.Pool())
	}
	return all
}

func (n *node) tickLater() {
	life := n.life
	n.sim.after(beat, func() {
		if n.life == life {
			if n.sim.early(n) && n.paused <= n.sim.now { // who is suspended reads no clock
				at := n.clock()
				n.later(batching, func() { n.stepAt(at, Tick{}); n.sync() })
			} else {
				n.run(func() { n.step(Tick{}); n.sync() })
			}
			if n.sim.times > 0 && n.sim.chance(8) {
				n.run(func() { n.sim.tend(n) })
			}
			n.tickLater()
		}
	})
}

// run calls f now, or when the node's pause is over. A crash drops f.
func (n *node) run(f func()) {
	switch {
	case n.core == nil:
	case n.paused > n.sim.now:
		n.backlog = append(n.backlog, f)
	default:
		f()
	}
}

// later calls run after a delay, unless the process ends before.
func (n *node) later(d time.Duration, f func()) {
	life := n.life
	n.sim.after(d, func() {
		if n.life == life {
			n.run(f)
		}
	})
}

func (n *node) pause(d time.Duration) {
	if n.core == nil {
		return
	}
	n.sim.logf("%s pauses for %v", n.name, d)
	n.paused = max(n.paused, n.sim.now+d)
	n.sim.after(n.paused-n.sim.now, func() {
		for len(n.backlog) > 0 && n.core != nil && n.paused <= n.sim.now {
			f := n.backlog[0]
			n.backlog = n.backlog[1:]
			f()
			n.sim.check()
		}
	})
}

func (n *node) step(e Event) { n.stepAt(n.clock(), e) }

// batching is how long before a step the batch may have begun in which the shell makes it.
const batching = 8 * ms

// early reports whether a step of n is made in a batch that began earlier. It draws no number.
func (s *sim) early(n *node) bool { return !s.fixed && n.clock()/ms%3 == 0 }

// stepAt steps with an earlier time, as a batch of the shell does, which may have been paused since
// it began (ADR 44).
func (n *node) stepAt(at Time, e Event) { n.do(n.core.Step(at, e)) }

// sync fsyncs; the disk works on while the process is paused.
func (n *node) sync() {
	have, life := len(n.log.entries), n.life
	last, mark := n.log.at(have), n.log.mark
	var done func()
	done = func() {
		if n.life != life {
			return
		}
		if n.slow > n.sim.now {
			n.sim.after(n.slow-n.sim.now, done)
			return
		}
		if n.log.at(have) == last {
			n.log.durable = max(n.log.durable, have)
			n.log.kept = mark
			n.log.mark.durable = n.log.durable
			if n.core != nil {
				n.log.mark.committed = segment.Earlier(n.core.known, n.log.posAt(n.log.durable))
			}
		}
		n.run(func() { n.step(Synced{n.log.posAt(n.log.durable)}) })
	}
	n.sim.after(n.sim.between(ms, 20*ms), done)
	n.fill()
	n.condemn()
	n.drop()
}

func (n *node) do(effects []Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case ReadControl:
			n.readControl()
		case Swap:
			n.swap(e)
		case Send:
			n.send(e.To, e.Message, nil)
		case Stream:
			n.streams[e.To] = e.From
		case Unstream:
			delete(n.streams, e.To)
		case Ingest:
			n.ingest()
		case Truncate:
			n.truncate(e.To)
		case BeginEpoch:
			n.sim.began(n, e.Epoch)
			n.sim.salts++
			n.log.entries = append(n.log.entries, entry{pos: Position{Seq: n.log.end().Seq + 1, Off: 1}, epoch: e.Epoch, salt: n.sim.salts})
			n.step(Appended{n.log.state()})
			n.sync()
			n.sim.bias("begin", n, nil)
		case Committed:
			n.committed(e.Position)
		case RoleChanged:
			n.sim.logf("%s is %v in epoch %d", n.name, e.Role, e.Epoch)
			n.stopped = false
			if e.Role != Home {
				n.waiting = map[int]Position{} // outcome unknown
			} else {
				n.sim.leads(n)
			}
			n.sim.bias("role", n, nil)
		case Pause:
			n.stopped = true
		case Resume:
			n.sim.logf("%s does not hand over", n.name)
			n.stopped = false
		case Lend:
			n.sim.lend(n, e)
		case Anew:
			n.begin()
			return
		case Disown:
			n.disown(e)
			return
		}
	}
	n.pump()
	n.sim.notify(n)
}

func (n *node) pump() {
	for _, to := range slices.Sorted(maps.Keys(n.streams)) {
		from := n.streams[to]
		if from.Less(n.log.base) {
			n.sim.fail("%s streams to %s from %v, and has dropped what lies before %v", n.name, to, from, n.log.base)
		}
		if k := n.log.index(from); k < len(n.log.entries) {
			n.send(to, n.core.Stamp(n.clock(), to, from), slices.Clone(n.log.entries[k:]))
			n.streams[to] = n.log.end()
		}
	}
}

// resting is how long a follower without room ignores frames, as the shell does.
const resting = 500 * ms

func (n *node) ingest() {
	if n.rests {
		return
	}
	if n.full > n.sim.now {
		home := n.core.home
		n.rests = true
		n.later(resting, func() {
			n.rests = false
			if n.core.role == Follower && n.core.home == home {
				n.send(home, Message{Kind: Lost, From: n.member, Epoch: n.core.epoch, Stamp: n.clock()}, nil)
			}
		})
		return
	}
	for _, e := range n.arrived {
		if n.log.end().Less(e.pos) {
			n.log.entries = append(n.log.entries, e)
		} else if have := n.log.at(n.log.index(e.pos)); have != e {
			n.sim.fail("%s ingests %v where it has %v", n.name, e, have)
		}
	}
	n.step(Appended{n.log.state()})
	n.sync()
}

func (n *node) truncate(to Position) {
	k := n.log.index(to)
	n.sim.logf("%s cuts %d entries", n.name, len(n.log.entries)-k)
	n.log.cut(k)
	if to.Less(n.applied) {
		if n.sim.forced == 0 {
			n.sim.fail("%s cuts at %v although it applied %v", n.name, to, n.applied)
		}
		n.applied = to
	}
	n.step(Appended{n.log.state()})
}

func (n *node) send(to string, m Message, frames []entry) {
	s := n.sim
	d, lane, life := s.network[n.name+">"+to], 0, 0
	if m.Kind == Append {
		lane = 1
	}
	if m.Kind == Ack || m.Kind == Welcome || m.Kind == Release || m.Kind == Append {
		s.bias([]string{Ack: "ack", Welcome: "welcome", Release: "release", Append: "append"}[m.Kind], n, s.node(to))
	}
	if d.dead {
		return
	}
	if !s.fixed && m.Stamp/ms%4 != 0 { // else to a release that knows whole lists only
		m = m.newest(1 + int(m.Stamp/(5*ms)%3))
	}
	at := max(s.now+s.between(ms, 30*ms), d.last[lane])
	d.last[lane], life = at, d.life
	var reading Time // of the receiver's clock, when its batch began; 0: there is none
	var inLife int
	if o := s.node(to); (m.Kind == Beat || m.Kind == Advance || m.Kind == Ack) && s.early(o) {
		s.after(max(at-batching, s.now)-s.now, func() {
			if o.core != nil && o.paused <= s.now {
				reading, inLife = o.clock(), o.life
			}
		})
	}
	s.after(at-s.now, func() {
		if d.life == life && !d.cut {
			o := s.node(to)
			o.run(func() {
				o.arrived = frames
				m.Proved = !n.blind && !o.blind // who has no key neither proves nor checks
				if reading == 0 || o.life != inLife {
					reading = o.clock()
				}
				o.stepAt(reading, Received{Message: m})
			})
		}
	})
}

// write appends a client's change if n is the home.
func (n *node) write() bool {
	if n.core == nil || n.paused > n.sim.now || n.core.role != Home || n.stopped || n.blind {
		return false
	}
	n.sim.written++
	end := n.log.end()
	e := entry{Position{Seq: end.Seq, Off: end.Off + 1}, n.core.epoch, n.sim.written, n.log.at(len(n.log.entries)).salt}
	if n.sim.chance(10) { // the segment rolls
		e.pos = Position{Seq: end.Seq + 1, Off: 1}
	}
	n.log.entries = append(n.log.entries, e)
	n.waiting[e.id] = e.pos
	n.step(Appended{n.log.state()})
	n.sync()
	return true
}
