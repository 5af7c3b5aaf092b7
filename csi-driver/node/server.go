// SPDX-License-Identifier: Apache-2.0

// Package node is the node server of Weir's CSI driver: it stages volumes, which mounts them from
// the site's gateway, and publishes them to pods, which binds the staged mount. One process of it
// is on every node. The rules csi-2 to csi-8, to which comments here refer, are in package
// csidriver.
package node

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

// Server is the node server. It locks the paths that a call is about (csi-8) around the call, and
// leaves all else to service, which takes no lock. Calls that change nothing are service's own. Any
// number of goroutines may use it; a node has one process of it.
type Server struct {
	service
	calls rpc.InFlight
}

var _ csi.NodeServer = (*Server)(nil)

// NewServer checks the configuration.
func NewServer(cfg Config) (*Server, error) {
	s, err := newService(cfg)
	if err != nil {
		return nil, err
	}
	return &Server{service: s}, nil
}

// NodeStageVolume has the staging path alone.
func (s *Server) NodeStageVolume(ctx context.Context, q *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	release, err := lock(s.calls.Alone, q.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	defer release()
	return s.service.NodeStageVolume(ctx, q)
}

// NodeUnstageVolume has the staging path alone.
func (s *Server) NodeUnstageVolume(ctx context.Context, q *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	release, err := lock(s.calls.Alone, q.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	defer release()
	return s.service.NodeUnstageVolume(ctx, q)
}

// NodePublishVolume has the target path alone. It shares the staging path with other publications,
// so that nobody unstages the volume meanwhile; a pod that must be the only one has that path
// alone, so that of two such pods one comes first.
func (s *Server) NodePublishVolume(ctx context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	take := s.calls.Shared
	if onePod(q.GetVolumeCapability()) {
		take = s.calls.Alone
	}
	releaseStaging, err := lock(take, q.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	defer releaseStaging()
	release, err := lock(s.calls.Alone, q.GetTargetPath())
	if err != nil {
		return nil, err
	}
	defer release()
	return s.service.NodePublishVolume(ctx, q)
}

// NodeUnpublishVolume has the target path alone.
func (s *Server) NodeUnpublishVolume(ctx context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	release, err := lock(s.calls.Alone, q.GetTargetPath())
	if err != nil {
		return nil, err
	}
	defer release()
	return s.service.NodeUnpublishVolume(ctx, q)
}

// lock takes a path of a request. It takes nothing for a path that service will refuse.
func lock(take func(key string) (release func(), err error), path string) (release func(), err error) {
	key, err := cleanPath("", path)
	if err != nil {
		return func() {}, nil
	}
	return take(key)
}
