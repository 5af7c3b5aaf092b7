// SPDX-License-Identifier: Apache-2.0

// Package paper has what organizations say to each other about room that one lends to the other
// (ADR 34). A paper is one record that one organization writes. What both agree on follows from the
// papers of both, and is written nowhere.
//
//	offer/ORGANIZATION/NAME   Offer     the host: what it lends, and to which agreements it went
//	request/ID                Request   the guest: the terms, and later what it says of them
//	answer/ID                 Answer    the host
//	room/ID/GATEWAY           Room      the guest: what one of its gateways may fill
//	usage/ID/SIDE/NAME        Usage     who counts for a side: what he counted
//
// # Rules
//
//   - paper-1: a paper is written by a person or the operator of its organization; a room is one
//     gateway's, and usage is written by the gateway or the store that counted it.
//   - paper-2: both have agreed when the host's answer has the digest of the guest's terms, which
//     never change.
//   - paper-3: what a side said once (a Moment) is neither taken back nor replaced.
//   - paper-4: what an agreement takes from an offer is in the offer's record, written together
//     with the answer. An offer never gives more than it has.
//   - paper-5: nothing shortens the notice. The guest writes until the agreement ends, and reads
//     until its grace is over or it has said that it needs nothing there any more. The host deletes
//     not before.
//   - paper-6: counters only grow, by no more than the agreed room could have.
//
// Times are by the clock of who says them. Values are not shared: methods change nothing.
package paper

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation/quantity"
)

// ErrInvalid is wrapped by errors about papers that break a rule on their own.
var ErrInvalid = errors.New("invalid")

// Form is a kind of paper: the first word of its name.
type Form string

// Forms.
const (
	FormOffer   Form = "offer"
	FormRequest Form = "request"
	FormAnswer  Form = "answer"
	FormRoom    Form = "room"
	FormUsage   Form = "usage"
)

// Paper is one of what it has pointers to.
type Paper struct {
	Offer   *Offer   `json:"offer,omitempty"`
	Request *Request `json:"request,omitempty"`
	Answer  *Answer  `json:"answer,omitempty"`
	Room    *Room    `json:"room,omitempty"`
	Usage   *Usage   `json:"usage,omitempty"`
}

// one is what every form can do.
type one interface {
	name() string
	writer() string
	parties() (guest, host string)
	validate() error
}

// is returns what a paper is; nil: nothing, or more than one thing.
func (p Paper) is() (out one) {
	n := 0
	set := func(x one, there bool) {
		if there {
			out = x
			n++
		}
	}
	set(p.Offer, p.Offer != nil)
	set(p.Request, p.Request != nil)
	set(p.Answer, p.Answer != nil)
	set(p.Room, p.Room != nil)
	set(p.Usage, p.Usage != nil)
	if n != 1 {
		return nil
	}
	return out
}

// Form is what the paper is; "": nothing.
func (p Paper) Form() Form {
	form, _, _ := strings.Cut(p.Name(), "/")
	return Form(form)
}

// Name is the paper's name in the registry, behind "paper/"; "": it is none.
func (p Paper) Name() string {
	if x := p.is(); x != nil {
		return x.name()
	}
	return ""
}

// Writer is the organization whose word the paper is.
func (p Paper) Writer() string {
	if x := p.is(); x != nil {
		return x.writer()
	}
	return ""
}

// Parties are guest and host, whom alone the paper concerns; both empty: all may see it.
func (p Paper) Parties() (guest, host string) {
	if x := p.is(); x != nil {
		return x.parties()
	}
	return "", ""
}

// Part is what an author is, as his certificate says.
type Part string

// Parts that write papers.
const (
	PartPerson   Part = "person"
	PartOperator Part = "operator"
	PartGateway  Part = "gateway"
	PartStore    Part = "store"
)

// Author is who writes a paper.
type Author struct {
	Organization string
	Part         Part
	Site, Name   string
}

// WrittenBy returns why somebody may not write the paper, whatever it says; nil: he may (paper-1).
func (p Paper) WrittenBy(a Author) error {
	if a.Organization != p.Writer() {
		return deny("it is the word of %q", p.Writer())
	}
	if p.Usage == nil {
		if a.Part != PartPerson && a.Part != PartOperator {
			return deny("a person of %q writes it, or an operator", p.Writer())
		}
		return nil
	}
	if a.Part == PartGateway && a.Name == p.Usage.By ||
		a.Part == PartStore && a.Site == p.Usage.By && p.Usage.Organization == p.Usage.Host ||
		a.Part == PartOperator && a.Site == p.Usage.By && p.Usage.Organization == p.Usage.Guest {
		return nil
	}
	return deny("%s counted, and writes it", p.Usage.By)
}

// Validate checks the paper on its own; errors wrap ErrInvalid, and name the field and what to
// write.
func (p Paper) Validate() error {
	x := p.is()
	if x == nil {
		return fmt.Errorf("check paper: %w: it is none, or several at once: give one of offer, request, answer, room and usage", ErrInvalid)
	}
	return x.validate()
}

// Moment is something that somebody said, once.
type Moment struct {
	At time.Time `json:"at"`
	// By is who: the URI of a certificate.
	By  string `json:"by"`
	Why string `json:"why,omitempty"`
}

func (m *Moment) same(o *Moment) bool {
	return m == nil && o == nil || m != nil && o != nil && m.At.Equal(o.At) && m.By == o.By && m.Why == o.Why
}

// kept reports whether what was said is said still.
func kept(before, after *Moment) bool { return before == nil || before.same(after) }

// said checks a moment, if there is one.
func said(of, field string, m *Moment) error {
	switch {
	case m == nil:
		return nil
	case m.At.IsZero() || m.By == "":
		return bad(of, field, "a statement without a time or a name", "say when and who")
	case len(m.Why) > mostText:
		return bad(of, field+".why", fmt.Sprintf("%d bytes", len(m.Why)), fmt.Sprintf("write %d at most", mostText))
	}
	return nil
}

// How long texts may be, in bytes, and how many organizations an offer may name.
const (
	mostText  = 1024
	mostWord  = 64
	mostNamed = 256
)

func bad(of, field, value, remedy string) error {
	return fmt.Errorf("check %s: %w: %s is %s: %s", of, ErrInvalid, field, value, remedy)
}

var (
	labelForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	idForm    = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

func label(of, field, value string) error {
	if labelForm.MatchString(value) {
		return nil
	}
	return bad(of, field, fmt.Sprintf("%q", value),
		"use 1 to 63 lower-case letters, digits and '-', with a letter or digit first and last")
}

func id(of, value string) error {
	if idForm.MatchString(value) {
		return nil
	}
	return bad(of, "id", fmt.Sprintf("%q", value), "use a UUID in lower case")
}

func organization(of, field, value string) error {
	if value != "" && len(value) <= 2*mostWord && !strings.ContainsAny(value, "/\n") {
		return nil
	}
	return bad(of, field, fmt.Sprintf("%q", value), "name an institution, without a slash")
}

func text(of, field, value string, most int) error {
	if len(value) <= most {
		return nil
	}
	return bad(of, field, fmt.Sprintf("%d bytes", len(value)), fmt.Sprintf("write %d at most", most))
}

func span(of, field string, d quantity.Duration) error {
	if d >= 0 && time.Duration(d) <= mostSpan {
		return nil
	}
	return bad(of, field, d.String(), fmt.Sprintf("use a time span from 0 to %v", mostSpan))
}

// mostSpan bounds notices and graces.
const mostSpan = 5 * 365 * 24 * time.Hour

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
