// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/controller"
	"github.com/weir-storage/weir/csi-driver/health"
	"github.com/weir-storage/weir/csi-driver/node"
)

const (
	testCluster    = "6fa1c4f1-0f2c-4c34-9d5e-1de2a0b8a1f0"
	testFederation = "fed"
	testSite       = "here"
	testNode       = "node-1"
	testNamespace  = "team"
)

// world is a cluster in memory: an API server, an operator, the registry's attachments and a
// gateway.
type world struct {
	client      client.WithWatch
	attachments *attachments
	gateway     *gateway
	// held is what the homes know of changes that are held.
	held struct {
		sync.Mutex
		never  bool   // nobody holds anything
		last   int    // tokens that were given
		early  bool   // a snapshot was to be taken before changes of all its group were held
		missed int    // so many are not held any more when they are to be taken
		gone   string // the token of the last of these
	}
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, storagev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{testNode, "node-2"} {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, name := range []string{"gold", "silver", "too-wide"} {
		objects = append(objects, &v1alpha1.VolumePolicy{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.GeoVolumeContent{},
		&v1alpha1.GeoVolumeSnapshot{}).
		WithInterceptorFuncs(interceptor.Funcs{
			// The generation is the API server's, which the fake client leaves alone.
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				o.SetGeneration(1)
				return c.Create(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				o.SetGeneration(o.GetGeneration() + 1)
				return c.Patch(ctx, o, p, opts...)
			},
		}).Build()
	w := &world{client: c, attachments: &attachments{}}
	w.gateway = &gateway{w: w, groups: make(map[string]string)}
	return w
}

// operate starts an operator, which ends with the test. It makes volumes ready or says why not, and
// removes the finalizer of deleted ones.
func (w *world) operate(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	changes, err := w.client.Watch(ctx, &v1alpha1.GeoVolumeContentList{})
	if err != nil {
		t.Fatal(err)
	}
	snapshots, err := w.client.Watch(ctx, &v1alpha1.GeoVolumeSnapshotList{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-snapshots.ResultChan():
				if x, ok := e.Object.(*v1alpha1.GeoVolumeSnapshot); ok {
					w.snap(ctx, client.ObjectKeyFromObject(x))
				}
			case e := <-changes.ResultChan():
				if v, ok := e.Object.(*v1alpha1.GeoVolumeContent); ok {
					w.reconcile(ctx, v.Name)
				}
			}
		}
	})
	t.Cleanup(func() { cancel(); changes.Stop(); snapshots.Stop(); wg.Wait() })
}

// snap does what operator and home do to one snapshot. The volume is the one of the label: here all
// volumes have one claim.
func (w *world) snap(ctx context.Context, key client.ObjectKey) {
	x := new(v1alpha1.GeoVolumeSnapshot)
	if w.client.Get(ctx, key, x) != nil {
		return
	}
	if x.DeletionTimestamp != nil {
		if controllerutil.RemoveFinalizer(x, v1alpha1.Finalizer) {
			_ = w.client.Update(ctx, x)
		}
		return
	}
	if controllerutil.AddFinalizer(x, v1alpha1.Finalizer) && w.client.Update(ctx, x) != nil || x.Status.Time != nil {
		return
	}
	if w.holds(ctx, x) {
		_ = w.client.Status().Update(ctx, x)
		return
	}
	if x.Labels["refused"] != "" {
		meta.SetStatusCondition(&x.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse,
			Reason: x.Labels["refused"], Message: "no", ObservedGeneration: x.Generation})
	} else {
		now, size := metav1.Now(), resource.MustParse("1Mi")
		if at, err := time.Parse("20060102T150405Z", x.Labels["taken"]); err == nil { // by a clock that differs
			now = metav1.NewTime(at)
		}
		x.Status.Volume, x.Status.Snapshot, x.Status.Time, x.Status.Size = x.Labels[v1alpha1.VolumeLabel], x.Name, &now, &size
	}
	_ = w.client.Status().Update(ctx, x)
}

// reconcile does what the operator does to one volume. Conflicts bring another event.
func (w *world) reconcile(ctx context.Context, name string) {
	v := new(v1alpha1.GeoVolumeContent)
	if w.client.Get(ctx, client.ObjectKey{Name: name}, v) != nil {
		return
	}
	if v.DeletionTimestamp != nil {
		if v.Labels["imported"] != "" {
			w.say(ctx, v, metav1.ConditionFalse, v1alpha1.ReasonInUse, "site there imports it for "+v.Labels["imported"])
		} else if controllerutil.RemoveFinalizer(v, v1alpha1.Finalizer) {
			_ = w.client.Update(ctx, v)
		}
		return
	}
	if controllerutil.AddFinalizer(v, v1alpha1.Finalizer) && w.client.Update(ctx, v) != nil {
		return
	}
	if r := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady); r != nil && r.ObservedGeneration == v.Generation {
		return
	}
	err := w.client.Get(ctx, client.ObjectKey{Name: v.Spec.Policy}, new(v1alpha1.VolumePolicy))
	switch {
	case v.Spec.Policy != "" && err != nil:
		w.say(ctx, v, metav1.ConditionFalse, v1alpha1.ReasonPolicyNotFound, "there is no VolumePolicy "+v.Spec.Policy)
	case v.Spec.Policy == "too-wide":
		w.say(ctx, v, metav1.ConditionFalse, v1alpha1.ReasonUnplaceable, "9 copies are wanted, and there are 2 sites")
	default:
		v.Status.VolumeGeneration = v.Generation
		size := v.Spec.Size.DeepCopy()
		v.Status.Capacity = &size
		w.say(ctx, v, metav1.ConditionTrue, v1alpha1.ReasonReady, "all is well")
	}
}

