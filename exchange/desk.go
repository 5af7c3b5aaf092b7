// SPDX-License-Identifier: Apache-2.0

// Package exchange is how organizations lend each other room: what a person or an operator does
// with papers (package federation/paper), for commands, the operator and the console alike.
//
// A Desk speaks for one organization. It reads papers, and writes those of its organization by what
// it read: if somebody was faster, it decides anew.
package exchange

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// Desk speaks for an organization. Its methods may be called from many goroutines. Errors are those
// of package federation; what somebody cannot do wraps ErrRefused.
type Desk struct {
	Book         paper.Book
	Organization string
	// By is the URI of the certificate that writes.
	By  string
	Now func() time.Time
	// Gateways are those of a site, which say that copies are deleted; nil: Finish cannot ask.
	Gateways func(ctx context.Context, site string) ([]string, error)
}

// ErrRefused is wrapped by errors about what the papers do not allow.
var ErrRefused = errors.New("not possible")

func refused(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, a...))
}

// Agreement is what both sides said, and what follows.
type Agreement struct {
	Request paper.Request
	Answer  *paper.Answer
	paper.Life
	// revisions of both in the registry.
	request, answer int64
}

// Other is the other party to an organization.
func (a Agreement) Other(organization string) string {
	if a.Request.Guest == organization {
		return a.Request.Host
	}
	return a.Request.Guest
}

// Noticed reports whether the guest, or the host, gave notice or withdrew.
func (a Agreement) Noticed(guest bool) bool {
	if guest {
		return a.Request.Noticed != nil || a.Request.Withdrawn != nil
	}
	return a.Answer != nil && a.Answer.Noticed != nil
}

func (d *Desk) moment(why string) *paper.Moment {
	return &paper.Moment{At: d.Now().UTC().Truncate(time.Second), By: d.By, Why: why}
}

// tries is how often a change is decided anew because somebody else changed something.
const tries = 5

// write calls decide, which reads papers and returns what to write, until nobody was faster.
func (d *Desk) write(ctx context.Context, decide func() ([]paper.At, error)) error {
	for try := 1; ; try++ {
		all, err := decide()
		if err != nil || len(all) == 0 {
			return err
		}
		err = d.Book.PutPapers(ctx, all...)
		if try == tries || !errors.Is(err, federation.ErrConflict) {
			return err
		}
	}
}

// Offers are those that an organization makes, or of all for "".
func (d *Desk) Offers(ctx context.Context, organization string) ([]paper.Offer, error) {
	prefix := string(paper.FormOffer) + "/"
	if organization != "" {
		prefix += organization + "/"
	}
	all, err := d.Book.ListPapers(ctx, prefix)
	out := make([]paper.Offer, 0, len(all))
	for _, p := range all {
		if p.Offer != nil {
			out = append(out, *p.Offer)
		}
	}
	return out, err
}

// offer reads an offer; revision 0: there is none.
func (d *Desk) offer(ctx context.Context, organization, name string) (paper.At, error) {
	p, err := d.Book.GetPaper(ctx, paper.OfferName(organization, name))
	if errors.Is(err, federation.ErrNotFound) {
		return paper.At{}, nil
	}
	return p, err
}

// Offer makes an offer of this organization, or changes it. What went to agreements stays. It
// reports whether anything changed.
func (d *Desk) Offer(ctx context.Context, o paper.Offer) (changed bool, err error) {
	o.Organization = d.Organization
	err = d.write(ctx, func() ([]paper.At, error) {
		is, err := d.offer(ctx, o.Organization, o.Name)
		if err != nil {
			return nil, err
		}
		if o.Given = nil; is.Offer != nil {
			o.Given = is.Offer.Given
			if err := paper.Follows(is.Paper, paper.Paper{Offer: &o}); err != nil {
				return nil, refused("offer %s: %v", o.Name, err)
			}
			if same(*is.Offer, o) {
				return nil, nil
			}
		}
		is.Paper, changed = paper.Paper{Offer: &o}, true
		return []paper.At{is}, nil
	})
	return changed && err == nil, err
}

func same(a, b paper.Offer) bool {
	x, _ := federation.Encode(a)
	y, _ := federation.Encode(b)
	return string(x) == string(y)
}

// Withdraw takes an offer back: it is deleted, or closed while agreements take from it. It reports
// whether it is gone.
func (d *Desk) Withdraw(ctx context.Context, name string) (gone bool, err error) {
	is, err := d.offer(ctx, d.Organization, name)
	switch {
	case err != nil:
		return false, err
	case is.Offer == nil:
		return true, nil
	case len(is.Offer.Given) == 0:
		err = d.Book.DeletePaper(ctx, is.Name(), is.Revision)
		return err == nil, err
	}
	return false, d.write(ctx, func() ([]paper.At, error) {
		is, err := d.offer(ctx, d.Organization, name)
		if err != nil || is.Offer == nil || is.Offer.Closed {
			return nil, err
		}
		next := *is.Offer // what was read is shared
		next.Closed, is.Paper = true, paper.Paper{Offer: &next}
		return []paper.At{is}, nil
	})
}

