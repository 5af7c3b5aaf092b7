// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/desired"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
)

func hasFinalizer(obj client.Object) bool {
	return controllerutil.ContainsFinalizer(obj, v1alpha1.Finalizer)
}

// desired is what pods are to use of the volume.
func (g *geoVolume) desired() desired.Claim {
	c := desired.Claim{GeoVolume: g.GeoVolume, UUID: g.uuid}
	if g.seen != nil && g.seen.Record != nil {
		c.Size = g.seen.Record.Spec.Size
	}
	return c
}

// objects makes what pods use: a PersistentVolume and a PersistentVolumeClaim that are for each
// other only. One of the name that is somebody else's is left alone.
func (r *geoVolumes) objects(ctx context.Context, g *geoVolume) error {
	if g.seen == nil || g.seen.Record == nil {
		g.bound = plan.State{Reason: v1alpha1.ReasonCreating, Message: "the volume is not there yet"}
		return nil
	}
	pv, err := r.havePV(ctx, g)
	if err == nil {
		var pvc *corev1.PersistentVolumeClaim
		if pvc, err = r.havePVC(ctx, g); err == nil {
			err = r.bind(ctx, g, pv, pvc)
		}
	}
	if s := outcome.Settle(err); s.Verdict != nil {
		g.bound = plan.State{Reason: s.Verdict.Reason, Message: s.Verdict.Message}
	}
	return err
}

func (r *geoVolumes) havePV(ctx context.Context, g *geoVolume) (*corev1.PersistentVolume, error) {
	want, have := g.desired().PV(r.Federation), &corev1.PersistentVolume{}
	there, err := r.look(ctx, want, have)
	if err != nil || !there {
		if err == nil {
			err = r.Ensure(ctx, want)
		}
		return want, err
	}
	if !r.ourPV(have, g) {
		return nil, outcome.Stopped(v1alpha1.ReasonConflict, fmt.Sprintf("a PersistentVolume %s is there that the operator did not make "+
			"for this GeoVolume: delete it", want.Name))
	}
	if err := r.label(ctx, have, g.uuid); err != nil {
		return nil, err
	}
	is, wish := have.Spec.Capacity[corev1.ResourceStorage], want.Spec.Capacity[corev1.ResourceStorage]
	if is.Cmp(wish) >= 0 {
		return have, nil
	}
	return have, r.Ensure(ctx, want)
}

func (r *geoVolumes) havePVC(ctx context.Context, g *geoVolume) (*corev1.PersistentVolumeClaim, error) {
	want, have := g.desired().PVC(), &corev1.PersistentVolumeClaim{}
	there, err := r.look(ctx, want, have)
	if err != nil || !there {
		if err == nil {
			err = r.Ensure(ctx, want)
		}
		return want, err
	}
	if !ourPVC(have, g) {
		return nil, outcome.Stopped(v1alpha1.ReasonConflict, fmt.Sprintf("a PersistentVolumeClaim %s is in namespace %s already and is "+
			"not this GeoVolume's: delete it, or name the GeoVolume otherwise", g.Name, g.Namespace))
	}
	if err := r.label(ctx, have, g.uuid); err != nil {
		return nil, err
	}
	return have, r.showSize(ctx, g, have)
}

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims/status,verbs=patch

