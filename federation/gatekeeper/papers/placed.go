// SPDX-License-Identifier: Apache-2.0

package papers

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/signed"
)

// mostAgreed is by how many agreements a volume may have copies at others, and be in their stores.
const mostAgreed = 16

// Placing is a change of where a volume is to be.
type Placing struct {
	Prev *federation.Volume // nil: it is made
	Next federation.Volume
	Now  time.Time
	// Site returns what is there of a site; nil: it is not registered.
	Site func(name string) (*federation.Site, error)
	// Read returns what is there of a key, and Seal says what counts.
	Read func(key string) []byte
	Seal *signed.Seal
}

// Judge returns why a volume may not be there (gatekeeper-2). Each site is the owner's own, or
// lends to it, or there is an agreement about copies there which the record names. If the copy is
// new or grows, that can be used, and is large enough for this volume. How much all volumes of an
// agreement take, the site's gateways look at. A copy that is there stays; if that was by an
// agreement, it is so by one still.
func (p Placing) Judge() error {
	if err := p.names(); err != nil {
		return err
	}
	is := known(Change{Seal: p.Seal, Read: p.Read}.counts)
	for _, name := range p.Next.Sites {
		s, err := p.Site(name)
		if err != nil {
			return err
		}
		here := p.Prev != nil && slices.Contains(p.Prev.Sites, name)
		switch {
		case s == nil && here, s != nil && s.Takes(p.Next.Owner):
			continue
		case s == nil:
			return fmt.Errorf("site %s is not registered", name)
		}
		by := about(is, p.Next.Agreed, name, p.takes)
		grows := p.Prev == nil || p.Next.Spec.Size > p.Prev.Spec.Size
		switch {
		case here && by == nil && about(is, p.Prev.Agreed, name, nil) != nil:
			return fmt.Errorf("the copy at site %s is there by agreement %s: name it in agreed, or another about copies there, or take "+
				"the copy away", name, about(is, p.Prev.Agreed, name, nil).ID)
		case here && (by == nil || !grows && slices.Contains(p.Prev.Agreed, by.ID)):
			continue
		case by == nil || !p.takes(is, by, name):
			return fmt.Errorf("site %s belongs to %q, and lends no room to %q: ask there", name, s.Organization, p.Next.Owner)
		case p.Next.Spec.Size > by.Amount:
			return fmt.Errorf("spec.size is %v, and agreement %s with %q is about %v: ask there for more", p.Next.Spec.Size, by.ID,
				by.Host, by.Amount)
		}
	}
	return nil
}

type papersBy = func(name string) *paper.Paper

// about is an agreement about copies at a site, of these: one that is good, if any is; nil: none is
// about that.
func about(is papersBy, ids []string, site string, good func(is papersBy, r *paper.Request, site string) bool) (first *paper.Request) {
	for _, id := range ids {
		r := is(paper.RequestName(id))
		if r == nil || r.Request == nil || r.Request.Kind != paper.KindCopy || r.Request.Site != site {
			continue
		}
		if good != nil && good(is, r.Request, site) {
			return r.Request
		}
		first = cmp.Or(first, r.Request)
	}
	return first
}

func (p Placing) takes(is papersBy, r *paper.Request, site string) bool {
	a := is(paper.AnswerName(r.ID))
	return a != nil && r.Takes(a.Answer, p.Next.Owner, site, p.Now)
}

// names judges the agreements that the record names anew: its owner's, of the right kind, and of
// copies one that can be used. What it names stays, also if the registry has lost it.
func (p Placing) names() error {
	var was federation.Volume
	if p.Prev != nil {
		was = *p.Prev
	}
	is := known(Change{Seal: p.Seal, Read: p.Read}.counts)
	for _, x := range []struct {
		field    string
		ids, was []string
		kind     paper.Kind
	}{{"agreed", p.Next.Agreed, was.Agreed, paper.KindCopy}, {"stores", p.Next.Stores, was.Stores, paper.KindStore}} {
		if len(x.ids) > mostAgreed {
			return fmt.Errorf("%s: %d agreements: name %d at most", x.field, len(x.ids), mostAgreed)
		}
		for _, id := range x.ids {
			if slices.Contains(x.was, id) && was.Owner == p.Next.Owner { // it was judged
				continue
			}
			r := is(paper.RequestName(id))
			switch {
			case r == nil || r.Request == nil:
				return fmt.Errorf("%s: there is no agreement %s", x.field, id)
			case r.Request.Guest != p.Next.Owner || r.Request.Kind != x.kind:
				return fmt.Errorf("%s: agreement %s lends %q a %s, and the volume is of %q: name one of its own, or take it out first",
					x.field, id, r.Request.Guest, r.Request.Kind, p.Next.Owner)
			case x.kind == paper.KindCopy && !slices.Contains(x.was, id) && !p.takes(is, r.Request, r.Request.Site):
				return fmt.Errorf("%s: agreement %s cannot be used: %q has not accepted it, or it ends", x.field, id, r.Request.Host)
			}
		}
	}
	return nil
}
