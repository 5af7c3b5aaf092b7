// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"crypto/rand"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/test/apiserver"
)

// real is a cluster with a real API server and a running manager.
type real struct {
	*fed
	site string
	api  client.Client
	reg  *counted
}

// well is what a gateway says of its pool.
func well(context.Context, federation.Site, federation.Gateway, string) (plan.Pool, error) {
	return says(), nil
}

func (f *fed) real(site string) *real {
	t := f.t
	cfg := apiserver.Start(t)
	scheme := testScheme(t)
	f.ok(eventsv1.AddToScheme(scheme))
	api, err := client.New(cfg, client.Options{Scheme: scheme})
	f.ok(err)
	r := &real{fed: f, site: site, api: api, reg: &counted{Client: f.server.Client(nil)}}
	skip := true // names of controllers are checked per process, of which these are two clusters
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Cache: CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skip}})
	f.ok(err)
	f.ok(Setup(t.Context(), mgr, Options{Federation: "demo", Organization: "uva", Site: site, Registry: r.reg, Random: rand.Reader,
		AskPool: well, Now: time.Now, After: time.After, Ping: 100 * time.Millisecond}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("manager of %s: %v", site, err)
		}
	})
	f.ok(api.Create(t.Context(), &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: site},
		Spec: v1alpha1.SiteSpec{Organization: "uva", Federation: "demo"}}))
	return r
}

// await waits until the object is as it should be. The limit is only there to end what hangs.
func await[T client.Object](r *real, obj T, what string, as func(T) bool) {
	r.t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := r.api.Get(r.t.Context(), client.ObjectKeyFromObject(obj), obj)
		if err == nil && as(obj) {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s: %s %s is not %s: %v, %+v", r.site, typeName(obj), obj.GetName(), what, err, conditionsOf(obj))
		}
	}
}

func (r *real) awaitGone(obj client.Object) {
	r.t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := r.api.Get(r.t.Context(), client.ObjectKeyFromObject(obj), obj)
		if err != nil && client.IgnoreNotFound(err) == nil {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s: %s %s is not gone: %v, %v, %+v", r.site, typeName(obj), obj.GetName(), err, obj.GetFinalizers(),
				conditionsOf(obj))
		}
	}
}

func is(reason string) func(*v1alpha1.GeoVolume) bool {
	return func(g *v1alpha1.GeoVolume) bool { return object.Ready(g.Status.Conditions).Reason == reason }
}

// bind plays the controller that binds a claim, and unprotect the one that lets it go when no pod
// uses it.
func (r *real) bind(namespace, name string) {
	r.t.Helper()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	await(r, pvc, "made", func(*corev1.PersistentVolumeClaim) bool { return true })
	pvc.Status.Phase = corev1.ClaimBound
	r.ok(r.api.Status().Update(r.t.Context(), pvc))
}

func (r *real) unprotect(objects ...client.Object) {
	r.t.Helper()
	for _, obj := range objects {
		r.ok(r.api.Get(r.t.Context(), client.ObjectKeyFromObject(obj), obj))
		before := obj.DeepCopyObject().(client.Object)
		obj.SetFinalizers(nil)
		r.ok(r.api.Patch(r.t.Context(), obj, client.MergeFrom(before)))
	}
}

