// SPDX-License-Identifier: Apache-2.0

package paper_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation/paper"
)

// TestInvalid: what is wrong with a paper on its own names the field, its value and what to write.
func TestInvalid(t *testing.T) {
	w := newWorld(t)
	offer := func(spoil func(*paper.Offer)) paper.Paper {
		o := w.offer()
		spoil(&o)
		return paper.Paper{Offer: &o}
	}
	request := func(spoil func(*paper.Request)) paper.Paper {
		r := w.request(agreed)
		spoil(&r)
		return paper.Paper{Request: &r}
	}
	answer := func(spoil func(*paper.Answer)) paper.Paper {
		a := paper.Answer{ID: agreed, Guest: "B", Host: "A",
			Accepted: &paper.Acceptance{Moment: *w.says("A", ""), Terms: strings.Repeat("0", 64)}}
		spoil(&a)
		return paper.Paper{Answer: &a}
	}
	for _, tt := range []struct {
		p    paper.Paper
		says string
	}{
		{paper.Paper{}, "give one of offer, request, answer, room and usage"},
		{paper.Paper{Offer: &paper.Offer{}, Answer: &paper.Answer{}}, "give one of"},
		{offer(func(o *paper.Offer) { o.Organization = "a/b" }), `organization is "a/b": name an institution, without a slash`},
		{offer(func(o *paper.Offer) { o.Name = "Disks" }), `name is "Disks": use 1 to 63 lower-case letters`},
		{offer(func(o *paper.Offer) { o.Site = "" }), `site is ""`},
		{offer(func(o *paper.Offer) { o.Kind = "Tape" }), `kind is "Tape": write one of ["Store" "Copy" "Cache"]`},
		{offer(func(o *paper.Offer) { o.Class = "Slow" }), `class is "Slow": write Archive, Standard or Fast`},
		{offer(func(o *paper.Offer) { o.Amount = 0 }), "amount is 0: offer more than nothing"},
		{offer(func(o *paper.Offer) { o.Least = 11 * tib }), "least is 11Ti: use an amount up to 10Ti"},
		{offer(func(o *paper.Offer) { o.Automatic = -1 }), "automatic is -1: use an amount up to 10Ti"},
		{offer(func(o *paper.Offer) { o.From, o.Until = w.now, w.now }), "it is not after from: use a later time, or none"},
		{offer(func(o *paper.Offer) { o.Notice = -1 }), "notice is -1ns: use a time span from 0"},
		{offer(func(o *paper.Offer) { o.To = []string{""} }), `to is "": name an institution`},
		{offer(func(o *paper.Offer) { o.Price = strings.Repeat("x", 5000) }), "price is 5000 bytes: write 1024 at most"},
		{request(func(r *paper.Request) { r.ID = "1" }), `id is "1": use a UUID in lower case`},
		{request(func(r *paper.Request) { r.Guest = "A" }), "an organization needs no agreement with itself"},
		{request(func(r *paper.Request) { r.Amount = -5 }), "amount is -5: ask for more than nothing"},
		{request(func(r *paper.Request) { r.Until = time.Time{} }), "until is missing: say when the agreement ends"},
		{request(func(r *paper.Request) { r.AnswerBy = r.Until.Add(1) }), "say until when you wait, not later than until"},
		{request(func(r *paper.Request) { r.Made.By = "" }), "made is a statement without a time or a name: say when and who"},
		{answer(func(a *paper.Answer) { a.Declined = w.says("A", "") }), "either decline or accept"},
		{answer(func(a *paper.Answer) { a.Accepted.Terms = "x" }), `accepted.terms is "x": give the digest of the request's terms`},
		{answer(func(a *paper.Answer) { a.Ready = &paper.Place{Endpoint: "ftp://here"} }), `ready.endpoint is "ftp://here": write a URL`},
		{answer(func(a *paper.Answer) { a.Ready = &paper.Place{Endpoint: "http://here"} }), `ready.endpoint is "http://here": write a URL`},
		{answer(func(a *paper.Answer) { a.Ready = &paper.Place{Endpoint: "here"} }), `ready.endpoint is "here": write a URL`},
		{paper.Paper{Room: &paper.Room{ID: agreed, Guest: "B", Host: "A", Gateway: "b-0", Bytes: -1}},
			"bytes is -1: use 0 or more"},
		{paper.Paper{Usage: &paper.Usage{ID: agreed, Guest: "B", Host: "A", By: "x", Organization: "C", At: w.now}},
			`organization is "C": guest and host count`},
	} {
		if err := tt.p.Validate(); !errors.Is(err, paper.ErrInvalid) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v, want %q", err, tt.says)
		}
	}
}
