// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"errors"
	"maps"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// Accept accepts a request, and takes its room from the offer. Repeating it changes nothing.
// automatic: nobody but the offer's own word decides.
func (d *Desk) Accept(ctx context.Context, id string, automatic bool) error {
	return d.write(ctx, func() ([]paper.At, error) {
		a, err := d.Agreement(ctx, id)
		if err != nil {
			return nil, err
		}
		switch r := &a.Request; {
		case r.Host != d.Organization:
			return nil, refused("agreement %s: %q accepts or declines, and not %q", id, r.Host, d.Organization)
		case r.Agrees(a.Answer):
			return nil, nil
		case a.Phase != paper.Requested || a.Answer != nil:
			return nil, refused("agreement %s is %s: %s", id, a.Phase, a.Why)
		}
		offer, err := d.offer(ctx, d.Organization, a.Request.Offer)
		if err != nil {
			return nil, err
		}
		o := offer.Offer
		switch {
		case o == nil:
			return nil, refused("agreement %s: offer %s is gone: make it again, or decline", id, a.Request.Offer)
		case o.Free() < a.Request.Amount:
			return nil, refused("agreement %s: it is about %v, and offer %s has %v left: offer more, or decline", id, a.Request.Amount,
				o.Name, o.Free())
		case automatic && o.Closed:
			return nil, refused("agreement %s: offer %s is closed", id, o.Name)
		}
		if err := a.Request.Matches(o); err != nil { // the offer changed, or nobody judged the request
			return nil, refused("agreement %s: %v: decline it, or offer that", id, err)
		}
		if automatic && a.Request.Amount > o.Automatic { // whoever asks, and whatever it has
			return nil, refused("agreement %s: it is about %v, of which offer %s accepts %v by itself", id, a.Request.Amount, o.Name,
				o.Automatic)
		}
		if automatic {
			took, err := d.taken(ctx, o, a.Request.Guest)
			if err != nil {
				return nil, err
			}
			if took+a.Request.Amount > o.Automatic {
				return nil, refused("agreement %s: it is about %v, of offer %s %q has %v, and %v are accepted by themselves", id,
					a.Request.Amount, o.Name, a.Request.Guest, took, o.Automatic)
			}
		}
		next := *o // what was read is shared
		if next.Given = maps.Clone(o.Given); next.Given == nil {
			next.Given = map[string]quantity.Bytes{}
		}
		next.Given[id] = a.Request.Amount
		offer.Paper = paper.Paper{Offer: &next}
		answer := &paper.Answer{ID: id, Guest: a.Request.Guest, Host: a.Request.Host,
			Accepted: &paper.Acceptance{Moment: *d.moment(""), Terms: a.Request.Digest(), Automatic: automatic}}
		return []paper.At{offer, {Paper: paper.Paper{Answer: answer}}}, nil
	})
}

// taken is how much of an offer an organization has.
func (d *Desk) taken(ctx context.Context, o *paper.Offer, guest string) (sum quantity.Bytes, err error) {
	all, err := d.Agreements(ctx)
	for _, a := range all {
		if a.Request.Guest == guest && a.Request.Offer == o.Name {
			sum += o.Given[a.Request.ID]
		}
	}
	return sum, err
}

// Decline declines a request.
func (d *Desk) Decline(ctx context.Context, id, why string) error {
	return d.write(ctx, func() ([]paper.At, error) {
		a, err := d.Agreement(ctx, id)
		if err != nil {
			return nil, err
		}
		switch {
		case a.Request.Host != d.Organization:
			return nil, refused("agreement %s: %q accepts or declines, and not %q", id, a.Request.Host, d.Organization)
		case a.Answer != nil && a.Answer.Declined != nil:
			return nil, nil
		case a.Answer != nil:
			return nil, refused("agreement %s is %s: give notice", id, a.Phase)
		}
		answer := &paper.Answer{ID: id, Guest: a.Request.Guest, Host: a.Request.Host, Declined: d.moment(why)}
		return []paper.At{{Paper: paper.Paper{Answer: answer}}}, nil
	})
}

// guest changes this organization's request. change returns false: nothing is to be said.
func (d *Desk) guest(ctx context.Context, id string, change func(a Agreement, r *paper.Request) (bool, error)) error {
	return d.write(ctx, func() ([]paper.At, error) {
		a, err := d.Agreement(ctx, id)
		if err != nil {
			return nil, err
		}
		if a.Request.Guest != d.Organization {
			return nil, refused("agreement %s: that is for %q to say, its guest", id, a.Request.Guest)
		}
		r := a.Request
		if say, err := change(a, &r); err != nil || !say {
			return nil, err
		}
		return []paper.At{{Paper: paper.Paper{Request: &r}, Revision: a.request}}, nil
	})
}

