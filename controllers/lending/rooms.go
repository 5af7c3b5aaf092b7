// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/federation/view"
)

// slices of an agreement: into how many it is cut. The smallest is least, or of a small agreement a
// quarter, into which a segment fits.
const (
	cuts     = 16
	least    = quantity.Bytes(1 << 30)
	smallest = quantity.Bytes(128 << 20)
)

// slice is the amount in which gateways get room of an agreement.
func slice(amount quantity.Bytes) quantity.Bytes {
	return min(max(amount/cuts, min(least, max(amount/4, smallest))), amount)
}

// wanted is how much room a gateway should have that has some now, and uses so much: what it uses
// and a slice. It gets more when half a slice is left, and gives back what is two slices too much;
// free is what nobody has. A gateway that fills nothing, since it is the home of no volume that is
// to be there, gets some while that leaves a slice to others, also if all do the same: so that it
// has some when it needs it. It gives back what it does not use when less than one is: others need
// it. all is how many gateways have room. What is more than the agreement, by a mistake, goes back.
func wanted(amount, now, used, free quantity.Bytes, fills bool, all int) quantity.Bytes {
	cut := slice(amount)
	target := now
	switch left := now - used; {
	case !fills && free < cut:
		target = min(now, used)
	case left > 2*cut, left < (cut+1)/2 && (fills || free >= quantity.Bytes(max(all, 1)+1)*cut):
		target = used + cut
	}
	if free < 0 {
		target = min(target, max(used, now+free))
	}
	return max(min(target, now+max(free, 0)), 0)
}

// gives gives this cluster's gateways room of an agreement: what its object says, and otherwise in
// slices, at the site that asked. Gateways that no site has any more keep what the store counted.
func (r *agreements) gives(ctx context.Context, obj *v1alpha1.StorageAgreement, a agreed) error {
	if a.Request.Kind != paper.KindStore || !a.Writes(r.Now()) {
		return nil
	}
	asked, err := r.asked(ctx, a.Request.ID)
	if err != nil {
		return err
	}
	site, _ := r.Mirror.Site(r.Site)
	id, amount := a.Request.ID, a.Request.Amount
	free := amount
	has := map[string]quantity.Bytes{}
	for _, p := range r.Mirror.Papers(paper.RoomName(id, "")) {
		if p.Room != nil {
			has[p.Room.Gateway] = p.Room.Bytes
			free -= p.Room.Bytes
		}
	}
	for _, said := range obj.Spec.Rooms {
		if !slices.ContainsFunc(site.Gateways, func(g federation.Gateway) bool { return g.Name == said.Gateway }) {
			return outcome.Stopped(v1alpha1.ReasonRefused, fmt.Sprintf("spec.rooms: site %s has no gateway %q: name one of this site's",
				r.Site, said.Gateway))
		}
		if err := r.gave(ctx, id, said.Gateway, has, bytes(&said.Amount)); err != nil {
			return fmt.Errorf("spec.rooms: %w", err)
		}
		free -= bytes(&said.Amount) - has[said.Gateway]
	}
	if asked {
		for g, now := range has {
			if used := r.by(paper.UsageName(id, paper.Host, a.Request.Site), g); now > used && !r.lives(g) {
				free += now - used
				if err := r.gave(ctx, id, g, has, used); err != nil {
					return err
				}
			}
		}
	}
	fills := r.Mirror.Fills(id)
	for _, g := range site.Gateways {
		if slices.ContainsFunc(obj.Spec.Rooms, func(said v1alpha1.AgreementRoom) bool { return said.Gateway == g.Name }) {
			continue
		}
		now, given := has[g.Name]
		if !given && !asked || a.Phase != paper.Active {
			continue
		}
		want := wanted(amount, now, r.used(id, g.Name), free, fills[g.Name], len(has))
		free -= want - now
		if err := r.gave(ctx, id, g.Name, has, want); err != nil {
			return err
		}
	}
	return nil
}

func (r *agreements) gave(ctx context.Context, id, gateway string, has map[string]quantity.Bytes, bytes quantity.Bytes) error {
	if now, given := has[gateway]; given && now == bytes {
		return nil
	}
	return r.desk.Room(ctx, id, gateway, bytes)
}

// used is how much a gateway has there, by the larger count of both sides.
func (r *agreements) used(id, gateway string) (most quantity.Bytes) {
	for _, p := range r.Mirror.Papers(string(paper.FormUsage) + "/" + id + "/") {
		if p.Usage != nil {
			most = max(most, p.Usage.Of[gateway].Stored)
		}
	}
	return most
}

// by is how much a gateway has there, as one counted.
func (r *agreements) by(usage, gateway string) quantity.Bytes {
	u, told := r.Mirror.Paper(usage)
	if !told {
		return 0
	}
	return u.Usage.Of[gateway].Stored
}

// lives reports whether a site of this organization has a gateway. One that is gone for ever is
// taken out of the site's record (`weir site remove`).
func (r *agreements) lives(gateway string) bool {
	_, site, ok := r.Mirror.Gateway(gateway)
	return ok && site.Organization == r.Organization
}

// empty reports whether nothing of this organization is there, nor will be, although the agreement
// can be used: no volume is to be in its store, and each gateway that has room has counted since
// notice was given, and found nothing. For a gateway that no site has any more the store has
// counted: nobody else can, and what it keeps or loses is the host's anyway.
func (r *agreements) empty(a agreed) bool {
	if a.Request.Kind == paper.KindCache {
		return !r.Now().Before(a.Ends) // what is kept is kept until then
	}
	id, noticed := a.Request.ID, a.Ends.Add(-time.Duration(a.Request.Notice))
	if _, volumes := r.Mirror.Promised(view.StoreLoad(id)); volumes > 0 {
		return false
	}
	for _, p := range r.Mirror.Papers(paper.RoomName(id, "")) {
		g := p.Room.Gateway
		by := paper.UsageName(id, paper.Guest, g)
		if !r.lives(g) {
			by = paper.UsageName(id, paper.Host, a.Request.Site)
		}
		u, told := r.Mirror.Paper(by)
		if !told || u.Usage.At.Before(noticed) || u.Usage.Of[g].Stored > 0 {
			return false
		}
	}
	return true
}

// asked reports whether this cluster's gateways need room of an agreement: it has the object that
// asked for it, or a volume that is to be in its store has a copy here.
func (r *agreements) asked(ctx context.Context, id string) (bool, error) {
	if r.Mirror.Stored(id) {
		return true, nil
	}
	var list v1alpha1.StorageRequestList
	if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	return slices.ContainsFunc(list.Items, func(q v1alpha1.StorageRequest) bool { return string(q.UID) == id }), nil
}

// aged thins samples: one of each hour for two days, and one of each day for three months.
func aged(all []v1alpha1.UsageSample, now time.Time) (out []v1alpha1.UsageSample) {
	const days, hours = 92 * 24 * time.Hour, 48 * time.Hour
	var last time.Time
	for i, s := range all {
		age, every := now.Sub(s.At.Time), 24*time.Hour
		if age > days {
			continue
		}
		if age <= hours {
			every = time.Hour
		}
		if i < len(all)-1 && !last.IsZero() && s.At.Truncate(every).Equal(last.Truncate(every)) {
			continue
		}
		out, last = append(out, s), s.At.Time
	}
	return out
}
