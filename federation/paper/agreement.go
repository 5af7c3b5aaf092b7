// SPDX-License-Identifier: Apache-2.0

package paper

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/weir-storage/weir/federation/quantity"
)

// Terms are what two organizations agree on. They say everything: offers change.
type Terms struct {
	ID    string `json:"id"` // a UUID, which the guest draws
	Guest string `json:"guest"`
	Host  string `json:"host"`
	// Offer, Kind, Site, Price and Text are those of the host's offer, whose Terms the text is.
	Offer string `json:"offer"`
	Kind  Kind   `json:"kind"`
	Site  string `json:"site"`
	Price string `json:"price,omitempty"`
	Text  string `json:"terms,omitempty"`
	// Amount is how much, in bytes.
	Amount quantity.Bytes `json:"amount"`
	// Until is when the agreement ends if nobody gives notice.
	Until  time.Time         `json:"until"`
	Notice quantity.Duration `json:"notice"`
	Grace  quantity.Duration `json:"grace"`
	// AnswerBy is when the guest does not wait any more.
	AnswerBy time.Time `json:"answerBy"`
}

// Digest names the terms: SHA-256 of what they say, in hexadecimal (paper-2).
func (t Terms) Digest() string {
	said, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("paper: encode terms: %v", err)) // strings, numbers and times that were read
	}
	sum := sha256.Sum256(append([]byte("weir exchange terms 1\n"), said...))
	return hex.EncodeToString(sum[:])
}

// Matches returns why the terms are not those of an offer; nil: they are.
func (t Terms) Matches(o *Offer) error {
	of := "request " + t.ID
	differs := func(field string, is, want any) error {
		return bad(of, field, fmt.Sprintf("%q", is), fmt.Sprintf("the offer says %q: read it again", want))
	}
	switch {
	case t.Host != o.Organization || t.Offer != o.Name:
		return differs("offer", t.Host+"/"+t.Offer, o.Organization+"/"+o.Name)
	case t.Kind != o.Kind:
		return differs("kind", t.Kind, o.Kind)
	case t.Site != o.Site:
		return differs("site", t.Site, o.Site)
	case t.Price != o.Price:
		return differs("price", t.Price, o.Price)
	case t.Text != o.Terms:
		return differs("terms", t.Text, o.Terms)
	case t.Notice != o.Notice:
		return differs("notice", t.Notice.String(), o.Notice.String())
	case t.Grace != o.Grace:
		return differs("grace", t.Grace.String(), o.Grace.String())
	case !o.For(t.Guest):
		return bad(of, "guest", fmt.Sprintf("%q", t.Guest), fmt.Sprintf("the offer is for %q: ask its host to name you", o.To))
	case t.Amount < o.Least:
		return bad(of, "amount", t.Amount.String(), fmt.Sprintf("the offer's least is %v: ask for as much", o.Least))
	case t.Amount > o.Amount:
		return bad(of, "amount", t.Amount.String(), fmt.Sprintf("the offer has %v in all: ask for less", o.Amount))
	case !o.Until.IsZero() && t.Until.After(o.Until):
		return bad(of, "until", t.Until.Format(time.RFC3339), fmt.Sprintf("the offer ends at %s: ask until then",
			o.Until.Format(time.RFC3339)))
	}
	return nil
}

func (t Terms) validate() error {
	of := "request " + t.ID
	if err := first(id(of, t.ID), organization(of, "guest", t.Guest), organization(of, "host", t.Host), label(of, "offer", t.Offer),
		label(of, "site", t.Site), text(of, "price", t.Price, mostText), text(of, "terms", t.Text, mostText),
		span(of, "notice", t.Notice), span(of, "grace", t.Grace)); err != nil {
		return err
	}
	switch {
	case t.Guest == t.Host:
		return bad(of, "guest", fmt.Sprintf("%q", t.Guest), "it is the host: an organization needs no agreement with itself")
	case !slices.Contains(Kinds(), t.Kind):
		return bad(of, "kind", fmt.Sprintf("%q", t.Kind), fmt.Sprintf("write one of %q", Kinds()))
	case t.Amount <= 0:
		return bad(of, "amount", t.Amount.String(), "ask for more than nothing, such as 1Ti")
	case t.Until.IsZero():
		return bad(of, "until", "missing", "say when the agreement ends")
	case t.AnswerBy.IsZero() || t.AnswerBy.After(t.Until):
		return bad(of, "answerBy", t.AnswerBy.Format(time.RFC3339), "say until when you wait, not later than until")
	}
	return nil
}

