// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	seeds = flag.Int("seeds", 500, "random schedules to run")
	first = flag.Uint64("seed", 1, "first seed")
	lines = flag.Int("lines", 80, "lines of a failed schedule to show")
)

// schedule makes a world from a seed: how many gateways, which policy, how fast the clocks, how
// unlucky.
func schedule(seed uint64) *sim {
	sites := "abc"
	if seed%5 == 0 {
		sites = "abcd"
	}
	policy := Policy{Want: 1 + int(seed%3), FirstHome: "a", Sites: strings.Split(sites, "")}
	if seed%2 == 0 { // one copy is blind, of four perhaps two
		for i := range 1 + int(seed/20%2)*(len(sites)-3) {
			policy.Blind = append(policy.Blind, policy.Sites[len(sites)-1-i])
		}
	}
	s := newSim(seed, policy, sites)
	s.policy.Continue = s.chance(60)
	for _, n := range s.nodes {
		n.rate, n.offset = s.speed(), s.between(ms, time.Hour)
	}
	if s.chance(40) {
		s.lag = 3 * time.Second
	}
	s.nowatch = s.chance(20)
	s.mixed = seed%4 == 1
	return s
}

// speed is within what the protocol allows.
func (s *sim) speed() float64 { return []float64{0.97, 1, 1.03}[s.rnd.IntN(3)] }

// some returns a random duration, short or long.
func (s *sim) some() time.Duration {
	return s.between(0, []time.Duration{300 * ms, 2500 * ms, 9 * time.Second}[s.rnd.IntN(3)])
}

func (s *sim) pick(not *node) *node {
	for {
		if n := s.nodes[s.rnd.IntN(len(s.nodes))]; n != not {
			return n
		}
	}
}

func (s *sim) part(a, b *node, d time.Duration, oneWay bool) {
	s.logf("%s and %s are cut for %v", a.name, b.name, d)
	there, back := s.network[a.name+">"+b.name], s.network[b.name+">"+a.name]
	there.cut = true
	back.cut = back.cut || !oneWay
	if s.chance(60) {
		s.after(s.some(), func() { s.reset(a.name, b.name) })
	}
	s.after(d, func() { there.cut, back.cut = false, false; s.reset(a.name, b.name) })
}

func (s *sim) deafen(n *node, d time.Duration) {
	s.logf("%s and the registry are cut for %v", n.name, d)
	s.unheard[n.name] = true
	s.after(d, func() { delete(s.unheard, n.name) })
}

func (s *sim) restart(n *node, power bool, d time.Duration) {
	if n.core != nil {
		n.crash(power)
		s.after(d, n.start)
	}
}

func (s *sim) hang(n *node, d time.Duration) {
	s.logf("%s: disk hangs for %v", n.name, d)
	n.slow = max(n.slow, s.now+d)
}

func (s *sim) fill(n *node, d time.Duration) {
	s.logf("%s: pool is full for %v", n.name, d)
	n.full = max(n.full, s.now+d)
}

// replace wipes a disk if another living member of the record has everything.
func (s *sim) replace(n *node) {
	if s.ctl == nil || s.inFlight > 0 {
		return
	}
	for _, o := range s.nodes {
		if o != n && s.ctl.IsMember(o.member) && o.joinable() {
			n.wipe()
			s.after(s.some(), n.start)
			return
		}
	}
}

