// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/federation"
)

// two are clusters ams and utr with ns.data of ams, which is served, and its UUID.
func two(t *testing.T, change func(*v1alpha1.GeoVolumeSpec)) (f *fed, ams, utr *cluster, g *v1alpha1.GeoVolume, uuid string) {
	t.Helper()
	f = newFed(t)
	f.site("ams", "uva")
	f.site("utr", "uva")
	ams, utr = f.cluster("ams"), f.cluster("utr")
	g = gv("ns", "data", change)
	ams.create(g)
	settleAll(ams, utr)
	uuid = v1alpha1.VolumeUUID("uid-ams", string(g.UID))
	f.serve(uuid, 0)
	settleAll(ams, utr)
	ams.get(g)
	ams.ready(g, metav1.ConditionTrue, v1alpha1.ReasonReady)
	return f, ams, utr, g, uuid
}

func TestANamespaceOfARetainedVolumeIsDeleted(t *testing.T) {
	f, ams, utr, g, uuid := two(t, nil)
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}
	ams.get(pvc)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pvc.Spec.VolumeName}}
	// As the namespace controller does: everything in the namespace, in any order.
	ams.delete(pvc)
	ams.delete(g)
	settleAll(ams, utr)
	if ams.has(g) || ams.has(pvc) || ams.has(pv) {
		t.Fatal("the GeoVolume and its objects are still there")
	}
	v := f.record(uuid)
	if v.Deleted || v.Closing || len(f.claims(uuid)) != 0 {
		t.Fatalf("record %+v, claims %v", v, f.claims(uuid))
	}
	if _, _, err := f.reg.GetKeyring(t.Context(), uuid); err != nil {
		t.Fatal(err)
	}
	c := contentOf(uuid)
	ams.get(c)
	ams.ready(c, metav1.ConditionTrue, v1alpha1.ReasonReady)

	// The same manifest again is a new GeoVolume, and would be another volume.
	f.advance(time.Second)
	again := gv("ns", "data", nil)
	ams.create(again)
	settleAll(ams, utr)
	ams.get(again)
	ams.ready(again, metav1.ConditionFalse, v1alpha1.ReasonNameTaken, "spec.import.volume: ns.data", "Retain", uuid)
	if all, err := f.reg.ListVolumes(t.Context()); err != nil || len(all) != 1 {
		t.Fatalf("%d volumes, %v", len(all), err)
	}
	ams.delete(again)
	settleAll(ams, utr)
	if ams.has(again) {
		t.Fatal("the GeoVolume of a taken name does not go")
	}

	// Another namespace has no right to it; its own has.
	other := imported("other", "data", "ns.data")
	ams.create(other)
	back := imported("ns", "data", "ns.data")
	ams.create(back)
	settleAll(ams, utr)
	ams.get(other)
	ams.ready(other, metav1.ConditionFalse, v1alpha1.ReasonNotGranted, uuid, "{site: ams, namespace: other}")
	ams.get(back)
	ams.ready(back, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if back.Status.Volume != uuid || !ams.has(pvc) || strings.Join(f.claims(uuid), " ") != "ams/ns/data" {
		t.Errorf("status %+v, claims %v", back.Status, f.claims(uuid))
	}

	// And what was kept can be grown and granted, in its content.
	edit(ams, c, func(c *v1alpha1.GeoVolumeContent) {
		c.Spec.Size = resource.MustParse("2Gi")
		c.Spec.Grants = []v1alpha1.Grant{{Site: "ams", Namespace: "other", Access: v1alpha1.ReadOnly}}
	})
	settleAll(ams, utr)
	ams.get(other)
	ams.ready(other, metav1.ConditionFalse, v1alpha1.ReasonNotGranted, "access: ReadOnly")
	pv.Name = pvc.Spec.VolumeName
	ams.get(pv)
	if size := pv.Spec.Capacity[corev1.ResourceStorage]; f.record(uuid).Spec.Size != 2<<30 || size.String() != "2Gi" {
		t.Errorf("record %v, PV %v", f.record(uuid).Spec.Size, size)
	}
}

