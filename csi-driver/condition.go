// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// Problem is why a volume is not well.
type Problem struct {
	// Inaccessible: reads or all writes wait or fail. Otherwise the volume is used as ever, with less than what was asked for behind it.
	Inaccessible bool
	Reason       string // one word in CamelCase
	Message      string
}

// mild lists reasons of a Ready condition that is not True with which the volume goes on being used.
var mild = map[string]bool{
	v1alpha1.ReasonRegistryUnavailable: true,
	v1alpha1.ReasonUpdating:            true,
	v1alpha1.ReasonNotOwner:            true,
	v1alpha1.ReasonSuperseded:          true,
	v1alpha1.ReasonPolicyNotFound:      true,
	v1alpha1.ReasonUnplaceable:         true,
	v1alpha1.ReasonInvalid:             true,
	v1alpha1.ReasonDeleting:            true,
	v1alpha1.ReasonInUse:               true,
}

// problemOf reads a Content's conditions; nil when it is well.
func problemOf(v *v1alpha1.GeoVolumeContent) *Problem {
	c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case c == nil:
		return &Problem{Inaccessible: true, Reason: v1alpha1.ReasonCreating, Message: "the operator has said nothing about it yet"}
	case c.Status == metav1.ConditionTrue && c.Reason != v1alpha1.ReasonDegraded:
		return nil
	}
	return &Problem{Inaccessible: c.Status != metav1.ConditionTrue && !mild[c.Reason], Reason: c.Reason, Message: c.Message}
}

// health is a problem as CSI 1.13 tells it.
func health(handle string, p *Problem) *csi.VolumeHealth {
	h := &csi.VolumeHealth{VolumeId: handle}
	if p != nil {
		kind := csi.VolumeHealthErrorType_DEGRADED
		if p.Inaccessible {
			kind = csi.VolumeHealthErrorType_INACCESSIBLE
		}
		h.HealthStatuses = []*csi.VolumeHealth_VolumeHealthEntry{{Status: kind, Reason: p.Reason, Message: p.Message}}
	}
	return h
}

// The capability VOLUME_CONDITION and field 2 of three messages were removed in CSI 1.13, whose numbers are reserved. Kubelets (feature gate
// CSIVolumeHealth) and health monitors that were made before that look for them, and later ones skip them.
const (
	controllerVolumeCondition = csi.ControllerServiceCapability_RPC_Type(11)
	nodeVolumeCondition       = csi.NodeServiceCapability_RPC_Type(4)
	conditionField            = 2
)

// setCondition adds a VolumeCondition {abnormal bool = 1, message string = 2} to a message of CSI 1.13 as field 2.
func setCondition(m proto.Message, p *Problem) {
	var c []byte
	if p == nil {
		c = protowire.AppendString(protowire.AppendTag(c, 2, protowire.BytesType), "The volume is well.")
	} else {
		c = protowire.AppendVarint(protowire.AppendTag(c, 1, protowire.VarintType), 1)
		c = protowire.AppendString(protowire.AppendTag(c, 2, protowire.BytesType), p.Reason+": "+p.Message)
	}
	r := m.ProtoReflect()
	r.SetUnknown(protowire.AppendBytes(protowire.AppendTag(r.GetUnknown(), conditionField, protowire.BytesType), c))
}
