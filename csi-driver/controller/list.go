// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/health"
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

// ListVolumes implements csi.ControllerServer. Volumes are in the order of their UUIDs, and a token
// is the last UUID of a page. So a volume that is made or deleted between two pages moves no other.
func (s *service) ListVolumes(ctx context.Context, q *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	all, err := s.contents(ctx)
	if err != nil {
		return nil, err
	}
	some, next, err := page(all, q.GetMaxEntries(), q.GetStartingToken())
	if err != nil {
		return nil, err
	}
	nodes, err := s.publishedNodes(ctx, "")
	if err != nil {
		return nil, err
	}
	r := &csi.ListVolumesResponse{NextToken: next}
	for _, v := range some {
		of := &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodes[v.Name]}
		health.SetCondition(of, health.Of(&v))
		r.Entries = append(r.Entries, &csi.ListVolumesResponse_Entry{Volume: s.volume(&v), Status: of})
	}
	return r, nil
}

// ControllerGetVolume implements csi.ControllerServer.
func (s *service) ControllerGetVolume(
	ctx context.Context, q *csi.ControllerGetVolumeRequest,
) (*csi.ControllerGetVolumeResponse, error) {
	v, err := s.content(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	nodes, err := s.publishedNodes(ctx, v.Name)
	if err != nil {
		return nil, err
	}
	of := &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: nodes[v.Name]}
	health.SetCondition(of, health.Of(v))
	return &csi.ControllerGetVolumeResponse{Volume: s.volume(v), Status: of}, nil
}

// ControllerGetVolumeHealth implements csi.ControllerServer.
func (s *service) ControllerGetVolumeHealth(
	ctx context.Context, q *csi.ControllerGetVolumeHealthRequest,
) (*csi.ControllerGetVolumeHealthResponse, error) {
	v, err := s.content(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: health.Message(q.GetVolumeId(), health.Of(v))}, nil
}

// ControllerListVolumeHealth implements csi.ControllerServer. It lists the volumes that are not
// well.
func (s *service) ControllerListVolumeHealth(
	ctx context.Context, q *csi.ControllerListVolumeHealthRequest,
) (*csi.ControllerListVolumeHealthResponse, error) {
	all, err := s.contents(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(v v1alpha1.GeoVolumeContent) bool { return health.Of(&v) == nil })
	some, next, err := page(all, q.GetMaxEntries(), q.GetStartingToken())
	if err != nil {
		return nil, err
	}
	r := &csi.ControllerListVolumeHealthResponse{NextToken: next}
	for _, v := range some {
		r.Entries = append(r.Entries, health.Message(v1alpha1.VolumeHandle(s.cfg.Federation, v.Name), health.Of(&v)))
	}
	return r, nil
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (s *service) ValidateVolumeCapabilities(
	ctx context.Context, q *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, rpc.Missing("volume_id")
	}
	if len(q.GetVolumeCapabilities()) == 0 {
		return nil, rpc.Missing("volume_capabilities")
	}
	v, err := s.content(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	err = rpc.CheckCapabilities(q.GetVolumeCapabilities())
	if _, mutableErr := mutableParameters(q.GetMutableParameters()); err == nil {
		err = mutableErr
	}
	p, named := q.GetParameters()[v1alpha1.PolicyParameter]
	if err == nil && named && p != v.Spec.Policy && len(q.GetMutableParameters()) == 0 {
		err = status.Errorf(codes.InvalidArgument, "the volume's policy is %q, not %q", v.Spec.Policy, p)
	}
	if err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: q.GetVolumeContext(), VolumeCapabilities: q.GetVolumeCapabilities(),
		Parameters: q.GetParameters(), MutableParameters: q.GetMutableParameters(),
	}}, nil
}

// contents lists all volumes that this cluster knows, by UUID.
func (s *service) contents(ctx context.Context) ([]v1alpha1.GeoVolumeContent, error) {
	var all v1alpha1.GeoVolumeContentList
	if err := s.cfg.Client.List(ctx, &all); err != nil {
		return nil, fromAPI(err, "list GeoVolumeContents")
	}
	slices.SortFunc(all.Items, func(a, b v1alpha1.GeoVolumeContent) int { return cmp.Compare(a.Name, b.Name) })
	return all.Items, nil
}

// page returns at most n volumes (0: all) after the volume that token names, and the next token.
func page(all []v1alpha1.GeoVolumeContent, n int32, token string) (some []v1alpha1.GeoVolumeContent, next string, err error) {
	if n < 0 {
		return nil, "", rpc.Invalid("max_entries", n, "it must not be negative")
	}
	if token != "" {
		if _, err := uuid.Parse(token); err != nil {
			return nil, "", status.Errorf(codes.Aborted,
				"starting_token is %q: it is none that was given out; begin with the first page", token)
		}
		all = slices.DeleteFunc(all, func(v v1alpha1.GeoVolumeContent) bool { return v.Name <= token })
	}
	if n == 0 || len(all) <= int(n) {
		return all, "", nil
	}
	return all[:n], all[n-1].Name, nil
}

// publishedNodes are the nodes to which a volume is attached, by the volume's UUID. For volume ""
// it has all volumes.
func (s *service) publishedNodes(ctx context.Context, volume string) (map[string][]string, error) {
	attached, err := s.cfg.Attachments.List(ctx, volume)
	if err != nil {
		return nil, rpc.FromPort(err, "list attachments")
	}
	nodes := make(map[string][]string)
	for _, a := range attached {
		nodes[a.Volume] = append(nodes[a.Volume], a.Node)
	}
	for _, list := range nodes {
		slices.Sort(list)
	}
	return nodes, nil
}
