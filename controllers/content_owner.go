// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
)

// begin: the registry does not know the volume, which this cluster is to make.
func (r *contents) begin(ctx context.Context, c *content) error {
	if err := r.AddFinalizer(ctx, c.GeoVolumeContent); err != nil {
		return err
	}
	if c.Status.VolumeGeneration != 0 {
		v, _, err := r.find(ctx, c.Name)
		switch {
		case err != nil:
			return err
		case v == nil:
			return r.lost(c.Name)
		}
		return outcome.Waiting(v1alpha1.ReasonRegistryUnavailable, "the registry has the volume, and it is not in the operator's copy "+
			"of it yet", outcome.Soon)
	}
	if old := r.mirror.Named(c.Spec.FederationName); old != nil {
		return &outcome.Stop{Verdict: plan.Named(*old.Record, r.self, old.ClaimsOf(""))}
	}
	resolved, _, err := r.resolve(ctx, c)
	if err != nil {
		return err
	}
	return r.create(ctx, c, resolved)
}

// resolve is the policy that is wished for, and the generation of the VolumePolicy that it is made
// of.
func (r *contents) resolve(ctx context.Context, c *content) (plan.Resolved, int64, error) {
	var policy *v1alpha1.VolumePolicySpec
	var generation int64
	if name := c.Spec.Policy; name != "" {
		var p v1alpha1.VolumePolicy
		err := r.Get(ctx, client.ObjectKey{Name: name}, &p)
		if apierrors.IsNotFound(err) {
			return plan.Resolved{}, 0, outcome.Stopped(v1alpha1.ReasonPolicyNotFound,
				fmt.Sprintf("spec.policy: there is no VolumePolicy %s in this cluster: create it, or name another; other clusters' "+
					"policies do not apply here", name))
		} else if err != nil {
			return plan.Resolved{}, 0, err
		}
		policy, generation = &p.Spec, p.Generation
	}
	out, err := plan.Resolve(c.Spec.Size, policy, c.Spec.Overrides)
	if v := (*plan.Verdict)(nil); errors.As(err, &v) {
		return out, generation, &outcome.Stop{Verdict: v}
	}
	return out, generation, err
}

// place chooses sites for the volume as it is wished for, and reserves room at those that are new,
// and its quotas, until the caller releases them.
func (r *contents) place(ctx context.Context, c *content, p plan.Resolved) (plan.Placement, error) {
	r.placing.Lock()
	defer r.placing.Unlock()
	r.unplaced.Store(c.Name, true) // before anything is read: what changes from now on is news of it
	quotas, err := r.quotas.Of(ctx, c.GeoVolumeContent)
	if err != nil {
		return plan.Placement{}, err
	}
	req := plan.Request{Spec: p.Spec, Selector: p.Selector, Owner: r.Organization, Near: r.Site, Sites: r.mirror.Candidates(c.Name,
		r.Organization, r.Now()), Rooms: r.mirror.Rooms(c.Name, r.Now()), Quotas: quotas}
	if v := c.record(); v != nil {
		req.Present, req.PresentStores, req.PresentAgreed, req.PresentSize = v.Sites, v.Stores, v.Agreed, v.Spec.Size
		if ctl := c.seen.Control; ctl != nil {
			req.Home = ctl.Home.Site
			for _, m := range ctl.Members {
				req.Needed = append(req.Needed, m.Site)
			}
		}
		// Without one that has the key, nobody reads what the others hold.
		if len(req.Needed) > 0 && !slices.ContainsFunc(req.Needed, func(s string) bool { return !v.IsBlind(s) }) {
			req.Needed = append(req.Needed, slices.DeleteFunc(slices.Clone(v.Sites), v.IsBlind)...)
		}
	}
	for _, g := range c.Spec.Grants {
		if v := c.record(); v == nil || slices.ContainsFunc(v.Grants,
			func(old federation.Grant) bool { return old.Site == string(g.Site) }) {
			req.Granted = append(req.Granted, string(g.Site))
		}
	}
	out, err := plan.Place(req)
	if u := (*plan.Unplaceable)(nil); errors.As(err, &u) {
		return out, &outcome.Stop{Verdict: &plan.Verdict{Reason: v1alpha1.ReasonUnplaceable, Message: u.Error()}}
	}
	r.unplaced.Delete(c.Name)
	if err == nil {
		r.mirror.Reserve(c.Name, slices.Concat(added(req.Present, out.Sites), added(req.PresentStores, out.Stores),
			added(req.PresentAgreed, out.Agreed)), p.Spec.Size)
		r.quotas.Reserve(c.GeoVolumeContent, out.Sites, out.Stores, out.Agreed, p.Spec.Size)
	}
	return out, err
}

// release ends what place reserved for a volume.
func (r *contents) release(uuid string) {
	r.mirror.Release(uuid)
	r.quotas.Release(uuid)
}

