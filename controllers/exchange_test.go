// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// papers are the objects of a kind that papers in the registry are about.
func (c *cluster) papers(kind string) (names []string) {
	for _, p := range c.op.mirror.Papers("") {
		switch {
		case p.Offer != nil && kind == "StorageOffer":
			names = append(names, p.Offer.Site+"."+p.Offer.Name)
		case p.Request != nil && kind != "StorageOffer":
			names = append(names, p.Request.ID)
		}
	}
	return names
}

// PutPapers implements paper.Book.
func (c *counted) PutPapers(ctx context.Context, all ...paper.At) error {
	err := c.Client.PutPapers(ctx, all...)
	if !errors.Is(err, federation.ErrInvalid) { // then nothing was sent
		c.note("put " + all[0].Name())
	}
	return err
}

// DeletePaper implements paper.Book.
func (c *counted) DeletePaper(ctx context.Context, name string, prev int64) error {
	c.note("delete " + name)
	return c.Client.DeletePaper(ctx, name, prev)
}

const anID = "0a6b4c1e-7a0b-4a42-9a2e-0000000000aa"

// lenders are a host's cluster ams, and a guest's gro.
func lenders(t *testing.T) (f *fed, host, guest *cluster) {
	f = newFed(t)
	f.of = map[string]string{"ams": "SURF", "gro": "RUG", "utr": "UU"}
	for _, s := range []string{"ams", "gro", "utr"} {
		f.site(s, f.of[s])
	}
	host, guest = f.cluster("ams"), f.cluster("gro")
	return f, host, guest
}

func anOffer(name string, change ...func(*v1alpha1.StorageOfferSpec)) *v1alpha1.StorageOffer {
	o := &v1alpha1.StorageOffer{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.StorageOfferSpec{
		Kind: v1alpha1.RoomStore, Amount: resource.MustParse("100Ti"), Price: "free", Notice: metav1.Duration{Duration: 720 * time.Hour},
		Grace: metav1.Duration{Duration: 168 * time.Hour}}}
	for _, f := range change {
		f(&o.Spec)
	}
	return o
}

func (f *fed) aRequest(id, offer, amount string) *v1alpha1.StorageRequest {
	return &v1alpha1.StorageRequest{ObjectMeta: metav1.ObjectMeta{Name: "r-" + id[34:], UID: types.UID(id)},
		Spec: v1alpha1.StorageRequestSpec{Offer: offer, Amount: resource.MustParse(amount),
			Until: metav1.Time{Time: f.clock().Add(365 * 24 * time.Hour)}, Purpose: "climate runs"}}
}

func agreementOf(c *cluster, id string) *v1alpha1.StorageAgreement {
	c.t.Helper()
	a := &v1alpha1.StorageAgreement{ObjectMeta: metav1.ObjectMeta{Name: id}}
	c.get(a)
	return a
}

// wantPhase checks an agreement at both sides: its phase, and whose move it is.
func wantPhase(id string, phase paper.Phase, move v1alpha1.AgreementParty, all ...*cluster) {
	for _, c := range all {
		c.t.Helper()
		a := agreementOf(c, id)
		if paper.Phase(a.Status.Phase) != phase || a.Status.Move != move {
			c.t.Errorf("%s: agreement is %s and %q moves, want %s and %q: %+v", c.name, a.Status.Phase, a.Status.Move, phase, move,
				object.Ready(a.Status.Conditions))
		}
		if mine := meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionMoveNeeded); mine != (move != "" &&
			move == a.Status.Role) {
			c.t.Errorf("%s: it is %s's move, and MoveNeeded is %v of %s", c.name, move, mine, a.Status.Role)
		}
	}
}

// count is what one side counted of an agreement.
func (f *fed) count(id string, at time.Duration, stored quantity.Bytes, by string, side string) {
	f.t.Helper()
	u := paper.Usage{ID: id, Guest: "RUG", Host: "SURF", By: by, Organization: side, At: f.clock().Add(at),
		Of: map[string]paper.Counters{"gro-1": {Puts: 1, In: stored, Stored: stored, ByteHours: float64(stored)}}}
	p := paper.At{Paper: paper.Paper{Usage: &u}}
	if is, err := f.reg.GetPaper(f.t.Context(), p.Name()); err == nil {
		p.Revision = is.Revision
	}
	f.ok(f.reg.PutPapers(f.t.Context(), p))
}

