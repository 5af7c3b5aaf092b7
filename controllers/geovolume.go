// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/mirror"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation/view"
)

// geoVolumes reconciles GeoVolumes.
type geoVolumes struct{ *operator }

func (r *geoVolumes) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("geovolume").For(&v1alpha1.GeoVolume{}).
		Owns(&corev1.PersistentVolumeClaim{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Watches(&v1alpha1.GeoVolumeContent{}, handler.EnqueueRequestsFromMapFunc(r.ofContent)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(ofVolume)).
		WatchesRawSource(source.Func(func(ctx context.Context, q queue) error {
			r.listen(ctx, q)
			return nil
		})).
		Complete(r)
}

// listen has GeoVolumes reconciled when the registry reports a change of their volumes, and those
// that have a claim there but perhaps no object here.
func (r *geoVolumes) listen(ctx context.Context, q queue) {
	news := make(chan mirror.News, 1)
	var backlog mirror.Backlog
	r.mirror.OnNews(func(n mirror.News) {
		if n.Volume != "" && n.Record {
			backlog.Add(n)
			select {
			case news <- n:
			default: // it is awake already
			}
		}
	})
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-news:
			}
			for _, n := range backlog.Take() {
				for _, req := range r.ofNames(ctx, n.Volume, n.Name) {
					q.Add(req)
				}
			}
		}
	}()
	for _, c := range r.mirror.Claims() {
		namespace, name, _ := strings.Cut(c, "/")
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
}

func (r *geoVolumes) ofContent(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.ofNames(ctx, obj.GetName(), obj.(*v1alpha1.GeoVolumeContent).Spec.FederationName)
}

// ofNames finds the GeoVolumes that a volume is about: those that have it, wait for it, or would
// make one of its name.
func (r *geoVolumes) ofNames(ctx context.Context, names ...string) []reconcile.Request {
	var out []reconcile.Request
	for _, n := range names {
		var list v1alpha1.GeoVolumeList
		if n == "" || r.List(ctx, &list, client.MatchingFields{volumeIndex: n}, client.UnsafeDisableDeepCopy) != nil {
			continue // an error is that of a cache that is being stopped
		}
		for i := range list.Items {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

func ofVolume(_ context.Context, obj client.Object) []reconcile.Request {
	ref := obj.(*corev1.PersistentVolume).Spec.ClaimRef
	if ref == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}}}
}

// geoVolume is a GeoVolume that is being reconciled.
type geoVolume struct {
	*v1alpha1.GeoVolume
	// uuid is its volume's; empty while it is not known.
	uuid string
	// seen is what the mirror has of the volume; nil: nothing.
	seen *view.Volume
	// content is nil while there is none.
	content *v1alpha1.GeoVolumeContent
	// bound is what became of its PersistentVolume and PersistentVolumeClaim.
	bound plan.State
	gone  bool
}

// Reconcile implements reconcile.Reconciler.
func (r *geoVolumes) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.GeoVolume{}
	if err := r.Get(ctx, req.NamespacedName, obj); err != nil {
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, err
		}
		out := outcome.Settle(r.absent(ctx, req))
		return out.Result, out.Err
	}
	before := obj.DeepCopy()
	g := &geoVolume{GeoVolume: obj}
	out := outcome.Settle(r.steps(ctx, g))
	return r.show(ctx, before, g, out)
}

