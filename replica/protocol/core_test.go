// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
)

// Orders of events that are too rare in the simulation, passed to one Core by hand.

type hand struct {
	*testing.T
	*Core
	at time.Duration
}

func member(name string) Member { return Member{Gateway: name, Site: name, Incarnation: "1"} }

func position(n uint64) Position { return Position{Seq: 1, Off: n} }

// begun is a log of n bytes in which the given epochs began, one byte after the other.
func begun(n uint64, epochs ...uint64) LogState {
	l := LogState{End: position(n), Durable: position(n)}
	for i, e := range epochs {
		l.Epochs = append(l.Epochs, log.EpochStart{Epoch: e, Start: position(uint64(i))})
	}
	return l
}

func control(epoch uint64, home string, members ...string) *federation.Control {
	c := &federation.Control{Volume: "v", Epoch: epoch, Home: member(home)}
	for e := range epoch {
		c.History = append(c.History, federation.EpochStart{Epoch: e + 1})
	}
	for _, m := range members {
		c.Members = append(c.Members, member(m))
	}
	return c
}

func byHand(t *testing.T, self string, want int, l LogState) *hand {
	policy := Policy{Want: want, Sites: []string{"a", "b", "c"}, FirstHome: "a"}
	c, _ := New(Config{Self: member(self), Volume: "v", Promise: promise, Heartbeat: beat}, policy, l, time.Hour)
	h := &hand{t, c, time.Hour}
	h.do(Peers{[]Member{member("a"), member("b"), member("c")}})
	return h
}

// do steps events, 10 ms after each other.
func (h *hand) do(events ...Event) (out []Effect) {
	for _, e := range events {
		h.at += 10 * ms
		out = append(out, h.Step(h.at, e)...)
	}
	return out
}

// wait ticks with a working disk for d.
func (h *hand) wait(d time.Duration) (out []Effect) {
	for end := h.at + d; h.at < end; h.at += beat {
		out = append(out, h.do(Synced{h.log.End}, Tick{})...)
	}
	return out
}

func (h *hand) from(name string, m Message) []Effect {
	m.From = member(name)
	if m.Epoch == 0 {
		m.Epoch = h.epoch
	}
	return h.do(Received{Message: m})
}

// answers lets followers acknowledge all of h's log and give a promise.
func (h *hand) answers(names ...string) {
	for _, name := range names {
		h.from(name, Message{Kind: Welcome, Stamp: h.at, Echo: h.at, End: h.log.End, Start: h.log.End, Grant: promise, Proved: true})
	}
}

func effect[E Effect](effects []Effect) (last E, ok bool) {
	for _, e := range effects {
		if x, is := e.(E); is {
			last, ok = x, true
		}
	}
	return last, ok
}

// home makes a's Core home of epoch 2 with the given members; b and c follow.
func home(t *testing.T, want int, members ...string) *hand {
	h := byHand(t, "a", want, begun(9, 1))
	h.do(ControlRead{control(1, "a", members...), 10}, Swapped{SwapDone, 11})
	l := begun(10, 1, 2)
	h.do(Appended{l}, Synced{l.End}, Tick{})
	h.answers("b", "c")
	if h.role != Home {
		t.Fatalf("a is %v", h.role)
	}
	return h
}

func TestConflictMayAnswerAnEarlierSwap(t *testing.T) {
	h := home(t, 3, "a", "b")
	first, ok := effect[Swap](h.do(Tick{})) // c joins
	if !ok {
		t.Fatal("no swap")
	}
	// The answer is lost; the second attempt is on its way when reading shows that the first was
	// applied.
	h.do(Swapped{Outcome: SwapUnknown})
	if _, ok := effect[Swap](h.do(ControlRead{h.ctl, 11})); !ok {
		t.Fatal("no second attempt")
	}
	h.do(ControlRead{&first.Next, 12})
	if h.swap != nil || h.rev != 12 {
		t.Fatal("the swap is not settled")
	}
	h.do(PolicyChanged{Policy{Want: 2, Sites: []string{"a", "b", "c"}}})
	if _, ok := effect[Swap](h.do(Tick{})); !ok {
		t.Fatal("no swap to two members")
	}
	h.do(Swapped{Outcome: SwapConflict}) // of the second attempt
	if h.swap == nil {
		t.Fatal("the answer to an earlier attempt ends the swap under way")
	}
}

