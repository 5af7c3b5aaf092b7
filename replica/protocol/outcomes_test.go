// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
)

// TestAnotherHomeOfTheEpoch: two homes began epochs of the same number. What two logs have of them
// is not shared, wherever they begin.
func TestAnotherHomeOfTheEpoch(t *testing.T) {
	h := byHand(t, "a", 1, LogState{End: position(9), Durable: position(9), Committed: position(6),
		Epochs: []log.EpochStart{{Epoch: 1, Salt: [32]byte{1}}, {Epoch: 2, Start: position(3), Salt: [32]byte{2}}}})
	h.do(ControlRead{control(2, "b", "b"), 1})
	hello := Message{Kind: Hello, Epoch: 2, End: position(7),
		Epochs: []log.EpochStart{{Epoch: 1, Salt: [32]byte{1}}, {Epoch: 2, Start: position(3), Salt: [32]byte{3}}}}
	out := h.from("b", hello)
	if !slices.ContainsFunc(out, func(e Effect) bool { s, ok := e.(Send); return ok && s.Message.Kind == Refuse }) {
		t.Errorf("what is committed here is cut: %v", out)
	}
	// The home's word that a person did so is none.
	hello.Forced, hello.Epoch = []uint64{3}, 4
	hello.Epochs = append(hello.Epochs, log.EpochStart{Epoch: 4, Start: position(7)})
	h.do(ControlRead{control(4, "b", "b"), 2})
	out = h.from("b", hello)
	if !slices.ContainsFunc(out, func(e Effect) bool { s, ok := e.(Send); return ok && s.Message.Kind == Refuse }) {
		t.Errorf("what is committed here is cut, since the home says that a person forced it: %v", out)
	}
	hello.Forced, hello.Epoch = nil, 5
	hello.Epochs = append(hello.Epochs, log.EpochStart{Epoch: 5, Start: position(7)})
	forced := control(5, "b", "b")
	forced.History[len(forced.History)-2].Forced = true
	h.do(ControlRead{forced, 3})
	if out := h.from("b", hello); !slices.Contains(out, Effect(Truncate{To: position(3), Forced: true})) {
		t.Errorf("what a person gave up is not set aside: %v", out)
	}
}

// TestSwapThatWasNotMade: a member that takes over, and loses the registry before it can, answers
// its home again when that is back. After an attempt whose outcome is not known it must not.
func TestSwapThatWasNotMade(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		h := byHand(t, "b", 2, begun(9, 1))
		h.do(ControlRead{control(1, "a", "a", "b"), 5})
		if h.wait(3 * promise); h.asked {
			h.do(ControlRead{control(1, "a", "a", "b"), 5})
		}
		if h.role != Candidate {
			t.Fatalf("it is %v", h.role)
		}
		if unknown {
			h.do(Swapped{Outcome: SwapUnknown}, ControlRead{control(1, "a", "a", "b"), 5})
		}
		h.do(Swapped{Outcome: SwapNotMade})
		out := h.from("a", Message{Kind: Hello, Epoch: 1, Epochs: begun(9, 1).Epochs, End: position(9), Stamp: h.at})
		answered := slices.ContainsFunc(out, func(e Effect) bool { s, ok := e.(Send); return ok && s.Message.Kind == Welcome })
		if answered == unknown {
			t.Errorf("an earlier outcome is unknown: %v, and it answers its home: %v, as %v", unknown, answered, h.role)
		}
	}
}

// TestJoinerMustProveItsKey: a copy that has everything and promises is no member before it proved
// that its site can unwrap the volume's key (protocol-17).
func TestJoinerMustProveItsKey(t *testing.T) {
	h := byHand(t, "a", 2, begun(9, 1))
	h.do(ControlRead{control(1, "a", "a"), 10}, Swapped{SwapDone, 11})
	l := begun(10, 1, 2)
	h.do(Appended{l}, Synced{l.End}, Tick{})
	join := func(proved bool) bool {
		h.from("b", Message{Kind: Welcome, Start: h.log.End, End: h.log.End, Stamp: h.at, Echo: h.at, Grant: promise, Proved: proved})
		_, swap := effect[Swap](h.wait(2 * promise / 3))
		h.from("b", Message{Kind: Ack, End: h.log.End, Stamp: h.at, Echo: h.at, Grant: promise})
		_, later := effect[Swap](h.do(Tick{}))
		return swap || later
	}
	if join(false) {
		t.Error("a copy without a proof becomes a member")
	}
	if !join(true) {
		t.Error("a copy with a proof does not become a member")
	}
}

