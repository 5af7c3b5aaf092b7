// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/lending"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/keyring"
	"github.com/weir-storage/weir/federation/memory"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/federation/view"
)

// fed is a registry that several clusters share, and a clock.
type fed struct {
	t      *testing.T
	server *memory.Server
	reg    *memory.Client // a person's, and the gateways'
	mu     sync.Mutex
	now    time.Time

	charter Charter           // nil: operators follow none
	of      map[string]string // organizations of sites; those that are not in it are of uva

	rolled    snapshots.State // what keep says of a rollback
	rolledWhy string
}

func newFed(t *testing.T) *fed {
	s := memory.NewServer(7)
	return &fed{t: t, server: s, reg: s.Client(nil), now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
}

func (f *fed) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fed) advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

func (f *fed) ok(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// site registers a site with one gateway that is alive, as a gateway does.
func (f *fed) site(name, organization string) {
	f.t.Helper()
	key, err := keyring.NewSiteKey()
	f.ok(err)
	lends := []string{federation.LendsToAll}
	if f.of[name] != "" { // each keeps to itself
		lends = nil
	}
	f.ok(f.reg.Register(f.t.Context(), federation.Site{Name: name, Organization: organization, WrapKey: key.Public(), Lends: lends,
		Gateways: []federation.Gateway{{Name: name + "-1", Addr: name + ":7440", Incarnation: "1"}}}))
	_, err = f.reg.Heartbeat(f.t.Context(), federation.Alive{Gateway: name + "-1", Site: name, Incarnation: "1"}, time.Hour)
	f.ok(err)
}

// serve plays the gateways: the first site's is home, and reports the others as following it with
// that lag.
func (f *fed) serve(uuid string, lag float64) {
	f.t.Helper()
	v, _, err := f.reg.GetVolume(f.t.Context(), uuid)
	f.ok(err)
	ctl, rev, err := f.reg.GetControl(f.t.Context(), uuid)
	if err != nil {
		home := federation.Member{Gateway: v.Sites[0] + "-1", Site: v.Sites[0], Incarnation: "1"}
		ctl = federation.Control{Volume: uuid, Epoch: 1, Home: home, Members: []federation.Member{home}}
		_, err = f.reg.SwapControl(f.t.Context(), uuid, rev, ctl)
		f.ok(err)
	}
	o := federation.Observed{Volume: uuid, Gateway: ctl.Home.Gateway, Generation: v.Generation, Epoch: ctl.Epoch, Home: ctl.Home.Gateway,
		At: f.clock()}
	for _, s := range v.Sites {
		r := federation.ObservedReplica{Gateway: s + "-1", Site: s, State: federation.ReplicaFollower, LagSeconds: lag}
		if s == ctl.Home.Site {
			r.State, r.LagSeconds = federation.ReplicaHome, 0
		}
		o.Replicas = append(o.Replicas, r)
	}
	f.ok(f.reg.PutObserved(f.t.Context(), o))
}

// cluster is a Kubernetes cluster with an operator.
type cluster struct {
	*fed
	name   string
	api    client.WithWatch
	reg    *counted
	op     *operator
	events *events.FakeRecorder
	recs   map[string]reconciler // by kind, in the order of kinds
	seen   atomic.Int64          // the newest revision that the mirror has

	mu      sync.Mutex
	pools   map[string]plan.Pool // what gateways say; others do not answer
	deaf    func() error         // why they do not; nil: they say "no answer"
	writes  []string             // to the API server, by the operator
	results map[string]ctrl.Result
}

type reconciler interface {
	Reconcile(context.Context, ctrl.Request) (ctrl.Result, error)
}

var kinds = []string{"Site", "CachePool", "VolumePolicy", "GeoVolume", "GeoVolumeContent", "StorageOffer", "StorageRequest",
	"StorageAgreement", "StorageUsage", "PlacementQuota", "GeoVolumeSnapshot"}

// counted counts what is written to the registry.
type counted struct {
	*memory.Client
	mu     sync.Mutex
	writes []string
	before func(volume string) // a volume is created; nil: nothing
}

func (c *counted) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, what)
}

func (c *counted) CreateVolume(ctx context.Context, v federation.Volume, k federation.Keyring) (federation.Revision, error) {
	if c.before != nil {
		c.before(v.UUID)
	}
	rev, err := c.Client.CreateVolume(ctx, v, k)
	if !errors.Is(err, federation.ErrUnavailable) { // it is tried again and again until it is there
		c.note("create volume")
	}
	return rev, err
}

