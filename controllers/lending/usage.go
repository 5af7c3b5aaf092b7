// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"context"
	"errors"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

// usages reconciles StorageUsages: they show what both sides counted.
type usages struct{ *room }

// Setup implements Reconciler.
func (r *usages) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("storageusage").For(&v1alpha1.StorageUsage{}).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.on(func(p paper.Paper) {
				switch {
				case p.Usage != nil:
					q.Add(request(p.Usage.ID))
				case p.Request != nil: // the papers of its agreement are gone
					q.Add(request(p.Request.ID))
				}
			})
			return nil
		})).
		Complete(r)
}

func usageStatus(obj client.Object) (any, []metav1.Condition) {
	s := obj.(*v1alpha1.StorageUsage).Status
	return s, s.Conditions
}

// Reconcile implements reconcile.Reconciler.
func (r *usages) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.StorageUsage{}
	if err := client.IgnoreNotFound(r.Get(ctx, req.NamespacedName, obj)); err != nil {
		return ctrl.Result{}, err
	}
	if out := settle(r.Await()); out.Verdict != nil || out.Quiet || out.Err != nil {
		return out.Result, out.Err
	}
	a, err := r.desk.Agreement(ctx, req.Name)
	if errors.Is(err, federation.ErrNotFound) {
		return r.gone(ctx, obj)
	}
	all, err2 := r.desk.Usages(ctx, req.Name)
	if err := errors.Join(err, err2); err != nil {
		return ctrl.Result{}, err
	}
	u, counted := all[req.Name]
	if !counted || a.Request.Guest != r.Organization && a.Request.Host != r.Organization {
		return ctrl.Result{}, nil
	}
	if obj.ResourceVersion == "" {
		want := &v1alpha1.StorageUsage{ObjectMeta: metav1.ObjectMeta{Name: req.Name, Annotations: r.marks()},
			Spec: v1alpha1.StorageUsageSpec{Agreement: req.Name}}
		out := settle(r.Ensure(ctx, want))
		return out.Result, out.Err
	}
	before := obj.DeepCopy()
	r.show(obj, a, u)
	return r.Report(ctx, settle(nil), before, obj, usageStatus)
}

func (r *usages) show(obj *v1alpha1.StorageUsage, a exchange.Agreement, u exchange.Usage) {
	s := &obj.Status
	s.Guest, s.Host, s.Kind = a.Request.Guest, a.Request.Host, string(a.Request.Kind)
	s.ByGuest, s.ByHost = counters(u.Guest), counters(u.Host)
	// Who counts too much, and always speaks last, stays found out.
	if u.Differs != "" || s.More == "" || u.Clears(paper.Party(s.More)) {
		s.Differs, s.More = u.Differs, party(u.More)
	}
	by := s.ByHost
	if by == nil {
		by = s.ByGuest
	}
	if n := len(s.History); n == 0 || s.History[n-1].At.Before(&by.At) {
		s.History = aged(append(s.History, v1alpha1.UsageSample{At: by.At, Stored: by.Stored, GibibyteHours: by.GibibyteHours}), r.Now())
	}
	agree := plan.State{True: true, Reason: v1alpha1.ReasonReady, Message: "both sides counted the same"}
	switch {
	case s.Differs != "":
		agree = plan.State{Reason: v1alpha1.ReasonDisagree, Message: s.Differs}
	case s.ByGuest == nil || s.ByHost == nil:
		agree = plan.State{True: true, Reason: v1alpha1.ReasonNothingCounted, Message: "one side has counted nothing yet"}
	}
	plan.SetCondition(&s.Conditions, obj.Generation, r.Now(), v1alpha1.ConditionCountsAgree, agree)
	plan.SetReady(&s.Conditions, obj.Generation, r.Now(), agree, false, false)
}

// counters shows what a side counted; nil: nothing yet.
func counters(s exchange.Sum) *v1alpha1.UsageCounters {
	if s.At.IsZero() {
		return nil
	}
	return &v1alpha1.UsageCounters{At: *stamp(s.At), Stored: int64(s.Stored),
		GibibyteHours: strconv.FormatFloat(s.ByteHours/(1<<30), 'f', 3, 64), Written: int64(s.In), Read: int64(s.Out), Writes: s.Puts,
		Reads: s.Gets, Deletions: s.Deletes}
}
