// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/mirror"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

// Options say what the controller needs besides the book.
type Options struct {
	Mirror *mirror.Mirror
	Now    func() time.Time
	// Await returns why nothing can be said yet.
	Await func() error
}

// Controller reconciles PlacementQuotas: it shows what is used of them, and has volumes that wait
// looked at again when that may help (quota-4).
type Controller struct {
	Options
	*object.Writer
	book *Book

	mu   sync.Mutex
	last map[string]last // by quota
}

// last is what was seen of a quota when it was reconciled last.
type last struct {
	generation int64
	used       map[string]load // by namespace
}

// +kubebuilder:rbac:groups=storage.weir.dev,resources=placementquotas,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.weir.dev,resources=placementquotas/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// New makes the controller.
func New(w *object.Writer, b *Book, o Options) *Controller {
	return &Controller{Options: o, Writer: w, book: b, last: map[string]last{}}
}

// countAfter gathers changes of volumes into one count of them.
const countAfter = 2 * time.Second

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Setup adds the controller to a manager, whose scheme has v1alpha1 and core/v1.
func (r *Controller) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("placementquota").For(&v1alpha1.PlacementQuota{}).
		Watches(&corev1.Namespace{}, handler.Funcs{UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) {
				r.again(q)
				r.Mirror.StirUnplaced() // a quota may not be about it any more
			}
		}}).
		Watches(&v1alpha1.GeoVolumeContent{}, handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, _ queue) { r.book.Changed(e.Object.GetName()) },
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
				was, is := e.ObjectOld.(*v1alpha1.GeoVolumeContent), e.ObjectNew.(*v1alpha1.GeoVolumeContent)
				if namespaceOf(was) != namespaceOf(is) {
					r.book.Changed(is.Name)
					r.again(q)
				}
			},
		}).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.Mirror.OnNews(func(n mirror.News) {
				if n.Volume != "" && n.Record || n.Site != "" {
					r.again(q)
				}
			})
			return nil
		})).
		Complete(r)
}

// again has all quotas that are known looked at again.
func (r *Controller) again(q queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.last {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, countAfter)
	}
}

func quotaStatus(obj client.Object) (any, []metav1.Condition) {
	s := obj.(*v1alpha1.PlacementQuota).Status
	return s, s.Conditions
}

// Reconcile implements reconcile.Reconciler.
func (r *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.PlacementQuota{}
	if err := r.Get(ctx, req.NamespacedName, obj); err != nil {
		if apierrors.IsNotFound(err) {
			r.seen(req.Name, nil)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := obj.DeepCopy()
	err := r.Await()
	if err == nil {
		err = r.show(ctx, obj)
	}
	out := outcome.Settle(err)
	if out.Quiet || out.Err != nil || out.Verdict != nil { // the mirror is not there: what was shown stays
		return out.Result, out.Err
	}
	return r.Report(ctx, out, before, obj, quotaStatus)
}

// seen notes what a quota is now; nil: it is not there. Volumes that wait are looked at again if
// they may find more than before.
func (r *Controller) seen(name string, now *last) {
	r.mu.Lock()
	was, known := r.last[name]
	if now == nil {
		delete(r.last, name)
	} else {
		r.last[name] = *now
	}
	r.mu.Unlock()
	more := known && (now == nil || now.generation != was.generation)
	for namespace, l := range was.used {
		more = more || l.bytes > now.used[namespace].bytes
	}
	if more {
		r.Mirror.StirUnplaced()
	}
}

// mostShown bounds the namespaces in a status, and fewShown those in a message.
const (
	mostShown = 100
	fewShown  = 5
)

// use is what a namespace uses.
type use struct {
	namespace string
	load
}

// show sets the status.
func (r *Controller) show(ctx context.Context, obj *v1alpha1.PlacementQuota) error {
	b := r.book
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.freshen(ctx); err != nil {
		return err
	}
	q, err := b.read(ctx, obj)
	if err != nil {
		return err
	}
	now := last{obj.Generation, map[string]load{}}
	var all []use
	var sum load
	for namespace := range b.loads {
		l := q.load(namespace)
		if !q.counted[namespace] || l.copies == 0 {
			continue
		}
		now.used[namespace] = l
		sum.bytes, sum.copies = sum.bytes+l.bytes, sum.copies+l.copies
		if namespace != "" {
			all = append(all, use{namespace, l})
		}
	}
	slices.SortFunc(all, func(a, b use) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.namespace, b.namespace))
	})
	s := &obj.Status
	s.ObservedGeneration, s.Copies, s.Using, s.Namespaces = obj.Generation, sum.copies, int32(len(all)), nil
	for _, u := range all[:min(len(all), mostShown)] {
		s.Namespaces = append(s.Namespaces, v1alpha1.NamespaceUse{Name: v1alpha1.NamespaceName(u.namespace), Used: *plan.Quantity(u.bytes)})
	}
	if obj.Spec.Per == v1alpha1.PerNamespace {
		if sum.bytes = 0; len(all) > 0 {
			sum.bytes = all[0].bytes
		}
	}
	s.Used = plan.Quantity(sum.bytes)
	r.conditions(obj, q, all, sum.bytes)
	r.seen(obj.Name, &now)
	return nil
}

// conditions says how a quota is: what is used of it, and by whom too much. most is what counts
// together and is most.
func (r *Controller) conditions(obj *v1alpha1.PlacementQuota, q *reading, all []use, most federation.Bytes) {
	list, now := &obj.Status.Conditions, r.Now()
	perNamespace := obj.Spec.Per == v1alpha1.PerNamespace
	ready := plan.State{True: true, Reason: v1alpha1.ReasonReady, Message: fmt.Sprintf("%s of %s are used", most, q.amount)}
	if perNamespace {
		ready.Message += " by the namespace that uses most"
	}
	exceeded := plan.State{Reason: v1alpha1.ReasonWithin, Message: "no more is placed than it allows"}
	switch {
	case most > q.amount:
		exceeded = plan.State{True: true, Reason: v1alpha1.ReasonExceeded, Message: ready.Message}
		if perNamespace {
			exceeded.Message = fmt.Sprintf("more than %s is used by %s", q.amount, tooMuch(all, q.amount))
		}
		exceeded.Message += ": what is placed stays, and nothing is added; raise spec.amount, or delete or move volumes"
		ready.Reason, ready.Message = exceeded.Reason, exceeded.Message
	case most == q.amount && most > 0:
		ready.Reason = v1alpha1.ReasonExhausted
		ready.Message += ": nothing is added there"
	}
	stalled := len(q.problems) > 0
	if stalled {
		ready = plan.State{Reason: v1alpha1.ReasonInvalid, Message: strings.ReplaceAll(errors.Join(q.problems...).Error(), "\n", "; ") +
			"; until then it selects all"}
	}
	plan.SetReady(list, obj.Generation, now, ready, false, stalled)
	plan.SetCondition(list, obj.Generation, now, v1alpha1.ConditionExceeded, exceeded)
}

// tooMuch names the namespaces that use more than an amount, those that use most first.
func tooMuch(all []use, amount federation.Bytes) (out string) {
	n := 0
	for _, u := range all {
		if u.bytes <= amount {
			break
		}
		if n++; n <= fewShown {
			out += fmt.Sprintf(", %s (%s)", u.namespace, u.bytes)
		}
	}
	if n > fewShown {
		out += fmt.Sprintf(" and %d more", n-fewShown)
	}
	return out[min(2, len(out)):]
}