// host changes this organization's answer, in an agreement that was accepted, and what else it
// returns.
func (d *Desk) host(ctx context.Context, id string, change func(a Agreement, is *paper.Answer) (bool, []paper.At, error)) error {
	return d.write(ctx, func() ([]paper.At, error) {
		a, err := d.Agreement(ctx, id)
		if err != nil {
			return nil, err
		}
		switch {
		case a.Request.Host != d.Organization:
			return nil, refused("agreement %s: that is for %q to say, its host", id, a.Request.Host)
		case !a.Request.Agrees(a.Answer):
			return nil, refused("agreement %s is %s: %s", id, a.Phase, a.Why)
		}
		is := *a.Answer
		say, more, err := change(a, &is)
		if err != nil || !say {
			return nil, err
		}
		return append([]paper.At{{Paper: paper.Paper{Answer: &is}, Revision: a.answer}}, more...), nil
	})
}

// Ready says that the room of an agreement is there: of a store where, and of other kinds nowhere
// but at the gateways of its site.
func (d *Desk) Ready(ctx context.Context, id string, at paper.Place) error {
	return d.host(ctx, id, func(a Agreement, is *paper.Answer) (bool, []paper.At, error) {
		switch r := a.Request; {
		case r.Kind == paper.KindStore && at.Endpoint == "":
			return false, nil, refused("agreement %s: kind is %s, and endpoint is missing: write the URL of the store, such as "+
				"https://store.%s.example.org:7005", id, r.Kind, r.Site)
		case r.Kind != paper.KindStore && at.Endpoint != "":
			return false, nil, refused("agreement %s: kind is %s, and endpoint is %q: leave endpoint out, the room is at the gateways of "+
				"site %s", id, r.Kind, at.Endpoint, r.Site)
		}
		if is.Ready != nil && *is.Ready == at {
			return false, nil, nil
		}
		is.Ready = &at
		return true, nil, nil
	})
}

// Recall withdraws a request that nobody has answered; what was answered stays as it is.
func (d *Desk) Recall(ctx context.Context, id, why string) error {
	return d.guest(ctx, id, func(a Agreement, r *paper.Request) (bool, error) {
		if a.Answer != nil || r.Withdrawn != nil {
			return false, nil
		}
		r.Withdrawn = d.moment(why)
		return true, nil
	})
}

// End gives notice, by either side. A guest whose request was not answered withdraws it.
func (d *Desk) End(ctx context.Context, id, why string) error {
	a, err := d.Agreement(ctx, id)
	if err != nil {
		return err
	}
	if a.Request.Host == d.Organization {
		return d.host(ctx, id, func(_ Agreement, is *paper.Answer) (bool, []paper.At, error) {
			if is.Noticed != nil {
				return false, nil, nil
			}
			is.Noticed = d.moment(why)
			return true, nil, nil
		})
	}
	return d.guest(ctx, id, func(a Agreement, r *paper.Request) (bool, error) {
		switch {
		case a.Answer == nil && r.Withdrawn == nil:
			r.Withdrawn = d.moment(why)
		case r.Agrees(a.Answer) && r.Noticed == nil:
			r.Noticed = d.moment(why)
		default:
			return false, nil
		}
		return true, nil
	})
}

// Unpaid says that the guest did not pay, which is notice. HostGone says that the host does not
// keep the agreement. Both are for persons.
func (d *Desk) Unpaid(ctx context.Context, id, why string) error {
	return d.host(ctx, id, func(_ Agreement, is *paper.Answer) (bool, []paper.At, error) {
		if is.Unpaid != nil {
			return false, nil, nil
		}
		is.Unpaid = d.moment(why)
		return true, nil, nil
	})
}

// HostGone says that the host does not keep the agreement: the guest goes on without it.
func (d *Desk) HostGone(ctx context.Context, id, why string) error {
	return d.agreed(ctx, id, func(r *paper.Request) **paper.Moment { return &r.HostGone }, why)
}

// Drained says that the guest needs nothing there any more.
func (d *Desk) Drained(ctx context.Context, id, why string) error {
	return d.agreed(ctx, id, func(r *paper.Request) **paper.Moment { return &r.Drained }, why)
}

// agreed has the guest say something once of what was agreed on.
func (d *Desk) agreed(ctx context.Context, id string, what func(*paper.Request) **paper.Moment, why string) error {
	return d.guest(ctx, id, func(a Agreement, r *paper.Request) (bool, error) {
		if !r.Agrees(a.Answer) {
			return false, refused("agreement %s is %s: %s", id, a.Phase, a.Why)
		}
		say := what(r)
		if *say != nil {
			return false, nil
		}
		*say = d.moment(why)
		return true, nil
	})
}

// Confirm is the guest's receipt.
func (d *Desk) Confirm(ctx context.Context, id string) error {
	return d.guest(ctx, id, func(a Agreement, r *paper.Request) (bool, error) {
		if a.Answer == nil || a.Answer.Deleted == nil {
			return false, refused("agreement %s: the host did not say that it deleted everything: there is nothing to confirm", id)
		}
		if r.Confirmed != nil {
			return false, nil
		}
		r.Confirmed = d.moment("")
		return true, nil
	})
}