// TestJumpedClock: when time may have passed that the clock did not count, nothing that was granted
// before counts, also not in a message that comes later. Nobody is removed for it (protocol-4).
func TestJumpedClock(t *testing.T) {
	h := home(t, 2, "a", "b")
	if !h.MayServe(h.at) {
		t.Fatal("the home does not serve")
	}
	sent := h.at
	h.do(Jumped{})
	if h.MayServe(h.at) {
		t.Error("the home serves after a jump")
	}
	old := Message{Kind: Ack, Stamp: h.at, Echo: sent, End: h.log.End, Grant: promise}
	if out := h.from("b", old); h.MayServe(h.at) {
		t.Errorf("an answer to a question of before the jump counts: %v", out)
	}
	if swap, ok := effect[Swap](h.do(Synced{h.log.End}, Tick{})); ok {
		t.Errorf("members become %v", names(swap.Next.Members))
	}
	if h.answers("b", "c"); !h.MayServe(h.at) {
		t.Error("the home does not serve again")
	}
	f := byHand(t, "b", 2, begun(9, 1))
	f.do(ControlRead{control(1, "a", "a", "b"), 5})
	f.from("a", Message{Kind: Hello, Epoch: 1, Epochs: begun(9, 1).Epochs, End: position(9), Stamp: f.at})
	f.from("a", Message{Kind: Beat, Epoch: 1, Commit: position(9), Stamp: f.at, Echo: f.at, Grant: promise})
	if !f.MayRead(f.at) {
		t.Fatal("the member does not read")
	}
	sent = f.at
	f.do(Jumped{})
	f.from("a", Message{Kind: Beat, Epoch: 1, Commit: position(9), Stamp: f.at, Echo: sent, Grant: promise})
	if f.MayRead(f.at) {
		t.Error("the member reads after a jump")
	}
	f.from("a", Message{Kind: Beat, Epoch: 1, Commit: position(9), Stamp: f.at, Echo: f.at, Grant: promise})
	if !f.MayRead(f.at) {
		t.Error("the member does not read again")
	}
}

// TestUnseenBranchIsNoLoss: a log that followed a branch which nobody saw refuses the home that the
// record names. That home lost nothing, and goes on.
func TestUnseenBranchIsNoLoss(t *testing.T) {
	h := home(t, 1, "a")
	h.log.Epochs[1].Salt = [32]byte{1}
	theirs := begun(12, 1, 2)
	theirs.Epochs[1].Salt = [32]byte{2}
	// What c makes of the greeting:
	c := byHand(t, "c", 1, theirs)
	c.known = position(12)
	c.do(ControlRead{control(2, "a", "a"), 20})
	out := c.from("a", Message{Kind: Hello, Epoch: 2, End: h.log.End, Epochs: h.log.Epochs})
	s, ok := effect[Send](out)
	if !ok || s.Message.Kind != Refuse {
		t.Fatalf("c answers %v", out)
	}
	s.Message.Proved = true
	out = h.from("c", s.Message)
	if d, ok := effect[Disown](out); ok {
		t.Errorf("home a, the only member, gives its log up: %+v, role %v", d, h.role)
	}
}

