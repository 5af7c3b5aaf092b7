// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/mirror"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

// pools reconciles CachePools: their status is what their gateway says.
type pools struct {
	*operator
	mu       sync.Mutex
	answered map[string]time.Time // when a pool's gateway did so last
}

const (
	// askEvery is how often a gateway is asked how its pool is.
	askEvery = 5 * time.Second
	// silentFor is how long a gateway that is alive may give no answer before it is told.
	silentFor = 20 * time.Second
)

func (r *pools) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("cachepool").
		// What this controller writes itself is no reason to look again.
		For(&v1alpha1.CachePool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
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
	var ready plan.State
	if out.Verdict != nil {
		ready = plan.State{Reason: out.Verdict.Reason, Message: out.Verdict.Message}
	} else {
		ready = r.look(ctx, obj)
		out.Result.RequeueAfter = askEvery
	}
	obj.Status.ObservedGeneration = obj.Generation
	plan.SetReady(&obj.Status.Conditions, obj.Generation, r.Now(), ready, out.Working, false)
	return r.Report(ctx, out, before, obj, poolStatus)
}

// look finds the pool's gateway, and asks it: spec.gateway is the StatefulSet's NAMESPACE/NAME, and
// the gateway has its name.
func (r *pools) look(ctx context.Context, obj *v1alpha1.CachePool) plan.State {
	name := obj.Spec.Gateway[strings.LastIndex(obj.Spec.Gateway, "/")+1:]
	site, _ := r.mirror.Site(r.Site)
	i := slices.IndexFunc(site.Gateways, func(g federation.Gateway) bool { return g.Name == name })
	if i < 0 {
		return plan.State{Reason: v1alpha1.ReasonNoGateway, Message: fmt.Sprintf("gateway %s has not registered at site %s: start it, "+
			"or correct spec.gateway", name, r.Site)}
	}
	g := site.Gateways[i]
	if !r.mirror.IsAlive(name, g.Incarnation) {
		return plan.State{Reason: v1alpha1.ReasonNoGateway, Message: fmt.Sprintf("gateway %s is not alive: start it on this pool", name)}
	}
	p, err := r.AskPool(ctx, site, g, cmp.Or(obj.Spec.Name, mainPool))
	if err != nil {
		return r.unanswered(ctx, obj, name, err)
	}
	r.note(obj.Name)
	obj.Status.Incarnation = p.Incarnation
	ready := plan.ShowPool(obj, p, r.Now())
	if ready.True && ready.Message == "" {
		ready.Message = fmt.Sprintf("gateway %s is alive on it", name)
	}
	return ready
}

// ErrSilent says that a gateway is not reached, or gives no answer in time. How that comes out
// differs from try to try, so a status has these words alone: else each look would write.
var ErrSilent = errors.New("the operator does not reach it, or gets no answer in time")

// mainPool is what a gateway calls its main pool unless its configuration says otherwise.
const mainPool = "main"

// note notes that a pool's gateway has answered.
func (r *pools) note(pool string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered == nil {
		r.answered = map[string]time.Time{}
	}
	r.answered[pool] = r.Now()
}

// unanswered leaves what was known of a pool for a while.
func (r *pools) unanswered(ctx context.Context, obj *v1alpha1.CachePool, gateway string, err error) plan.State {
	r.mu.Lock()
	last, ok := r.answered[obj.Name]
	r.mu.Unlock()
	was := object.Ready(obj.Status.Conditions)
	brief := ok && r.Now().Sub(last) < silentFor && was.Reason != ""
	level := 1
	if !brief && was.Reason != v1alpha1.ReasonNoAnswer {
		level = 0 // it is news
	}
	why := err.Error()
	log.FromContext(ctx).V(level).Info("a gateway does not say how its pool is", "gateway", gateway, "why", why)
	if brief {
		return plan.State{True: was.Status == metav1.ConditionTrue, Reason: was.Reason, Message: was.Message}
	}
	if errors.Is(err, ErrSilent) {
		why = ErrSilent.Error()
	}
	return plan.State{Reason: v1alpha1.ReasonNoAnswer, Message: fmt.Sprintf("gateway %s is alive, and does not say how its pool is: %s: "+
		"see its log and the operator's, and whether the operator may reach it", gateway, why)}
}
