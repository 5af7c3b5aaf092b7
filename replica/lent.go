// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
)

// StoreAt is how far a lent store has the log (protocol-10). It never acknowledges anything.
type StoreAt struct {
	Agreement, Site string
	// End is the end of the segments that it has without a gap.
	End Position
	// Problem is why the last try to put a segment there failed; empty: it did not.
	Problem string
	// Idle: nothing of this volume was on its way lately, since others are: no writer waits for it.
	Idle bool
}

// lentStore is a lent store at the home. Replica.mu guards it.
type lentStore struct {
	StoreAt
	caught bool // it was within the limit since it takes segments
}

// NoteStores says how far the lent stores are that are to have the log; the caller puts segments
// there. Writers are slowed for one that takes segments and falls behind, as for a copy.
func (r *Replica) NoteStores(all []StoreAt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := map[string]*lentStore{}
	for _, at := range all {
		s := &lentStore{StoreAt: at}
		if was := r.lent[at.Agreement]; was != nil {
			s.caught = was.caught && at.Problem == ""
		}
		next[at.Agreement] = s
	}
	r.lent = next
}

// Stores returns how far each lent store trails, by agreement. It returns nil if this gateway is
// not the home.
func (r *Replica) Stores() (out []federation.ObservedStore) {
	end := r.cfg.Log.End()
	now := r.node.cfg.Clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leading {
		return nil
	}
	if len(r.lent) == 0 {
		return nil
	}
	sealed := r.cfg.Log.Sealed(r.core.Commit()) // end of what could be there
	for _, s := range r.lent {
		o := federation.ObservedStore{Agreement: s.Agreement, Site: s.Site, Problem: s.Problem}
		o.Whole = s.Problem == "" && !s.End.Less(sealed)
		if at := r.sealedEnd(s.StoreAt, end); at.Less(end) {
			o.LagBytes, o.LagSeconds = r.cfg.Log.Distance(at, end), r.lag.Behind(at, now).Seconds()
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b federation.ObservedStore) int { return cmp.Compare(a.Agreement, b.Agreement) })
	return out
}

// sealedEnd is where a store's copy ends. One that has the segment before the one that the log ends
// in lacks nothing before that one's first record.
func (*Replica) sealedEnd(s StoreAt, end Position) Position {
	if s.End.Seq+1 == end.Seq {
		return Position{Seq: end.Seq, Off: segment.HeaderSize}
	}
	return s.End
}

// storesTrail reports whether a lent store that takes segments trails further than the policy
// allows (protocol-11). The caller holds r.mu.
func (r *Replica) storesTrail(end Position, now time.Duration) bool {
	for _, s := range r.lent {
		switch {
		case s.Problem != "" || s.Idle:
		case !r.trails(r.sealedEnd(s.StoreAt, end), end, now):
			s.caught = true
		case s.caught:
			return true
		}
	}
	return false
}
