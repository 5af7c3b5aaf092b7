// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"k8s.io/client-go/util/workqueue"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/desired"
	"github.com/weir-storage/weir/controllers/mirror"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/view"
)

// contents reconciles GeoVolumeContents.
type contents struct {
	*operator
	// unplaced are volumes that no choice of sites satisfies: they are looked at when a site
	// changes.
	unplaced sync.Map
	// placing is held from the search for room to its reservation: two volumes do not find
	// the same room.
	placing sync.Mutex
}

// queue is a controller's queue.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

func (r *contents) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("geovolumecontent").For(&v1alpha1.GeoVolumeContent{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Watches(&v1alpha1.VolumePolicy{}, handler.EnqueueRequestsFromMapFunc(r.ofPolicy)).
		WatchesRawSource(source.Func(func(_ context.Context, q queue) error {
			r.listen(q)
			return nil
		})).
		Complete(r)
}

// listen has volumes reconciled when the registry reports a change of them. Volumes that exist
// already are reported at once: they may have no object.
func (r *contents) listen(q queue) {
	r.rollout.OnTurn(func(uuid string) { q.Add(request(uuid)) })
	r.mirror.OnNews(func(n mirror.News) {
		if n.Volume != "" && n.Mine {
			q.Add(request(n.Volume))
		}
		if n.Site != "" {
			r.unplaced.Range(func(uuid, _ any) bool { q.Add(request(uuid.(string))); return true })
		}
	})
	for _, uuid := range r.mirror.Mine() {
		q.Add(request(uuid))
	}
}

func (r *contents) ofPolicy(ctx context.Context, p client.Object) []reconcile.Request {
	var list v1alpha1.GeoVolumeContentList
	if err := r.List(ctx, &list, client.MatchingFields{policyIndex: p.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // of a cache that is being stopped
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, request(list.Items[i].Name))
	}
	return out
}

// content is a GeoVolumeContent that is being reconciled.
type content struct {
	*v1alpha1.GeoVolumeContent
	// seen is what the mirror has; nil: nothing.
	seen *view.Volume
	// trouble: the wish cannot be fulfilled, while the volume lives on as it is.
	trouble *plan.Verdict
	// policy is the generation of the policy that the record is made by; taking: it waits for its
	// turn.
	policy int64
	taking bool
	// gone: the object was let go; there is no status to write.
	gone bool
}

func (c *content) record() *federation.Volume {
	if c.seen == nil {
		return nil
	}
	return c.seen.Record
}

// wasOwned distinguishes an object of this cluster's own volume from one in whose spec somebody
// wrote that it is.
func (c *content) wasOwned() bool {
	ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
	return hasFinalizer(c.GeoVolumeContent) || ready != nil && ready.Reason == v1alpha1.ReasonSuperseded
}

// Reconcile implements reconcile.Reconciler.
func (r *contents) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.GeoVolumeContent{}
	if err := r.Get(ctx, req.NamespacedName, obj); err != nil {
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, err
		}
		out := outcome.Settle(r.absent(ctx, req.Name))
		return out.Result, out.Err
	}
	before := obj.DeepCopy()
	c := &content{GeoVolumeContent: obj}
	out := outcome.Settle(r.steps(ctx, c))
	return r.show(ctx, before, c, out)
}

func (r *contents) steps(ctx context.Context, c *content) error {
	if err := r.await(); err != nil {
		return err
	}
	if err := r.registered(); err != nil {
		return err
	}
	c.seen = r.mirror.Volume(c.Name)
	if c.seen != nil && c.seen.Problem != nil {
		return c.seen.Problem
	}
	v := c.record()
	switch {
	case !c.DeletionTimestamp.IsZero():
		return r.remove(ctx, c)
	case v == nil && string(c.Spec.Owner) == r.Site:
		return r.begin(ctx, c)
	case v == nil:
		return r.drop(ctx, c)
	case r.self.Owns(*v):
		return r.own(ctx, c)
	case string(c.Spec.Owner) == r.Site && v.OwnerSite != "" && c.wasOwned():
		if err := r.RemoveFinalizer(ctx, c.GeoVolumeContent); err != nil {
			return err
		}
		return &outcome.Stop{Verdict: plan.Superseded(*v)}
	}
	return r.follows(ctx, c)
}