func (r *geoVolumes) steps(ctx context.Context, g *geoVolume) error {
	if err := r.await(); err != nil {
		return err
	}
	if err := r.registered(); err != nil {
		return err
	}
	if !g.DeletionTimestamp.IsZero() {
		return r.remove(ctx, g)
	}
	for _, step := range []func(context.Context, *geoVolume) error{r.identify, r.superseded, r.finalizer, r.wish, r.claim, r.objects} {
		if err := step(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// absent: the object went without the operator, or was superseded. Its claims go too.
func (r *geoVolumes) absent(ctx context.Context, req ctrl.Request) error {
	if err := r.await(); err != nil {
		return err
	}
	if err := r.registered(); err != nil {
		return err
	}
	return r.dropClaims(ctx, req.Namespace, req.Name, "")
}

func (r *geoVolumes) finalizer(ctx context.Context, g *geoVolume) error {
	status := g.Status.DeepCopy()
	err := r.AddFinalizer(ctx, g.GeoVolume)
	g.Status = *status // the answer has the one that was there before this reconcile
	return err
}

// superseded: a volume that this GeoVolume made belongs to another cluster now. The claim stays
// while the object does, for its pods run on.
func (r *geoVolumes) superseded(ctx context.Context, g *geoVolume) error {
	if g.Spec.Import != nil || g.seen == nil || g.seen.Record == nil || r.self.Owns(*g.seen.Record) {
		return nil
	}
	if err := r.RemoveFinalizer(ctx, g.GeoVolume); err != nil {
		return err
	}
	return &outcome.Stop{Verdict: plan.Superseded(*g.seen.Record)}
}

func geoVolumeStatus(obj client.Object) (any, []metav1.Condition) {
	s := obj.(*v1alpha1.GeoVolume).Status
	return s, s.Conditions
}

// show writes the status: what the content says of the volume, and what this reconcile came to.
func (r *geoVolumes) show(ctx context.Context, before *v1alpha1.GeoVolume, g *geoVolume, out outcome.Outcome) (ctrl.Result, error) {
	if g.gone || out.Err != nil || out.Quiet {
		return out.Result, out.Err // nothing to show
	}
	s, list, now := &g.Status, &g.Status.Conditions, r.Now()
	s.ObservedGeneration = g.Generation
	if g.seen != nil && g.seen.Record != nil {
		s.FederationName, s.Owner = g.seen.Record.Name, g.seen.Record.OwnerSite
		s.Capacity = plan.Quantity(g.seen.Record.Spec.Size)
	}
	if s.FederationName == "" && g.Spec.Import == nil {
		s.FederationName, s.Owner = plan.FederationName(g.Namespace, g.Name), r.Site
	}
	if g.content != nil {
		c := g.content.Status
		s.Home, s.Copies, s.Lag, s.Progress, s.Used, s.Held = c.Home.Site, c.Copies, c.Lag, c.Progress, c.Used, c.Held
		s.Key, s.Files = c.Key, c.Files
		s.Scrubbed, s.Damaged = plan.Scrubbed(c.Replicas)
		if c.Snapshots != nil {
			s.Snapshots = &c.Snapshots.Count
		}
		if p := conditionOf(c.Conditions, v1alpha1.ConditionProtected); p != nil {
			plan.SetCondition(list, g.Generation, now, v1alpha1.ConditionProtected, state(*p))
		}
	}
	if g.bound.Reason != "" {
		plan.SetCondition(list, g.Generation, now, v1alpha1.ConditionBound, g.bound)
	}
	if out.Verdict != nil && unreachable(out.Verdict, *list, !g.DeletionTimestamp.IsZero()) {
		plan.SetCondition(list, g.Generation, now, v1alpha1.ConditionReconciling,
			plan.State{True: true, Reason: out.Verdict.Reason, Message: out.Verdict.Message})
		return r.Report(ctx, out, before, g.GeoVolume, geoVolumeStatus)
	}
	ready, working, stalled := g.summary(out)
	plan.SetReady(list, g.Generation, now, ready, working, stalled)
	return r.Report(ctx, out, before, g.GeoVolume, geoVolumeStatus)
}

// summary: what this reconcile came to, or else what the content says, or else whether the objects
// for pods are there.
func (g *geoVolume) summary(out outcome.Outcome) (ready plan.State, working, stalled bool) {
	if out.Verdict != nil {
		return plan.State{Reason: out.Verdict.Reason, Message: out.Verdict.Message}, out.Working, out.Stalled
	}
	if g.content == nil {
		return plan.State{Reason: v1alpha1.ReasonCreating, Message: "the volume's GeoVolumeContent is being made"}, true, false
	}
	list := g.content.Status.Conditions
	c := conditionOf(list, v1alpha1.ConditionReady)
	switch {
	case c == nil:
		return plan.State{Reason: v1alpha1.ReasonCreating, Message: "the volume is being made"}, true, false
	case c.Status == metav1.ConditionTrue && !g.bound.True:
		return g.bound, true, false
	}
	return state(*c), conditionOf(list, v1alpha1.ConditionReconciling) != nil, conditionOf(list, v1alpha1.ConditionStalled) != nil
}

func conditionOf(list []metav1.Condition, kind string) *metav1.Condition {
	if i := slices.IndexFunc(list, func(c metav1.Condition) bool { return c.Type == kind }); i >= 0 {
		return &list[i]
	}
	return nil
}

func state(c metav1.Condition) plan.State {
	return plan.State{True: c.Status == metav1.ConditionTrue, Reason: c.Reason, Message: c.Message}
}
