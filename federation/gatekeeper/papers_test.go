// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/pki"
)

const (
	lent  = "6f1c2b6e-0000-4000-8000-000000000001"
	asked = "6f1c2b6e-0000-4000-8000-000000000002"
)

func (o *one) says0(why string) paper.Moment {
	return paper.Moment{At: o.rig.clock(), By: o.id.String(), Why: why}
}

func disks() *paper.Offer {
	return &paper.Offer{Organization: "A", Name: "disks", Kind: paper.KindStore, Site: "a", Amount: 10 << 30,
		Notice: quantity.Duration(24 * time.Hour),
		Grace:  quantity.Duration(time.Hour)}
}

func (o *one) request(id string, amount quantity.Bytes) *paper.Request {
	now := o.rig.clock()
	return &paper.Request{Terms: paper.Terms{ID: id, Guest: o.id.Organization, Host: "A", Offer: "disks", Kind: paper.KindStore, Site: "a",
		Amount: amount, Until: now.Add(1000 * time.Hour), Notice: quantity.Duration(24 * time.Hour), Grace: quantity.Duration(time.Hour),
		AnswerBy: now.Add(100 * time.Hour)}, Purpose: "secret-purpose", Made: o.says0("")}
}

// paper reads one that is there.
func (w *world) paper(o *one, name string) paper.At {
	w.Helper()
	return must[paper.At](w)(o.GetPaper(w.Context(), name))
}

// puts writes papers over those that are there.
func (o *one) puts(all ...paper.Paper) error {
	var out []paper.At
	for _, p := range all {
		is, err := o.GetPaper(o.rig.Context(), p.Name())
		if err != nil && !errors.Is(err, federation.ErrNotFound) {
			return err
		}
		out = append(out, paper.At{Paper: p, Revision: is.Revision})
	}
	return o.PutPapers(o.rig.Context(), out...)
}

// accepts is what a host writes to accept, by what it read.
func (w *world) accepts(o *one, id string) []paper.At {
	w.Helper()
	offer, r := w.paper(o, "offer/A/disks"), w.paper(o, paper.RequestName(id)).Request
	if offer.Offer.Given == nil {
		offer.Offer.Given = map[string]quantity.Bytes{}
	}
	offer.Offer.Given[id] = r.Amount
	return []paper.At{offer, {Paper: paper.Paper{Answer: &paper.Answer{ID: id, Guest: r.Guest, Host: "A",
		Accepted: &paper.Acceptance{Moment: o.says0(""), Terms: r.Digest()}, Ready: &paper.Place{Endpoint: "https://127.0.0.1:7005"}}}}}
}

// lending has an agreement between A, the host, and B.
func lending(t *testing.T) *world {
	w := newConcealing(t)
	w.ok(w.oa.puts(paper.Paper{Offer: disks()}))
	w.ok(w.pb.puts(paper.Paper{Request: w.pb.request(lent, 4<<30)}))
	w.ok(w.oa.PutPapers(t.Context(), w.accepts(w.oa, lent)...))
	return w
}