// showSize has a bound claim say how much the volume may hold now. Its request stays as it was
// made: Kubernetes lets only claims of a StorageClass ask for more, and who bound it does not look
// at its size again. Where the operator may not write that, the volume has its size all the same.
func (r *geoVolumes) showSize(ctx context.Context, g *geoVolume, pvc *corev1.PersistentVolumeClaim) error {
	is, size := pvc.Status.Capacity[corev1.ResourceStorage], *plan.Quantity(g.seen.Record.Spec.Size)
	if pvc.Status.Phase != corev1.ClaimBound || !pvc.DeletionTimestamp.IsZero() || is.Cmp(size) >= 0 {
		return nil
	}
	before := pvc.DeepCopy()
	if pvc.Status.Capacity == nil {
		pvc.Status.Capacity = corev1.ResourceList{}
	}
	pvc.Status.Capacity[corev1.ResourceStorage] = size
	err := r.Status().Patch(ctx, pvc, client.MergeFrom(before), object.FieldOwner)
	if apierrors.IsForbidden(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// label puts the label back, by which the cache knows the object.
func (r *geoVolumes) label(ctx context.Context, obj client.Object, uuid string) error {
	if obj.GetLabels()[v1alpha1.VolumeLabel] == uuid {
		return nil
	}
	before := obj.DeepCopyObject().(client.Object)
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.VolumeLabel] = uuid
	obj.SetLabels(labels)
	return r.Patch(ctx, obj, client.MergeFrom(before), object.FieldOwner)
}

// bind checks whether Kubernetes has bound the two. Kubernetes never binds a PersistentVolume again
// whose claim is gone, so it is deleted and created again, which touches no data.
func (r *geoVolumes) bind(ctx context.Context, g *geoVolume, pv *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim) error {
	ref := pv.Spec.ClaimRef
	switch {
	case !pvc.DeletionTimestamp.IsZero():
		g.bound = plan.State{Reason: v1alpha1.ReasonDeleting, Message: fmt.Sprintf("PersistentVolumeClaim %s is being deleted, and is "+
			"made again when it is gone", g.Name)}
	case ref != nil && ref.UID != "" && pvc.UID != "" && ref.UID != pvc.UID && pv.Status.Phase == corev1.VolumeReleased:
		g.bound = plan.State{Reason: v1alpha1.ReasonCreating, Message: "its PersistentVolume was bound to a claim that is gone: it is " +
			"made anew"}
		return r.erase(ctx, pv)
	case pvc.Status.Phase != corev1.ClaimBound:
		g.bound = plan.State{Reason: v1alpha1.ReasonCreating, Message: fmt.Sprintf("PersistentVolumeClaim %s is not bound to "+
			"PersistentVolume %s yet", g.Name, g.desired().PVName())}
	default:
		g.bound = plan.State{True: true, Reason: v1alpha1.ReasonBound, Message: fmt.Sprintf("PersistentVolumeClaim %s is bound to "+
			"PersistentVolume %s", g.Name, g.desired().PVName())}
	}
	return nil
}

// look reads an object; one that is not in the cache may be somebody else's, which only the API
// server knows.
func (r *geoVolumes) look(ctx context.Context, want, have client.Object) (bool, error) {
	key := client.ObjectKeyFromObject(want)
	err := r.Get(ctx, key, have)
	if apierrors.IsNotFound(err) {
		err = r.Reader.Get(ctx, key, have)
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (r *geoVolumes) ourPV(pv *corev1.PersistentVolume, g *geoVolume) bool {
	ref, csi := pv.Spec.ClaimRef, pv.Spec.CSI
	return csi != nil && csi.Driver == v1alpha1.Driver && csi.VolumeHandle == v1alpha1.VolumeHandle(r.Federation, g.uuid) &&
		ref != nil && ref.Namespace == g.Namespace && ref.Name == g.Name
}

func ourPVC(have *corev1.PersistentVolumeClaim, g *geoVolume) bool {
	return metav1.IsControlledBy(have, g.GeoVolume)
}

// removeObjects deletes the claim, which waits for pods, then the PersistentVolume, and returns an
// error until both are gone.
func (r *geoVolumes) removeObjects(ctx context.Context, g *geoVolume) error {
	if g.uuid == "" {
		return nil
	}
	pvc := &corev1.PersistentVolumeClaim{}
	there, err := r.look(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name}}, pvc)
	if err != nil {
		return err
	}
	if there && ourPVC(pvc, g) {
		if err := r.label(ctx, pvc, g.uuid); err != nil {
			return err
		}
		if gone, err := r.removed(ctx, pvc); err != nil || !gone {
			return firstOf(err, fmt.Sprintf("PersistentVolumeClaim %s is still used by pods of namespace %s: it goes when they do", g.Name,
				g.Namespace))
		}
	}
	pv := &corev1.PersistentVolume{}
	name := g.desired().PVName()
	there, err = r.look(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}, pv)
	if err != nil || !there || !r.ourPV(pv, g) {
		return err
	}
	if err := r.label(ctx, pv, g.uuid); err != nil {
		return err
	}
	if gone, err := r.removed(ctx, pv); err != nil || !gone {
		return firstOf(err, fmt.Sprintf("PersistentVolume %s is still attached to a node: it goes when it is detached", name))
	}
	return nil
}

func firstOf(err error, message string) error {
	if err != nil {
		return err
	}
	return outcome.Waiting(v1alpha1.ReasonDeleting, message, outcome.Later)
}

// removed deletes an object and reports whether it is gone.
func (r *geoVolumes) removed(ctx context.Context, obj client.Object) (bool, error) {
	if obj.GetDeletionTimestamp().IsZero() {
		if err := r.erase(ctx, obj); err != nil {
			return false, err
		}
	}
	err := r.Reader.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
}
