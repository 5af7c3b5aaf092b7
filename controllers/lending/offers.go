// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"context"
	"fmt"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// offers reconciles StorageOffers: it makes those of people here, and mirrors all others.
type offers struct{ *room }

// Setup implements Reconciler.
func (r *offers) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("storageoffer").For(&v1alpha1.StorageOffer{}).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.on(func(p paper.Paper) {
				if p.Offer == nil {
					return
				}
				q.Add(request(offerObject(p.Offer)))
				if p.Offer.Organization == r.Organization {
					q.Add(request(p.Offer.Name))
				}
			})
			return nil
		})).
		Complete(r)
}

func offerStatus(obj client.Object) (any, []metav1.Condition) {
	s := obj.(*v1alpha1.StorageOffer).Status
	return s, s.Conditions
}

// Reconcile implements reconcile.Reconciler.
func (r *offers) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.StorageOffer{}
	if err := client.IgnoreNotFound(r.Get(ctx, req.NamespacedName, obj)); err != nil {
		return ctrl.Result{}, err
	}
	before := obj.DeepCopy()
	var is *paper.Offer
	var err error
	there := obj.ResourceVersion != ""
	if strings.Contains(req.Name, ".") {
		if there && !mirrored(obj) {
			err = outcome.Stopped(v1alpha1.ReasonInvalid, "metadata.name: names with a dot are those of other sites' offers: delete this "+
				"one, and make it under a name without a dot")
		} else if err = r.Await(); err == nil {
			if is = r.offerOf(req.Name); is == nil {
				return r.gone(ctx, obj)
			}
			if done, err := r.ours(ctx, is); done || err != nil {
				if err != nil {
					return ctrl.Result{}, err
				}
				return r.gone(ctx, obj)
			}
			err = r.mirrors(ctx, obj, req.Name, is)
		}
	} else if there {
		is, err = r.offers(ctx, obj)
	}
	out := settle(err)
	if !there || out.Quiet || out.Err != nil || !obj.DeletionTimestamp.IsZero() && out.Verdict == nil {
		return out.Result, out.Err
	}
	r.show(obj, is, out)
	if is != nil {
		out.Result = wake(out.Result, r.Now(), is.From, is.Until)
	}
	return r.Report(ctx, out, before, obj, offerStatus)
}

// ours reports whether an offer is shown by an object that people here made. One that nobody here
// wants any more, closed and with nothing given, is taken back.
func (r *offers) ours(ctx context.Context, is *paper.Offer) (bool, error) {
	if is.Organization != r.Organization || is.Site != r.Site {
		return false, nil
	}
	own := &v1alpha1.StorageOffer{}
	err := r.Get(ctx, client.ObjectKey{Name: is.Name}, own)
	if err == nil {
		return true, nil
	}
	if client.IgnoreNotFound(err) != nil || !is.Closed || len(is.Given) > 0 {
		return false, client.IgnoreNotFound(err)
	}
	_, err = r.desk.Withdraw(ctx, is.Name)
	out := settle(err)
	return false, out.Err
}

// mirrors makes or mends the object that shows an offer.
func (r *offers) mirrors(ctx context.Context, obj *v1alpha1.StorageOffer, name string, is *paper.Offer) error {
	spec := offerSpec(is)
	if obj.ResourceVersion != "" && mirrored(obj) && apiequality.Semantic.DeepEqual(obj.Spec, spec) {
		return nil
	}
	want := &v1alpha1.StorageOffer{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: r.marks()}, Spec: spec}
	return r.Ensure(ctx, want)
}

// offers makes the offer that an object describes, and returns it as it is.
func (r *offers) offers(ctx context.Context, obj *v1alpha1.StorageOffer) (*paper.Offer, error) {
	if err := r.Await(); err != nil {
		return nil, err
	}
	p, known := r.Mirror.Paper(paper.OfferName(r.Organization, obj.Name))
	if known && p.Offer.Site != r.Site {
		if !obj.DeletionTimestamp.IsZero() {
			return nil, r.RemoveFinalizer(ctx, obj)
		}
		return nil, outcome.Stopped(v1alpha1.ReasonNameTaken, fmt.Sprintf("site %s of %q makes an offer of that name: delete this one, "+
			"and make it under another name", p.Offer.Site, r.Organization))
	}
	if !obj.DeletionTimestamp.IsZero() {
		if _, err := r.desk.Withdraw(ctx, obj.Name); err != nil {
			return p.Offer, err
		}
		return p.Offer, r.RemoveFinalizer(ctx, obj)
	}
	if err := r.AddFinalizer(ctx, obj); err != nil {
		return p.Offer, err
	}
	_, err := r.desk.Offer(ctx, offerPaper(obj, r.Site))
	return p.Offer, err
}

