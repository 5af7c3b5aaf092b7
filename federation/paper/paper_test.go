// SPDX-License-Identifier: Apache-2.0

package paper_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

const (
	agreed = "6f1c2b6e-0000-4000-8000-000000000001"
	other  = "6f1c2b6e-0000-4000-8000-000000000002"
	day    = 24 * time.Hour
	tib    = quantity.Bytes(1 << 40)
)

// world is a registry that judges by the rules of this package only.
type world struct {
	*testing.T
	now    time.Time
	papers map[string]paper.Paper
}

func newWorld(t *testing.T) *world {
	return &world{T: t, now: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC), papers: map[string]paper.Paper{}}
}

func copied(p paper.Paper) (out paper.Paper) {
	text, _ := json.Marshal(p)
	_ = json.Unmarshal(text, &out)
	return out
}

// put judges papers of one organization that are written together, and writes them.
func (w *world) put(organization string, all ...paper.Paper) error {
	w.Helper()
	named := func(name string) *paper.Paper {
		for _, p := range all {
			if p.Name() == name {
				return &p
			}
		}
		return nil
	}
	for _, p := range all {
		if p.Writer() != organization {
			w.Fatalf("%s is %q's, and %q writes it", p.Name(), p.Writer(), organization)
		}
		if err := w.judge(organization, named).Judge(w.is(p.Name()), &p); err != nil {
			return err
		}
	}
	for _, p := range all {
		w.papers[p.Name()] = copied(p)
	}
	return nil
}

func (w *world) judge(organization string, written func(string) *paper.Paper) paper.Case {
	return paper.Case{Now: w.now, By: by(organization), Is: w.is, Written: written}
}

func (w *world) is(name string) *paper.Paper {
	if p, ok := w.papers[name]; ok {
		p = copied(p)
		return &p
	}
	return nil
}

func (w *world) remove(organization, name string) error {
	w.Helper()
	err := w.judge(organization, func(string) *paper.Paper { return nil }).Judge(w.is(name), nil)
	if err == nil {
		delete(w.papers, name)
	}
	return err
}

func by(organization string) string { return "weir://demo/" + organization + "/site/ann" }

