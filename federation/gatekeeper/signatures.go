// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"slices"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/gatekeeper/papers"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// asked is a write as package signed judges it.
func (q *request) asked(w write) signed.Asked {
	f, known := q.facts[w.key]
	return signed.Asked{By: q.who, Now: q.now, Key: w.key, Value: w.value, There: f.value, Read: known, Refused: q.refused,
		Look: func(key string) []byte {
			if kind := kindOf(key); kind == kindGateway || kind == kindName {
				return nil // the indexes are not signed
			}
			return q.facts[key].value
		}}
}

// signature is gatekeeper-11. done: the write needs no other judgement.
func (q *request) signature(w write) (done bool, err error) {
	if w.prefixed || !w.deletes && len(w.value) == 0 {
		return false, nil
	}
	if done, err = q.seal.Admit(q.asked(w)); err != nil {
		err = q.deny(w.key, "%v", err)
	}
	return done, err
}

// putsBack reports whether a gateway puts back what counts over what is forged.
func (q *request) putsBack(w write) bool {
	if w.prefixed || w.deletes || q.who.Part != pki.PartGateway || !signed.Covers(w.key) || !signed.Has(w.value) ||
		kindOf(w.key) == string(federation.KindPaper) {
		return false
	}
	a := q.asked(w)
	return a.There != nil && signed.IsForgery(q.seal.Check(w.key, a.There, signed.Known{First: true}, a.Look)) && q.seal.PutsBack(a) == nil
}

// signers returns keys by which signatures are judged that were not made for this request.
func (q *request) signers() (keys []string) {
	for _, w := range q.writes {
		if !w.prefixed && path(w.key, 1) != nil {
			keys = append(keys, q.seal.Judges(q.asked(w))...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// paper is gatekeeper-13.
func (q *request) paper(w write) error {
	s, err := q.site()
	if err != nil {
		return err
	}
	known := s != nil
	if known && q.who.Part == pki.PartGateway {
		known, err = q.gateway(q.who.Gateway)
	}
	if err == nil {
		err = papers.Judge(papers.Change{Who: q.who, Registered: known, Now: q.now, Key: w.key, Value: w.value, Seal: q.seal,
			Expelled: q.credentials.Expelled, Read: func(key string) []byte { return q.facts[key].value },
			Written: func(key string) []byte {
				if x := q.written(key); x != nil {
					return x.value
				}
				return nil
			}})
	}
	if err != nil {
		err = q.deny(w.key, "%v", err)
	}
	return err
}