// Delete says that the host deletes what is there, which is refused while the guest may need it.
func (d *Desk) Delete(ctx context.Context, id string) error {
	return d.host(ctx, id, func(a Agreement, is *paper.Answer) (bool, []paper.At, error) {
		if is.Deleting != nil {
			return false, nil, nil
		}
		if is.Ready != nil && !a.Erases(d.Now()) {
			return false, nil, refused("agreement %s: the guest may have something there until %s: %s", id,
				a.Grace.Format("2006-01-02 15:04 MST"), a.Why)
		}
		is.Deleting = d.moment("")
		return true, nil, nil
	})
}

// Deleted is the host's receipt. What the agreement took is the offer's again.
func (d *Desk) Deleted(ctx context.Context, id string, objects int64, bytes quantity.Bytes) error {
	return d.host(ctx, id, func(a Agreement, is *paper.Answer) (bool, []paper.At, error) {
		if is.Deleted != nil {
			return false, nil, nil
		}
		if is.Deleting == nil {
			return false, nil, refused("agreement %s: say first that you delete", id)
		}
		is.Deleted = &paper.Deletion{Moment: *d.moment(""), Objects: objects, Bytes: bytes}
		offer, err := d.offer(ctx, d.Organization, a.Request.Offer)
		if err != nil || offer.Offer == nil {
			return err == nil, nil, err
		}
		o := *offer.Offer
		if _, took := o.Given[id]; !took {
			return true, nil, nil
		}
		o.Given = maps.Clone(o.Given)
		delete(o.Given, id)
		offer.Paper = paper.Paper{Offer: &o}
		return true, []paper.At{offer}, nil
	})
}

// Room says how much of an agreement about a store one of this organization's gateways may fill.
func (d *Desk) Room(ctx context.Context, id, gateway string, bytes quantity.Bytes) error {
	return d.write(ctx, func() ([]paper.At, error) {
		a, err := d.Agreement(ctx, id)
		if err != nil {
			return nil, err
		}
		r := a.Request
		switch {
		case r.Guest != d.Organization:
			return nil, refused("agreement %s: that is for %q to say, its guest", id, r.Guest)
		case r.Kind != paper.KindStore:
			return nil, refused("agreement %s: kind is %s: its room is for all volumes together, and no gateway needs a part of it", id,
				r.Kind)
		case !r.Agrees(a.Answer):
			return nil, refused("agreement %s is %s: %s", id, a.Phase, a.Why)
		case bytes > r.Amount:
			return nil, refused("agreement %s is about %v: a gateway cannot fill %v of it", id, r.Amount, bytes)
		}
		p := paper.Paper{Room: &paper.Room{ID: id, Guest: r.Guest, Host: r.Host, Gateway: gateway, Bytes: bytes}}
		is, err := d.Book.GetPaper(ctx, p.Name())
		if err != nil && !errors.Is(err, federation.ErrNotFound) {
			return nil, err
		}
		if is.Room != nil && is.Room.Bytes == bytes {
			return nil, nil
		}
		return []paper.At{{Paper: p, Revision: is.Revision}}, nil
	})
}

// Finish gives the host's receipt, if its store says that it deleted everything, and reports
// whether it did. Of copies all gateways of the site must say so. Of a cache pool there is
// nothing to delete: what is there belongs to who may read it.
func (d *Desk) Finish(ctx context.Context, id string) (done bool, err error) {
	a, err := d.Agreement(ctx, id)
	if err != nil {
		return false, err
	}
	if a.Answer == nil || a.Answer.Deleting == nil || a.Answer.Deleted != nil {
		return a.Answer != nil && a.Answer.Deleted != nil, nil
	}
	if a.Answer.Ready == nil || a.Request.Kind == paper.KindCache {
		return true, d.Deleted(ctx, id, 0, 0)
	}
	all, err := d.Book.ListPapers(ctx, string(paper.FormUsage)+"/"+id+"/")
	if err != nil {
		return false, err
	}
	said := map[string]*paper.Deletion{}
	for _, p := range all {
		if u := p.Usage; u != nil && u.Organization == d.Organization && u.Erased != nil {
			if a.Request.Kind == paper.KindStore {
				return true, d.Deleted(ctx, id, u.Erased.Objects, u.Erased.Bytes)
			}
			said[u.By] = u.Erased
		}
	}
	if a.Request.Kind == paper.KindStore {
		return false, nil
	}
	if d.Gateways == nil {
		return false, refused("agreement %s: nobody here knows which gateways site %s has", id, a.Request.Site)
	}
	gateways, err := d.Gateways(ctx, a.Request.Site)
	if err != nil || len(gateways) == 0 {
		return false, err
	}
	var objects int64
	var bytes quantity.Bytes
	for _, g := range gateways {
		x := said[g]
		if x == nil {
			return false, nil
		}
		objects, bytes = max(objects, x.Objects), max(bytes, x.Bytes) // each looked for the same copies
	}
	return true, d.Deleted(ctx, id, objects, bytes)
}
