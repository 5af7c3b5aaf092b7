// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestStories plays the known hard cases in the simulation with fixed delays. A message takes 15
// ms, an fsync 10 ms, the way to the registry and back 20 ms each; a promise lasts 2 s. A story
// consists of blocks of commands. Below each block comes what happened, and what status shows.
//
//	policy want=2 continue sites=a,b,c blind=c   sets the policy, before the first up or later
//	up a b; kill a; power a; wipe a      start, SIGKILL, power cut, new disk and incarnation
//	damage a 3; rewind a 3               power cut, after which 3 entries can be read, or are there
//	pause a 5s; disk a hang 5s; full a 5s; clock a 1.03
//	cut a b; cut a > b; heal             messages vanish, both ways or one way; heal ends all cuts
//	deaf a; hear a; registry down; registry up
//	swap unknown                         the next swap is applied, its answer lost; also: unapplied,
//	                                     late (1.5 s), slow (answer 0.75 s late)
//	write 3; load 2s; run 2s             client changes at the home; under load one each 50 ms
//	move b; force c
//	restore 2; tend a b c                the registry goes back by two records; gateways look
//	restore 2 another                    it has an identity of its own since
//	reconcile b                          a person brings it forward, and of branches keeps b's
//	status
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := newSim(1, Policy{Want: 2, Sites: []string{"a", "b", "c"}, FirstHome: "a"}, "abc")
		s.fixed = true
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "do" {
				d.Fatalf(t, "unknown directive %s: a story has only blocks that begin with do", d.Cmd)
			}
			s.trace = nil
			for line := range strings.Lines(d.Input) {
				if err := s.tell(strings.Fields(line)); err != nil {
					d.Fatalf(t, "%s: %v", strings.TrimSpace(line), err)
				}
			}
			return strings.Join(s.trace, "\n")
		})
		if s.failure != "" {
			t.Error(s.failure)
		}
	})
}

// tell executes one command of a story.
func (s *sim) tell(words []string) (err error) {
	if len(words) == 0 {
		return nil
	}
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	span := func(i int) time.Duration {
		d, e := time.ParseDuration(arg(i))
		if e != nil {
			err = e
		}
		return d
	}
	node := func(i int) *node {
		n := s.node(arg(i))
		if n == nil {
			err = fmt.Errorf("there is no gateway %q", arg(i))
			n = s.nodes[0]
		}
		return n
	}
	switch words[0] {
	case "policy":
		err = s.tellPolicy(words[1:])
	case "up":
		for i := range words[1:] {
			node(i + 1).start()
		}
	case "kill", "power":
		node(1).crash(words[0] == "power")
	case "wipe":
		node(1).wipe()
	case "damage", "rewind":
		var k int
		if k, err = strconv.Atoi(arg(2)); err == nil && words[0] == "damage" {
			node(1).damage(k)
		} else if err == nil {
			node(1).rewind(k)
		}
	case "pause":
		node(1).pause(span(2))
	case "disk":
		s.hang(node(1), span(3))
	case "full":
		s.fill(node(1), span(2))
	case "clock":
		n := node(1)
		var rate float64
		if rate, err = strconv.ParseFloat(arg(2), 64); err == nil {
			n.setClock(n.clock(), rate)
		}
	case "cut":
		a, b := node(1), node(len(words)-1)
		s.network[a.name+">"+b.name].cut = true
		s.network[b.name+">"+a.name].cut = arg(2) != ">"
	case "heal":
		for _, a := range s.nodes {
			for _, b := range s.nodes {
				if d := s.network[a.name+">"+b.name]; d.cut {
					d.cut = false
					s.reset(a.name, b.name)
				}
			}
		}
	case "deaf":
		s.unheard[node(1).name] = true
	case "hear":
		delete(s.unheard, node(1).name)
	case "registry":
		s.down = arg(1) == "down"
	case "swap":
		s.outcomes = append(s.outcomes, arg(1))
	case "write":
		var n int
		if n, err = strconv.Atoi(arg(1)); err == nil {
			s.writeSome(n)
		}
	case "load":
		for end := s.now + span(1); s.now < end; s.advance(50 * ms) {
			s.writeSome(1)
		}
	case "run":
		s.advance(span(1))
	case "move":
		for _, n := range s.nodes {
			n.run(func() { n.step(Move{To: arg(1)}) })
		}
	case "force":
		s.force(node(1))
	case "restore":
		var k int
		if k, err = strconv.Atoi(arg(1)); err == nil && !s.restore(k, arg(2) == "another") {
			err = fmt.Errorf("nothing would be lost")
		}
	case "tend":
		for i := range words[1:] {
			s.tend(node(i + 1))
		}
	case "reconcile":
		if !s.reconcile(arg(1)) {
			err = fmt.Errorf("it cannot be now")
		}
	case "status":
		s.status()
	default:
		err = fmt.Errorf("unknown command")
	}
	return err
}

func (s *sim) tellPolicy(words []string) (err error) {
	s.policy.Continue = false
	for _, w := range words {
		switch k, v, _ := strings.Cut(w, "="); k {
		case "want":
			s.policy.Want, err = strconv.Atoi(v)
		case "continue":
			s.policy.Continue = true
		case "sites":
			s.policy.Sites, s.policy.Heirs = strings.Split(v, ","), nil
			for _, n := range s.nodes {
				if !slices.Contains(s.policy.Sites, n.name) {
					s.policy.Heirs = append(s.policy.Heirs, n.name)
				}
			}
		case "blind": // before their first up
			s.policy.Blind = strings.Split(v, ",")
		default:
			err = fmt.Errorf("unknown part %s", w)
		}
	}
	for _, n := range s.nodes {
		n.run(func() { n.step(PolicyChanged{s.policy}) })
	}
	return err
}

func (s *sim) writeSome(count int) {
	for range count {
		for _, n := range s.nodes {
			n.write()
		}
	}
}

// status describes the state of every gateway.
func (s *sim) status() {
	s.trace = append(s.trace, fmt.Sprintf("        record: %v; acknowledged %d of %d changes", s.registry, s.acked, s.written))
	for _, n := range s.nodes {
		line := fmt.Sprintf("        %s: ", n.name)
		switch {
		case n.doubted:
			line += "lost something"
		case n.core == nil:
			line += "down"
		case n.paused > s.now:
			line += "paused"
		default:
			st := n.core.Status(n.clock())
			line += fmt.Sprintf("%v, epoch %d, %d entries, %d durable, %d committed", st.Role, st.Epoch, len(n.log.entries),
				n.log.durable, n.log.index(st.Commit))
			switch {
			case n.blind:
				line += ", blind"
			case n.core.MayServe(n.clock()):
				line += ", serves"
			case n.core.MayRead(n.clock()):
				line += ", reads"
			}
			if st.Stalled {
				line += ", stalled"
			}
			for _, p := range st.Peers {
				if p.Vote && p.Stuck > 0 {
					line += ", waits for " + p.Member.Gateway
				}
			}
		}
		s.trace = append(s.trace, line)
	}
}