func (w *world) says(organization, why string) *paper.Moment {
	return &paper.Moment{At: w.now, By: by(organization), Why: why}
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// denied checks that a change is refused, and by what.
func (w *world) denied(err error, why string) {
	w.Helper()
	if err == nil || !strings.Contains(err.Error(), why) {
		w.Errorf("%v, want %q", err, why)
	}
}

func (w *world) offer() paper.Offer {
	return paper.Offer{Organization: "A", Name: "disks", Kind: paper.KindStore, Site: "ams", Amount: 10 * tib, Price: "free", Terms: "none",
		Notice: quantity.Duration(10 * day), Grace: quantity.Duration(2 * day)}
}

func (w *world) terms(id string) paper.Terms {
	return paper.Terms{ID: id, Guest: "B", Host: "A", Offer: "disks", Kind: paper.KindStore, Site: "ams", Price: "free", Text: "none",
		Amount: 4 * tib, Until: w.now.Add(100 * day), Notice: quantity.Duration(10 * day), Grace: quantity.Duration(2 * day),
		AnswerBy: w.now.Add(20 * day)}
}

func (w *world) request(id string) paper.Request {
	return paper.Request{Terms: w.terms(id), Purpose: "simulations", Made: *w.says("B", "")}
}

// asked has an offer and a request.
func asked(t *testing.T) *world {
	w := newWorld(t)
	o, r := w.offer(), w.request(agreed)
	w.ok(w.put("A", paper.Paper{Offer: &o}))
	w.ok(w.put("B", paper.Paper{Request: &r}))
	return w
}

// accepts is what the host writes to accept.
func (w *world) accepts(id string) (paper.Offer, paper.Answer) {
	o, r := *w.is("offer/A/disks").Offer, w.is(paper.RequestName(id)).Request
	if o.Given == nil {
		o.Given = map[string]quantity.Bytes{}
	}
	o.Given[id] = r.Amount
	return o, paper.Answer{ID: id, Guest: "B", Host: "A", Accepted: &paper.Acceptance{Moment: *w.says("A", ""), Terms: r.Digest()}}
}

// active has an agreement whose room is there.
func active(t *testing.T) *world {
	w := asked(t)
	o, a := w.accepts(agreed)
	w.ok(w.put("A", paper.Paper{Offer: &o}, paper.Paper{Answer: &a}))
	w.phase(paper.Agreed, paper.Host)
	a.Ready = &paper.Place{Endpoint: "https://ams.example:7005"}
	w.ok(w.put("A", paper.Paper{Answer: &a}))
	w.phase(paper.Active, paper.Nobody)
	return w
}

func (w *world) life() paper.Life {
	var a *paper.Answer
	if p := w.is(paper.AnswerName(agreed)); p != nil {
		a = p.Answer
	}
	return w.is(paper.RequestName(agreed)).Request.Life(a, w.now)
}

func (w *world) phase(want paper.Phase, move paper.Party) {
	w.Helper()
	if l := w.life(); l.Phase != want || l.Move != move || l.Why == "" {
		w.Fatalf("%+v, want %s, and the move of %q", l, want, move)
	}
}

func (w *world) guest(change func(*paper.Request)) error {
	p := *w.is(paper.RequestName(agreed))
	change(p.Request)
	return w.put("B", p)
}

func (w *world) host(change func(*paper.Answer)) error {
	p := *w.is(paper.AnswerName(agreed))
	change(p.Answer)
	return w.put("A", p)
}

func (w *world) may(writes, reads, erases, places bool) {
	w.Helper()
	l := w.life()
	if l.Writes(w.now) != writes || l.Reads() != reads || l.Erases(w.now) != erases || (l.Phase == paper.Active) != places {
		w.Errorf("%+v: writes %v, reads %v, erases %v", l, l.Writes(w.now), l.Reads(), l.Erases(w.now))
	}
}

func TestWholeLife(t *testing.T) {
	w := active(t)
	w.may(true, true, false, true)
	w.now = w.now.Add(5 * day)
	w.ok(w.host(func(a *paper.Answer) { a.Noticed = w.says("A", "the disks are old") }))
	w.phase(paper.Ending, paper.Guest)
	w.may(true, true, false, false)
	w.denied(w.host(func(a *paper.Answer) { a.Deleting = w.says("A", "") }), "the guest may have something there until")
	w.now = w.now.Add(11 * day)
	w.may(false, true, false, false)
	w.ok(w.guest(func(r *paper.Request) { r.Drained = w.says("B", "") }))
	w.phase(paper.Drained, paper.Host)
	w.may(false, true, true, false)
	w.ok(w.host(func(a *paper.Answer) { a.Deleting = w.says("A", "") }))
	w.may(false, false, true, false)
	w.denied(w.guest(func(r *paper.Request) { r.Confirmed = w.says("B", "") }), "there is nothing to confirm")
	w.ok(w.host(func(a *paper.Answer) { a.Deleted = &paper.Deletion{Moment: *w.says("A", ""), Objects: 3, Bytes: 9} }))
	w.phase(paper.Drained, paper.Guest)
	o := *w.is("offer/A/disks").Offer
	o.Given = nil
	w.ok(w.put("A", paper.Paper{Offer: &o}))
	w.ok(w.guest(func(r *paper.Request) { r.Confirmed = w.says("B", "") }))
	w.phase(paper.Ended, paper.Nobody)
	w.denied(w.remove("B", paper.RequestName(agreed)), "it is kept until")
	w.now = w.now.Add(paper.KeptEnded)
	w.ok(w.remove("B", paper.RequestName(agreed)))
	w.ok(w.remove("A", paper.AnswerName(agreed)))
	w.ok(w.remove("A", "offer/A/disks"))
}

func TestLives(t *testing.T) {
	for _, tt := range []struct {
		name  string
		story func(w *world)
		phase paper.Phase
		move  paper.Party
		why   string
	}{
		{"requested", func(*world) {}, paper.Requested, paper.Host, "accepts or declines"},
		{"withdrawn", func(w *world) { w.ok(w.guest(func(r *paper.Request) { r.Withdrawn = w.says("B", "too slow") })) },
			paper.Declined, paper.Nobody, "withdrew the request (too slow)"},
		{"expired", func(w *world) { w.now = w.now.Add(20 * day) }, paper.Expired, paper.Nobody, "did not answer"},
		{"declined", func(w *world) {
			w.ok(w.put("A", paper.Paper{Answer: &paper.Answer{ID: agreed, Guest: "B", Host: "A", Declined: w.says("A", "full")}}))
		}, paper.Declined, paper.Nobody, "declined (full)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := asked(t)
			tt.story(w)
			w.phase(tt.phase, tt.move)
			w.may(false, false, false, false)
			if l := w.life(); !strings.Contains(l.Why, tt.why) {
				t.Errorf("%s", l.Why)
			}
		})
	}
	for _, tt := range []struct {
		name                          string
		story                         func(w *world)
		phase                         paper.Phase
		move, breach                  paper.Party
		writes, reads, erases, places bool
	}{
		{"the term's end is near", func(w *world) { w.now = w.now.Add(90 * day) }, paper.Ending, paper.Guest, "", true, true, false, false},
		{"the term is over", func(w *world) { w.now = w.now.Add(100 * day) }, paper.Ending, paper.Guest, "", false, true, false, false},
		{"not drained", func(w *world) { w.now = w.now.Add(102 * day) }, paper.Breached, paper.Host, paper.Guest, false, true, true, false},
		{"the guest's notice", func(w *world) { w.ok(w.guest(func(r *paper.Request) { r.Noticed = w.says("B", "") })) },
			paper.Ending, paper.Guest, "", true, true, false, false},
		{"not paid", func(w *world) { w.ok(w.host(func(a *paper.Answer) { a.Unpaid = w.says("A", "invoice 7") })) },
			paper.Breached, paper.Guest, paper.Guest, true, true, false, false},
		{"not paid, and not drained", func(w *world) {
			w.ok(w.host(func(a *paper.Answer) { a.Unpaid = w.says("A", "invoice 7") }))
			w.now = w.now.Add(12 * day)
		}, paper.Breached, paper.Host, paper.Guest, false, true, true, false},
		{"the host is gone", func(w *world) { w.ok(w.guest(func(r *paper.Request) { r.HostGone = w.says("B", "no answer") })) },
			paper.Breached, paper.Host, paper.Host, true, true, true, false},
		{"deleted, and never confirmed", func(w *world) {
			w.ok(w.guest(func(r *paper.Request) { r.Drained = w.says("B", "") }))
			w.ok(w.host(func(a *paper.Answer) { a.Deleting = w.says("A", "") }))
			w.ok(w.host(func(a *paper.Answer) { a.Deleted = &paper.Deletion{Moment: *w.says("A", "")} }))
			w.now = w.now.Add(paper.Unconfirmed)
		}, paper.Ended, paper.Nobody, "", false, false, true, false},
		{"deleted in time that was over", func(w *world) {
			w.now = w.now.Add(102 * day)
			w.ok(w.host(func(a *paper.Answer) { a.Deleting = w.says("A", "") }))
		}, paper.Drained, paper.Host, "", false, false, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := active(t)
			tt.story(w)
			w.phase(tt.phase, tt.move)
			w.may(tt.writes, tt.reads, tt.erases, tt.places)
			if l := w.life(); l.Breach != tt.breach {
				t.Errorf("breach by %q", l.Breach)
			}
		})
	}
}

