// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

// Room is a lent store, or room for copies, that the volume's organization has by agreement.
type Room struct {
	// Agreement is its ID, and the rest of the site where the room is.
	Agreement, Site, Organization, Region string
	Labels                                map[string]string
	// Writes: what is there may grow.
	Writes bool
	// Ending: it gets nothing that is new, since the agreement ends.
	Ending bool
	// Amount is what was agreed on, and Promised what all volumes, with this one, may take of it.
	Amount, Promised federation.Bytes
}

// stores chooses lent stores: those that the policy wants besides the copies, and instead of copies
// for which there is no site. The first lack no domain that another store has, the others none that
// a copy or a store has. Stores that have the volume come first; one whose agreement ends comes
// last.
func (p *placer) stores(lacking int) (chosen []string, err error) {
	if lacking+p.Spec.Replication.Stores == 0 {
		return nil, nil
	}
	order := slices.Clone(p.Rooms)
	present := func(r Room) bool { return slices.Contains(p.PresentStores, r.Agreement) }
	slices.SortFunc(order, func(a, b Room) int {
		preferred := p.Spec.Replication.Sites.Preferred
		return cmp.Or(first(!a.Ending, !b.Ending), first(present(a), present(b)),
			cmp.Compare(rank(p.PresentStores, a.Agreement), rank(p.PresentStores, b.Agreement)),
			cmp.Compare(rank(preferred, a.Site), rank(preferred, b.Site)), cmp.Compare(a.load(), b.load()), cmp.Compare(a.Agreement,
				b.Agreement))
	})
	taken := map[string]string{} // by domain
	for _, instead := range []bool{true, false} {
		want := p.Spec.Replication.Stores
		if instead {
			want = lacking
		}
		for _, r := range order {
			d := p.domain(&Candidate{Name: r.Site, Organization: r.Organization, Region: r.Region})
			other := taken[d]
			if instead && other == "" {
				other = p.taken[d]
			}
			rule, why := p.refuseRoom(r, present(r))
			switch {
			case want == 0 || slices.Contains(chosen, r.Agreement):
				continue
			case rule == "" && other != "":
				rule, why = RuleSpread, fmt.Sprintf("in %s, which has a copy at %s", d, other)
			}
			if rule != "" {
				p.refused = append(p.refused, Refusal{"store of agreement " + r.Agreement + " at " + r.Site, rule, why})
				continue
			}
			chosen, taken[d] = append(chosen, r.Agreement), r.Site
			p.count(r.spot())
			want--
		}
		if want > 0 && !instead {
			return nil, &Unplaceable{Refused: p.refused, Problem: fmt.Sprintf("%d lent stores are wanted, and %d more than there are: "+
				"borrow more room (StorageRequest), or lower spec.replication.stores", p.Spec.Replication.Stores, want)}
		}
		if want > 0 {
			break // the caller tells of copies
		}
	}
	slices.Sort(chosen)
	return chosen, nil
}

// refuseRoom returns the hard rule that forbids a lent store, or "".
func (p *placer) refuseRoom(r Room, present bool) (Rule, string) {
	need := p.Spec.Size
	if present {
		need -= p.PresentSize
	}
	c := &Candidate{Name: r.Site, Organization: r.Organization, Region: r.Region, Labels: r.Labels}
	switch {
	case slices.Contains(p.Spec.Replication.Sites.Forbidden, r.Site):
		return RuleForbidden, "forbidden by spec.replication.sites.forbidden"
	case !p.selector.Empty() && !p.selector.Matches(siteLabels{c}):
		return RuleSelector, fmt.Sprintf("its labels do not match spec.replication.sites.selector (%s)", p.selector)
	case r.Ending && !present:
		return RuleEnding, "the agreement ends"
	case need > 0 && r.Promised+need > r.Amount:
		return RuleCapacity, fmt.Sprintf("it lacks room: %s more are needed, and of the %s agreed on, %s are promised", need, r.Amount,
			r.Promised)
	}
	if why := p.over(r.spot(), present); why != "" {
		return RuleQuota, why
	}
	return "", ""
}

// load is the part of the agreement that is promised.
func (r Room) load() float64 { return float64(r.Promised) / float64(max(r.Amount, 1)) }

// store returns how a lent store of the volume is, how many seconds it is behind (−1: not known),
// and why it is not good.
func (s Seen) store(agreement string) (v1alpha1.StoreReplica, float64, string) {
	r := v1alpha1.StoreReplica{Agreement: agreement, State: replicaUnknown}
	if s.Observed == nil {
		return r, -1, "the home has not reported it yet"
	}
	i := slices.IndexFunc(s.Observed.Stores, func(o federation.ObservedStore) bool { return o.Agreement == agreement })
	if i < 0 {
		return r, -1, "the home has not reported it yet"
	}
	o := s.Observed.Stores[i]
	r.Site, r.State, r.Lag = v1alpha1.SiteName(o.Site), "Filling", lag(o.LagSeconds)
	bound := s.Volume.Spec.Durability.MaxLag
	switch {
	case o.Problem != "":
		r.State = "Failing"
		return r, -1, o.Problem
	case !o.Whole:
		return r, o.LagSeconds, fmt.Sprintf("it is being filled, and %s behind", federation.Bytes(o.LagBytes))
	}
	r.State = "Whole"
	if bound.Bytes > 0 && federation.Bytes(o.LagBytes) > bound.Bytes {
		return r, o.LagSeconds, fmt.Sprintf("it is %s behind, more than maxLag", federation.Bytes(o.LagBytes))
	}
	return r, o.LagSeconds, ""
}

// stores adds the volume's lent stores to the view, counts the good ones, and says what is wrong
// with the others.
func (v *View) stores(s Seen) (good int, missing []string) {
	for _, id := range s.Volume.Stores {
		r, _, problem := s.store(id)
		v.Stores = append(v.Stores, r)
		if problem == "" {
			good++
		} else {
			missing = append(missing, fmt.Sprintf("store of agreement %s: %s", short(id), problem))
		}
	}
	return good, missing
}

// short is enough of an ID for people.
func short(id string) string {
	out, _, _ := strings.Cut(id, "-")
	return out
}
