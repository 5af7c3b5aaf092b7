// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

// snapshotLabel is on the GeoVolumeSnapshots that CreateSnapshot makes. Its value is derived from
// the name in the request. VolumeLabel is on them too.
const snapshotLabel = v1alpha1.Group + "/csi-snapshot"

// snapshotForm is the form of the names that the snapshotter sidecar gives, which objects keep.
var snapshotForm = regexp.MustCompile(`^snapshot-[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?$`)

// snapshotObject is the name of the GeoVolumeSnapshot that is made under a name.
func (s *service) snapshotObject(name string) string {
	if snapshotForm.MatchString(name) {
		return name
	}
	return "csi-" + volumeUUID(s.cluster, name)
}

// snapshotID is the ID of a snapshot: NAMESPACE/NAME of its GeoVolumeSnapshot, whoever made that.
func snapshotID(x *v1alpha1.GeoVolumeSnapshot) string { return x.Namespace + "/" + x.Name }

// CreateSnapshot implements csi.ControllerServer (csi-10).
func (s *service) CreateSnapshot(ctx context.Context, q *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	switch {
	case q.GetName() == "":
		return nil, rpc.Missing("name")
	case q.GetSourceVolumeId() == "":
		return nil, rpc.Missing("source_volume_id")
	}
	for name, value := range q.GetParameters() {
		if !strings.HasPrefix(name, "csi.storage.k8s.io/") {
			return nil, rpc.Invalid("parameter "+name, value, "there is no parameter of a VolumeSnapshotClass: remove it")
		}
	}
	v, err := s.undeleted(ctx, q.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	label := volumeUUID(s.cluster, q.GetName())
	var all v1alpha1.GeoVolumeSnapshotList
	if err := s.cfg.Client.List(ctx, &all, client.MatchingLabels{snapshotLabel: label}); err != nil {
		return nil, fromAPI(err, "list GeoVolumeSnapshots of name %s", q.GetName())
	}
	if len(all.Items) > 0 {
		if of := all.Items[0].Labels[v1alpha1.VolumeLabel]; of != v.Name {
			return nil, status.Errorf(codes.AlreadyExists, "snapshot %s is there, and is of volume %s: use another name", q.GetName(), of)
		}
		return s.taken(ctx, &all.Items[0])
	}
	x, err := s.wantedSnapshot(ctx, q.GetSourceVolumeId(), s.snapshotObject(q.GetName()), label)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Client.Create(ctx, x); err != nil {
		return nil, fromAPI(err, "create GeoVolumeSnapshot %s for snapshot %s", snapshotID(x), q.GetName())
	}
	return s.taken(ctx, x)
}

// wantedSnapshot is the GeoVolumeSnapshot, of a name and with a label, that is made for a snapshot
// of a volume: in the namespace of a claim on it. The error says why the volume can have none.
func (s *service) wantedSnapshot(ctx context.Context, handle, name, label string) (*v1alpha1.GeoVolumeSnapshot, error) {
	v, err := s.undeleted(ctx, handle)
	if err != nil {
		return nil, err
	}
	if string(v.Spec.Owner) != s.cfg.Site {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s (%s) is owned by site %s: snapshots of it are taken there",
			v.Spec.FederationName, v.Name, v.Spec.Owner)
	}
	if len(v.Spec.Claims) == 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s (%s) has no claim in this cluster, in whose namespace the "+
			"GeoVolumeSnapshot could be: import it", v.Spec.FederationName, v.Name)
	}
	claim := v.Spec.Claims[0]
	return &v1alpha1.GeoVolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: name,
			Labels: map[string]string{snapshotLabel: label, v1alpha1.VolumeLabel: v.Name}},
		Spec: v1alpha1.GeoVolumeSnapshotSpec{
			Source:         v1alpha1.SnapshotSource{Kind: v1alpha1.SnapshotSourceKind(claim.Kind), Name: claim.Name},
			DeletionPolicy: v1alpha1.Delete},
	}, nil
}

// lastingly maps the reasons of a GeoVolumeSnapshot's Ready that do not pass by themselves to
// codes.
var lastingly = map[string]codes.Code{
	v1alpha1.ReasonNotFound:   codes.FailedPrecondition,
	v1alpha1.ReasonNotOwner:   codes.FailedPrecondition,
	v1alpha1.ReasonDeleted:    codes.FailedPrecondition,
	v1alpha1.ReasonConflict:   codes.AlreadyExists,
	v1alpha1.ReasonExhausted:  codes.ResourceExhausted,
	v1alpha1.ReasonOldGateway: codes.FailedPrecondition,
	v1alpha1.ReasonMissed:     codes.Aborted,
}

// taken waits until a snapshot is taken.
func (s *service) taken(ctx context.Context, x *v1alpha1.GeoVolumeSnapshot) (*csi.CreateSnapshotResponse, error) {
	var out *csi.Snapshot
	err := s.awaitSnapshot(ctx, x, "taken", func(now *v1alpha1.GeoVolumeSnapshot) (bool, error) {
		if now == nil || now.UID != x.UID || now.DeletionTimestamp != nil {
			return false, status.Errorf(codes.Aborted, "snapshot %s is being deleted: ask again when it is gone", snapshotID(x))
		}
		if now.Status.Time != nil && now.Status.Volume == x.Labels[v1alpha1.VolumeLabel] {
			out = s.snapshot(now)
			return true, nil
		}
		return false, refused(now)
	})
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: out}, nil
}

// refused returns why a snapshot will not be taken.
func refused(x *v1alpha1.GeoVolumeSnapshot) error {
	r := meta.FindStatusCondition(x.Status.Conditions, v1alpha1.ConditionReady)
	if r != nil && r.ObservedGeneration == x.Generation {
		if code, ok := lastingly[r.Reason]; ok {
			return status.Errorf(code, "snapshot %s: %s: %s", snapshotID(x), r.Reason, r.Message)
		}
	}
	return nil
}

