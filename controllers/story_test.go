// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/memory"
)

func typeName(v any) string { return fmt.Sprintf("%T", v) }

// gv is a GeoVolume of 1Gi.
func gv(namespace, name string, change func(*v1alpha1.GeoVolumeSpec)) *v1alpha1.GeoVolume {
	q := resource.MustParse("1Gi")
	g := &v1alpha1.GeoVolume{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.GeoVolumeSpec{Size: &q, Access: v1alpha1.ReadWrite, ReclaimPolicy: v1alpha1.Retain}}
	if change != nil {
		change(&g.Spec)
	}
	return g
}

// imported is a GeoVolume that imports.
func imported(namespace, name, volume string) *v1alpha1.GeoVolume {
	return gv(namespace, name, func(s *v1alpha1.GeoVolumeSpec) { s.Size, s.Import = nil, &v1alpha1.Import{Volume: volume} })
}

func granted(site, namespace string) func(*v1alpha1.GeoVolumeSpec) {
	return func(s *v1alpha1.GeoVolumeSpec) {
		s.Grants = []v1alpha1.Grant{{Site: v1alpha1.SiteName(site), Namespace: namespace, Access: v1alpha1.ReadWrite}}
	}
}

func contentOf(name string) *v1alpha1.GeoVolumeContent {
	return &v1alpha1.GeoVolumeContent{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func conditionsOf(obj any) []metav1.Condition {
	switch o := obj.(type) {
	case *v1alpha1.GeoVolume:
		return o.Status.Conditions
	case *v1alpha1.GeoVolumeContent:
		return o.Status.Conditions
	case *v1alpha1.Site:
		return o.Status.Conditions
	case *v1alpha1.VolumePolicy:
		return o.Status.Conditions
	case *v1alpha1.CachePool:
		return o.Status.Conditions
	case *v1alpha1.PlacementQuota:
		return o.Status.Conditions
	case *v1alpha1.GeoVolumeSnapshot:
		return o.Status.Conditions
	}
	return nil
}

// ready checks Ready's status and reason, and that its message has those words.
func (c *cluster) ready(obj interface {
	metav1.Object
}, status metav1.ConditionStatus, reason string, words ...string) {
	c.t.Helper()
	is := object.Ready(conditionsOf(obj))
	if is.Status != status || is.Reason != reason {
		c.t.Fatalf("%s: %s: Ready is %s, %s (%s), want %s, %s", c.name, obj.GetName(), is.Status, is.Reason, is.Message, status, reason)
	}
	for _, w := range words {
		if !strings.Contains(is.Message, w) {
			c.t.Errorf("%s: %s: the message %q does not say %q", c.name, obj.GetName(), is.Message, w)
		}
	}
}

func (f *fed) record(uuid string) federation.Volume {
	f.t.Helper()
	v, _, err := f.reg.GetVolume(f.t.Context(), uuid)
	f.ok(err)
	return v
}

func (f *fed) claims(uuid string) []string {
	f.t.Helper()
	list, err := f.reg.ListClaims(f.t.Context(), uuid)
	f.ok(err)
	var out []string
	for _, c := range list {
		out = append(out, c.Site+"/"+c.Namespace+"/"+c.Name)
	}
	return out
}

func TestAVolumeIsMade(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	f.site("utr", "uva")
	ams := f.cluster("ams")
	utr := f.cluster("utr")
	g := gv("ns", "data", nil)
	ams.create(g)
	settleAll(ams, utr)
	ams.get(g)
	ams.ready(g, metav1.ConditionFalse, v1alpha1.ReasonCreating, "gateway ams-1 at site ams begins to serve it")
	uuid := v1alpha1.VolumeUUID("uid-ams", string(g.UID))
	f.serve(uuid, 0)
	settleAll(ams, utr)
	ams.get(g)
	ams.ready(g, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if g.Status.Volume != uuid || g.Status.Copies != "2/2" || g.Status.Home != "ams" || g.Status.Lag != "<1s" ||
		g.Status.FederationName != "ns.data" || g.Status.Owner != "ams" ||
		g.Status.Capacity.String() != "1Gi" {
		t.Errorf("status %+v", g.Status)
	}
	v := f.record(uuid)
	if v.Name != "ns.data" || v.OwnerSite != "ams" || v.OwnerCluster != "uid-ams" || strings.Join(v.Sites, " ") != "ams utr" ||
		v.Generation != 1 {
		t.Errorf("record %+v", v)
	}
	ring, _, err := f.reg.GetKeyring(t.Context(), uuid)
	if err != nil || len(ring.Wrapped) != 2 {
		t.Errorf("keyring %+v, %v", ring, err)
	}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}
	ams.get(pvc)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pvc.Spec.VolumeName}}
	ams.get(pv)
	if pv.Spec.CSI.VolumeHandle != "demo/"+uuid || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain ||
		pv.Labels[v1alpha1.VolumeLabel] != uuid ||
		pvc.Labels[v1alpha1.VolumeLabel] != uuid || *pvc.Spec.StorageClassName != "" || pvc.Spec.AccessModes[0] != corev1.ReadWriteMany {
		t.Errorf("PV %+v\nPVC %+v", pv.Spec, pvc.Spec)
	}
	// The other site has a copy, and so an object.
	c := contentOf(uuid)
	utr.get(c)
	utr.ready(c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if c.Spec.Owner != "ams" || len(c.Finalizers) != 0 || strings.Join(c.Status.Claims, " ") != "ams/ns/data" {
		t.Errorf("the mirror is %+v", c)
	}
}

// A site that joins shows the volumes that are well, and makes no events of them. A volume that is
// not well when it is first looked at gets an event.
func TestWellFromTheStartIsNoNews(t *testing.T) {
	f := newFed(t)
	f.site("ams", "uva")
	f.site("utr", "uva")
	ams := f.cluster("ams")
	ams.create(copies(2))
	g := gv("ns", "data", func(s *v1alpha1.GeoVolumeSpec) { s.Policy = "p" })
	ams.create(g)
	settleAll(ams)
	ams.get(g)
	f.serve(g.Status.Volume, 0)
	settleAll(ams)
	if !ams.told(v1alpha1.ReasonCreating) || !ams.told(v1alpha1.ReasonReady) {
		t.Error("where it was made, no event tells that it is made and then ready")
	}

	utr := f.cluster("utr")
	settleAll(utr)
	c := contentOf(g.Status.Volume)
	utr.get(c)
	if r := object.Ready(c.Status.Conditions); r.Status != metav1.ConditionTrue {
		t.Fatalf("the mirror's Ready is %+v", r)
	}
	if n := len(utr.events.Events); n != 0 {
		t.Errorf("%d events tell of what is well, such as %s", n, <-utr.events.Events)
	}
}

type faultKind = memory.Fault

var faults = map[string]faultKind{"conflict": memory.ConflictFault, "unavailable": memory.UnavailableFault,
	"unknown, applied": memory.UnknownApplied,
	"unknown, lost":    memory.UnknownLost, "unknown, late": memory.UnknownLate}
