// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

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
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

// fieldOwner is the operator's name in managedFields.
const fieldOwner = client.FieldOwner("weir-operator")

// operator is what the reconcilers share.
type operator struct {
	Options
	client.Client
	// reader asks the API server itself.
	reader  client.Reader
	self    plan.Self
	mirror  *mirror
	events  events.EventRecorder
	rollout *rollout
	lags    *lags
}

// await returns why nothing can be decided yet: the registry was not read, or this cluster is not its site.
func (o *operator) await() error {
	synced, down := o.mirror.ready()
	switch {
	case !synced && down != nil:
		return down
	case !synced:
		return &wait{after: 2 * time.Second} // it is being read: nothing to tell
	}
	return nil
}

// registered returns why this cluster may not act as its site.
func (o *operator) registered() error {
	s, ok := o.mirror.site(o.Site)
	switch {
	case ok && s.Cluster == o.self.Cluster:
		return nil
	case ok && s.Cluster != "":
		return stopped(v1alpha1.ReasonNameTaken, fmt.Sprintf("another cluster, with UID %s, is registered as site %s, and this one has %s: install this cluster under another site name", s.Cluster, o.Site, o.self.Cluster))
	}
	return waiting(v1alpha1.ReasonRegistryUnavailable, fmt.Sprintf("this cluster is not registered as site %s yet: see the Site of that name", o.Site), later)
}

// apply makes or changes an object by server-side apply, forced: what it sets is the operator's alone.
func (o *operator) apply(ctx context.Context, obj client.Object) error {
	u, err := o.applicable(obj, "status")
	if err != nil {
		return err
	}
	return o.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership)
}

// applicable is obj as an apply configuration, without one of its top fields.
func (o *operator) applicable(obj client.Object, without string) (*unstructured.Unstructured, error) {
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
	gvk, err := apiutil.GVKForObject(obj, o.Scheme())
	if err != nil {
		return nil, err
	}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

// report writes the status if it is not what it was, and an event when the reason of Ready is another. It is how every reconcile ends. A
// status that was made of an object that has changed since is not written, and made again.
func (o *operator) report(ctx context.Context, out outcome, before, after client.Object, statusOf func(client.Object) (any, []metav1.Condition)) (ctrl.Result, error) {
	err := o.writeStatus(ctx, before, after, statusOf)
	if err == nil {
		return out.result, nil
	}
	again := settle(err)
	return again.result, again.err
}

func (o *operator) writeStatus(ctx context.Context, before, after client.Object, statusOf func(client.Object) (any, []metav1.Condition)) error {
	old, oldConditions := statusOf(before)
	now, conditions := statusOf(after)
	if apiequality.Semantic.DeepEqual(old, now) {
		return nil
	}
	u, err := o.applicable(after, "spec")
	if err != nil {
		return err
	}
	u.Object["metadata"] = map[string]any{"name": after.GetName(), "uid": string(after.GetUID()), "resourceVersion": after.GetResourceVersion()}
	if ns := after.GetNamespace(); ns != "" {
		u.SetNamespace(ns)
	}
	err = o.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	o.told(after, ready(oldConditions), ready(conditions))
	return nil
}

func ready(list []metav1.Condition) metav1.Condition {
	if c := meta.FindStatusCondition(list, v1alpha1.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// told makes an event of a change of Ready. An object that is well when it is first looked at is no news: a site that joins would tell as much of
// every volume and site of the federation.
func (o *operator) told(obj runtime.Object, was, is metav1.Condition) {
	if was.Reason == is.Reason || is.Reason == "" || was.Reason == "" && is.Status == metav1.ConditionTrue {
		return
	}
	kind := corev1.EventTypeNormal
	if is.Status != metav1.ConditionTrue && is.Reason != v1alpha1.ReasonCreating && is.Reason != v1alpha1.ReasonDeleting {
		kind = corev1.EventTypeWarning
	}
	o.event(obj, kind, is.Reason, "Reconcile", is.Message)
}

// longestNote is what the API server takes of an event's note, less some.
const longestNote = 1000

func (o *operator) event(obj runtime.Object, kind, reason, action, note string) {
	if len(note) > longestNote {
		note = note[:longestNote] + " …"
	}
	o.events.Eventf(obj, nil, kind, reason, action, "%s", note)
}

// hold puts the finalizer on an object; letGo takes it off.
func (o *operator) hold(ctx context.Context, obj client.Object) error {
	before := obj.DeepCopyObject().(client.Object)
	if !controllerutil.AddFinalizer(obj, v1alpha1.Finalizer) {
		return nil
	}
	return o.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), fieldOwner)
}

func (o *operator) letGo(ctx context.Context, obj client.Object) error {
	before := obj.DeepCopyObject().(client.Object)
	if !controllerutil.RemoveFinalizer(obj, v1alpha1.Finalizer) {
		return nil
	}
	err := o.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), fieldOwner)
	return client.IgnoreNotFound(err)
}

// find reads a volume's record from the registry itself; nil: it is not there.
func (o *operator) find(ctx context.Context, uuid string) (*federation.Volume, federation.Revision, error) {
	v, rev, err := o.Registry.GetVolume(ctx, uuid)
	switch {
	case errors.Is(err, federation.ErrNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	}
	return &v, rev, nil
}

// unreachable tells how to show that the registry does not answer: what is known to be well stays so, for it runs on.
func unreachable(v *plan.Verdict, list []metav1.Condition, deleting bool) bool {
	return v.Reason == v1alpha1.ReasonRegistryUnavailable && !deleting && ready(list).Status == metav1.ConditionTrue
}
