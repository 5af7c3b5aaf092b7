// SPDX-License-Identifier: Apache-2.0

// Package health says whether a volume is well, in the two forms in which CSI asks for it.
//
// CSI 1.13 replaced the message VolumeCondition by health calls. Kubelets and health monitors that
// are older know VolumeCondition only. Weir answers both from one source: a Problem.
package health

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// Problem is why a volume is not well. A nil *Problem means that it is well.
type Problem struct {
	// Inaccessible says that reads, or all writes, wait or fail. Otherwise pods use the volume as
	// before, but it has fewer copies, or older ones, than its policy asks for.
	Inaccessible bool
	Reason       string // one word in CamelCase
	Message      string
}

// usable lists the reasons of a Ready condition that is not True for which pods can still use the
// volume.
var usable = map[string]bool{
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

// Of reads the conditions of a Content. It returns nil when the volume is well.
func Of(v *v1alpha1.GeoVolumeContent) *Problem {
	c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case c == nil:
		return &Problem{Inaccessible: true, Reason: v1alpha1.ReasonCreating, Message: "the operator has said nothing about it yet"}
	case c.Status == metav1.ConditionTrue && c.Reason != v1alpha1.ReasonDegraded:
		return nil
	}
	return &Problem{Inaccessible: c.Status != metav1.ConditionTrue && !usable[c.Reason], Reason: c.Reason, Message: c.Message}
}

// Message puts a problem into the message of CSI 1.13's health calls.
func Message(handle string, p *Problem) *csi.VolumeHealth {
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

// The capabilities VOLUME_CONDITION of CSI before 1.13. CSI 1.13 removed them and reserved their
// numbers, so a newer client skips them. A kubelet with the feature gate CSIVolumeHealth and a
// health monitor of that time look for them.
const (
	ControllerConditionCapability = csi.ControllerServiceCapability_RPC_Type(11)
	NodeConditionCapability       = csi.NodeServiceCapability_RPC_Type(4)
)

// conditionField is the number that VolumeCondition had in three messages. It is reserved too.
const conditionField = 2

// SetCondition adds a VolumeCondition {abnormal bool = 1, message string = 2} to a message of
// CSI 1.13, as its field 2.
func SetCondition(m proto.Message, p *Problem) {
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
