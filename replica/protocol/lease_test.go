// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"testing"
	"time"
)

// lender makes a's Core home, with the member b, when no lease of an earlier epoch may last any
// more.
func lender(t *testing.T) *hand {
	h := home(t, 2, "a", "b")
	for h.at < h.quietEnd {
		h.wait(beat)
		h.answersOf("b", "c")
	}
	h.appends(1)
	h.answersOf("c")
	return h
}

// borrows lets c, which is no member, tell that its clients read so many times.
func (h *hand) borrows(reads int) []Effect {
	return h.from("c", Message{Kind: Ack, Stamp: h.at, Echo: h.at, End: h.peers["c"].match, Grant: promise, Reads: reads})
}

// granted returns the lease that a message to c brings; 0: none does.
func granted(effects []Effect) (d time.Duration) {
	for _, e := range effects {
		if s, ok := e.(Send); ok && s.To == "c" {
			d = max(d, s.Message.Grant)
		}
	}
	return d
}

// appends lets the home append n bytes, which b has at once.
func (h *hand) appends(n uint64) []Effect {
	l := begun(h.log.End.Off+n, 1, 2)
	out := h.do(Appended{l}, Synced{l.End})
	return append(out, h.from("b", Message{Kind: Ack, Stamp: h.at, Echo: h.at, End: l.End, Grant: promise})...)
}

// TestLeaseWithoutAVote: a follower whose clients read gets a lease on demand. While it has one,
// what is committed is at that follower too. It ends when nobody reads, and with a follower that
// does not answer.
func TestLeaseWithoutAVote(t *testing.T) {
	h := lender(t)
	if d := granted(h.wait(beat)); d > 0 {
		t.Fatalf("who does not read has a lease of %v", d)
	}
	if d := granted(h.borrows(5)); d != promise/2 {
		t.Fatalf("a lease of %v", d)
	}
	was := h.commit
	h.appends(1)
	if h.commit != was {
		t.Fatalf("%v is committed, which the reader does not have", h.commit)
	}
	h.from("c", Message{Kind: Ack, Stamp: h.at, Echo: h.at, End: h.log.End, Grant: promise, Reads: 5})
	if h.commit != h.log.End {
		t.Fatalf("%v is committed of %v, which the reader has", h.commit, h.log.End)
	}
	if d := granted(h.do(Tick{})); d == 0 {
		t.Fatal("the lease is not renewed")
	}

	// It does not answer any more: changes wait as long as the lease lasts, and no new one is
	// given.
	h.appends(1)
	for began := h.at; h.commit != h.log.End; h.answersOf("b") {
		if h.at > began+promise {
			t.Fatal("changes wait for who does not answer")
		}
		if d := granted(h.wait(beat)); d > 0 && h.at > began+promise/3 {
			t.Fatalf("who does not answer has a lease of %v", d)
		}
	}
	h.wait(beat)
	h.from("c", Message{Kind: Ack, Stamp: h.at, Echo: h.at, End: h.log.End, Grant: promise})
	if d := granted(h.borrows(100)); d > 0 {
		t.Fatalf("who held up changes has a lease of %v again", d)
	}
	for end := h.at + barFor*promise; h.at < end; h.answersOf("b", "c") {
		h.wait(beat)
	}
	if d := granted(h.borrows(100)); d == 0 {
		t.Fatal("who held up changes gets no lease any more")
	}
}

// answersOf lets members and followers acknowledge all of h's log.
func (h *hand) answersOf(names ...string) {
	for _, name := range names {
		h.from(name, Message{Kind: Ack, Stamp: h.at, Echo: h.at, End: h.log.End, Grant: promise})
	}
}

// TestLeaseOfAVolumeThatIsWritten: a volume that changes more often than a follower's clients read
// has no lease there.
func TestLeaseOfAVolumeThatIsWritten(t *testing.T) {
	h := lender(t)
	for range 20 {
		h.appends(1)
	}
	h.from("c", Message{Kind: Ack, Stamp: h.at, Echo: h.at, End: h.log.End, Grant: promise})
	if d := granted(h.borrows(10)); d > 0 {
		t.Errorf("a lease of %v after 20 changes and 10 reads", d)
	}
	if d := granted(h.borrows(15)); d == 0 {
		t.Error("no lease after more reads than changes")
	}
}

// TestMoveWaitsForLeases: a home does not hand over while a follower reads under a lease, of which
// the next home does not know, and gives none meanwhile.
func TestMoveWaitsForLeases(t *testing.T) {
	h := lender(t)
	h.borrows(50)
	until := h.peers["c"].lease
	out := h.do(Move{"b"})
	for h.role == Home {
		out = append(out, h.wait(beat)...)
		h.answersOf("b")
		h.borrows(50)
		if h.at > until+2*promise {
			t.Fatal("it does not hand over")
		}
	}
	if h.at < until {
		t.Errorf("it hands over %v before the lease ends", until-h.at)
	}
	if d := granted(out); d > 0 {
		t.Errorf("about to hand over, it gives a lease of %v", d)
	}
}

