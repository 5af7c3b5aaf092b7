// SPDX-License-Identifier: Apache-2.0

package health

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// TestCondition decodes what a kubelet from before CSI 1.13 finds: a message in field 2.
func TestCondition(t *testing.T) {
	for _, p := range []*Problem{nil, {Reason: "HomeLost", Message: "site there is lost", Inaccessible: true}} {
		r := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Total: 1}}}
		SetCondition(r, p)
		wire, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var abnormal bool
		var message string
		for b := wire; len(b) > 0; {
			number, kind, n := protowire.ConsumeTag(b)
			b = b[n:]
			n = protowire.ConsumeFieldValue(number, kind, b)
			if n < 0 {
				t.Fatal(protowire.ParseError(n))
			}
			if number == 2 {
				c, _ := protowire.ConsumeBytes(b)
				for len(c) > 0 {
					number, kind, n := protowire.ConsumeTag(c)
					c = c[n:]
					switch n = protowire.ConsumeFieldValue(number, kind, c); number {
					case 1:
						v, _ := protowire.ConsumeVarint(c)
						abnormal = v == 1
					case 2:
						message, _ = protowire.ConsumeString(c)
					}
					c = c[n:]
				}
			}
			b = b[n:]
		}
		if abnormal != (p != nil) || message == "" || p != nil && message != "HomeLost: site there is lost" {
			t.Errorf("%v: %v %q", p, abnormal, message)
		}
		if back := new(csi.NodeGetVolumeStatsResponse); proto.Unmarshal(wire, back) != nil || len(back.GetUsage()) != 1 {
			t.Error("CSI 1.13 does not read it")
		}
	}
}

func TestProblems(t *testing.T) {
	for reason, want := range map[string]csi.VolumeHealthErrorType{
		v1alpha1.ReasonHomeLost: csi.VolumeHealthErrorType_INACCESSIBLE, v1alpha1.ReasonWritesWait: csi.VolumeHealthErrorType_INACCESSIBLE,
		v1alpha1.ReasonRegistryUnavailable: csi.VolumeHealthErrorType_DEGRADED,
		v1alpha1.ReasonUnplaceable:         csi.VolumeHealthErrorType_DEGRADED,
	} {
		v := &v1alpha1.GeoVolumeContent{}
		v.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason,
			Message: "m"}}
		h := Message("fed/1", Of(v)).GetHealthStatuses()
		if len(h) != 1 || h[0].GetStatus() != want || h[0].GetReason() != reason || h[0].GetMessage() != "m" {
			t.Errorf("%s: %v", reason, h)
		}
		v.Status.Conditions[0].Status, v.Status.Conditions[0].Reason = metav1.ConditionTrue, v1alpha1.ReasonDegraded
		if p := Of(v); p == nil || p.Inaccessible {
			t.Errorf("degraded: %v", p)
		}
		v.Status.Conditions[0].Reason = v1alpha1.ReasonReady
		if p := Of(v); p != nil {
			t.Errorf("ready: %v", p)
		}
	}
}