// fault does one random harmful thing.
func (s *sim) fault() {
	if s.fragile() {
		return
	}
	n := s.pick(nil)
	o := s.pick(n)
	kind := s.rnd.IntN(22)
	if s.wentBack && (kind == 13 || kind > 14 && kind != 18 && kind != 19) {
		return // no person or disk does more harm before it is brought forward
	}
	switch kind {
	case 0, 1:
		s.restart(n, true, s.some())
	case 2:
		s.restart(n, false, s.some())
	case 3:
		n.pause(s.some())
	case 4, 5:
		s.part(n, o, s.some(), false)
	case 6:
		s.part(n, o, s.some(), true)
	case 7: // a whole site, registry included
		d := s.some()
		for _, o := range s.nodes {
			if o != n {
				s.part(n, o, d, false)
			}
		}
		s.deafen(n, d)
	case 8:
		s.down = true
		s.logf("registry down")
		s.after(s.some(), func() { s.down = false })
	case 9:
		s.deafen(n, s.some())
	case 10:
		n.setClock(n.clock(), s.speed())
	case 11: // a planned move
		s.logf("move to %s", o.name)
		for _, n := range s.nodes {
			n.run(func() { n.step(Move{To: o.name}) })
		}
	case 12:
		s.hang(n, s.some())
	case 13:
		if s.chance(30) {
			s.replace(n)
		}
	case 14:
		s.policy.Want = 1 + s.rnd.IntN(3)
		s.logf("%d members wanted", s.policy.Want)
		for _, n := range s.nodes {
			n.run(func() { n.step(PolicyChanged{s.policy}) })
		}
	case 15:
		if s.chance(15) {
			s.force(n)
		}
	case 16:
		s.spoil(n)
	case 17:
		s.goBack(n)
	case 18:
		s.fill(n, s.some())
	case 19:
		n.suspend(s.some())
	case 20:
		if s.ctl != nil && !slices.ContainsFunc(s.nodes, func(n *node) bool { return n.refuses || !n.joinable() }) {
			if s.restore(1+s.rnd.IntN(4), s.chance(50)) {
				s.remedy()
			}
		}
	case 21:
		s.turn(n)
	}
}

// remedy reconciles the registry as soon as that can be, some time after it went back.
func (s *sim) remedy() {
	s.after(s.between(time.Second, 9*time.Second), func() {
		if s.wentBack && !s.reconcile("") {
			s.remedy()
		}
	})
}

// others reports whether another member of the record is there, and whether all of them are up.
func (s *sim) others(n *node) (some, up bool) {
	up = true
	for _, o := range s.nodes {
		if o != n && s.ctl != nil && s.ctl.IsMember(o.member) {
			some, up = true, up && o.core != nil && o.paused <= s.now && o.slow <= s.now && o.joinable()
		}
	}
	return some && s.inFlight == 0, up
}

// joinable reports whether no doubt keeps a node from taking part.
func (n *node) joinable() bool { return !n.doubted && !n.rewound }

// spoil damages the end of a log below its watermark, if another member has all that it has.
func (s *sim) spoil(n *node) {
	if some, up := s.others(n); some && up && n.core != nil && n.log.kept.durable > 0 {
		n.damage(s.rnd.IntN(n.log.kept.durable))
		s.after(s.some(), n.start)
	}
}

// goBack takes a disk back to what the others know to be committed, or before. Only they know it,
// so nothing else keeps them from saying so: they reach everybody, and believe the registry.
func (s *sim) goBack(n *node) {
	if s.wentBack || slices.ContainsFunc(s.nodes, func(o *node) bool { return o.refuses }) {
		return
	}
	some, up := s.others(n)
	steady := slices.ContainsFunc(s.nodes, func(o *node) bool {
		return o.core != nil && o.core.role == Home && o.core.moving == "" && s.isHome(o)
	})
	if !some || !up || !steady || n.core == nil || len(s.cuts()) > 0 || s.down || len(s.unheard) > 0 {
		return
	}
	k := len(n.log.entries)
	for _, o := range s.nodes {
		if o != n && s.ctl.IsMember(o.member) {
			k = min(k, n.log.index(o.core.known))
		}
	}
	if k > 0 {
		n.rewind(s.rnd.IntN(k))
		s.after(s.between(0, 400*ms), n.start)
	}
}

// fragile reports whether a disk went back and nobody has noticed yet. Until then another fault may
// lose data: then nobody is left who knows.
func (s *sim) fragile() bool {
	return slices.ContainsFunc(s.nodes, func(n *node) bool { return n.rewound })
}

// cuts lists the connections that are cut or broken.
func (s *sim) cuts() (out []string) {
	for name, d := range s.network {
		if d.cut || d.dead {
			out = append(out, name)
		}
	}
	return out
}

func (s *sim) force(n *node) {
	if n.core == nil || n.paused > s.now {
		return
	}
	s.logf("force %s", n.name)
	n.forcing = true
	if ctl := n.core.ctl; ctl != nil {
		n.step(Force{Epoch: ctl.Epoch, Change: ctl.Change})
	}
	n.forcing = false
}

