// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"slices"
	"time"
)

// How the simulation's gateways lose what they had.

// suspend stops the machine from outside: its clock stands still. What was to come waits for its
// end, before which the machine notices that the wall clock jumped.
func (n *node) suspend(d time.Duration) {
	if n.core == nil || n.paused > n.sim.now {
		return
	}
	n.sim.logf("%s is suspended for %v", n.name, d)
	reading := n.clock()
	n.backlog = append([]func(){func() {
		n.setClock(reading, n.rate)
		n.step(Jumped{})
	}}, n.backlog...)
	n.pause(d)
}

// crash ends the process. With power, what was not synced and the clock's reading are lost too.
func (n *node) crash(power bool) {
	if n.core == nil {
		return
	}
	n.core, n.paused, n.backlog = nil, 0, nil
	n.life++
	if power {
		n.sim.logf("%s loses power and %d entries", n.name, len(n.log.entries)-n.log.durable)
		n.log.cut(n.log.durable)
		n.log.mark = n.log.kept
		n.setClock(n.sim.between(ms, 20*time.Second), n.rate)
	} else {
		n.sim.logf("%s is killed", n.name)
		n.log.durable = len(n.log.entries)
	}
	for _, o := range n.sim.nodes {
		if o != n {
			n.sim.reset(n.name, o.name)
		}
	}
}

// wipe empties the disk: the gateway comes back as another member.
func (n *node) wipe() {
	n.crash(true)
	n.sim.logf("%s has a new disk", n.name)
	n.incarnation++
	n.kept = record{}
	n.member.Incarnation = fmt.Sprint(n.incarnation)
	n.anew()
}

// anew makes an empty log, which is another member's.
func (n *node) anew() {
	n.log, n.doubted, n.rewound = simLog{}, false, false
	n.logs++
	n.member.Log = fmt.Sprint(n.logs)
	for _, o := range n.sim.nodes {
		o.run(func() { o.step(Peers{o.sim.present()}) })
	}
}

// install lets a copy that has nothing begin with a checkpoint of the present home, which has
// committed what is before it. What the checkpoint has not is then lacking.
func (n *node) install() {
	s := n.sim
	if len(n.log.entries) > 0 || n.blind || s.wentBack || len(s.rivals) > 0 || !s.chance(50) {
		return
	}
	for _, o := range s.nodes {
		if o == n || o.core == nil || o.core.role != Home || !s.isHome(o) || o.paused > s.now {
			continue
		}
		if k := o.log.index(o.core.commit); k > 0 {
			k = 1 + s.rnd.IntN(k)
			n.log.entries, n.log.durable, n.log.lacks = slices.Clone(o.log.entries[:k]), k, k
			n.log.mark = simMark{durable: k, committed: n.log.end()}
			n.log.kept = n.log.mark
			s.installed++
			s.logf("%s begins with a checkpoint of %s at %v", n.name, o.name, n.log.end())
		}
		return
	}
}

// condemned is a record that condemns what lies before base.
type condemned struct {
	is   entry
	base Position
}

// condemn lets a home commit that all before some position is dropped, once all members have that.
func (n *node) condemn() {
	s := n.sim
	if n.core == nil || n.core.role != Home || !s.isHome(n) || n.blind || !s.chance(2) {
		return
	}
	k := n.log.index(n.core.commit)
	if k < 3 || k > len(s.truth.committed) || n.log.at(k) != s.truth.committed[k-1] {
		return
	}
	c := condemned{n.log.at(k), n.log.posAt(1 + s.rnd.IntN(k-1))}
	s.logf("%s condemns what lies before %v", n.name, c.base)
	s.condemned = append(s.condemned, c)
}

// drop drops what was condemned by what this gateway applied.
func (n *node) drop() {
	if n.core == nil || n.blind { // which reads no record
		return
	}
	for _, c := range n.sim.condemned {
		if k := n.log.index(c.is.pos); !n.applied.Less(c.is.pos) && n.log.at(k) == c.is && n.log.base.Less(c.base) {
			n.log.base = c.base
			n.run(func() { n.step(Appended{n.log.state()}) })
		}
	}
}

