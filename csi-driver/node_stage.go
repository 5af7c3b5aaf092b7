// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodeStageVolume implements csi.NodeServer: it has the node admitted, and mounts the volume from the gateway.
func (n *Node) NodeStageVolume(ctx context.Context, q *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, missing("volume_id")
	}
	path, err := where("staging_target_path", q.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	if err := checkCapability("volume_capability", q.GetVolumeCapability()); err != nil {
		return nil, err
	}
	flags, err := parseMountFlags(q.GetVolumeCapability().GetMount().GetMountFlags())
	if err != nil {
		return nil, err
	}
	id, err := n.id(q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	done, err := n.calls.alone(path)
	if err != nil {
		return nil, err
	}
	defer done()

	// Also when it is mounted: it may have been detached and attached since.
	x, err := n.cfg.Gateway.Admit(ctx, AdmitRequest{Volume: id, Node: n.cfg.Node, MountGroup: mountGroup(q.GetVolumeCapability(), flags.readOnly)})
	if err != nil {
		return nil, fromPort(err, "ask the gateway to admit node %s to volume %s", n.cfg.Node, q.GetVolumeId())
	}
	mounts, err := n.mounts()
	if err != nil {
		return nil, err
	}
	if m, ok := at(mounts, path); ok {
		if !isExport(m, x) {
			return nil, status.Errorf(codes.FailedPrecondition, "stage volume %s: something else is mounted: %v: unmount it", q.GetVolumeId(), m)
		}
		return &csi.NodeStageVolumeResponse{}, nil
	}
	if err := n.cfg.SetIdentifier(n.cfg.Cluster + "/" + n.cfg.NodeUID); err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "node %s: %v", n.cfg.Node, err)
	}
	addr, err := n.resolve(ctx, x.Host)
	if err != nil {
		return nil, err
	}
	if err := n.cfg.Mounter.Directory(path, true); err != nil {
		return nil, status.Errorf(codes.Internal, "stage volume %s: %v", q.GetVolumeId(), err)
	}
	if err := n.mount(ctx, path, addr, x, flags); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// mountGroup is the group to pass on. Who only reads changes nobody's permissions.
func mountGroup(c *csi.VolumeCapability, readOnly bool) string {
	if readOnly || onlyReads(c) {
		return ""
	}
	return c.GetMount().GetVolumeMountGroup()
}

// isExport tells whether m shows the export. The address is not compared: it is this site's, and a mount that is there works on.
func isExport(m MountPoint, x Export) bool { return strings.HasSuffix(m.Source, ":"+x.Path) }

// mount mounts an export, with the newest version of NFS that both sides speak.
func (n *Node) mount(ctx context.Context, path string, addr netip.Addr, x Export, f mountFlags) error {
	versions := []string{"4.2", "4.1"}
	if f.version != "" {
		versions = []string{f.version}
	}
	source := mountSource(addr, x.Path)
	var err error
	for _, v := range versions {
		data := mountData(v, addr, x.Port, n.cfg.NConnect, f)
		err = n.patience.mount(ctx, path, fmt.Sprintf("mount of %s at %s", source, path), func() error {
			return n.cfg.Mounter.Mount(source, path, f.vfs, data)
		})
		if err == nil || !refusedVersion(err) {
			break
		}
	}
	return kernelError(err, "mount "+source+" at "+path)
}

// refusedVersion tells whether the kernel or the gateway does not speak the version of NFS that was asked for.
func refusedVersion(err error) bool {
	return errors.Is(err, syscall.EPROTONOSUPPORT) || errors.Is(err, syscall.EINVAL)
}

// kernelError makes a status of what a mount returned. What may still happen must not have a final code, or the kubelet would
// forget about it.
func kernelError(err error, what string) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	code, remedy := codes.Unavailable, "the gateway may be away; ask again"
	switch {
	case errors.Is(err, errHangs):
		code = codes.DeadlineExceeded
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		code, remedy = codes.PermissionDenied, "the gateway does not let this node's address use the volume, or the node plugin is not privileged"
	case errors.Is(err, syscall.ENODEV):
		code, remedy = codes.FailedPrecondition, "the node's kernel has no NFS client: install the module nfsv4 of its kernel"
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EPROTONOSUPPORT):
		code, remedy = codes.Internal, "the node's kernel does not take these options; the kernel's log says which"
	}
	return status.Errorf(code, "%s: %v: %s", what, err, remedy)
}

// NodeUnstageVolume implements csi.NodeServer. The gateway is not asked: it may be what is away.
func (n *Node) NodeUnstageVolume(ctx context.Context, q *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, missing("volume_id")
	}
	path, err := where("staging_target_path", q.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	done, err := n.calls.alone(path)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := n.unmount(ctx, path); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}