func TestReplacedSwapDoesNotGoBack(t *testing.T) {
	h := home(t, 2, "a", "b")
	h.do(PolicyChanged{Policy{Want: 1}}, Tick{})
	h.do(ControlRead{control(3, "b", "b"), 13}, Swapped{SwapDone, 12})
	if h.rev != 13 || h.ctl.Epoch != 3 || h.role != Follower || h.swap != nil {
		t.Fatalf("revision %d, epoch %d, %v", h.rev, h.ctl.Epoch, h.role)
	}
}

func TestGreetingOvertakenByFrames(t *testing.T) {
	h := byHand(t, "b", 2, begun(9, 1))
	h.do(ControlRead{control(2, "a", "a", "b"), 5})
	greeting := Message{Kind: Hello, Epoch: 2, Stamp: 1, Epochs: begun(10, 1, 2).Epochs, End: position(10)}
	greeting.Epochs[1].Start = position(9)
	h.from("a", greeting)
	h.from("a", Message{Kind: Append, Stamp: 2, Start: position(9)})
	l := begun(20, 1, 2)
	l.Epochs[1].Start = position(9)
	h.do(Appended{l}, Synced{l.End})
	if cut, ok := effect[Truncate](h.from("a", greeting)); ok {
		t.Fatalf("cut to %v after %v was acknowledged", cut.To, l.End)
	}
}

func TestHandOverWaitsForLeases(t *testing.T) {
	h := home(t, 3, "a", "b", "c")
	h.do(Tick{}) // leases
	h.do(PolicyChanged{Policy{Want: 2, Sites: []string{"a", "b", "c"}}})
	if _, ok := effect[Swap](h.do(Tick{})); !ok {
		t.Fatal("c is not removed")
	}
	h.do(Swapped{SwapDone, 12})
	h.from("b", Message{Kind: Ack, Stamp: h.at, Echo: h.at, End: h.log.End, Grant: promise})
	if h.do(Move{"b"}, Tick{}); h.role != Home {
		t.Fatal("hands over while c may read")
	}
	h.at += promise / 2
	h.from("b", Message{Kind: Ack, Stamp: h.at, Echo: h.at, End: h.log.End, Grant: promise})
	if _, ok := effect[Send](h.do(Tick{})); !ok || h.role != Follower {
		t.Fatal("does not hand over")
	}
}

func TestJoinerMustPromiseForLongerThanLeases(t *testing.T) {
	h := home(t, 1, "a")
	h.do(Synced{h.log.Durable})
	h.at += promise * 5 / 8 // c was silent since: it still counts as there, but could take over while a lease lasts
	if swap, ok := effect[Swap](h.do(Move{"c"}, Tick{})); ok {
		t.Fatalf("%v join", names(swap.Next.Members))
	}
	h.from("c", Message{Kind: Ack, Stamp: h.at, Echo: h.at, End: h.log.End, Grant: promise})
	if _, ok := effect[Swap](h.do(Tick{})); !ok {
		t.Fatal("c does not join")
	}
}

func TestReleaseWaitsForSwap(t *testing.T) {
	h := home(t, 3, "a", "b")
	h.do(Tick{}) // the swap that adds c stays without an answer
	// Meanwhile b took over, c with it, and hands over to a.
	h.do(ControlRead{control(3, "b", "a", "b"), 13})
	h.from("b", Message{Kind: Hello, Epoch: 3, Stamp: 1, Epochs: h.log.Epochs, End: h.log.End})
	release := Message{Kind: Release, Epoch: 3, Stamp: 2, Commit: h.log.End}
	if _, ok := effect[Swap](h.from("b", release)); ok {
		t.Fatal("two swaps at a time")
	}
	h.do(Swapped{Outcome: SwapConflict}, Tick{})
	if s, ok := effect[Swap](h.do(ControlRead{control(3, "b", "a", "b"), 13})); !ok || s.Next.Epoch != 4 {
		t.Fatal("released, but does not take over")
	}
}

// The release may come before the record that made its receiver a member, or that changed anything
// else.
func TestReleaseBeforeItsRecord(t *testing.T) {
	for _, known := range []*federation.Control{control(3, "b", "b"), control(3, "b", "a", "b", "c")} {
		h := byHand(t, "a", 1, begun(9, 1, 2, 3))
		h.do(ControlRead{known, 5}, Synced{h.log.Durable})
		h.from("b", Message{Kind: Hello, Epoch: 3, Stamp: 1, Epochs: h.log.Epochs, End: h.log.End})
		effects := h.from("b", Message{Kind: Release, Epoch: 3, Stamp: 2, Commit: h.log.End})
		if swap, ok := effect[Swap](effects); ok {
			if !known.IsMember(swap.Next.Home) {
				t.Fatalf("%v takes over, as no member", swap.Next.Home)
			}
			h.do(Swapped{Outcome: SwapConflict})
		} else if _, ok := effect[ReadControl](effects); !ok {
			t.Fatal("the record is not read")
		}
		next := control(3, "b", "a", "b")
		effects = h.do(ControlRead{next, 6}, Tick{})
		if _, ok := effect[ReadControl](effects); ok { // before it takes over it asks once more
			effects = h.do(ControlRead{next, 6})
		}
		if s, ok := effect[Swap](effects); !ok || s.Next.Epoch != 4 || len(s.Next.Members) != 2 {
			t.Fatalf("with %v known: released, but does not take over", names(known.Members))
		}
	}
}

