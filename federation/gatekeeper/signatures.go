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
	if !signed.Has(w.value) {
		if q.seal.Since().IsZero() {
			return false, nil
		}
		return false, q.deny(w.key, "it has no signature, and the charter asks for one since %s: upgrade the program that writes it",
			q.seal.Since().Format(time.RFC3339))
	}
	by, at, err := q.seal.By(w.key, w.value)
	there := q.facts[w.key].value
	switch {
	case err != nil:
		return false, q.deny(w.key, "%v", err)
	case q.who.Part == pki.PartAdministrator && q.refused:
		return false, nil // he brings forward what others know
	case by != q.who || handsOn(q.who, at, q.now):
		return true, q.heals(w, by)
	case at.Sub(q.now).Abs() > tolerance:
		return false, q.deny(w.key, "it was signed at %s, and now it is %s: set the clock", at.Format(time.RFC3339), q.now.Format(time.RFC3339))
	}
	n, was := q.seal.Number(w.key, w.value), uint64(0)
	if !signed.IsForgery(q.seal.Check(w.key, there, signed.Known{First: true}, q.look)) {
		was = q.seal.Number(w.key, there)
	}
	if n > 0 && (n <= was || n > uint64(q.now.Add(tolerance).UnixMilli())) {
		return false, q.deny(w.key, "its signature says that it is write %d of it, and %d was the last", n, was)
	}
	if q.who.Part == pki.PartAdministrator && w.key != kindReconciled && signed.SameRecord(w.value, there) && !signed.Settled(there) {
		return true, nil // he endorses it
	}
	return false, nil
}

const (
	// tolerance is how much clocks may differ.
	tolerance = time.Hour
	// justNow is how old a signature is at most that somebody made for this very request.
	justNow = 5 * time.Minute
)

// handsOn reports whether a gateway writes what it signed long ago: it puts back its own word.
func handsOn(who pki.Identity, at, now time.Time) bool {
	return who.Part == pki.PartGateway && now.Sub(at) > justNow
}

// look is what the gatekeeper read of another record. Its indexes are not signed.
func (q *request) look(key string) []byte {
	if kind := kindOf(key); kind == kindGateway || kind == kindName {
		return nil
	}
	return q.facts[key].value
}

// heals judges a gateway that puts back what was signed before (signed-6): where what is there is
// forged, or is an earlier write of the record, or was deleted although its volume was not purged.
func (q *request) heals(w write, by pki.Identity) error {
	if q.who.Part != pki.PartGateway { // also one whose own site's record was overwritten
		return q.deny(w.key, "it is signed by %s, and only gateways put back what somebody else signed", by)
	}
	f, known := q.facts[w.key]
	look := func(key string) []byte {
		if key == w.key {
			return w.value
		}
		return q.look(key)
	}
	if !known {
		return q.deny(w.key, "it is signed by %s", by)
	}
	if err := q.seal.Check(w.key, w.value, signed.Known{First: true}, look); err != nil {
		return q.deny(w.key, "%v", err)
	}
	switch {
	case f.value == nil && !signed.Stays(w.key):
		return q.deny(w.key, "it was deleted, and is not put back")
	case f.value == nil:
		purge := purgeOf(w.key)
		if p := q.facts[purge]; p.value != nil && q.seal.Check(purge, p.value, signed.Known{First: true}, look) == nil {
			return q.deny(w.key, "its volume was purged")
		}
		return nil
	}
	why := q.seal.Check(w.key, f.value, signed.Known{Value: w.value}, look)
	if !signed.IsForgery(why) && (why == nil || !q.seal.Older(w.key, f.value, w.value)) {
		return q.deny(w.key, "it is signed by %s, and what is there counts, or may", by)
	}
	return nil
}

// clears reports whether a gateway takes away what nobody may have written: it would be in the way.
func (q *request) clears(w write) bool {
	f, known := q.facts[w.key]
	return known && f.value != nil && !w.prefixed && signed.Covers(w.key) && q.who.Part == pki.PartGateway &&
		signed.IsForgery(q.seal.Check(w.key, f.value, signed.Known{First: true}, q.look))
}

// purgeOf is the key of the purge of a record's volume.
func purgeOf(key string) string { return join(federation.KindPurged, path(key, 1)[0]) }

// signers returns keys by which signatures are judged that were not made for this request.
func (q *request) signers() (keys []string) {
	for _, w := range q.writes {
		if w.prefixed || !signed.Covers(w.key) || path(w.key, 1) == nil && w.key != kindReconciled || q.who.Part != pki.PartGateway {
			continue
		}
		if !w.deletes {
			by, at, err := q.seal.By(w.key, w.value)
			if err != nil || by == q.who && !handsOn(q.who, at, q.now) {
				continue
			}
			keys = append(keys, w.key, join(federation.KindSite, by.Site))
			keys = append(keys, signed.About(w.key, w.value)...)
		}
		if there := q.facts[w.key].value; there != nil {
			if by, _, err := q.seal.By(w.key, there); err == nil {
				keys = append(keys, join(federation.KindSite, by.Site))
			}
			keys = append(keys, signed.About(w.key, there)...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
