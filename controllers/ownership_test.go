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
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/federation"
)

// told drains the events, and reports whether one has those words.
func (c *cluster) told(words ...string) bool {
	for {
		select {
		case e := <-c.events.Events:
			all := true
			for _, w := range words {
				all = all && strings.Contains(e, w)
			}
			if all {
				return true
			}
		default:
			return false
		}
	}
}

// The same manifest applied at two sites makes one volume; the slower site is refused.
func TestOneNameAtTwoSites(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	f.site("utr", "uva")
	ams, utr := f.cluster("ams"), f.cluster("utr")
	settleAll(ams, utr)
	a, u := gv("ns", "data", nil), gv("ns", "data", nil)
	ams.create(a)
	utr.create(u)
	// Both have looked, and found the name free, before either creates: their objects are made
	// first.
	ams.reconcile("GeoVolume", "ns/data")
	utr.reconcile("GeoVolume", "ns/data")
	settleAll(ams, utr)
	all, err := f.reg.ListVolumes(t.Context())
	if err != nil || len(all) != 1 || all[0].Volume.OwnerSite != "ams" {
		t.Fatalf("%+v, %v", all, err)
	}
	utr.get(u)
	utr.ready(u, metav1.ConditionFalse, v1alpha1.ReasonNameTaken, "site ams", "spec.import.volume: ns.data")
	if conditionOf(u.Status.Conditions, v1alpha1.ConditionStalled) == nil ||
		utr.has(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}) {
		t.Errorf("conditions %v", u.Status.Conditions)
	}
	if _, _, err := f.reg.GetKeyring(t.Context(), v1alpha1.VolumeUUID("uid-utr", string(u.UID))); err == nil {
		t.Error("the refused volume's keyring is left")
	}
	utr.delete(u)
	settleAll(ams, utr)
	if utr.has(u) || f.record(all[0].Volume.UUID).Closing {
		t.Error("the refused GeoVolume does not go, or takes the volume along")
	}
}

// utr has the name first in the registry, but ams's mirror does not know: the registry decides.
func TestANameThatWasTakenJustNow(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	ams := f.cluster("ams")
	settleAll(ams)
	_, err := f.reg.CreateVolume(t.Context(), federation.Volume{UUID: "other", Name: "ns.data", Owner: "uva", Generation: 1},
		federation.Keyring{})
	f.ok(err)
	c := &content{GeoVolumeContent: contentOf("0a6b4c1e-7a0b-5a42-9a2e-1f6d0c8a9b10")}
	c.Spec = v1alpha1.GeoVolumeContentSpec{FederationName: "ns.data", Owner: "ams", Size: resource.MustParse("1Gi"),
		Overrides: &v1alpha1.VolumePolicySpec{}}
	one := int32(1)
	c.Spec.Overrides.Replication.Copies = &one
	r := &contents{operator: ams.op}
	p, _, err := r.resolve(t.Context(), c)
	f.ok(err)
	got := outcome.Settle(r.create(t.Context(), c, p))
	if got.Verdict == nil || got.Verdict.Reason != v1alpha1.ReasonNameTaken || !strings.Contains(got.Verdict.Message, "organization uva") {
		t.Fatalf("%+v", got)
	}
	if _, _, err := f.reg.GetKeyring(t.Context(), c.Name); err == nil {
		t.Error("the keyring is left")
	}
}

