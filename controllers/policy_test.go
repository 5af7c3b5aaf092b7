// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/pace"
	"github.com/weir-storage/weir/federation"
)

func int32p(n int32) *int32 { return &n }

func copies(n int32) *v1alpha1.VolumePolicy {
	return &v1alpha1.VolumePolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: v1alpha1.VolumePolicySpec{Replication: v1alpha1.Replication{Copies: int32p(n)}}}
}

// An edited policy reaches its volumes a few at a time: the next volume begins when the home of an
// earlier one has put the policy in force.
func TestAPolicyIsRolledOut(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	f.site("utr", "uva")
	ams := f.cluster("ams")
	ams.op.rollout = pace.NewRollout(2)
	p := copies(1)
	ams.create(p)
	var uuids []string
	for i := range 6 {
		g := gv("ns", fmt.Sprint("v", i), func(s *v1alpha1.GeoVolumeSpec) { s.Policy = "p" })
		ams.create(g)
		uuids = append(uuids, v1alpha1.VolumeUUID("uid-ams", string(g.UID)))
	}
	settleAll(ams)
	for _, u := range uuids {
		f.serve(u, 0)
	}
	settleAll(ams)
	ams.get(p)
	ams.ready(p, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if p.Status.Volumes != 6 || p.Status.UpToDate != 6 {
		t.Fatalf("status %+v", p.Status)
	}
	edit(ams, p, func(p *v1alpha1.VolumePolicy) { p.Spec.Replication.Copies = int32p(2) })
	done := map[string]bool{}
	for len(done) < 6 {
		settleAll(ams)
		var at []string
		for _, u := range uuids {
			if f.record(u).Generation == 2 && !done[u] {
				at = append(at, u)
			}
		}
		if len(at) == 0 || len(at) > 2 {
			t.Fatalf("%d volumes take it up at a time, after %d", len(at), len(done))
		}
		ams.get(p)
		if p.Status.UpToDate != int32(len(done)) {
			t.Fatalf("%d volumes are said to have it in force, %d have", p.Status.UpToDate, len(done))
		}
		ams.ready(p, metav1.ConditionTrue, v1alpha1.ReasonUpdating)
		f.serve(at[0], 0)
		done[at[0]] = true
	}
	settleAll(ams)
	ams.get(p)
	ams.ready(p, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if p.Status.UpToDate != 6 || p.Status.ObservedGeneration != 2 {
		t.Errorf("status %+v", p.Status)
	}
}

// A policy that cannot be fulfilled leaves volumes as they are, and is when it can be.
func TestAPolicyThatCannotBe(t *testing.T) {
	f, ams, utr, g, uuid := two(t, nil)
	p := copies(3)
	ams.create(p)
	edit(ams, g, func(g *v1alpha1.GeoVolume) { g.Spec.Policy = "p"; granted("utr", "app")(&g.Spec) })
	settleAll(ams, utr)
	ams.get(g)
	ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonUnplaceable, "3 copies are wanted, but only 2 of 2 sites",
		"the volume is served, and stays as it was")
	v := f.record(uuid)
	if v.Generation != 1 || len(v.Sites) != 2 || len(v.Grants) != 1 {
		t.Errorf("record %+v", v)
	}
	c := contentOf(uuid)
	ams.get(c)
	if placed := conditionOf(c.Status.Conditions, v1alpha1.ConditionPlaced); placed == nil || placed.Status != metav1.ConditionFalse ||
		placed.Reason != v1alpha1.ReasonUnplaceable {
		t.Errorf("Placed is %+v", placed)
	}
	f.site("gro", "rug")
	settleAll(ams, utr)
	v = f.record(uuid)
	if !slices.Equal(v.Sites, []string{"ams", "utr", "gro"}) || v.Generation != 2 {
		t.Errorf("record %+v", v)
	}
	// The policy goes: the volume keeps what it has.
	ams.delete(p)
	settleAll(ams, utr)
	ams.get(g)
	ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonPolicyNotFound, "no VolumePolicy p")
	if f.record(uuid).Generation != 2 {
		t.Errorf("record %+v", f.record(uuid))
	}
	bad := &v1alpha1.VolumePolicy{ObjectMeta: metav1.ObjectMeta{Name: "bad"},
		Spec: v1alpha1.VolumePolicySpec{Durability: v1alpha1.Durability{Sites: int32p(2)}}}
	ams.create(bad)
	settleAll(ams)
	ams.get(bad)
	ams.ready(bad, metav1.ConditionFalse, v1alpha1.ReasonInvalid, "spec.durability.sites")
}

