// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

// remove: the object is being deleted. GeoVolumes of this cluster keep it, as a claim keeps a
// PersistentVolume; the claims of PersistentVolumeClaims end with it.
func (r *contents) remove(ctx context.Context, c *content) error {
	if !slices.Contains(c.Finalizers, v1alpha1.Finalizer) {
		c.gone = true
		return nil
	}
	v, rev, err := r.find(ctx, c.Name)
	if err != nil {
		return err
	}
	forget := c.Annotations[v1alpha1.ForceAnnotation] == c.Name
	_, purged := r.mirror.Purged(c.Name)
	does := plan.Dispose(v, r.self, c.Spec.ReclaimPolicy, c.Status.VolumeGeneration != 0 && !purged, forget)
	if does == plan.Undecided {
		return r.lost(c.Name)
	}
	if does == plan.Keep || does == plan.Trash {
		if err := r.unclaimed(ctx, c, does); err != nil {
			return err
		}
	}
	switch does {
	case plan.Keep:
		err = r.keep(ctx, *v, rev)
	case plan.Trash:
		err = r.trash(ctx, *v, rev, func(claim federation.Claim) bool { return claim.Site == r.Site && claim.Kind == federation.ClaimPVC })
	}
	if err != nil {
		return err
	}
	for _, ref := range c.Spec.Claims {
		if v != nil && ref.Kind == string(federation.ClaimPVC) {
			if err := r.Registry.DeleteClaim(ctx, c.Name, r.Site, ref.Namespace, ref.Name); err != nil {
				return err
			}
		}
	}
	if s := c.Spec.Source; s != nil && does != plan.Keep { // also if the volume never came to be
		if err := r.unclone(ctx, c.Name, s.Volume); err != nil {
			return err
		}
	}
	c.gone = true
	return r.RemoveFinalizer(ctx, c.GeoVolumeContent)
}

// lost says why the registry does not have a volume that it had.
func (o *operator) lost(uuid string) error {
	if p, ok := o.mirror.Purged(uuid); ok {
		return &outcome.Stop{Verdict: plan.Purged(p)}
	}
	return &outcome.Stop{Verdict: plan.Forgotten(uuid)}
}

// unclaimed returns an error while GeoVolumes of this cluster have the volume.
func (r *contents) unclaimed(ctx context.Context, c *content, does plan.Disposal) error {
	claims, err := r.Registry.ListClaims(ctx, c.Name)
	if err != nil {
		return err
	}
	claims = slices.DeleteFunc(claims, func(claim federation.Claim) bool {
		return claim.Site != r.Site || claim.Kind != federation.ClaimGeoVolume
	})
	if in := plan.InUse(c.Spec.FederationName, claims); in != nil {
		if does == plan.Keep {
			in.Message = fmt.Sprintf("GeoVolumes of this cluster use volume %s: this object goes when they are deleted",
				c.Spec.FederationName)
		}
		return &outcome.Stop{Verdict: in}
	}
	return nil
}

// keep calls off a deletion that had begun.
func (o *operator) keep(ctx context.Context, v federation.Volume, rev federation.Revision) error {
	if !v.Closing {
		return nil
	}
	v.Closing = false
	rev, err := o.Registry.UpdateVolume(ctx, rev, v)
	if err == nil {
		o.mirror.Note(v, rev)
	}
	return err
}

// trash deletes a volume that has only claims that mine accepts. First it closes the volume, and
// then it reads the list of claims, so that no later claim can be missed: a cluster that claims the
// volume meanwhile reads the record after its claim, sees that it is closed, and takes the claim
// back.
func (o *operator) trash(ctx context.Context, v federation.Volume, rev federation.Revision, mine func(federation.Claim) bool) error {
	err := o.sparesSources(v)
	if err != nil {
		return err
	}
	if !v.Closing {
		v.Closing = true
		if rev, err = o.Registry.UpdateVolume(ctx, rev, v); err != nil {
			return err
		}
		o.mirror.Note(v, rev)
	}
	claims, err := o.Registry.ListClaims(ctx, v.UUID)
	if err != nil {
		return err
	}
	if in := plan.InUse(v.Name, slices.DeleteFunc(claims, mine)); in != nil {
		return &outcome.Stop{Verdict: in}
	}
	v.Deleted, v.DeletedAt = true, o.Now().UTC()
	v.PurgeAfter = v.DeletedAt.Add(o.Trash)
	if rev, err = o.Registry.UpdateVolume(ctx, rev, v); err == nil {
		o.mirror.Note(v, rev)
	}
	return err
}
