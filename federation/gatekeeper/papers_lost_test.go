// SPDX-License-Identifier: Apache-2.0

package gatekeeper_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

func (o *one) desk() *exchange.Desk {
	return &exchange.Desk{Book: o, Organization: o.id.Organization, By: o.id.String(), Now: o.rig.clock}
}

// loses has the registry lose a paper, past the gatekeepers.
func (w *world) loses(name string) []byte {
	w.Helper()
	is := w.plainly("paper/" + name)
	_, err := w.plain.Delete(w.Context(), prefix+"paper/"+name)
	w.ok(err)
	return is
}

// The guest's operator puts back the request that the registry lost, as it was signed by a person
// long ago; the words are the same, and the signature is new. Nothing is put back over what is
// there, without an answer, or as it was before something else was said.
func TestPutBackLostRequest(t *testing.T) {
	w := lending(t)
	ctx, name := t.Context(), paper.RequestName(lent)
	first := *w.paper(w.pb, name).Request
	w.pass(50 * time.Hour)
	desk := w.ob.desk()
	refused := func(r paper.Request, why string) {
		t.Helper()
		if err := desk.PutBack(ctx, r); !errors.Is(err, exchange.ErrRefused) || !strings.Contains(err.Error(), why) {
			t.Errorf("want … %s …, got %v", why, err)
		}
	}
	before := w.loses(name)
	for _, o := range []*one{w.ob, w.pb, w.oa, w.gb, w.ga, w.gc} { // the old signature counts in nobody's hand
		if err := o.put("paper/"+name, before); !errors.Is(err, federation.ErrAccess) {
			t.Errorf("by %s: %v", o.id, err)
		}
	}
	err := w.oa.desk().PutBack(ctx, first)
	if !errors.Is(err, exchange.ErrRefused) || !strings.Contains(err.Error(), `its guest "B" puts`) {
		t.Errorf("the host: %v", err)
	}
	other := first
	other.Amount++
	refused(other, "is not to these terms")
	w.ok(desk.PutBack(ctx, first))
	w.ok(desk.PutBack(ctx, first)) // it is there
	is := w.paper(w.pa, name)
	if is.Request.Digest() != first.Digest() || !is.Request.Made.At.Equal(first.Made.At) || is.Request.Made.By != w.pb.id.String() {
		t.Errorf("it is %+v, and was %+v", is.Request, first)
	}

	// Over a notice that was given, the earlier request does not come.
	w.ok(w.pb.desk().End(ctx, lent, "we move"))
	noticed := w.paper(w.pb, name)
	w.ok(desk.PutBack(ctx, first))
	if is := w.paper(w.pb, name); !bytes.Equal(is.Value, noticed.Value) {
		t.Errorf("the notice is gone: %s", is.Value)
	}
	for _, o := range []*one{w.ob, w.pb} {
		if err := o.put("paper/"+name, before); !errors.Is(err, federation.ErrAccess) {
			t.Errorf("the earlier one by %s: %v", o.id, err)
		}
		if err := o.PutPapers(ctx, paper.At{Paper: paper.Paper{Request: &first}, Revision: noticed.Revision}); !errors.Is(err,
			federation.ErrAccess) {
			t.Errorf("the earlier words by %s: %v", o.id, err)
		}
	}
	// If that is lost, nobody can say again when notice was given: not by desk, and not past it.
	w.pass(50 * time.Hour)
	last := w.loses(name)
	refused(*noticed.Request, "the request said more than its terms")
	for _, o := range []*one{w.ob, w.pb} {
		if err := o.put("paper/"+name, last); !errors.Is(err, federation.ErrAccess) {
			t.Errorf("the old signature by %s: %v", o.id, err)
		}
		if err := o.PutPapers(ctx, paper.At{Paper: noticed.Paper}); !errors.Is(err, federation.ErrAccess) {
			t.Errorf("the old notice by %s: %v", o.id, err)
		}
	}
}

// What the host went on from was a later request, if it deletes; and without its answer there is
// nothing by which a request counts. An answer is not put back.
func TestPutBackNothing(t *testing.T) {
	w := lending(t)
	ctx := t.Context()
	first := *w.paper(w.pb, paper.RequestName(lent)).Request
	w.ok(w.ob.desk().End(ctx, lent, ""))
	w.ok(w.ob.desk().Drained(ctx, lent, ""))
	w.ok(w.oa.desk().Delete(ctx, lent))
	w.loses(paper.RequestName(lent))
	if err := w.ob.desk().PutBack(ctx, first); !errors.Is(err, exchange.ErrRefused) || !strings.Contains(err.Error(), "deletes already") {
		t.Errorf("the host would have deleted too early: %v", err)
	}
	answer := w.paper(w.oa, paper.AnswerName(lent))
	value := w.loses(paper.AnswerName(lent))
	if err := w.ob.desk().PutBack(ctx, first); !errors.Is(err, exchange.ErrRefused) || !strings.Contains(err.Error(), "has no answer of") {
		t.Errorf("without an answer: %v", err)
	}
	w.pass(2 * time.Hour)
	if err := w.ob.PutPapers(ctx, paper.At{Paper: paper.Paper{Request: &first}}); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("the request alone: %v", err)
	}
	for _, o := range []*one{w.oa, w.pa, w.gb} {
		if err := o.put("paper/"+paper.AnswerName(lent), value); !errors.Is(err, federation.ErrAccess) {
			t.Errorf("the answer by %s: %v", o.id, err)
		}
	}
	if err := w.oa.PutPapers(ctx, paper.At{Paper: answer.Paper}); !errors.Is(err, federation.ErrAccess) {
		t.Errorf("the answer's words: %v", err)
	}
}
