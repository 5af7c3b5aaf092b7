// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

// Names of the parameters that the external provisioner adds with --extra-create-metadata.
const (
	claimNameParameter      = "csi.storage.k8s.io/pvc/name"
	claimNamespaceParameter = "csi.storage.k8s.io/pvc/namespace"
	volumeNameParameter     = "csi.storage.k8s.io/pv/name"
)

// CreateVolume implements csi.ControllerServer (csi-1).
func (s *service) CreateVolume(ctx context.Context, q *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	want, err := s.wanted(q)
	if err != nil {
		return nil, err
	}
	if err := s.begins(ctx, q, want); err != nil {
		return nil, err
	}
	err = s.cfg.Client.Create(ctx, want)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fromAPI(err, "create GeoVolumeContent %s for volume %s", want.Name, q.GetName())
	}
	var made *v1alpha1.GeoVolumeContent
	err = s.await(ctx, want.Name, "ready", func(v *v1alpha1.GeoVolumeContent) (bool, error) {
		switch {
		case v == nil || v.DeletionTimestamp != nil:
			return false, status.Errorf(codes.Aborted, "volume %s (%s) is being deleted: ask again when it is gone", q.GetName(), want.Name)
		case made == nil:
			if err := same(v, want, q.GetCapacityRange()); err != nil {
				return false, err
			}
		}
		made = v
		return settled(v)
	})
	// The registry has nothing of it, and nobody will ask to delete it.
	if isFinal(err) && made != nil && made.Status.VolumeGeneration == 0 && made.Status.Home.Site == "" {
		err = s.takeBack(ctx, made, err)
	}
	if err != nil {
		return nil, err
	}
	r := s.volume(made)
	r.ContentSource = q.GetVolumeContentSource()
	return &csi.CreateVolumeResponse{Volume: r}, nil
}

// wanted is the Content that a request asks for.
func (s *service) wanted(q *csi.CreateVolumeRequest) (*v1alpha1.GeoVolumeContent, error) {
	if q.GetName() == "" {
		return nil, rpc.Missing("name")
	}
	if err := rpc.CheckCapabilities(q.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	policy, claim, err := parameters(q.GetParameters())
	if err != nil {
		return nil, err
	}
	mutable, err := mutableParameters(q.GetMutableParameters())
	if err != nil {
		return nil, err
	}
	if err := s.reachable(q.GetAccessibilityRequirements()); err != nil {
		return nil, err
	}
	size, err := s.size(q.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	id := volumeUUID(s.cluster, q.GetName())
	return &v1alpha1.GeoVolumeContent{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec: v1alpha1.GeoVolumeContentSpec{
			FederationName: federationName(q.GetName(), id),
			Owner:          v1alpha1.SiteName(s.cfg.Site),
			Size:           *resource.NewQuantity(size, resource.BinarySI),
			Policy:         cmp.Or(mutable, policy),
			ReclaimPolicy:  v1alpha1.Delete,
			Claims:         []v1alpha1.ClaimReference{claim},
		},
	}, nil
}

// parameters reads the parameters of a StorageClass.
func parameters(all map[string]string) (policy string, claim v1alpha1.ClaimReference, err error) {
	claim = v1alpha1.ClaimReference{Kind: "PersistentVolumeClaim", Access: v1alpha1.ReadWrite}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := all[name]
		switch name {
		case v1alpha1.PolicyParameter:
			policy = value
		case claimNameParameter:
			claim.Name = value
		case claimNamespaceParameter:
			claim.Namespace = value
		case volumeNameParameter:
		default:
			return "", claim, rpc.Invalid("parameter "+name, value,
				"there is no such parameter: write policy: NAME of a VolumePolicy, or nothing")
		}
	}
	if claim.Name == "" || claim.Namespace == "" {
		return "", claim, status.Errorf(codes.InvalidArgument,
			"parameters %s and %s are missing: without them no pod could use the volume; "+
				"run the external provisioner with --extra-create-metadata", claimNameParameter, claimNamespaceParameter)
	}
	return policy, claim, nil
}

// mutableParameters reads the parameters of a VolumeAttributesClass.
func mutableParameters(all map[string]string) (policy string, err error) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name != v1alpha1.PolicyParameter {
			return "", rpc.Invalid("parameter "+name, all[name],
				"there is no such parameter of a VolumeAttributesClass: write policy: NAME of a VolumePolicy")
		}
		if policy = all[name]; policy == "" {
			return "", rpc.Invalid("parameter "+name, "", "write the name of a VolumePolicy")
		}
	}
	return policy, nil
}

