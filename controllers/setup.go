// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/lending"
	"github.com/weir-storage/weir/controllers/mirror"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/pace"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/controllers/quota"
	"github.com/weir-storage/weir/controllers/snapshots"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/view"
)

// What the operator may do. It writes by patches (server-side apply is one), and deletes in erase
// only.
//
// +kubebuilder:rbac:groups="",resources=persistentvolumes;persistentvolumeclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;update,resourceNames=weir-operator
// +kubebuilder:rbac:groups=storage.weir.dev,resources=sites;geovolumecontents,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=storage.weir.dev,resources=cachepools;volumepolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.weir.dev,resources=geovolumes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=storage.weir.dev,resources=sites/status;cachepools/status;volumepolicies/status;geovolumes/status;geovolumecontents/status,verbs=patch
// +kubebuilder:rbac:groups=storage.weir.dev,resources=geovolumes/finalizers;geovolumecontents/finalizers,verbs=update

// CacheOptions is what a manager of these controllers should keep in memory: of PersistentVolumes
// and PersistentVolumeClaims only those that the operator made, and of no object who manages which
// field.
func CacheOptions() cache.Options {
	ours := labels.NewSelector()
	made, err := labels.NewRequirement(v1alpha1.VolumeLabel, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	ours = ours.Add(*made)
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.PersistentVolume{}:      {Label: ours},
			&corev1.PersistentVolumeClaim{}: {Label: ours},
		},
	}
}

// Setup adds the controllers to a manager, whose scheme has v1alpha1 and core/v1 and whose cache
// has CacheOptions. It asks the API server for the cluster's UID. Reconcilers run on the leader;
// the registry is mirrored on every replica. The manager's configuration has no limit of its own on
// requests (QPS -1), else that is an error: with client-go's, which is 5 requests a second of each
// kind unless somebody says otherwise, a site that joins with 10 000 volumes would take hours to
// show them, and each event would wait in a goroutine of its own. How much the operator may ask at
// a time is for the API server to say (priority and fairness), and Options.Workers bounds it.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	if qps := mgr.GetConfig().QPS; qps >= 0 {
		return fmt.Errorf("controllers: the manager's configuration limits requests: QPS is %v (0: client-go's 5): set it to -1", qps)
	}
	var system corev1.Namespace
	if err := mgr.GetAPIReader().Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system); err != nil {
		return fmt.Errorf("controllers: read namespace %s, whose UID is the cluster's: %w: let the operator's service account get it",
			metav1.NamespaceSystem, err)
	}
	op := newOperator(o, string(system.UID), mgr.GetClient())
	op.Reader, op.Events = mgr.GetAPIReader(), mgr.GetEventRecorder("weir-operator")
	if err := mgr.Add(everywhere{op.follow}); err != nil {
		return err
	}
	if err := mgr.Add(everywhere{op.ping}); err != nil {
		return err
	}
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	for _, add := range []func(ctrl.Manager) error{(&sites{op}).setup, (&pools{operator: op}).setup, (&policies{op}).setup,
		(&contents{operator: op}).setup, (&geoVolumes{op}).setup} {
		if err := add(mgr); err != nil {
			return err
		}
	}
	if err := op.placementQuotas().Setup(mgr); err != nil {
		return err
	}
	if err := op.snapshots().Setup(mgr); err != nil {
		return err
	}
	return lending.Setup(mgr, &op.Writer, op.lending())
}

// snapshots is the controller of GeoVolumeSnapshots.
func (o *operator) snapshots() *snapshots.Controller {
	return snapshots.New(&o.Writer, snapshots.Options{Mirror: o.mirror, Registry: o.Registry, Self: o.self, Now: o.Now,
		Workers: o.Workers, Await: o.awaitRegistered})
}

// placementQuotas is the controller of PlacementQuotas.
func (o *operator) placementQuotas() *quota.Controller {
	return quota.New(&o.Writer, o.quotas, quota.Options{Mirror: o.mirror, Now: o.Now, Await: o.await})
}

// lending is the operator's part in the exchange of storage.
func (o *operator) lending() lending.Options {
	return lending.Options{Federation: o.Federation, Organization: o.Organization, Site: o.Site, By: o.By, Endpoint: o.LentStore,
		Signed: o.Signed, Book: o.Registry, Mirror: o.mirror, Now: o.Now, Erase: o.erase, Await: o.awaitRegistered}
}