// TestLending follows an agreement through its objects at both sides: who may say what, what
// follows by itself, and that nothing is written when nothing was said.
func TestLending(t *testing.T) {
	f, host, guest := lenders(t)
	offer := anOffer("disks")
	host.create(offer)
	settleAll(host, guest)
	seen := &v1alpha1.StorageOffer{ObjectMeta: metav1.ObjectMeta{Name: "ams.disks"}}
	if host.has(seen) {
		t.Error("the host's own offer is shown twice")
	}
	guest.get(seen)
	if s := seen.Status; s.Host != "SURF" || s.Site != "ams" || !s.ForUs || s.Free.String() != "100Ti" || seen.Spec.Price != "free" {
		t.Errorf("the guest sees %+v of %+v", s, seen.Spec)
	}

	guest.create(f.aRequest(anID, "ams.disks", "10Ti"))
	settleAll(host, guest)
	wantPhase(anID, paper.Requested, v1alpha1.AgreementHost, host, guest)
	edit(guest, agreementOf(guest, anID), func(a *v1alpha1.StorageAgreement) { a.Spec.Decision = v1alpha1.DecisionAccept })
	settleAll(host, guest)
	wantPhase(anID, paper.Requested, v1alpha1.AgreementHost, host, guest)
	if r := object.Ready(agreementOf(guest, anID).Status.Conditions); r.Reason != v1alpha1.ReasonRefused ||
		!strings.Contains(r.Message, `spec.decision: "SURF" accepts or declines`) {
		t.Errorf("the guest accepted: %+v", r)
	}
	edit(host, agreementOf(host, anID), func(a *v1alpha1.StorageAgreement) { a.Spec.Decision = v1alpha1.DecisionAccept })
	settleAll(host, guest)
	wantPhase(anID, paper.Active, "", host, guest)
	a := agreementOf(guest,
		anID)
	if a.Status.Endpoint != "https://store.ams:7005" || len(a.Status.Papers) != 2 || a.Status.Papers[0].Value == "" ||
		len(a.Status.Said) != 2 {
		t.Errorf("the agreement is shown as %+v", a.Status)
	}
	if r := a.Status.Rooms; len(r) != 1 || r[0].Gateway != "gro-1" || r[0].Amount.String() != "640Gi" {
		t.Errorf("the guest's gateway has room %v, want a slice", r)
	}
	host.get(offer)
	if s := offer.Status; s.Free.String() != "90Ti" || s.Agreements != 1 {
		t.Errorf("the offer is %+v", s)
	}

	// It fills what it has, and gets more.
	f.advance(time.Hour)
	f.count(anID, 0, 600<<30, "gro-1", "RUG")
	f.count(anID, 0, 600<<30, "ams", "SURF")
	settleAll(host, guest)
	if r := agreementOf(guest, anID).Status.Rooms; r[0].Amount.String() != "1240Gi" {
		t.Errorf("the guest's gateway has room %v, want a slice more than it uses", r)
	}
	usage := &v1alpha1.StorageUsage{ObjectMeta: metav1.ObjectMeta{Name: anID}}
	for _, c := range []*cluster{host, guest} {
		c.get(usage)
		if s := usage.Status; s.ByHost.Stored != 600<<30 || s.ByGuest.GibibyteHours != "600.000" || len(s.History) != 1 || s.Differs != "" {
			t.Errorf("%s: usage is %+v", c.name, s)
		}
	}
	f.advance(time.Hour)
	f.count(anID, 0, 700<<30, "ams", "SURF")
	settleAll(host, guest)
	guest.get(usage)
	if s := usage.Status; len(s.History) != 2 || meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionCountsAgree) {
		t.Errorf("counts differ, and usage is %+v", s)
	}

	// The end: notice, drained, deleted, confirmed.
	edit(host, agreementOf(host, anID), func(a *v1alpha1.StorageAgreement) {
		a.Spec.Notice = &v1alpha1.Statement{Why: "the disks are old"}
	})
	settleAll(host, guest)
	wantPhase(anID, paper.Ending, v1alpha1.AgreementGuest, host, guest)
	edit(host, agreementOf(host, anID), func(a *v1alpha1.StorageAgreement) { a.Spec.Delete = &v1alpha1.Statement{} })
	settleAll(host, guest)
	wantPhase(anID, paper.Ending, v1alpha1.AgreementGuest, host, guest)
	if r := object.Ready(agreementOf(host, anID).Status.Conditions); r.Reason != v1alpha1.ReasonRefused ||
		!strings.Contains(r.Message, "spec.delete: not possible: agreement "+anID+": the guest may have something there") {
		t.Errorf("the host deletes early: %+v",
			r)
	}
	edit(guest, agreementOf(guest, anID),
		func(a *v1alpha1.StorageAgreement) { a.Spec.Drained = &v1alpha1.Statement{Why: "all is at home"} })
	settleAll(host, guest)
	wantPhase(anID, paper.Drained, v1alpha1.AgreementHost, host, guest)
	p, err := f.reg.GetPaper(t.Context(), paper.UsageName(anID, paper.Host, "ams"))
	f.ok(err)
	p.Usage.Of, p.Usage.At = nil, f.clock()
	p.Usage.Erased = &paper.Deletion{Moment: paper.Moment{At: f.clock(), By: "store"}, Objects: 3, Bytes: 700 << 30}
	f.ok(f.reg.PutPapers(t.Context(), p))
	settleAll(host, guest)
	wantPhase(anID, paper.Ended, "", host, guest)
	var said []string
	for _, s := range agreementOf(guest, anID).Status.Said {
		said = append(said, s.What)
	}
	for _, want := range []string{"notice by the host", "drained", "the host deletes", "deleted, 3 objects of 700Gi", "confirmed"} {
		if !slices.Contains(said, want) {
			t.Errorf("the story is %q, without %q", said, want)
		}
	}
	host.get(offer)
	if s := offer.Status; s.Free.String() != "100Ti" || s.Agreements != 0 {
		t.Errorf("the offer is %+v", s)
	}

	// Both keep it for a year, and delete what they said then.
	f.advance(paper.KeptEnded - time.Hour)
	settleAll(host, guest)
	wantPhase(anID, paper.Ended, "", host, guest)
	f.advance(3 * time.Hour)
	settleAll(host, guest)
	for _, form := range []paper.Form{paper.FormRequest, paper.FormAnswer, paper.FormRoom, paper.FormUsage} {
		left, err := f.reg.ListPapers(t.Context(), string(form)+"/"+anID)
		if f.ok(err); len(left) > 0 {
			t.Errorf("%d papers are left of form %s", len(left), form)
		}
	}
	for _, c := range []*cluster{host, guest} {
		if c.has(&v1alpha1.StorageAgreement{ObjectMeta: metav1.ObjectMeta{Name: anID}}) ||
			c.has(&v1alpha1.StorageUsage{ObjectMeta: metav1.ObjectMeta{Name: anID}}) {
			t.Errorf("%s: it is shown still", c.name)
		}
	}
}

