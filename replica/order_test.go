// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"sync"
	"testing"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/protocol"
)

// Rare orders of events in the shell. The tests force them by blocking a machine.

// holdCommits makes a site's event loop wait at its next commit until the returned function is
// called.
func (s *site) holdCommits(reached chan<- struct{}) (release func()) {
	gate := make(chan struct{})
	var once sync.Once
	s.machine.mu.Lock()
	s.machine.onCommit = func() {
		once.Do(func() {
			close(reached)
			<-gate
		})
	}
	s.machine.mu.Unlock()
	release = sync.OnceFunc(func() { close(gate) })
	s.w.Cleanup(release)
	return release
}

// deposed blocks a in a commit while b takes over; a is home of members a and b, and c follows. b's
// Hello waits in a's queue, and behind it the events of what a appended since. a must then
// acknowledge only what it has, and not what was just cut.
func TestAppendsBehindTheGreeting(t *testing.T) {
	for _, before := range []int64{0, 5} { // changes that nobody else has, known to a's core
		t.Run(map[int64]string{0: "nothing known", 5: "some known"}[before], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "ab", 2)
			w.up("a", "b")
			w.leads("a", 0)
			w.members("a", "a", "b")
			a, b := w.site("a"), w.site("b")
			w.writes(a, 1, 3, 100)
			w.same(numbers(1, 3))
			reached := make(chan struct{})
			release := a.holdCommits(reached)
			fourth := a.write(4, 100)
			w.until("a commits 4", func() bool {
				select {
				case <-reached:
					return true
				default:
					return false
				}
			})
			w.net.cut("a", "b") // b hears no more of a
			for id := range before {
				_, _, err := a.machine.append(context.Background(), 100+id, 100)
				w.must(err)
			}
			a.reg.SetDown(true) // the greeting is the first that it hears of b's epoch
			w.leads("b", 1)
			w.until("b has greeted a twice", func() bool {
				a.replica.mu.Lock()
				defer a.replica.mu.Unlock()
				n := 0
				for _, in := range a.replica.queue {
					if m, ok := in.event.(protocol.Received); ok && m.Message.Kind == protocol.Hello {
						n++
					}
				}
				return n >= 2
			})
			w.net.hold("b", "a", "messages", true) // no further messages for now
			// Enough for several segments, all durable here.
			for id := range int64(40) {
				_, _, err := a.machine.append(context.Background(), 200+id, 800)
				w.must(err)
			}
			a.log.Sync(a.log.End())
			w.must(a.log.Wait(context.Background(), a.log.End()))
			w.net.watch(func(to string, e Envelope) {
				m := e.Message
				if to == "b" && (m.Kind == protocol.Ack || m.Kind == protocol.Welcome) && m.From.Gateway == "a" && m.Epoch > 1 &&
					a.log.End().Less(m.End) {
					t.Errorf("a says that it is durable up to %v, its log ends at %v", m.End, a.log.End())
				}
			})
			w.net.heal()
			release()
			w.pass(5 * testBeat)
			w.net.hold("b", "a", "messages", false)
			a.reg.SetDown(false)
			_ = w.outcome("4, which both had", fourth) // it depends on who is faster, and is true either way
			w.writes(b, 10, 15, 100)
			w.same(append(numbers(1, 4), numbers(10, 15)...))
			if st := a.replica.Status(); st.Role != protocol.Follower || st.End != a.log.End() {
				t.Fatalf("a is %v and takes its log to end at %v, not %v", st.Role, st.End, a.log.End())
			}
		})
	}
}

// A machine that is about to lead when the reign ends does not lead afterwards. It would refuse
// what the next home appends.
func TestReignEndsBeforeItBegins(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 2)
	w.up("a", "b")
	w.leads("a", 0)
	w.members("a", "a", "b")
	w.writes(w.site("a"), 1, 3, 0)
	// Its next reign comes after a restart.
	a, b := w.site("a"), w.site("b")
	a.kill(false)
	a.start()
	reached, gate := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	defer release()
	var once sync.Once
	a.machine.mu.Lock()
	a.machine.onLead = func() {
		once.Do(func() {
			close(reached)
			<-gate
		})
	}
	a.machine.mu.Unlock()
	w.until("a's machine begins to lead", func() bool {
		select {
		case <-reached:
			return true
		default:
			return false
		}
	})
	a.reg.SetDown(true) // or it would go on without b
	w.net.cut("a", "b")
	w.leads("b", a.replica.Status().Epoch)
	reply := b.write(4, 0)
	a.reg.SetDown(false)
	w.net.heal()
	w.until("a knows", func() bool { return a.replica.Status().Role == protocol.Follower })
	w.pass(5 * testBeat) // b sends it what it has
	release()
	w.must(w.outcome("write", reply))
	w.writes(b, 5, 8, 0)
	w.same(numbers(1, 8))
}

// Frames that were sent before a break and come after the next greeting are taken in once.
func TestFramesComeTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 1)
	w.up("a", "b")
	w.leads("a", 0)
	w.writes(w.site("a"), 1, 3, 0)
	w.same(numbers(1, 3))
	w.net.hold("a", "b", "frames", true)
	w.writes(w.site("a"), 4, 30, 900)
	for range 3 {
		w.site("a").node.PeerDown("b") // and it is greeted again while frames are under way
		w.pass(5 * testBeat)
	}
	w.net.hold("a", "b", "frames", false)
	w.same(numbers(1, 30))
}

// The answer to Hello depends on the log's end, also if the Appended event for it has not come.
func TestGreetingMeetsTheLogAsItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ab", 1)
	w.up("a", "b")
	w.leads("a", 0)
	w.writes(w.site("a"), 1, 3, 0)
	a := w.site("a")
	end := a.log.End()
	w.must(appendUnnoticed(a))
	b := w.site("b").replica.self
	ctl := a.replica.Control().Clone()
	ctl.Epoch, ctl.Home, ctl.Members = 2, b, []protocol.Member{b}
	ctl.Begin(federation.EpochStart{Epoch: 2, Start: federation.Position(end)})
	hello := protocol.Message{Kind: protocol.Hello, From: b, Epoch: 2, Stamp: w.clock(),
		End:    Position{Seq: end.Seq + 1, Off: segment.HeaderSize},
		Epochs: append(a.log.Epochs(), log.EpochStart{Epoch: 2, Start: end})}
	a.node.ControlChanged(testVolume, &ctl, a.replica.Status().Revision+1) // ends the reign
	a.node.Deliver([]Envelope{{Volume: testVolume, Message: hello}})
	w.settle()
	if a.log.End() != end {
		t.Fatalf("a keeps what b has not: its log ends at %v, shared is %v", a.log.End(), end)
	}
}

// appendUnnoticed puts a record into a home's log as if its Appended event were still to come.
func appendUnnoticed(s *site) error {
	_, err := s.log.Append(&segment.Record{Epoch: 1, Time: 99, Slot: "s", Ops: []segment.Op{{Kind: segment.Set, Key: []byte("late")}}})
	return err
}