func (c *counted) UpdateVolume(ctx context.Context, prev federation.Revision, v federation.Volume) (federation.Revision, error) {
	c.note("update volume")
	return c.Client.UpdateVolume(ctx, prev, v)
}

func (c *counted) PutClaim(ctx context.Context, claim federation.Claim) error {
	c.note("put claim")
	return c.Client.PutClaim(ctx, claim)
}

func (c *counted) DeleteClaim(ctx context.Context, volume, site, namespace, name string) error {
	c.note("delete claim")
	return c.Client.DeleteClaim(ctx, volume, site, namespace, name)
}

func (c *counted) Register(ctx context.Context, s federation.Site) error {
	c.note("register")
	return c.Client.Register(ctx, s)
}

// cluster makes the cluster of a site. Its UID is "uid-" and a name: the name of the site, or
// another.
func (f *fed) cluster(site string, another ...string) *cluster {
	f.t.Helper()
	b := fake.NewClientBuilder().WithScheme(testScheme(f.t)).
		WithStatusSubresource(&v1alpha1.Site{}, &v1alpha1.CachePool{}, &v1alpha1.VolumePolicy{}, &v1alpha1.GeoVolume{},
			&v1alpha1.GeoVolumeContent{}, &v1alpha1.StorageOffer{}, &v1alpha1.StorageRequest{}, &v1alpha1.StorageAgreement{},
			&v1alpha1.StorageUsage{}, &v1alpha1.PlacementQuota{}, &v1alpha1.GeoVolumeSnapshot{},
			&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{})
	for n, i := range indexes() {
		b = b.WithIndex(i.object, n, i.by)
	}
	return f.clusterOn(b.Build(), site, strings.Join(append([]string{site}, another...), "-"))
}

// clusterOn is a cluster whose API server is reached by api.
func (f *fed) clusterOn(api client.WithWatch, site, name string) *cluster {
	f.t.Helper()
	c := &cluster{fed: f, name: name, api: api, reg: &counted{Client: f.server.Client(nil)}, events: events.NewFakeRecorder(1000),
		results: map[string]ctrl.Result{}}
	organization := cmp.Or(f.of[site], "uva")
	o := Options{Federation: "demo", Organization: organization, By: "weir://demo/" + site, LentStore: "https://store." + site + ":7005",
		Site: site, Registry: c.reg, Random: rand.Reader, Now: f.clock, After: time.After,
		AskPool: c.askPool, Charter: f.charter}
	f.ok(o.check())
	c.op = newOperator(o, "uid-"+name, c.watched())
	c.op.Events = c.events
	c.op.mirror.Listen(func(change view.Change) { c.seen.Store(max(c.seen.Load(), int64(change.Revision))) })
	c.recs = map[string]reconciler{"Site": &sites{c.op}, "CachePool": &pools{operator: c.op}, "VolumePolicy": &policies{c.op},
		"GeoVolume":        &geoVolumes{c.op},
		"GeoVolumeContent": &contents{operator: c.op}, "PlacementQuota": c.op.placementQuotas(), "GeoVolumeSnapshot": c.op.snapshots()}
	for kind, rec := range lending.New(&c.op.Writer, c.op.lending()) {
		c.recs[kind] = rec
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.op.mirror.Watch(ctx, c.reg) // ends with ctx
	}()
	f.t.Cleanup(func() { cancel(); <-done })
	c.create(&v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: site, Labels: map[string]string{"jurisdiction": "nl"}},
		Spec: v1alpha1.SiteSpec{Organization: organization, Region: site, Federation: "demo"}})
	return c
}

// askPool is what gateways say of their pools.
func (c *cluster) askPool(_ context.Context, s federation.Site, g federation.Gateway, pool string) (plan.Pool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.Name != c.op.Site {
		c.t.Errorf("the operator of site %s asks gateway %s of site %s", c.op.Site, g.Name, s.Name)
	}
	name := g.Name
	if pool != "main" {
		name += "/" + pool
	}
	if p, ok := c.pools[name]; ok {
		return p, nil
	}
	if c.deaf != nil {
		return plan.Pool{}, c.deaf()
	}
	return plan.Pool{}, errors.New("no answer")
}

