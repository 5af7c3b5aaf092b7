// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/csi-driver/internal/rpc"
)

// ControllerPublishVolume implements csi.ControllerServer (csi-2 and csi-4).
func (s *service) ControllerPublishVolume(
	ctx context.Context, q *csi.ControllerPublishVolumeRequest,
) (*csi.ControllerPublishVolumeResponse, error) {
	switch {
	case q.GetVolumeId() == "":
		return nil, rpc.Missing("volume_id")
	case q.GetNodeId() == "":
		return nil, rpc.Missing("node_id")
	}
	if err := rpc.CheckCapability("volume_capability", q.GetVolumeCapability()); err != nil {
		return nil, err
	}
	v, err := s.undeleted(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	err = s.cfg.Client.Get(ctx, client.ObjectKey{Name: q.GetNodeId()}, new(corev1.Node))
	if apierrors.IsNotFound(err) {
		return nil, status.Errorf(codes.NotFound, "node %s is not there: this cluster has no Node of that name", q.GetNodeId())
	}
	if err != nil {
		return nil, fromAPI(err, "get Node %s", q.GetNodeId())
	}
	reads := q.GetReadonly() || rpc.OnlyReads(q.GetVolumeCapability())
	readOnly, err := s.authorize(ctx, v, q.GetVolumeId(), q.GetNodeId(), reads)
	if err != nil {
		return nil, err
	}
	if err := s.attachable(ctx, v.Name, q, readOnly); err != nil {
		return nil, err
	}
	// Attach also what is attached already: an earlier call may have written a part only.
	if err := s.cfg.Attachments.Attach(ctx, v.Name, q.GetNodeId(), readOnly); err != nil {
		return nil, rpc.FromPort(err, "attach volume %s to node %s", q.GetVolumeId(), q.GetNodeId())
	}
	return &csi.ControllerPublishVolumeResponse{}, nil
}

// attachable refuses an attachment that contradicts those that the volume has.
func (s *service) attachable(ctx context.Context, volume string, q *csi.ControllerPublishVolumeRequest, readOnly bool) error {
	attached, err := s.cfg.Attachments.List(ctx, volume)
	if err != nil {
		return rpc.FromPort(err, "list attachments of volume %s", q.GetVolumeId())
	}
	for _, a := range attached {
		switch {
		case a.Node == q.GetNodeId() && a.ReadOnly != readOnly:
			return status.Errorf(codes.AlreadyExists,
				"volume %s is attached to node %s with read-only %v, and %v is asked for: end the pods that use it there first",
				q.GetVolumeId(), a.Node, a.ReadOnly, readOnly)
		case a.Node != q.GetNodeId() && rpc.OneNode(q.GetVolumeCapability()):
			return status.Errorf(codes.FailedPrecondition,
				"volume %s is attached to node %s, and access mode %s allows one node: end the pods there, or use ReadWriteMany",
				q.GetVolumeId(), a.Node, rpc.ModeOf(q.GetVolumeCapability()))
		}
	}
	return nil
}

// authorize compares the PersistentVolumes that VolumeAttachments of the node name with the
// Content's claims (csi-2). It returns whether the attachment is read-only: it is when those
// PersistentVolumes and all others of the handle only read (csi-4). A node has one attachment of a
// volume, and may have pods of several of its PersistentVolumes.
func (s *service) authorize(
	ctx context.Context, v *v1alpha1.GeoVolumeContent, handle, node string, reads bool,
) (readOnly bool, err error) {
	if s.cfg.Seen != nil {
		// A cache may trail: what it lacks could only refuse, or make the attachment read-only.
		pvs, vas, err := s.candidates(ctx, handle, node)
		if err == nil && len(vas) > 0 {
			readOnly, err = decide(v, handle, node, reads, pvs, vas)
			if err == nil && (!readOnly || seesWriters(v, pvs)) {
				return readOnly, nil
			}
		}
	}
	pvs, err := s.persistentVolumes(ctx, s.cfg.Client, handle)
	if err != nil {
		return false, err
	}
	var vas storagev1.VolumeAttachmentList
	if err := s.cfg.Client.List(ctx, &vas); err != nil {
		return false, fromAPI(err, "list VolumeAttachments")
	}
	return decide(v, handle, node, reads, pvs, vas.Items)
}

// candidates returns the PersistentVolumes of a handle that the cache knows, and the node's
// VolumeAttachments of them. Those, and their PersistentVolumes, are read again from the API
// server.
func (s *service) candidates(ctx context.Context, handle, node string) (
	pvs []corev1.PersistentVolume, vas []storagev1.VolumeAttachment, err error) {
	if pvs, err = s.persistentVolumes(ctx, s.cfg.Seen, handle); err != nil {
		return nil, nil, err
	}
	var all storagev1.VolumeAttachmentList
	if err := s.cfg.Seen.List(ctx, &all); err != nil {
		return nil, nil, err
	}
	for _, va := range all.Items {
		name := va.Spec.Source.PersistentVolumeName
		if va.Spec.NodeName != node || va.Spec.Attacher != v1alpha1.Driver || name == nil {
			continue
		}
		i := slices.IndexFunc(pvs, func(pv corev1.PersistentVolume) bool { return pv.Name == *name })
		if i < 0 {
			continue
		}
		var pv corev1.PersistentVolume
		if err := s.cfg.Client.Get(ctx, client.ObjectKey{Name: *name}, &pv); err != nil {
			return nil, nil, err
		}
		if c := pv.Spec.CSI; c == nil || c.Driver != v1alpha1.Driver || c.VolumeHandle != handle {
			continue // another of the same name
		}
		pvs[i] = pv
		var now storagev1.VolumeAttachment
		if err := s.cfg.Client.Get(ctx, client.ObjectKey{Name: va.Name}, &now); err != nil {
			return nil, nil, err
		}
		vas = append(vas, now)
	}
	return pvs, vas, nil
}

// decide is authorize with the objects that there are.
func decide(v *v1alpha1.GeoVolumeContent, handle, node string, reads bool, pvs []corev1.PersistentVolume,
	vas []storagev1.VolumeAttachment) (readOnly bool, err error) {
	attachmentOf := make(map[string]string) // a VolumeAttachment's name, by PersistentVolume
	for _, va := range vas {
		name := va.Spec.Source.PersistentVolumeName
		if va.Spec.Attacher == v1alpha1.Driver && va.Spec.NodeName == node && va.DeletionTimestamp == nil && name != nil {
			attachmentOf[*name] = va.Name
		}
	}
	readOnly = reads
	asked := false
	for _, pv := range pvs {
		va, isAsked := attachmentOf[pv.Name]
		asked = asked || isAsked
		access, admitted := v1alpha1.Access(""), false
		if r := pv.Spec.ClaimRef; r != nil {
			access, admitted = accessOf(v, r.Namespace)
		}
		switch {
		case isAsked && !admitted:
			return false, status.Errorf(codes.PermissionDenied,
				"PersistentVolume %s, to which VolumeAttachment %s refers, is %s, which has no claim on volume %s: "+
					"make a GeoVolume there that imports it, and use the PersistentVolumeClaim that this makes",
				pv.Name, va, boundTo(pv), handle)
		case isAsked && access == v1alpha1.ReadOnly && !reads:
			return false, status.Errorf(codes.PermissionDenied,
				"namespace %s may only read volume %s: use accessModes [ReadOnlyMany] in PersistentVolume %s",
				pv.Spec.ClaimRef.Namespace, handle, pv.Name)
		case !isAsked && admitted && access != v1alpha1.ReadOnly && !readsOnly(pv):
			readOnly = false
		}
	}
	if !asked {
		return false, status.Errorf(codes.FailedPrecondition,
			"no VolumeAttachment of node %s refers to a PersistentVolume of volume %s: it is not known for whom it is", node, handle)
	}
	return readOnly, nil
}

// seesWriters reports whether each claim that may write has a PersistentVolume among pvs: then no
// writer is missing in them, of those that were there when the Content was last changed.
func seesWriters(v *v1alpha1.GeoVolumeContent, pvs []corev1.PersistentVolume) bool {
	for _, claim := range v.Spec.Claims {
		if claim.Access != v1alpha1.ReadOnly && !slices.ContainsFunc(pvs, func(pv corev1.PersistentVolume) bool {
			r := pv.Spec.ClaimRef
			return r != nil && r.Namespace == claim.Namespace && r.Name == claim.Name
		}) {
			return false
		}
	}
	return true
}

// accessOf is the most that the claims of a namespace allow.
func accessOf(v *v1alpha1.GeoVolumeContent, namespace string) (access v1alpha1.Access, admitted bool) {
	access = v1alpha1.ReadOnly
	for _, claim := range v.Spec.Claims {
		if claim.Namespace != namespace {
			continue
		}
		admitted = true
		if claim.Access != v1alpha1.ReadOnly {
			access = v1alpha1.ReadWrite
		}
	}
	return access, admitted
}

func boundTo(pv corev1.PersistentVolume) string {
	if r := pv.Spec.ClaimRef; r != nil {
		return "bound to claim " + r.Name + " of namespace " + r.Namespace
	}
	return "bound to no claim"
}

func readsOnly(pv corev1.PersistentVolume) bool {
	writes := func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadOnlyMany }
	return pv.Spec.CSI.ReadOnly || !slices.ContainsFunc(pv.Spec.AccessModes, writes)
}

// ControllerUnpublishVolume implements csi.ControllerServer (csi-3). Without a node it detaches the
// volume from all nodes.
func (s *service) ControllerUnpublishVolume(
	ctx context.Context, q *csi.ControllerUnpublishVolumeRequest,
) (*csi.ControllerUnpublishVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, rpc.Missing("volume_id")
	}
	id, err := rpc.VolumeID(q.GetVolumeId(), s.cfg.Federation)
	if err != nil {
		return &csi.ControllerUnpublishVolumeResponse{}, nil // nothing of that name is attached
	}
	nodes := []string{q.GetNodeId()}
	if q.GetNodeId() == "" {
		attached, err := s.cfg.Attachments.List(ctx, id)
		if err != nil {
			return nil, rpc.FromPort(err, "list attachments of volume %s", q.GetVolumeId())
		}
		nodes = nil
		for _, a := range attached {
			nodes = append(nodes, a.Node)
		}
	}
	for _, node := range nodes {
		// Detach also what is not attached: an earlier call may have removed the attachment and
		// ended before the gateway fenced the node.
		if err := s.cfg.Attachments.Detach(ctx, id, node); err != nil {
			return nil, rpc.FromPort(err, "detach volume %s from node %s", q.GetVolumeId(), node)
		}
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}