// An agreement from the offer to its receipt, as the parts of two organizations write it.
func TestLending(t *testing.T) {
	w := lending(t)
	ctx := t.Context()
	store := w.as("A", "a", pki.PartStore, "a-store")
	usage := func(o *one, by string, c paper.Counters) paper.Paper {
		return paper.Paper{Usage: &paper.Usage{ID: lent, Guest: "B", Host: "A", By: by, Organization: o.id.Organization, At: w.clock(),
			Of: map[string]paper.Counters{"gb": c}}}
	}
	w.ok(w.ob.puts(paper.Paper{Room: &paper.Room{ID: lent, Guest: "B", Host: "A", Gateway: "gb", Bytes: 1 << 30}}))
	w.ok(w.gb.puts(usage(w.gb, "gb", paper.Counters{Puts: 1, In: 10, Stored: 10})))
	w.ok(store.puts(usage(store, "a", paper.Counters{Puts: 1, In: 10, Stored: 10})))
	w.pass(time.Minute)
	w.ok(store.puts(usage(store, "a", paper.Counters{Puts: 2, In: 20, Stored: 20, ByteHours: 1})))
	answer := w.paper(w.oa, paper.AnswerName(lent))
	noticed := w.pa.says0("old disks")
	answer.Answer.Noticed = &noticed
	w.ok(w.pa.PutPapers(ctx, answer))
	request := w.paper(w.ob, paper.RequestName(lent))
	drained := w.ob.says0("")
	request.Request.Drained = &drained
	w.ok(w.ob.PutPapers(ctx, request))
	answer = w.paper(w.oa, paper.AnswerName(lent))
	deleting := w.oa.says0("")
	answer.Answer.Deleting = &deleting
	w.ok(w.oa.PutPapers(ctx, answer))
	erased := usage(store, "a", paper.Counters{Puts: 2, In: 20, ByteHours: 1})
	erased.Usage.Erased = &paper.Deletion{Moment: store.says0(""), Objects: 2, Bytes: 20}
	w.ok(store.puts(erased))
	answer = w.paper(w.oa, paper.AnswerName(lent))
	answer.Answer.Deleted = &paper.Deletion{Moment: w.oa.says0(""), Objects: 2, Bytes: 20}
	offer := w.paper(w.oa, "offer/A/disks")
	offer.Offer.Given = nil
	w.ok(w.oa.PutPapers(ctx, answer, offer))
	request = w.paper(w.ob, paper.RequestName(lent))
	confirmed := w.ob.says0("")
	request.Request.Confirmed = &confirmed
	w.ok(w.ob.PutPapers(ctx, request))

	// Long after, both clean up: what they counted, and then what they said.
	w.ok(w.pb.DeletePaper(ctx, paper.UsageName(lent, paper.Guest, "gb"), w.paper(w.pb, paper.UsageName(lent, paper.Guest, "gb")).Revision))
	w.pass(paper.KeptEnded + time.Hour)
	for _, name := range []string{paper.RequestName(lent), paper.RoomName(lent, "gb")} {
		w.ok(w.pb.DeletePaper(ctx, name, w.paper(w.pb, name).Revision))
	}
	for _, name := range []string{paper.UsageName(lent, paper.Host, "a"), paper.AnswerName(lent), "offer/A/disks"} {
		w.ok(w.pa.DeletePaper(ctx, name, w.paper(w.pa, name).Revision))
	}
	if left := must[[]paper.At](w)(w.admin.ListPapers(ctx, "")); len(left) > 0 {
		t.Errorf("%d papers are left", len(left))
	}
}

// An operator passes on what a person said in a spec, also what is worst (ADR 36).
func TestOperatorsPassOnWhatPeopleSay(t *testing.T) {
	w := lending(t)
	answer := w.paper(w.oa, paper.AnswerName(lent))
	unpaid := w.oa.says0("invoice 7")
	answer.Answer.Unpaid = &unpaid
	w.ok(w.oa.PutPapers(t.Context(), answer))
	request := w.paper(w.ob, paper.RequestName(lent))
	gone := w.ob.says0("no answer since May")
	request.Request.HostGone = &gone
	w.ok(w.ob.PutPapers(t.Context(), request))
}

// Two who accept at the same time accept once, and not more than there is.
func TestAcceptedTwice(t *testing.T) {
	w := lending(t)
	ctx := t.Context()
	w.ok(w.pb.puts(paper.Paper{Request: w.pb.request(asked, 4<<30)}))
	const third = "6f1c2b6e-0000-4000-8000-000000000003"
	w.ok(w.pb.puts(paper.Paper{Request: w.pb.request(third, 4<<30)}))
	byHand, byItself := w.accepts(w.pa, asked), w.accepts(w.oa, asked)
	other := w.accepts(w.oa, third)
	w.ok(w.pa.PutPapers(ctx, byHand...))
	if err := w.oa.PutPapers(ctx, byItself...); !errors.Is(err, federation.ErrConflict) {
		t.Errorf("it was accepted twice: %v", err)
	}
	if err := w.oa.PutPapers(ctx, other...); !errors.Is(err, federation.ErrConflict) {
		t.Errorf("another was accepted by what was there before: %v", err)
	}
	if err := w.oa.PutPapers(ctx, w.accepts(w.oa, third)...); !errors.Is(err, federation.ErrInvalid) {
		t.Errorf("12 of 10 GiB went to agreements: %v", err)
	}
}

