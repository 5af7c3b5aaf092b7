// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/controllers/outcome"
)

// managedByLabel is on GeoVolumeContents that the operator made or took over, with the value
// managedByOperator. Those of claims are the CSI controller's, and do not have it.
const (
	managedByLabel    = "app.kubernetes.io/managed-by"
	managedByOperator = "weir-operator"
)

// notOurs is why the operator does not delete an object; empty: it made it. The chart's
// ValidatingAdmissionPolicy has the same rules, as far as labels and annotations go.
func notOurs(obj client.Object) string {
	labels := obj.GetLabels()
	switch o := obj.(type) {
	case *corev1.PersistentVolume:
		if labels[v1alpha1.VolumeLabel] == "" || o.Spec.CSI == nil || o.Spec.CSI.Driver != v1alpha1.Driver {
			return "it lacks the label " + v1alpha1.VolumeLabel + ", or is of another driver"
		}
	case *corev1.PersistentVolumeClaim:
		if labels[v1alpha1.VolumeLabel] == "" || !ofGeoVolume(o) {
			return "it lacks the label " + v1alpha1.VolumeLabel + ", or no GeoVolume controls it"
		}
	case *v1alpha1.Site:
		if o.Annotations[mirrorAnnotation] == "" {
			return "it lacks the annotation " + mirrorAnnotation
		}
	case *v1alpha1.StorageOffer:
		if o.Annotations[mirrorAnnotation] == "" || !strings.Contains(o.Name, ".") {
			return "it lacks the annotation " + mirrorAnnotation + ", or a dot in its name"
		}
	case *v1alpha1.StorageAgreement, *v1alpha1.StorageUsage:
		if o.GetAnnotations()[mirrorAnnotation] == "" {
			return "it lacks the annotation " + mirrorAnnotation
		}
	case *v1alpha1.GeoVolumeContent:
		if labels[managedByLabel] != managedByOperator {
			return "it lacks the label " + managedByLabel + "=" + managedByOperator
		}
	default:
		return "the operator makes no such objects"
	}
	return ""
}

func ofGeoVolume(obj client.Object) bool {
	ref := metav1.GetControllerOf(obj)
	if ref == nil || ref.Kind != "GeoVolume" {
		return false
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == v1alpha1.GroupVersion.Group
}

// erase deletes an object that the operator made; it is the only place that deletes. An object that
// is gone is no error. One that is somebody else's stays, and stops the reconcile. One that has
// changed since it was read, or is another of the same name, is a conflict: it is looked at again.
func (o *operator) erase(ctx context.Context, obj client.Object) error {
	if why := notOurs(obj); why != "" {
		return outcome.Stopped(v1alpha1.ReasonConflict,
			fmt.Sprintf("the operator did not make the object %s (%s), and does not delete it: delete it if nobody needs it",
				obj.GetName(), why))
	}
	uid, version := obj.GetUID(), obj.GetResourceVersion()
	return client.IgnoreNotFound(o.Delete(ctx, obj, client.Preconditions{UID: &uid, ResourceVersion: &version}))
}

// adopt marks a GeoVolumeContent that is the operator's by what the registry, or the GeoVolume,
// says of its UUID, although it was made before such objects had the label, or by the CSI
// controller.
func (o *operator) adopt(ctx context.Context, c *v1alpha1.GeoVolumeContent) error {
	if c.Labels[managedByLabel] == managedByOperator {
		return nil
	}
	before := c.DeepCopy()
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	c.Labels[managedByLabel] = managedByOperator
	return o.Patch(ctx, c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), object.FieldOwner)
}

// contentLabels are those of a GeoVolumeContent that the operator makes.
func contentLabels() map[string]string { return map[string]string{managedByLabel: managedByOperator} }
