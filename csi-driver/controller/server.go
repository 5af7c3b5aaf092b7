// SPDX-License-Identifier: Apache-2.0

// Package controller is the controller server of Weir's CSI driver: it makes, changes and deletes
// volumes, and attaches them to nodes. It writes GeoVolumeContents and waits for the operator. The
// rules csi-1 to csi-8, to which comments here refer, are in package csidriver.
package controller

import (
	"context"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

// Server is the controller server. It locks the volume that a call is about (csi-8) around the
// call, and leaves all else to service, which takes no lock. Calls that change nothing are
// service's own. Any number of goroutines may use it; a cluster has one instance at a time.
type Server struct {
	service
	calls rpc.InFlight
}

var (
	_ csi.ControllerServer      = (*Server)(nil)
	_ csi.GroupControllerServer = (*Server)(nil)
)

// NewServer checks the configuration.
func NewServer(cfg Config) (*Server, error) {
	s, err := newService(cfg)
	if err != nil {
		return nil, err
	}
	return &Server{service: s}, nil
}

// CreateVolume has the volume alone.
func (s *Server) CreateVolume(ctx context.Context, q *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	release, err := s.calls.Alone(volumeUUID(s.cluster, q.GetName()))
	if err != nil {
		return nil, err
	}
	defer release()
	return s.service.CreateVolume(ctx, q)
}

// DeleteVolume has the volume alone.
func (s *Server) DeleteVolume(ctx context.Context, q *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	release, err := s.lock(q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	return s.service.DeleteVolume(ctx, q)
}

// CreateSnapshot has the snapshot alone.
func (s *Server) CreateSnapshot(ctx context.Context, q *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	release, err := s.calls.Alone("snapshot " + s.snapshotObject(q.GetName()))
	if err != nil {
		return nil, err
	}
	defer release()
	return s.service.CreateSnapshot(ctx, q)
}

// DeleteSnapshot has the snapshot alone.
func (s *Server) DeleteSnapshot(ctx context.Context, q *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	_, name, _ := strings.Cut(q.GetSnapshotId(), "/")
	release, err := s.calls.Alone("snapshot " + name)
	if err != nil {
		return nil, err
	}
	defer release()
	return s.service.DeleteSnapshot(ctx, q)
}

// CreateVolumeGroupSnapshot has the group alone.
func (s *Server) CreateVolumeGroupSnapshot(
	ctx context.Context, q *csi.CreateVolumeGroupSnapshotRequest,
) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	release, err := s.calls.Alone("group " + s.groupID(q.GetName()))
	if err != nil {
		return nil, err
	}
	defer release()
	return s.service.CreateVolumeGroupSnapshot(ctx, q)
}

// DeleteVolumeGroupSnapshot has the group alone.
func (s *Server) DeleteVolumeGroupSnapshot(
	ctx context.Context, q *csi.DeleteVolumeGroupSnapshotRequest,
) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	release, err := s.calls.Alone("group " + q.GetGroupSnapshotId())
	if err != nil {
		return nil, err
	}
	defer release()
	return s.service.DeleteVolumeGroupSnapshot(ctx, q)
}

// ControllerExpandVolume has the volume alone.
func (s *Server) ControllerExpandVolume(
	ctx context.Context, q *csi.ControllerExpandVolumeRequest,
) (*csi.ControllerExpandVolumeResponse, error) {
	release, err := s.lock(q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	return s.service.ControllerExpandVolume(ctx, q)
}

// ControllerModifyVolume has the volume alone.
func (s *Server) ControllerModifyVolume(
	ctx context.Context, q *csi.ControllerModifyVolumeRequest,
) (*csi.ControllerModifyVolumeResponse, error) {
	release, err := s.lock(q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	return s.service.ControllerModifyVolume(ctx, q)
}

// ControllerPublishVolume has the node of the volume alone; a mode that allows one node has the
// whole volume alone.
func (s *Server) ControllerPublishVolume(
	ctx context.Context, q *csi.ControllerPublishVolumeRequest,
) (*csi.ControllerPublishVolumeResponse, error) {
	release, err := s.lockNode(q.GetVolumeId(), q.GetNodeId(), rpc.OneNode(q.GetVolumeCapability()))
	if err != nil {
		return nil, err
	}
	defer release()
	return s.service.ControllerPublishVolume(ctx, q)
}

// ControllerUnpublishVolume has the node of the volume alone; without a node, which means all
// nodes, it has the whole volume alone.
func (s *Server) ControllerUnpublishVolume(
	ctx context.Context, q *csi.ControllerUnpublishVolumeRequest,
) (*csi.ControllerUnpublishVolumeResponse, error) {
	release, err := s.lockNode(q.GetVolumeId(), q.GetNodeId(), q.GetNodeId() == "")
	if err != nil {
		return nil, err
	}
	defer release()
	return s.service.ControllerUnpublishVolume(ctx, q)
}

// lock takes a volume alone. It takes nothing for a handle that names no volume of this federation.
func (s *Server) lock(handle string) (release func(), err error) {
	return s.lockNode(handle, "", true)
}

// lockNode takes a node of a volume alone, or with whole the volume alone.
func (s *Server) lockNode(handle, node string, whole bool) (release func(), err error) {
	volume, err := rpc.VolumeID(handle, s.cfg.Federation)
	if err != nil {
		return func() {}, nil
	}
	if whole {
		return s.calls.Alone(volume)
	}
	releaseVolume, err := s.calls.Shared(volume)
	if err != nil {
		return nil, err
	}
	releaseNode, err := s.calls.Alone(volume + " and node " + node)
	if err != nil {
		releaseVolume()
		return nil, err
	}
	return func() { releaseNode(); releaseVolume() }, nil
}
