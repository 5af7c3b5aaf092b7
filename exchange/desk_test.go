// SPDX-License-Identifier: Apache-2.0

package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

const gib = quantity.Bytes(1 << 30)

// desks are those of a host and a guest at one registry.
type desks struct {
	*testing.T
	registry    *memory.Client
	host, guest *exchange.Desk
	n           int
}

func opened(t *testing.T) *desks {
	r := memory.New()
	now := func() time.Time { return time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC) }
	d := &desks{T: t, registry: r, host: &exchange.Desk{Book: r, Organization: "A", By: "weir://demo/A/a/ann", Now: now},
		guest: &exchange.Desk{Book: r, Organization: "B", By: "weir://demo/B/b/bob", Now: now}}
	if changed, err := d.host.Offer(t.Context(), offer()); err != nil || !changed {
		t.Fatal(changed, err)
	}
	return d
}

func offer() paper.Offer {
	return paper.Offer{Name: "disks", Kind: paper.KindStore, Site: "a", Amount: 10 * gib, Automatic: 3 * gib, Price: "free"}
}

// asks makes a request, and returns its ID.
func (d *desks) asks(amount quantity.Bytes) string {
	d.Helper()
	d.n++
	id := fmt.Sprintf("6f1c2b6e-0000-4000-8000-%012d", d.n)
	for range 2 { // asking again is recognised
		if _, err := d.guest.Ask(d.Context(), exchange.Want{ID: id, Host: "A", Offer: "disks", Amount: amount,
			Until: d.guest.Now().Add(999 * time.Hour)}); err != nil {
			d.Fatal(err)
		}
	}
	return id
}

func (d *desks) refused(err error, why string) {
	d.Helper()
	if !errors.Is(err, exchange.ErrRefused) || !strings.Contains(err.Error(), why) {
		d.Errorf("%v, want %q", err, why)
	}
}