// TestRefusalMustMakeSense: a home believes only a gateway that proved the volume's key, and only
// what a log of the volume could have.
func TestRefusalMustMakeSense(t *testing.T) {
	var own, theirs []log.EpochStart
	for i := range uint64(3) {
		theirs = append(theirs, log.EpochStart{Epoch: i + 1, Start: position(3 * i), Salt: [32]byte{byte(i + 1)}})
	}
	own = append(own, theirs[0], theirs[1])
	own[1].Start = position(3)
	refuse := func(own []log.EpochStart, change func(*Message)) []Effect {
		h := home(t, 1, "a")
		h.epoch, h.log.Epochs, h.log.End = 3, own, position(6)
		m := Message{Kind: Refuse, Commit: position(8), End: position(9), Epochs: slices.Clone(theirs), Proved: true}
		change(&m)
		return h.from("c", m)
	}
	for what, change := range map[string]func(*Message){
		"without a proof":               func(m *Message) { m.Proved = false },
		"without epochs":                func(m *Message) { m.Epochs = nil },
		"of nothing":                    func(m *Message) { m.Epochs, m.End, m.Commit = nil, Position{}, position(1) },
		"of more than its log has":      func(m *Message) { m.Commit = position(10) },
		"of what is before its log":     func(m *Message) { m.Epochs = m.Epochs[2:]; m.Commit = position(5) },
		"of an epoch that is not yet":   func(m *Message) { m.Epochs[2].Epoch = 4 },
		"with epochs that go back":      func(m *Message) { m.Epochs[1].Epoch = 1 },
		"with positions that go back":   func(m *Message) { m.Epochs[1].Start = position(7) },
		"with an epoch after its end":   func(m *Message) { m.Epochs[2].Start = position(10) },
		"by a log of nothing in common": func(m *Message) { m.Epochs = m.Epochs[2:] },
	} {
		if out := refuse(own, change); len(out) != 0 {
			t.Errorf("effects of a refusal %s: %v", what, out)
		}
	}
	for what, lost := range map[string]struct{ own, theirs []log.EpochStart }{
		"its end":       {own, theirs},
		"its beginning": {[]log.EpochStart{{Epoch: 3, Salt: [32]byte{9}}}, theirs[:2]},
		"all":           {nil, theirs},
	} {
		out := refuse(lost.own, func(m *Message) { m.Epochs = lost.theirs })
		if _, ok := effect[Disown](out); !ok {
			t.Errorf("a home that lost %s goes on", what)
		}
	}
}

// TestLeasesOutliveTheirConfiguration: a member that is removed may have a lease that an earlier,
// longer promise allowed. Nothing is committed without it before that ends, and no joiner may take
// over before (protocol-26).
func TestLeasesOutliveTheirConfiguration(t *testing.T) {
	const former = 10 * promise
	for _, joiner := range []bool{false, true} {
		c, _ := New(Config{Self: member("a"), Volume: "v", Promise: promise, Former: former, Heartbeat: beat},
			Policy{Want: 2, Continue: true, Sites: []string{"a", "b", "c"}, FirstHome: "a"}, begun(10, 1), time.Hour)
		h := &hand{t, c, time.Hour}
		peers := []Member{member("a"), member("b")}
		if joiner {
			peers = append(peers, member("c"))
		}
		h.do(Synced{position(10)}, Peers{peers}, ControlRead{control(1, "a", "a", "b"), 1}, Tick{})
		h.do(ControlRead{control(1, "a", "a", "b"), 1}, Swapped{SwapDone, 2})
		started := h.at
		h.do(Appended{begun(11, 1, 2)}, Synced{position(11)})
		for rev := federation.Revision(3); h.role != Home; rev++ {
			if joiner {
				h.answers("c")
			}
			out := h.wait(beat)
			if swap, ok := effect[Swap](out); ok {
				if swap.Next.IsMember(member("c")) && h.peers["c"].promise < started+former/2 {
					t.Fatalf("%v after the start a copy joins that may take over too soon", h.at-started)
				}
				out = append(out, h.do(Swapped{SwapDone, rev})...)
			}
			if _, ok := effect[Committed](out); ok && !joiner && h.at < started+former/2 {
				t.Fatalf("%v after the start it commits without b, which may read until %v", h.at-started, former/2)
			}
			if h.at > started+2*former {
				t.Fatalf("it is %v", h.role)
			}
		}
	}
}

// TestHandOverToAShorterPromise: the next home gives the members time by its own promise. So no
// lease that it does not know of lasts longer (protocol-26).
func TestHandOverToAShorterPromise(t *testing.T) {
	h := home(t, 3, "a", "b", "c")
	h.do(Tick{}) // leases
	h.do(Move{"b"})
	for end := h.at + 2*promise; h.role == Home; {
		h.at += 20 * ms
		h.from("b", Message{Kind: Ack, Stamp: h.at, Echo: h.at, End: h.log.End, Grant: promise / 4})
		h.from("c", Message{Kind: Ack, Stamp: h.at, Echo: h.at, End: h.log.End, Grant: promise})
		lease := h.peers["c"].lease
		out := h.do(Synced{h.log.End}, Tick{})
		if s, ok := effect[Send](out); ok && s.Message.Kind == Release && lease > h.at+promise/8 {
			t.Errorf("it hands over while c may read for %v", lease-h.at)
		}
		if h.at > end {
			t.Fatal("it does not hand over")
		}
	}
}