// reachable refuses a volume for nodes of other sites only.
func (s *service) reachable(r *csi.TopologyRequirement) error {
	asked := r.GetRequisite()
	if len(asked) == 0 {
		asked = r.GetPreferred()
	}
	for _, t := range asked {
		if t.GetSegments()[v1alpha1.TopologyKey] == s.cfg.Site {
			return nil
		}
	}
	if len(asked) == 0 {
		return nil
	}
	return status.Errorf(codes.ResourceExhausted, "accessibility_requirements name no node of site %s: "+
		"this cluster's volumes are reached from its own nodes; allow topology %s=%s",
		s.cfg.Site, v1alpha1.TopologyKey, s.cfg.Site)
}

// size chooses a volume's size in bytes. It rounds nothing: the volume is as large as the request
// asks.
func (s *service) size(r *csi.CapacityRange) (int64, error) {
	required, limit, err := bounds(r)
	switch {
	case err != nil:
		return 0, err
	case required == 0:
		return min(s.cfg.DefaultSize, limit), nil
	}
	return required, nil
}

// bounds checks a range. A limit of 0 means no limit, and becomes the largest number.
func bounds(r *csi.CapacityRange) (required, limit int64, err error) {
	required, limit = r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case required < 0:
		return 0, 0, rpc.Invalid("capacity_range.required_bytes", required, "it must not be negative")
	case limit < 0:
		return 0, 0, rpc.Invalid("capacity_range.limit_bytes", limit, "it must not be negative")
	case limit == 0:
		limit = math.MaxInt64
	case limit < required:
		return 0, 0, status.Errorf(codes.OutOfRange,
			"capacity_range asks for at least %d and at most %d bytes: nothing is both", required, limit)
	}
	return required, limit, nil
}

// same refuses a Content that another request of the same name made.
func same(is, want *v1alpha1.GeoVolumeContent, r *csi.CapacityRange) error {
	differs := func(what string, has, wants any) error {
		return status.Errorf(codes.AlreadyExists,
			"volume %s (%s) is there with %s %v, and %v is asked for: use another name, or delete it first",
			want.Spec.FederationName, want.Name, what, has, wants)
	}
	required, limit, err := bounds(r)
	if err != nil {
		return err
	}
	size := is.Spec.Size.Value()
	switch {
	case is.Spec.FederationName != want.Spec.FederationName:
		return differs("name", is.Spec.FederationName, want.Spec.FederationName)
	case is.Spec.Owner != want.Spec.Owner:
		return differs("owner", is.Spec.Owner, want.Spec.Owner)
	case size < required || size > limit:
		return differs("size", size, fmt.Sprintf("%d to %d", required, limit))
	case !equality.Semantic.DeepEqual(is.Spec.Source, want.Spec.Source):
		return differs("content source", describe(is.Spec.Source), describe(want.Spec.Source))
	case is.Spec.Policy != want.Spec.Policy:
		return differs("policy", fmt.Sprintf("%q", is.Spec.Policy), fmt.Sprintf("%q", want.Spec.Policy))
	}
	for _, claim := range is.Spec.Claims {
		if w := want.Spec.Claims[0]; claim.Kind == w.Kind && claim.Namespace == w.Namespace && claim.Name == w.Name {
			return nil
		}
	}
	return differs("claims", is.Spec.Claims, want.Spec.Claims)
}

// isFinal reports whether the sidecars do not repeat a call after this error.
func isFinal(err error) bool {
	switch status.Code(err) {
	case codes.OK, codes.Aborted, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return false
	}
	return true
}

// takeBack deletes a Content whose volume never came to be, and returns why. After that error the
// caller does not ask to delete the volume.
func (s *service) takeBack(ctx context.Context, v *v1alpha1.GeoVolumeContent, why error) error {
	err := s.cfg.Client.Delete(ctx, v, client.Preconditions{UID: &v.UID, ResourceVersion: &v.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		// The volume may have come to be in this moment. The caller has to ask again and finds out.
		return status.Errorf(codes.Aborted, "%v; and GeoVolumeContent %s could not be taken back: %v", why, v.Name, err)
	}
	return why
}
