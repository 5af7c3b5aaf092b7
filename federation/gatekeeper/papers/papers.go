// SPDX-License-Identifier: Apache-2.0

// Package papers judges changes of papers of the exchange for a gatekeeper (gatekeeper-13), by the
// rules of package federation/paper.
package papers

import (
	"errors"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

const prefix = string(federation.KindPaper) + "/"

// Change is a change of a paper. Values are as the registry has them; nil: there is none.
type Change struct {
	Who pki.Identity
	// Registered: his site is known, as one of his organization, and he as its gateway, if he is
	// one.
	Registered bool
	Now        time.Time
	Key        string
	// Expelled reports whether an organization is not of the federation any more.
	Expelled func(organization string) bool
	Value    []byte // what is written, nil: it is deleted
	// Read returns what is there of a key, and Written what the same request writes.
	Read, Written func(key string) []byte
	Seal          *signed.Seal // says what counts
}

func read(key string, value []byte) (*paper.Paper, error) {
	if value == nil {
		return nil, nil
	}
	out := new(paper.Paper)
	return out, federation.Decode(string(federation.KindPaper), strings.TrimPrefix(key, prefix), value, out)
}

// known is read for papers by which others are judged: one that cannot be read is none.
func known(of func(key string) []byte) func(name string) *paper.Paper {
	return func(name string) *paper.Paper {
		p, err := read(prefix+name, of(prefix+name))
		if err != nil {
			return nil
		}
		return p
	}
}

// counts is what is there of a key. What was forged is as if it were not there.
func (c Change) counts(key string) []byte {
	if value := c.Read(key); value != nil && c.Seal.Check(key, value, signed.Known{First: true}, nil) == nil {
		return value
	}
	return nil
}

// Judge returns why a change is refused.
func Judge(c Change) error {
	after, err := read(c.Key, c.Value)
	if err != nil {
		return err
	}
	before, err := read(c.Key, c.counts(c.Key))
	if err != nil {
		before = nil
	}
	if admin := c.Who.Part == pki.PartAdministrator; admin && after == nil &&
		(before == nil || c.Expelled(before.Writer())) { // what nobody can read, or whose organization is gone
		return nil
	}
	of := after
	if of == nil {
		of = before
	}
	if of == nil {
		return nil
	}
	if prefix+of.Name() != c.Key {
		return errors.New("its value is of " + of.Name())
	}
	switch may := of.WrittenBy(signed.AuthorOf(c.Who)); {
	case after == nil && of.Usage != nil && c.Who.Organization == of.Writer() &&
		(c.Who.Part == pki.PartPerson || c.Who.Part == pki.PartOperator && c.Registered): // they clean up
	case may != nil:
		return may
	case c.Who.Part != pki.PartPerson && !c.Registered:
		return errors.New("its site is not registered as one of its organization")
	}
	return paper.Case{Now: c.Now, By: c.Who.String(), Is: known(c.counts), Written: known(c.Written)}.
		Judge(before, after)
}

// Keys are those by which a change of a paper or of a volume's record is judged, besides its own.
func Keys(key string, value, there []byte) (out []string) {
	add := func(names ...string) {
		for _, n := range names {
			out = append(out, prefix+n)
		}
	}
	if !strings.HasPrefix(key, prefix) {
		var v federation.Volume
		if len(value) == 0 || federation.Decode(string(federation.KindVolume), key, value, &v) != nil {
			return nil
		}
		was := federation.Volume{}
		if len(there) > 0 && federation.Decode(string(federation.KindVolume), key, there, &was) != nil {
			return nil
		}
		for _, ids := range [][]string{v.Agreed, v.Stores, was.Agreed} {
			for _, id := range ids[:min(len(ids), mostAgreed)] {
				add(paper.RequestName(id), paper.AnswerName(id))
			}
		}
		return out
	}
	after, err := read(key, value)
	if err != nil || after == nil {
		after = &paper.Paper{}
	}
	before, err := read(key, there)
	if err != nil || before == nil {
		before = &paper.Paper{}
	}
	if r := after.Request; r != nil {
		add(paper.OfferName(r.Host, r.Offer))
	}
	_, name, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
	switch form, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/"); paper.Form(form) {
	case paper.FormOffer:
		if before.Offer == nil || after.Offer == nil {
			break
		}
		for id := range before.Offer.Given {
			if _, stays := after.Offer.Given[id]; !stays {
				add(paper.RequestName(id), paper.AnswerName(id))
			}
		}
	case paper.FormRequest, paper.FormAnswer, paper.FormRoom, paper.FormUsage:
		id, _, _ := strings.Cut(name, "/")
		add(paper.RequestName(id), paper.AnswerName(id))
	}
	return out
}