// TestAttacks: what one side cannot do to the other, and neither to itself.
func TestAttacks(t *testing.T) {
	usage := func(w *world, by, organization string, c paper.Counters) paper.Paper {
		return paper.Paper{Usage: &paper.Usage{ID: agreed, Guest: "B", Host: "A", By: by, Organization: organization, At: w.now,
			Of: map[string]paper.Counters{"b-0": c}}}
	}
	for _, tt := range []struct {
		name   string
		attack func(w *world) error
		why    string
	}{
		{"more room", func(w *world) error { return w.guest(func(r *paper.Request) { r.Amount++ }) }, "its terms do not change"},
		{"longer", func(w *world) error { return w.guest(func(r *paper.Request) { r.Until = r.Until.Add(day) }) },
			"its terms do not change"},
		{"a shorter notice", func(w *world) error { return w.guest(func(r *paper.Request) { r.Notice = 0 }) }, "its terms do not change"},
		{"accept twice", func(w *world) error {
			o, a := w.accepts(agreed)
			return w.put("A", paper.Paper{Offer: &o}, paper.Paper{Answer: &a})
		}, "what was said once"},
		{"not accepted after all", func(w *world) error {
			return w.host(func(a *paper.Answer) { *a = paper.Answer{ID: a.ID, Guest: "B", Host: "A", Declined: w.says("A", "")} })
		}, "what was said once"},
		{"other terms after all", func(w *world) error {
			return w.host(func(a *paper.Answer) { a.Accepted.Terms = strings.Repeat("0", 64) })
		}, "what was said once"},
		{"the room is gone", func(w *world) error { return w.host(func(a *paper.Answer) { a.Ready = nil }) }, "what was said once"},
		{"notice in the past", func(w *world) error {
			return w.host(func(a *paper.Answer) { a.Noticed = &paper.Moment{At: w.now.Add(-9 * day), By: by("A")} })
		}, "set the clock"},
		{"notice by somebody else", func(w *world) error { return w.host(func(a *paper.Answer) { a.Noticed = w.says("B", "") }) },
			"is said by"},
		{"delete what is in use", func(w *world) error { return w.host(func(a *paper.Answer) { a.Deleting = w.says("A", "") }) },
			"the guest may have something there"},
		{"deleted without saying", func(w *world) error {
			return w.host(func(a *paper.Answer) { a.Deleted = &paper.Deletion{Moment: *w.says("A", "")} })
		}, "say first that you delete"},
		{"deleted at once, long ago", func(w *world) error {
			w.ok(w.guest(func(r *paper.Request) { r.Drained = w.says("B", "") }))
			return w.host(func(a *paper.Answer) {
				a.Deleting = w.says("A", "")
				a.Deleted = &paper.Deletion{Moment: paper.Moment{At: w.now.Add(-900 * day), By: by("B")}}
			})
		}, "say first that you delete"},
		{"deleted long ago", func(w *world) error {
			w.ok(w.guest(func(r *paper.Request) { r.Drained = w.says("B", "") }))
			w.ok(w.host(func(a *paper.Answer) { a.Deleting = w.says("A", "") }))
			return w.host(func(a *paper.Answer) {
				a.Deleted = &paper.Deletion{Moment: paper.Moment{At: w.now.Add(-900 * day), By: by("A")}}
			})
		}, "and the deletion began at"},
		{"a receipt for nothing", func(w *world) error { return w.guest(func(r *paper.Request) { r.Confirmed = w.says("B", "") }) },
			"nothing to confirm"},
		{"the offer forgets", func(w *world) error {
			o := *w.is("offer/A/disks").Offer
			o.Given = nil
			return w.put("A", paper.Paper{Offer: &o})
		}, "is not over"},
		{"the offer takes less", func(w *world) error {
			o := *w.is("offer/A/disks").Offer
			o.Given[agreed] = 1
			return w.put("A", paper.Paper{Offer: &o})
		}, "and that stays"},
		{"offered less than went", func(w *world) error {
			o := *w.is("offer/A/disks").Offer
			o.Amount = 3 * tib
			return w.put("A", paper.Paper{Offer: &o})
		}, "offer as much at least"},
		{"given to nobody", func(w *world) error {
			o := *w.is("offer/A/disks").Offer
			o.Given[other] = 1
			return w.put("A", paper.Paper{Offer: &o})
		}, "without being accepted with it"},
		{"delete the offer", func(w *world) error { return w.remove("A", "offer/A/disks") }, "agreements took from the offer"},
		{"delete the request", func(w *world) error { return w.remove("B", paper.RequestName(agreed)) }, "is not over"},
		{"delete the answer", func(w *world) error { return w.remove("A", paper.AnswerName(agreed)) }, "is not over"},
		{"withdraw what is agreed", func(w *world) error { return w.guest(func(r *paper.Request) { r.Withdrawn = w.says("B", "") }) },
			"it was answered"},
		{"room for more than was agreed", func(w *world) error {
			return w.put("B", paper.Paper{Room: &paper.Room{ID: agreed, Guest: "B", Host: "A", Gateway: "b-0", Bytes: 4*tib + 1}})
		}, "are more than"},
		{"room of another agreement", func(w *world) error {
			return w.put("B", paper.Paper{Room: &paper.Room{ID: other, Guest: "B", Host: "A", Gateway: "b-0", Bytes: 1}})
		}, "there is no such agreement"},
		{"the host counts more than there can be", func(w *world) error {
			w.now = w.now.Add(time.Hour)
			return w.put("A", usage(w, "ams", "A", paper.Counters{ByteHours: float64(4*tib) * 1.1}))
		}, "are more than"},
		{"the guest stores more than was agreed", func(w *world) error {
			return w.put("B", usage(w, "b-0", "B", paper.Counters{Stored: 4*tib + 1}))
		}, "were agreed on"},
		{"counters go back", func(w *world) error {
			w.ok(w.put("A", usage(w, "ams", "A", paper.Counters{Gets: 5})))
			return w.put("A", usage(w, "ams", "A", paper.Counters{Gets: 4}))
		}, "went back"},
		{"counters of the future", func(w *world) error {
			p := usage(w, "ams", "A", paper.Counters{})
			p.Usage.At = w.now.Add(2 * time.Hour)
			return w.put("A", p)
		}, "set the clock"},
		{"erased what was not to be", func(w *world) error {
			p := usage(w, "ams", "A", paper.Counters{})
			p.Usage.Erased = &paper.Deletion{Moment: *w.says("A", "")}
			return w.put("A", p)
		}, "did not say that it deletes"},
		{"a request without an offer", func(w *world) error {
			r := w.request(other)
			r.Offer = "tapes"
			return w.put("B", paper.Paper{Request: &r})
		}, "has no offer tapes"},
		{"a request with another price", func(w *world) error {
			r := w.request(other)
			r.Price = "they pay us"
			return w.put("B", paper.Paper{Request: &r})
		}, "the offer says"},
		{"twice what is there", func(w *world) error {
			r := w.request(other)
			r.Amount = 7 * tib
			w.ok(w.put("B", paper.Paper{Request: &r}))
			o, a := w.accepts(other)
			return w.put("A", paper.Paper{Offer: &o}, paper.Paper{Answer: &a})
		}, "offer as much at least"},
		{"accepted without taking", func(w *world) error {
			r := w.request(other)
			w.ok(w.put("B", paper.Paper{Request: &r}))
			_, a := w.accepts(other)
			return w.put("A", paper.Paper{Answer: &a})
		}, "is written into offer disks with it"},
		{"accepted too late", func(w *world) error {
			r := w.request(other)
			w.ok(w.put("B", paper.Paper{Request: &r}))
			w.now = w.now.Add(20 * day)
			o, a := w.accepts(other)
			return w.put("A", paper.Paper{Offer: &o}, paper.Paper{Answer: &a})
		}, "the guest waited until"},
		{"another says that the host is gone", func(w *world) error {
			r := *w.is(paper.RequestName(agreed)).Request
			r.HostGone = w.says("A", "")
			return w.put("B", paper.Paper{Request: &r})
		}, "hostGone is said by"},
		{"another says that it was not paid", func(w *world) error {
			a := *w.is(paper.AnswerName(agreed)).Answer
			a.Unpaid = w.says("B", "")
			return w.put("A", paper.Paper{Answer: &a})
		}, "unpaid is said by"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := active(t)
			w.denied(tt.attack(w), tt.why)
		})
	}
}

