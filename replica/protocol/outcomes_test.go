// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"slices"
	"testing"

	"github.com/weir-storage/weir/engine/log"
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
	hello.Forced, hello.Epoch = []uint64{3}, 4
	hello.Epochs = append(hello.Epochs, log.EpochStart{Epoch: 4, Start: position(7)})
	h.do(ControlRead{control(4, "b", "b"), 2})
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
