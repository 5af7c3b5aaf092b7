// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/outcome"
)

// The operator deletes what it made, and of what only looks like it, nothing. The chart's
// ValidatingAdmissionPolicy is tested with the same marks in charts/deletes_test.go.
func TestEraseOnlyWhatItMade(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	claim := func(owner *metav1.OwnerReference, labels map[string]string) client.Object {
		o := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "x", Labels: labels}}
		if owner != nil {
			o.OwnerReferences = []metav1.OwnerReference{*owner}
		}
		return o
	}
	volume := func(driver string, labels map[string]string) client.Object {
		o := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: labels}}
		if driver != "" {
			o.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "x"}
		}
		return o
	}
	site := func(annotations map[string]string) client.Object {
		return &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: annotations}}
	}
	content := func(labels map[string]string) client.Object {
		return &v1alpha1.GeoVolumeContent{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: labels}}
	}
	mirrors := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Annotations: map[string]string{mirrorAnnotation: "demo"}}
	}
	yes, marked := true, map[string]string{v1alpha1.VolumeLabel: "x"}
	geoVolume := &metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GeoVolume", Name: "x", UID: "1",
		Controller: &yes}
	other := &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "x", UID: "1", Controller: &yes}

	for _, c := range []struct {
		name string
		obj  client.Object
		ours bool
	}{
		{"claim of a GeoVolume", claim(geoVolume, marked), true},
		{"claim of a GeoVolume, without the label", claim(geoVolume, nil), false},
		{"claim of somebody else", claim(other, marked), false},
		{"claim of nobody", claim(nil, marked), false},
		{"volume of a GeoVolume", volume(v1alpha1.Driver, marked), true},
		{"volume of a claim, which the provisioner made", volume(v1alpha1.Driver, nil), false},
		{"volume of another driver", volume("other.example.org", marked), false},
		{"volume without a driver", volume("", marked), false},
		{"mirror of a site", site(map[string]string{mirrorAnnotation: "demo"}), true},
		{"site that a person made", site(nil), false},
		{"content that the operator made", content(contentLabels()), true},
		{"content that the CSI controller made", content(nil), false},
		{"content of another manager", content(map[string]string{managedByLabel: "Helm"}), false},
		{"mirror of an offer", &v1alpha1.StorageOffer{ObjectMeta: mirrors("ams.x")}, true},
		{"offer that a person made", &v1alpha1.StorageOffer{ObjectMeta: mirrors("x")}, false},
		{"offer without the mark", &v1alpha1.StorageOffer{ObjectMeta: meta("ams.x")}, false},
		{"agreement", &v1alpha1.StorageAgreement{ObjectMeta: mirrors("x")}, true},
		{"agreement that a person made", &v1alpha1.StorageAgreement{ObjectMeta: meta("x")}, false},
		{"usage", &v1alpha1.StorageUsage{ObjectMeta: mirrors("x")}, true},
		{"request", &v1alpha1.StorageRequest{ObjectMeta: mirrors("x")}, false},
		{"policy", &v1alpha1.VolumePolicy{ObjectMeta: meta("x")}, false},
		{"geovolume", &v1alpha1.GeoVolume{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "x"}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ams := newFed(t).cluster("ams")
			if err := ams.api.Create(t.Context(), c.obj); err != nil {
				t.Fatal(err)
			}
			err := ams.op.erase(t.Context(), c.obj)
			again := ams.api.Get(t.Context(), client.ObjectKeyFromObject(c.obj), c.obj)
			var s *outcome.Stop
			switch {
			case c.ours && (err != nil || !apierrors.IsNotFound(again)):
				t.Errorf("erase: %v, and then %v; want it gone", err, again)
			case !c.ours && (!errors.As(err, &s) || again != nil):
				t.Errorf("erase: %v, and then %v; want a refusal, and the object there", err, again)
			}
		})
	}
}

// A content that was made before contents had the label, or by the CSI controller, is taken over
// only by what the registry says of it.
func TestAdopt(t *testing.T) {
	ams := newFed(t).cluster("ams")
	obj := &v1alpha1.GeoVolumeContent{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"a": "b"}}}
	if err := ams.api.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	stale := obj.DeepCopy()
	if err := ams.op.adopt(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	if obj.Labels[managedByLabel] != managedByOperator || obj.Labels["a"] != "b" {
		t.Errorf("its labels are %v", obj.Labels)
	}
	if err := ams.op.adopt(t.Context(), stale); !apierrors.IsConflict(err) {
		t.Errorf("of an object that has changed since: %v, want a conflict", err)
	}
	if err := ams.op.erase(t.Context(), obj); err != nil {
		t.Error(err)
	}
}

func testScheme(t testing.TB) *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}