// stuckMembers is home a with members b and c, which answer and store nothing, and d, which stores.
func stuckMembers(t *testing.T) *hand {
	h := byHand(t, "a", 3, begun(9, 1))
	h.do(Peers{[]Member{member("a"), member("b"), member("c"), member("d")}},
		PolicyChanged{Policy{Want: 3, Sites: []string{"a", "b", "c", "d"}}},
		ControlRead{control(1, "a", "a", "b", "c"), 10}, Swapped{SwapDone, 11})
	h.do(Appended{begun(10, 1, 2)}, Synced{position(10)}, Tick{})
	h.answers("b", "c", "d")
	h.do(Appended{begun(20, 1, 2)}, Synced{position(20)})
	return h
}

// TestStuckMembersAreNotSwappedForEver: a copy that came in the place of one of two stuck members
// stays.
func TestStuckMembersAreNotSwappedForEver(t *testing.T) {
	h := stuckMembers(t)
	rev := federation.Revision(11)
	for end := h.at + 3*h.stuckAfter(); h.at < end; {
		for name, n := range map[string]uint64{"b": 10, "c": 10, "d": 20} {
			h.from(name, Message{Kind: Ack, Stamp: h.at, Echo: h.at, End: position(n), Grant: promise})
		}
		if _, ok := effect[Swap](h.wait(beat)); ok {
			rev++
			h.do(Swapped{SwapDone, rev})
		}
	}
	if rev > 13 || !h.ctl.IsMember(member("d")) || len(h.ctl.Members) != 3 {
		t.Errorf("%d swaps, members %v", rev-11, names(h.ctl.Members))
	}
}

// TestStuckMemberIsShownSteadily: a full pool asks for its stream to begin again, time and again.
// It answers all the while.
func TestStuckMemberIsShownSteadily(t *testing.T) {
	h := stuckMembers(t)
	for end := h.at + 2*h.stuckAfter(); h.at < end; h.wait(beat) {
		h.from("b", Message{Kind: Ack, Stamp: h.at, Echo: h.at, End: position(10), Grant: promise})
	}
	b := func() PeerStatus {
		all := h.Status(h.at).Peers
		return all[slices.IndexFunc(all, func(p PeerStatus) bool { return p.Member.Gateway == "b" })]
	}
	h.from("b", Message{Kind: Lost, Stamp: h.at})
	if p := b(); !p.Answers || p.Stuck == 0 {
		t.Errorf("while it asks for a new stream it is shown as %+v", p)
	}
	h.at += promise
	if p := b(); p.Answers {
		t.Error("it is silent, and answers")
	}
	h.from("b", Message{Kind: Lost, Stamp: h.at})
	if h.do(PeerDown{"b"}); b().Answers {
		t.Error("its connection broke, and it answers")
	}
}

// TestMoveThatIsGivenUp: the home goes on in its role, which does not change.
func TestMoveThatIsGivenUp(t *testing.T) {
	h := home(t, 1, "a")
	out := append(h.do(Move{"z"}), h.wait(3*promise)...)
	if _, ok := effect[Resume](out); !ok {
		t.Error("it does not go on")
	}
	if r, ok := effect[RoleChanged](out); ok {
		t.Errorf("its role is told again: %+v", r)
	}
}

// TestStartingHomeTakesWholeLogsOnly: before its epoch is committed, a home knows no better what is
// committed than that its log has it. So no copy becomes a member, or is waited for, that has less.
func TestStartingHomeTakesWholeLogsOnly(t *testing.T) {
	h := byHand(t, "a", 2, begun(9, 1))
	h.do(ControlRead{control(1, "a", "a", "b"), 10}, Swapped{SwapDone, 11})
	h.do(Appended{begun(10, 1, 2)}, Synced{position(10)}, Tick{})
	welcome := func(name string, n uint64) {
		h.from(name, Message{Kind: Welcome, Start: position(n), End: position(n), Stamp: h.at, Echo: h.at, Grant: promise, Proved: true})
	}
	join := func(whole uint64) bool {
		for range 4 {
			welcome("b", 5)
			welcome("c", whole)
			if swap, ok := effect[Swap](h.wait(beat)); ok {
				return swap.Next.IsMember(member("c")) && !swap.Next.IsMember(member("b"))
			}
			if h.joining != "" && whole < 10 {
				t.Fatalf("it waits for %s, which has %d of 10", h.joining, whole)
			}
		}
		return false
	}
	for end := h.at + 2*h.stuckAfter(); h.at < end; h.wait(beat) {
		welcome("b", 5)
	}
	if join(7) {
		t.Error("a copy that lacks something takes the place of a member")
	}
	if !join(10) {
		t.Error("a copy that has all does not take the place of a stuck member")
	}
}
