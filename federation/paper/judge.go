// SPDX-License-Identifier: Apache-2.0

package paper

import (
	"fmt"
	"time"
)

// Slack is how much clocks may differ: a statement is neither later than now nor longer ago.
const Slack = time.Hour

// kept after an agreement is over, before its papers may be deleted.
const (
	KeptNever = 30 * 24 * time.Hour  // it was declined, or expired
	KeptEnded = 365 * 24 * time.Hour // it had begun
)

// Case is what a change is judged by.
type Case struct {
	Now time.Time
	// By is the URI of who makes it: a person, or the operator that passes on what he said.
	By string
	// Is returns the paper of a name as it is; nil: there is none. Written is what the same request
	// writes.
	Is, Written func(name string) *Paper
}

func deny(format string, a ...any) error { return fmt.Errorf(format, a...) }

// Follows returns why a paper does not follow the one that it replaces, whoever asks (paper-2,
// paper-3, paper-6).
func Follows(before, after Paper) error {
	switch {
	case before.Form() != after.Form() || before.Writer() != after.Writer():
		return deny("it replaces a paper of %q, and is one of %q", before.Writer(), after.Writer())
	case after.Offer != nil:
		if b, a := before.Offer, after.Offer; b.Kind != a.Kind || b.Site != a.Site {
			return deny("an offer's kind and site do not change: make another offer, and close this one")
		}
	case after.Request != nil:
		b, a := before.Request, after.Request
		switch {
		case b.Digest() != a.Digest():
			return deny("its terms do not change: make another request")
		case b.Purpose != a.Purpose || !kept(&b.Made, &a.Made) || !kept(b.Withdrawn, a.Withdrawn) || !kept(b.Noticed, a.Noticed) ||
			!kept(b.Drained, a.Drained) || !kept(b.HostGone, a.HostGone) || !kept(b.Confirmed, a.Confirmed):
			return deny("what was said once stays as it is")
		}
	case after.Answer != nil:
		b, a := before.Answer, after.Answer
		accepted := b.Accepted == nil || a.Accepted != nil && b.Accepted.same(&a.Accepted.Moment) && b.Accepted.Terms == a.Accepted.Terms &&
			b.Accepted.Automatic == a.Accepted.Automatic
		deleted := b.Deleted == nil || a.Deleted != nil && b.Deleted.same(&a.Deleted.Moment) && b.Deleted.Objects == a.Deleted.Objects &&
			b.Deleted.Bytes == a.Deleted.Bytes
		switch {
		case b.Accepted == nil && a.Accepted != nil:
			return deny("it was declined: the guest makes another request")
		case a.Guest != b.Guest || !accepted || !deleted || !kept(b.Declined, a.Declined) || !kept(b.Noticed, a.Noticed) ||
			!kept(b.Unpaid, a.Unpaid) || !kept(b.Deleting, a.Deleting) || b.Ready != nil && a.Ready == nil:
			return deny("what was said once stays as it is")
		}
	case after.Room != nil:
		if before.Room.Host != after.Room.Host {
			return deny("it is of an agreement with %q", before.Room.Host)
		}
	case after.Usage != nil:
		b, a := before.Usage, after.Usage
		if a.At.Before(b.At) || a.Host != b.Host || a.Guest != b.Guest {
			return deny("it is of %s, and there is one of %s", a.At.UTC().Format(time.RFC3339), b.At.UTC().Format(time.RFC3339))
		}
		if b.Erased != nil && (a.Erased == nil || !b.Erased.same(&a.Erased.Moment)) {
			return deny("what was said once stays as it is")
		}
		for g, c := range b.Of {
			if !a.Of[g].grown(c) {
				return deny("counters of %s went back", g)
			}
		}
	}
	return nil
}