// What one organization cannot write in the exchange: each is refused, logged and counted.
func TestAttacksOnLending(t *testing.T) {
	w := lending(t)
	pc, sb := w.as("C", "c", pki.PartPerson, "carol"), w.as("B", "b", pki.PartStore, "b-store")
	sa, stray := w.as("A", "a", pki.PartStore, "a-store"), w.as("A", "elsewhere", pki.PartStore, "x")
	g2 := w.as("B", "b", pki.PartGateway, "gb2")
	w.ok(w.pb.puts(paper.Paper{Request: w.pb.request(asked, 1<<30)}))
	changed := func(name string, change func(*paper.Paper)) any {
		p := w.paper(w.admin, name).Paper
		change(&p)
		return p
	}
	usage := func(by, organization string, c paper.Counters) any {
		return paper.Paper{Usage: &paper.Usage{ID: lent, Guest: "B", Host: "A", By: by, Organization: organization, At: w.clock(),
			Of: map[string]paper.Counters{"gb": c}}}
	}
	answer := func(of *one) any {
		return paper.Paper{Answer: &paper.Answer{ID: asked, Guest: "B", Host: "A",
			Accepted: &paper.Acceptance{Moment: of.says0(""), Terms: w.paper(w.admin, paper.RequestName(asked)).Request.Digest()}}}
	}
	room := func(gateway string, n quantity.Bytes) any {
		return paper.Paper{Room: &paper.Room{ID: lent, Guest: "B", Host: "A", Gateway: gateway, Bytes: n}}
	}
	moment := w.pb.says0("")
	byA := w.pa.says0("")
	for _, x := range []struct {
		name string
		by   *one
		kvs  []any
	}{
		{"another's offer changes", w.pb, []any{"paper/offer/A/disks",
			changed("offer/A/disks", func(p *paper.Paper) { p.Offer.Price = "nothing" })}},
		{"an offer in another's name", pc, []any{"paper/offer/A/tapes", paper.Paper{Offer: disks()}}},
		{"an offer under another key", w.pa, []any{"paper/offer/B/disks", paper.Paper{Offer: disks()}}},
		{"an offer by a gateway", w.ga, []any{"paper/offer/A/disks",
			changed("offer/A/disks", func(p *paper.Paper) { p.Offer.Price = "much" })}},
		{"another's offer goes", w.pb, []any{"paper/offer/A/disks", nil}},
		{"a request in another's name", pc, []any{"paper/request/" + asked, paper.Paper{Request: w.pb.request(asked, 5)}}},
		{"the guest accepts", w.pb, []any{"paper/answer/" + asked, answer(w.pb)}},
		{"a stranger accepts", pc, []any{"paper/answer/" + asked, answer(pc)}},
		{"accepted without taking", w.pa, []any{"paper/answer/" + asked, answer(w.pa)}},
		{"the guest takes more", w.pb, []any{"paper/request/" + lent,
			changed(paper.RequestName(lent), func(p *paper.Paper) { p.Request.Amount *= 2 })}},
		{"the guest takes longer", w.ob, []any{"paper/request/" + lent, changed(paper.RequestName(lent),
			func(p *paper.Paper) { p.Request.Until = p.Request.Until.Add(time.Hour) })}},
		{"the host gives notice in the past", w.pa, []any{"paper/answer/" + lent, changed(paper.AnswerName(lent), func(p *paper.Paper) {
			p.Answer.Noticed = &paper.Moment{At: w.clock().Add(-48 * time.Hour), By: w.pa.id.String()}
		})}},
		{"the host deletes before the time", w.oa, []any{"paper/answer/" + lent, changed(paper.AnswerName(lent), func(p *paper.Paper) {
			is := w.oa.says0("")
			p.Answer.Deleting = &is
		})}},
		{"the guest gives notice for the host", w.pb, []any{"paper/answer/" + lent, changed(paper.AnswerName(lent),
			func(p *paper.Paper) { p.Answer.Noticed = &moment })}},
		{"the host drains for the guest", w.pa, []any{"paper/request/" + lent, changed(paper.RequestName(lent),
			func(p *paper.Paper) { p.Request.Drained = &byA })}},
		{"a receipt for nothing", w.pb, []any{"paper/request/" + lent, changed(paper.RequestName(lent),
			func(p *paper.Paper) { p.Request.Confirmed = &moment })}},
		{"a gateway says that the host is gone", w.gb, []any{"paper/request/" + lent,
			changed(paper.RequestName(lent), func(p *paper.Paper) {
				is := w.gb.says0("")
				p.Request.HostGone = &is
			})}},
		{"the agreement goes", w.pb, []any{"paper/request/" + lent, nil}},
		{"the other side goes", w.pb, []any{"paper/answer/" + lent, nil}},
		{"the offer forgets what it gave", w.pa, []any{"paper/offer/A/disks",
			changed("offer/A/disks", func(p *paper.Paper) { p.Offer.Given = nil })}},
		{"more room than was agreed", w.pb, []any{"paper/room/" + lent + "/gb", room("gb", 4<<30+1)}},
		{"the host makes room", w.pa, []any{"paper/room/" + lent + "/gb", room("gb", 1)}},
		{"a gateway makes room for itself", w.gb, []any{"paper/room/" + lent + "/gb", room("gb", 1)}},
		{"usage of another gateway", w.ga, []any{"paper/usage/" + lent + "/guest/gb", usage("gb", "B", paper.Counters{Gets: 9})}},
		{"usage of another gateway of the guest", g2, []any{"paper/usage/" + lent + "/guest/gb2", usage("gb2", "B",
			paper.Counters{Gets: 9})}},
		{"usage by a person", w.pa, []any{"paper/usage/" + lent + "/host/a", usage("a", "A", paper.Counters{Gets: 9})}},
		{"usage by the store of a site that is none", stray, []any{"paper/usage/" + lent + "/host/elsewhere",
			usage("elsewhere", "A", paper.Counters{})}},
		{"the guest's store counts", sb, []any{"paper/usage/" + lent + "/guest/b", usage("b", "B", paper.Counters{})}},
		{"the host counts more than there can be", sa, []any{"paper/usage/" + lent + "/host/a",
			usage("a", "A", paper.Counters{ByteHours: 1e18})}},
		{"erased what was to stay", sa, []any{"paper/usage/" + lent + "/host/a", changedUsage(usage("a", "A", paper.Counters{}), sa)}},
		{"no paper", w.pa, []any{"paper/nothing", "{}"}},
		{"no name", w.pa, []any{"paper/", paper.Paper{Offer: disks()}}},
		{"a store writes something else", sa, []any{"observed/v1/ga", federation.Observed{Volume: "v1", Gateway: "ga"}}},
	} {
		t.Run(x.name, func(t *testing.T) {
			before, refused := w.plainly(x.kvs[0].(string)), w.meter.all()
			if err := x.by.put(x.kvs...); !errors.Is(err, federation.ErrAccess) {
				t.Fatalf("it is not refused: %v", err)
			}
			if w.meter.all() == refused || !strings.Contains(w.log.last(), "audit=refused") {
				t.Errorf("it is not counted, or not told: %s", w.log.last())
			}
			if !bytes.Equal(before, w.plainly(x.kvs[0].(string))) {
				t.Error("something changed")
			}
		})
	}
	fresh := w.as("B", "b", pki.PartOperator, "b-operator")
	// A third organization's gateway hands nothing on, which its writer could not write himself.
	t.Run("handed on by another", func(t *testing.T) {
		p := w.paper(w.admin, paper.AnswerName(lent)).Paper
		p.Answer.Noticed = &paper.Moment{At: w.clock().Add(-900 * time.Hour), By: w.oa.id.String()}
		is := w.oa.says0("")
		p.Answer.Deleting = &is
		value := w.oa.forge("paper/answer/"+lent, w.later(), p)
		for _, by := range []*one{w.oa, w.ga, w.gc, w.gb} {
			if err := by.put("paper/answer/"+lent, value); !errors.Is(err, federation.ErrAccess) {
				t.Errorf("by %s: %v", by.id, err)
			}
		}
	})
	// What is there and was forged is as if it were not there.
	t.Run("a request by a forged offer", func(t *testing.T) {
		is := w.plainly("paper/offer/A/disks")
		cheap := disks()
		cheap.Price = "nothing"
		_, err := w.plain.Put(t.Context(), prefix+"paper/offer/A/disks", string(pc.forge("paper/offer/A/disks", w.later(),
			paper.Paper{Offer: cheap})))
		w.ok(err)
		r := w.pb.request("6f1c2b6e-0000-4000-8000-00000000000e", 1<<20)
		r.Price = "nothing"
		if err := w.pb.put("paper/request/"+r.ID, paper.Paper{Request: r}); !errors.Is(err, federation.ErrAccess) {
			t.Errorf("%v", err)
		}
		_, err = w.plain.Put(t.Context(), prefix+"paper/offer/A/disks", string(is))
		w.ok(err)
	})
	// Past the gatekeeper, as who runs a member of the registry can: nobody believes it.
	for _, x := range []struct {
		name, key string
		record    paper.Paper
		by        *one
	}{
		{"accepted by the guest", "paper/answer/" + asked, answer(w.pb).(paper.Paper), w.pb},
		{"taken by a stranger", "paper/offer/A/disks", paper.Paper{Offer: disks()}, pc},
		{"room by the host", "paper/room/" + lent + "/gb", room("gb", 1).(paper.Paper), w.pa},
		{"counted by another", "paper/usage/" + lent + "/guest/gb", usage("gb", "B", paper.Counters{Gets: 1 << 40}).(paper.Paper), w.ga},
	} {
		t.Run("behind, "+x.name, func(t *testing.T) {
			is := w.plainly(x.key)
			_, err := w.plain.Put(t.Context(), prefix+x.key, string(x.by.forge(x.key, w.later(), x.record)))
			w.ok(err)
			if _, err := fresh.GetPaper(t.Context(), strings.TrimPrefix(x.key, "paper/")); !errors.Is(err, federation.ErrForged) {
				t.Errorf("it is believed: %v", err)
			}
			if is == nil {
				_, err := w.plain.Delete(t.Context(), prefix+x.key)
				w.ok(err)
				return
			}
			_, err = w.plain.Put(t.Context(), prefix+x.key, string(is))
			w.ok(err)
		})
	}
}

