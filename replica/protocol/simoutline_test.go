// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"math/rand/v2"
	"time"
)

// outliners are gateways without a copy that ask how far the log reaches (outline-2). They draw
// their own random numbers.
type outliners struct {
	rnd     *rand.Rand
	told    int // questions that were answered
	readers []*reader
	reads   int // how often a reader might answer from what it has
}

// reader is a gateway without a copy that reads under leases (outline-6). Its messages may be lost.
// It is asked at any time, and may then answer with what lies before known.
type reader struct {
	sim    *sim
	name   string
	rate   float64
	offset time.Duration
	to     *stream
	view   uint64 // the epoch of the home, as far as it has heard
	known  Position
	lease  Time
	lentIn uint64
	lentBy *node
	hard   bool // its clients read hard
	silent time.Duration
}

// stream is a connection of a reader to a home, which serves it in one epoch.
type stream struct {
	home  *node
	epoch uint64
	heard Position // by the reader, of what it was told
}

func (r *reader) clock() Time { return r.offset + time.Duration(float64(r.sim.now)*r.rate) }

// begin makes gateways without a copy take part.
func (s *sim) begin(rnd *rand.Rand) {
	s.outliners.rnd = rnd
	for _, name := range []string{"x", "y"} {
		r := &reader{sim: s, name: name, rate: []float64{0.97, 1, 1.03}[rnd.IntN(3)], offset: time.Duration(rnd.Int64N(int64(time.Hour)))}
		s.outliners.readers = append(s.outliners.readers, r)
		s.after(beat, r.tick)
	}
}

// way returns how long a message takes; false: it is lost.
func (r *reader) way() (time.Duration, bool) {
	rnd := r.sim.outliners.rnd
	return time.Duration(rnd.Int64N(int64(60 * ms))), r.silent <= r.sim.now && rnd.IntN(50) > 0
}

func (r *reader) tick() {
	s, rnd := r.sim, r.sim.outliners.rnd
	s.after(beat, r.tick)
	if rnd.IntN(100) == 0 {
		r.silent = s.now + time.Duration(rnd.Int64N(int64(3*time.Second)))
	}
	if rnd.IntN(40) == 0 {
		r.hard = !r.hard
	}
	if s.ctl != nil && s.ctl.Epoch > r.view && rnd.IntN(4) == 0 { // it hears of another epoch
		r.view, r.known, r.lease = s.ctl.Epoch, Position{}, 0
		r.to = nil
	}
	if t := r.to; t == nil || !t.home.leads() || t.home.core.epoch != t.epoch || rnd.IntN(40) == 0 {
		r.to = nil
		if n := s.nodes[rnd.IntN(len(s.nodes))]; n.leads() { // it may well be one that was home
			r.to = &stream{home: n, epoch: n.core.epoch}
		}
	}
	reads := 0
	if r.hard {
		reads = 50
	}
	r.tell(reads)
}

func (n *node) leads() bool { return n.core != nil && n.core.leading() }

// tell sends to the home what the reader knows.
func (r *reader) tell(reads int) {
	t := r.to
	if t == nil {
		return
	}
	e := Reading{Gateway: r.name, Epoch: t.epoch, Stamp: r.clock(), Reads: reads}
	e.Known = t.heard
	if d, ok := r.way(); ok {
		t.home.later(d, func() {
			t.home.step(e)
			t.home.sim.notify(t.home)
		})
	}
}

// lend is a node's Lend effect.
func (s *sim) lend(n *node, e Lend) {
	for _, r := range s.outliners.readers {
		if r.name == e.To && r.to != nil && r.to.home == n && r.to.epoch == e.Epoch {
			r.inform(e.Echo, e.Grant, n.log.end())
		}
	}
}

// notify tells the readers that may have a lease how far the log of their home reaches now.
func (s *sim) notify(n *node) {
	if !n.leads() {
		return
	}
	for _, r := range s.outliners.readers {
		p := n.core.readers[r.name]
		if t := r.to; t != nil && t.home == n && t.epoch == n.core.epoch && p != nil && p.lease > n.clock() && p.match.Less(n.log.end()) {
			r.inform(0, 0, n.log.end())
		}
	}
}

// inform sends a lease, or only how far the log reaches.
func (r *reader) inform(echo Time, grant time.Duration, end Position) {
	t := r.to
	d, ok := r.way()
	if !ok {
		return
	}
	r.sim.after(d, func() {
		if r.to != t {
			return // the connection is another one
		}
		t.heard = later(t.heard, end)
		r.known = later(r.known, end)
		if grant > 0 {
			r.lease, r.lentIn, r.lentBy = max(r.lease, echo+relied(grant)), t.epoch, t.home
		}
		r.tell(0)
	})
}

// checkReaders: a reader with a lease knows of all that was acknowledged (protocol-26), but in a
// branch that may be given up.
func (s *sim) checkReaders() {
	k := len(s.truth.committed)
	for _, r := range s.outliners.readers {
		if r.clock() >= r.lease || r.lentIn < s.forced || k == 0 || s.rival(r.lentBy) {
			continue
		}
		s.outliners.reads++
		if last := s.truth.committed[k-1]; r.known.Less(last.pos) {
			s.fail("%s, lent to in epoch %d, reads up to %v, without %v", r.name, r.lentIn, r.known, last)
		}
	}
}

// ask asks one node, which answers if it is home and serves when the question arrives. All that was
// committed when it was asked must lie before the end that it tells.
func (s *sim) ask() {
	if s.outliners.rnd == nil {
		return
	}
	s.want()
	n := s.nodes[s.outliners.rnd.IntN(len(s.nodes))]
	had := len(s.truth.committed)
	n.later(time.Duration(s.outliners.rnd.Int64N(int64(300*ms))), func() {
		if !n.core.leading() || !n.core.MayServe(n.clock()) || s.outside(n) {
			return
		}
		s.outliners.told++
		k := min(had, len(s.truth.committed)) // what a person gave up meanwhile is not missed
		if k > 0 && n.log.at(k) != s.truth.committed[k-1] {
			s.fail("%s tells that the log reaches to %v, which lacks %v, committed when it was asked", n.name, n.log.end(),
				s.truth.committed[k-1])
		}
	})
}

// want has clients of some gateways read, a few times or many: then a gateway without a vote asks
// for a lease.
func (s *sim) want() {
	for _, n := range s.nodes {
		if reads := s.outliners.rnd.IntN(40); reads >= 20 {
			n.run(func() { n.step(Wanted{reads}) })
		}
	}
}