// Capacity is promised as volumes are made, and one that has no room waits for it.
func TestCapacity(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	f.site("utr", "uva")
	s, err := f.reg.Sites(t.Context())
	f.ok(err)
	for _, site := range s {
		site.Site.Capacity = 3 << 29
		f.ok(f.reg.Register(t.Context(), site.Site))
	}
	ams := f.cluster("ams")
	a, b := gv("ns", "a", nil), gv("ns", "b", nil)
	ams.create(a)
	settleAll(ams)
	ams.create(b)
	settleAll(ams)
	ams.get(b)
	ams.ready(b, metav1.ConditionFalse, v1alpha1.ReasonUnplaceable, "ams: it lacks room: 1Gi more are needed, and of its 1536Mi, 1Gi "+
		"are promised")
	site := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "utr"}}
	ams.get(site)
	if site.Status.Promised.String() != "1Gi" || site.Status.Capacity.String() != "1536Mi" || site.Status.Volumes != 1 {
		t.Errorf("status %+v", site.Status)
	}
}

// Growth is seen at the PersistentVolume, at the claim's capacity, and in the GeoVolume. What the
// claim asked for stays.
func TestGrowth(t *testing.T) {
	_, ams, utr, g, _ := two(t, granted("utr", "app"))
	i := imported("app", "shared", "ns.data")
	utr.create(i)
	settleAll(ams, utr)
	edit(ams, g, func(g *v1alpha1.GeoVolume) { q := resource.MustParse("3Gi"); g.Spec.Size = &q })
	settleAll(ams, utr)
	for c, key := range map[*cluster][2]string{ams: {"ns", "data"}, utr: {"app", "shared"}} {
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: key[0], Name: key[1]}}
		c.get(pvc)
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pvc.Spec.VolumeName}}
		c.get(pv)
		is, has, asks := pv.Spec.Capacity[corev1.ResourceStorage], pvc.Status.Capacity[corev1.ResourceStorage],
			pvc.Spec.Resources.Requests[corev1.ResourceStorage]
		if is.String() != "3Gi" || has.String() != "3Gi" || asks.String() != "1Gi" {
			t.Errorf("%s: PV %s, PVC %s, which asks for %s", c.name, is.String(), has.String(), asks.String())
		}
	}
	utr.get(i)
	if i.Status.Capacity.String() != "3Gi" {
		t.Errorf("status %+v", i.Status)
	}
}

// The lag changes all the time, and is written at most every 30 s; what matters is written at once.
func TestLagIsWrittenSeldom(t *testing.T) {
	f, ams, _, g, uuid := two(t, nil)
	c := contentOf(uuid)
	ams.get(c)
	for i := range 25 {
		f.advance(time.Second)
		f.serve(uuid, float64(i+2))
		ams.synced()
		ams.reconcile("GeoVolumeContent", uuid)
	}
	ams.get(c)
	if c.Status.Lag != "2s" { // the first change was written, then none
		t.Errorf("lag %s", c.Status.Lag)
	}
	if d := ams.reconcile("GeoVolumeContent", uuid).RequeueAfter; d <= 0 || d > pace.LagEvery {
		t.Errorf("it is looked at again after %v", d)
	}
	f.advance(pace.LagEvery)
	ams.reconcile("GeoVolumeContent", uuid)
	ams.get(c)
	if c.Status.Lag != "26s" {
		t.Errorf("lag %s after 30 s", c.Status.Lag)
	}
	f.advance(time.Second)
	f.serve(uuid, 100)
	settleAll(ams)
	ams.get(c)
	ams.ready(c, metav1.ConditionTrue, v1alpha1.ReasonDegraded, "utr-1 is 1m", "more than maxLag")
	ams.get(g)
	if g.Status.Copies != "1/2" || g.Status.Lag != "1m" {
		t.Errorf("status %+v", g.Status)
	}
	f.server.Expire("ams-1")
	settleAll(ams)
	ams.get(g)
	ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonHomeLost, "weir failover ns.data --accept-loss", "utr-1 was then 1m")
	if conditionOf(g.Status.Conditions, v1alpha1.ConditionStalled) == nil {
		t.Error("nothing says that a person has to do something")
	}
}

