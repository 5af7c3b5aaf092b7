// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/desired"
	"github.com/weir-storage/weir/controllers/mirror"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
)

// sites reconciles Sites: it registers the local one, and mirrors the others.
type sites struct{ *operator }

// mirrorAnnotation is on Sites that the operator made; its value is the federation.
const mirrorAnnotation = v1alpha1.Group + "/mirror-of"

// refusedAnnotation is on Sites that the operator made: labels that the site says of itself, and
// that do not count, since the charter says something else.
const refusedAnnotation = v1alpha1.Group + "/refused-labels"

// loadEvery is how often what is promised at a site is looked at, which changes with every volume.
const loadEvery = 30 * time.Second

func (r *sites) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("site").For(&v1alpha1.Site{}).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.mirror.OnNews(func(n mirror.News) {
				if n.Site != "" {
					q.Add(request(n.Site))
				}
			})
			for _, s := range r.mirror.Sites() {
				q.Add(request(s.Name))
			}
			return nil
		})).
		Complete(r)
}

func siteStatus(obj client.Object) (any, []metav1.Condition) {
	s := obj.(*v1alpha1.Site).Status
	return s, s.Conditions
}

// Reconcile implements reconcile.Reconciler.
func (r *sites) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.Site{}
	if err := r.Get(ctx, req.NamespacedName, obj); err != nil {
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, err
		}
		out := outcome.Settle(r.absent(ctx, req.Name))
		return out.Result, out.Err
	}
	before := obj.DeepCopy()
	gone, err := r.steps(ctx, obj)
	out := outcome.Settle(err)
	if gone || out.Err != nil || out.Quiet {
		return out.Result, out.Err
	}
	r.show(obj, out)
	if out.Result.RequeueAfter == 0 {
		out.Result.RequeueAfter = loadEvery
	}
	return r.Report(ctx, out, before, obj, siteStatus)
}

func (r *sites) steps(ctx context.Context, obj *v1alpha1.Site) (gone bool, err error) {
	if err := r.await(); err != nil {
		return false, err
	}
	if obj.Name == r.Site {
		return false, r.register(ctx, obj)
	}
	s, ok := r.mirror.Site(obj.Name)
	switch {
	case !ok && obj.Annotations[mirrorAnnotation] != "":
		return r.erased(ctx, obj)
	case !ok:
		return false, outcome.Stopped(v1alpha1.ReasonNotFound, fmt.Sprintf("no site %s is registered in federation %s, and this cluster "+
			"is site %s: this object does nothing; delete it", obj.Name, r.Federation, r.Site))
	case obj.Spec.Organization != s.Organization: // which is immutable
		return r.erased(ctx, obj)
	}
	return false, r.restore(ctx, obj, s)
}

// erased deletes a mirror. It reports whether there is no status to write.
func (r *sites) erased(ctx context.Context, obj *v1alpha1.Site) (bool, error) {
	err := r.erase(ctx, obj)
	return err == nil, err
}

// absent makes the mirror of a site that has no object. The local site is left out: its object is
// the chart's.
func (r *sites) absent(ctx context.Context, name string) error {
	if err := r.await(); err != nil {
		return err
	}
	s, ok := r.mirror.Site(name)
	if !ok || name == r.Site {
		return nil
	}
	obj := &v1alpha1.Site{Spec: desired.Site(s, r.Federation)}
	obj.Name, obj.Labels, obj.Annotations = name, desired.ObjectLabels(r.mirror.Labels(s)),
		map[string]string{mirrorAnnotation: r.Federation}
	return r.Ensure(ctx, obj)
}

// register says to the registry that this cluster is the site, and what its region and labels are.
// Labels of installers are not the site's.
func (r *sites) register(ctx context.Context, obj *v1alpha1.Site) error {
	for _, f := range []struct{ name, is, want string }{{"organization", obj.Spec.Organization, r.Organization},
		{"federation", obj.Spec.Federation, r.Federation}} {
		if f.is != f.want {
			return outcome.Stopped(v1alpha1.ReasonInvalid, fmt.Sprintf("spec.%s: %q is not the operator's, which is %q: install the "+
				"chart anew with one value", f.name, f.is, f.want))
		}
	}
	want := federation.Site{Name: r.Site, Organization: r.Organization, Region: obj.Spec.Region, Cluster: r.self.Cluster,
		Labels: desired.SiteLabels(obj.Labels)}
	have, ok := r.mirror.Site(r.Site)
	if ok && have.Cluster == want.Cluster && have.Region == want.Region && have.Organization == want.Organization &&
		maps.Equal(have.Labels, want.Labels) {
		return nil
	}
	err := error(nil)
	if ok {
		_, err = federation.MergeSite(have, want) // what is refused is not asked for again and again
	}
	if err == nil {
		err = r.Registry.Register(ctx, want)
	}
	if errors.Is(err, federation.ErrNameTaken) {
		return outcome.Stopped(v1alpha1.ReasonNameTaken, err.Error())
	}
	return err
}

