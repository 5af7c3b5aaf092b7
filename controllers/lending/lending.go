// SPDX-License-Identifier: Apache-2.0

// Package lending has the operator's part in the exchange of storage: it signs what people of its
// organization say in StorageOffers, StorageRequests and StorageAgreements, and shows what both
// sides said (ADR 36). What may be said is the exchange's (package exchange); nothing is decided
// here but what an offer, or the end of an agreement, has decided before.
//
// # Objects and papers
//
//	object            name           spec                      paper
//	StorageOffer      NAME           people here               offer/ORGANIZATION/NAME
//	                  SITE.NAME      the operator, a mirror    offer/…, of another site or a shell
//	StorageRequest    any            people here               request/UID
//	StorageAgreement  the ID         people here               request/ID, answer/ID, room/ID/…
//	StorageUsage      the ID         the operator              usage/ID/…
//
// # Rules
//
//   - lending-1: who speaks is told by the object. A paper is written only for what an object's
//     spec says, or by itself as told below; what a person said in a shell stays.
//   - lending-2: by itself the operator accepts what an offer accepts, says where the site's store
//     is, deletes what the guest has drained, and confirms what the host has deleted. It gives this
//     site's gateways room in slices, and says that all is drained when they have counted nothing.
//     Of a host, the operator of the offer's site does so. What its organization said of an
//     agreement that is over it deletes after a year, or a month if it never began.
//   - lending-3: a request is named by its object's UID, so asking again is recognised.
//   - lending-4: deleting an object takes nothing back that was agreed on.
//   - lending-5: nothing is written while nothing was said.
//   - lending-6: what is in an object's papers is what was signed last: it stays when the registry
//     has an earlier paper, or none. A request that the registry lost the guest's operator puts
//     back, where a gatekeeper takes it (exchange.Desk.PutBack).
//
// Reconcilers may run at the same time, also those of other clusters of the organization: what is
// said once is recognised, and the registry has one writer at a time for each paper.
package lending

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/mirror"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/exchange"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
)

// Options say for whom the operator speaks.
type Options struct {
	Federation, Organization, Site string
	// By is the URI of the operator's certificate.
	By string
	// Endpoint is the URL of the site's lent store; empty: it has none.
	Endpoint string
	// Book is the registry. Mirror is the copy of it that is decided by.
	Book   paper.Book
	Mirror *mirror.Mirror
	Now    func() time.Time
	// Await returns why nothing can be decided or said yet.
	Await func() error
	// Signed returns why a paper is not what its organization signed; nil: nothing is signed.
	Signed func(name string, value []byte) error
	// Erase deletes an object that the operator made.
	Erase func(context.Context, client.Object) error
}

// room is what the reconcilers share.
type room struct {
	Options
	*object.Writer
	desk *exchange.Desk
}

// +kubebuilder:rbac:groups=storage.weir.dev,resources=storageoffers;storagerequests;storageagreements;storageusages,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.weir.dev,resources=storageoffers;storageagreements;storageusages,verbs=create;patch;delete
// +kubebuilder:rbac:groups=storage.weir.dev,resources=storagerequests,verbs=patch
// +kubebuilder:rbac:groups=storage.weir.dev,resources=storageoffers/status;storagerequests/status;storageagreements/status;storageusages/status,verbs=patch
// +kubebuilder:rbac:groups=storage.weir.dev,resources=storageoffers/finalizers;storagerequests/finalizers,verbs=update

// Setup adds the controllers to a manager, whose scheme has v1alpha1.
func Setup(mgr ctrl.Manager, w *object.Writer, o Options) error {
	for _, add := range New(w, o) {
		if err := add.Setup(mgr); err != nil {
			return err
		}
	}
	return nil
}

// Reconciler is a controller of one kind.
type Reconciler interface {
	reconcile.Reconciler
	// Setup adds the controller to a manager.
	Setup(mgr ctrl.Manager) error
}

