// SPDX-License-Identifier: Apache-2.0

// Package object writes Kubernetes objects for the operator: by server-side apply, with a
// finalizer, and with a status and events that change only when there is something to say.
package object

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/outcome"
)

// FieldOwner is the operator's name in managedFields.
const FieldOwner = client.FieldOwner("weir-operator")

// Writer writes objects. Its methods may be called from many goroutines.
type Writer struct {
	// Client reads from a cache and writes to the API server.
	client.Client
	// Reader reads from the API server.
	Reader client.Reader
	// Events takes events.
	Events events.EventRecorder
}

// Ensure makes or changes an object by server-side apply, forced: the fields that obj sets are the
// operator's alone.
func (w *Writer) Ensure(ctx context.Context, obj client.Object) error {
	u, err := w.applicable(obj, "status")
	if err != nil {
		return err
	}
	return w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), FieldOwner, client.ForceOwnership)
}

// applicable is obj as an apply configuration, without one of its top fields.
func (w *Writer) applicable(obj client.Object, without string) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &u.Object); err != nil {
		return nil, err
	}
	delete(u.Object, without)
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	gvk, err := apiutil.GVKForObject(obj, w.Scheme())
	if err != nil {
		return nil, err
	}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

// Report writes the status of after if it is not before's, and an event if Ready has another
// reason. Every reconcile ends with it. If the object has changed since it was read, nothing is
// written, and the object is reconciled again.
func (w *Writer) Report(ctx context.Context, out outcome.Outcome, before, after client.Object,
	statusOf func(client.Object) (any, []metav1.Condition)) (ctrl.Result, error) {
	err := w.writeStatus(ctx, before, after, statusOf)
	if err == nil {
		return out.Result, nil
	}
	again := outcome.Settle(err)
	return again.Result, again.Err
}

func (w *Writer) writeStatus(ctx context.Context, before, after client.Object,
	statusOf func(client.Object) (any, []metav1.Condition)) error {
	old, oldConditions := statusOf(before)
	now, conditions := statusOf(after)
	if apiequality.Semantic.DeepEqual(old, now) {
		return nil
	}
	u, err := w.applicable(after, "spec")
	if err != nil {
		return err
	}
	u.Object["metadata"] = map[string]any{"name": after.GetName(), "uid": string(after.GetUID()),
		"resourceVersion": after.GetResourceVersion()}
	if ns := after.GetNamespace(); ns != "" {
		u.SetNamespace(ns)
	}
	err = w.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), FieldOwner, client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	w.changed(after, Ready(oldConditions), Ready(conditions))
	return nil
}

// Ready returns the condition Ready, or an empty condition if there is none.
func Ready(list []metav1.Condition) metav1.Condition {
	if c := meta.FindStatusCondition(list, v1alpha1.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// changed makes an event of a change of Ready. An object that is well when it is first looked at is
// no news: else a site that joins would make an event for every volume and site.
func (w *Writer) changed(obj runtime.Object, was, is metav1.Condition) {
	if was.Reason == is.Reason || is.Reason == "" || was.Reason == "" && is.Status == metav1.ConditionTrue {
		return
	}
	kind := corev1.EventTypeNormal
	if is.Status != metav1.ConditionTrue && is.Reason != v1alpha1.ReasonCreating && is.Reason != v1alpha1.ReasonDeleting {
		kind = corev1.EventTypeWarning
	}
	w.Event(obj, kind, is.Reason, "Reconcile", is.Message)
}

// longestNote is nearly as much as the API server accepts, in bytes.
const longestNote = 1000

// Event makes an event about obj. A note that is too long for the API server is cut.
func (w *Writer) Event(obj runtime.Object, kind, reason, action, note string) {
	if len(note) > longestNote {
		note = note[:longestNote] + " …"
	}
	w.Events.Eventf(obj, nil, kind, reason, action, "%s", note)
}

// AddFinalizer puts the operator's finalizer on an object, unless it is there.
func (w *Writer) AddFinalizer(ctx context.Context, obj client.Object) error {
	before := obj.DeepCopyObject().(client.Object)
	if !controllerutil.AddFinalizer(obj, v1alpha1.Finalizer) {
		return nil
	}
	return w.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), FieldOwner)
}

// RemoveFinalizer takes the operator's finalizer off, if it is there. An object that is gone is no
// error.
func (w *Writer) RemoveFinalizer(ctx context.Context, obj client.Object) error {
	before := obj.DeepCopyObject().(client.Object)
	if !controllerutil.RemoveFinalizer(obj, v1alpha1.Finalizer) {
		return nil
	}
	err := w.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), FieldOwner)
	return client.IgnoreNotFound(err)
}