// TestWantedIsTold: a follower without a lease tells the home at once that its clients read, and
// with a lease in its next answer.
func TestWantedIsTold(t *testing.T) {
	h := byHand(t, "c", 2, begun(10, 1, 2))
	h.do(ControlRead{control(2, "a", "a", "b"), 10})
	h.from("a", Message{Kind: Hello, Epoch: 2, Epochs: h.log.Epochs, End: h.log.End, Stamp: h.at})
	s, ok := effect[Send](h.do(Wanted{7}))
	if !ok || s.Message.Kind != Ack || s.Message.Reads != 7 {
		t.Fatalf("%+v", s)
	}
	if h.MayRead(h.at) {
		t.Fatal("it reads without a lease")
	}
	h.from("a", Message{Kind: Advance, Epoch: 2, Commit: h.log.End, Stamp: h.at, Echo: s.Message.Stamp, Grant: promise / 2})
	if !h.MayRead(h.at) {
		t.Fatal("it does not read under the lease")
	}
	if out := h.do(Wanted{3}, Wanted{1 << 30}); len(out) > 0 {
		t.Errorf("with a lease it sends %v", out)
	}
	s, ok = effect[Send](h.from("a", Message{Kind: Beat, Epoch: 2, Commit: h.log.End, Stamp: h.at}))
	if !ok || s.Message.Kind != Ack || s.Message.Reads != 2*maxCredit {
		t.Errorf("%+v", s)
	}
}

// reads lets x, a gateway without a copy, tell what it knows and how often its clients read.
func (h *hand) reads(epoch uint64, known Position, reads int) []Effect {
	return h.do(Reading{Gateway: "x", Epoch: epoch, Known: known, Stamp: h.at, Reads: reads})
}

// TestReadingOfAnEarlierEpoch: what a gateway without a copy knew of another epoch's log says
// nothing of this one.
func TestReadingOfAnEarlierEpoch(t *testing.T) {
	h := lender(t)
	if l, ok := effect[Lend](h.reads(h.epoch, Position{}, 9)); !ok || l.To != "x" || l.End != h.log.End || l.Grant != promise/2 {
		t.Fatalf("%+v", l)
	}
	h.reads(h.epoch-1, position(1000), 9)
	h.appends(1)
	if h.commit == h.log.End {
		t.Fatal("a change is committed of which x does not know")
	}
	h.reads(h.epoch, h.log.End, 0)
	if h.commit != h.log.End {
		t.Fatal("a change is not committed of which x knows")
	}
	// A lease that was not passed on is none.
	h.do(NotLent{"x"})
	h.appends(1)
	if h.commit != h.log.End {
		t.Fatal("a change waits for a lease that nobody has")
	}
	if _, ok := effect[Lend](h.reads(h.epoch, h.log.End, 50)); ok {
		t.Fatal("it is lent again at once")
	}
}

// TestStalledHomeLendsNothing: while there are fewer members than wanted, nobody gets a lease.
func TestStalledHomeLendsNothing(t *testing.T) {
	h := lender(t)
	h.do(PolicyChanged{Policy{Want: 5, Sites: []string{"a", "b", "c"}}})
	if _, ok := effect[Lend](h.reads(h.epoch, h.log.End, 50)); ok {
		t.Error("it lends")
	}
}

// TestIdleReaderIsNotBarred: who has a lease and says nothing, because nobody reads, is not barred
// because a change came just before that ended.
func TestIdleReaderIsNotBarred(t *testing.T) {
	h := lender(t)
	h.reads(h.epoch, Position{}, 9)
	until := h.readers["x"].lease
	for h.at < until-beat {
		h.wait(beat)
		h.answersOf("b", "c")
	}
	h.appends(1)
	h.wait(2 * beat)
	h.answersOf("b", "c")
	if _, ok := effect[Lend](h.reads(h.epoch, Position{}, 9)); !ok {
		t.Errorf("it gets no lease: %+v", h.readers["x"])
	}
}

// TestBeatTellsWhetherTheHomeReigns: a home without its members' promises does not say that what it
// has is all that was acknowledged.
func TestBeatTellsWhetherTheHomeReigns(t *testing.T) {
	told := func(effects []Effect) (current, any bool) {
		for _, e := range effects {
			if s, ok := e.(Send); ok && s.Message.Kind == Beat {
				current, any = s.Message.Current, true
			}
		}
		return current, any
	}
	h := home(t, 2, "a", "b")
	if current, any := told(h.do(Tick{})); !current || !any {
		t.Errorf("with its member's promise it tells: %t, %t", any, current)
	}
	h.wait(promise) // b is silent, and the registry too
	if current, any := told(h.do(Tick{})); current || !any {
		t.Errorf("without its member's promise it tells: %t, %t", any, current)
	}
}