// A reconcile that finds everything as it should be writes nothing, anywhere, also after a restart
// of the operator.
func TestSteadyStateWritesNothing(t *testing.T) {
	f, ams, utr, _, uuid := two(t, granted("utr", "app"))
	ams.create(copies(2))
	shared := imported("app", "shared", "ns.data")
	size := resource.MustParse("5Gi")
	shared.Spec.Cache = &v1alpha1.Cache{Size: &size, Pin: []v1alpha1.Pin{{Path: "/a"}}}
	utr.create(shared)
	utr.create(imported("nobody", "v", "ns.data")) // is refused
	utr.create(imported("nobody", "w", "no.such"))
	ams.create(gv("ns", "second", func(s *v1alpha1.GeoVolumeSpec) { s.Policy = "missing" }))
	settleAll(ams, utr)
	for _, c := range []*cluster{ams, utr} {
		before := c.count()
		for range 3 {
			f.advance(time.Hour)
			f.serve(uuid, 0) // gateways report all the time
			c.round()
		}
		if n := c.count() - before; n != 0 {
			t.Errorf("%s: %d writes: %v %v", c.name, n, last(c.writes, n), last(c.reg.writes, n))
		}
	}
}

// After the loss of a site its copies are placed elsewhere, once a person has given up the data
// that only that site may have.
func TestALostSiteIsReplaced(t *testing.T) {
	f, ams, utr, _, uuid := two(t, nil)
	f.site("gro", "rug")
	settleAll(ams, utr)
	if got := f.record(uuid); len(got.Sites) != 2 || slices.Contains(got.Sites, "gro") {
		t.Fatalf("a site that joins moves something: %v", got.Sites)
	}
	f.ok(f.reg.PutLost(t.Context(), federation.Lost{Site: "utr", By: "anna", At: f.clock()}))
	settleAll(ams)
	if got := strings.Join(f.record(uuid).Sites, " "); got != "ams gro" {
		t.Errorf("sites %s", got)
	}
	f.serve(uuid, 0)
	f.ok(f.reg.PutLost(t.Context(), federation.Lost{Site: "ams", By: "anna", At: f.clock()}))
	settleAll(ams)
	if got := strings.Join(f.record(uuid).Sites, " "); got != "ams gro" {
		t.Errorf("the lost home's copy is given up before a person said so: %s", got)
	}
}

// A claim that was deleted by mistake is made again, and with it its PersistentVolume, which
// Kubernetes would never bind again. A label that somebody took away is put back.
func TestObjectsAreMadeAgain(t *testing.T) {
	_, ams, _, g, uuid := two(t, nil)
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}
	ams.get(pvc)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pvc.Spec.VolumeName}}
	ams.get(pv)
	edit(ams, pv, func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "of the claim that goes"; pv.Labels = nil })
	pv.Status.Phase = corev1.VolumeReleased
	if err := ams.api.Status().Update(t.Context(), pv); err != nil {
		t.Fatal(err)
	}
	ams.delete(pvc)
	ams.reconcile("GeoVolume", "ns/data")
	ams.get(pvc)
	pvc.UID = "of the new claim"
	if err := ams.api.Update(t.Context(), pvc); err != nil {
		t.Fatal(err)
	}
	settleAll(ams)
	ams.get(pv)
	if pv.Spec.ClaimRef.UID != "" || pv.Labels[v1alpha1.VolumeLabel] != uuid {
		t.Errorf("the PersistentVolume is not made anew: %+v", pv)
	}
	ams.get(g)
	ams.ready(g, metav1.ConditionTrue, v1alpha1.ReasonReady)
}
