// SPDX-License-Identifier: Apache-2.0

// Package snapshots reconciles GeoVolumeSnapshots. In the cluster of the volume's owner it writes
// into the volume's record that a snapshot is wanted, or is to be dropped, and shows what the
// volume's home reports of it. The rules are those of federation/snapshots, and besides:
//
//   - gvs-1: status has the volume before anything is asked for. So what was asked for is found
//     again, also when the claim is gone.
//   - gvs-2: A snapshot that was taken for an object is known by its time. If the record has lost
//     the wish, as after a restore of the registry, the object asks for that snapshot again, and
//     never for a new one.
//   - gvs-3: An object that is deleted stays until its wish is out of the record, as the registry
//     itself has it.
//   - gvs-4: Each value of spec.rollback of an object stands for one UUID, so what is asked for
//     again is the same rollback (snapshots-4). A value that is there before status has the volume
//     does nothing: a backup of the cluster's objects that is restored rolls nothing back.
package snapshots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/mirror"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/controllers/outcome"
	"github.com/weir-storage/weir/controllers/plan"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/federation/view"
)

// +kubebuilder:rbac:groups=storage.weir.dev,resources=geovolumesnapshots,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=storage.weir.dev,resources=geovolumesnapshots/status,verbs=patch
// +kubebuilder:rbac:groups=storage.weir.dev,resources=geovolumesnapshots/finalizers,verbs=update

// Options say what the controller needs.
type Options struct {
	Mirror *mirror.Mirror
	// Registry has the volumes' records.
	Registry interface {
		GetVolume(ctx context.Context, uuid string) (federation.Volume, federation.Revision, error)
		UpdateVolume(ctx context.Context, prev federation.Revision, v federation.Volume) (federation.Revision, error)
	}
	Self    plan.Self
	Now     func() time.Time
	Workers int // how many are worked on at a time
	// Await returns why nothing can be decided yet.
	Await func() error
}

// Controller reconciles GeoVolumeSnapshots.
type Controller struct {
	Options
	*object.Writer
}

// New makes the controller.
func New(w *object.Writer, o Options) *Controller { return &Controller{Options: o, Writer: w} }