// Two clusters with real API servers share a registry: a volume is made, imported, grown, edited by
// both, and deleted.
func TestTwoRealClusters(t *testing.T) {
	if testing.Short() {
		t.Skip("two API servers take some seconds")
	}
	log.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	f := newFed(t)
	f.site("ams", "uva")
	f.site("utr", "uva")
	ams, utr := f.real("ams"), f.real("utr")
	pool := zfsPool("pool")
	f.ok(ams.api.Create(t.Context(), pool))
	await(ams, pool, "shown", func(p *v1alpha1.CachePool) bool {
		return object.Ready(p.Status.Conditions).Reason == v1alpha1.ReasonReady && len(p.Status.Classes) == 3 && len(p.Status.Volumes) == 2
	})
	ctx := t.Context()
	for _, c := range []*real{ams, utr} {
		f.ok(c.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}))
	}
	await(ams, &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "utr"}}, "mirrored",
		func(s *v1alpha1.Site) bool { return object.Ready(s.Status.Conditions).Reason == v1alpha1.ReasonReady })

	p := copies(2)
	f.ok(ams.api.Create(ctx, p))
	g := gv("ns", "data", func(s *v1alpha1.GeoVolumeSpec) {
		s.Policy, s.ReclaimPolicy = "p", v1alpha1.Delete
		granted("utr", "ns")(s)
	})
	f.ok(ams.api.Create(ctx, g))
	await(ams, g, "there", func(g *v1alpha1.GeoVolume) bool { return g.Status.Volume != "" })
	uuid := g.Status.Volume
	f.serve(uuid, 0)
	ams.bind("ns", "data")
	await(ams, g, "ready", is(v1alpha1.ReasonReady))
	if g.Status.Copies != "2/2" || g.Status.Home != "ams" || g.Status.Lag == "" || g.Status.Capacity == nil || g.Status.Owner != "ams" {
		t.Errorf("status %+v", g.Status)
	}
	await(ams, p, "counted", func(p *v1alpha1.VolumePolicy) bool { return p.Status.Volumes == 1 && p.Status.UpToDate == 1 })

	i := imported("ns", "shared", "ns.data")
	f.ok(utr.api.Create(ctx, i))
	utr.bind("ns", "shared")
	await(utr, i, "ready", is(v1alpha1.ReasonReady))

	// Growth: Kubernetes lets nobody raise what a claim without a StorageClass asks for; what it
	// has is shown all the same.
	g.Spec.Size = ptrTo(resource.MustParse("2Gi"))
	f.ok(ams.api.Update(ctx, g))
	await(utr, i, "grown", func(g *v1alpha1.GeoVolume) bool { return g.Status.Capacity.String() == "2Gi" })
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}
	f.ok(ams.api.Get(ctx, client.ObjectKeyFromObject(pvc), pvc))
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pvc.Spec.VolumeName}}
	await(ams, pv, "grown", func(pv *corev1.PersistentVolume) bool {
		size := pv.Spec.Capacity[corev1.ResourceStorage]
		return size.String() == "2Gi"
	})
	await(ams, pvc, "grown", func(pvc *corev1.PersistentVolumeClaim) bool {
		size := pvc.Status.Capacity[corev1.ResourceStorage]
		return size.String() == "2Gi"
	})
	more := pvc.DeepCopy()
	more.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	if err := ams.api.Patch(ctx, more, client.MergeFrom(pvc)); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "only dynamically provisioned pvc can be resized") {
		t.Errorf("a claim without a StorageClass asks for more: %v", err)
	}
	f.serve(uuid, 0)
	await(ams, g, "ready", is(v1alpha1.ReasonReady))

	// An edit where it is not owned is undone, and an event says so.
	c := contentOf(uuid)
	f.ok(utr.api.Get(ctx, client.ObjectKeyFromObject(c), c))
	before := c.DeepCopy()
	c.Spec.Size, c.Spec.Policy = resource.MustParse("9Gi"), "mine"
	f.ok(utr.api.Patch(ctx, c, client.MergeFrom(before)))
	await(utr, c, "undone", func(c *v1alpha1.GeoVolumeContent) bool {
		s := conditionOf(c.Status.Conditions, v1alpha1.ConditionInSync)
		return c.Spec.Size.String() == "2Gi" && c.Spec.Policy == "" && s != nil && s.Reason == v1alpha1.ReasonNotOwner
	})
	var told eventsv1.EventList
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		f.ok(utr.api.List(ctx, &told))
		if strings.Contains(notes(told), v1alpha1.ReasonNotOwner+" spec.size, spec.policy was changed here") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no event tells of the edit: %s", notes(told))
		}
	}

	// The registry is away: a deletion waits and says so.
	ams.reg.SetDown(true)
	f.ok(ams.api.Delete(ctx, g))
	await(ams, g, "waiting", is(v1alpha1.ReasonRegistryUnavailable))
	await(ams, &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "ams"}}, "without registry", func(s *v1alpha1.Site) bool {
		return object.Ready(s.Status.Conditions).Reason == v1alpha1.ReasonRegistryUnavailable
	})
	ams.reg.SetDown(false)
	await(ams, g, "in use", func(g *v1alpha1.GeoVolume) bool {
		c := object.Ready(g.Status.Conditions)
		return c.Reason == v1alpha1.ReasonInUse && strings.Contains(c.Message, "utr/ns/shared")
	})

	// The import goes: its pods first.
	f.ok(utr.api.Delete(ctx, i))
	await(utr, i, "waiting for pods", func(g *v1alpha1.GeoVolume) bool {
		return strings.Contains(object.Ready(g.Status.Conditions).Message, "still used by pods")
	})
	theirs := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shared"}}
	f.ok(utr.api.Get(ctx, client.ObjectKeyFromObject(theirs), theirs))
	name := theirs.Spec.VolumeName
	utr.unprotect(theirs, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}})
	utr.awaitGone(i)
	await(ams, pvc, "going", func(p *corev1.PersistentVolumeClaim) bool { return p.DeletionTimestamp != nil })
	ams.unprotect(pvc, pv)
	ams.awaitGone(g)
	ams.awaitGone(contentOf(uuid))
	utr.awaitGone(contentOf(uuid))
	if v := f.record(uuid); !v.Deleted || len(f.claims(uuid)) != 0 {
		t.Errorf("record %+v, claims %v", v, f.claims(uuid))
	}
}

