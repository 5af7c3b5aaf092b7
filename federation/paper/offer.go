// SPDX-License-Identifier: Apache-2.0

package paper

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-storage/weir/federation/quantity"
)

// Kind is what is lent.
type Kind string

// Kinds.
const (
	// KindStore is room for objects: sealed segments, which the guest's gateways write.
	KindStore Kind = "Store"
	// KindCopy is room for copies of volumes at a gateway of the host: blind ones, unless the guest
	// wants to be read there.
	KindCopy Kind = "Copy"
	// KindCache is room in the cache pools of the host's gateways that is kept for the guest's
	// volumes.
	KindCache Kind = "Cache"
)

// Kinds are all.
func Kinds() []Kind { return []Kind{KindStore, KindCopy, KindCache} }

// Class is how fast the room is, as its host says.
type Class string

// Classes.
const (
	ClassArchive  Class = "Archive"
	ClassStandard Class = "Standard"
	ClassFast     Class = "Fast"
)

// Offer is room that an organization lends. Its writer is the host: a person or the operator.
type Offer struct {
	Organization string `json:"organization"`
	Name         string `json:"name"`
	Kind         Kind   `json:"kind"`
	Site         string `json:"site"`
	// Amount is how much in all, in bytes; Least is the smallest request, 0: any.
	Amount quantity.Bytes `json:"amount"`
	Least  quantity.Bytes `json:"least,omitempty"`
	// Automatic is how large a request may be that the host's operator accepts by itself; 0: none.
	Automatic quantity.Bytes `json:"automatic,omitempty"`
	// Media says on what it is, such as HDD; Class how fast that is.
	Media string `json:"media,omitempty"`
	Class Class  `json:"class,omitempty"`
	// Price and Terms are texts for people.
	Price string `json:"price,omitempty"`
	Terms string `json:"terms,omitempty"`
	// From and Until are when agreements may begin, and have to end; zero: any time.
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Notice is between notice and end of an agreement; Grace how long after it the guest may still
	// read what it did not bring elsewhere.
	Notice quantity.Duration `json:"notice"`
	Grace  quantity.Duration `json:"grace"`
	// To are the organizations that may ask; empty: all.
	To []string `json:"to,omitempty"`
	// Closed: nobody may ask any more. Agreements go on.
	Closed bool `json:"closed,omitempty"`
	// Given is how much went to agreements, by ID, in bytes (paper-4).
	Given map[string]quantity.Bytes `json:"given,omitempty"`
}

func (o *Offer) name() string                  { return OfferName(o.Organization, o.Name) }
func (o *Offer) writer() string                { return o.Organization }
func (o *Offer) parties() (guest, host string) { return "", "" }

// OfferName is the name of an offer's paper.
func OfferName(organization, name string) string {
	return string(FormOffer) + "/" + organization + "/" + name
}

// Free is how much of the offer went to nobody.
func (o *Offer) Free() quantity.Bytes {
	free := o.Amount
	for _, n := range o.Given {
		free -= n
	}
	return free
}

// For reports whether an organization may ask for the offer.
func (o *Offer) For(organization string) bool {
	return organization != o.Organization && (len(o.To) == 0 || slices.Contains(o.To, organization))
}

func (o *Offer) validate() error {
	of := "offer " + o.Name
	if err := first(organization(of, "organization", o.Organization), label(of, "name", o.Name), label(of, "site", o.Site),
		text(of, "media", o.Media, mostWord), text(of, "price", o.Price, mostText), text(of, "terms", o.Terms, mostText),
		span(of, "notice", o.Notice), span(of, "grace", o.Grace)); err != nil {
		return err
	}
	if len(o.To) > mostNamed {
		return bad(of, "to", fmt.Sprintf("%d organizations", len(o.To)), fmt.Sprintf("name %d at most, or none for all", mostNamed))
	}
	for _, to := range o.To {
		if err := organization(of, "to", to); err != nil {
			return err
		}
	}
	for given, n := range o.Given {
		if err := id(of, given); err != nil || n <= 0 {
			return first(err, bad(of, "given", n.String(), "an agreement takes more than nothing"))
		}
	}
	switch {
	case !slices.Contains(Kinds(), o.Kind):
		return bad(of, "kind", fmt.Sprintf("%q", o.Kind), fmt.Sprintf("write one of %q", Kinds()))
	case o.Class != "" && !slices.Contains([]Class{ClassArchive, ClassStandard, ClassFast}, o.Class):
		return bad(of, "class", fmt.Sprintf("%q", o.Class), "write Archive, Standard or Fast")
	case o.Amount <= 0:
		return bad(of, "amount", o.Amount.String(), "offer more than nothing, such as 10Ti")
	case o.Least < 0 || o.Least > o.Amount:
		return bad(of, "least", o.Least.String(), fmt.Sprintf("use an amount up to %v, all that is offered", o.Amount))
	case o.Automatic < 0 || o.Automatic > o.Amount:
		return bad(of, "automatic", o.Automatic.String(), fmt.Sprintf("use an amount up to %v, all that is offered", o.Amount))
	case !o.Until.IsZero() && !o.Until.After(o.From):
		return bad(of, "until", o.Until.Format(time.RFC3339), "it is not after from: use a later time, or none")
	case o.Free() < 0:
		return bad(of, "amount", o.Amount.String(), fmt.Sprintf("%v went to agreements: offer as much at least", o.Amount-o.Free()))
	}
	return nil
}