// begin ends the process: the log is to begin anew with a checkpoint. All that it has stays.
func (n *node) begin() {
	s := n.sim
	n.crash(false)
	n.log.durable = len(n.log.entries)
	s.anew++
	for _, o := range s.nodes {
		if o == n || o.core == nil || o.core.role != Home || !s.isHome(o) {
			continue
		}
		if k := o.log.index(o.core.commit); o.log.posAt(k) != n.log.end() && n.log.end().Less(o.log.posAt(k)) {
			have := n.log.end()
			n.log.entries, n.log.durable = slices.Clone(o.log.entries[:k]), k
			n.log.lacks = k
			n.log.mark = simMark{durable: k, committed: n.log.end()}
			n.log.kept, n.log.base = n.log.mark, o.log.base
			s.logf("%s begins anew at %v, where it ended at %v", n.name, n.log.end(), have)
			if n.log.base != (Position{}) && slices.Contains(s.policy.Blind, n.name) {
				s.blindAnew++
			}
			if n.log.base != (Position{}) && o.blind && !slices.Contains(s.policy.Blind, n.name) {
				s.anewOfSteward++
			}
		}
	}
	s.after(s.between(0, promise), n.start)
}

// fill gets what a copy lacks, from one that has it all.
func (n *node) fill() {
	s := n.sim
	if n.log.lacks == 0 || n.core == nil || !s.chance(5) {
		return
	}
	for _, o := range s.nodes {
		if o != n && o.core != nil && o.log.lacks == 0 && o.log.at(n.log.lacks) == n.log.at(n.log.lacks) {
			s.logf("%s has all that it lacked", n.name)
			n.log.lacks = 0
			n.run(func() { n.step(Appended{n.log.state()}) })
			return
		}
	}
}

// damage cuts the power, and damages the log: k entries can be read. Those that are gone below the
// watermark are seen to be lost, the others are taken for torn.
func (n *node) damage(k int) {
	n.crash(true)
	n.sim.logf("%s: of its log %d of %d entries can be read", n.name, k, len(n.log.entries))
	n.doubted = k < n.log.mark.durable
	n.rewound = !n.doubted && k < n.log.durable
	n.log.entries, n.log.durable = n.log.entries[:k], min(n.log.durable, k)
}

// rewind cuts the power, and takes the disk back to when it had k entries.
func (n *node) rewind(k int) {
	n.crash(true)
	n.sim.logf("%s: its disk goes back to %d of %d entries", n.name, k, len(n.log.entries))
	n.log.cut(k)
	n.rewound = true
}

// renew makes a log that lost something anew, as soon as the record does not count on it any more.
func (n *node) renew() bool {
	if s := n.sim; s.ctl != nil && s.ctl.IsMember(n.member) || n.refuses || s.wentBack {
		s.tend(n) // its gateway runs, but not this copy
		n.sim.after(promise, n.start)
		return false
	}
	n.sim.logf("%s begins anew", n.name)
	n.anew()
	return true
}

// disown ends the process: its log lost something, which it was told.
func (n *node) disown(e Disown) {
	if !n.rewound && n.sim.times == 0 {
		n.sim.fail("%s is to have lost something up to %v, but lost nothing", n.name, e.Committed)
	}
	n.sim.logf("%s lost something up to %v, as %s knows", n.name, e.Committed, e.By)
	n.crash(false)
	n.doubted, n.rewound = true, false
	n.sim.after(promise, n.start)
}

// reset breaks the connection between two nodes. What is under way is lost, and each end learns of
// it at its own time.
func (s *sim) reset(a, b string) {
	for _, pair := range [][2]string{{a, b}, {b, a}} {
		d := s.network[pair[0]+">"+pair[1]]
		d.life++
		d.dead = true
		n, life := s.node(pair[0]), d.life
		told := func() {
			if d.life == life {
				d.dead = false
				if n.core != nil {
					n.step(PeerDown{pair[1]})
				}
			}
		}
		s.after(s.between(0, 100*ms), func() {
			if n.core == nil {
				told()
			} else {
				n.run(told)
			}
		})
	}
}
