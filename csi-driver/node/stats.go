// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/csi-driver/health"
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
	"github.com/weir-storage/weir/csi-driver/mount"
)

// NodeGetVolumeStats implements csi.NodeServer. It asks the gateway: statfs would hang while the
// gateway is away, and knows no more.
func (s *service) NodeGetVolumeStats(ctx context.Context, q *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	switch {
	case q.GetVolumeId() == "":
		return nil, rpc.Missing("volume_id")
	case q.GetVolumePath() == "":
		return nil, rpc.Missing("volume_path")
	}
	id, err := rpc.VolumeID(q.GetVolumeId(), s.cfg.Federation)
	if err != nil {
		return nil, err
	}
	if ok, err := s.isMounted(q.GetVolumePath()); err != nil {
		return nil, err
	} else if !ok {
		return nil, status.Errorf(codes.NotFound, "volume %s is not mounted at %s", q.GetVolumeId(), q.GetVolumePath())
	}
	u, err := s.cfg.Gateway.Usage(ctx, id)
	if err != nil {
		return nil, rpc.FromPort(err, "ask the gateway about volume %s", q.GetVolumeId())
	}
	if u.Unknown { // zero would say that the volume is empty
		why := "its home does not answer"
		if u.Problem != nil && u.Problem.Message != "" {
			why = u.Problem.Message
		}
		return nil, status.Errorf(codes.Unavailable, "volume %s: it is not known how full it is: %s", q.GetVolumeId(), why)
	}
	r := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: u.TotalBytes, Used: u.UsedBytes, Available: max(0, u.AvailableBytes)}}}
	if u.TotalInodes > 0 {
		r.Usage = append(r.Usage, &csi.VolumeUsage{
			Unit: csi.VolumeUsage_INODES, Total: u.TotalInodes, Used: u.UsedInodes, Available: max(0, u.AvailableInodes)})
	}
	health.SetCondition(r, u.Problem)
	return r, nil
}

// NodeGetVolumeHealth implements csi.NodeServer.
func (s *service) NodeGetVolumeHealth(ctx context.Context, q *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, rpc.Missing("volume_id")
	}
	id, err := rpc.VolumeID(q.GetVolumeId(), s.cfg.Federation)
	if err != nil {
		return nil, err
	}
	answer := func(p *health.Problem) (*csi.NodeGetVolumeHealthResponse, error) {
		return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health.Message(q.GetVolumeId(), p)}, nil
	}
	for _, path := range []string{q.GetStagingTargetPath(), q.GetVolumePublishPath()} {
		if path == "" {
			continue
		}
		if ok, err := s.isMounted(path); err != nil {
			return nil, err
		} else if !ok {
			return answer(&health.Problem{Inaccessible: true, Reason: "NotMounted", Message: "it is not mounted at " + path})
		}
	}
	u, err := s.cfg.Gateway.Usage(ctx, id)
	if code := status.Code(rpc.FromPort(err, "")); err != nil && code == codes.NotFound {
		return nil, rpc.FromPort(err, "ask the gateway about volume %s", q.GetVolumeId())
	}
	if err != nil {
		return answer(&health.Problem{Inaccessible: true, Reason: "GatewayUnavailable",
			Message: "the site's gateway does not say how the volume is: " + err.Error()})
	}
	return answer(u.Problem)
}

// isMounted reports whether anything is mounted at a path. Nothing is at a path that is not
// absolute, for which csi-test asks.
func (s *service) isMounted(path string) (bool, error) {
	mounts, err := s.mounts()
	if err != nil {
		return false, err
	}
	path, err = cleanPath("volume_path", path)
	if err != nil {
		return false, nil
	}
	_, ok := mount.At(mounts, path)
	return ok, nil
}