// New makes the controllers, by kind.
func New(w *object.Writer, o Options) map[string]Reconciler {
	r := &room{Options: o, Writer: w}
	r.desk = &exchange.Desk{Book: o.Mirror.Book(o.Book), Organization: o.Organization, By: o.By, Now: o.Now, Gateways: r.gateways}
	return map[string]Reconciler{"StorageOffer": &offers{r}, "StorageRequest": &requests{r}, "StorageAgreement": &agreements{r},
		"StorageUsage": &usages{r}}
}

// queue is a controller's queue.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// on has f called with each paper that changed, and once with all that are there.
func (r *room) on(f func(paper.Paper)) {
	r.Mirror.OnNews(func(n mirror.News) {
		if n.Paper != nil {
			f(*n.Paper)
		}
	})
	for _, p := range r.Mirror.Papers("") {
		f(p.Paper)
	}
}

// refusedAgain is when the registry is asked again for what it refused.
const refusedAgain = 5 * time.Minute

// settle reads the error of a reconcile's steps. What the papers or a gatekeeper do not allow is
// for a person to see.
func settle(err error) outcome.Outcome {
	if errors.Is(err, exchange.ErrRefused) || errors.Is(err, paper.ErrInvalid) || errors.Is(err, federation.ErrAccess) ||
		errors.Is(err, federation.ErrInvalid) {
		out := outcome.Settle(outcome.Stopped(v1alpha1.ReasonRefused, err.Error()))
		if errors.Is(err, federation.ErrAccess) { // the gatekeeper judges by the time, and by what others wrote
			out.Result.RequeueAfter = refusedAgain
		}
		return out
	}
	return outcome.Settle(err)
}

// show sets Ready by what a reconcile came to; well counts if nothing is in the way.
func show(list *[]metav1.Condition, generation int64, now time.Time, out outcome.Outcome, well plan.State) {
	if out.Verdict != nil {
		well = plan.State{Reason: out.Verdict.Reason, Message: out.Verdict.Message}
	}
	plan.SetReady(list, generation, now, well, out.Working, out.Stalled)
}

// mirrored reports whether the operator made an object.
func mirrored(obj client.Object) bool { return obj.GetAnnotations()[v1alpha1.MirrorAnnotation] != "" }

func (r *room) marks() map[string]string {
	return map[string]string{v1alpha1.MirrorAnnotation: r.Federation}
}

// gone erases an object that nothing is known of any more, if the operator made it.
func (r *room) gone(ctx context.Context, obj client.Object) (ctrl.Result, error) {
	if obj.GetResourceVersion() == "" || !mirrored(obj) {
		return ctrl.Result{}, nil
	}
	out := settle(r.Erase(ctx, obj))
	return out.Result, out.Err
}

// wake has an object looked at again at a time.
func wake(res ctrl.Result, now time.Time, at ...time.Time) ctrl.Result {
	for _, t := range at {
		if d := t.Sub(now); !t.IsZero() && d > 0 && (res.RequeueAfter == 0 || d < res.RequeueAfter) {
			res.RequeueAfter = d
		}
	}
	return res
}

func stamp(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}

// offerObject is the name of the object that shows an offer elsewhere than where it was made.
func offerObject(o *paper.Offer) string { return o.Site + "." + o.Name }

// offerOf finds an offer by the name of its mirror.
func (r *room) offerOf(name string) *paper.Offer {
	site, _, _ := strings.Cut(name, ".")
	prefix := string(paper.FormOffer) + "/"
	if s, ok := r.Mirror.Site(site); ok {
		prefix += s.Organization + "/"
	}
	for _, p := range r.Mirror.Papers(prefix) {
		if p.Offer != nil && offerObject(p.Offer) == name {
			return p.Offer
		}
	}
	return nil
}

func bytes(q interface{ Value() int64 }) quantity.Bytes { return quantity.Bytes(q.Value()) }

func party(p paper.Party) v1alpha1.AgreementParty { return v1alpha1.AgreementParty(p) }

// other is the party that an organization is not.
func with(t paper.Terms, organization string) string {
	if t.Guest == organization {
		return t.Host
	}
	return cmp.Or(t.Guest, t.Host)
}