func TestOwnRecordWithoutEpoch(t *testing.T) {
	for _, began := range []bool{false, true} {
		l := begun(9, 1)
		if began {
			l = begun(9, 1, 2)
		}
		h := byHand(t, "a", 1, l)
		_, ok := effect[Swap](h.do(ControlRead{control(2, "a", "a", "b"), 5}))
		if ok != began {
			t.Errorf("epoch 2 began here: %v; took over at once: %v", began, ok)
		}
	}
}

func TestRebootedClock(t *testing.T) {
	h := byHand(t, "b", 2, begun(9, 1))
	h.do(ControlRead{control(1, "a", "a", "b"), 5})
	h.from("a", Message{Kind: Hello, Epoch: 1, Stamp: 1, Epochs: h.log.Epochs, End: h.log.End})
	h.from("a", Message{Kind: Beat, Stamp: 2, Echo: 100 * time.Hour, Grant: promise / 2})
	if h.MayRead(h.at) {
		t.Error("a lease counts from before the reboot")
	}
	h.from("a", Message{Kind: Beat, Stamp: 3, Echo: h.at, Grant: promise / 2})
	if !h.MayRead(h.at) {
		t.Error("no lease")
	}
}

func TestPeersKnownLateMayHoldLeases(t *testing.T) {
	h := byHand(t, "a", 1, begun(9, 1))
	h.do(Peers{}, ControlRead{control(1, "a", "a"), 10}, Swapped{SwapDone, 11})
	l := begun(10, 1, 2)
	l.Durable = position(9)
	h.do(Appended{l}, Peers{[]Member{member("c")}}, Synced{l.End})
	if h.role != Starting {
		t.Error("commits although c may hold a lease of an earlier life")
	}
	if h.wait(promise); h.role != Home {
		t.Error("waits for ever")
	}
}

func TestCommitGoesBackAfterForce(t *testing.T) {
	h := home(t, 1, "a")
	forced := control(3, "b", "b")
	forced.History[len(forced.History)-1].Forced = true
	h.do(ControlRead{forced, 13})
	cut, ok := effect[Truncate](h.from("b", Message{Kind: Hello, Epoch: 3, Stamp: 1, Epochs: begun(5, 1).Epochs, End: position(5)}))
	if !ok || !cut.Forced {
		t.Fatal("does not cut")
	}
	h.do(Appended{begun(cut.To.Off, 1)})
	if h.Commit() != cut.To {
		t.Errorf("the commit position %v is after the end %v", h.Commit(), cut.To)
	}
}

func TestMoveIsTheHomes(t *testing.T) {
	h := byHand(t, "b", 1, begun(9, 1))
	if h.do(Move{"c"}); h.moving != "" {
		t.Error("a follower remembers a move")
	}
}

func TestSilentHome(t *testing.T) {
	h := byHand(t, "b", 2, begun(9, 1))
	h.do(ControlRead{control(1, "a", "a", "b"), 5})
	h.from("a", Message{Kind: Hello, Epoch: 1, Stamp: 1, Epochs: h.log.Epochs, End: h.log.End})
	out := h.wait(2 * promise)
	if !slices.ContainsFunc(out, func(e Effect) bool { _, ok := e.(ReadControl); return ok }) || h.now < h.promiseUntil {
		t.Error("its own fsyncs extend its promise")
	}
}

func TestNothingBeforeTheRecordIsKnown(t *testing.T) {
	h := byHand(t, "b", 2, begun(9, 1))
	greeting := Message{Kind: Hello, Epoch: 1, Stamp: 1, Epochs: h.log.Epochs, End: h.log.End}
	if out := h.from("a", greeting); len(out) > 0 {
		t.Errorf("answers %v although its epoch may be over", out)
	}
	h.do(ControlRead{control(1, "a", "a", "b"), 5})
	if _, ok := effect[Send](h.from("a", greeting)); !ok {
		t.Error("no answer")
	}
}

