// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// An API server that is older than the policy's kind gets none.
func TestAdmissionPolicyNeedsKubernetes(t *testing.T) {
	for version, want := range map[string]int{"1.29.0": 0, "1.30.0": 1, kubeVersion: 1} {
		out, stderr, err := run(t, append([]string{"template", "weir", "weir", "--namespace", namespace, "--kube-version", version},
			trial()...)...)
		if err != nil {
			t.Fatalf("helm template: %v\n%s", err, stderr)
		}
		all := decode(t, out)
		policies, bindings := of[admissionv1.ValidatingAdmissionPolicy](all), of[admissionv1.ValidatingAdmissionPolicyBinding](all)
		if len(policies) != want || len(bindings) != want {
			t.Errorf("Kubernetes %s: %d policies and %d bindings, want %d", version, len(policies), len(bindings), want)
		}
		for i, b := range bindings {
			if b.Spec.PolicyName != policies[i].Name || !slices.Equal(b.Spec.ValidationActions,
				[]admissionv1.ValidationAction{admissionv1.Deny}) {
				t.Errorf("%s binds %s with %q, want %s with Deny", b.Name, b.Spec.PolicyName, b.Spec.ValidationActions, policies[i].Name)
			}
		}
	}
}

// as is a client with a service account of the chart.
func (c cluster) as(t *testing.T, account string) client.Client {
	t.Helper()
	cfg := rest.CopyConfig(c.config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}
	as, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return as
}

// deletable is an object that the operator may delete if it has the mark, and a person may anyway.
type deletable struct {
	what       string
	object     func(name string) client.Object
	annotation bool
	key, value string
	// owned says that a GeoVolume must be its owner too.
	owned bool
	// forged is one that stays, although the operator marks it as its own; nil: there is none.
	forged func() client.Object
}

func ofKind(kind string, spec map[string]any) func(string) client.Object {
	return func(name string) client.Object {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version,
			Kind: kind})
		u.SetName(name)
		return u
	}
}

var size = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}

var deletables = []deletable{
	{what: "PersistentVolume", key: v1alpha1.VolumeLabel, value: "x", forged: func() client.Object {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "of-another-driver"}, Spec: corev1.PersistentVolumeSpec{
			Capacity:    size,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "other.example.org",
				VolumeHandle: "x"}}}}
	}, object: func(name string) client.Object {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			Capacity:    size,
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: v1alpha1.Driver,
				VolumeHandle: "x"}}}}
	}},
	{what: "PersistentVolumeClaim", key: v1alpha1.VolumeLabel, value: "x", owned: true, object: claim,
		forged: func() client.Object { return claim("of-a-user") }},
	{what: "Site", annotation: true, key: v1alpha1.Group + "/mirror-of", value: "demo", object: site,
		forged: func() client.Object { return site("here") }}, // as the values call it
	{what: "GeoVolumeContent", key: "app.kubernetes.io/managed-by", value: "weir-operator",
		object: ofKind("GeoVolumeContent", map[string]any{"federationName": "lab.x", "owner": "here", "size": "1Gi"})},
}

var site = ofKind("Site", map[string]any{"organization": "o", "federation": "trial"})

func claim(name string) client.Object {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: size}}}
}

// mark makes an object look as if the operator had made it.
func (d deletable) mark(o client.Object) {
	if d.annotation {
		o.SetAnnotations(map[string]string{d.key: d.value})
	} else {
		o.SetLabels(map[string]string{d.key: d.value})
	}
}

// owner is a GeoVolume; the API server does not ask whether there is one.
func owner(o client.Object) {
	controls := true
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GeoVolume", Name: "g", UID: "u",
		Controller: &controls}})
}

// names of the objects: GeoVolumeContents are called by a UUID.
var names = [2]string{"00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"}

// operatorDeletes: the API server lets the operator delete what it marked as made by itself, and
// nothing else; others are not bound by that.
func (c cluster) operatorDeletes(t *testing.T) {
	operator := c.as(t, "weir-operator")
	for _, d := range deletables {
		t.Run(d.what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
			defer cancel()
			theirs := d.object(names[0])
			c.create(ctx, t, theirs)
			// A new policy is in force only after a moment. Until then the operator can delete
			// another owner's object, so the object is created again.
			for {
				err := operator.Delete(ctx, theirs)
				if err != nil {
					if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), d.key) {
						t.Fatalf("the operator deletes somebody else's %s: %v; want a refusal that names %s", d.what, err, d.key)
					}
					break
				}
				theirs = d.object(names[0])
				c.create(ctx, t, theirs)
			}
			ours := d.object(names[1])
			d.mark(ours)
			if d.owned {
				owner(ours)
			}
			c.create(ctx, t, ours)
			if err := operator.Delete(ctx, ours); err != nil {
				t.Errorf("the operator deletes its own %s: %v", d.what, err)
			}
			if err := c.client.Delete(ctx, theirs); err != nil {
				t.Errorf("an administrator deletes a %s: %v", d.what, err)
			}
			if d.forged != nil {
				c.forgedStays(ctx, t, operator, d)
			}
		})
	}
}

// forgedStays: the operator cannot make an object its own, and then delete it.
func (c cluster) forgedStays(ctx context.Context, t *testing.T, operator client.Client, d deletable) {
	t.Helper()
	forged := d.forged()
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(forged), forged); apierrors.IsNotFound(err) {
		c.create(ctx, t, forged)
	} else if err != nil {
		t.Fatal(err)
	}
	before := forged.DeepCopyObject().(client.Object)
	d.mark(forged)
	if err := operator.Patch(ctx, forged, client.MergeFrom(before)); err != nil {
		t.Errorf("the operator puts its mark on a %s, which it may do: %v", d.what, err)
	}
	if d.owned {
		before := forged.DeepCopyObject().(client.Object)
		owner(forged)
		err := operator.Patch(ctx, forged, client.MergeFrom(before))
		if err == nil || !strings.Contains(err.Error(), "makes no GeoVolume") {
			t.Errorf("the operator makes a GeoVolume the owner of a %s: %v, want a refusal", d.what, err)
		}
	}
	if err := operator.Delete(ctx, forged); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		t.Errorf("the operator deletes a %s that it did not make, and marked: %v, want a refusal", d.what, err)
	}
	if err := c.client.Delete(ctx, forged); err != nil {
		t.Error(err)
	}
}

// create makes an object, as soon as one of the same name is gone and the kind is known. Nothing
// here takes off the finalizers of claims and volumes but this.
func (c cluster) create(ctx context.Context, t *testing.T, o client.Object) {
	t.Helper()
	for {
		err := c.client.Create(ctx, o.DeepCopyObject().(client.Object))
		if err == nil {
			break
		}
		if !apierrors.IsAlreadyExists(err) || ctx.Err() != nil {
			t.Fatalf("create %s: %v", o.GetName(), err)
		}
		old := o.DeepCopyObject().(client.Object)
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(o), old); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		} else if err == nil && len(old.GetFinalizers()) > 0 {
			old.SetFinalizers(nil)
			if err := c.client.Update(ctx, old); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
		}
	}
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
}