// TestLendingByItself: an offer accepts by itself as far as it says; the rest waits for a person,
// and a request that is deleted is withdrawn.
func TestLendingByItself(t *testing.T) {
	f, host, guest := lenders(t)
	third := f.cluster("utr")
	host.create(anOffer("disks", func(s *v1alpha1.StorageOfferSpec) { s.Automatic = new(resource.MustParse("5Ti")) }))
	settleAll(host, guest, third)
	other := strings.Replace(anID, "aa", "bb", 1)
	guest.create(f.aRequest(anID, "ams.disks", "4Ti"))
	settleAll(host, guest, third)
	more := f.aRequest(other, "ams.disks", "2Ti")
	guest.create(more)
	settleAll(host, guest, third)
	wantPhase(anID, paper.Active, "", host, guest)
	wantPhase(other, paper.Requested, v1alpha1.AgreementHost, host, guest)
	if third.has(&v1alpha1.StorageAgreement{ObjectMeta: metav1.ObjectMeta{Name: anID}}) {
		t.Error("an agreement of others is shown")
	}
	edit(host, anOffer("disks"), func(o *v1alpha1.StorageOffer) { o.Spec.Automatic = new(resource.MustParse("6Ti")) })
	settleAll(host, guest, third)
	wantPhase(other, paper.Active, "", host, guest)

	last := strings.Replace(anID, "aa", "cc", 1)
	withdrawn := f.aRequest(last, "ams.disks", "2Ti")
	guest.create(withdrawn)
	settleAll(host, guest)
	guest.delete(withdrawn)
	guest.delete(more)
	settleAll(host, guest)
	wantPhase(last, paper.Declined, "", host, guest)
	wantPhase(other, paper.Active, "", host, guest)
	if guest.has(withdrawn) || guest.has(more) {
		t.Error("requests that were deleted are there")
	}
	f.advance(400 * 24 * time.Hour)
	settleAll(host, guest)
	wantPhase(anID, paper.Breached, v1alpha1.AgreementHost, host, guest)

	// An answer that the registry lost makes no agreement expired: nothing is deleted.
	answer, err := f.reg.GetPaper(t.Context(), paper.AnswerName(anID))
	f.ok(err)
	f.ok(f.reg.DeletePaper(t.Context(), paper.AnswerName(anID), answer.Revision))
	settleAll(host, guest)
	if r := object.Ready(agreementOf(guest, anID).Status.Conditions); r.Reason != v1alpha1.ReasonNotFound ||
		!strings.Contains(r.Message, "the registry has no answer of that ID any more") {
		t.Errorf("the answer that was lost: %+v", r)
	}
	if _, err := f.reg.GetPaper(t.Context(), paper.RequestName(anID)); err != nil {
		t.Errorf("the request went too: %v", err)
	}
	answer.Revision = 0
	f.ok(f.reg.PutPapers(t.Context(), answer))
	settleAll(host, guest)
	wantPhase(anID, paper.Breached, v1alpha1.AgreementHost, host, guest)

	// What the registry lost is not asked for anew, perhaps by other terms.
	for _, name := range []string{paper.AnswerName(anID), paper.RequestName(anID)} {
		p, err := f.reg.GetPaper(t.Context(), name)
		f.ok(err)
		f.ok(f.reg.DeletePaper(t.Context(), name, p.Revision))
	}
	settleAll(host, guest)
	first := f.aRequest(anID, "ams.disks", "4Ti")
	guest.get(first)
	if r := object.Ready(first.Status.Conditions); r.Reason != v1alpha1.ReasonNotFound || !strings.Contains(r.Message, "status.papers") {
		t.Errorf("the request that was lost: %+v", r)
	}
	if _, err := f.reg.GetPaper(t.Context(), paper.RequestName(anID)); !errors.Is(err, federation.ErrNotFound) {
		t.Errorf("it was asked anew: %v", err)
	}
}

