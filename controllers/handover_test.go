// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// kept is ns.data of ams after its namespace was deleted: the volume is there, and no GeoVolume has
// it.
func kept(t *testing.T, change func(*v1alpha1.GeoVolumeSpec)) (f *fed, ams, utr *cluster, c *v1alpha1.GeoVolumeContent) {
	t.Helper()
	f, ams, utr, g, uuid := two(t, change)
	ams.delete(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}})
	ams.delete(g)
	settleAll(ams, utr)
	if v := f.record(uuid); ams.has(g) || v.Deleted || v.Closing {
		t.Fatalf("the GeoVolume is there: %t; record %+v", ams.has(g), v)
	}
	return f, ams, utr, contentOf(uuid)
}

// grant does what the administrator of the owner's cluster does with `kubectl patch
// geovolumecontent`.
func grant(ams *cluster, c *v1alpha1.GeoVolumeContent, to ...v1alpha1.Grant) {
	ams.t.Helper()
	edit(ams, c, func(c *v1alpha1.GeoVolumeContent) { c.Spec.Grants = to })
}

// A volume that was kept goes to whom the administrator of its cluster grants it: namespaces of
// that cluster, and of others.
func TestAKeptVolumeIsHandedOver(t *testing.T) {
	f, ams, utr, c := kept(t, nil)
	uuid := c.Name
	grant(ams, c, v1alpha1.Grant{Site: "ams", Namespace: "archive", Access: v1alpha1.ReadWrite},
		v1alpha1.Grant{Site: "utr", Namespace: "app", Access: v1alpha1.ReadOnly})
	heir, far := imported("archive", "old", "ns.data"), imported("app", "old", uuid)
	far.Spec.Access = v1alpha1.ReadOnly
	ams.create(heir)
	utr.create(far)
	more, stranger := imported("app", "more", "ns.data"), imported("app", "old", "ns.data")
	utr.create(more)
	ams.create(stranger)
	settleAll(ams, utr)
	ams.get(heir)
	ams.ready(heir, metav1.ConditionTrue, v1alpha1.ReasonReady)
	utr.get(far)
	utr.ready(far, metav1.ConditionTrue, v1alpha1.ReasonReady)
	utr.get(more)
	utr.ready(more, metav1.ConditionFalse, v1alpha1.ReasonNotGranted, "access: ReadOnly")
	ams.get(stranger)
	ams.ready(stranger, metav1.ConditionFalse, v1alpha1.ReasonNotGranted, "{site: ams, namespace: app}", "GeoVolumeContent "+uuid)
	if got := strings.Join(f.claims(uuid), " "); got != "ams/archive/old utr/app/old" || heir.Status.Volume != uuid ||
		heir.Status.FederationName != "ns.data" {
		t.Fatalf("claims %s, status %+v", got, heir.Status)
	}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "archive", Name: "old"}}
	ams.get(pvc)
	if pvc.Status.Phase != corev1.ClaimBound || pvc.Spec.AccessModes[0] != corev1.ReadWriteMany {
		t.Errorf("claim %+v", pvc)
	}

	// Nobody else writes what the volume is to be: not a GeoVolume that would make another of its
	// name, nor the operator, when the object is lost.
	f.advance(time.Second)
	again := gv("ns", "data", nil)
	ams.create(again)
	settleAll(ams, utr)
	ams.get(again)
	ams.ready(again, metav1.ConditionFalse, v1alpha1.ReasonNameTaken)
	edit(ams, c, func(c *v1alpha1.GeoVolumeContent) { c.Finalizers = nil })
	ams.delete(c)
	settleAll(ams, utr)
	ams.get(c)
	if len(c.Spec.Grants) != 2 || c.Spec.ReclaimPolicy != v1alpha1.Retain || !hasFinalizer(c) {
		t.Errorf("content %+v", c)
	}
	grant(ams, c, append(c.Spec.Grants, v1alpha1.Grant{Site: "utr", Namespace: "late", Access: v1alpha1.ReadWrite})...)
	edit(ams, c, func(c *v1alpha1.GeoVolumeContent) { c.Spec.Size = resource.MustParse("4Gi") })
	late := imported("late", "v", "ns.data")
	utr.create(late)
	settleAll(ams, utr)
	f.serve(uuid, 0)
	settleAll(ams, utr)
	utr.get(late)
	utr.ready(late, metav1.ConditionTrue, v1alpha1.ReasonReady)
	ams.get(pvc)
	if size := pvc.Status.Capacity[corev1.ResourceStorage]; size.String() != "4Gi" {
		t.Errorf("the claim has %s", size.String())
	}

	// A grant that is taken back ends that import, and no other.
	grant(ams, c, v1alpha1.Grant{Site: "ams", Namespace: "archive", Access: v1alpha1.ReadWrite})
	settleAll(ams, utr)
	if got := strings.Join(f.claims(uuid), " "); got != "ams/archive/old" {
		t.Errorf("claims %s", got)
	}
	utr.get(far)
	utr.ready(far, metav1.ConditionFalse, v1alpha1.ReasonNotGranted, "site ams has to add {site: utr, namespace: app}",
		"of GeoVolumeContent "+uuid+" if that is gone")
}

// What the GeoVolume had granted before it went still holds, and the namespace that made the volume
// needs no grant.
func TestAKeptVolumeKeepsItsGrants(t *testing.T) {
	f, ams, utr, c := kept(t, granted("utr", "app"))
	far, back := imported("app", "shared", "ns.data"), imported("ns", "other-name", "ns.data")
	utr.create(far)
	ams.create(back)
	settleAll(ams, utr)
	utr.get(far)
	utr.ready(far, metav1.ConditionTrue, v1alpha1.ReasonReady)
	ams.get(back)
	ams.ready(back, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if got := strings.Join(f.claims(c.Name), " "); got != "ams/ns/other-name utr/app/shared" {
		t.Errorf("claims %s", got)
	}
}

// The data of a volume that was kept goes when its administrator says so, once nobody uses it.
func TestAKeptVolumeIsGivenUp(t *testing.T) {
	f, ams, utr, c := kept(t, granted("utr", "app"))
	far := imported("app", "shared", "ns.data")
	utr.create(far)
	settleAll(ams, utr)
	edit(ams, c, func(c *v1alpha1.GeoVolumeContent) { c.Spec.ReclaimPolicy = v1alpha1.Delete })
	settleAll(ams, utr)
	ams.delete(c)
	settleAll(ams, utr)
	ams.get(c)
	ams.ready(c, metav1.ConditionFalse, v1alpha1.ReasonInUse, "utr/app/shared")
	utr.delete(far)
	settleAll(ams, utr)
	if v := f.record(c.Name); !v.Deleted || ams.has(c) {
		t.Errorf("record %+v, content is there: %t", v, ams.has(c))
	}
}

// bindClaims plays the controllers of Kubernetes that bind claims and collect garbage.
func (c *cluster) bindClaims() {
	var list corev1.PersistentVolumeClaimList
	if err := c.api.List(c.t.Context(), &list); err != nil {
		c.t.Fatal(err)
	}
	for i := range list.Items {
		pvc := &list.Items[i]
		if pvc.Status.Phase == corev1.ClaimBound || pvc.Spec.VolumeName == "" {
			continue
		}
		pvc.Status.Phase = corev1.ClaimBound
		if err := c.api.Status().Update(c.t.Context(), pvc); err != nil {
			c.t.Fatal(err)
		}
	}
}
