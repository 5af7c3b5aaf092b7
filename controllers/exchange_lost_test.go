// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/lending"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

// active has an agreement of 4Ti that is active.
func active(t *testing.T) (f *fed, host, guest *cluster) {
	f, host, guest = lenders(t)
	host.create(anOffer("disks", func(s *v1alpha1.StorageOfferSpec) { s.Automatic = new(resource.MustParse("5Ti")) }))
	settleAll(host, guest)
	guest.create(f.aRequest(anID, "ams.disks", "4Ti"))
	settleAll(host, guest)
	wantPhase(anID, paper.Active, "", host, guest)
	return f, host, guest
}

// loses has the registry lose a paper, and returns it.
func (f *fed) loses(name string) paper.At {
	f.t.Helper()
	p, err := f.reg.GetPaper(f.t.Context(), name)
	f.ok(err)
	f.ok(f.reg.DeletePaper(f.t.Context(), name, p.Revision))
	p.Revision = 0
	return p
}

func wantReady(c *cluster, text string) {
	c.t.Helper()
	r := object.Ready(agreementOf(c, anID).Status.Conditions)
	if r.Reason != v1alpha1.ReasonNotFound || !strings.Contains(r.Message, text) {
		c.t.Errorf("%s: want … %s …, got %+v", c.name, text, r)
	}
}

// TestALostRequest: the guest's operator puts back what the registry lost, as far as nothing was
// said since; and nobody else does.
func TestALostRequest(t *testing.T) {
	f, host, guest := active(t)
	was := f.loses(paper.RequestName(anID))
	settleAll(host)
	wantReady(host, `its guest "RUG" puts its request back`)
	settleAll(host, guest)
	is, err := f.reg.GetPaper(t.Context(), paper.RequestName(anID))
	if f.ok(err); paper.Follows(is.Paper, was.Paper) != nil || paper.Follows(was.Paper, is.Paper) != nil {
		t.Errorf("it was %+v, and is %+v", was.Request, is.Request)
	}
	wantPhase(anID, paper.Active, "", host, guest)

	// What is signed by nobody who may is not put back.
	signs := func(f func(string, []byte) error) {
		guest.op.Signed = f
		guest.recs["StorageAgreement"] = lending.New(&guest.op.Writer, guest.op.lending())["StorageAgreement"]
	}
	signs(func(string, []byte) error { return errors.New("forged") })
	f.loses(paper.RequestName(anID))
	settleAll(host, guest)
	wantReady(guest, "status.papers has no request that counts")
	signs(nil)
	settleAll(host, guest)
	wantPhase(anID, paper.Active, "", host, guest)

	// A notice that was given is not taken back by an earlier request, and not given again.
	edit(guest, agreementOf(guest, anID), func(a *v1alpha1.StorageAgreement) { a.Spec.Notice = &v1alpha1.Statement{Why: "we move"} })
	settleAll(host, guest)
	wantPhase(anID, paper.Ending, v1alpha1.AgreementGuest, host, guest)
	last := f.loses(paper.RequestName(anID))
	settleAll(host, guest)
	wantReady(guest, "the request said more than its terms")
	wantReady(host, `its guest "RUG" puts its request back`)
	if _, err := f.reg.GetPaper(t.Context(), last.Name()); !errors.Is(err, federation.ErrNotFound) {
		t.Errorf("it was put back: %v", err)
	}
}

// TestAnEarlierPaper: a registry that went back takes nothing from what a side holds in its hand.
func TestAnEarlierPaper(t *testing.T) {
	f, host, guest := active(t)
	before, err := f.reg.GetPaper(t.Context(), paper.AnswerName(anID))
	f.ok(err)
	edit(host, agreementOf(host, anID), func(a *v1alpha1.StorageAgreement) { a.Spec.Notice = &v1alpha1.Statement{Why: "old disks"} })
	settleAll(host, guest)
	wantPhase(anID, paper.Ending, v1alpha1.AgreementGuest, host, guest)
	held := func() string {
		for _, p := range agreementOf(guest, anID).Status.Papers {
			if p.Name == paper.AnswerName(anID) {
				return p.Value
			}
		}
		return ""
	}
	signed := held()
	now, err := f.reg.GetPaper(t.Context(), paper.AnswerName(anID))
	f.ok(err)
	// The host's operator would give notice again, so it is not heard.
	before.Revision = now.Revision
	f.ok(f.reg.PutPapers(t.Context(), before))
	settleAll(guest)
	wantPhase(anID, paper.Active, "", guest)
	wantReady(guest, "the registry has another answer/"+anID+" than the one in status.papers")
	if held() != signed || !strings.Contains(signed, "old disks") {
		t.Errorf("the notice is held no more: %s", held())
	}
	now.Revision = 0
	is, err := f.reg.GetPaper(t.Context(), paper.AnswerName(anID))
	f.ok(err)
	now.Revision = is.Revision
	f.ok(f.reg.PutPapers(t.Context(), now))
	settleAll(host, guest)
	wantPhase(anID, paper.Ending, v1alpha1.AgreementGuest, host, guest)
	if r := object.Ready(agreementOf(guest, anID).Status.Conditions); strings.Contains(r.Message, "another answer") {
		t.Errorf("it is back, and %+v", r)
	}
}