// Judge returns why a change is refused; nil: it is allowed. before is what is there, after what is
// to be; nil: nothing. Who may write a paper at all, the caller has looked at (paper-1).
func (c Case) Judge(before, after *Paper) error {
	if after == nil {
		if before == nil {
			return nil
		}
		return c.deletes(*before)
	}
	if err := after.Validate(); err != nil {
		return err
	}
	if before != nil {
		if err := Follows(*before, *after); err != nil {
			return err
		}
	} else {
		before = &Paper{}
	}
	switch {
	case after.Offer != nil:
		return c.offer(before.Offer, after.Offer)
	case after.Request != nil:
		return c.request(before.Request, after.Request)
	case after.Answer != nil:
		return c.answer(before.Answer, after.Answer)
	case after.Room != nil:
		return c.room(after.Room)
	}
	return c.usage(after.Usage)
}

// moment checks what is said now.
func (c Case) moment(what string, before, after *Moment) error {
	if before != nil || after == nil {
		return nil
	}
	switch {
	case after.By != c.By:
		return deny("%s is said by %s, and %s asks", what, after.By, c.By)
	case after.At.After(c.Now.Add(Slack)) || after.At.Before(c.Now.Add(-Slack)):
		return deny("%s is said at %s, and now it is %s: set the clock", what, after.At.UTC().Format(time.RFC3339),
			c.Now.UTC().Format(time.RFC3339))
	}
	return nil
}

// offer judges what went to agreements (paper-4).
func (c Case) offer(before, after *Offer) error {
	was := map[string]bool{}
	if before != nil {
		for id, n := range before.Given {
			was[id] = true
			is, there := after.Given[id]
			if there && is != n {
				return deny("agreement %s took %v from the offer, and that stays", id, n)
			}
			if !there && !c.over(id) {
				return deny("agreement %s took %v from the offer, and is not over", id, n)
			}
		}
	}
	for id, n := range after.Given {
		if was[id] {
			continue
		}
		p := c.Written(AnswerName(id))
		if p == nil || p.Answer == nil || p.Answer.Accepted == nil || p.Answer.Host != after.Organization {
			return deny("agreement %s takes %v from the offer without being accepted with it", id, n)
		}
	}
	return nil
}

// agreement returns both sides of an agreement as they are.
func (c Case) agreement(id string) (*Request, *Answer) {
	var r *Request
	var a *Answer
	if p := c.Is(RequestName(id)); p != nil {
		r = p.Request
	}
	if p := c.Is(AnswerName(id)); p != nil {
		a = p.Answer
	}
	return r, a
}

// over reports whether nothing of an agreement is at the host, as the papers say with this request.
func (c Case) over(id string) bool {
	r, a := c.agreement(id)
	if p := c.Written(AnswerName(id)); p != nil && p.Answer != nil {
		a = p.Answer
	}
	return r == nil || a == nil || a.Deleted != nil || a.Declined != nil
}

func (c Case) request(before, after *Request) error {
	_, a := c.agreement(after.ID)
	if before == nil && after.Agrees(a) { // it was lost, and its host has it signed
		before = &Request{Terms: after.Terms}
	}
	if before == nil {
		before = &Request{Terms: after.Terms}
		if err := c.moment("made", nil, &after.Made); err != nil {
			return err
		}
		p := c.Is(OfferName(after.Host, after.Offer))
		switch {
		case p == nil || p.Offer == nil:
			return deny("%q has no offer %s", after.Host, after.Offer)
		case p.Offer.Closed:
			return deny("the offer is closed")
		case c.Now.Before(p.Offer.From.Add(-Slack)):
			return deny("the offer begins at %s", p.Offer.From.UTC().Format(time.RFC3339))
		case !after.AnswerBy.After(c.Now):
			return deny("answerBy is %s, and now it is %s", after.AnswerBy.UTC().Format(time.RFC3339), c.Now.UTC().Format(time.RFC3339))
		}
		if err := after.Matches(p.Offer); err != nil {
			return err
		}
		if a != nil {
			return deny("there is an answer already: draw another ID")
		}
	}
	if err := first(c.moment("withdrawn", before.Withdrawn, after.Withdrawn), c.moment("noticed", before.Noticed, after.Noticed),
		c.moment("drained", before.Drained, after.Drained), c.moment("hostGone", before.HostGone, after.HostGone),
		c.moment("confirmed", before.Confirmed, after.Confirmed)); err != nil {
		return err
	}
	agreed := after.Agrees(a)
	switch {
	case before.Withdrawn == nil && after.Withdrawn != nil && a != nil:
		return deny("it was answered: it can not be withdrawn, but notice can be given")
	case !agreed && (after.Noticed != nil || after.Drained != nil || after.HostGone != nil || after.Confirmed != nil):
		return deny("it is not agreed on: withdraw it")
	case after.Confirmed != nil && a.Deleted == nil:
		return deny("the host did not say that it deleted everything: there is nothing to confirm")
	}
	return nil
}