// own: this cluster decides. The wish goes to the registry.
func (r *contents) own(ctx context.Context, c *content) error {
	if string(c.Spec.Owner) != r.Site {
		return r.promote(ctx, c)
	}
	if err := r.AddFinalizer(ctx, c.GeoVolumeContent); err != nil {
		return err
	}
	if err := r.wished(ctx, c); err != nil {
		return err
	}
	if err := r.update(ctx, c); err != nil {
		return err
	}
	if err := r.claims(ctx, c); err != nil {
		return err
	}
	if err := r.filled(ctx, c); err != nil {
		return err
	}
	return r.uncloned(ctx, c)
}

// wished: while there is the GeoVolume that made the volume, its wish counts. An edit of the
// content is undone before it reaches the registry, where growth, for one, could not be taken back.
func (r *contents) wished(ctx context.Context, c *content) error {
	namespace, name, ok := strings.Cut(c.Spec.FederationName, ".")
	if !ok {
		return nil
	}
	g := &geoVolume{GeoVolume: &v1alpha1.GeoVolume{}}
	if err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, g.GeoVolume); err != nil {
		return client.IgnoreNotFound(err)
	}
	if g.Spec.Import != nil || v1alpha1.VolumeUUID(r.self.Cluster, string(g.UID)) != c.Name {
		return nil
	}
	want := desired.Content(g.GeoVolume, r.Site, c.Spec.FederationName)
	want.Claims, want.Source = c.Spec.Claims, c.Spec.Source
	changed := desired.Differing(c.Spec, want)
	if len(changed) == 0 {
		return nil
	}
	if c.Generation != c.Status.ObservedGeneration && c.Status.ObservedGeneration != 0 {
		r.warn(c, fmt.Sprintf("spec.%s is put back: GeoVolume %s of namespace %s says what this volume is to be; change it there",
			strings.Join(changed, ", spec."), name, namespace))
	}
	return r.setSpec(ctx, c.GeoVolumeContent, want)
}

// absent: there is no object. It is made when the volume concerns this cluster. The claims of
// PersistentVolumeClaims are those of the object that the CSI controller made, and end with it.
func (r *contents) absent(ctx context.Context, uuid string) error {
	r.rollout.End(uuid)
	r.unplaced.Delete(uuid)
	if err := r.await(); err != nil {
		return err
	}
	if err := r.registered(); err != nil {
		return err
	}
	e := r.mirror.Volume(uuid)
	if e == nil || e.Record == nil {
		return nil
	}
	for _, claim := range e.ClaimsOf(r.Site) {
		if claim.Kind == federation.ClaimPVC {
			if err := r.Registry.DeleteClaim(ctx, uuid, claim.Site, claim.Namespace, claim.Name); err != nil {
				return err
			}
		}
	}
	if e.Record.Deleted || !r.mirror.Concerns(e) {
		return nil
	}
	obj := &v1alpha1.GeoVolumeContent{}
	obj.Name, obj.Labels, obj.Spec = uuid, contentLabels(), desired.Mirrored(e, r.Site, nil)
	return r.Ensure(ctx, obj)
}

// drop removes the mirror of a volume that is not in the registry.
func (r *contents) drop(ctx context.Context, c *content) error {
	if slices.Contains(c.Finalizers, v1alpha1.Finalizer) {
		return r.lost(c.Name) // it was this cluster's once
	}
	err := r.erase(ctx, c.GeoVolumeContent)
	c.gone = err == nil
	return err
}

// warn makes an event of an edit that was undone.
func (r *contents) warn(c *content, note string) {
	r.Event(c.GeoVolumeContent, corev1.EventTypeWarning, v1alpha1.ReasonNotOwner, "Undo", note)
}