// follow injects faults at the moments where they matter most: at swaps, beginnings, promises and
// hand-overs.
func (s *sim) follow(percent int) {
	busy := false
	s.bias = func(what string, n, o *node) {
		p := percent
		switch what {
		case "ack", "append", "welcome":
			p = max(1, percent/10)
		}
		if busy || s.fragile() || !s.chance(p) {
			return
		}
		busy = true // not at once: the step that caused it is not finished
		s.after(s.some()/50, func() {
			busy = false
			if s.fragile() {
				return
			}
			if o == nil {
				o = s.pick(n)
			}
			if s.chance(50) {
				n, o = o, n
			}
			switch s.rnd.IntN(9) {
			case 0, 1:
				s.restart(n, s.chance(70), s.between(0, 400*ms))
			case 2, 3:
				s.part(n, o, s.some(), s.chance(20))
			case 4:
				for _, o := range s.nodes {
					if o != n {
						s.part(n, o, s.between(0, 4*time.Second), false)
					}
				}
			case 5:
				s.deafen(n, s.some())
			case 6:
				n.pause(s.between(0, 3*time.Second))
			case 7:
				s.hang(n, s.some())
			case 8:
				s.deafen(n, s.between(0, 4*time.Second))
				s.part(n, o, s.between(0, 4*time.Second), false)
			}
		})
	}
}

// load writes at every home while the world advances by d.
func (s *sim) load(d time.Duration) {
	for end := s.now + d; s.now < end && s.failure == ""; {
		s.advance(s.between(5*ms, 60*ms))
		s.ask()
		for _, n := range s.nodes {
			if s.chance(40) {
				n.write()
			}
		}
	}
}

func (s *sim) report(t *testing.T, what string, seed uint64) {
	if s.failure != "" {
		t.Fatalf("%s, seed %d, %d members wanted, continue %v: %s\n%s", what, seed, s.policy.Want, s.policy.Continue, s.failure,
			strings.Join(s.trace[max(0, len(s.trace)-*lines):], "\n"))
	}
}

func TestRandomSchedules(t *testing.T) {
	var acked, reads, lent, far, fresh, told, epochs, back, branched, stewards, left, installed, anew, blindAnew, ofSteward int
	for i := range *seeds {
		seed := *first + uint64(i)
		s := schedule(seed)
		s.begin(rand.New(rand.NewPCG(seed, 7)))
		for _, n := range s.nodes {
			n.start()
		}
		s.load(2 * time.Second)
		for range 5 {
			density := 1 + s.rnd.IntN(25)
			s.mishap = 10 * s.rnd.IntN(8)
			s.follow(s.rnd.IntN(20))
			for end := s.now + s.between(time.Second, 8*time.Second); s.now < end && s.failure == ""; {
				s.load(100 * ms)
				if s.chance(density) {
					s.fault()
				}
			}
		}
		if s.failure == "" {
			s.settle()
		}
		s.report(t, "random schedule", seed)
		acked, reads, lent, fresh, epochs = acked+s.acked, reads+s.reads, lent+s.lent, fresh+s.fresh, epochs+len(s.homes)
		left, installed, anew = left+s.left, installed+s.installed, anew+s.anew
		blindAnew, ofSteward = blindAnew+s.blindAnew, ofSteward+s.anewOfSteward
		told, far = told+s.outliners.told, far+s.outliners.reads
		back, branched, stewards = back+s.times, branched+s.branched, stewards+s.stewards
	}
	if fresh == 0 || reads == 0 || lent == 0 || far == 0 || told == 0 {
		t.Error("nobody read")
	}
	if left == 0 {
		t.Error("no copy that is to go was left")
	}
	if anew == 0 {
		t.Error("no copy began anew")
	}
	if blindAnew == 0 || ofSteward == 0 {
		t.Errorf("%d blind copies began behind what was dropped, and %d keyed ones with what a steward had", blindAnew, ofSteward)
	}
	if installed == 0 {
		t.Error("no copy began with a checkpoint")
	}
	if stewards == 0 {
		t.Error("no blind copy led and handed on")
	}
	t.Logf("%d schedules: %d acknowledged, %d times reading was allowed, %d of them without a vote, %d without a copy, and %d times "+
		"a state was known to be of some time, %d times told how far the log reaches; %d epochs, %d of them begun by blind "+
		"copies; the registry went back %d times, and branched %d times",
		*seeds, acked, reads, lent, far, fresh, told, epochs, stewards, back, branched)
}