// awaitRegistered returns why nothing can be decided yet, or why this cluster may not act as its
// site.
func (o *operator) awaitRegistered() error {
	if err := o.await(); err != nil {
		return err
	}
	return o.registered()
}

func newOperator(o Options, cluster string, c client.Client) *operator {
	self := plan.Self{Organization: o.Organization, Site: o.Site, Cluster: cluster}
	op := &operator{Options: o, Writer: object.Writer{Client: c, Reader: c}, self: self, mirror: mirror.New(self), lags: pace.NewLags()}
	op.rollout, op.quotas = pace.NewRollout(o.Rollout), quota.NewBook(self, op.mirror, &op.Writer)
	if o.Charter != nil {
		op.mirror.Expel(o.Charter.Expelled)
		op.mirror.Vouch(o.Charter.Labels)
		op.mirror.Listen(op.charter)
	}
	return op
}

// charter takes a charter that the registry has, and has everything looked at again: copies at
// organizations that were expelled do not count.
func (o *operator) charter(c view.Change) {
	if c.Kind != federation.KindCharter || c.Charter == nil {
		return
	}
	_, err := o.Charter.Adopt(c.Charter.Signed)
	if err != nil {
		log.Log.Error(err, "the registry has a charter that is not taken")
	}
	if err == nil && o.serial.Swap(c.Charter.Serial) != c.Charter.Serial { // it may be in force already
		log.Log.Info("a charter is in force", "serial", c.Charter.Serial)
		o.mirror.Again()
	}
}

// everywhere runs on every replica, not only on the leader.
type everywhere struct {
	run func(context.Context) error
}

var _ manager.LeaderElectionRunnable = everywhere{}

// Start implements manager.Runnable.
func (e everywhere) Start(ctx context.Context) error { return e.run(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

// follow keeps the mirror. A watch ends only for reasons that a person has to see to, such as an
// access that is refused; it is begun again all the same.
func (o *operator) follow(ctx context.Context) error {
	for {
		err := o.mirror.Watch(ctx, o.Registry)
		if ctx.Err() != nil {
			return nil
		}
		o.mirror.SetDown(err)
		log.FromContext(ctx).Error(err, "the watch of the registry ended; it is begun again")
		if !o.pause(ctx, outcome.Later) {
			return nil
		}
	}
}

// ping asks whether the registry is there: a watch survives its absence and does not report it.
func (o *operator) ping(ctx context.Context) error {
	for {
		_, err := o.Registry.Head(ctx)
		if ctx.Err() != nil {
			return nil
		}
		o.mirror.SetDown(err)
		if !o.pause(ctx, o.Ping) {
			return nil
		}
	}
}

// pause waits for d, and reports false when ctx ends before.
func (o *operator) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-o.After(d):
		return true
	}
}

// Indexes of the cache.
const (
	// volumeIndex finds GeoVolumes by what they say of their volume: its UUID, the name that they
	// import, and the name that they would make.
	volumeIndex = "volume"
	// policyIndex finds GeoVolumeContents by their policy.
	policyIndex = "spec.policy"
)

func addIndexes(ctx context.Context, f client.FieldIndexer) error {
	for name, index := range indexes() {
		if err := f.IndexField(ctx, index.object, name, index.by); err != nil {
			return err
		}
	}
	return nil
}

type index struct {
	object client.Object
	by     client.IndexerFunc
}

func indexes() map[string]index {
	return map[string]index{
		volumeIndex: {&v1alpha1.GeoVolume{}, func(obj client.Object) []string {
			gv := obj.(*v1alpha1.GeoVolume)
			var out []string
			if gv.Status.Volume != "" {
				out = append(out, gv.Status.Volume)
			}
			if gv.Spec.Import != nil {
				return append(out, gv.Spec.Import.Volume)
			}
			return append(out, plan.FederationName(gv.Namespace, gv.Name))
		}},
		policyIndex: {&v1alpha1.GeoVolumeContent{}, func(obj client.Object) []string {
			return []string{obj.(*v1alpha1.GeoVolumeContent).Spec.Policy}
		}},
		snapshots.ClaimIndex:  {&v1alpha1.GeoVolumeContent{}, snapshots.Claims},
		snapshots.VolumeIndex: {&v1alpha1.GeoVolumeSnapshot{}, snapshots.Volume},
	}
}
