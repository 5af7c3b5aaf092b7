// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"crypto/rand"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

const (
	// groupLabel is on the GeoVolumeSnapshots of a group. Its value is the group's ID.
	groupLabel = v1alpha1.Group + "/csi-group"
	// groupVolumes is an annotation on them: the UUIDs of the volumes of the whole group, in
	// order, with commas between.
	groupVolumes = v1alpha1.Group + "/csi-group-volumes"
	// groupAttempt is an annotation on them: a random number of the call that made them all. What
	// two calls made is no group, since one of them may be of an earlier moment.
	groupAttempt = v1alpha1.Group + "/csi-group-attempt"
)

// The parameter of a VolumeGroupSnapshotClass without which changes of the volumes of a group are
// held until all snapshots are taken (ADR 71), and its only value.
const (
	consistencyParameter = "consistency"
	perVolume            = "PerVolume"
)

// groupSpread is how far the snapshots of a group may lie apart, by the clocks of the volumes'
// homes, if changes were not held for it. A group in which they lie further apart is dropped, and
// taken again by the next call.
const groupSpread = 30 * time.Second

// groupForm is the form of the names that the snapshotter sidecar gives to groups. The snapshots of
// such a group have that name in their volumes.
var groupForm = regexp.MustCompile(`^groupsnapshot-[a-z0-9]([a-z0-9-]{0,45}[a-z0-9])?$`)

// groupID is the ID of the group of a name.
func (s *service) groupID(name string) string { return volumeUUID(s.cluster, "group "+name) }

// GroupControllerGetCapabilities implements csi.GroupControllerServer.
func (s *service) GroupControllerGetCapabilities(
	context.Context, *csi.GroupControllerGetCapabilitiesRequest,
) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT}}}}}, nil
}

// CreateVolumeGroupSnapshot implements csi.GroupControllerServer (csi-11). It has a snapshot of
// each volume taken, or of none.
func (s *service) CreateVolumeGroupSnapshot(
	ctx context.Context, q *csi.CreateVolumeGroupSnapshotRequest,
) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	volumes, held, err := s.ofGroup(q)
	if err != nil {
		return nil, err
	}
	id, whole := s.groupID(q.GetName()), strings.Join(volumes, ",")
	members, err := s.members(ctx, id)
	if err != nil {
		return nil, err
	}
	for i := range members {
		if is := members[i].Annotations[groupVolumes]; is != whole {
			return nil, status.Errorf(codes.AlreadyExists, "group %s is there, and is of the volumes %s, not of %s: use another name",
				q.GetName(), is, whole)
		}
		if members[i].Spec.Hold != held {
			return nil, status.Errorf(codes.AlreadyExists, "group %s is there, and its class said something else of its consistency: use "+
				"another name", q.GetName())
		}
	}
	if held {
		done, err := s.alone(volumes)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	wait, cancel := context.WithTimeout(ctx, s.cfg.WaitLimit)
	defer cancel()
	if len(members) > 0 && !complete(members, volumes) { // an earlier call was interrupted, or failed
		if err := s.dropMembers(wait, members); err != nil {
			return nil, err
		}
		members = nil
	}
	if len(members) == 0 {
		if members, err = s.createMembers(wait, q, id, volumes, held); err != nil {
			return nil, s.undo(ctx, id, err)
		}
	}
	if held {
		if err := s.takeHeld(wait, members); err != nil && (isFinal(err) || missed(err)) {
			return nil, s.undo(ctx, id, err)
		} else if err != nil {
			return nil, err
		}
	}
	var taken []*csi.Snapshot
	for i := range members {
		r, err := s.taken(wait, &members[i])
		if err != nil && (isFinal(err) || missed(err)) {
			return nil, s.undo(ctx, id, err)
		}
		if err != nil {
			return nil, err // the next call goes on waiting
		}
		taken = append(taken, r.GetSnapshot())
	}
	g := groupOf(id, taken)
	if first, last := span(taken); !held && last.Sub(first) > groupSpread {
		return nil, s.undo(ctx, id, status.Errorf(codes.Aborted, "the snapshots of group %s are of %v to %v, and may lie %v apart at "+
			"most: they are taken again; if that is so each time, gateways' clocks differ, or a home is away for long", q.GetName(),
			first.UTC(), last.UTC(), groupSpread))
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: g}, nil
}

