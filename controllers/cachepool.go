// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/mirror"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

// pools reconciles CachePools: their status is what the registry says of their gateway.
type pools struct{ *operator }

func (r *pools) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("cachepool").For(&v1alpha1.CachePool{}).
		WatchesRawSource(source.Func(func(ctx context.Context, q queue) error {
			wake := make(chan struct{}, 1)
			r.mirror.OnNews(func(n mirror.News) {
				if n.Site == r.Site {
					select {
					case wake <- struct{}{}:
					default: // it is awake already
					}
				}
			})
			go r.all(ctx, q, wake)
			return nil
		})).
		Complete(r)
}

// all has every pool looked at when the site changes. There are few.
func (r *pools) all(ctx context.Context, q queue, wake <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		var list v1alpha1.CachePoolList
		if r.List(ctx, &list) != nil {
			continue // of a cache that is being stopped
		}
		for i := range list.Items {
			q.Add(request(list.Items[i].Name))
		}
	}
}

func poolStatus(obj client.Object) (any, []metav1.Condition) {
	s := obj.(*v1alpha1.CachePool).Status
	return s, s.Conditions
}

// Reconcile implements reconcile.Reconciler.
func (r *pools) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.CachePool{}
	if err := r.Get(ctx, req.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := obj.DeepCopy()
	out := outcome.Settle(r.await())
	if out.Quiet {
		return out.Result, nil
	}
	ready, stalled := r.look(obj)
	if out.Verdict != nil {
		ready, stalled = plan.State{Reason: out.Verdict.Reason, Message: out.Verdict.Message}, false
	}
	obj.Status.ObservedGeneration = obj.Generation
	plan.SetReady(&obj.Status.Conditions, obj.Generation, r.Now(), ready, out.Working, stalled)
	return r.Report(ctx, out, before, obj, poolStatus)
}

// look finds the pool's gateway: spec.gateway is the StatefulSet's NAMESPACE/NAME, and the gateway
// has its name.
func (r *pools) look(obj *v1alpha1.CachePool) (ready plan.State, stalled bool) {
	name := obj.Spec.Gateway[strings.LastIndex(obj.Spec.Gateway, "/")+1:]
	site, _ := r.mirror.Site(r.Site)
	i := slices.IndexFunc(site.Gateways, func(g federation.Gateway) bool { return g.Name == name })
	if i < 0 {
		return plan.State{Reason: v1alpha1.ReasonNoGateway, Message: fmt.Sprintf("gateway %s has not registered at site %s: start it, "+
			"or correct spec.gateway", name, r.Site)}, false
	}
	obj.Status.Incarnation = site.Gateways[i].Incarnation
	if !r.mirror.IsAlive(name, site.Gateways[i].Incarnation) {
		return plan.State{Reason: v1alpha1.ReasonNoGateway, Message: fmt.Sprintf("gateway %s is not alive: start it on this pool", name)},
			false
	}
	return plan.State{True: true, Reason: v1alpha1.ReasonReady, Message: fmt.Sprintf("gateway %s is alive on it", name)}, false
}
