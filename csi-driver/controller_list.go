// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"cmp"
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// ListVolumes implements csi.ControllerServer. Volumes are in the order of their UUIDs, and a token is the last of a page: one that is made or deleted between two
// pages moves no other.
func (c *Controller) ListVolumes(ctx context.Context, q *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	all, err := c.contents(ctx)
	if err != nil {
		return nil, err
	}
	some, next, err := page(all, q.GetMaxEntries(), q.GetStartingToken())
	if err != nil {
		return nil, err
	}
	nodes, err := c.publishedNodes(ctx, "")
	if err != nil {
		return nil, err
	}
	r := &csi.ListVolumesResponse{NextToken: next}
	for _, v := range some {
		s := &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodes[v.Name]}
		setCondition(s, problemOf(&v))
		r.Entries = append(r.Entries, &csi.ListVolumesResponse_Entry{Volume: c.volume(&v), Status: s})
	}
	return r, nil
}

// ControllerGetVolume implements csi.ControllerServer.
func (c *Controller) ControllerGetVolume(ctx context.Context, q *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	v, err := c.content(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	nodes, err := c.publishedNodes(ctx, v.Name)
	if err != nil {
		return nil, err
	}
	s := &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: nodes[v.Name]}
	setCondition(s, problemOf(v))
	return &csi.ControllerGetVolumeResponse{Volume: c.volume(v), Status: s}, nil
}

// ControllerGetVolumeHealth implements csi.ControllerServer.
func (c *Controller) ControllerGetVolumeHealth(ctx context.Context, q *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	v, err := c.content(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: health(q.GetVolumeId(), problemOf(v))}, nil
}

// ControllerListVolumeHealth implements csi.ControllerServer: volumes that are not well.
func (c *Controller) ControllerListVolumeHealth(ctx context.Context, q *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	all, err := c.contents(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(v v1alpha1.GeoVolumeContent) bool { return problemOf(&v) == nil })
	some, next, err := page(all, q.GetMaxEntries(), q.GetStartingToken())
	if err != nil {
		return nil, err
	}
	r := &csi.ControllerListVolumeHealthResponse{NextToken: next}
	for _, v := range some {
		r.Entries = append(r.Entries, health(handleOf(c.cfg.Federation, v.Name), problemOf(&v)))
	}
	return r, nil
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (c *Controller) ValidateVolumeCapabilities(ctx context.Context, q *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, missing("volume_id")
	}
	if len(q.GetVolumeCapabilities()) == 0 {
		return nil, missing("volume_capabilities")
	}
	v, err := c.content(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	err = checkCapabilities(q.GetVolumeCapabilities())
	if _, mutableErr := mutableParameters(q.GetMutableParameters()); err == nil {
		err = mutableErr
	}
	if p, ok := q.GetParameters()[v1alpha1.PolicyParameter]; err == nil && ok && p != v.Spec.Policy && len(q.GetMutableParameters()) == 0 {
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
func (c *Controller) contents(ctx context.Context) ([]v1alpha1.GeoVolumeContent, error) {
	var all v1alpha1.GeoVolumeContentList
	if err := c.cfg.Client.List(ctx, &all); err != nil {
		return nil, fromAPI(err, "list GeoVolumeContents")
	}
	slices.SortFunc(all.Items, func(a, b v1alpha1.GeoVolumeContent) int { return cmp.Compare(a.Name, b.Name) })
	return all.Items, nil
}

// page cuts a page of at most n (0: all) after the volume that token names.
func page(all []v1alpha1.GeoVolumeContent, n int32, token string) (some []v1alpha1.GeoVolumeContent, next string, err error) {
	if n < 0 {
		return nil, "", invalid("max_entries", n, "it must not be negative")
	}
	if token != "" {
		if _, err := uuid.Parse(token); err != nil {
			return nil, "", status.Errorf(codes.Aborted, "starting_token is %q: it is none that was given out; begin with the first page", token)
		}
		all = slices.DeleteFunc(all, func(v v1alpha1.GeoVolumeContent) bool { return v.Name <= token })
	}
	if n == 0 || len(all) <= int(n) {
		return all, "", nil
	}
	return all[:n], all[n-1].Name, nil
}

// publishedNodes are the nodes of each volume, or of all for volume "".
func (c *Controller) publishedNodes(ctx context.Context, volume string) (map[string][]string, error) {
	attached, err := c.cfg.Attachments.List(ctx, volume)
	if err != nil {
		return nil, fromPort(err, "list attachments")
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
