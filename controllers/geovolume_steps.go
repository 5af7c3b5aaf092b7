// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/desired"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

// identify finds out which volume it is. Once an import has found its volume, it stays with that
// one.
func (r *geoVolumes) identify(ctx context.Context, g *geoVolume) error {
	switch {
	case g.Spec.Import == nil:
		g.uuid = v1alpha1.VolumeUUID(r.self.Cluster, string(g.UID))
	case g.Status.Volume != "":
		g.uuid = g.Status.Volume
	default:
		e := r.mirror.Named(g.Spec.Import.Volume)
		if e == nil {
			return outcome.Stopped(v1alpha1.ReasonNotFound, fmt.Sprintf("spec.import.volume: the federation has no volume %s, or does "+
				"not show it to this organization: check the name, NAMESPACE.NAME of the GeoVolume that makes it; its owner makes it, "+
				"and grants it to site %s", g.Spec.Import.Volume, r.self.Site))
		}
		g.uuid = e.Record.UUID
	}
	if g.seen = r.mirror.Volume(g.uuid); g.seen != nil && g.seen.Problem != nil {
		return g.seen.Problem
	}
	var c v1alpha1.GeoVolumeContent
	err := r.Get(ctx, client.ObjectKey{Name: g.uuid}, &c)
	if err == nil {
		g.content = &c
	}
	if g.Spec.Import != nil && (g.seen == nil || g.seen.Record == nil) {
		return outcome.Stopped(v1alpha1.ReasonNotFound, fmt.Sprintf("volume %s, which was imported here, is no longer in the registry, "+
			"or not shown to this organization: its owner purged it, or took the grant back; ask there, or delete this GeoVolume", g.uuid))
	}
	return client.IgnoreNotFound(err)
}

// wish keeps the content as this GeoVolume wishes, if it is the one that makes the volume.
func (r *geoVolumes) wish(ctx context.Context, g *geoVolume) error {
	if g.Spec.Import != nil {
		return nil
	}
	name := plan.FederationName(g.Namespace, g.Name)
	if g.content == nil && g.seen == nil {
		// Asked first, so that a name that is taken leaves no content behind; the registry decides
		// when it is created.
		if old := r.mirror.Named(name); old != nil {
			return &outcome.Stop{Verdict: plan.Named(*old.Record, r.self, old.ClaimsOf(""))}
		}
	}
	want := desired.Content(g.GeoVolume, r.Site, name)
	var err error
	if want.Source, err = r.sourceOf(ctx, g); err != nil {
		return err
	}
	switch {
	case g.content == nil:
		obj := &v1alpha1.GeoVolumeContent{Spec: want}
		obj.Name, obj.Labels = g.uuid, contentLabels()
		return r.Ensure(ctx, obj)
	case g.content.Spec.FederationName != name:
		return outcome.Stopped(v1alpha1.ReasonConflict, fmt.Sprintf("GeoVolumeContent %s is there, and is of volume %s: delete it", g.uuid,
			g.content.Spec.FederationName))
	case !g.content.DeletionTimestamp.IsZero():
		return nil // its own status says what it waits for
	}
	want.Claims = g.content.Spec.Claims
	if len(desired.Differing(g.content.Spec, want)) == 0 {
		return nil
	}
	return r.setSpec(ctx, g.content, want)
}

// claim writes this GeoVolume's claim, once the volume is there, and then reads the record again:
// either that shows that the owner is deleting it, or the owner's list shows the claim. A claim
// that is no longer allowed is taken back.
func (r *geoVolumes) claim(ctx context.Context, g *geoVolume) error {
	if g.seen == nil || g.seen.Record == nil {
		return nil
	}
	ref := g.reference()
	if _, ok := r.hasClaim(g.uuid, ref); ok {
		open := *g.seen.Record
		open.Closing = false // it began before
		if v := r.admits(g, open); v != nil {
			return r.refuse(ctx, g, v)
		}
		g.Status.Volume = g.uuid
		cache, err := localCache(g)
		if err != nil {
			return err // the claim says what it said before
		}
		return r.putClaim(ctx, g.uuid, ref, cache)
	}
	if v := r.admits(g, *g.seen.Record); v != nil {
		return r.refuse(ctx, g, v)
	}
	cache, err := localCache(g)
	if err != nil {
		return err
	}
	if err := r.putClaim(ctx, g.uuid, ref, cache); err != nil {
		return err
	}
	v, _, err := r.find(ctx, g.uuid)
	if err != nil {
		return err
	}
	no := &plan.Verdict{Reason: v1alpha1.ReasonNotFound, Message: fmt.Sprintf("volume %s was purged just now: delete this GeoVolume",
		g.uuid)}
	if v != nil {
		no = r.admits(g, *v)
	}
	if no != nil {
		// The mirror may not have the claim yet.
		if err := r.Registry.DeleteClaim(ctx, g.uuid, r.Site, g.Namespace, g.Name); err != nil {
			return err
		}
		return &outcome.Stop{Verdict: no}
	}
	g.Status.Volume = g.uuid
	return nil
}