func (d *desks) ok(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// What an offer accepts by itself is bounded for each guest in all, and by the offer's words.
func TestAutomatic(t *testing.T) {
	d := opened(t)
	ctx := t.Context()
	d.ok(d.host.Accept(ctx, d.asks(2*gib), true))
	second := d.asks(2 * gib)
	d.refused(d.host.Accept(ctx, second, true), "are accepted by themselves")
	d.ok(d.host.Accept(ctx, second, false))
	changed := d.asks(gib)
	dearer := offer()
	dearer.Price = "a cake"
	if _, err := d.host.Offer(ctx, dearer); err != nil {
		t.Fatal(err)
	}
	for _, automatic := range []bool{true, false} {
		d.refused(d.host.Accept(ctx, changed, automatic), `price is "free": the offer says "a cake"`)
	}
	d.refused(d.guest.Accept(ctx, changed, false), `"A" accepts or declines, and not "B"`)
	d.ok(d.host.Decline(ctx, changed, "dearer now"))
	d.refused(d.host.Accept(ctx, changed, false), "is Declined")
	d.refused(d.host.Accept(ctx, d.asksDearly(7*gib), false), "has 6Gi left: offer more, or decline")
	if gone, err := d.host.Withdraw(ctx, "disks"); gone || err != nil {
		t.Fatal(gone, err)
	}
	offers, err := d.guest.Offers(ctx, "A")
	if err != nil || len(offers) != 1 || !offers[0].Closed || offers[0].Free() != 6*gib {
		t.Errorf("%v: %+v", err, offers)
	}
}

// Who takes a request back when it is answered already takes nothing back.
func TestRecall(t *testing.T) {
	d := opened(t)
	ctx := t.Context()
	first, second := d.asks(gib), d.asks(gib)
	d.ok(d.host.Accept(ctx, first, false))
	d.ok(d.guest.Recall(ctx, first, "never mind"))
	d.ok(d.guest.Recall(ctx, second, "never mind"))
	for id, want := range map[string]paper.Phase{first: paper.Agreed, second: paper.Declined} {
		if a, err := d.guest.Agreement(ctx, id); err != nil || a.Phase != want || a.Request.Noticed != nil {
			t.Errorf("%v: it is %s, want %s", err, a.Phase, want)
		}
	}
}

// asksDearly writes a request that no desk would make.
func (d *desks) asksDearly(amount quantity.Bytes) string {
	d.Helper()
	id := "6f1c2b6e-0000-4000-8000-0000000000ff"
	now := d.guest.Now()
	r := &paper.Request{Terms: paper.Terms{ID: id, Guest: "B", Host: "A", Offer: "disks", Kind: paper.KindStore, Site: "a", Price: "a cake",
		Amount: amount, Until: now.Add(99 * time.Hour), AnswerBy: now.Add(time.Hour)}, Made: paper.Moment{At: now, By: "b"}}
	d.ok(d.registry.PutPapers(d.Context(), paper.At{Paper: paper.Paper{Request: r}}))
	return id
}

// Somebody else was faster: it is decided anew, and not for ever.
func TestConflicts(t *testing.T) {
	d := opened(t)
	ctx := t.Context()
	id := d.asks(gib)
	d.registry.Script(memory.ConflictFault, memory.ConflictFault)
	d.ok(d.host.Accept(ctx, id, false))
	a, err := d.host.Agreement(ctx, id)
	if err != nil || a.Phase != paper.Agreed {
		t.Fatalf("%v: %+v", err, a.Life)
	}
	d.registry.Script(memory.ConflictFault, memory.ConflictFault, memory.ConflictFault, memory.ConflictFault, memory.ConflictFault)
	at := paper.Place{Endpoint: "https://store:7005"}
	if err := d.host.Ready(ctx, id, at); !errors.Is(err, federation.ErrConflict) {
		t.Errorf("%v", err)
	}
	d.ok(d.host.Ready(ctx, id, at))
	d.registry.Script(memory.UnknownApplied) // the answer is lost: saying it again changes nothing
	if err := d.host.End(ctx, id, "old"); !errors.Is(err, federation.ErrUnknown) {
		t.Errorf("%v", err)
	}
	d.ok(d.host.End(ctx, id, "older"))
	if a, err = d.guest.Agreement(ctx, id); err != nil || a.Answer.Noticed.Why != "old" {
		t.Errorf("%v: %+v", err, a.Answer)
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := d.guest.Find(ctx, id[:8]); err == nil {
		t.Error("it is found after it was given up")
	}
}

// A store is somewhere, and its room is cut by gateway. Copies and cache room are at the site's
// gateways, for all volumes together. Who says anything else is told what to say.
func TestWhatKindsAreWithout(t *testing.T) {
	d := opened(t)
	ctx := t.Context()
	for _, x := range []struct {
		kind                 paper.Kind
		good, bad            string
		ready, room, receipt string
	}{
		{paper.KindStore, "https://store:7005", "", "kind is Store, and endpoint is missing: write the URL of the store, such as https://",
			"", "deleted, 3 objects of 2Gi"},
		{paper.KindCopy, "", "https://store:7005", `kind is Copy, and endpoint is "https://store:7005": leave endpoint out`,
			"kind is Copy: its room is for all volumes together", "deleted, copies of 3 volumes, of 2Gi"},
		{paper.KindCache, "", "https://store:7005", `kind is Cache, and endpoint is "https://store:7005": leave endpoint out`,
			"kind is Cache: its room is for all volumes together", "the room is given back"},
	} {
		t.Run(string(x.kind), func(t *testing.T) {
			o := offer()
			o.Name, o.Kind = strings.ToLower(string(x.kind)), x.kind
			_, err := d.host.Offer(ctx, o)
			d.ok(err)
			d.n++
			id := fmt.Sprintf("6f1c2b6e-0000-4000-8000-%012d", d.n)
			_, err = d.guest.Ask(ctx, exchange.Want{ID: id, Host: "A", Offer: o.Name, Amount: 2 * gib,
				Until: d.guest.Now().Add(999 * time.Hour)})
			d.ok(err)
			d.ok(d.host.Accept(ctx, id, false))
			d.refused(d.host.Ready(ctx, id, paper.Place{Endpoint: x.bad}), x.ready)
			if a, err := d.host.Agreement(ctx, id); err != nil || a.Phase != paper.Agreed {
				t.Fatalf("%v: it is %s", err, a.Phase)
			}
			d.ok(d.host.Ready(ctx, id, paper.Place{Endpoint: x.good}))
			if err := d.guest.Room(ctx, id, "g", gib); x.room == "" {
				d.ok(err)
			} else {
				d.refused(err, x.room)
			}
			d.ok(d.guest.Drained(ctx, id, ""))
			d.ok(d.host.Delete(ctx, id))
			d.ok(d.host.Deleted(ctx, id, 3, 2*gib))
			a, err := d.guest.Agreement(ctx, id)
			d.ok(err)
			if said := a.Said(); said[len(said)-1].What != x.receipt {
				t.Errorf("the receipt is %q, want %q", said[len(said)-1].What, x.receipt)
			}
		})
	}
}

// shared is a book that gives everybody the same papers, as an operator's view does, and takes
// nothing.
type shared struct {
	paper.Book
	all map[string]paper.At
}

func (s *shared) GetPaper(ctx context.Context, name string) (paper.At, error) {
	if p, ok := s.all[name]; ok {
		return p, nil
	}
	p, err := s.Book.GetPaper(ctx, name)
	if err == nil {
		s.all[name] = p
	}
	return p, err
}

func (*shared) PutPapers(context.Context, ...paper.At) error { return federation.ErrUnavailable }

// What was read is not changed by what is not written.
func TestWhatWasReadStays(t *testing.T) {
	d := opened(t)
	id := d.asks(gib)
	d.ok(d.host.Accept(t.Context(), d.asks(gib), false)) // the offer gives something, so it is closed and not deleted
	book := &shared{d.registry, map[string]paper.At{}}
	d.host.Book = book
	for range 2 {
		if err := d.host.Accept(t.Context(), id, false); !errors.Is(err, federation.ErrUnavailable) {
			t.Errorf("accept: %v", err)
		}
		if gone, err := d.host.Withdraw(t.Context(), "disks"); gone || !errors.Is(err, federation.ErrUnavailable) {
			t.Errorf("withdraw: %v, %v", gone, err)
		}
	}
	if o := book.all[paper.OfferName("A", "disks")].Offer; o.Free() != 9*gib || len(o.Given) != 1 || o.Closed {
		t.Errorf("nothing was written, and what was read is %+v", o)
	}
}
