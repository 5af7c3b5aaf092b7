// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodeGetVolumeStats implements csi.NodeServer. The gateway is asked: statfs would hang with it, and know no more.
func (n *Node) NodeGetVolumeStats(ctx context.Context, q *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	switch {
	case q.GetVolumeId() == "":
		return nil, missing("volume_id")
	case q.GetVolumePath() == "":
		return nil, missing("volume_path")
	}
	id, err := n.id(q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if ok, err := n.isMounted(q.GetVolumePath()); err != nil {
		return nil, err
	} else if !ok {
		return nil, status.Errorf(codes.NotFound, "volume %s is not mounted at %s", q.GetVolumeId(), q.GetVolumePath())
	}
	u, err := n.cfg.Gateway.Usage(ctx, id)
	if err != nil {
		return nil, fromPort(err, "ask the gateway about volume %s", q.GetVolumeId())
	}
	r := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: u.TotalBytes, Used: u.UsedBytes, Available: max(0, u.AvailableBytes)}}}
	if u.TotalInodes > 0 {
		r.Usage = append(r.Usage, &csi.VolumeUsage{Unit: csi.VolumeUsage_INODES, Total: u.TotalInodes, Used: u.UsedInodes, Available: max(0, u.AvailableInodes)})
	}
	setCondition(r, u.Problem)
	return r, nil
}

// NodeGetVolumeHealth implements csi.NodeServer.
func (n *Node) NodeGetVolumeHealth(ctx context.Context, q *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, missing("volume_id")
	}
	id, err := n.id(q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	h := func(p *Problem) (*csi.NodeGetVolumeHealthResponse, error) {
		return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health(q.GetVolumeId(), p)}, nil
	}
	for _, path := range []string{q.GetStagingTargetPath(), q.GetVolumePublishPath()} {
		if path == "" {
			continue
		}
		if ok, err := n.isMounted(path); err != nil {
			return nil, err
		} else if !ok {
			return h(&Problem{Inaccessible: true, Reason: "NotMounted", Message: "it is not mounted at " + path})
		}
	}
	u, err := n.cfg.Gateway.Usage(ctx, id)
	if code := status.Code(fromPort(err, "")); err != nil && code == codes.NotFound {
		return nil, fromPort(err, "ask the gateway about volume %s", q.GetVolumeId())
	}
	if err != nil {
		return h(&Problem{Inaccessible: true, Reason: "GatewayUnavailable", Message: "the site's gateway does not say how the volume is: " + err.Error()})
	}
	return h(u.Problem)
}

// isMounted tells whether anything is mounted at a path.
func (n *Node) isMounted(path string) (bool, error) {
	mounts, err := n.mounts()
	if err != nil {
		return false, err
	}
	path, err = where("volume_path", path)
	if err != nil {
		return false, nil // sanity asks for "some/path", at which nothing is mounted
	}
	_, ok := at(mounts, path)
	return ok, nil
}