func (c Case) answer(before, after *Answer) error {
	r, _ := c.agreement(after.ID)
	if r == nil {
		return deny("there is no request %s", after.ID)
	}
	if after.Host != r.Host || after.Guest != r.Guest {
		return deny("the request is by %q to %q", r.Guest, r.Host)
	}
	if before == nil {
		before = &Answer{}
		if err := c.decides(r, after); err != nil {
			return err
		}
	}
	if err := first(c.moment("noticed", before.Noticed, after.Noticed), c.moment("unpaid", before.Unpaid, after.Unpaid),
		c.moment("deleting", before.Deleting, after.Deleting)); err != nil {
		return err
	}
	if before.Deleting == nil && after.Deleting != nil {
		sofar := *after
		sofar.Deleting, sofar.Deleted = nil, nil
		if l := r.Life(&sofar, c.Now); !l.Erases(c.Now) && after.Ready != nil {
			return deny("the guest may have something there until %s: %s", l.Grace.UTC().Format(time.RFC3339), l.Why)
		}
	}
	switch {
	case after.Deleted == nil || before.Deleted != nil:
		return nil
	case before.Deleting == nil:
		return deny("say first that you delete, and then that nothing is there")
	case after.Deleted.At.Before(after.Deleting.At):
		return deny("everything was deleted at %s, and the deletion began at %s", after.Deleted.At.UTC().Format(time.RFC3339),
			after.Deleting.At.UTC().Format(time.RFC3339))
	}
	return c.moment("deleted", nil, &after.Deleted.Moment)
}

// decides judges the first answer to a request (paper-2, paper-4).
func (c Case) decides(r *Request, a *Answer) error {
	if a.Accepted == nil {
		return c.moment("declined", nil, a.Declined)
	}
	name := OfferName(r.Host, r.Offer)
	p := c.Written(name)
	switch {
	case r.Withdrawn != nil:
		return deny("the guest withdrew the request")
	case !c.Now.Before(r.AnswerBy):
		return deny("the guest waited until %s", r.AnswerBy.UTC().Format(time.RFC3339))
	case a.Accepted.Terms != r.Digest():
		return deny("it accepts other terms than those of the request: read it again")
	case p == nil || p.Offer == nil || p.Offer.Given[a.ID] != r.Amount:
		return deny("what an agreement takes is written into offer %s with it", r.Offer)
	case a.Accepted.Automatic && (p.Offer.Closed || r.Amount > p.Offer.Automatic):
		return deny("offer %s accepts %v by itself, if it is open", r.Offer, p.Offer.Automatic)
	}
	if err := r.Matches(p.Offer); err != nil {
		return err
	}
	return c.moment("accepted", nil, &a.Accepted.Moment)
}

func (c Case) room(r *Room) error {
	q, a := c.agreement(r.ID)
	switch {
	case q == nil || q.Guest != r.Guest || q.Host != r.Host || !q.Agrees(a):
		return deny("there is no such agreement of %q with %q", r.Guest, r.Host)
	case q.Kind != KindStore:
		return deny("the agreement is about a %s: gateways have rooms in stores only", q.Kind)
	case r.Bytes > q.Amount:
		return deny("%v are more than the %v of the agreement", r.Bytes, q.Amount)
	}
	return nil
}

