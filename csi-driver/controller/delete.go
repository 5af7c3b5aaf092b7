// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

// DeleteVolume implements csi.ControllerServer. It deletes the Content and waits until it is gone
// (csi-1). It deletes no volume that CreateVolume did not make.
func (s *service) DeleteVolume(ctx context.Context, q *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	v, err := s.content(ctx, q.GetVolumeId())
	if status.Code(err) == codes.NotFound {
		return &csi.DeleteVolumeResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := s.deletable(ctx, q.GetVolumeId(), v); err != nil {
		return nil, err
	}
	if err := s.cfg.Client.Delete(ctx, v, client.Preconditions{UID: &v.UID}); err != nil && !apierrors.IsNotFound(err) {
		return nil, fromAPI(err, "delete GeoVolumeContent %s", v.Name)
	}
	err = s.await(ctx, v.Name, "deleted", func(now *v1alpha1.GeoVolumeContent) (bool, error) {
		if now == nil || now.UID != v.UID {
			return true, nil
		}
		r := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady)
		if r != nil && r.Reason == v1alpha1.ReasonInUse && now.DeletionTimestamp != nil {
			return false, status.Errorf(codes.FailedPrecondition, "volume %s (%s) is in use: %s", v.Spec.FederationName, v.Name, r.Message)
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// deletable refuses to delete a volume that somebody else uses or made.
func (s *service) deletable(ctx context.Context, handle string, v *v1alpha1.GeoVolumeContent) error {
	refuse := func(format string, a ...any) error {
		a = append([]any{v.Spec.FederationName, v.Name}, a...)
		return status.Errorf(codes.FailedPrecondition, "volume %s (%s) "+format, a...)
	}
	if string(v.Spec.Owner) != s.cfg.Site {
		return refuse("is owned by site %s: it is deleted there; delete this site's GeoVolume that imports it", v.Spec.Owner)
	}
	if v.Spec.ReclaimPolicy != v1alpha1.Delete {
		return refuse("has reclaimPolicy %s: delete the GeoVolume that it belongs to", v.Spec.ReclaimPolicy)
	}
	for _, claim := range v.Spec.Claims {
		if claim.Kind != "PersistentVolumeClaim" {
			return refuse("is used by %s %s/%s: delete that", claim.Kind, claim.Namespace, claim.Name)
		}
	}
	if err := s.spared(ctx, v); err != nil {
		return err
	}
	attached, err := s.cfg.Attachments.List(ctx, v.Name)
	if err != nil {
		return rpc.FromPort(err, "list attachments of volume %s", v.Name)
	}
	for _, a := range attached {
		return refuse("is attached to node %s: end the pods that use it there", a.Node)
	}
	pvs, err := s.persistentVolumes(ctx, s.cfg.Client, handle)
	if err != nil {
		return err
	}
	for _, pv := range pvs {
		if pv.Status.Phase == corev1.VolumeBound && pv.DeletionTimestamp == nil {
			return refuse("is used by PersistentVolume %s, which is bound to claim %s/%s: delete that claim first",
				pv.Name, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
		}
	}
	return nil
}

// persistentVolumes lists this cluster's PersistentVolumes of a handle. A person may have made some
// of them.
func (s *service) persistentVolumes(ctx context.Context, from client.Reader, handle string) ([]corev1.PersistentVolume, error) {
	var all corev1.PersistentVolumeList
	if err := from.List(ctx, &all); err != nil {
		return nil, fromAPI(err, "list PersistentVolumes")
	}
	var out []corev1.PersistentVolume
	for _, pv := range all.Items {
		if s := pv.Spec.CSI; s != nil && s.Driver == v1alpha1.Driver && s.VolumeHandle == handle {
			out = append(out, pv)
		}
	}
	return out, nil
}