func TestHangingDiskDoesNotTakeOver(t *testing.T) {
	h := byHand(t, "b", 2, begun(9, 1))
	h.do(ControlRead{control(1, "a", "a", "b"), 5})
	h.at += 2 * promise
	if h.do(Tick{}); h.mayTakeOver() {
		t.Error("takes over without an fsync")
	}
	if h.do(Synced{h.log.End}); !h.mayTakeOver() {
		t.Error("does not take over")
	}
}

func TestOlderRecordMaySayTheSame(t *testing.T) {
	h := home(t, 2, "a", "b") // revision 11
	before := *h.ctl
	h.do(PolicyChanged{Policy{Want: 1}}, Tick{}, Swapped{SwapDone, 12})
	h.do(PolicyChanged{Policy{Want: 2, Sites: []string{"a", "b"}}}, Tick{})
	if h.swap == nil || !h.swap.next.Same(before) {
		t.Fatal("b does not join again")
	}
	if h.do(ControlRead{&before, 11}); h.swap == nil {
		t.Error("a late answer to an old read settles the swap")
	}
}

// A record that a home is just appending is in its log and not in its Core. The home stops before
// it compares its log with the next home's.
func TestDeposedHomeAnswersTheNextGreeting(t *testing.T) {
	h := home(t, 2, "a", "b")
	hello := Message{Kind: Hello, Epoch: 3, Epochs: []log.EpochStart{{Epoch: 1}, {Epoch: 2, Start: position(1)},
		{Epoch: 3, Start: h.log.End}}, End: position(11)}
	out := append(h.from("b", hello), h.do(ControlRead{control(3, "b", "b", "a"), 13})...)
	if r, ok := effect[RoleChanged](out); !ok || r.Role != Follower {
		t.Fatalf("a is %v", h.role)
	}
	if s, ok := effect[Send](out); ok {
		t.Fatalf("a answers %+v before it has stopped", s.Message)
	}
	h.do(Appended{begun(12, 1, 2)}) // was under way
	out = h.from("b", hello)
	if cut, ok := effect[Truncate](out); !ok || cut.To != position(10) {
		t.Fatalf("a cuts at %v, %t", cut.To, ok)
	}
}

// TestGreetingNeedsTheRecord: a gateway that greets, or rejects, with an epoch of which there is no
// record neither ends an epoch nor has anything cut.
func TestGreetingNeedsTheRecord(t *testing.T) {
	greeting := Message{Kind: Hello, Epoch: 99, Stamp: 1, Epochs: begun(1, 99).Epochs, End: position(1)}
	follower := byHand(t, "b", 2, begun(9, 1))
	follower.do(ControlRead{control(1, "a", "a", "b"), 5})
	for name, h := range map[string]*hand{"follower": follower, "home": home(t, 2, "a", "b")} {
		epoch, role := h.epoch, h.role
		for what, m := range map[string]Message{"greeting": greeting, "rejection": {Kind: Reject, Epoch: 99}} {
			out := h.from("c", m)
			if _, ok := effect[ReadControl](out); !ok || len(out) != 1 || h.epoch != epoch || h.role != role {
				t.Errorf("%s after a %s of epoch 99 by no home: epoch %d, %v, effects %v", name, what, h.epoch, h.role, out)
			}
		}
	}
	// Nor does the home of the epoch before, when the record names another one.
	greeting.Epoch = 2
	follower.do(ControlRead{control(2, "c", "c", "b"), 6})
	if out := follower.from("a", greeting); len(out) != 0 {
		t.Errorf("effects of a greeting by a gateway that is not home: %v", out)
	}
}

// TestGreetingBeforeTheRecord: a follower answers a greeting that came before the record as soon as
// it has the record.
func TestGreetingBeforeTheRecord(t *testing.T) {
	h := byHand(t, "b", 2, begun(9, 1))
	h.do(ControlRead{control(1, "a", "a", "b", "c"), 5})
	greeting := Message{Kind: Hello, Epoch: 2, Stamp: 1, Epochs: []log.EpochStart{{Epoch: 1}, {Epoch: 2, Start: position(9)}},
		End: position(10)}
	if _, ok := effect[Send](h.from("c", greeting)); ok {
		t.Error("answers before the record has come")
	}
	if s, ok := effect[Send](h.do(ControlRead{control(2, "c", "c", "b"), 6})); !ok || s.Message.Kind != Welcome {
		t.Errorf("does not answer when the record has come: %+v", s)
	}
	if _, ok := effect[Send](h.do(ControlRead{control(2, "c", "c"), 7})); ok {
		t.Error("answers twice")
	}
}