// Want is what a guest asks for.
type Want struct {
	// ID is a UUID that was drawn for it: asking again with it is recognised.
	ID          string
	Host, Offer string
	Amount      quantity.Bytes
	Until       time.Time
	AnswerBy    time.Time // zero: in 30 days, or at Until
	Purpose     string
	Price       *string // that was read in the offer; nil: any
}

// answerTime is how long a guest waits for an answer who does not say.
const answerTime = 30 * 24 * time.Hour

// Ask makes a request for an offer, by its words.
func (d *Desk) Ask(ctx context.Context, w Want) (paper.Request, error) {
	name := paper.RequestName(w.ID)
	is, err := d.Book.GetPaper(ctx, name)
	if err == nil && is.Request != nil && is.Request.Guest == d.Organization && is.Request.Host == w.Host && is.Request.Offer == w.Offer &&
		is.Request.Amount == w.Amount {
		return *is.Request, nil // it was asked for already
	}
	if err != nil && !errors.Is(err, federation.ErrNotFound) {
		return paper.Request{}, err
	}
	p, err := d.offer(ctx, w.Host, w.Offer)
	if err != nil {
		return paper.Request{}, err
	}
	if p.Offer == nil || p.Offer.Closed {
		return paper.Request{}, refused("%q has no open offer %s: `weir exchange find` shows those that there are", w.Host, w.Offer)
	}
	if w.Price != nil && *w.Price != p.Offer.Price {
		return paper.Request{}, refused("offer %s of %q costs %q by now, and not %q: read it again, and ask anew", w.Offer, w.Host,
			p.Offer.Price, *w.Price)
	}
	if w.Host == d.Organization {
		return paper.Request{}, refused("offer %s is your own organization's: an offer is not for who makes it", w.Offer)
	}
	now := d.Now().UTC().Truncate(time.Second)
	if w.AnswerBy.IsZero() {
		if w.AnswerBy = now.Add(answerTime); w.AnswerBy.After(w.Until) {
			w.AnswerBy = w.Until
		}
	}
	o := p.Offer
	r := paper.Request{Terms: paper.Terms{ID: w.ID, Guest: d.Organization, Host: w.Host, Offer: w.Offer, Kind: o.Kind, Site: o.Site,
		Price: o.Price, Text: o.Terms, Amount: w.Amount, Until: w.Until.UTC().Truncate(time.Second), Notice: o.Notice, Grace: o.Grace,
		AnswerBy: w.AnswerBy.UTC().Truncate(time.Second)}, Purpose: w.Purpose, Made: *d.moment("")}
	if err := r.Matches(o); err != nil {
		return r, err
	}
	if w.Amount > o.Free() {
		return r, refused("offer %s of %q has %v left: ask for less", w.Offer, w.Host, o.Free())
	}
	return r, d.Book.PutPapers(ctx, paper.At{Paper: paper.Paper{Request: &r}})
}

// Agreements are all to which this organization is a party, or that an administrator sees, by ID.
func (d *Desk) Agreements(ctx context.Context) ([]Agreement, error) {
	requests, err := d.Book.ListPapers(ctx, string(paper.FormRequest)+"/")
	if err != nil {
		return nil, err
	}
	answers, err := d.Book.ListPapers(ctx, string(paper.FormAnswer)+"/")
	if err != nil {
		return nil, err
	}
	by := map[string]paper.At{}
	for _, a := range answers {
		if a.Answer != nil {
			by[a.Answer.ID] = a
		}
	}
	out := make([]Agreement, 0, len(requests))
	for _, r := range requests {
		if r.Request != nil {
			out = append(out, d.agreement(r, by[r.Request.ID]))
		}
	}
	return out, nil
}

func (d *Desk) agreement(r, a paper.At) Agreement {
	return Agreement{Request: *r.Request, Answer: a.Answer, Life: r.Request.Life(a.Answer, d.Now()), request: r.Revision,
		answer: a.Revision}
}

// Agreement reads one. ErrNotFound.
func (d *Desk) Agreement(ctx context.Context, id string) (Agreement, error) {
	r, err := d.Book.GetPaper(ctx, paper.RequestName(id))
	if err != nil {
		return Agreement{}, err
	}
	a, err := d.Book.GetPaper(ctx, paper.AnswerName(id))
	if errors.Is(err, federation.ErrNotFound) {
		a, err = paper.At{}, nil
	}
	if err != nil || r.Request == nil {
		return Agreement{}, err
	}
	return d.agreement(r, a), nil
}

// shortest is how much of an ID names an agreement, in letters.
const shortest = 4

// Find returns the one agreement whose ID begins with a prefix.
func (d *Desk) Find(ctx context.Context, prefix string) (Agreement, error) {
	if len(prefix) < shortest {
		return Agreement{}, refused("%q names no agreement: give at least %d letters of its ID", prefix, shortest)
	}
	all, err := d.Agreements(ctx)
	if err != nil {
		return Agreement{}, err
	}
	all = slices.DeleteFunc(all, func(a Agreement) bool { return !strings.HasPrefix(a.Request.ID, prefix) })
	switch len(all) {
	case 0:
		return Agreement{}, refused("no agreement has an ID that begins with %q: `weir exchange status` lists them", prefix)
	case 1:
		return all[0], nil
	}
	return Agreement{}, refused("%d agreements have IDs that begin with %q: give more of it", len(all), prefix)
}