// Both sites edit: the owner's value wins, and the other gets an event.
func TestBothSitesEdit(t *testing.T) {
	f, ams, utr, g, uuid := two(t, nil)
	c := contentOf(uuid)
	utr.get(c)
	edit(utr, c, func(c *v1alpha1.GeoVolumeContent) {
		c.Spec.Size = resource.MustParse("9Gi")
		c.Spec.Policy = "mine"
		c.Spec.Owner = "utr"
	})
	settleAll(ams, utr)
	utr.get(c)
	if c.Spec.Owner != "ams" || c.Spec.Size.String() != "1Gi" || c.Spec.Policy != "" || f.record(uuid).Spec.Size != 1<<30 {
		t.Errorf("spec %+v", c.Spec)
	}
	s := conditionOf(c.Status.Conditions, v1alpha1.ConditionInSync)
	if s == nil || s.Reason != v1alpha1.ReasonNotOwner || s.Status != metav1.ConditionFalse ||
		!strings.Contains(s.Message, "spec.owner, spec.size, spec.policy") || !strings.Contains(s.Message, "site ams") {
		t.Errorf("InSync is %+v", s)
	}
	utr.ready(c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if !utr.told("Warning", v1alpha1.ReasonNotOwner, "spec.size") {
		t.Error("no event tells of it")
	}

	edit(ams, g, func(g *v1alpha1.GeoVolume) { q := resource.MustParse("2Gi"); g.Spec.Size = &q })
	settleAll(ams, utr)
	utr.get(c)
	if c.Spec.Size.String() != "2Gi" || conditionOf(c.Status.Conditions, v1alpha1.ConditionInSync) != nil ||
		utr.told(v1alpha1.ReasonNotOwner) {
		t.Errorf("after the owner's change: spec %+v, conditions %v", c.Spec, c.Status.Conditions)
	}

	// At the owner the GeoVolume's word counts, and an edit of its content never reaches the
	// registry.
	ams.told()
	a := contentOf(uuid)
	ams.get(a)
	edit(ams, a, func(c *v1alpha1.GeoVolumeContent) { c.Spec.Size = resource.MustParse("7Gi") })
	ams.reconcile("GeoVolumeContent", uuid)
	settleAll(ams, utr)
	ams.get(a)
	if a.Spec.Size.String() != "2Gi" || f.record(uuid).Spec.Size != 2<<30 ||
		!ams.told(v1alpha1.ReasonNotOwner, "GeoVolume data of namespace ns") {
		t.Errorf("spec %+v, record %v", a.Spec, f.record(uuid).Spec.Size)
	}
}

// transfer swaps the owner as `weir volume transfer` does.
func (f *fed) transfer(uuid, site string) {
	f.t.Helper()
	v, rev, err := f.reg.GetVolume(f.t.Context(), uuid)
	f.ok(err)
	v.OwnerSite, v.OwnerCluster = site, "uid-"+site
	_, err = f.reg.UpdateVolume(f.t.Context(), rev, v)
	f.ok(err)
}

// The owner's site is lost, the ownership goes elsewhere, and the old owner comes back.
func TestSuperseded(t *testing.T) {
	for _, old := range []string{"returns", "was there all the time"} {
		f, ams, utr, g, uuid := two(t, func(s *v1alpha1.GeoVolumeSpec) { s.ReclaimPolicy = v1alpha1.Delete; granted("utr", "app")(s) })
		i := imported("app", "shared", "ns.data")
		utr.create(i)
		settleAll(ams, utr)
		f.ok(f.reg.PutLost(t.Context(), federation.Lost{Site: "ams", By: "anna", At: f.clock()}))
		settleAll(utr)
		s := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "ams"}}
		utr.get(s)
		utr.ready(s, metav1.ConditionFalse, v1alpha1.ReasonLost, "anna")
		f.transfer(uuid, "utr")
		settleAll(utr)
		c := contentOf(uuid)
		utr.get(c)
		if c.Spec.Owner != "utr" || !hasFinalizer(c) || c.Spec.ReclaimPolicy != v1alpha1.Retain {
			t.Fatalf("%s: the new owner's content is %+v", old, c.Spec)
		}
		if got := f.record(uuid); got.Generation != 1 || got.Spec.Replication.Copies != 2 {
			t.Fatalf("%s: the change of owner changed the volume: %+v", old, got)
		}
		utr.get(i)
		utr.ready(i, metav1.ConditionTrue, v1alpha1.ReasonReady)
		if old == "was there all the time" {
			settleAll(ams, utr)
		} else {
			ams.delete(g) // while it was away
		}
		before := f.record(uuid)
		settleAll(ams, utr)
		a := contentOf(uuid)
		ams.get(a)
		ams.ready(a, metav1.ConditionFalse, v1alpha1.ReasonSuperseded, "site utr")
		if hasFinalizer(a) {
			t.Errorf("%s: the old owner's content has its finalizer", old)
		}
		if old == "was there all the time" {
			ams.get(g)
			ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonSuperseded, "spec.import.volume: ns.data")
			if hasFinalizer(g) || len(f.claims(uuid)) != 2 {
				t.Errorf("%s: finalizers %v, claims %v", old, g.Finalizers, f.claims(uuid))
			}
			ams.delete(g)
		}
		settleAll(ams, utr)
		ams.delete(a)
		settleAll(ams, utr)
		after := f.record(uuid)
		if after.Deleted || after.Closing || after.Generation != before.Generation {
			t.Errorf("%s: the old owner changed the record from %+v to %+v", old, before, after)
		}
		if got := strings.Join(f.claims(uuid), " "); got != "utr/app/shared" {
			t.Errorf("%s: claims %s", old, got)
		}
		// Its copy is mirrored like any other's.
		ams.get(a)
		if a.Spec.Owner != "utr" {
			t.Errorf("%s: the old owner's new content is %+v", old, a.Spec)
		}
		// The new owner decides now.
		edit(utr, c, func(c *v1alpha1.GeoVolumeContent) { c.Spec.Size = resource.MustParse("5Gi") })
		settleAll(ams, utr)
		if f.record(uuid).Spec.Size != 5<<30 {
			t.Errorf("%s: the new owner's change does not arrive", old)
		}
	}
}

