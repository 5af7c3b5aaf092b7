// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"reflect"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

// putClaim writes a claim of this cluster, unless the registry has it. cache is what it says of the
// cache at this site; nil: nothing.
func (o *operator) putClaim(ctx context.Context, uuid string, ref v1alpha1.ClaimReference, cache *federation.Cache) error {
	at := o.Now().UTC()
	if old, ok := o.hasClaim(uuid, ref); ok {
		if reflect.DeepEqual(old.Cache, cache) {
			return nil
		}
		at = old.At
	}
	return o.Registry.PutClaim(ctx, federation.Claim{Volume: uuid, Site: o.Site, Namespace: ref.Namespace, Name: ref.Name,
		Kind: federation.ClaimKind(ref.Kind), UID: ref.UID, Access: plan.Access(ref.Access), At: at, Cache: cache})
}

// hasClaim returns a claim of this cluster that the registry has, whatever it says of the cache.
func (o *operator) hasClaim(uuid string, ref v1alpha1.ClaimReference) (federation.Claim, bool) {
	e := o.mirror.Volume(uuid)
	if e == nil {
		return federation.Claim{}, false
	}
	c, ok := e.Claims[o.Site+"/"+ref.Namespace+"/"+ref.Name]
	return c, ok && c.UID == ref.UID && string(c.Kind) == ref.Kind && c.Access == plan.Access(ref.Access)
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
