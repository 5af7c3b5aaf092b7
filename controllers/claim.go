// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

func ignoreAbsent(err error) error {
	if errors.Is(err, federation.ErrNotFound) {
		return nil
	}
	return err
}

// putClaim writes a claim of this cluster, unless the registry has it.
func (o *operator) putClaim(ctx context.Context, uuid string, ref v1alpha1.ClaimReference) error {
	if o.hasClaim(uuid, ref) {
		return nil
	}
	return o.Registry.PutClaim(ctx, federation.Claim{Volume: uuid, Site: o.Site, Namespace: ref.Namespace, Name: ref.Name,
		Kind: federation.ClaimKind(ref.Kind), UID: ref.UID, Access: plan.Access(ref.Access), At: o.Now().UTC()})
}

func (o *operator) hasClaim(uuid string, ref v1alpha1.ClaimReference) bool {
	e := o.mirror.Volume(uuid)
	if e == nil {
		return false
	}
	c, ok := e.Claims[o.Site+"/"+ref.Namespace+"/"+ref.Name]
	return ok && c.UID == ref.UID && string(c.Kind) == ref.Kind && c.Access == plan.Access(ref.Access)
}

// endClaims takes claims of PersistentVolumeClaims back that the CSI controller has taken out of
// the spec.
func (r *contents) endClaims(ctx context.Context, c *content) error {
	for _, claim := range c.seen.ClaimsOf(r.Site) {
		if claim.Kind != federation.ClaimPVC || named(c.Spec.Claims, claim) {
			continue
		}
		if err := r.Registry.DeleteClaim(ctx, c.Name, claim.Site, claim.Namespace, claim.Name); err != nil {
			return err
		}
	}
	return nil
}

func named(list []v1alpha1.ClaimReference, c federation.Claim) bool {
	for _, ref := range list {
		if ref.Kind == string(c.Kind) && ref.Namespace == c.Namespace && ref.Name == c.Name {
			return true
		}
	}
	return false
}

// dropClaims takes all claims of a GeoVolume back but that on one volume.
func (o *operator) dropClaims(ctx context.Context, namespace, name, but string) error {
	for _, uuid := range o.mirror.Claimed(namespace, name) {
		e := o.mirror.Volume(uuid)
		if uuid == but || e == nil || e.Claims[o.Site+"/"+namespace+"/"+name].Kind != federation.ClaimGeoVolume {
			continue
		}
		if err := o.Registry.DeleteClaim(ctx, uuid, o.Site, namespace, name); err != nil {
			return err
		}
	}
	return nil
}