func TestSites(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	f.site("ein", "tue")
	ams := f.cluster("ams")
	settleAll(ams)
	site := func(name string) *v1alpha1.Site {
		s := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: name}}
		ams.get(s)
		return s
	}
	s := site("ams")
	ams.ready(s, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if s.Status.Cluster != "uid-ams" || !s.Status.Local || s.Status.Alive != "1/1" || s.Status.Gateways[0].Address != "ams:7440" {
		t.Errorf("status %+v", s.Status)
	}
	all, err := f.reg.Sites(t.Context())
	f.ok(err)
	if got := all[0].Site; got.Cluster != "uid-ams" || got.Region != "ams" || got.Labels["jurisdiction"] != "nl" || len(got.Gateways) != 1 {
		t.Errorf("registered %+v", got)
	}
	s = site("ein")
	if s.Spec.Organization != "tue" || s.Spec.Endpoints.Gateway != "ein:7440" || s.Status.Local {
		t.Errorf("the mirror is %+v", s)
	}

	// A mirror is read-only: edits, labels too, are undone.
	edit(ams, s, func(s *v1alpha1.Site) { s.Spec.Region, s.Labels = "mine", map[string]string{"jurisdiction": "nl"} })
	settleAll(ams)
	if s = site("ein"); s.Spec.Region != "" || len(s.Labels) != 0 {
		t.Errorf("an edit stays: %+v", s)
	}
	f.server.Expire("ein-1")
	settleAll(ams)
	s = site("ein")
	ams.ready(s, metav1.ConditionFalse, v1alpha1.ReasonNoGateway, "start it")
	f.ok(f.reg.RemoveSite(t.Context(), "ein"))
	settleAll(ams)
	if ams.has(s) {
		t.Error("the mirror of a site that is gone stays")
	}
	ams.create(&v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "gro"}, Spec: v1alpha1.SiteSpec{Organization: "rug", Federation: "demo"}})
	settleAll(ams)
	ams.ready(site("gro"), metav1.ConditionFalse, v1alpha1.ReasonNotFound, "delete it")

	// A second cluster of the name is refused, and touches nothing.
	second := f.cluster("ams", "second")
	g := gv("ns", "data", nil)
	second.create(g)
	settleAll(ams, second)
	s = &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "ams"}}
	second.get(s)
	second.ready(s, metav1.ConditionFalse, v1alpha1.ReasonNameTaken, "uid-ams", "uid-ams-second")
	second.get(g)
	second.ready(g, metav1.ConditionFalse, v1alpha1.ReasonNameTaken, "another site name")
	if list, err := f.reg.ListVolumes(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("the second cluster made %v, %v", list, err)
	}

	// The registry goes away: the local site says so.
	ams.op.mirror.SetDown(federation.ErrUnavailable)
	ams.reconcile("Site", "ams")
	ams.ready(site("ams"), metav1.ConditionFalse, v1alpha1.ReasonRegistryUnavailable)
	ams.op.mirror.SetDown(nil)
	ams.reconcile("Site", "ams")
	ams.ready(site("ams"), metav1.ConditionTrue, v1alpha1.ReasonReady)
}

// Somebody else's objects are left alone.
func TestConflictingObjects(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	f.site("utr", "uva")
	ams := f.cluster("ams")
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}
	ams.create(pvc)
	g := gv("ns", "data", nil)
	ams.create(g)
	settleAll(ams)
	ams.get(g)
	ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonConflict, "PersistentVolumeClaim data is in namespace ns already")
	ams.get(pvc)
	if len(pvc.Labels) != 0 || pvc.Spec.VolumeName != "" || len(pvc.OwnerReferences) != 0 {
		t.Errorf("the claim was taken over: %+v", pvc)
	}
	if b := conditionOf(g.Status.Conditions, v1alpha1.ConditionBound); b == nil || b.Reason != v1alpha1.ReasonConflict {
		t.Errorf("Bound is %+v", b)
	}
	ams.delete(g)
	settleAll(ams)
	if !ams.has(pvc) || ams.has(g) {
		t.Error("the claim of somebody else was deleted, or the GeoVolume stays")
	}

	// Nor is a PersistentVolume that only has the name.
	f.advance(time.Second)
	g = gv("ns", "more", nil)
	ams.create(g)
	uuid := v1alpha1.VolumeUUID("uid-ams", string(g.UID))
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: (&geoVolume{GeoVolume: g, uuid: uuid}).desired().PVName()}}
	ams.create(pv)
	settleAll(ams)
	ams.get(g)
	ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonConflict, pv.Name)
	ams.get(pv)
	if pv.Spec.CSI != nil {
		t.Error("the PersistentVolume was taken over")
	}
}