func TestImports(t *testing.T) {
	f, ams, utr, g, uuid := two(t, func(s *v1alpha1.GeoVolumeSpec) { s.ReclaimPolicy = v1alpha1.Delete })
	i := imported("app", "shared", "ns.data")
	utr.create(i)
	settleAll(ams, utr)
	utr.get(i)
	utr.ready(i, metav1.ConditionFalse, v1alpha1.ReasonNotGranted, "{site: utr, namespace: app}", "site ams")
	if utr.has(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "shared"}}) || len(f.claims(uuid)) != 1 {
		t.Fatal("an import that is not granted gets a claim")
	}

	edit(ams, g, func(g *v1alpha1.GeoVolume) { granted("utr", "app")(&g.Spec) })
	settleAll(ams, utr)
	utr.get(i)
	utr.ready(i, metav1.ConditionTrue, v1alpha1.ReasonReady)
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "shared"}}
	utr.get(pvc)
	c := contentOf(uuid)
	utr.get(c)
	if len(c.Spec.Claims) != 1 || c.Spec.Claims[0].Namespace != "app" || i.Status.Owner != "ams" || i.Status.Capacity.String() != "1Gi" {
		t.Errorf("content %+v, status %+v", c.Spec.Claims, i.Status)
	}

	// A second import, into another namespace, by UUID and read-only, shares the content.
	edit(ams, g, func(g *v1alpha1.GeoVolume) {
		g.Spec.Grants = append(g.Spec.Grants, v1alpha1.Grant{Site: "utr", Namespace: "view", Access: v1alpha1.ReadOnly})
	})
	second := imported("view", "v", uuid)
	second.Spec.Access = v1alpha1.ReadOnly
	utr.create(second)
	settleAll(ams, utr)
	utr.get(second)
	utr.ready(second, metav1.ConditionTrue, v1alpha1.ReasonReady)
	utr.get(c)
	ro := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "view", Name: "v"}}
	utr.get(ro)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: ro.Spec.VolumeName}}
	utr.get(pv)
	if len(c.Spec.Claims) != 2 || c.Spec.Claims[1].Access != v1alpha1.ReadOnly || ro.Spec.AccessModes[0] != corev1.ReadOnlyMany ||
		!pv.Spec.CSI.ReadOnly || pv.Name == pvc.Spec.VolumeName {
		t.Errorf("claims %+v, PVC %+v, PV %+v", c.Spec.Claims, ro.Spec, pv.Spec)
	}

	// What the import says of its site's cache is in its claim, as it is now. What is wrong is
	// told.
	cached := func(size, reserve string) {
		t.Helper()
		edit(utr, i, func(i *v1alpha1.GeoVolume) {
			i.Spec.Cache = nil
			if size != "" {
				s, r := resource.MustParse(size), resource.MustParse(reserve)
				i.Spec.Cache = &v1alpha1.Cache{Size: &s, Reserve: &r}
			}
		})
		settleAll(ams, utr)
		utr.get(i)
	}
	says := func(want *federation.Cache) {
		t.Helper()
		claims, err := f.reg.ListClaims(t.Context(), uuid)
		f.ok(err)
		for _, claim := range claims {
			if claim.Namespace == "app" && !reflect.DeepEqual(claim.Cache, want) {
				t.Errorf("the claim says %+v, want %+v", claim.Cache, want)
			}
		}
	}
	says(nil)
	cached("2Gi", "1Gi")
	utr.ready(i, metav1.ConditionTrue, v1alpha1.ReasonReady)
	says(&federation.Cache{Size: 2 << 30, Reserve: 1 << 30})
	cached("1Gi", "2Gi")
	utr.ready(i, metav1.ConditionFalse, v1alpha1.ReasonInvalid, "spec.cache.reserve", "spec.cache.size")
	says(&federation.Cache{Size: 2 << 30, Reserve: 1 << 30})
	cached("", "")
	utr.ready(i, metav1.ConditionTrue, v1alpha1.ReasonReady)
	says(nil)

	// The owner's deletion waits for both, and no new import begins.
	ams.delete(g)
	settleAll(ams, utr)
	ams.get(g)
	ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonInUse, "utr/app/shared", "utr/view/v")
	if v := f.record(uuid); !v.Closing || v.Deleted {
		t.Fatalf("record %+v", v)
	}
	late := imported("app", "late", "ns.data")
	utr.create(late)
	settleAll(ams, utr)
	utr.get(late)
	utr.ready(late, metav1.ConditionFalse, v1alpha1.ReasonDeleting)

	// An import is deleted: only that claim goes.
	utr.delete(second)
	utr.delete(late)
	settleAll(ams, utr)
	if got := strings.Join(f.claims(uuid), " "); got != "ams/ns/data utr/app/shared" || utr.has(second) || utr.has(ro) || utr.has(pv) {
		t.Fatalf("claims %s", got)
	}
	utr.get(i)
	utr.ready(i, metav1.ConditionTrue, v1alpha1.ReasonReady) // it runs on
	ams.get(g)
	ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonInUse, "used by utr/app/shared:")

	// The last goes, and with it the volume.
	utr.delete(i)
	settleAll(ams, utr)
	if v := f.record(uuid); !v.Deleted || v.DeletedAt.IsZero() || len(f.claims(uuid)) != 0 || ams.has(g) || ams.has(c) || utr.has(c) {
		t.Fatalf("record %+v, claims %v", v, f.claims(uuid))
	}
	if _, _, err := f.reg.GetKeyring(t.Context(), uuid); err != nil {
		t.Errorf("the trash has lost its key: %v", err)
	}
	f.advance(time.Second)
	again := gv("ns", "data", nil)
	ams.create(again)
	settleAll(ams, utr)
	ams.get(again)
	ams.ready(again, metav1.ConditionFalse, v1alpha1.ReasonNameTaken, "in the trash", "choose another name")
}

