// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/csi-driver/internal/rpc"
	"github.com/weir-storage/weir/csi-driver/mount"
)

// NodeStageVolume implements csi.NodeServer. It asks the gateway to admit the node and mounts the
// volume.
func (s *service) NodeStageVolume(ctx context.Context, q *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, rpc.Missing("volume_id")
	}
	path, err := cleanPath("staging_target_path", q.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	if err := rpc.CheckCapability("volume_capability", q.GetVolumeCapability()); err != nil {
		return nil, err
	}
	flags, err := rpc.ParseMountFlags(q.GetVolumeCapability().GetMount().GetMountFlags())
	if err != nil {
		return nil, err
	}
	id, err := rpc.VolumeID(q.GetVolumeId(), s.cfg.Federation)
	if err != nil {
		return nil, err
	}
	// A volume that is mounted already may have been detached and attached since: it asks again.
	x, err := s.cfg.Gateway.Admit(ctx, AdmitRequest{
		Volume: id, Node: s.cfg.Node, MountGroup: mountGroup(q.GetVolumeCapability(), flags.ReadOnly),
		TLS: s.cfg.TLSName != ""})
	if err != nil {
		return nil, rpc.FromPort(err, "ask the gateway to admit node %s to volume %s", s.cfg.Node, q.GetVolumeId())
	}
	mounts, err := s.mounts()
	if err != nil {
		return nil, err
	}
	if m, ok := mount.At(mounts, path); ok {
		if !isExport(m, x) {
			return nil, status.Errorf(codes.FailedPrecondition, "stage volume %s: something else is mounted: %v: unmount it",
				q.GetVolumeId(), m)
		}
		return &csi.NodeStageVolumeResponse{}, nil
	}
	if err := s.cfg.SetIdentifier(s.cfg.Cluster + "/" + s.cfg.NodeUID); err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "node %s: %v", s.cfg.Node, err)
	}
	addr, err := s.resolve(ctx, x.Host)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Mounter.Directory(path, true); err != nil {
		return nil, status.Errorf(codes.Internal, "stage volume %s: %v", q.GetVolumeId(), err)
	}
	if err := s.mount(ctx, path, addr, x, flags); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// mountGroup is the group to send to the gateway. A pod that only reads changes nobody's
// permissions.
func mountGroup(c *csi.VolumeCapability, readOnly bool) string {
	if readOnly || rpc.OnlyReads(c) {
		return ""
	}
	return c.GetMount().GetVolumeMountGroup()
}

// mount mounts an export, with the newest version of NFS that both sides speak.
func (s *service) mount(ctx context.Context, path string, addr netip.Addr, x Export, f rpc.MountFlags) error {
	versions := []string{"4.2", "4.1"}
	if f.Version != "" {
		versions = []string{f.Version}
	}
	source := mountSource(addr, s.cfg.TLSName, x.Path)
	var err error
	for _, v := range versions {
		data := mountData(v, addr, x.Port, s.cfg.NConnect, s.cfg.TLSName != "", f.NFS)
		err = s.kernel.mount(ctx, path, fmt.Sprintf("mount of %s at %s", source, path), func() error {
			return s.cfg.Mounter.Mount(source, path, f.VFS, data)
		})
		if err == nil || !refusedVersion(err) {
			break
		}
	}
	if err = kernelError(err, "mount "+source+" at "+path); err != nil && s.cfg.TLSName != "" {
		return status.Errorf(status.Code(err), "%s; mounts of this node begin TLS (xprtsec=mtls), so that it needs tlshd with a "+
			"certificate: `weir preflight --nfs-tls` on it says what is missing; if volumes of this gateway are mounted in the clear "+
			"here, drain the node first", status.Convert(err).Message())
	}
	return err
}

// refusedVersion reports whether the kernel or the gateway does not speak the version of NFS that
// the mount asked for.
func refusedVersion(err error) bool {
	return errors.Is(err, syscall.EPROTONOSUPPORT) || errors.Is(err, syscall.EINVAL)
}

// kernelError makes a status of a mount's error. A mount that may still happen gets no final code:
// after one the kubelet would forget it.
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
		code = codes.PermissionDenied
		remedy = "the gateway does not let this node's address use the volume, or the node plugin is not privileged"
	case errors.Is(err, syscall.ENODEV):
		code, remedy = codes.FailedPrecondition, "the node's kernel has no NFS client: install the module nfsv4 of its kernel"
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EPROTONOSUPPORT):
		code, remedy = codes.Internal, "the node's kernel does not take these options; the kernel's log says which"
	}
	return status.Errorf(code, "%s: %v: %s", what, err, remedy)
}

// NodeUnstageVolume implements csi.NodeServer. It does not ask the gateway, which may be away.
func (s *service) NodeUnstageVolume(ctx context.Context, q *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, rpc.Missing("volume_id")
	}
	path, err := cleanPath("staging_target_path", q.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	if err := s.unmount(ctx, path); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}