// ofGroup checks a request, and returns the UUIDs of its volumes in order, and whether changes are
// held, so that their snapshots are of one moment.
func (s *service) ofGroup(q *csi.CreateVolumeGroupSnapshotRequest) (volumes []string, held bool, err error) {
	switch {
	case q.GetName() == "":
		return nil, false, rpc.Missing("name")
	case len(q.GetSourceVolumeIds()) == 0:
		return nil, false, rpc.Missing("source_volume_ids")
	}
	consistency := ""
	for name, value := range q.GetParameters() {
		switch {
		case name == consistencyParameter && value == perVolume:
			consistency = value
		case name == consistencyParameter:
			return nil, false, rpc.Invalid("parameter "+name, value, "write "+perVolume)
		case !strings.HasPrefix(name, "csi.storage.k8s.io/"):
			return nil, false, rpc.Invalid("parameter "+name, value, "there is no such parameter of a VolumeGroupSnapshotClass: write "+
				consistencyParameter+": "+perVolume+", or nothing")
		}
	}
	for _, handle := range q.GetSourceVolumeIds() {
		id, err := rpc.VolumeID(handle, s.cfg.Federation)
		if err != nil {
			return nil, false, err
		}
		volumes = append(volumes, id)
	}
	slices.Sort(volumes)
	if n := len(slices.Compact(slices.Clone(volumes))); n < len(volumes) {
		return nil, false, rpc.Invalid("source_volume_ids", q.GetSourceVolumeIds(), "each volume can be in it once")
	}
	return volumes, len(volumes) > 1 && consistency == "", nil
}

// members lists the GeoVolumeSnapshots of a group, in the order of their volumes.
func (s *service) members(ctx context.Context, id string) ([]v1alpha1.GeoVolumeSnapshot, error) {
	var all v1alpha1.GeoVolumeSnapshotList
	if err := s.cfg.Client.List(ctx, &all, client.MatchingLabels{groupLabel: id}); err != nil {
		return nil, fromAPI(err, "list GeoVolumeSnapshots of group %s", id)
	}
	slices.SortFunc(all.Items, func(a, b v1alpha1.GeoVolumeSnapshot) int {
		return cmp.Compare(a.Labels[v1alpha1.VolumeLabel], b.Labels[v1alpha1.VolumeLabel])
	})
	return all.Items, nil
}

// complete reports whether members are of all volumes, were made by one call, and none is being
// deleted.
func complete(members []v1alpha1.GeoVolumeSnapshot, volumes []string) bool {
	return len(members) == len(volumes) && !slices.ContainsFunc(members, func(x v1alpha1.GeoVolumeSnapshot) bool {
		return x.DeletionTimestamp != nil || !slices.Contains(volumes, x.Labels[v1alpha1.VolumeLabel]) ||
			x.Annotations[groupAttempt] != members[0].Annotations[groupAttempt]
	})
}

// createMembers makes an object for each volume, once all of them may have a snapshot.
func (s *service) createMembers(ctx context.Context, q *csi.CreateVolumeGroupSnapshotRequest, id string,
	volumes []string, held bool) ([]v1alpha1.GeoVolumeSnapshot, error) {
	var members []v1alpha1.GeoVolumeSnapshot
	attempt := rand.Text()
	for _, v := range volumes {
		name := "group-" + volumeUUID(s.cluster, "group "+q.GetName()+" "+v)
		x, err := s.wantedSnapshot(ctx, v1alpha1.VolumeHandle(s.cfg.Federation, v), name, volumeUUID(s.cluster, name))
		if err != nil {
			return nil, err
		}
		x.Labels[groupLabel], x.Spec.Hold = id, held
		x.Annotations = map[string]string{groupVolumes: strings.Join(volumes, ","), groupAttempt: attempt}
		if groupForm.MatchString(q.GetName()) {
			x.Spec.SnapshotName = v1alpha1.SnapshotName(q.GetName())
		}
		members = append(members, *x)
	}
	for i := range members {
		if err := s.cfg.Client.Create(ctx, &members[i]); err != nil {
			return nil, fromAPI(err, "create GeoVolumeSnapshot %s for group %s", snapshotID(&members[i]), q.GetName())
		}
	}
	return members, nil
}

// undo drops what there is of a group, and returns why. If that is not done in time, the caller has
// to call again, which then does it.
func (s *service) undo(ctx context.Context, id string, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.WaitLimit)
	defer cancel()
	members, err := s.members(ctx, id)
	if err == nil {
		err = s.dropMembers(ctx, members)
	}
	if err != nil {
		return status.Errorf(codes.Aborted, "%v; and what was taken of the group is not dropped yet: %v: ask again", why, err)
	}
	return why
}

