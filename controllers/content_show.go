// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
)

func contentStatus(obj client.Object) (any, []metav1.Condition) {
	s := obj.(*v1alpha1.GeoVolumeContent).Status
	return s, s.Conditions
}

// show writes the status: what is seen of the volume, and what this reconcile came to.
func (r *contents) show(ctx context.Context, before *v1alpha1.GeoVolumeContent, c *content, out outcome.Outcome) (ctrl.Result, error) {
	if c.gone || out.Err != nil || out.Quiet {
		return out.Result, out.Err // nothing to show
	}
	var view plan.View
	if c.seen != nil {
		view = r.mirror.Look(c.seen)
	}
	deleting := !c.DeletionTimestamp.IsZero()
	if v := c.record(); v != nil {
		removeStale(&c.Status.Conditions, c.Status.VolumeGeneration != int64(v.Generation))
	}
	observed(c, &view)
	r.conditions(c, view, out, deleting)
	if c.record() != nil && c.trouble == nil && !c.taking && out.Verdict == nil && view.InForce {
		c.Status.ObservedPolicyGeneration = c.policy
	} else if c.Generation != before.Status.ObservedGeneration && !view.InForce {
		c.Status.ObservedPolicyGeneration = 0 // it may be of another policy
	}
	if deleting || !c.taking && (view.InForce || c.trouble != nil || view.Stalled) {
		// The volume has the policy, or will not have it soon. Others must not wait for it.
		r.rollout.End(c.Name)
	}
	if rest := r.onlyLag(before, c); rest > 0 {
		if out.Result.RequeueAfter == 0 || out.Result.RequeueAfter > rest {
			out.Result.RequeueAfter = rest
		}
		return out.Result, nil
	}
	return r.Report(ctx, out, before, c.GeoVolumeContent, contentStatus)
}

func (r *contents) conditions(c *content, view plan.View, out outcome.Outcome, deleting bool) {
	list, now := &c.Status.Conditions, r.Now()
	ready, working, stalled := view.Ready, view.Working, view.Stalled
	switch {
	case out.Verdict != nil && unreachable(out.Verdict, *list, deleting):
		plan.SetCondition(list, c.Generation, now, v1alpha1.ConditionReconciling,
			plan.State{True: true, Reason: out.Verdict.Reason, Message: out.Verdict.Message})
		return
	case out.Verdict != nil:
		ready, working, stalled = plan.State{Reason: out.Verdict.Reason, Message: out.Verdict.Message}, out.Working, out.Stalled
	case c.trouble != nil:
		stalled = true
		if ready.True {
			ready = plan.State{Reason: c.trouble.Reason, Message: "the volume is served, and stays as it was: " + c.trouble.Message}
		}
	case c.taking && ready.True:
		ready, working = plan.State{True: true, Reason: v1alpha1.ReasonUpdating, Message: "served; it takes up the edited VolumePolicy " +
			c.Spec.Policy + " when those before it have"}, true
	}
	if c.record() == nil {
		if out.Verdict != nil {
			plan.SetCondition(list, c.Generation, now, v1alpha1.ConditionPlaced,
				plan.State{Reason: out.Verdict.Reason, Message: out.Verdict.Message})
			plan.SetCondition(list, c.Generation, now, v1alpha1.ConditionProtected,
				plan.State{Reason: v1alpha1.ReasonCreating, Message: "the volume is not there yet"})
		}
	} else {
		placed := plan.State{True: true, Reason: v1alpha1.ReasonPlaced, Message: "the copies are at sites that satisfy the policy"}
		if c.trouble != nil {
			placed = plan.State{Reason: c.trouble.Reason, Message: c.trouble.Message}
		}
		plan.SetCondition(list, c.Generation, now, v1alpha1.ConditionPlaced, placed)
		plan.SetCondition(list, c.Generation, now, v1alpha1.ConditionProtected, view.Protected)
	}
	plan.SetReady(list, c.Generation, now, ready, working, stalled)
}

// onlyLag returns how long to wait when nothing has changed but what changes all the time; 0: the
// status is to be written, or is as it was.
func (r *contents) onlyLag(before *v1alpha1.GeoVolumeContent, c *content) time.Duration {
	if apiequality.Semantic.DeepEqual(before.Status, c.Status) || !apiequality.Semantic.DeepEqual(steady(before.Status), steady(c.Status)) {
		return 0
	}
	return r.lags.Wait(c.Name, c.Status.Progress != "", r.Now())
}

// steady is a status without what changes all the time: how far copies are behind, how much is
// used, and the messages that say so.
func steady(s v1alpha1.GeoVolumeContentStatus) v1alpha1.GeoVolumeContentStatus {
	s = *s.DeepCopy()
	s.Lag, s.Progress, s.Used, s.Held, s.Files = "", "", nil, nil, ""
	for i := range s.Replicas {
		s.Replicas[i].Lag, s.Replicas[i].Progress, s.Replicas[i].LagBytes = "", "", nil
	}
	for i := range s.Stores {
		s.Stores[i].Lag = ""
	}
	for i := range s.Conditions {
		s.Conditions[i].Message = ""
	}
	return s
}