// watched is the operator's client: it records writes, and counts generations as an API server
// does.
func (c *cluster) watched() client.WithWatch {
	note := func(what string, obj client.Object) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.writes = append(c.writes, what+" "+kindOf(obj)+" "+obj.GetName())
	}
	return interceptor.NewClient(c.api, interceptor.Funcs{
		Patch: func(ctx context.Context, cl client.WithWatch, obj client.Object, p client.Patch, o ...client.PatchOption) error {
			note("patch", obj)
			if s, ok := obj.(*v1alpha1.GeoVolumeContent); ok {
				s.Generation++ // travels with the patch
			}
			return cl.Patch(ctx, obj, p, o...)
		},
		Delete: func(ctx context.Context, cl client.WithWatch, obj client.Object, o ...client.DeleteOption) error {
			note("delete", obj)
			return cl.Delete(ctx, obj, o...)
		},
		Apply: func(ctx context.Context, cl client.WithWatch, obj runtime.ApplyConfiguration, o ...client.ApplyOption) error {
			c.noteApply("apply", obj)
			if err := cl.Apply(ctx, obj, o...); err != nil {
				return err
			}
			return c.born(ctx, obj)
		},
		SubResourceApply: func(ctx context.Context, cl client.Client, sub string, obj runtime.ApplyConfiguration,
			o ...client.SubResourceApplyOption) error {
			c.noteApply("apply "+sub, obj)
			return cl.SubResource(sub).Apply(ctx, obj, o...)
		},
	})
}

// born gives a content that was applied its first generation, as an API server does.
func (c *cluster) born(ctx context.Context, obj runtime.ApplyConfiguration) error {
	u, ok := obj.(interface {
		GetKind() string
		GetName() string
	})
	if !ok || u.GetKind() != "GeoVolumeContent" {
		return nil
	}
	is := contentOf(u.GetName())
	if err := c.api.Get(ctx, client.ObjectKeyFromObject(is), is); err != nil || is.Generation != 0 {
		return err
	}
	before := is.DeepCopy()
	is.Generation = 1
	return c.api.Patch(ctx, is, client.MergeFrom(before))
}

func (c *cluster) noteApply(what string, obj runtime.ApplyConfiguration) {
	text, err := json.Marshal(obj)
	if err != nil {
		c.t.Error(err)
	}
	var m struct {
		Kind     string
		Metadata struct{ Name string }
	}
	if err := json.Unmarshal(text, &m); err != nil {
		c.t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, what+" "+m.Kind+" "+m.Metadata.Name)
}

func kindOf(obj client.Object) string {
	text := strings.Split(strings.TrimPrefix(typeName(obj), "*"), ".")
	return text[len(text)-1]
}

func (c *cluster) create(obj client.Object) {
	c.t.Helper()
	if obj.GetUID() == "" {
		obj.SetUID(types.UID(c.name + "-" + obj.GetNamespace() + "-" + obj.GetName() + "-" + c.clock().Format("150405")))
	}
	obj.SetGeneration(1)
	if err := c.api.Create(c.t.Context(), obj); err != nil {
		c.t.Fatal(err)
	}
}

