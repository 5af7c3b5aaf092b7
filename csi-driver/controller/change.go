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

// ControllerExpandVolume implements csi.ControllerServer. Nodes have nothing to do: gateways answer
// clients with the new size.
func (s *service) ControllerExpandVolume(
	ctx context.Context, q *csi.ControllerExpandVolumeRequest,
) (*csi.ControllerExpandVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, rpc.Missing("volume_id")
	}
	if q.GetCapacityRange() == nil {
		return nil, rpc.Missing("capacity_range")
	}
	required, limit, err := bounds(q.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	if q.GetVolumeCapability() != nil {
		if err := rpc.CheckCapability("volume_capability", q.GetVolumeCapability()); err != nil {
			return nil, err
		}
	}
	v, err := s.undeleted(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	now := v.Spec.Size.Value()
	if now > limit {
		return nil, status.Errorf(codes.OutOfRange, "volume %s has %d bytes, and at most %d are asked for: a volume does not shrink",
			q.GetVolumeId(), now, limit)
	}
	goal := max(now, required)
	if goal > now {
		if err := s.checkOwned(v, "size"); err != nil {
			return nil, err
		}
		before := v.DeepCopy()
		v.Spec.Size = *resource.NewQuantity(goal, resource.BinarySI)
		if err := s.patch(ctx, v, before); err != nil {
			return nil, err
		}
	}
	// It waits also when the spec has the size already: the call that wrote it may have ended
	// before the gateways had it.
	err = s.await(ctx, v.Name, "expanded", func(now *v1alpha1.GeoVolumeContent) (bool, error) {
		if now == nil {
			return false, status.Errorf(codes.NotFound, "volume %s was deleted meanwhile", q.GetVolumeId())
		}
		done, err := settled(now)
		return done && now.Status.Capacity != nil && now.Status.Capacity.Value() >= goal, err
	})
	if err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: goal, NodeExpansionRequired: false}, nil
}

// ControllerModifyVolume implements csi.ControllerServer. It changes the policy. When the new
// policy cannot be placed the volume keeps its sites, and the Content asks for the new policy until
// another call asks for a third one.
func (s *service) ControllerModifyVolume(
	ctx context.Context, q *csi.ControllerModifyVolumeRequest,
) (*csi.ControllerModifyVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, rpc.Missing("volume_id")
	}
	v, err := s.undeleted(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	policy, err := mutableParameters(q.GetMutableParameters())
	if err != nil {
		return nil, err
	}
	if policy == "" {
		return &csi.ControllerModifyVolumeResponse{}, nil
	}
	if policy != v.Spec.Policy {
		if err := s.checkOwned(v, "policy"); err != nil {
			return nil, err
		}
		// A mistyped name must change nothing.
		err := s.cfg.Client.Get(ctx, client.ObjectKey{Name: policy}, new(v1alpha1.VolumePolicy))
		if apierrors.IsNotFound(err) {
			return nil, noPolicy(policy)
		}
		if err != nil {
			return nil, fromAPI(err, "get VolumePolicy %s", policy)
		}
		before := v.DeepCopy()
		v.Spec.Policy = policy
		if err := s.patch(ctx, v, before); err != nil {
			return nil, err
		}
	}
	err = s.await(ctx, v.Name, "modified", func(now *v1alpha1.GeoVolumeContent) (bool, error) {
		if now == nil {
			return false, status.Errorf(codes.NotFound, "volume %s was deleted meanwhile", q.GetVolumeId())
		}
		return settled(now)
	})
	if err != nil {
		return nil, err
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}

// noPolicy refuses the name of a policy that this cluster does not have.
func noPolicy(name string) error {
	return rpc.Invalid("parameter "+v1alpha1.PolicyParameter, name,
		"this cluster has no VolumePolicy of that name: make one, or name another")
}

// undeleted finds a volume that is not being deleted.
func (s *service) undeleted(ctx context.Context, handle string) (*v1alpha1.GeoVolumeContent, error) {
	v, err := s.content(ctx, handle)
	if err != nil {
		return nil, err
	}
	if v.DeletionTimestamp != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is being deleted", handle)
	}
	return v, nil
}

// checkOwned refuses to write a field that somebody else writes: the owner's cluster, or the
// operator for a volume of a GeoVolume.
func (s *service) checkOwned(v *v1alpha1.GeoVolumeContent, field string) error {
	if string(v.Spec.Owner) != s.cfg.Site {
		return status.Errorf(codes.FailedPrecondition, "volume %s (%s) is owned by site %s: change its %s there",
			v.Spec.FederationName, v.Name, v.Spec.Owner, field)
	}
	for _, claim := range v.Spec.Claims {
		if claim.Kind != "PersistentVolumeClaim" {
			return status.Errorf(codes.FailedPrecondition, "volume %s (%s) is made by %s %s/%s: change spec.%s of that",
				v.Spec.FederationName, v.Name, claim.Kind, claim.Namespace, claim.Name, field)
		}
	}
	return nil
}

// patch writes what changed since before. It fails when somebody else wrote the Content meanwhile.
func (s *service) patch(ctx context.Context, v, before *v1alpha1.GeoVolumeContent) error {
	if err := s.cfg.Client.Patch(ctx, v, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fromAPI(err, "change GeoVolumeContent %s", v.Name)
	}
	return nil
}
