// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// ControllerExpandVolume implements csi.ControllerServer. Nodes have nothing to do: gateways tell clients the new size.
func (c *Controller) ControllerExpandVolume(ctx context.Context, q *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, missing("volume_id")
	}
	if q.GetCapacityRange() == nil {
		return nil, missing("capacity_range")
	}
	required, limit, err := bounds(q.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	if q.GetVolumeCapability() != nil {
		if err := checkCapability("volume_capability", q.GetVolumeCapability()); err != nil {
			return nil, err
		}
	}
	v, done, err := c.change(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer done()
	now := v.Spec.Size.Value()
	if now > limit {
		return nil, status.Errorf(codes.OutOfRange, "volume %s has %d bytes, and at most %d are asked for: a volume does not shrink", q.GetVolumeId(), now, limit)
	}
	goal := max(now, required)
	if goal > now {
		if err := c.mine(v, "size"); err != nil {
			return nil, err
		}
		before := v.DeepCopy()
		v.Spec.Size = *resource.NewQuantity(goal, resource.BinarySI)
		if err := c.patch(ctx, v, before); err != nil {
			return nil, err
		}
	}
	// Also when the size is there already: an earlier try may have died before the gateways had it.
	err = c.await(ctx, v.Name, "expanded", func(now *v1alpha1.GeoVolumeContent) (bool, error) {
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

// ControllerModifyVolume implements csi.ControllerServer: another policy. When that cannot be placed the volume goes on with what it has; the Content keeps
// the wish, and another one replaces it.
func (c *Controller) ControllerModifyVolume(ctx context.Context, q *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, missing("volume_id")
	}
	v, done, err := c.change(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer done()
	policy, err := mutableParameters(q.GetMutableParameters())
	if err != nil {
		return nil, err
	}
	if policy == "" {
		return &csi.ControllerModifyVolumeResponse{}, nil
	}
	if policy != v.Spec.Policy {
		if err := c.mine(v, "policy"); err != nil {
			return nil, err
		}
		// Looked at here so that a name that is mistyped changes nothing.
		err := c.cfg.Client.Get(ctx, client.ObjectKey{Name: policy}, new(v1alpha1.VolumePolicy))
		if apierrors.IsNotFound(err) {
			return nil, invalid("parameter "+v1alpha1.PolicyParameter, policy, "this cluster has no VolumePolicy of that name: make one, or name another")
		}
		if err != nil {
			return nil, fromAPI(err, "get VolumePolicy %s", policy)
		}
		before := v.DeepCopy()
		v.Spec.Policy = policy
		if err := c.patch(ctx, v, before); err != nil {
			return nil, err
		}
	}
	err = c.await(ctx, v.Name, "modified", func(now *v1alpha1.GeoVolumeContent) (bool, error) {
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

// change finds a volume and takes it for a call alone.
func (c *Controller) change(ctx context.Context, handle string) (*v1alpha1.GeoVolumeContent, func(), error) {
	v, err := c.content(ctx, handle)
	if err != nil {
		return nil, nil, err
	}
	done, err := c.calls.alone(v.Name)
	if err != nil {
		return nil, nil, err
	}
	if v.DeletionTimestamp != nil {
		done()
		return nil, nil, status.Errorf(codes.FailedPrecondition, "volume %s is being deleted", handle)
	}
	return v, done, nil
}

// mine refuses to write a field of which another is the writer: the owner's cluster, or the operator for a GeoVolume.
func (c *Controller) mine(v *v1alpha1.GeoVolumeContent, field string) error {
	if string(v.Spec.Owner) != c.cfg.Site {
		return status.Errorf(codes.FailedPrecondition, "volume %s (%s) is owned by site %s: change its %s there", v.Spec.FederationName, v.Name, v.Spec.Owner, field)
	}
	for _, claim := range v.Spec.Claims {
		if claim.Kind != "PersistentVolumeClaim" {
			return status.Errorf(codes.FailedPrecondition, "volume %s (%s) is made by %s %s/%s: change spec.%s of that",
				v.Spec.FederationName, v.Name, claim.Kind, claim.Namespace, claim.Name, field)
		}
	}
	return nil
}

// patch writes what changed, if nobody else wrote meanwhile.
func (c *Controller) patch(ctx context.Context, v, before *v1alpha1.GeoVolumeContent) error {
	if err := c.cfg.Client.Patch(ctx, v, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fromAPI(err, "change GeoVolumeContent %s", v.Name)
	}
	return nil
}