// edit changes an object as a person does.
func edit[T client.Object](c *cluster, obj T, f func(T)) {
	c.t.Helper()
	c.get(obj)
	before := obj.DeepCopyObject().(T)
	f(obj)
	obj.SetGeneration(obj.GetGeneration() + 1)
	if err := c.api.Patch(c.t.Context(), obj, client.MergeFrom(before)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) get(obj client.Object) {
	c.t.Helper()
	if err := c.api.Get(c.t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		c.t.Fatalf("%s: %v", c.name, err)
	}
}

func (c *cluster) has(obj client.Object) bool {
	c.t.Helper()
	err := c.api.Get(c.t.Context(), client.ObjectKeyFromObject(obj), obj)
	if client.IgnoreNotFound(err) != nil {
		c.t.Fatal(err)
	}
	return err == nil
}

func (c *cluster) delete(obj client.Object) {
	c.t.Helper()
	if err := c.api.Delete(c.t.Context(), obj); err != nil {
		c.t.Fatal(err)
	}
}

// synced waits until the mirror has what the registry has, if it can be reached.
func (c *cluster) synced() {
	c.t.Helper()
	if _, err := c.reg.Head(c.t.Context()); err != nil {
		return
	}
	// Deleting what does not exist takes a revision, but no watcher gets an event of it. This write
	// makes an event.
	c.ok(c.fed.reg.PutObserved(c.t.Context(), federation.Observed{Volume: "marker", Gateway: "marker"}))
	head, err := c.fed.reg.Head(c.t.Context())
	c.ok(err)
	for end := time.Now().Add(20 * time.Second); ; {
		seen, synced := federation.Revision(c.seen.Load()), c.op.mirror.Synced()
		if synced && seen >= head.Revision {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("%s: the mirror is at %d, the registry at %d", c.name, seen, head.Revision)
		}
		time.Sleep(time.Millisecond)
	}
}

// settle reconciles everything, again and again, until nothing is written any more.
func settleAll(clusters ...*cluster) {
	for range 30 {
		before := 0
		for _, c := range clusters {
			before += c.count()
		}
		for _, c := range clusters {
			c.round()
		}
		after := 0
		for _, c := range clusters {
			after += c.count()
		}
		if before == after {
			return
		}
	}
	for _, c := range clusters {
		c.t.Errorf("%s writes for ever: %v, %v", c.name, last(c.writes, 12), last(c.reg.writes, 12))
	}
	clusters[0].t.FailNow()
}

func last(list []string, n int) []string { return list[max(0, len(list)-n):] }

func (c *cluster) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	return len(c.writes) + len(c.reg.writes)
}

// round reconciles each object once, and what the registry reports, as the controllers' sources do.
func (c *cluster) round() {
	c.t.Helper()
	ctx := c.t.Context()
	for _, kind := range kinds {
		if c.recs[kind] == nil {
			continue
		}
		c.synced()
		todo := map[types.NamespacedName]bool{}
		list := map[string]client.ObjectList{"Site": &v1alpha1.SiteList{}, "CachePool": &v1alpha1.CachePoolList{},
			"VolumePolicy": &v1alpha1.VolumePolicyList{},
			"GeoVolume":    &v1alpha1.GeoVolumeList{}, "GeoVolumeContent": &v1alpha1.GeoVolumeContentList{},
			"StorageOffer": &v1alpha1.StorageOfferList{}, "StorageRequest": &v1alpha1.StorageRequestList{},
			"StorageAgreement": &v1alpha1.StorageAgreementList{}, "StorageUsage": &v1alpha1.StorageUsageList{},
			"PlacementQuota": &v1alpha1.PlacementQuotaList{}, "GeoVolumeSnapshot": &v1alpha1.GeoVolumeSnapshotList{}}[kind]
		if err := c.api.List(ctx, list); err != nil {
			c.t.Fatal(err)
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			todo[client.ObjectKeyFromObject(o.(client.Object))] = true
			return nil
		})
		volumes, claims := c.op.mirror.Mine(), c.op.mirror.Claims()
		switch kind {
		case "GeoVolumeContent":
			for _, v := range volumes {
				todo[types.NamespacedName{Name: v}] = true
			}
		case "GeoVolume":
			for _, cl := range claims {
				ns, n, _ := strings.Cut(cl, "/")
				todo[types.NamespacedName{Namespace: ns, Name: n}] = true
			}
		case "StorageOffer", "StorageAgreement", "StorageUsage":
			for _, name := range c.papers(kind) {
				todo[types.NamespacedName{Name: name}] = true
			}
		case "Site":
			for _, s := range c.op.mirror.Sites() {
				todo[types.NamespacedName{Name: s.Name}] = true
			}
		}
		for key := range todo {
			res, err := c.recs[kind].Reconcile(ctx, ctrl.Request{NamespacedName: key})
			if err != nil {
				c.t.Fatalf("%s: %s %s: %v", c.name, kind, key, err)
			}
			c.results[kind+" "+key.String()] = res
		}
	}
	c.bindClaims()
}

// reconcile reconciles one object.
func (c *cluster) reconcile(kind, key string) ctrl.Result {
	c.t.Helper()
	n := types.NamespacedName{Name: key}
	if ns, name, ok := strings.Cut(key, "/"); ok {
		n = types.NamespacedName{Namespace: ns, Name: name}
	}
	res, err := c.recs[kind].Reconcile(c.t.Context(), ctrl.Request{NamespacedName: n})
	if err != nil {
		c.t.Fatalf("%s: %s %s: %v", c.name, kind, key, err)
	}
	return res
}
