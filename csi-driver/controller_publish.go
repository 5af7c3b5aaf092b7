// SPDX-License-Identifier: Apache-2.0

package csidriver

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
)

// ControllerPublishVolume implements csi.ControllerServer: rules 2 and 4.
func (c *Controller) ControllerPublishVolume(ctx context.Context, q *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	switch {
	case q.GetVolumeId() == "":
		return nil, missing("volume_id")
	case q.GetNodeId() == "":
		return nil, missing("node_id")
	}
	if err := checkCapability("volume_capability", q.GetVolumeCapability()); err != nil {
		return nil, err
	}
	v, err := c.content(ctx, q.GetVolumeId())
	if err != nil {
		return nil, err
	}
	done, err := c.holdNode(v.Name, q.GetNodeId(), slices.Contains(singleNode, modeOf(q.GetVolumeCapability())))
	if err != nil {
		return nil, err
	}
	defer done()
	if v.DeletionTimestamp != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is being deleted", q.GetVolumeId())
	}
	err = c.cfg.Client.Get(ctx, client.ObjectKey{Name: q.GetNodeId()}, new(corev1.Node))
	if apierrors.IsNotFound(err) {
		return nil, status.Errorf(codes.NotFound, "node %s is not there: this cluster has no Node of that name", q.GetNodeId())
	}
	if err != nil {
		return nil, fromAPI(err, "get Node %s", q.GetNodeId())
	}
	reads := q.GetReadonly() || onlyReads(q.GetVolumeCapability())
	readOnly, err := c.authorize(ctx, v, q.GetVolumeId(), q.GetNodeId(), reads)
	if err != nil {
		return nil, err
	}
	attached, err := c.cfg.Attachments.List(ctx, v.Name)
	if err != nil {
		return nil, fromPort(err, "list attachments of volume %s", q.GetVolumeId())
	}
	for _, a := range attached {
		switch {
		case a.Node == q.GetNodeId() && a.ReadOnly != readOnly:
			return nil, status.Errorf(codes.AlreadyExists, "volume %s is attached to node %s with read-only %v, and %v is asked for: end the pods that use it there first",
				q.GetVolumeId(), a.Node, a.ReadOnly, readOnly)
		case a.Node != q.GetNodeId() && slices.Contains(singleNode, modeOf(q.GetVolumeCapability())):
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to node %s, and access mode %s allows one node: end the pods there, or use ReadWriteMany",
				q.GetVolumeId(), a.Node, modeOf(q.GetVolumeCapability()))
		}
	}
	// Also when it is attached: what was written before may not be all.
	if err := c.cfg.Attachments.Attach(ctx, v.Name, q.GetNodeId(), readOnly); err != nil {
		return nil, fromPort(err, "attach volume %s to node %s", q.GetVolumeId(), q.GetNodeId())
	}
	return &csi.ControllerPublishVolumeResponse{}, nil
}

// holdNode is rule 8: what allows one node has the volume alone, anything else one node of it.
func (c *Controller) holdNode(volume, node string, one bool) (func(), error) {
	if one {
		return c.calls.alone(volume)
	}
	first, err := c.calls.shared(volume)
	if err != nil {
		return nil, err
	}
	second, err := c.calls.alone(volume + " and node " + node)
	if err != nil {
		first()
		return nil, err
	}
	return func() { second(); first() }, nil
}

// authorize holds the PersistentVolumes for which the node is to be attached against the Content's claims, and says whether the attachment
// is read-only: when those and all others of the handle only read. A node has one attachment, but may have pods of several of them.
func (c *Controller) authorize(ctx context.Context, v *v1alpha1.GeoVolumeContent, handle, node string, reads bool) (readOnly bool, err error) {
	pvs, err := c.persistentVolumes(ctx, handle)
	if err != nil {
		return false, err
	}
	var vas storagev1.VolumeAttachmentList
	if err := c.cfg.Client.List(ctx, &vas); err != nil {
		return false, fromAPI(err, "list VolumeAttachments")
	}
	refersTo := make(map[string]string)
	for _, va := range vas.Items {
		if s := va.Spec; s.Attacher == v1alpha1.Driver && s.NodeName == node && va.DeletionTimestamp == nil && s.Source.PersistentVolumeName != nil {
			refersTo[*s.Source.PersistentVolumeName] = va.Name
		}
	}
	readOnly = reads
	asked := false
	for _, pv := range pvs {
		va, isAsked := refersTo[pv.Name]
		asked = asked || isAsked
		access, admitted := v1alpha1.Access(""), false
		if r := pv.Spec.ClaimRef; r != nil {
			access, admitted = accessOf(v, r.Namespace)
		}
		switch {
		case isAsked && !admitted:
			return false, status.Errorf(codes.PermissionDenied, "PersistentVolume %s, to which VolumeAttachment %s refers, is %s, which has no claim on volume %s: "+
				"make a GeoVolume there that imports it, and use the PersistentVolumeClaim that this makes", pv.Name, va, boundTo(pv), handle)
		case isAsked && access == v1alpha1.ReadOnly && !reads:
			return false, status.Errorf(codes.PermissionDenied, "namespace %s may only read volume %s: use accessModes [ReadOnlyMany] in PersistentVolume %s",
				pv.Spec.ClaimRef.Namespace, handle, pv.Name)
		case !isAsked && admitted && access != v1alpha1.ReadOnly && !readsOnly(pv):
			readOnly = false
		}
	}
	if !asked {
		return false, status.Errorf(codes.FailedPrecondition, "no VolumeAttachment of node %s refers to a PersistentVolume of volume %s: it is not known for whom it is", node, handle)
	}
	return readOnly, nil
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
	return pv.Spec.CSI.ReadOnly || !slices.ContainsFunc(pv.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadOnlyMany })
}

// ControllerUnpublishVolume implements csi.ControllerServer: rule 3.
func (c *Controller) ControllerUnpublishVolume(ctx context.Context, q *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, missing("volume_id")
	}
	federation, id, ok := parseHandle(q.GetVolumeId())
	if !ok || federation != c.cfg.Federation {
		return &csi.ControllerUnpublishVolumeResponse{}, nil // nothing of that name can be attached
	}
	nodes := []string{q.GetNodeId()}
	done, err := c.holdNode(id, q.GetNodeId(), q.GetNodeId() == "")
	if err != nil {
		return nil, err
	}
	defer done()
	if q.GetNodeId() == "" {
		attached, err := c.cfg.Attachments.List(ctx, id)
		if err != nil {
			return nil, fromPort(err, "list attachments of volume %s", q.GetVolumeId())
		}
		nodes = nil
		for _, a := range attached {
			nodes = append(nodes, a.Node)
		}
	}
	for _, node := range nodes {
		// Whether it is listed does not matter: an earlier try may have removed the attachment and died before the fence.
		if err := c.cfg.Attachments.Detach(ctx, id, node); err != nil {
			return nil, fromPort(err, "detach volume %s from node %s", q.GetVolumeId(), node)
		}
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}
