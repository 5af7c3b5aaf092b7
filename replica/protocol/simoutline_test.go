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
	home   *node
	epoch  uint64 // of the home that lent last
	known  Position
	lease  Time
	hard   bool // its clients read hard
	silent time.Duration
}

func (r *reader) clock() Time { return r.offset + time.Duration(float64(r.sim.now)*r.rate) }

// reads makes gateways without a copy take part.
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
	if r.home == nil || !r.home.leads() || rnd.IntN(40) == 0 {
		r.home = s.nodes[rnd.IntN(len(s.nodes))] // it may well be one that was home
	}
	reads := 0
	if r.hard {
		reads = 50
	}
	r.tell(reads)
}

func (n *node) leads() bool { return n.core != nil && n.core.leading() }

// tell sends to the home what the reader knows. It is lost if that is none any more when it comes.
func (r *reader) tell(reads int) {
	n := r.home
	e := Reading{Gateway: r.name, Known: r.known, Stamp: r.clock(), Reads: reads}
	epoch := r.epoch
	if d, ok := r.way(); ok {
		n.later(d, func() {
			if n.core.epoch != epoch {
				e.Known = Position{} // the stream is of another epoch
			}
			n.step(e)
			n.sim.notify(n)
		})
	}
}

// lend is a node's Lend effect.
func (s *sim) lend(n *node, e Lend) {
	s.inform(n, e.To, e.Epoch, e.Echo, e.Grant, e.End)
}

// notify tells the readers that may have a lease how far the log of their home reaches now.
func (s *sim) notify(n *node) {
	if !n.leads() {
		return
	}
	for _, r := range s.outliners.readers {
		if p := n.core.readers[r.name]; p != nil && p.lease > n.clock() && p.match.Less(n.log.end()) {
			s.inform(n, r.name, n.core.epoch, 0, 0, n.log.end())
		}
	}
}

// inform sends a lease, or only how far the log reaches.
func (s *sim) inform(n *node, to string, epoch uint64, echo Time, grant time.Duration, end Position) {
	for _, r := range s.outliners.readers {
		d, ok := r.way()
		if r.name != to || !ok || r.home != n {
			continue
		}
		s.after(d, func() {
			if r.home != n || epoch < r.epoch {
				return
			}
			if epoch > r.epoch {
				r.epoch, r.known, r.lease = epoch, Position{}, 0
			}
			r.known = later(r.known, end)
			if grant > 0 {
				r.lease = max(r.lease, echo+relied(grant))
			}
			r.tell(0)
		})
	}
}

// checkReaders: a reader with a lease knows of all that was acknowledged (protocol-26).
func (s *sim) checkReaders() {
	k := len(s.truth.committed)
	for _, r := range s.outliners.readers {
		if r.clock() >= r.lease || r.epoch < s.forced || k == 0 {
			continue
		}
		s.outliners.reads++
		if last := s.truth.committed[k-1]; r.known.Less(last.pos) {
			s.fail("%s, lent to in epoch %d, reads up to %v, without %v", r.name, r.epoch, r.known, last)
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