func (c Case) usage(u *Usage) error {
	q, a := c.agreement(u.ID)
	if q == nil || q.Guest != u.Guest || q.Host != u.Host || !q.Agrees(a) {
		return deny("there is no such agreement of %q with %q", u.Guest, u.Host)
	}
	if u.At.After(c.Now.Add(Slack)) {
		return deny("it is of %s, and now it is %s: set the clock", u.At.UTC().Format(time.RFC3339), c.Now.UTC().Format(time.RFC3339))
	}
	if own := q.counts(u); own != "" && (len(u.Of) > 1 || len(u.Of) == 1 && !has(u.Of, own)) {
		return deny("of: it counts for others: count what is of %s", own)
	}
	if u.Erased != nil && (a.Deleting == nil || u.All().Stored != 0) {
		return deny("the host did not say that it deletes, or there is something left")
	}
	return q.Bounds(a, u)
}

// counts is of what somebody counts; "": of several. A gateway of the guest counts for itself, and
// a store for all of them. What is no store's is counted by its site.
func (r *Request) counts(u *Usage) string {
	switch {
	case r.Kind != KindStore:
		return r.Site
	case u.Organization == u.Guest:
		return u.By
	}
	return ""
}

// Bounds returns why counters can not be right (paper-6).
func (r *Request) Bounds(a *Answer, u *Usage) error {
	all := u.All()
	if all.Stored > r.Amount {
		return deny("%v are stored, and %v were agreed on", all.Stored, r.Amount)
	}
	most := float64(r.Amount) * (u.At.Sub(a.Accepted.At) + margin).Hours()
	if all.ByteHours > most {
		return deny("%.0f byte-hours are more than %v can have been since %s: %.0f", all.ByteHours, r.Amount,
			a.Accepted.At.UTC().Format(time.RFC3339), most)
	}
	return nil
}

// margin is how much earlier an agreement may have begun by another clock.
const margin = time.Minute

// deletes judges a deletion.
func (c Case) deletes(p Paper) error {
	switch {
	case p.Offer != nil:
		if len(p.Offer.Given) > 0 {
			return deny("%d agreements took from the offer: close it, and delete it when they are over", len(p.Offer.Given))
		}
		return nil
	case p.Request != nil:
		return c.forgets(p.Request.ID)
	case p.Answer != nil:
		return c.forgets(p.Answer.ID)
	case p.Room != nil:
		return c.unused(p.Room.ID)
	}
	return c.unused(p.Usage.ID)
}

// unused judges a deletion of what is counted about an agreement: when it is over.
func (c Case) unused(id string) error {
	if r, a := c.agreement(id); r != nil && !r.Life(a, c.Now).Over() {
		return deny("the agreement is not over")
	}
	return nil
}

// forgets judges the deletion of a side of an agreement: long after it was over, or when the other
// has done so.
func (c Case) forgets(id string) error {
	r, a := c.agreement(id)
	if r == nil {
		return nil
	}
	if !r.Life(a, c.Now).Over() {
		return deny("the agreement is not over")
	}
	if until := r.KeptUntil(a, c.Now); c.Now.Before(until) {
		return deny("it is kept until %s", until.UTC().Format(time.RFC3339))
	}
	return nil
}

// KeptUntil is when both sides may delete what they said of an agreement that is over now.
func (r *Request) KeptUntil(a *Answer, now time.Time) time.Time {
	last, keep := r.Made.At, KeptNever
	switch {
	case r.Life(a, now).Phase == Ended:
		last, keep = a.Deleted.At, KeptEnded
	case a != nil:
		if last = a.said(); r.AnswerBy.After(last) { // else it could be accepted after all
			last = r.AnswerBy
		}
	case r.Withdrawn != nil:
		last = r.Withdrawn.At
	case r.AnswerBy.After(last):
		last = r.AnswerBy
	}
	return last.Add(keep)
}
