// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/desired"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

// follows: another cluster decides. The spec is kept equal to the registry's, and goes when the
// volume no longer concerns this cluster.
func (r *contents) follows(ctx context.Context, c *content) error {
	if err := r.adopt(ctx, c.GeoVolumeContent); err != nil {
		return err // a mirror, whichever program made it
	}
	if c.seen.Record.Deleted || !r.mirror.Concerns(c.seen) {
		err := r.erase(ctx, c.GeoVolumeContent)
		c.gone = err == nil
		return err
	}
	want := desired.Mirrored(c.seen, r.Site, c.Spec.Claims)
	changed := desired.Differing(c.Spec, want)
	if len(changed) == 0 {
		return nil
	}
	// Somebody here changed it, if it changed since it was last looked at, and the owner's word did
	// not.
	edited := c.Status.ObservedGeneration != 0 && c.Generation != c.Status.ObservedGeneration &&
		c.Status.VolumeGeneration == int64(c.seen.Record.Generation)
	if err := r.setSpec(ctx, c.GeoVolumeContent, want); err != nil {
		return err
	}
	if edited {
		note := fmt.Sprintf("spec.%s was changed here and put back: only the owner, site %s, changes this volume; ask there, or have "+
			"the ownership transferred with `weir volume transfer`",
			strings.Join(changed, ", spec."), c.seen.Record.OwnerSite)
		plan.SetCondition(&c.Status.Conditions, c.Generation, r.Now(), v1alpha1.ConditionInSync,
			plan.State{Reason: v1alpha1.ReasonNotOwner, Message: note})
		r.warn(c, note)
	}
	return nil
}

// promote: the ownership came to this cluster. What the registry has is its wish from now on, until
// a person changes it.
func (r *contents) promote(ctx context.Context, c *content) error {
	want := desired.Mirrored(c.seen, r.Site, c.Spec.Claims)
	if err := r.setSpec(ctx, c.GeoVolumeContent, want); err != nil {
		return err
	}
	return r.AddFinalizer(ctx, c.GeoVolumeContent)
}

// setSpec puts a spec in place of another. It is a patch and no apply, which could not take away a
// field that somebody else has set.
func (o *operator) setSpec(ctx context.Context, obj *v1alpha1.GeoVolumeContent, want v1alpha1.GeoVolumeContentSpec) error {
	before := obj.DeepCopy()
	status := obj.Status.DeepCopy()
	obj.Spec = want
	err := o.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), object.FieldOwner)
	obj.Status = *status // the answer has the one that was there before this reconcile
	return err
}

// claims carries this cluster's claims: those of PersistentVolumeClaims to the registry, those of
// GeoVolumes into the spec.
func (r *contents) claims(ctx context.Context, c *content) error {
	for _, ref := range c.Spec.Claims {
		if ref.Kind != string(federation.ClaimPVC) {
			continue
		}
		if err := r.putClaim(ctx, c.Name, ref, nil); err != nil {
			return err
		}
	}
	if err := r.endClaims(ctx, c); err != nil {
		return err
	}
	want := *c.Spec.DeepCopy()
	want.Claims = desired.References(c.seen, r.Site, c.Spec.Claims)
	if len(desired.Differing(c.Spec, want)) == 0 {
		return nil
	}
	return r.setSpec(ctx, c.GeoVolumeContent, want)
}

// observed sets what every status has.
func observed(c *content, v *plan.View) {
	s := &c.Status
	s.ObservedGeneration = c.Generation
	rec := c.record()
	if rec == nil {
		return
	}
	policy := plan.Describe(rec.Spec)
	s.VolumeGeneration, s.Policy, s.Capacity = int64(rec.Generation), &policy, plan.Quantity(rec.Spec.Size)
	s.Sites = nil
	for _, site := range rec.Sites {
		s.Sites = append(s.Sites, v1alpha1.SiteName(site))
	}
	s.Claims = nil
	for _, claim := range c.seen.ClaimsOf("") {
		s.Claims = append(s.Claims, plan.ClaimName(claim))
	}
	s.Home, s.Replicas, s.Copies, s.Lag, s.Progress, s.Used = v.Home, v.Replicas, v.Copies, v.Lag, v.Progress, plan.Quantity(v.Used)
	s.Stores, s.Held, s.Files = v.Stores, nil, v.Files
	if v.Held != nil {
		s.Held = plan.Quantity(*v.Held)
	}
	if is, known := c.seen.NewestKey(); known {
		s.Key = plan.Key(is)
	}
	if v.Snapshots != nil { // a new home reports them a little later
		s.Snapshots = plan.Snapshots(v.Snapshots)
	}
}

// removeStale takes InSync away when the owner has changed the volume since.
func removeStale(list *[]metav1.Condition, changed bool) {
	if !changed {
		return
	}
	for i, c := range *list {
		if c.Type == v1alpha1.ConditionInSync {
			*list = append((*list)[:i:i], (*list)[i+1:]...)
			return
		}
	}
}
