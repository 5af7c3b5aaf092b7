// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
)

// The simulation's log and registry.

type entry struct {
	pos   Position
	epoch uint64
	id    int // 0 for the header of an epoch
	salt  int // of the epoch's first segment
}

func (e entry) String() string { return fmt.Sprintf("%d@%d", e.id, e.epoch) }

type simLog struct {
	entries []entry
	durable int      // entries that a power cut leaves
	base    Position // nothing before it can be streamed
	lacks   int      // entries, the first ones, of which it has only what a checkpoint says
	mark    simMark
	kept    simMark // the mark that a power cut leaves
}

// simMark is the watermark of package log: what was durable, and known to be committed.
type simMark struct {
	durable   int
	committed Position
}

// cut leaves the first k entries.
func (l *simLog) cut(k int) {
	l.entries = l.entries[:k]
	l.durable, l.lacks, l.base = min(l.durable, k), min(l.lacks, k), segment.Earlier(l.base, l.posAt(min(k, len(l.entries))))
	for _, m := range []*simMark{&l.mark, &l.kept} {
		m.durable = min(m.durable, k)
		m.committed = segment.Earlier(m.committed, l.posAt(k))
	}
}

func (l *simLog) end() Position { return l.posAt(len(l.entries)) }

// at returns the i-th entry, counted from 1.
func (l *simLog) at(i int) entry {
	if i == 0 || i > len(l.entries) {
		return entry{}
	}
	return l.entries[i-1]
}

func (l *simLog) posAt(n int) Position { return l.at(n).pos }

func (l *simLog) state() LogState {
	s := LogState{End: l.end(), Durable: l.posAt(l.durable), Committed: l.mark.committed, Lacks: uint64(l.lacks),
		Base: l.base}
	for i, e := range l.entries {
		if n := len(s.Epochs); n == 0 || s.Epochs[n-1].Epoch != e.epoch {
			s.Epochs = append(s.Epochs, log.EpochStart{Epoch: e.epoch, Start: l.posAt(i), Salt: [32]byte{byte(e.salt), byte(e.salt >> 8)}})
		}
	}
	return s
}

// index returns the number of entries at or before p.
func (l *simLog) index(p Position) int {
	return sort.Search(len(l.entries), func(i int) bool { return p.Less(l.entries[i].pos) })
}

type record struct {
	ctl *federation.Control
	rev federation.Revision
}

type registry struct {
	record
	restoration
	old      []record // all there ever were
	down     bool
	unheard  map[string]bool // gateways that are cut off
	mishap   int             // percentage of swaps that go wrong in some way
	lag      time.Duration   // of watches, at most
	nowatch  bool
	outcomes []string // stories: how the next swaps end
	inFlight int
}

func (r *registry) init() {
	r.unheard, r.lag = map[string]bool{}, 80*ms
	r.old = []record{{}}
}

func (s *sim) reaches(n *node) bool { return !s.down && !s.unheard[n.name] }

func (n *node) controlRead(r record) {
	if r = n.sees(r); n.core == nil {
		return // the gateway is there, but not this copy
	}
	if r.ctl != nil {
		c := r.ctl.Clone()
		r.ctl = &c
	}
	n.step(ControlRead{r.ctl, r.rev})
}

func (n *node) readControl() {
	s := n.sim
	s.bias("read", n, nil)
	n.later(s.between(ms, 40*ms), func() {
		if !s.reaches(n) {
			return
		}
		r, back := s.record, s.between(ms, 40*ms)
		if s.chance(5) {
			back = s.between(ms, 1500*ms)
		}
		n.later(back, func() { n.controlRead(r) })
	})
}

// stale sends a node that starts an old record, as a lagging part of the registry might.
func (s *sim) stale(n *node) {
	if s.chance(30) {
		r := s.old[max(0, len(s.old)-1-s.rnd.IntN(4))]
		n.later(s.between(0, 60*ms), func() { n.controlRead(r) })
	}
}