// localCache returns what an import says of the cache at this site; nil: nothing.
func localCache(g *geoVolume) (*federation.Cache, error) {
	cache, err := plan.LocalCache(g.Spec)
	if v := (*plan.Verdict)(nil); errors.As(err, &v) {
		return nil, &outcome.Stop{Verdict: v}
	}
	return cache, err
}

func (g *geoVolume) reference() v1alpha1.ClaimReference {
	return v1alpha1.ClaimReference{Kind: string(federation.ClaimGeoVolume), Namespace: g.Namespace, Name: g.Name, UID: string(g.UID),
		Access: g.Spec.Access}
}

// admits returns why the volume must not be claimed. Who makes a volume needs no grant.
func (r *geoVolumes) admits(g *geoVolume, v federation.Volume) *plan.Verdict {
	return plan.Admit(v, r.self, g.Namespace, g.Spec.Access)
}

func (r *geoVolumes) refuse(ctx context.Context, g *geoVolume, v *plan.Verdict) error {
	if err := r.dropClaims(ctx, g.Namespace, g.Name, ""); err != nil {
		return err
	}
	return &outcome.Stop{Verdict: v}
}

// remove: the GeoVolume is being deleted. What becomes of the volume is Dispose's; pods come first,
// so the objects that they use go before the claim does.
func (r *geoVolumes) remove(ctx context.Context, g *geoVolume) error {
	if !hasFinalizer(g.GeoVolume) {
		g.gone = true
		return nil
	}
	if g.Spec.Import == nil {
		g.uuid = v1alpha1.VolumeUUID(r.self.Cluster, string(g.UID))
	} else {
		g.uuid = g.Status.Volume
	}
	does, err := r.dispose(ctx, g)
	if err != nil {
		return err
	}
	if err := r.removeObjects(ctx, g); err != nil {
		return err
	}
	if g.uuid != "" {
		if err := r.Registry.DeleteClaim(ctx, g.uuid, r.Site, g.Namespace, g.Name); err != nil {
			return err
		}
	}
	if err := r.dropClaims(ctx, g.Namespace, g.Name, g.uuid); err != nil {
		return err
	}
	if g.content != nil && does == plan.Trash {
		if err := client.IgnoreNotFound(r.adopt(ctx, g.content)); err != nil {
			return err
		}
		if err := r.erase(ctx, g.content); err != nil {
			return err
		}
	}
	g.gone = true
	return r.RemoveFinalizer(ctx, g.GeoVolume)
}

// dispose does with the volume what is to become of it. Trash is returned when its content has to
// go too.
func (r *geoVolumes) dispose(ctx context.Context, g *geoVolume) (plan.Disposal, error) {
	if g.Spec.Import != nil {
		return plan.LetGo, nil
	}
	var c v1alpha1.GeoVolumeContent
	if err := r.Get(ctx, client.ObjectKey{Name: g.uuid}, &c); err == nil {
		g.content = &c
	} else if !apierrors.IsNotFound(err) {
		return plan.Undecided, err
	}
	v, rev, err := r.find(ctx, g.uuid)
	if err != nil {
		return plan.Undecided, err
	}
	if v != nil {
		g.seen = r.mirror.Volume(g.uuid)
	}
	forget := g.Annotations[v1alpha1.ForceAnnotation] == g.uuid
	_, purged := r.mirror.Purged(g.uuid)
	switch does := plan.Dispose(v, r.self, g.Spec.ReclaimPolicy, g.Status.Volume != "" && !purged, forget); does {
	case plan.Undecided:
		return does, r.lost(g.uuid)
	case plan.Keep:
		return does, r.keep(ctx, *v, rev)
	case plan.Trash:
		return does, r.trash(ctx, *v, rev, func(c federation.Claim) bool {
			return c.Site == r.Site && c.Namespace == g.Namespace && c.Name == g.Name
		})
	}
	if v == nil || v.Deleted && r.self.Owns(*v) {
		return plan.Trash, nil // there is nothing of it any more, or never was
	}
	return plan.LetGo, nil
}
