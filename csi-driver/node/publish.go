// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/csi-driver/internal/rpc"
	"github.com/weir-storage/weir/csi-driver/mount"
)

// Keys that the kubelet adds to the volume context, with podInfoOnMount.
const (
	podNamespace = "csi.storage.k8s.io/pod.namespace"
	ephemeral    = "csi.storage.k8s.io/ephemeral"
)

// subpaths is in the paths where the kubelet binds parts of a volume that is published already.
const subpaths = "/volume-subpaths/"

// publication is one volume for one pod.
type publication struct {
	handle, id      string
	staging, target string
	namespace       string
	readOnly        bool
	onePod          bool
}

// onePod reports whether a capability allows one pod only.
func onePod(c *csi.VolumeCapability) bool {
	return rpc.ModeOf(c) == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
}

// NodePublishVolume implements csi.NodeServer (csi-2, csi-3 and csi-4).
func (s *service) NodePublishVolume(ctx context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	p, err := s.publication(q)
	if err != nil {
		return nil, err
	}
	x, err := s.cfg.Gateway.Admit(ctx, AdmitRequest{
		Volume: p.id, Node: s.cfg.Node, Namespace: p.namespace, MountGroup: mountGroup(q.GetVolumeCapability(), p.readOnly),
		TLS: s.cfg.TLSName != ""})
	if err != nil {
		return nil, rpc.FromPort(err, "ask the gateway whether pods of namespace %s on node %s may use volume %s",
			p.namespace, s.cfg.Node, p.handle)
	}
	if x.ReadOnly && !p.readOnly {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s can only be read by namespace %s on node %s now: "+
			"use accessModes [ReadOnlyMany]; or, if others read it on this node, wait until their pods are gone",
			p.handle, p.namespace, s.cfg.Node)
	}
	if err := s.publish(ctx, p, x); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// publication checks a request.
func (s *service) publication(q *csi.NodePublishVolumeRequest) (p publication, err error) {
	if q.GetVolumeId() == "" {
		return p, rpc.Missing("volume_id")
	}
	if p.target, err = cleanPath("target_path", q.GetTargetPath()); err != nil {
		return p, err
	}
	if err := rpc.CheckCapability("volume_capability", q.GetVolumeCapability()); err != nil {
		return p, err
	}
	if p.staging, err = cleanPath("staging_target_path", q.GetStagingTargetPath()); err != nil {
		return p, err
	}
	if q.GetVolumeContext()[ephemeral] == "true" {
		return p, status.Error(codes.InvalidArgument, "a pod's own volume (volumes[].csi) was asked for: use a PersistentVolumeClaim")
	}
	if p.namespace = q.GetVolumeContext()[podNamespace]; p.namespace == "" {
		return p, status.Errorf(codes.InvalidArgument,
			"volume_context has no %s: set podInfoOnMount: true in the CSIDriver object", podNamespace)
	}
	flags, err := rpc.ParseMountFlags(q.GetVolumeCapability().GetMount().GetMountFlags())
	if err != nil {
		return p, err
	}
	p.handle, p.onePod = q.GetVolumeId(), onePod(q.GetVolumeCapability())
	p.readOnly = q.GetReadonly() || flags.ReadOnly || rpc.OnlyReads(q.GetVolumeCapability())
	p.id, err = rpc.VolumeID(p.handle, s.cfg.Federation)
	return p, err
}

// publish makes the target a bind mount of the staged volume.
func (s *service) publish(ctx context.Context, p publication, x Export) error {
	mounts, err := s.mounts()
	if err != nil {
		return err
	}
	staged, ok := mount.At(mounts, p.staging)
	if !ok || !isExport(staged, x) {
		return status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %s: stage it first", p.handle, p.staging)
	}
	for _, m := range mounts {
		same := m.Device == staged.Device && m.Root == staged.Root
		if p.onePod && same && m.Path != p.staging && m.Path != p.target && !strings.Contains(m.Path, subpaths) {
			return status.Errorf(codes.FailedPrecondition,
				"volume %s is published at %s, and access mode SINGLE_NODE_SINGLE_WRITER allows one pod: end it first", p.handle, m.Path)
		}
	}
	now, ok := mount.At(mounts, p.target)
	switch {
	case ok && (now.Device != staged.Device || now.Root != staged.Root):
		return status.Errorf(codes.FailedPrecondition, "publish volume %s: something else is mounted: %v: unpublish it first",
			p.handle, now)
	case ok && now.ReadOnly() && !p.readOnly && !staged.ReadOnly():
		return status.Errorf(codes.AlreadyExists, "volume %s is published at %s read-only: unpublish it first", p.handle, p.target)
	case !ok:
		if err := s.bind(ctx, p); err != nil {
			return err
		}
	}
	if !p.readOnly {
		return nil
	}
	if err := s.makeReadOnly(ctx, p.target); err != nil {
		// No pod may find a writable mount, and after a final code the kubelet would leave it
		// there.
		if undo := s.unmount(ctx, p.target); undo != nil {
			return status.Errorf(codes.Aborted, "publish volume %s: %v; and %v", p.handle, err, undo)
		}
		return kernelError(err, "publish volume "+p.handle+" read-only")
	}
	return nil
}

// bind binds the staged volume at the target, whose directory it makes.
func (s *service) bind(ctx context.Context, p publication) error {
	if err := s.cfg.Mounter.Directory(p.target, true); err != nil {
		return status.Errorf(codes.Internal, "publish volume %s: %v", p.handle, err)
	}
	err := s.kernel.mount(ctx, p.target, fmt.Sprintf("bind of %s at %s", p.staging, p.target), func() error {
		return s.cfg.Mounter.Bind(p.staging, p.target, false, nil)
	})
	return kernelError(err, "publish volume "+p.handle)
}

// makeReadOnly makes the mount at target read-only, if it is not yet, and looks whether it is then.
func (s *service) makeReadOnly(ctx context.Context, target string) error {
	for range 2 {
		mounts, err := s.mounts()
		if err != nil {
			return err
		}
		m, ok := mount.At(mounts, target)
		if !ok {
			return status.Errorf(codes.Aborted, "%s was unmounted meanwhile", target)
		}
		if m.ReadOnly() {
			return nil
		}
		err = s.kernel.mount(ctx, target, "read-only remount of "+target, func() error {
			return s.cfg.Mounter.Bind("", target, true, m.Options)
		})
		if err != nil {
			return err
		}
	}
	return status.Errorf(codes.Internal, "%s is writable although the kernel was told to make it read-only", target)
}

// NodeUnpublishVolume implements csi.NodeServer.
func (s *service) NodeUnpublishVolume(ctx context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, rpc.Missing("volume_id")
	}
	target, err := cleanPath("target_path", q.GetTargetPath())
	if err != nil {
		return nil, err
	}
	if err := s.unmount(ctx, target); err != nil {
		return nil, err
	}
	if err := s.cfg.Mounter.Directory(target, false); err != nil {
		return nil, status.Errorf(codes.Internal, "unpublish volume %s: %v", q.GetVolumeId(), err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
