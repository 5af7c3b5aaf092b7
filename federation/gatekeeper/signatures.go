// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"slices"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/pki"
)

// signature is gatekeeper-11. done: the write needs no other judgement.
func (q *request) signature(w write) (done bool, err error) {
	if w.deletes {
		return q.clears(w), nil
	}
	if w.prefixed || !signed.Covers(w.key) {
		return false, nil
	}
	by, at, err := q.seal.By(w.key, w.value)
	switch {
	case !signed.Has(w.value) && q.seal.Since().IsZero():
		return false, nil
	case !signed.Has(w.value):
		return false, q.deny(w.key, "it has no signature, and the charter asks for one since %s: upgrade the program that writes it",
			q.seal.Since().Format(time.RFC3339))
	case err != nil:
		return false, q.deny(w.key, "%v", err)
	case by != q.who && q.who.Part == pki.PartAdministrator && q.refused:
		return false, nil // he brings forward what others know
	case by != q.who:
		return true, q.heals(w, by)
	case at.Sub(q.now).Abs() > time.Hour:
		return false, q.deny(w.key, "it was signed at %s, and now it is %s: set the clock", at.Format(time.RFC3339),
			q.now.Format(time.RFC3339))
	}
	if n, was := q.seal.Number(w.key, w.value), q.seal.Number(w.key, q.facts[w.key].value); n > 0 && (n <= was || n > was+mostWrites) {
		return false, q.deny(w.key, "its signature says that it is write %d of it, and %d was the last", n, was)
	}
	if q.who.Part == pki.PartAdministrator && w.key != kindReconciled && signed.SameRecord(w.value, q.facts[w.key].value) &&
		!signed.Settled(q.facts[w.key].value) {
		return true, nil // he endorses it
	}
	return false, nil
}

// mostWrites is how much a number may grow at once: of what is there others may know later writes.
const mostWrites = 1000

// heals judges a gateway that puts back what somebody else signed (signed-6).
func (q *request) heals(w write, by pki.Identity) error {
	if q.who.Part != pki.PartGateway { // also one whose own site's record was overwritten
		return q.deny(w.key, "it is signed by %s, and only gateways put back what somebody else signed", by)
	}
	_, known := q.facts[w.key]
	there := q.facts[w.key].value
	look := func(key string) []byte { return q.facts[key].value }
	switch {
	case !known:
		return q.deny(w.key, "it is signed by %s", by)
	case there == nil && (!signed.Stays(w.key) || q.facts[purgeOf(w.key)].revision != 0):
		return q.deny(w.key, "it was deleted, and is not put back")
	case there != nil && q.seal.Check(w.key, there, w.value, look) == nil:
		return q.deny(w.key, "it is signed by %s, and what is there counts", by)
	}
	if err := q.seal.Check(w.key, w.value, nil, look); err != nil {
		return q.deny(w.key, "%v", err)
	}
	return nil
}

// clears reports whether a gateway takes away a notice that does not count: nothing changes while
// there is one.
func (q *request) clears(w write) bool {
	f, known := q.facts[w.key]
	return known && !w.prefixed && kindOf(w.key) == kindNotice && q.who.Part == pki.PartGateway &&
		q.seal.Check(w.key, f.value, nil, func(key string) []byte { return q.facts[key].value }) != nil
}

func purgeOf(key string) string { return join(federation.KindPurged, path(key, 1)[0]) }

// signers returns keys by which the signature of somebody else than the requester is judged.
func (q *request) signers() (keys []string) {
	for _, w := range q.writes {
		if w.deletes && kindOf(w.key) == kindNotice {
			if by, _, err := q.seal.By(w.key, q.facts[w.key].value); err == nil {
				keys = append(keys, join(federation.KindSite, by.Site))
			}
		}
		if w.deletes || w.prefixed || !signed.Has(w.value) {
			continue
		}
		by, _, err := q.seal.By(w.key, w.value)
		if err != nil || by == q.who {
			continue
		}
		if keys = append(keys, w.key, join(federation.KindSite, by.Site)); path(w.key, 1) == nil {
			continue
		}
		for _, value := range [][]byte{w.value, q.facts[w.key].value} {
			keys = append(keys, signed.About(w.key, value)...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