// TestAnOfferIsDeleted: it goes at once if nothing was given of it; else it is closed, and shown
// until its agreements are over.
func TestAnOfferIsDeleted(t *testing.T) {
	f, host, guest := lenders(t)
	o := anOffer("disks", func(s *v1alpha1.StorageOfferSpec) { s.Automatic = new(resource.MustParse("5Ti")) })
	empty := anOffer("empty")
	host.create(o)
	host.create(empty)
	settleAll(host, guest)
	guest.create(f.aRequest(anID, "ams.disks", "4Ti"))
	settleAll(host, guest)
	host.delete(o)
	host.delete(empty)
	settleAll(host, guest)
	shown := &v1alpha1.StorageOffer{ObjectMeta: metav1.ObjectMeta{Name: "ams.disks"}}
	for _, c := range []*cluster{host, guest} {
		c.get(shown)
		if !shown.Spec.Closed || object.Ready(shown.Status.Conditions).Reason != v1alpha1.ReasonClosed {
			t.Errorf("%s: the offer that was deleted is %+v", c.name, shown)
		}
		if c.has(&v1alpha1.StorageOffer{ObjectMeta: metav1.ObjectMeta{Name: "ams.empty"}}) {
			t.Errorf("%s: the offer of which nothing was given is there", c.name)
		}
	}
	if host.has(o) || host.has(empty) {
		t.Error("objects that were deleted are there")
	}
	wantPhase(anID, paper.Active, "", host, guest)
	edit(guest, agreementOf(guest, anID), func(a *v1alpha1.StorageAgreement) { a.Spec.Drained = &v1alpha1.Statement{} })
	settleAll(host, guest)
	f.ok(f.reg.PutPapers(t.Context(), paper.At{Paper: paper.Paper{Usage: &paper.Usage{ID: anID, Guest: "RUG", Host: "SURF", By: "ams",
		Organization: "SURF", At: f.clock(), Erased: &paper.Deletion{Moment: paper.Moment{At: f.clock(), By: "store"}}}}}))
	settleAll(host, guest)
	for _, c := range []*cluster{host, guest} {
		if c.has(shown) {
			t.Errorf("%s: the offer is there, and its last agreement is over", c.name)
		}
	}
}