// A request that somebody deleted past the gatekeepers comes back by its guest's hand: its host has
// it signed.
func TestLostRequest(t *testing.T) {
	w := lending(t)
	is := w.paper(w.pb, paper.RequestName(lent))
	_, err := w.plain.Delete(t.Context(), prefix+"paper/"+paper.RequestName(lent))
	w.ok(err)
	other := is
	other.Paper.Request = &paper.Request{Terms: is.Request.Terms, Purpose: is.Request.Purpose, Made: is.Request.Made}
	other.Paper.Request.Amount++
	other.Revision = 0
	if err := w.pb.PutPapers(t.Context(), other); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("another comes back: %v", err)
	}
	is.Revision = 0
	w.ok(w.pb.PutPapers(t.Context(), is))
}

func changedUsage(p any, by *one) any {
	u := p.(paper.Paper)
	u.Usage.Erased = &paper.Deletion{Moment: by.says0("")}
	return u
}

// Offers are shown to all, and what two agree on to them only, in no way of reading.
func TestAgreementsAreShownToTheirParties(t *testing.T) {
	w := newConcealing(t)
	ctx := t.Context()
	pc := w.as("C", "c", pki.PartPerson, "carol")
	for _, o := range []*one{pc, w.gb} { // the gatekeeper knows of the charter then
		must[[]paper.At](w)(o.ListPapers(ctx, ""))
	}
	changes := pc.everything(t)
	partner := w.gb.everything(t)
	w.ok(w.oa.puts(paper.Paper{Offer: disks()}))
	w.ok(w.pb.puts(paper.Paper{Request: w.pb.request(lent, 4<<30)}))
	w.ok(w.oa.PutPapers(ctx, w.accepts(w.oa, lent)...))
	w.ok(w.ob.puts(paper.Paper{Room: &paper.Room{ID: lent, Guest: "B", Host: "A", Gateway: "gb", Bytes: 1 << 30}}))
	if err := w.admin.DeletePaper(ctx, paper.RoomName(lent, "gb"), w.paper(w.admin, paper.RoomName(lent, "gb")).Revision); !errors.Is(err,
		federation.ErrAccess) {
		t.Errorf("an administrator deletes what is in force: %v", err)
	}
	_, err := w.plain.Delete(ctx, prefix+"paper/"+paper.RoomName(lent, "gb"))
	w.ok(err)
	for _, x := range []struct {
		o    *one
		want int
	}{{w.pa, 3}, {w.oa, 3}, {w.pb, 3}, {w.gb, 3}, {w.admin, 3}, {pc, 1}, {w.gc, 1}} {
		if got := must[[]paper.At](w)(x.o.ListPapers(ctx, "")); len(got) != x.want {
			t.Errorf("%s is shown %d papers, not %d", x.o.id, len(got), x.want)
		}
	}
	if _, err := pc.GetPaper(ctx, paper.RequestName(lent)); !errors.Is(err, federation.ErrNotFound) {
		t.Errorf("%v", err)
	}
	w.eventually("the guest's gateway heard of the room's end", func() bool {
		return bytes.Count(partner(), []byte("paper/room/"+lent)) >= 2
	})
	w.eventually("the stranger heard of the offer", func() bool { return bytes.Contains(changes(), []byte("offer/A/disks")) })
	if bytes.Contains(changes(), []byte("secret-purpose")) || bytes.Contains(changes(), []byte("paper/answer")) ||
		bytes.Contains(changes(), []byte("paper/room")) {
		t.Error("a stranger hears of the agreement")
	}
	err = pc.put("paper/request/"+lent, nil)
	if !errors.Is(err, federation.ErrAccess) || strings.Contains(err.Error(), "B") && strings.Contains(err.Error(), "word of") {
		t.Errorf("a refusal tells whose it is: %v", err)
	}
}