func TestADeletionIsCalledOff(t *testing.T) {
	f, ams, utr, g, uuid := two(t, func(s *v1alpha1.GeoVolumeSpec) { s.ReclaimPolicy = v1alpha1.Delete; granted("utr", "app")(s) })
	i := imported("app", "shared", "ns.data")
	utr.create(i)
	settleAll(ams, utr)
	ams.delete(g)
	settleAll(ams, utr)
	ams.get(g)
	ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonInUse, "set reclaimPolicy: Retain here")
	edit(ams, g, func(g *v1alpha1.GeoVolume) { g.Spec.ReclaimPolicy = v1alpha1.Retain })
	settleAll(ams, utr)
	if v := f.record(uuid); v.Closing || v.Deleted || ams.has(g) {
		t.Fatalf("record %+v", v)
	}
	utr.get(i)
	utr.ready(i, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestAGrantIsTakenBack(t *testing.T) {
	f, ams, utr, g, uuid := two(t, granted("utr", "app"))
	i := imported("app", "shared", "ns.data")
	utr.create(i)
	settleAll(ams, utr)
	edit(ams, g, func(g *v1alpha1.GeoVolume) { g.Spec.Grants = nil })
	settleAll(ams, utr)
	utr.get(i)
	utr.ready(i, metav1.ConditionFalse, v1alpha1.ReasonNotGranted)
	if got := f.claims(uuid); len(got) != 1 {
		t.Errorf("claims %v", got)
	}
	c := contentOf(uuid)
	utr.get(c)
	if len(c.Spec.Claims) != 0 {
		t.Errorf("the content still names %v: pods could use it", c.Spec.Claims)
	}
}

// A volume of a StorageClass: the CSI controller makes and deletes the content.
func TestAVolumeOfAStorageClass(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	ams := f.cluster("ams")
	one := int32(1)
	ams.create(&v1alpha1.VolumePolicy{ObjectMeta: metav1.ObjectMeta{Name: "single"},
		Spec: v1alpha1.VolumePolicySpec{Replication: v1alpha1.Replication{Copies: &one}}})
	const uuid = "0a6b4c1e-7a0b-5a42-9a2e-1f6d0c8a9b10"
	c := contentOf(uuid)
	c.Spec = v1alpha1.GeoVolumeContentSpec{FederationName: "pvc-1", Owner: "ams", Size: resource.MustParse("1Gi"), Policy: "single",
		ReclaimPolicy: v1alpha1.Delete,
		Claims:        []v1alpha1.ClaimReference{{Kind: "PersistentVolumeClaim", Namespace: "db", Name: "wal", UID: "u"}}}
	ams.create(c)
	settleAll(ams)
	f.serve(uuid, 0)
	settleAll(ams)
	ams.get(c)
	ams.ready(c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if got := strings.Join(f.claims(uuid), " "); got != "ams/db/wal" || c.Status.ObservedPolicyGeneration != 1 || len(c.Spec.Claims) != 1 ||
		c.Status.Copies != "1/1" {
		t.Errorf("claims %s, status %+v", got, c.Status)
	}
	edit(ams, c, func(c *v1alpha1.GeoVolumeContent) { c.Spec.Size = resource.MustParse("3Gi") })
	settleAll(ams)
	if v := f.record(uuid); v.Spec.Size != 3<<30 || v.Generation != 2 {
		t.Errorf("record %+v", v)
	}
	edit(ams, c, func(c *v1alpha1.GeoVolumeContent) { c.Spec.Policy = "gone" })
	settleAll(ams)
	ams.get(c)
	ams.ready(c, metav1.ConditionFalse, v1alpha1.ReasonPolicyNotFound, "no VolumePolicy gone")
	ams.delete(c)
	settleAll(ams)
	if v := f.record(uuid); !v.Deleted || len(f.claims(uuid)) != 0 || ams.has(c) {
		t.Errorf("record %+v, claims %v", v, f.claims(uuid))
	}
}

// The registry is down while things are deleted: they wait, say so, and are right afterwards.
func TestRegistryIsDown(t *testing.T) {
	f, ams, utr, g, uuid := two(t, nil)
	ams.reg.SetDown(true)
	ams.delete(g)
	settleAll(ams)
	ams.get(g)
	ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonRegistryUnavailable, "registry unavailable")
	if !hasFinalizer(g) || conditionOf(g.Status.Conditions, v1alpha1.ConditionReconciling) == nil ||
		ams.results["GeoVolume ns/data"].RequeueAfter == 0 {
		t.Fatalf("finalizers %v, conditions %v", g.Finalizers, g.Status.Conditions)
	}
	// What is served is served: it does not become less ready for it.
	c := contentOf(uuid)
	ams.get(c)
	ams.ready(c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	// A new one waits too.
	n := gv("ns", "new", nil)
	ams.create(n)
	settleAll(ams)
	ams.get(n)
	ams.ready(n, metav1.ConditionFalse, v1alpha1.ReasonRegistryUnavailable)

	ams.reg.SetDown(false)
	settleAll(ams, utr)
	if ams.has(g) || f.record(uuid).Deleted || len(f.claims(uuid)) != 0 {
		t.Fatalf("claims %v", f.claims(uuid))
	}
	ams.get(n)
	ams.ready(n, metav1.ConditionFalse, v1alpha1.ReasonCreating)
}

// An operator that starts while the registry is down touches nothing that is well.
func TestStartsWithoutRegistry(t *testing.T) {
	f, ams, _, g, uuid := two(t, nil)
	fresh := f.server.Client(nil)
	fresh.SetDown(true)
	o := ams.op.Options
	o.Registry = fresh
	op := newOperator(o, "uid-ams", ams.watched())
	op.Events = ams.events
	_, down := fresh.Head(t.Context())
	ams.op = op
	ams.recs = map[string]reconciler{"GeoVolume": &geoVolumes{op}, "GeoVolumeContent": &contents{operator: op}}
	before := ams.count()
	reconcileBoth := func() {
		t.Helper()
		for kind, key := range map[string]string{"GeoVolume": "ns/data", "GeoVolumeContent": uuid} {
			ams.reconcile(kind, key)
		}
	}
	reconcileBoth() // nothing is known yet: nothing is written
	if ams.count() != before {
		t.Errorf("writes %v", last(ams.writes, ams.count()-before))
	}
	op.mirror.SetDown(down)
	ams.delete(g)
	reconcileBoth()
	ams.get(g)
	ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonRegistryUnavailable)
	c := contentOf(uuid)
	ams.get(c)
	ams.ready(c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if conditionOf(c.Status.Conditions, v1alpha1.ConditionReconciling) == nil {
		t.Errorf("the content does not say that the registry is away: %v", c.Status.Conditions)
	}
}

// The registry forgot a volume that it had. Nothing is made in its place, and what remembers it
// does not go by itself.
func TestARegistryThatForgot(t *testing.T) {
	f, ams, utr, g, uuid := two(t, nil)
	v, rev, err := f.reg.GetVolume(t.Context(), uuid)
	f.ok(err)
	v.Deleted = true
	rev, err = f.reg.UpdateVolume(t.Context(), rev, v)
	f.ok(err)
	f.ok(f.reg.PurgeVolume(t.Context(), rev, federation.Purge{Volume: uuid, At: time.Unix(1, 0)}))
	f.ok(f.reg.DeletePurge(t.Context(), uuid)) // as if it had never been
	settleAll(ams, utr)
	c := contentOf(uuid)
	ams.get(c)
	ams.ready(c, metav1.ConditionFalse, v1alpha1.ReasonNotFound, "restored from a backup")
	if all, err := f.reg.ListVolumes(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("%v, %v", all, err)
	}
	ams.delete(g)
	settleAll(ams, utr)
	ams.get(g)
	ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonNotFound, v1alpha1.ForceAnnotation+"="+uuid)
	edit(ams, g, func(g *v1alpha1.GeoVolume) { g.Annotations = map[string]string{v1alpha1.ForceAnnotation: uuid} })
	settleAll(ams, utr)
	if ams.has(g) {
		t.Error("the GeoVolume stays though it is to be forgotten")
	}
}

// A volume was purged before its objects were gone. They say so, and can be deleted.
func TestPurgedBeforeItsObjects(t *testing.T) {
	f, ams, utr, g, uuid := two(t, nil)
	v, rev, err := f.reg.GetVolume(t.Context(), uuid)
	f.ok(err)
	v.Deleted = true
	rev, err = f.reg.UpdateVolume(t.Context(), rev, v)
	f.ok(err)
	f.ok(f.reg.PurgeVolume(t.Context(), rev, federation.Purge{Volume: uuid, Name: v.Name, At: time.Unix(1, 0)}))
	settleAll(ams, utr)
	c := contentOf(uuid)
	ams.get(c)
	ams.ready(c, metav1.ConditionFalse, v1alpha1.ReasonDeleted, "its data is gone")
	ams.delete(g)
	settleAll(ams, utr)
	if ams.has(g) || ams.has(c) {
		t.Error("an object of a purged volume stays although it was deleted")
	}
}

// Every write to the registry may fail in every way, and the end is the same.
func TestFaultsOfTheRegistry(t *testing.T) {
	for _, fault := range []string{"conflict", "unavailable", "unknown, applied", "unknown, lost", "unknown, late"} {
		for at := range 6 {
			f := newFed(t)
			f.site("ams", "uva")
			f.site("utr", "uva")
			ams := f.cluster("ams")
			settleAll(ams)
			script := make([]faultKind, at+1)
			script[at] = faults[fault]
			ams.reg.Script(script...)
			g := gv("ns", "data", func(s *v1alpha1.GeoVolumeSpec) { s.ReclaimPolicy = v1alpha1.Delete })
			ams.create(g)
			settleAll(ams)
			ams.reg.Deliver()
			settleAll(ams)
			uuid := v1alpha1.VolumeUUID("uid-ams", string(g.UID))
			ring, _, err := f.reg.GetKeyring(t.Context(), uuid)
			v := f.record(uuid)
			if err != nil || !slices.Equal(f.claims(uuid), []string{"ams/ns/data"}) || !covers(ring, v.Sites) {
				t.Fatalf("%s at %d: record %+v, claims %v, keyring %v, %v", fault, at, v, f.claims(uuid), ring, err)
			}
			ams.reg.Script(script...)
			ams.delete(g)
			settleAll(ams)
			ams.reg.Deliver()
			settleAll(ams)
			if v := f.record(uuid); !v.Deleted || ams.has(g) || ams.has(contentOf(uuid)) || len(f.claims(uuid)) != 0 {
				t.Fatalf("%s at %d: record %+v, claims %v", fault, at, v, f.claims(uuid))
			}
		}
	}
}

func covers(ring federation.Keyring, sites []string) bool {
	for _, s := range sites {
		if ring.Wrapped[s] == nil {
			return false
		}
	}
	return true
}
