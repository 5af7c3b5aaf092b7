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
// until the caller releases it.
func (r *contents) place(c *content, p plan.Resolved, only func(plan.Candidate) bool) (plan.Placement, error) {
	r.placing.Lock()
	defer r.placing.Unlock()
	req := plan.Request{Spec: p.Spec, Selector: p.Selector, Near: r.Site, Sites: r.mirror.Candidates(c.Name)}
	if only != nil {
		req.Sites = slices.DeleteFunc(req.Sites, func(s plan.Candidate) bool { return !only(s) })
	}
	if v := c.record(); v != nil {
		req.Present, req.PresentSize = v.Sites, v.Spec.Size
		if ctl := c.seen.Control; ctl != nil {
			req.Home = ctl.Home.Site
			for _, m := range ctl.Members {
				req.Needed = append(req.Needed, m.Site)
			}
		}
	}
	out, err := plan.Place(req)
	if u := (*plan.Unplaceable)(nil); errors.As(err, &u) {
		r.unplaced.Store(c.Name, true)
		return out, &outcome.Stop{Verdict: &plan.Verdict{Reason: v1alpha1.ReasonUnplaceable, Message: u.Error()}}
	}
	r.unplaced.Delete(c.Name)
	if err == nil {
		r.mirror.Reserve(c.Name, added(req.Present, out.Sites), p.Spec.Size)
	}
	return out, err
}

// create makes the volume: its keyring, so that no gateway ever finds a volume without keys, then
// the record with its name. It can be repeated: an earlier try may have been applied without an
// answer. A keyring that is there is kept, and sites it is wrapped for are taken if they will do,
// because an earlier try's record, still on its way, would refer to it.
func (r *contents) create(ctx context.Context, c *content, p plan.Resolved) error {
	ring, rev, err := r.Registry.GetKeyring(ctx, c.Name)
	if err != nil && !errors.Is(err, federation.ErrNotFound) {
		return err
	}
	defer r.mirror.Release(c.Name)
	placed, perr := plan.Placement{}, error(nil)
	if rev != 0 {
		placed, perr = r.place(c, p, func(s plan.Candidate) bool { return ring.Wrapped[s.Name] != nil })
	}
	if rev == 0 || perr != nil {
		if placed, err = r.place(c, p, nil); err != nil {
			return err
		}
	}
	if rev == 0 || perr != nil {
		if rev, err = r.putKeyring(ctx, c.Name, placed.Sites, ring.Generation, rev); err != nil {
			return err
		}
	}
	v := federation.Volume{UUID: c.Name, Name: c.Spec.FederationName, Owner: r.Organization, OwnerSite: r.Site,
		OwnerCluster: r.self.Cluster,
		Grants:       plan.Grants(c.Spec.Grants), Generation: 1, Spec: p.Spec, Sites: placed.Sites, CreatedAt: r.Now().UTC()}
	at, err := r.Registry.CreateVolume(ctx, v)
	switch {
	case errors.Is(err, federation.ErrNameTaken):
		return r.taken(ctx, v, rev, err)
	case err != nil:
		return err // ErrConflict: an earlier try was applied; the watch will show it
	}
	r.mirror.Note(v, at)
	c.seen = r.mirror.Volume(c.Name)
	return r.claims(ctx, c)
}

func (r *contents) putKeyring(ctx context.Context, uuid string, sites []string, generation uint64,
	prev federation.Revision) (federation.Revision, error) {
	keys := map[string][]byte{}
	for _, s := range sites {
		site, ok := r.mirror.Site(s)
		if !ok {
			return 0, federation.ErrConflict // it has just gone: choose again
		}
		keys[s] = site.WrapKey
	}
	ring, _, err := keyring.New(uuid, keys, r.Random)
	if err != nil {
		return 0, err
	}
	ring.Generation = generation + 1
	return r.Registry.PutKeyring(ctx, prev, ring)
}

// taken: another was faster with the name. Nobody refers to the keyring, which goes.
func (r *contents) taken(ctx context.Context, v federation.Volume, ring federation.Revision, taken error) error {
	if err := r.Registry.DeleteKeyring(ctx, v.UUID, ring); err != nil && !errors.Is(err, federation.ErrConflict) {
		return err
	}
	old, _, err := r.Registry.FindVolume(ctx, v.Name)
	if errors.Is(err, federation.ErrNotFound) {
		return federation.ErrConflict // and gave it back
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
	defer r.mirror.Release(c.Name)
	next := old
	next.Grants = plan.Grants(c.Spec.Grants)
	resolved, generation, err := r.resolve(ctx, c)
	if err == nil && resolved.Spec.Size < old.Spec.Size {
		err = outcome.Stopped(v1alpha1.ReasonInvalid, fmt.Sprintf("spec.size: a volume does not shrink: it has %s; write that or more",
			old.Spec.Size))
	}
	var placed plan.Placement
	if err == nil {
		placed, err = r.place(c, resolved, nil)
	}
	if v := (*plan.Verdict)(nil); errors.As(err, &v) {
		c.trouble, err = v, nil
	} else if err == nil {
		next.Spec, next.Sites, c.policy = resolved.Spec, placed.Sites, generation
	}
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(old.Spec, next.Spec) || !slices.Equal(old.Sites, next.Sites) {
		// A change that is not of this volume's own wish is that of its policy, or of the sites.
		policys := c.Spec.Policy != "" && c.Status.ObservedPolicyGeneration != generation && c.Generation == c.Status.ObservedGeneration
		if policys && !r.rollout.Begin(c.Spec.Policy, c.Name) {
			c.taking = true
			next.Spec, next.Sites = old.Spec, old.Sites
		} else {
			next.Generation = old.Generation + 1
		}
	}
	if next.Generation == old.Generation && slices.Equal(next.Grants, old.Grants) {
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