// offerPaper is what an object offers.
func offerPaper(obj *v1alpha1.StorageOffer, site string) paper.Offer {
	s := obj.Spec
	o := paper.Offer{Name: obj.Name, Kind: paper.Kind(s.Kind), Site: site, Amount: bytes(&s.Amount), Media: s.Media,
		Class: paper.Class(s.Class), Price: s.Price, Terms: s.Terms, Notice: quantity.Duration(s.Notice.Duration),
		Grace: quantity.Duration(s.Grace.Duration), Closed: s.Closed}
	if s.Least != nil {
		o.Least = bytes(s.Least)
	}
	if s.Automatic != nil {
		o.Automatic = bytes(s.Automatic)
	}
	if s.From != nil {
		o.From = s.From.UTC()
	}
	if s.Until != nil {
		o.Until = s.Until.UTC()
	}
	for _, to := range s.To {
		o.To = append(o.To, string(to))
	}
	return o
}

// offerSpec is the spec of an object that shows an offer.
func offerSpec(o *paper.Offer) v1alpha1.StorageOfferSpec {
	s := v1alpha1.StorageOfferSpec{Kind: v1alpha1.RoomKind(o.Kind), Amount: *plan.Quantity(o.Amount), Media: o.Media,
		Class: v1alpha1.RoomClass(o.Class), Price: o.Price, Terms: o.Terms, From: stamp(o.From), Until: stamp(o.Until),
		Notice: metav1.Duration{Duration: time.Duration(o.Notice)}, Grace: metav1.Duration{Duration: time.Duration(o.Grace)},
		Closed: o.Closed}
	if o.Least > 0 {
		s.Least = plan.Quantity(o.Least)
	}
	if o.Automatic > 0 {
		s.Automatic = plan.Quantity(o.Automatic)
	}
	for _, to := range o.To {
		s.To = append(s.To, v1alpha1.OrganizationName(to))
	}
	return s
}

// show writes the status. is is nil while the mirror has not heard of the offer.
func (r *offers) show(obj *v1alpha1.StorageOffer, is *paper.Offer, out outcome.Outcome) {
	s := &obj.Status
	s.ObservedGeneration = obj.Generation
	well := plan.State{Reason: v1alpha1.ReasonCreating, Message: "the offer is being made"}
	if is != nil {
		s.Host, s.Name, s.Site, s.Free = is.Organization, is.Name, is.Site, plan.Quantity(max(is.Free(), 0))
		s.Agreements, s.ForUs = int32(min(len(is.Given), 1<<30)), is.For(r.Organization)
		well = r.state(is)
	} else if out.Verdict == nil {
		out.Working = true
	}
	show(&s.Conditions, obj.Generation, r.Now(), out, well)
}

func (r *offers) state(is *paper.Offer) plan.State {
	day := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
	now := r.Now()
	switch {
	case is.Closed:
		return plan.State{True: true, Reason: v1alpha1.ReasonClosed, Message: "nobody may ask any more; agreements go on"}
	case !is.Until.IsZero() && !now.Before(is.Until):
		return plan.State{True: true, Reason: v1alpha1.ReasonClosed, Message: "it ended at " + day(is.Until)}
	case is.Free() <= 0:
		return plan.State{True: true, Reason: v1alpha1.ReasonExhausted, Message: "all of it went to agreements"}
	case is.Organization != r.Organization && !is.For(r.Organization):
		return plan.State{True: true, Reason: v1alpha1.ReasonNotForUs, Message: fmt.Sprintf("it is for %q: ask %q to name you", is.To,
			is.Organization)}
	case now.Before(is.From):
		return plan.State{True: true, Reason: v1alpha1.ReasonReady, Message: "agreements begin at " + day(is.From)}
	}
	return plan.State{True: true, Reason: v1alpha1.ReasonReady, Message: fmt.Sprintf("%v of %v can be asked for", is.Free(), is.Amount)}
}