// refusedLabels lists the labels that a site says of itself, and that do not count.
func (r *sites) refusedLabels(s federation.Site) string {
	counts := r.mirror.Labels(s)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
		if value, ok := counts[name]; !ok || value != s.Labels[name] {
			out = append(out, name+"="+s.Labels[name])
		}
	}
	return strings.Join(out, ",")
}

// restore undoes changes of a site's object that mirrors the registry. It is a patch, because an
// apply would leave labels that somebody else has added.
func (r *sites) restore(ctx context.Context, obj *v1alpha1.Site, s federation.Site) error {
	spec, labels, refused := desired.Site(s, r.Federation), desired.ObjectLabels(r.mirror.Labels(s)), r.refusedLabels(s)
	if apiequality.Semantic.DeepEqual(obj.Spec, spec) && maps.Equal(obj.Labels, labels) &&
		obj.Annotations[mirrorAnnotation] == r.Federation && obj.Annotations[refusedAnnotation] == refused {
		return nil
	}
	if refused != "" && refused != obj.Annotations[refusedAnnotation] {
		log.Log.Info("labels that a site says of itself do not count: the charter says something else", "audit", "refused", "site", s.Name,
			"organization", s.Organization, "labels", refused)
	}
	before := obj.DeepCopy()
	obj.Spec, obj.Labels = spec, labels
	if obj.Annotations == nil {
		obj.Annotations = map[string]string{}
	}
	obj.Annotations[mirrorAnnotation] = r.Federation
	if delete(obj.Annotations, refusedAnnotation); refused != "" {
		obj.Annotations[refusedAnnotation] = refused
	}
	return r.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), object.FieldOwner)
}

// show sets the status.
func (r *sites) show(obj *v1alpha1.Site, out outcome.Outcome) {
	s := &obj.Status
	s.ObservedGeneration, s.Local = obj.Generation, obj.Name == r.Site
	rec, known := r.mirror.Site(obj.Name)
	alive := 0
	if known {
		s.Cluster, s.Gateways, s.Capacity = rec.Cluster, nil, nil
		for _, g := range rec.Gateways {
			is := r.mirror.IsAlive(g.Name, g.Incarnation)
			if is {
				alive++
			}
			s.Gateways = append(s.Gateways, v1alpha1.SiteGateway{Name: g.Name, Address: g.Addr, Alive: is})
		}
		promised, copies := r.mirror.Promised(obj.Name)
		s.Alive, s.Volumes, s.Promised = fmt.Sprintf("%d/%d", alive, len(rec.Gateways)), copies, plan.Quantity(promised)
		if rec.Capacity > 0 {
			s.Capacity = plan.Quantity(rec.Capacity)
		}
	}
	ready, stalled := r.ready(obj.Name, rec, known, alive)
	working := false
	if out.Verdict != nil {
		ready, working, stalled = plan.State{Reason: out.Verdict.Reason, Message: out.Verdict.Message}, out.Working, out.Stalled
	}
	plan.SetReady(&s.Conditions, obj.Generation, r.Now(), ready, working, stalled)
}

func (r *sites) ready(name string, rec federation.Site, known bool, alive int) (plan.State, bool) {
	if down := r.mirror.Down(); down != nil && name == r.Site {
		return plan.State{Reason: v1alpha1.ReasonRegistryUnavailable, Message: down.Error() +
			": volumes that run go on; nothing is created, deleted or moved until it is back"}, false
	}
	if r.mirror.Expelled(name) {
		return plan.State{Reason: v1alpha1.ReasonLost, Message: fmt.Sprintf("organization %q is not of the federation any more: its "+
			"copies are placed elsewhere; an administrator lets it in again with `weir federation admit`", rec.Organization)}, true
	}
	if l, lost := r.mirror.Lost(name); lost {
		return plan.State{Reason: v1alpha1.ReasonLost, Message: fmt.Sprintf("declared lost by %s at %s: its copies are placed "+
			"elsewhere, and others may take its volumes; when it is back, `weir site found %s`", l.By, l.At.UTC().Format(time.RFC3339),
			name)}, true
	}
	switch {
	case !known:
		return plan.State{Reason: v1alpha1.ReasonNoGateway, Message: "the site is being registered"}, false
	case len(rec.Gateways) == 0:
		return plan.State{Reason: v1alpha1.ReasonNoGateway, Message: "no gateway has registered yet: start one; until then, no volume " +
			"gets a copy here"}, false
	case alive == 0:
		return plan.State{Reason: v1alpha1.ReasonNoGateway, Message: "no gateway of the site is alive: start it; its pods wait " +
			"until it is"}, false
	}
	return plan.State{True: true, Reason: v1alpha1.ReasonReady,
		Message: fmt.Sprintf("%d of %d gateways are alive", alive, len(rec.Gateways))}, false
}
