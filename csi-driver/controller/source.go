// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

// begins has a volume that is wanted begin with what the request says: another volume, of which the
// operator has a snapshot taken and copied (ADR 53). The volume is at least as large as that one. A
// volume that an earlier call made is compared by same, and the other one may be gone by then.
func (s *service) begins(ctx context.Context, q *csi.CreateVolumeRequest, want *v1alpha1.GeoVolumeContent) error {
	source := q.GetVolumeContentSource()
	if source == nil {
		return nil
	}
	if source.GetVolume() == nil {
		return status.Error(codes.InvalidArgument, "volume_content_source names no volume: volumes are made of other volumes, and not "+
			"of VolumeSnapshots yet; name a claim in dataSource, or make a GeoVolume with spec.source.snapshot")
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
	_, limit, err := bounds(q.GetCapacityRange())
	if err != nil {
		return err
	}
	if least := of.Spec.Size.Value(); q.GetCapacityRange().GetRequiredBytes() == 0 && least <= limit {
		want.Spec.Size = *resource.NewQuantity(max(least, want.Spec.Size.Value()), resource.BinarySI)
	} else if want.Spec.Size.Value() < least {
		return status.Errorf(codes.OutOfRange, "volume %s has %d bytes, and %d are asked for: ask for as many at least",
			source.GetVolume().GetVolumeId(), least, want.Spec.Size.Value())
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