// apply applies a swap at the registry.
func (s *sim) apply(n *node, e Swap, forced bool) bool {
	s.inFlight--
	if s.rev != e.Previous || s.noticed {
		return false
	}
	if err := federation.CheckSwap(s.ctl, e.Next); err != nil {
		s.fail("%s: %v", n.name, err)
		return false
	}
	if old := s.ctl; old != nil && old.Epoch != e.Next.Epoch && !forced &&
		!slices.ContainsFunc(old.Members, func(m Member) bool { return m == e.Next.Home }) {
		s.fail("%s takes over without being a member", n.name)
	}
	c := e.Next.Clone()
	c.Succeed(s.ctl)
	s.record = record{&c, s.rev + 1}
	s.old = append(s.old, s.record)
	switch {
	case !s.wentBack:
	case !s.ctl.DescendsFrom(*s.tip.ctl):
		if s.rivals = append(s.rivals, s.record); s.another {
			s.fail("%s changes the record of a registry that is not the one that it knows", n.name)
		}
	case !slices.ContainsFunc(s.nodes, func(n *node) bool { return n.refuses }):
		s.restoration = restoration{times: s.times, branched: s.branched} // the same swap was made again, and nobody noticed
	}
	s.logf("record: %v", s.registry)
	s.recorded(forced, n)
	if !s.nowatch {
		for _, o := range s.nodes {
			r := s.record
			o.later(s.between(ms, s.lag), func() {
				if s.reaches(o) {
					o.controlRead(r)
				}
			})
		}
	}
	s.bias("record", n, nil)
	return true
}

func (n *node) swap(e Swap) {
	s := n.sim
	if n.forcing {
		n.forced = &e.Next
	}
	forced := n.forced != nil && n.forced.Same(e.Next)
	life := n.life
	hear := func(d time.Duration, f func()) {
		if n.life == life { // a process that started since does not hear what another asked for
			n.later(d, f)
		}
	}
	answer := func(d time.Duration, sw Swapped) { hear(d, func() { n.step(sw) }) }
	outcome := ""
	switch {
	case len(s.outcomes) > 0:
		outcome, s.outcomes = s.outcomes[0], s.outcomes[1:]
	case s.chance(s.mishap):
		outcome = []string{"unknown", "unapplied", "late", "late", "slow"}[s.rnd.IntN(5)]
	}
	s.bias("swap", n, nil)
	s.inFlight++
	s.after(s.between(ms, 40*ms), func() {
		if !s.reaches(n) {
			s.inFlight--
			unreached := Swapped{Outcome: SwapUnknown}
			if s.mishap > 0 && s.rnd.IntN(2) == 0 {
				unreached.Outcome = SwapNotMade
			}
			answer(s.between(ms, 40*ms), unreached)
			return
		}
		back := s.between(ms, 40*ms)
		if s.wentBack && n.core != nil {
			n.sees(s.record) // a swap reads the record first
		}
		if n.refuses || s.noticed {
			s.inFlight--
			result := Swapped{Outcome: SwapNotMade}
			if n.refuses {
				result = s.testify(n, e)
			}
			answer(back, result)
			return
		}
		switch outcome {
		case "unapplied":
			s.inFlight--
		case "late": // it arrives late, and nobody hears of it
			times := s.times
			s.after(s.between(0, 3000*ms), func() {
				if s.times == times { // a registry that was restored gets nothing that was sent to the one before
					s.apply(n, e, forced)
				} else {
					s.inFlight--
				}
			})
		default:
			done, accepted := s.apply(n, e, forced), n.accepted
			r := s.record
			if outcome == "slow" {
				back = s.between(ms, 1500*ms)
			}
			switch {
			case outcome == "unknown":
			case !done:
				answer(back, Swapped{Outcome: SwapConflict})
				return
			default:
				hear(back, func() {
					result := Swapped{Outcome: SwapUnknown} // so it is if it refused the registry since
					if !n.refuses && n.accepted == accepted {
						result = Swapped{SwapDone, r.rev}
						if r.rev > n.kept.rev { // it knows before it acts
							n.kept = r
							s.learn(r)
						}
					}
					n.step(result)
				})
				return
			}
		}
		answer(back, Swapped{Outcome: SwapUnknown})
	})
}

func names(ms []Member) []string {
	var out []string
	for _, m := range ms {
		out = append(out, m.Gateway)
	}
	return out
}

func (r registry) String() string {
	if r.ctl == nil {
		return "none"
	}
	return fmt.Sprintf("epoch %d home %s members %v", r.ctl.Epoch, r.ctl.Home.Gateway, names(r.ctl.Members))
}

// isHome reports whether the registry's record says so.
func (s *sim) isHome(n *node) bool { return s.ctl != nil && s.ctl.Home == n.member }