// snapshot describes a snapshot that was taken.
func (s *service) snapshot(x *v1alpha1.GeoVolumeSnapshot) *csi.Snapshot {
	out := &csi.Snapshot{SnapshotId: snapshotID(x), SourceVolumeId: v1alpha1.VolumeHandle(s.cfg.Federation, x.Status.Volume),
		CreationTime: timestamppb.New(x.Status.Time.Time), ReadyToUse: true, GroupSnapshotId: x.Labels[groupLabel]}
	if x.Status.Size != nil {
		out.SizeBytes = x.Status.Size.Value()
	}
	return out
}

// findSnapshot returns the GeoVolumeSnapshot of an ID; nil: there is none.
func (s *service) findSnapshot(ctx context.Context, id string) (*v1alpha1.GeoVolumeSnapshot, error) {
	namespace, name, ok := strings.Cut(id, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, nil
	}
	x := new(v1alpha1.GeoVolumeSnapshot)
	err := s.cfg.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, x)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fromAPI(err, "get GeoVolumeSnapshot %s", id)
	}
	return x, nil
}

// GetSnapshot implements csi.ControllerServer.
func (s *service) GetSnapshot(ctx context.Context, q *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if q.GetSnapshotId() == "" {
		return nil, rpc.Missing("snapshot_id")
	}
	x, err := s.findSnapshot(ctx, q.GetSnapshotId())
	switch {
	case err != nil:
		return nil, err
	case x == nil || x.Status.Time == nil:
		return nil, status.Errorf(codes.NotFound, "snapshot %s is not there, or not taken yet", q.GetSnapshotId())
	}
	return &csi.GetSnapshotResponse{Snapshot: s.snapshot(x)}, nil
}

// DeleteSnapshot implements csi.ControllerServer. It deletes the GeoVolumeSnapshot and waits until
// that is gone.
func (s *service) DeleteSnapshot(ctx context.Context, q *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if q.GetSnapshotId() == "" {
		return nil, rpc.Missing("snapshot_id")
	}
	x, err := s.findSnapshot(ctx, q.GetSnapshotId())
	if err != nil || x == nil {
		return &csi.DeleteSnapshotResponse{}, err
	}
	if g := x.Labels[groupLabel]; g != "" {
		return nil, status.Errorf(codes.InvalidArgument, "snapshot %s is of the group %s, and is deleted with that: delete the "+
			"VolumeGroupSnapshot", q.GetSnapshotId(), g)
	}
	if err := s.cfg.Client.Delete(ctx, x, client.Preconditions{UID: &x.UID}); err != nil && !apierrors.IsNotFound(err) {
		return nil, fromAPI(err, "delete GeoVolumeSnapshot %s", q.GetSnapshotId())
	}
	err = s.awaitSnapshot(ctx, x, "deleted", func(now *v1alpha1.GeoVolumeSnapshot) (bool, error) {
		return now == nil || now.UID != x.UID, nil
	})
	if err != nil {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// ListSnapshots implements csi.ControllerServer. It lists the snapshots that GeoVolumeSnapshots of
// this cluster stand for, whoever made them, in the order of their IDs. A token is the last ID of a
// page.
func (s *service) ListSnapshots(ctx context.Context, q *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	var all v1alpha1.GeoVolumeSnapshotList
	if err := s.cfg.Client.List(ctx, &all); err != nil {
		return nil, fromAPI(err, "list GeoVolumeSnapshots")
	}
	token := q.GetStartingToken()
	switch {
	case q.GetMaxEntries() < 0:
		return nil, rpc.Invalid("max_entries", q.GetMaxEntries(), "it must not be negative")
	case token != "" && !strings.Contains(token, "/"):
		return nil, status.Errorf(codes.Aborted, "starting_token is %q: it is none that was given out; begin with the first page", token)
	}
	var found []*csi.Snapshot
	for i := range all.Items {
		x := &all.Items[i]
		if x.Status.Time == nil || q.GetSnapshotId() != "" && q.GetSnapshotId() != snapshotID(x) || snapshotID(x) <= token {
			continue
		}
		if c := s.snapshot(x); q.GetSourceVolumeId() == "" || c.GetSourceVolumeId() == q.GetSourceVolumeId() {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *csi.Snapshot) int { return cmp.Compare(a.GetSnapshotId(), b.GetSnapshotId()) })
	r := &csi.ListSnapshotsResponse{}
	if n := int(q.GetMaxEntries()); n > 0 && len(found) > n {
		found, r.NextToken = found[:n], found[n-1].GetSnapshotId()
	}
	for _, c := range found {
		r.Entries = append(r.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: c})
	}
	return r, nil
}

// spared refuses to delete a volume of which CreateSnapshot has taken a snapshot that is there: the
// snapshot would go with it.
func (s *service) spared(ctx context.Context, v *v1alpha1.GeoVolumeContent) error {
	var all v1alpha1.GeoVolumeSnapshotList
	err := s.cfg.Client.List(ctx, &all, client.HasLabels{snapshotLabel}, client.MatchingLabels{v1alpha1.VolumeLabel: v.Name})
	if err != nil {
		return fromAPI(err, "list GeoVolumeSnapshots of volume %s", v.Name)
	}
	for _, x := range all.Items {
		return status.Errorf(codes.FailedPrecondition, "volume %s (%s) has the snapshot %s, which would go with it: delete that first",
			v.Spec.FederationName, v.Name, snapshotID(&x))
	}
	return nil
}