// TestBadPapers: what is not possible is said with what to do.
func TestBadPapers(t *testing.T) {
	f, host, guest := lenders(t)
	f.of["ens"] = "SURF"
	f.site("ens", "SURF")
	sister := f.cluster("ens")
	host.create(anOffer("disks", func(s *v1alpha1.StorageOfferSpec) { s.To = []v1alpha1.OrganizationName{"UU"} }))
	host.create(anOffer("tapes", func(s *v1alpha1.StorageOfferSpec) { s.Least = new(resource.MustParse("1Ti")) }))
	settleAll(host, guest, sister)
	id := func(n string) string { return strings.Replace(anID, "aa", n, 1) }
	for n, c := range map[string]struct {
		offer, amount string
		change        func(*v1alpha1.StorageRequestSpec)
		reason, want  string
	}{
		"00": {"ams.nothing", "1Ti", nil, v1alpha1.ReasonNotFound, `spec.offer: there is no offer "ams.nothing": ` + "`kubectl get"},
		"01": {"ams.disks", "1Ti", nil, v1alpha1.ReasonRefused, `guest is "RUG": the offer is for ["UU"]: ask its host to name you`},
		"02": {"ams.tapes", "1Gi", nil, v1alpha1.ReasonRefused, "amount is 1Gi: the offer's least is 1Ti: ask for as much"},
		"03": {"ams.tapes", "101Ti", nil, v1alpha1.ReasonRefused, "amount is 101Ti: the offer has 100Ti in all: ask for less"},
		"04": {"ams.tapes", "1Ti", func(s *v1alpha1.StorageRequestSpec) { s.Price = new("10 EUR") }, v1alpha1.ReasonRefused,
			`offer tapes of "SURF" costs "free" by now, and not "10 EUR": read it again`},
		"05": {"ams.tapes", "1Ti", func(s *v1alpha1.StorageRequestSpec) { s.AnswerBy = &metav1.Time{Time: s.Until.Add(time.Hour)} },
			v1alpha1.ReasonRefused, "not later than until"},
	} {
		r := f.aRequest(id(n), c.offer, c.amount)
		if c.change != nil {
			c.change(&r.Spec)
		}
		guest.create(r)
		settleAll(host, guest)
		guest.get(r)
		if is := object.Ready(r.Status.Conditions); is.Reason != c.reason || !strings.Contains(is.Message, c.want) {
			t.Errorf("%s: %+v, want %s with %s", n, is, c.reason, c.want)
		}
		guest.delete(r)
		settleAll(host, guest)
		if guest.has(r) {
			t.Errorf("%s: the request is there", n)
		}
	}
	dotted := anOffer("ams.mine")
	guest.create(dotted)
	settleAll(host, guest)
	guest.get(dotted)
	if is := object.Ready(dotted.Status.Conditions); is.Reason != v1alpha1.ReasonInvalid || !strings.Contains(is.Message, "without a dot") {
		t.Errorf("an offer with a dot in its name: %+v", is)
	}
	guest.delete(dotted)
	taken := anOffer("disks")
	sister.create(taken)
	settleAll(host, guest, sister)
	sister.get(taken)
	if is := object.Ready(taken.Status.Conditions); is.Reason != v1alpha1.ReasonNameTaken ||
		!strings.Contains(is.Message, `site ams of "SURF" makes an offer of that name: delete this one, and make it under another name`) {
		t.Errorf("another site's offer was taken: %+v", is)
	}
	sister.delete(taken)
	settleAll(host, guest, sister)
	if sister.has(taken) || !guest.has(&v1alpha1.StorageOffer{ObjectMeta: metav1.ObjectMeta{Name: "ams.disks"}}) {
		t.Error("deleting an offer that was refused is not what it was")
	}
}

// TestOfferFields: what an offer says is in its paper, and is shown elsewhere.
func TestOfferFields(t *testing.T) {
	f, host, guest := lenders(t)
	from, until := f.clock().Add(24*time.Hour), f.clock().Add(1000*time.Hour)
	host.create(anOffer("disks", func(s *v1alpha1.StorageOfferSpec) {
		s.Media, s.Class, s.Terms, s.Closed = "HDD", "Archive", "for research", true
		s.From, s.Until = &metav1.Time{Time: from}, &metav1.Time{Time: until}
	}))
	settleAll(host, guest)
	p, err := f.reg.GetPaper(t.Context(), paper.OfferName("SURF", "disks"))
	f.ok(err)
	if o := p.Offer; o.Media != "HDD" || o.Class != paper.ClassArchive || o.Terms != "for research" || !o.Closed || !o.From.Equal(from) ||
		!o.Until.Equal(until) {
		t.Errorf("the paper says %+v", o)
	}
	seen := &v1alpha1.StorageOffer{ObjectMeta: metav1.ObjectMeta{Name: "ams.disks"}}
	guest.get(seen)
	if s := seen.Spec; s.Media != "HDD" || s.Class != "Archive" || s.Terms != "for research" || !s.Closed || !s.From.Time.Equal(from) ||
		!s.Until.Time.Equal(until) {
		t.Errorf("the guest sees %+v", s)
	}
}
