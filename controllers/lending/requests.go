// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
)

// requests reconciles StorageRequests: it asks for what they say.
type requests struct{ *room }

// Setup implements Reconciler.
func (r *requests) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("storagerequest").For(&v1alpha1.StorageRequest{}).
		WatchesRawSource(source.Func(func(ctx context.Context, q queue) error {
			woken := make(chan struct{}, 1)
			r.on(func(p paper.Paper) {
				if p.Form() == paper.FormOffer || p.Form() == paper.FormRequest || p.Form() == paper.FormAnswer {
					select {
					case woken <- struct{}{}:
					default: // it is awake already
					}
				}
			})
			go r.all(ctx, q, woken)
			return nil
		})).
		Complete(r)
}

// all has every request looked at when papers changed. There are few.
func (r *requests) all(ctx context.Context, q queue, woken <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-woken:
		}
		var list v1alpha1.StorageRequestList
		if r.List(ctx, &list) != nil {
			continue // of a cache that is being stopped
		}
		for i := range list.Items {
			q.Add(request(list.Items[i].Name))
		}
	}
}

func requestStatus(obj client.Object) (any, []metav1.Condition) {
	s := obj.(*v1alpha1.StorageRequest).Status
	return s, s.Conditions
}

// Reconcile implements reconcile.Reconciler.
func (r *requests) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.StorageRequest{}
	if err := r.Get(ctx, req.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := obj.DeepCopy()
	a, err := r.steps(ctx, obj)
	out := settle(err)
	if out.Quiet || out.Err != nil || !obj.DeletionTimestamp.IsZero() && out.Verdict == nil {
		return out.Result, out.Err
	}
	s := &obj.Status
	s.ObservedGeneration, s.Agreement = obj.Generation, string(obj.UID)
	well := plan.State{Reason: v1alpha1.ReasonCreating, Message: "the host is being asked"}
	if a != nil {
		s.Host, s.Phase = a.Request.Host, v1alpha1.AgreementPhase(a.Phase)
		well = plan.State{True: a.Request.Agrees(a.Answer) && a.Breach == paper.Nobody, Reason: string(a.Phase), Message: a.Why}
		out.Working = a.Phase == paper.Requested || a.Phase == paper.Agreed
		out.Result = wake(out.Result, r.Now(), a.next(r.Now())...)
	} else if out.Verdict == nil {
		out.Working = true
	}
	show(&s.Conditions, obj.Generation, r.Now(), out, well)
	return r.Report(ctx, out, before, obj, requestStatus)
}

// steps asks, or withdraws what was asked, and returns the agreement; nil: it is not known yet.
func (r *requests) steps(ctx context.Context, obj *v1alpha1.StorageRequest) (*agreed, error) {
	if err := r.Await(); err != nil {
		return nil, err
	}
	id := string(obj.UID)
	a, err := r.desk.Agreement(ctx, id)
	known := err == nil
	if err != nil && !errors.Is(err, federation.ErrNotFound) {
		return nil, err
	}
	if !obj.DeletionTimestamp.IsZero() {
		if known && a.Answer == nil && !a.Over() {
			if err := r.desk.Recall(ctx, id, "the request was deleted"); err != nil {
				return &agreed{a}, err
			}
		}
		return nil, r.RemoveFinalizer(ctx, obj)
	}
	if known {
		return &agreed{a}, nil
	}
	switch paper.Phase(obj.Status.Phase) {
	case "":
	case paper.Ended, paper.Declined, paper.Expired: // what is shown stays
		return nil, &outcome.Wait{After: time.Hour}
	default: // it was asked, and what both signed stays in the StorageAgreement
		return nil, outcome.Stopped(v1alpha1.ReasonNotFound, "the registry has this request no more, or does not show it: what both sides "+
			"signed is in status.papers of StorageAgreement "+id+"; make another StorageRequest to ask anew")
	}
	o := r.offerOf(obj.Spec.Offer)
	if o == nil {
		return nil, outcome.Stopped(v1alpha1.ReasonNotFound, fmt.Sprintf("spec.offer: there is no offer %q: `kubectl get storageoffers` "+
			"shows those that there are", obj.Spec.Offer))
	}
	if err := r.AddFinalizer(ctx, obj); err != nil {
		return nil, err
	}
	w := exchange.Want{ID: id, Host: o.Organization, Offer: o.Name, Amount: bytes(&obj.Spec.Amount), Until: obj.Spec.Until.Time,
		Purpose: obj.Spec.Purpose, Price: obj.Spec.Price}
	if obj.Spec.AnswerBy != nil {
		w.AnswerBy = obj.Spec.AnswerBy.Time
	}
	_, err = r.desk.Ask(ctx, w)
	return nil, err
}
