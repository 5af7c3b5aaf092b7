// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"slices"

	"github.com/weir-storage/weir/federation/signed"
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