// TestNotBelieved: what no gatekeeper takes, and somebody wrote past them, says who did not keep
// the agreement.
func TestNotBelieved(t *testing.T) {
	w := active(t)
	r, a := w.is(paper.RequestName(agreed)).Request, w.is(paper.AnswerName(agreed)).Answer
	a.Deleting = w.says("A", "")
	if l := r.Life(a, w.now); l.Phase != paper.Breached || l.Breach != paper.Host || l.Writes(w.now) {
		t.Errorf("deleted before the time: %+v", l)
	}
	a.Deleting = nil
	r.Withdrawn = &paper.Moment{At: a.Accepted.At.Add(-time.Hour), By: by("B")}
	if l := r.Life(a, w.now); l.Phase != paper.Declined {
		t.Errorf("accepted after it was withdrawn: %+v", l)
	}
	r.Withdrawn = nil
	a.Accepted.At = r.AnswerBy
	if l := r.Life(a, w.now); l.Phase != paper.Expired {
		t.Errorf("accepted too late: %+v", l)
	}
}

// TestOtherTerms: an answer to other words than those of the request agrees to nothing, whoever
// wrote it past a gatekeeper.
func TestOtherTerms(t *testing.T) {
	w := active(t)
	for _, change := range []func(*paper.Request){
		func(r *paper.Request) { r.Amount++ }, func(r *paper.Request) { r.Until = r.Until.Add(1) },
		func(r *paper.Request) { r.Price = "" }, func(r *paper.Request) { r.Guest = "C" }, func(r *paper.Request) { r.ID = other },
	} {
		r := *w.is(paper.RequestName(agreed)).Request
		change(&r)
		l := r.Life(w.is(paper.AnswerName(agreed)).Answer, w.now)
		if l.Phase != paper.Requested || l.Writes(w.now) || l.Reads() || l.Erases(w.now) {
			t.Errorf("%+v", l)
		}
	}
}

func TestMuch(t *testing.T) {
	for _, x := range []struct {
		amount, said, is quantity.Bytes
		want             bool
	}{
		{6400, 0, 0, false}, {6400, 0, 1, true}, {6400, 1, 0, true}, {6400, 40, 50, false}, {6400, 40, 51, true}, {6400, 40, 29, true},
		{6400, 4000, 4100, false}, {6400, 4000, 4101, true}, {6400, 4000, 3899, true},
	} {
		if got := paper.Much(x.amount, x.said, x.is); got != x.want {
			t.Errorf("of %d, %d was said and %d is there: %v", x.amount, x.said, x.is, got)
		}
	}
}
