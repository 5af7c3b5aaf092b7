// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What the kubelet adds to the volume context, with podInfoOnMount.
const (
	podNamespace = "csi.storage.k8s.io/pod.namespace"
	ephemeral    = "csi.storage.k8s.io/ephemeral"
)

// subpaths are directories where the kubelet binds parts of a volume that is published already.
const subpaths = "/volume-subpaths/"

// NodePublishVolume implements csi.NodeServer: rules 2, 3 and 4.
func (n *Node) NodePublishVolume(ctx context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, missing("volume_id")
	}
	target, err := where("target_path", q.GetTargetPath())
	if err != nil {
		return nil, err
	}
	if err := checkCapability("volume_capability", q.GetVolumeCapability()); err != nil {
		return nil, err
	}
	staging, err := where("staging_target_path", q.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	if q.GetVolumeContext()[ephemeral] == "true" {
		return nil, status.Error(codes.InvalidArgument, "a pod's own volume (volumes[].csi) was asked for: use a PersistentVolumeClaim")
	}
	namespace := q.GetVolumeContext()[podNamespace]
	if namespace == "" {
		return nil, status.Errorf(codes.InvalidArgument, "volume_context has no %s: set podInfoOnMount: true in the CSIDriver object", podNamespace)
	}
	flags, err := parseMountFlags(q.GetVolumeCapability().GetMount().GetMountFlags())
	if err != nil {
		return nil, err
	}
	id, err := n.id(q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	// Of two that want to be the only one, one is first; and nobody unstages meanwhile.
	one := modeOf(q.GetVolumeCapability()) == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	stage := n.calls.shared
	if one {
		stage = n.calls.alone
	}
	staged, err := stage(staging)
	if err != nil {
		return nil, err
	}
	defer staged()
	done, err := n.calls.alone(target)
	if err != nil {
		return nil, err
	}
	defer done()
	readOnly := q.GetReadonly() || flags.readOnly || onlyReads(q.GetVolumeCapability())
	x, err := n.cfg.Gateway.Admit(ctx, AdmitRequest{
		Volume: id, Node: n.cfg.Node, Namespace: namespace, MountGroup: mountGroup(q.GetVolumeCapability(), readOnly)})
	if err != nil {
		return nil, fromPort(err, "ask the gateway whether pods of namespace %s on node %s may use volume %s", namespace, n.cfg.Node, q.GetVolumeId())
	}
	if x.ReadOnly && !readOnly {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s can only be read by namespace %s on node %s now: use accessModes [ReadOnlyMany]; "+
			"or, if others read it on this node, wait until their pods are gone", q.GetVolumeId(), namespace, n.cfg.Node)
	}
	if err := n.publish(ctx, q.GetVolumeId(), x, staging, target, readOnly, one); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// publish makes the target a bind mount of the staged volume.
func (n *Node) publish(ctx context.Context, handle string, x Export, staging, target string, readOnly, one bool) error {
	mounts, err := n.mounts()
	if err != nil {
		return err
	}
	staged, ok := at(mounts, staging)
	if !ok || !isExport(staged, x) {
		return status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %s: stage it first", handle, staging)
	}
	for _, m := range mounts {
		if one && m.Device == staged.Device && m.Root == staged.Root && m.Path != staging && m.Path != target && !strings.Contains(m.Path, subpaths) {
			return status.Errorf(codes.FailedPrecondition, "volume %s is published at %s, and access mode SINGLE_NODE_SINGLE_WRITER allows one pod: end it first", handle, m.Path)
		}
	}
	now, ok := at(mounts, target)
	switch {
	case ok && (now.Device != staged.Device || now.Root != staged.Root):
		return status.Errorf(codes.FailedPrecondition, "publish volume %s: something else is mounted: %v: unpublish it first", handle, now)
	case ok && now.ReadOnly() && !readOnly && !staged.ReadOnly():
		return status.Errorf(codes.AlreadyExists, "volume %s is published at %s read-only: unpublish it first", handle, target)
	case !ok:
		if err := n.cfg.Mounter.Directory(target, true); err != nil {
			return status.Errorf(codes.Internal, "publish volume %s: %v", handle, err)
		}
		err := n.patience.mount(ctx, target, fmt.Sprintf("bind of %s at %s", staging, target), func() error {
			return n.cfg.Mounter.Bind(staging, target, false, nil)
		})
		if err != nil {
			return kernelError(err, "publish volume "+handle)
		}
	}
	if !readOnly {
		return nil
	}
	if err := n.makeReadOnly(ctx, target); err != nil {
		// A pod must not find it writable, and a kubelet that takes the error for final would leave it.
		if undo := n.unmount(ctx, target); undo != nil {
			return status.Errorf(codes.Aborted, "publish volume %s: %v; and %v", handle, err, undo)
		}
		return kernelError(err, "publish volume "+handle+" read-only")
	}
	return nil
}

// makeReadOnly changes the mount at target if it is not read-only yet, and looks whether it is.
func (n *Node) makeReadOnly(ctx context.Context, target string) error {
	for range 2 {
		mounts, err := n.mounts()
		if err != nil {
			return err
		}
		m, ok := at(mounts, target)
		if !ok {
			return status.Errorf(codes.Aborted, "%s was unmounted meanwhile", target)
		}
		if m.ReadOnly() {
			return nil
		}
		err = n.patience.mount(ctx, target, "read-only remount of "+target, func() error { return n.cfg.Mounter.Bind("", target, true, m.Options) })
		if err != nil {
			return err
		}
	}
	return status.Errorf(codes.Internal, "%s is writable although the kernel was told to make it read-only", target)
}

// NodeUnpublishVolume implements csi.NodeServer.
func (n *Node) NodeUnpublishVolume(ctx context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, missing("volume_id")
	}
	target, err := where("target_path", q.GetTargetPath())
	if err != nil {
		return nil, err
	}
	done, err := n.calls.alone(target)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := n.unmount(ctx, target); err != nil {
		return nil, err
	}
	if err := n.cfg.Mounter.Directory(target, false); err != nil {
		return nil, status.Errorf(codes.Internal, "unpublish volume %s: %v", q.GetVolumeId(), err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
