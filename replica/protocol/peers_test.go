// SPDX-License-Identifier: Apache-2.0

package protocol

import "testing"

// sends lists the messages of a kind among effects, by receiver.
func sends(effects []Effect, kind Kind) map[string]int {
	out := map[string]int{}
	for _, e := range effects {
		if s, ok := e.(Send); ok && s.Message.Kind == kind {
			out[s.To]++
		}
	}
	return out
}

// crowd is a home a with member b and follower c, in a federation with d, e and f.
func crowd(t *testing.T) *hand {
	h := byHand(t, "a", 2, begun(9, 1))
	h.do(Peers{[]Member{member("a"), member("b"), member("c"), member("d"), member("e"), member("f")}},
		ControlRead{control(1, "a", "a", "b"), 10}, Swapped{SwapDone, 11})
	l := begun(10, 1, 2)
	h.do(Appended{l}, Synced{l.End})
	return h
}

// A home greets the gateways that are to have a copy, not all that there are; and those that do not
// answer more and more seldom.
func TestGreetsWhomItConcerns(t *testing.T) {
	h := crowd(t)
	first := sends(h.do(Tick{}), Hello)
	if len(first) != 2 || first["b"] != 1 || first["c"] != 1 {
		t.Fatalf("greets %v", first)
	}
	h.answers("b")
	n := sends(h.wait(20*promise), Hello)
	if len(n) != 1 || n["c"] < 8 || n["c"] > 16 { // every second promise, oftener at first
		t.Errorf("greets %v", n)
	}
	h.do(PolicyChanged{Policy{Want: 2, Sites: []string{"a", "b", "d"}}})
	if n := sends(h.do(Tick{}), Hello); len(n) != 1 || n["d"] != 1 {
		t.Errorf("greets %v", n)
	}
}

// A copy of which the home knows nothing asks it, more and more seldom, and is greeted then.
func TestUnknownCopyAsks(t *testing.T) {
	d := byHand(t, "d", 2, begun(9, 1))
	d.do(ControlRead{control(2, "a", "a", "b"), 10})
	asks := sends(d.wait(20*promise), Lost)
	if len(asks) != 1 || asks["a"] < 10 || asks["a"] > 20 {
		t.Fatalf("asks %v", asks)
	}
	h := crowd(t)
	h.do(Tick{})
	if n := sends(h.from("d", Message{Kind: Lost, Stamp: 1}), Hello); n["d"] != 1 {
		t.Errorf("greets %v", n)
	}
	h.answers("d")
	if n := sends(h.do(Tick{}), Beat); n["d"] != 1 {
		t.Errorf("beats for %v", n)
	}
	if n := sends(h.do(Received{Message: Message{Kind: Lost, From: member("x"), Epoch: h.epoch, Stamp: 1}}), Hello); len(n) > 0 {
		t.Errorf("greets %v, which is not in the federation", n)
	}
}

// An earlier process may have lent a lease to a copy that is no peer of this one yet: nothing is
// committed before that has ended.
func TestUnknownCopyMayReadStill(t *testing.T) {
	h := crowd(t)
	h.do(Tick{})
	h.answers("b", "c")
	if pos := h.committable(); pos != (Position{}) {
		t.Fatalf("%v is committed while d may read", pos)
	}
	h.at += promise/2 + promise/8
	h.answers("b", "c")
	if h.role != Home {
		t.Fatalf("a is %v", h.role)
	}
}

// A home whose own epoch is not in its log yet, or whose disk may hang, greets nobody who asks.
func TestDoesNotGreetTooSoon(t *testing.T) {
	h := byHand(t, "a", 2, begun(9, 1))
	h.do(ControlRead{control(1, "a", "a", "b"), 10}, Swapped{SwapDone, 11})
	if n := sends(h.from("b", Message{Kind: Lost, Stamp: 1}), Hello); len(n) > 0 {
		t.Error("greets before its epoch is in its log")
	}
	l := begun(10, 1, 2)
	h.do(Appended{l}, Synced{l.End}, Tick{})
	h.answers("b")
	h.at += 2 * promise
	if n := sends(h.from("b", Message{Kind: Lost, Stamp: 1}), Hello); len(n) > 0 {
		t.Error("greets without a sign that its disk works")
	}
}

// The newest epochs of a greeting are enough for a log that shares one of them. Any other asks for
// all before it cuts anything.
func TestNewestEpochsAreEnough(t *testing.T) {
	var epochs []uint64
	for e := range uint64(40) {
		epochs = append(epochs, e+1)
	}
	home := begun(50, epochs...)
	greeting := Message{Kind: Hello, From: member("a"), Epoch: 40, Stamp: 1, Epochs: home.Epochs, End: home.End}
	part := Newest(greeting)
	if !part.Part || len(part.Epochs) != newestEpochs || part.Epochs[newestEpochs-1] != home.Epochs[39] {
		t.Fatalf("%+v", part)
	}
	for _, c := range []struct {
		have  []uint64
		extra uint64
		asks  bool
	}{{epochs[:39], 0, false}, {epochs[:30], 0, false}, {epochs[:10], 0, true}, {nil, 0, false}} {
		n := uint64(len(c.have))
		own := begun(n, c.have...)
		if n == 0 {
			own = LogState{}
		}
		b := byHand(t, "b", 2, own)
		b.do(ControlRead{control(40, "a", "a", "b"), 10})
		out := b.do(Received{Message: part})
		lost := false
		for _, e := range out {
			if s, ok := e.(Send); ok && s.Message.Kind == Lost {
				lost = s.Message.Whole
			}
		}
		if _, cuts := effect[Truncate](out); cuts || lost != c.asks {
			t.Errorf("log of %d epochs: asks for all %t, want %t; cuts %t", n, lost, c.asks, cuts)
		}
		if !lost {
			continue
		}
		whole := greeting
		whole.Whole = true
		if whole = Newest(whole); len(whole.Epochs) != 40 || whole.Part {
			t.Fatal("the whole list is cut")
		}
		if n := sends(b.do(Received{Message: whole}), Welcome); n["a"] != 1 {
			t.Errorf("log of %d epochs does not join by the whole list", len(c.have))
		}
	}
}