// A second reconcile changes nothing, also on a real API server, which sets defaults and rewrites
// what it stores.
func TestSteadyStateOnARealServer(t *testing.T) {
	if testing.Short() {
		t.Skip("an API server takes some seconds")
	}
	f := newFed(t)
	f.site("ams", "uva")
	f.site("utr", "uva")
	api, err := client.NewWithWatch(apiserver.Start(t), client.Options{Scheme: testScheme(t)})
	f.ok(err)
	ams := f.clusterOn(api, "ams", "ams")
	delete(ams.recs, "VolumePolicy") // it lists by an index of the cache
	for _, n := range []string{"ns", "other"} {
		f.ok(api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}}))
	}
	p := copies(2)
	p.Spec.Durability = v1alpha1.Durability{Acknowledge: v1alpha1.AcknowledgeSites,
		MaxLag: v1alpha1.MaxLag{Time: &metav1.Duration{Duration: 90 * time.Second}, Bytes: ptrTo(resource.MustParse("2048Mi"))}}
	ams.create(p)
	g := gv("ns", "data", func(s *v1alpha1.GeoVolumeSpec) {
		s.Policy, s.Size = "p", ptrTo(resource.MustParse("1024Mi"))
		granted("ams", "other")(s)
		s.Consistency = &v1alpha1.Consistency{Mode: v1alpha1.ConsistencyBounded, MaxStaleness: &metav1.Duration{Duration: 60 * time.Second}}
	})
	ams.create(g)
	settleAll(ams)
	ams.get(g)
	f.serve(g.Status.Volume, 3)
	i := imported("other", "same", "ns.data")
	ams.create(i)
	ams.create(imported("other", "no", "no.such"))
	settleAll(ams)
	ams.get(i)
	ams.ready(i, metav1.ConditionTrue, v1alpha1.ReasonReady)
	before := ams.count()
	for range 3 {
		f.advance(time.Hour)
		ams.round()
	}
	if n := ams.count() - before; n != 0 {
		t.Errorf("%d writes: %v %v", n, last(ams.writes, n), last(ams.reg.writes, n))
	}

	// What is transferred here is taken over as it is.
	v := f.record(g.Status.Volume)
	v.UUID, v.Name, v.Grants = "0a6b4c1e-7a0b-5a42-9a2e-1f6d0c8a9b10", "app.theirs", nil
	v.OwnerSite, v.OwnerCluster = "utr", "uid-utr"
	rev, err := f.reg.CreateVolume(t.Context(), v, federation.Keyring{})
	f.ok(err)
	settleAll(ams)
	v.OwnerSite, v.OwnerCluster = "ams", "uid-ams"
	_, err = f.reg.UpdateVolume(t.Context(), rev, v)
	f.ok(err)
	settleAll(ams)
	c := contentOf(v.UUID)
	ams.get(c)
	if got := f.record(v.UUID); c.Spec.Owner != "ams" || !hasFinalizer(c) || got.Generation != v.Generation {
		t.Errorf("content %+v, generation %d, was %d", c.Spec, got.Generation, v.Generation)
	}
}

func ptrTo[T any](v T) *T { return &v }

func notes(l eventsv1.EventList) string {
	var out []string
	for _, e := range l.Items {
		out = append(out, e.Reason+" "+e.Note)
	}
	return strings.Join(out, "\n")
}

var _ federation.Registry = (*counted)(nil)

// TestSetupRefusesALimit: with client-go's own limit on requests a site that joins would take hours
// to show its volumes.
func TestSetupRefusesALimit(t *testing.T) {
	mgr, err := ctrl.NewManager(&rest.Config{Host: "127.0.0.1:1"},
		ctrl.Options{Scheme: testScheme(t), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	f := newFed(t)
	err = Setup(t.Context(), mgr, Options{Federation: "demo", Organization: "uva", Site: "ams", Registry: f.server.Client(nil),
		Random: rand.Reader, Now: time.Now, After: time.After, AskPool: well})
	if err == nil || !strings.Contains(err.Error(), "QPS is 0") {
		t.Errorf("got %v", err)
	}
}
