// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

// begins has a volume that is wanted begin with what the request says: a snapshot, or another
// volume, of which the operator has a snapshot taken (ADR 53). The volume is at least as large as
// that. A volume that an earlier call made is compared by same, and the other one may be gone by
// then.
func (s *service) begins(ctx context.Context, q *csi.CreateVolumeRequest, want *v1alpha1.GeoVolumeContent) error {
	source := q.GetVolumeContentSource()
	if source == nil {
		return nil
	}
	if source.GetSnapshot() != nil {
		return s.restores(ctx, q, want)
	}
	if source.GetVolume() == nil {
		return status.Error(codes.InvalidArgument, "volume_content_source names neither a snapshot nor a volume: name a VolumeSnapshot "+
			"or a claim in dataSource")
	}
	if source.GetVolume().GetVolumeId() == "" {
		return rpc.Missing("volume_content_source.volume.volume_id")
	}
	id, err := rpc.VolumeID(source.GetVolume().GetVolumeId(), s.cfg.Federation)
	if err != nil {
		return err
	}
	want.Spec.Source = &v1alpha1.ContentSource{Volume: id}
	err = s.cfg.Client.Get(ctx, client.ObjectKeyFromObject(want), new(v1alpha1.GeoVolumeContent))
	switch {
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fromAPI(err, "get GeoVolumeContent %s", want.Name)
	}
	of, err := s.undeleted(ctx, source.GetVolume().GetVolumeId())
	if err != nil {
		return err
	}
	return fits(q, want, of.Spec.Size.Value(), "volume "+source.GetVolume().GetVolumeId())
}

// restores is begins for a snapshot.
func (s *service) restores(ctx context.Context, q *csi.CreateVolumeRequest, want *v1alpha1.GeoVolumeContent) error {
	id := q.GetVolumeContentSource().GetSnapshot().GetSnapshotId()
	if id == "" {
		return rpc.Missing("volume_content_source.snapshot.snapshot_id")
	}
	x, err := s.findSnapshot(ctx, id)
	if err != nil {
		return err
	}
	made := new(v1alpha1.GeoVolumeContent)
	err = s.cfg.Client.Get(ctx, client.ObjectKeyFromObject(want), made)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return fromAPI(err, "get GeoVolumeContent %s", want.Name)
	case x == nil && err == nil && made.Spec.Source != nil && strings.HasSuffix(id, "/"+made.Spec.Source.Snapshot):
		want.Spec.Source = made.Spec.Source // an earlier call found it
		return nil
	case x == nil:
		return status.Errorf(codes.NotFound, "snapshot %s is not there: this cluster has no such GeoVolumeSnapshot", id)
	case x.Status.Time == nil || x.DeletionTimestamp != nil && err != nil:
		return status.Errorf(codes.Unavailable, "snapshot %s is not taken yet, or is being deleted: ask again", id)
	}
	want.Spec.Source = &v1alpha1.ContentSource{Volume: x.Status.Volume, Snapshot: x.Status.Snapshot}
	if err == nil {
		return nil
	}
	return fits(q, want, s.snapshot(x).GetSizeBytes(), "snapshot "+id)
}

// fits refuses a volume that is smaller than what it is made of, and makes one of any size as
// large.
func fits(q *csi.CreateVolumeRequest, want *v1alpha1.GeoVolumeContent, least int64, of string) error {
	_, limit, err := bounds(q.GetCapacityRange())
	if err != nil {
		return err
	}
	if q.GetCapacityRange().GetRequiredBytes() == 0 && least <= limit {
		want.Spec.Size = *resource.NewQuantity(max(least, want.Spec.Size.Value()), resource.BinarySI)
	} else if want.Spec.Size.Value() < least {
		return status.Errorf(codes.OutOfRange, "%s has %d bytes, and %d are asked for: ask for as many at least", of, least,
			want.Spec.Size.Value())
	}
	return nil
}

// describe names a source in a message.
func describe(s *v1alpha1.ContentSource) string {
	switch {
	case s == nil:
		return "nothing"
	case s.Snapshot == "":
		return "volume " + s.Volume
	}
	return "snapshot " + s.Snapshot + " of volume " + s.Volume
}