func (w *world) say(ctx context.Context, v *v1alpha1.GeoVolumeContent, s metav1.ConditionStatus, reason, message string) {
	changed := meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: s, Reason: reason, Message: message, ObservedGeneration: v.Generation})
	if changed {
		_ = w.client.Status().Update(ctx, v)
	}
}

// attachments is the registry.
type attachments struct {
	mu   sync.Mutex
	all  map[controller.Attachment]bool
	fail error // of Detach
	// detaching is called by Detach before it does anything; nil: not.
	detaching func(node string)
}

func (a *attachments) Attach(_ context.Context, volume, node string, readOnly bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = make(map[controller.Attachment]bool)
	}
	delete(a.all, controller.Attachment{Volume: volume, Node: node, ReadOnly: !readOnly})
	a.all[controller.Attachment{Volume: volume, Node: node, ReadOnly: readOnly}] = true
	return nil
}

func (a *attachments) Detach(_ context.Context, volume, node string) error {
	if a.detaching != nil {
		a.detaching(node)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fail != nil {
		return a.fail
	}
	delete(a.all, controller.Attachment{Volume: volume, Node: node, ReadOnly: true})
	delete(a.all, controller.Attachment{Volume: volume, Node: node, ReadOnly: false})
	return nil
}

func (a *attachments) List(_ context.Context, volume string) (out []controller.Attachment, _ error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for x := range a.all {
		if volume == "" || x.Volume == volume {
			out = append(out, x)
		}
	}
	return out, nil
}

// gateway admits who is attached and has a claim, as the real one does.
type gateway struct {
	w      *world
	mu     sync.Mutex
	groups map[string]string // by volume, the last that a node asked for
	fail   error
	asked  node.AdmitRequest // last
	// unknown: it does not know how full volumes are.
	unknown bool
}

func (g *gateway) Admit(ctx context.Context, r node.AdmitRequest) (node.Export, error) {
	g.mu.Lock()
	fail := g.fail
	g.asked = r
	g.mu.Unlock()
	if fail != nil {
		return node.Export{}, fail
	}
	v := new(v1alpha1.GeoVolumeContent)
	if err := g.w.client.Get(ctx, client.ObjectKey{Name: r.Volume}, v); err != nil {
		return node.Export{}, status.Errorf(codes.NotFound, "volume %s is not there", r.Volume)
	}
	x := node.Export{Host: "gateway.weir", Port: 2049, Path: "/" + v.Spec.FederationName, ReadOnly: true}
	attached := false
	list, _ := g.w.attachments.List(ctx, r.Volume)
	for _, a := range list {
		if a.Node == r.Node {
			attached, x.ReadOnly = true, a.ReadOnly
		}
	}
	if !attached {
		return node.Export{}, status.Errorf(codes.PermissionDenied, "node %s is not attached", r.Node)
	}
	if r.Namespace != "" {
		access, ok := accessOf(v, r.Namespace)
		if !ok {
			return node.Export{}, status.Errorf(codes.PermissionDenied, "namespace %s has no claim", r.Namespace)
		}
		x.ReadOnly = x.ReadOnly || access == v1alpha1.ReadOnly
	}
	if r.MountGroup != "" {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.groups[r.Volume] = r.MountGroup
	}
	return x, nil
}

// accessOf is the most that the claims of a namespace allow.
func accessOf(v *v1alpha1.GeoVolumeContent, namespace string) (access v1alpha1.Access, admitted bool) {
	for _, claim := range v.Spec.Claims {
		if claim.Namespace == namespace && (!admitted || claim.Access != v1alpha1.ReadOnly) {
			access, admitted = claim.Access, true
		}
	}
	return access, admitted
}

func (g *gateway) Usage(ctx context.Context, volume string) (node.Usage, error) {
	v := new(v1alpha1.GeoVolumeContent)
	if err := g.w.client.Get(ctx, client.ObjectKey{Name: volume}, v); err != nil {
		return node.Usage{}, status.Errorf(codes.NotFound, "volume %s is not there", volume)
	}
	size := v.Spec.Size.Value()
	if g.unknown {
		return node.Usage{TotalBytes: size, Unknown: true, Problem: health.Of(v)}, nil
	}
	return node.Usage{TotalBytes: size, UsedBytes: 1000, AvailableBytes: size - 1000, Problem: health.Of(v)}, nil
}