// TestShortWelcomeIsAnotherMember: a follower that has less than it acknowledged in this epoch, or
// as a member less than what is committed, is refused and does not count.
func TestShortWelcomeIsAnotherMember(t *testing.T) {
	for name, short := range map[string]bool{"b": true, "c": false} { // c is no member and acknowledged nothing
		h := home(t, 2, "a", "b")
		if name == "c" {
			h.peers["c"].matched = false
		}
		out := h.from(name, Message{Kind: Welcome, Stamp: h.at, Echo: h.at, Start: position(4), End: position(4), Grant: promise,
			Proved: true})
		refusal, refused := effect[Send](out)
		refused = refused && refusal.Message.Kind == Refuse && refusal.Message.Commit == h.commit
		if refused != short || h.peers[name].joined == short {
			t.Errorf("%s came back with 4 of %v: refused %v, joined %v", name, h.commit, refused, h.peers[name].joined)
		}
		if h.peers[name].match.Less(h.commit) && short {
			t.Errorf("the home lowered what %s acknowledged to %v", name, h.peers[name].match)
		}
	}
}

// TestRefusedFollowerGivesUp: a member that the record's home refuses has lost something. Nobody
// else's word counts.
func TestRefusedFollowerGivesUp(t *testing.T) {
	h := byHand(t, "b", 2, begun(9, 1))
	h.do(ControlRead{control(2, "a", "a", "b"), 5})
	for what, out := range map[string][]Effect{
		"by a gateway that is not home": h.from("c", Message{Kind: Refuse, Commit: position(20), Proved: true}),
		"for what is there":             h.from("a", Message{Kind: Refuse, Commit: position(9), Proved: true}),
	} {
		if len(out) != 0 {
			t.Errorf("effects of a refusal %s: %v", what, out)
		}
	}
	out := h.from("a", Message{Kind: Refuse, Commit: position(20)}) // of an earlier version, without a proof
	if d, ok := effect[Disown](out); !ok || d.Committed != position(20) || h.role != Failed {
		t.Errorf("%v after %v", h.role, out)
	}
}

// TestLogThatBeganAnewIsAnotherMember: a member whose log begins anew on the same pool does not
// count any more, even for a swap under way.
func TestLogThatBeganAnewIsAnotherMember(t *testing.T) {
	h := home(t, 2, "a", "b")
	m := member("b")
	m.Log = "anew"
	h.do(Received{Message: Message{Kind: Welcome, From: m, Epoch: h.epoch, Stamp: h.at, Echo: h.at, Grant: promise, Proved: true}})
	if h.MayServe(h.at) || h.committable() != (Position{}) {
		t.Error("the home relies on a log that began anew")
	}
	if _, ok := effect[Swap](h.wait(beat)); !ok {
		t.Error("the home does not remove a member whose log began anew")
	}
}

// TestPromisesOutliveTheirConfiguration: a gateway whose promises were made shorter keeps those
// that an earlier process gave: it does not take over before, and as home it waits for the leases.
func TestPromisesOutliveTheirConfiguration(t *testing.T) {
	const former = 10 * promise
	start := func(self string, home string, members ...string) *hand {
		c, _ := New(Config{Self: member(self), Volume: "v", Promise: promise, Former: former, Heartbeat: beat},
			Policy{Want: 1, Sites: []string{"a", "b", "c"}, FirstHome: "a"}, begun(10, 1), time.Hour)
		h := &hand{t, c, time.Hour}
		h.do(Peers{[]Member{member("a"), member("b"), member("c")}}, ControlRead{control(1, home, members...), 1})
		return h
	}
	b := start("b", "a", "a", "b")
	for b.at < time.Hour+former {
		b.at += beat
		if out := b.do(Synced{Position: position(10)}, Tick{}, ControlRead{control(1, "a", "a", "b"), 1}); b.role != Follower {
			t.Fatalf("after %v it takes over: %v", b.at-time.Hour, out)
		}
	}
	for b.role != Candidate && b.at < time.Hour+2*former {
		b.at += beat
		b.do(Synced{Position: position(10)}, Tick{}, ControlRead{control(1, "a", "a", "b"), 1})
	}
	if b.role != Candidate {
		t.Errorf("after %v it is %v", b.at-time.Hour, b.role)
	}

	a := start("a", "a", "a")
	for a.role != Candidate && a.at < 2*time.Hour {
		a.at += beat
		a.do(Synced{Position: position(10)}, Tick{}, ControlRead{control(1, "a", "a"), 1})
	}
	a.do(Swapped{SwapDone, 2})
	if left := a.quietEnd - a.now; left < former/2 {
		t.Errorf("the home that starts again waits for leases of %v", left)
	}
}