// Setup adds the controller to a manager, whose scheme has v1alpha1 and whose cache has the indexes
// of this package.
func (r *Controller) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("geovolumesnapshot").For(&v1alpha1.GeoVolumeSnapshot{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Watches(&v1alpha1.GeoVolumeContent{}, r.ofContents()).
		WatchesRawSource(r.ofNews()).
		Complete(r)
}

// snapshot is a GeoVolumeSnapshot that is being reconciled.
type snapshot struct {
	*v1alpha1.GeoVolumeSnapshot
	gone bool // it was let go: there is no status to write
}

// name is the snapshot's in its volume.
func (s *snapshot) name() string {
	name := cmp.Or(string(s.Spec.SnapshotName), s.Name)
	if s.Spec.Hold {
		return snapshots.HeldName(name, s.uid())
	}
	return name
}

// wished is what the record is to ask for.
func (s *snapshot) wished() snapshots.Wish {
	return snapshots.Wish{Name: s.name(), UID: s.uid(), Hold: s.Spec.Hold, Take: s.Spec.Take}
}

// uid says who asks.
func (s *snapshot) uid() string { return string(s.UID) }

// is reports whether a home tells of the snapshot that was taken for the object (gvs-2).
func (s *snapshot) is(x snapshots.Snapshot) bool {
	return s.Status.Time != nil && x.Time.Truncate(time.Second).Equal(s.Status.Time.Time)
}

// Reconcile implements reconcile.Reconciler.
func (r *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &v1alpha1.GeoVolumeSnapshot{}
	if err := r.Get(ctx, req.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := obj.DeepCopy()
	s := &snapshot{GeoVolumeSnapshot: obj}
	return r.show(ctx, before, s, outcome.Settle(r.steps(ctx, s)))
}

func (r *Controller) steps(ctx context.Context, s *snapshot) error {
	if err := r.Await(); err != nil {
		return err
	}
	if !s.DeletionTimestamp.IsZero() {
		return r.remove(ctx, s)
	}
	if s.Status.Volume == "" {
		return r.identify(ctx, s)
	}
	seen, err := r.volume(s)
	if err != nil {
		return err
	}
	status := s.Status.DeepCopy()
	err = r.AddFinalizer(ctx, s.GeoVolumeSnapshot)
	s.Status = *status // the answer has the one that was there before this reconcile
	if err != nil {
		return err
	}
	if err := r.wish(ctx, s, seen); err != nil {
		return err
	}
	if err := s.shown(seen.ObservedByHome()); err != nil {
		return err
	}
	return r.rollback(ctx, s, seen)
}

// identify finds the volume of the claim, and has that written first (gvs-1).
func (r *Controller) identify(ctx context.Context, s *snapshot) error {
	var list v1alpha1.GeoVolumeContentList
	claim := claimKey(string(s.Spec.Source.Kind), s.Namespace, s.Spec.Source.Name)
	if err := r.List(ctx, &list, client.MatchingFields{ClaimIndex: claim}, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	if len(list.Items) != 1 {
		return outcome.Stopped(v1alpha1.ReasonNotFound, fmt.Sprintf("spec.source: no volume of Weir belongs to %s %s of this namespace: "+
			"check kind and name, and whether it is ready", s.Spec.Source.Kind, s.Spec.Source.Name))
	}
	s.Status.Volume, s.Status.Snapshot = list.Items[0].Name, s.name()
	if s.Spec.Rollback != "" { // an object that a backup brings back asks for nothing
		s.Status.Rollback = &v1alpha1.SnapshotRollback{Value: s.Spec.Rollback, State: string(snapshots.StateRefused),
			Message: "it was there before the volume was found, and does nothing: write another value"}
	}
	return outcome.Waiting(v1alpha1.ReasonCreating, "the volume was found, and is asked for a snapshot", outcome.Soon)
}

// volume returns the volume, or why no snapshot of it can be taken.
func (r *Controller) volume(s *snapshot) (*view.Volume, error) {
	seen := r.Mirror.Volume(s.Status.Volume)
	switch {
	case seen != nil && seen.Problem != nil:
		return nil, seen.Problem
	case seen == nil || seen.Record == nil:
		return nil, outcome.Stopped(v1alpha1.ReasonNotFound, fmt.Sprintf("the registry does not have volume %s any more: it was purged, "+
			"and its snapshots with it; delete this object", s.Status.Volume))
	case !r.Self.Owns(*seen.Record):
		return nil, outcome.Stopped(v1alpha1.ReasonNotOwner, fmt.Sprintf("volume %s belongs to %s, site %q: its owner takes snapshots of "+
			"it; make the GeoVolumeSnapshot in the cluster there", seen.Record.Name, seen.Record.Owner, seen.Record.OwnerSite))
	case seen.Record.Deleted:
		return nil, outcome.Stopped(v1alpha1.ReasonDeleted, fmt.Sprintf("volume %s was deleted, and is in the trash until %s with its "+
			"snapshots", seen.Record.Name, seen.Record.PurgeAt().UTC().Format(time.RFC3339)))
	}
	return seen, nil
}

// wish has the record ask for the snapshot, if it is not there and nobody else has the name.
func (r *Controller) wish(ctx context.Context, s *snapshot, seen *view.Volume) error {
	v, told, name := *seen.Record, reported(seen), s.name()
	w, asked := snapshots.Find(v.Snapshots, name)
	x, there := told.Of(name)
	there = there && !x.Time.IsZero()
	taken := s.Status.Time != nil
	switch {
	case asked && w.UID == s.uid() && !w.Drop && w.Take == s.Spec.Take:
		return nil
	case asked && w.UID == s.uid() && !w.Drop:
		v.Snapshots = snapshots.Put(v.Snapshots, s.wished(), told)
		return r.update(ctx, seen.Revision, v)
	case asked && w.UID == s.uid():
		return s.dropped()
	case asked && w.Drop:
		return outcome.Waiting(v1alpha1.ReasonCreating, fmt.Sprintf("a snapshot %s is being dropped: this one is taken then", name),
			outcome.Later)
	case asked:
		return outcome.Stopped(v1alpha1.ReasonConflict, fmt.Sprintf("another GeoVolumeSnapshot has asked for a snapshot %s of this "+
			"volume: choose another name", name))
	case told == nil:
		return outcome.Waiting(v1alpha1.ReasonCreating, "the volume's home has not told yet which snapshots there are", outcome.Later)
	case taken && !(there && s.is(x)):
		return s.dropped()
	case there && !s.is(x):
		return outcome.Stopped(v1alpha1.ReasonConflict, fmt.Sprintf("the volume has a snapshot %s already, for which this object did not "+
			"ask: choose another name, or drop it with `weir volume snapshot drop`", name))
	}
	if err := r.mayHold(s); err != nil {
		return err
	}
	next := snapshots.Put(v.Snapshots, s.wished(), told)
	if len(next) > snapshots.MaxWishes {
		return outcome.Stopped(v1alpha1.ReasonExhausted, fmt.Sprintf("%d snapshots of this volume are asked for, which is the most: "+
			"delete GeoVolumeSnapshots that nobody needs", snapshots.MaxWishes))
	}
	v.Snapshots = next
	return r.update(ctx, seen.Revision, v)
}

// mayHold returns why no record may ask that changes are held: a gateway that cannot read it.
func (r *Controller) mayHold(s *snapshot) error {
	if !s.Spec.Hold {
		return nil
	}
	for _, site := range r.Mirror.Sites() {
		for _, g := range site.Gateways {
			if g.Format < snapshots.HoldLevel {
				return outcome.Stopped(v1alpha1.ReasonOldGateway, fmt.Sprintf("gateway %s of site %s can not hold changes, nor read a "+
					"record that asks for it: upgrade it", g.Name, site.Name))
			}
		}
	}
	return nil
}

// dropped is shown of a snapshot that somebody has dropped otherwise. It is not taken again.
func (s *snapshot) dropped() error {
	return outcome.Stopped(v1alpha1.ReasonNotFound, fmt.Sprintf("the snapshot %s was dropped, and not by deleting this object: delete it; "+
		"make another one for a new snapshot", s.name()))
}

// reported is what the present home reported of a volume's snapshots; nil: nothing yet.
func reported(v *view.Volume) *snapshots.Report {
	if v == nil {
		return nil
	}
	if o := v.ObservedByHome(); o != nil {
		return o.Snapshots
	}
	return nil
}

func (r *Controller) update(ctx context.Context, prev federation.Revision, v federation.Volume) error {
	rev, err := r.Registry.UpdateVolume(ctx, prev, v)
	if err == nil {
		r.Mirror.Note(v, rev)
	}
	return err
}

// shown sets what the home reports of the snapshot, or returns what it waits for.
func (s *snapshot) shown(o *federation.Observed) error {
	var told *snapshots.Report
	if o != nil {
		told = o.Snapshots
	}
	x, ok := told.Of(s.name())
	switch {
	case ok && x.UID == s.uid() && x.State == snapshots.StateTaken && (s.Status.Time == nil || s.is(x)):
		at := metav1.NewTime(x.Time.Truncate(time.Second))
		s.Status.Time, s.Status.Size, s.Status.Files = &at, plan.Quantity(federation.Bytes(x.Bytes)), int64(x.Inodes)
		return nil
	case ok && x.UID == s.uid() && x.State == snapshots.StateTaken:
		return outcome.Stopped(v1alpha1.ReasonConflict, fmt.Sprintf("the volume's snapshot %s is of %s, and not the one that was taken "+
			"for this object: delete it", s.name(), x.Time.UTC().Format(time.RFC3339)))
	case s.Status.Time != nil:
		return nil // another home has not told of it yet
	case ok && x.UID == s.uid() && x.State == snapshots.StateHeld:
		s.Status.Hold = x.Token
		return outcome.Waiting(v1alpha1.ReasonCreating, "the volume's home holds changes, until spec.take has the token of status.hold",
			outcome.Later)
	case ok && x.UID == s.uid() && x.State == snapshots.StateMissed:
		return outcome.Stopped(v1alpha1.ReasonMissed, "the volume's home does not hold changes any more, and has not taken the snapshot: "+
			"delete it, and make another one")
	case ok && x.Message != "":
		return outcome.Waiting(v1alpha1.ReasonCreating, "the volume's home tries again: "+x.Message, outcome.Later)
	}
	return outcome.Waiting(v1alpha1.ReasonCreating, "the volume's home takes it", outcome.Later)
}

// remove has the snapshot dropped, unless it is to stay, takes the wish out of the record, and lets
// the object go (gvs-3).
func (r *Controller) remove(ctx context.Context, s *snapshot) error {
	if !controllerutil.ContainsFinalizer(s.GeoVolumeSnapshot, v1alpha1.Finalizer) {
		s.gone = true
		return nil
	}
	if s.Status.Volume != "" {
		v, rev, err := r.Registry.GetVolume(ctx, s.Status.Volume)
		if err == nil && r.Self.Owns(v) && !v.Deleted {
			err = r.drop(ctx, s, v, rev)
		}
		if err != nil && !errors.Is(err, federation.ErrNotFound) {
			return err
		}
	}
	s.gone = true
	return r.RemoveFinalizer(ctx, s.GeoVolumeSnapshot)
}

// drop returns nil when nothing of the object is in the record any more, and the snapshot is
// dropped or is to stay.
func (r *Controller) drop(ctx context.Context, s *snapshot, v federation.Volume, rev federation.Revision) error {
	told, name := reported(r.Mirror.Volume(v.UUID)), s.name()
	w, asked := snapshots.Find(v.Snapshots, name)
	x, there := told.Of(name)
	working := func() error {
		why := "the volume's home drops the snapshot"
		if x.Message != "" {
			why += ", and tries again: " + x.Message
		}
		return outcome.Waiting(v1alpha1.ReasonDeleting, why, outcome.Later)
	}
	ask := func() error {
		v.Snapshots = snapshots.Put(v.Snapshots, snapshots.Wish{Name: name, UID: s.uid(), Drop: true}, told)
		if err := r.update(ctx, rev, v); err != nil {
			return err
		}
		return working()
	}
	switch {
	case asked && w.UID != s.uid():
		return nil // somebody else's
	case asked && (s.Spec.DeletionPolicy == v1alpha1.Retain && !w.Drop || told.Dropped(w)):
		v.Snapshots = snapshots.Without(v.Snapshots, name, told)
		return r.update(ctx, rev, v)
	case asked && w.Drop:
		return working()
	case asked:
		return ask()
	case s.Spec.DeletionPolicy == v1alpha1.Retain, s.Status.Time == nil:
		return nil
	case told == nil:
		return outcome.Waiting(v1alpha1.ReasonDeleting, "the volume's home has not told yet which snapshots there are", outcome.Later)
	case there && s.is(x) && x.UID == "": // the record has lost the wish (gvs-2)
		return ask()
	}
	return nil
}

func status(obj client.Object) (any, []metav1.Condition) {
	s := obj.(*v1alpha1.GeoVolumeSnapshot).Status
	return s, s.Conditions
}

// show writes the status.
func (r *Controller) show(ctx context.Context, before *v1alpha1.GeoVolumeSnapshot, s *snapshot, out outcome.Outcome) (ctrl.Result, error) {
	if s.gone || out.Err != nil || out.Quiet {
		return out.Result, out.Err // nothing to show
	}
	list := &s.Status.Conditions
	s.Status.ObservedGeneration = s.Generation
	switch v := out.Verdict; {
	case v != nil && v.Reason == v1alpha1.ReasonRegistryUnavailable && object.Ready(*list).Status == metav1.ConditionTrue:
		plan.SetCondition(list, s.Generation, r.Now(), v1alpha1.ConditionReconciling,
			plan.State{True: true, Reason: v.Reason, Message: v.Message})
	case v != nil:
		plan.SetReady(list, s.Generation, r.Now(), plan.State{Reason: v.Reason, Message: v.Message}, out.Working, out.Stalled)
	default:
		plan.SetReady(list, s.Generation, r.Now(), plan.State{True: true, Reason: v1alpha1.ReasonReady,
			Message: fmt.Sprintf("pods of the volume find it in .snapshots/%s", s.name())}, false, false)
	}
	return r.Report(ctx, out, before, s.GeoVolumeSnapshot, status)
}
