// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
)

// policies reconciles VolumePolicies: it checks them, and counts the volumes that use them.
type policies struct{ *operator }

// countAfter gathers changes of volumes into one count of them.
const countAfter = 2 * time.Second

func (r *policies) setup(mgr ctrl.Manager) error {
	count := func(q queue, obj client.Object) {
		if p := obj.(*v1alpha1.GeoVolumeContent).Spec.Policy; p != "" {
			q.AddAfter(request(p), countAfter)
		}
	}
	return ctrl.NewControllerManagedBy(mgr).Named("volumepolicy").For(&v1alpha1.VolumePolicy{}).
		Watches(&v1alpha1.GeoVolumeContent{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { count(q, e.Object) },
			DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { count(q, e.Object) },
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
				count(q, e.ObjectOld)
				count(q, e.ObjectNew)
			},
		}, builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			a, b := e.ObjectOld.(*v1alpha1.GeoVolumeContent), e.ObjectNew.(*v1alpha1.GeoVolumeContent)
			return a.Spec.Policy != b.Spec.Policy || a.Status.ObservedPolicyGeneration != b.Status.ObservedPolicyGeneration
		}})).
		Complete(r)
}

func policyStatus(obj client.Object) (any, []metav1.Condition) {
	s := obj.(*v1alpha1.VolumePolicy).Status
	return s, s.Conditions
}

// Reconcile implements reconcile.Reconciler.
func (r *policies) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.VolumePolicy{}
	if err := r.Get(ctx, req.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := obj.DeepCopy()
	var list v1alpha1.GeoVolumeContentList
	if err := r.List(ctx, &list, client.MatchingFields{policyIndex: obj.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, err
	}
	s := &obj.Status
	s.ObservedGeneration, s.Volumes, s.UpToDate = obj.Generation, 0, 0
	for i := range list.Items {
		if string(list.Items[i].Spec.Owner) != r.Site {
			continue // other clusters' policies of this name are not this one
		}
		s.Volumes++
		if list.Items[i].Status.ObservedPolicyGeneration == obj.Generation {
			s.UpToDate++
		}
	}
	ready, working, stalled := r.look(obj)
	plan.SetReady(&s.Conditions, obj.Generation, r.Now(), ready, working, stalled)
	return r.Report(ctx, outcome.Outcome{}, before, obj, policyStatus)
}

func (r *policies) look(obj *v1alpha1.VolumePolicy) (ready plan.State, working, stalled bool) {
	s := obj.Status
	_, err := plan.Resolve(resource.MustParse("1Gi"), &obj.Spec, nil) // a size, since a policy has none
	if v := (*plan.Verdict)(nil); errors.As(err, &v) {
		return plan.State{Reason: v.Reason, Message: v.Message}, false, true
	}
	if s.UpToDate < s.Volumes {
		return plan.State{True: true, Reason: v1alpha1.ReasonUpdating, Message: fmt.Sprintf("%d of %d volumes have it "+
			"in force", s.UpToDate, s.Volumes)}, true, false
	}
	return plan.State{True: true, Reason: v1alpha1.ReasonReady, Message: fmt.Sprintf("all %d volumes that use it have it "+
		"in force", s.Volumes)}, false, false
}