// dropMembers deletes objects, all at once, and waits until they are gone, and so the snapshots.
func (s *service) dropMembers(ctx context.Context, members []v1alpha1.GeoVolumeSnapshot) error {
	for i := range members {
		x := &members[i]
		if err := s.cfg.Client.Delete(ctx, x, client.Preconditions{UID: &x.UID}); err != nil && !apierrors.IsNotFound(err) {
			return fromAPI(err, "delete GeoVolumeSnapshot %s", snapshotID(x))
		}
	}
	for i := range members {
		uid := members[i].UID
		err := s.awaitSnapshot(ctx, &members[i], "deleted", func(now *v1alpha1.GeoVolumeSnapshot) (bool, error) {
			return now == nil || now.UID != uid, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// span returns the times of the first and the last of snapshots.
func span(taken []*csi.Snapshot) (first, last time.Time) {
	for i, x := range taken {
		t := x.GetCreationTime().AsTime()
		if i == 0 || t.Before(first) {
			first = t
		}
		if i == 0 || t.After(last) {
			last = t
		}
	}
	return first, last
}

// groupOf describes a group of which all snapshots are taken. Its time is that of the first.
func groupOf(id string, taken []*csi.Snapshot) *csi.VolumeGroupSnapshot {
	first, _ := span(taken)
	return &csi.VolumeGroupSnapshot{GroupSnapshotId: id, Snapshots: taken, CreationTime: timestamppb.New(first), ReadyToUse: true}
}

// named refuses a list of snapshots that is not that of a group.
func named(members []v1alpha1.GeoVolumeSnapshot, ids []string) error {
	var is []string
	for i := range members {
		is = append(is, snapshotID(&members[i]))
	}
	want := slices.Sorted(slices.Values(ids))
	slices.Sort(is)
	if !slices.Equal(is, want) {
		return rpc.Invalid("snapshot_ids", ids, "the group has the snapshots "+strings.Join(is, ", "))
	}
	return nil
}

// DeleteVolumeGroupSnapshot implements csi.GroupControllerServer. Part of a group that another call
// has begun to delete is deleted without a look at the list.
func (s *service) DeleteVolumeGroupSnapshot(
	ctx context.Context, q *csi.DeleteVolumeGroupSnapshotRequest,
) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	if q.GetGroupSnapshotId() == "" {
		return nil, rpc.Missing("group_snapshot_id")
	}
	members, err := s.group(ctx, q.GetGroupSnapshotId())
	if err != nil || len(members) == 0 {
		return &csi.DeleteVolumeGroupSnapshotResponse{}, err
	}
	if complete(members, strings.Split(members[0].Annotations[groupVolumes], ",")) {
		if err := named(members, q.GetSnapshotIds()); err != nil {
			return nil, err
		}
	}
	wait, cancel := context.WithTimeout(ctx, s.cfg.WaitLimit)
	defer cancel()
	if err := s.dropMembers(wait, members); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// GetVolumeGroupSnapshot implements csi.GroupControllerServer.
func (s *service) GetVolumeGroupSnapshot(
	ctx context.Context, q *csi.GetVolumeGroupSnapshotRequest,
) (*csi.GetVolumeGroupSnapshotResponse, error) {
	id := q.GetGroupSnapshotId()
	if id == "" {
		return nil, rpc.Missing("group_snapshot_id")
	}
	members, err := s.group(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(members) == 0 || !complete(members, strings.Split(members[0].Annotations[groupVolumes], ",")) {
		return nil, status.Errorf(codes.NotFound, "group snapshot %s is not there, or is being deleted", id)
	}
	if err := named(members, q.GetSnapshotIds()); err != nil {
		return nil, err
	}
	var taken []*csi.Snapshot
	for i := range members {
		if members[i].Status.Time == nil {
			return nil, status.Errorf(codes.NotFound, "group snapshot %s is not taken yet: snapshot %s is missing", id,
				snapshotID(&members[i]))
		}
		taken = append(taken, s.snapshot(&members[i]))
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: groupOf(id, taken)}, nil
}

// groupIDForm is the form of the IDs of groups; another one is of no group.
var groupIDForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// group lists the members of the group that an ID of a request names.
func (s *service) group(ctx context.Context, id string) ([]v1alpha1.GeoVolumeSnapshot, error) {
	if !groupIDForm.MatchString(id) {
		return nil, nil
	}
	return s.members(ctx, id)
}