// Request is the guest's side of an agreement. Its writer is the guest.
type Request struct {
	Terms
	// Purpose is a text for the host.
	Purpose string `json:"purpose,omitempty"`
	Made    Moment `json:"made"`
	// Withdrawn: the guest does not want it any more, before there was an answer.
	Withdrawn *Moment `json:"withdrawn,omitempty"`
	// Noticed is notice by the guest.
	Noticed *Moment `json:"noticed,omitempty"`
	// Drained: the guest needs nothing there any more.
	Drained *Moment `json:"drained,omitempty"`
	// HostGone: a person of the guest says that the host does not keep the agreement.
	HostGone *Moment `json:"hostGone,omitempty"`
	// Confirmed is the guest's receipt: it saw that the host deleted everything.
	Confirmed *Moment `json:"confirmed,omitempty"`
}

func (r *Request) name() string                  { return RequestName(r.ID) }
func (r *Request) writer() string                { return r.Guest }
func (r *Request) parties() (guest, host string) { return r.Guest, r.Host }

// RequestName is the name of a request's paper.
func RequestName(id string) string { return string(FormRequest) + "/" + id }

func (r *Request) validate() error {
	of := "request " + r.ID
	return first(r.Terms.validate(), text(of, "purpose", r.Purpose, mostText), said(of, "made", &r.Made),
		said(of, "withdrawn", r.Withdrawn), said(of, "noticed", r.Noticed), said(of, "drained", r.Drained),
		said(of, "hostGone", r.HostGone), said(of, "confirmed", r.Confirmed))
}

// Acceptance is that the host agrees.
type Acceptance struct {
	Moment
	// Terms is the digest of what it agrees to.
	Terms string `json:"terms"`
	// Automatic: the host's operator accepted by the offer's word.
	Automatic bool `json:"automatic,omitempty"`
}

// Deletion is the host's receipt: it deleted everything.
type Deletion struct {
	Moment
	Objects int64          `json:"objects"`
	Bytes   quantity.Bytes `json:"bytes"`
}

// Place is where the room is.
type Place struct {
	// Endpoint is the URL of the store; empty of room at a gateway.
	Endpoint string `json:"endpoint,omitempty"`
}

// Answer is the host's side of an agreement. Its writer is the host.
type Answer struct {
	ID       string      `json:"id"`
	Guest    string      `json:"guest"`
	Host     string      `json:"host"`
	Declined *Moment     `json:"declined,omitempty"`
	Accepted *Acceptance `json:"accepted,omitempty"`
	// Ready is where the room is, once it is there. It may move.
	Ready *Place `json:"ready,omitempty"`
	// Noticed is notice by the host. Unpaid says that the guest did not pay, which is notice too.
	Noticed *Moment `json:"noticed,omitempty"`
	Unpaid  *Moment `json:"unpaid,omitempty"`
	// Deleting: the host deletes what is there. Deleted: nothing is.
	Deleting *Moment   `json:"deleting,omitempty"`
	Deleted  *Deletion `json:"deleted,omitempty"`
}

func (a *Answer) name() string                  { return AnswerName(a.ID) }
func (a *Answer) writer() string                { return a.Host }
func (a *Answer) parties() (guest, host string) { return a.Guest, a.Host }

// AnswerName is the name of an answer's paper.
func AnswerName(id string) string { return string(FormAnswer) + "/" + id }

func (a *Answer) validate() error {
	of := "answer " + a.ID
	if err := first(id(of, a.ID), organization(of, "guest", a.Guest), organization(of, "host", a.Host), said(of, "declined", a.Declined),
		said(of, "noticed", a.Noticed), said(of, "unpaid", a.Unpaid), said(of, "deleting", a.Deleting)); err != nil {
		return err
	}
	switch {
	case (a.Declined == nil) == (a.Accepted == nil):
		return bad(of, "declined", "said as accepted is", "either decline or accept")
	case a.Accepted == nil && (a.Ready != nil || a.Noticed != nil || a.Unpaid != nil || a.Deleting != nil || a.Deleted != nil):
		return bad(of, "declined", "said of an agreement", "nothing follows what was declined")
	case a.Deleted != nil && a.Deleting == nil:
		return bad(of, "deleted", "said without deleting", "say first that you delete")
	case a.Deleted != nil && (a.Deleted.Objects < 0 || a.Deleted.Bytes < 0):
		return bad(of, "deleted", "less than nothing", "say how much was deleted")
	}
	if a.Accepted != nil {
		if err := said(of, "accepted", &a.Accepted.Moment); err != nil {
			return err
		}
		if b, err := hex.DecodeString(a.Accepted.Terms); err != nil || len(b) != sha256.Size {
			return bad(of, "accepted.terms", fmt.Sprintf("%q", a.Accepted.Terms), "give the digest of the request's terms")
		}
	}
	if a.Deleted != nil {
		if err := said(of, "deleted", &a.Deleted.Moment); err != nil {
			return err
		}
	}
	if a.Ready == nil {
		return nil
	}
	if e := a.Ready.Endpoint; e != "" {
		if u, err := url.Parse(e); err != nil || u.Scheme != "https" || u.Host == "" {
			return bad(of, "ready.endpoint", fmt.Sprintf("%q", e), "write a URL, such as https://store.example.org")
		}
	}
	return nil
}