// create makes the volume, with its name and its keyring. It can be repeated: if an earlier try was
// applied without an answer, this one changes nothing.
func (r *contents) create(ctx context.Context, c *content, p plan.Resolved) error {
	source, err := r.source(ctx, c, p.Spec.Size)
	if err != nil {
		return err
	}
	defer r.release(c.Name)
	placed, err := r.place(ctx, c, p)
	if err != nil {
		return err
	}
	ring, err := r.newKeyring(c.Name, slices.DeleteFunc(slices.Clone(placed.Sites),
		func(s string) bool { return slices.Contains(placed.Blind, s) }))
	if err != nil {
		return err
	}
	v := federation.Volume{UUID: c.Name, Name: c.Spec.FederationName, Owner: r.Organization, OwnerSite: r.Site,
		OwnerCluster: r.self.Cluster, Generation: 1, Spec: p.Spec, Sites: placed.Sites, Blind: placed.Blind, Stores: placed.Stores,
		Agreed: placed.Agreed, Source: source, CreatedAt: r.Now().UTC()}
	var wrong *plan.Verdict
	if v.Grants, v.Clients, wrong = plan.Grants(c.Spec.Grants, federation.Volume{}); wrong != nil {
		return &outcome.Stop{Verdict: wrong}
	}
	if v.Grants, wrong = plan.Seeing(v.Grants, v.Blind); wrong != nil {
		return &outcome.Stop{Verdict: wrong}
	}
	at, err := r.Registry.CreateVolume(ctx, v, ring)
	switch {
	case errors.Is(err, federation.ErrNameTaken):
		return r.taken(ctx, v, err)
	case err != nil:
		return err // ErrConflict: an earlier try was applied; the watch will show it
	}
	r.mirror.Note(v, at)
	c.seen = r.mirror.Volume(c.Name)
	return r.claims(ctx, c)
}

// newKeyring draws a data key, and wraps it for sites.
func (r *contents) newKeyring(uuid string, sites []string) (federation.Keyring, error) {
	keys := map[string][]byte{}
	for _, s := range sites {
		site, ok := r.mirror.Site(s)
		if !ok {
			return federation.Keyring{}, federation.ErrConflict // it has just gone: choose again
		}
		keys[s] = site.WrapKey
	}
	ring, _, err := keyring.New(uuid, keys, r.Random)
	return ring, err
}

// taken: another was faster with the name.
func (r *contents) taken(ctx context.Context, v federation.Volume, taken error) error {
	old, _, err := r.Registry.FindVolume(ctx, v.Name)
	if errors.Is(err, federation.ErrNotFound) {
		return federation.ErrConflict // and gave it back
	} else if errors.Is(err, federation.ErrAccess) {
		return outcome.Stopped(v1alpha1.ReasonNameTaken, fmt.Sprintf("the name %s is taken by a volume that does not concern this "+
			"organization: choose another name", v.Name))
	} else if err != nil {
		return errors.Join(taken, err)
	}
	claims, err := r.Registry.ListClaims(ctx, old.UUID)
	if err != nil {
		return err
	}
	return &outcome.Stop{Verdict: plan.Named(old, r.self, claims)}
}

// update carries the wish to the record. What cannot be fulfilled leaves the record as it is, but
// for grants, which are always taken back when the owner says so.
func (r *contents) update(ctx context.Context, c *content) error {
	old := *c.seen.Record
	if old.Closing || old.Deleted {
		return nil
	}
	defer r.release(c.Name)
	next := old
	var wrong *plan.Verdict
	next.Grants, next.Clients, wrong = plan.Grants(c.Spec.Grants, old)
	resolved, generation, err := r.resolve(ctx, c)
	if err == nil { // also if the rest of the wish cannot be fulfilled
		next.Spec.Clients = resolved.Spec.Clients
	} else { // what it says of all clients is not known
		next.Grants = plan.Fewer(next.Grants, old.Grants)
	}
	if err == nil && resolved.Spec.Size < old.Spec.Size {
		err = outcome.Stopped(v1alpha1.ReasonInvalid, fmt.Sprintf("spec.size: a volume does not shrink: it has %s; write that or more",
			old.Spec.Size))
	}
	var placed plan.Placement
	if err == nil {
		placed, err = r.place(ctx, c, resolved)
	}
	if v := (*plan.Verdict)(nil); errors.As(err, &v) {
		c.trouble, err = v, nil
	} else if err == nil {
		next.Spec, next.Sites, next.Blind, next.Stores = resolved.Spec, placed.Sites, placed.Blind, placed.Stores
		next.Agreed = placed.Agreed
		c.policy = generation
	}
	if err != nil {
		return err
	}
	if c.trouble == nil {
		c.trouble = wrong
	}
	if !reflect.DeepEqual(old.Spec, next.Spec) || !slices.Equal(old.Sites, next.Sites) || !slices.Equal(old.Blind, next.Blind) ||
		!slices.Equal(old.Stores, next.Stores) || !slices.Equal(old.Agreed, next.Agreed) {
		// A change that is not of this volume's own wish is that of its policy, or of the sites.
		policys := c.Spec.Policy != "" && c.Status.ObservedPolicyGeneration != generation && c.Generation == c.Status.ObservedGeneration
		if policys && !r.rollout.Begin(c.Spec.Policy, c.Name) {
			c.taking = true
			next.Spec, next.Sites, next.Blind, next.Stores, next.Agreed = old.Spec, old.Sites, old.Blind, old.Stores, old.Agreed
		} else {
			next.Generation = old.Generation + 1
		}
	}
	if next.Grants, wrong = plan.Seeing(next.Grants, next.Blind); c.trouble == nil {
		c.trouble = wrong
	}
	if next.Generation == old.Generation && slices.Equal(next.Grants, old.Grants) && reflect.DeepEqual(next.Clients, old.Clients) {
		return nil
	}
	rev, err := r.Registry.UpdateVolume(ctx, c.seen.Revision, next)
	if err != nil {
		return err
	}
	r.mirror.Note(next, rev)
	c.seen = r.mirror.Volume(c.Name)
	return nil
}

func added(old, now []string) []string {
	return slices.DeleteFunc(slices.Clone(now), func(s string) bool { return slices.Contains(old, s) })
}
