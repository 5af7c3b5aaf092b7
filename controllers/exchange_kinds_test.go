// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/weir-storage/weir/api/v1alpha1"
	"github.com/weir-storage/weir/controllers/object"
	"github.com/weir-storage/weir/federation/paper"
)

// TestFieldsThatLendingAKindIsWithout: who says where copies or cache room are, or gives gateways
// parts of them, is told that there is no such thing. It keeps nothing else from being said, and an
// agreement from ending.
func TestFieldsThatLendingAKindIsWithout(t *testing.T) {
	for _, kind := range []v1alpha1.RoomKind{v1alpha1.RoomCopy, v1alpha1.RoomCache} {
		t.Run(string(kind), func(t *testing.T) {
			f, host, guest := lenders(t)
			host.create(anOffer("room", func(s *v1alpha1.StorageOfferSpec) { s.Kind = kind }))
			settleAll(host, guest)
			guest.create(f.aRequest(anID, "ams.room", "2Ti"))
			settleAll(host, guest)
			says := func(c *cluster, change func(*v1alpha1.StorageAgreementSpec), want string) {
				t.Helper()
				edit(c, agreementOf(c, anID), func(a *v1alpha1.StorageAgreement) { change(&a.Spec) })
				settleAll(host, guest)
				if r := object.Ready(agreementOf(c, anID).Status.Conditions); (r.Reason == v1alpha1.ReasonRefused) != (want != "") ||
					!strings.Contains(r.Message, want) {
					t.Errorf("%s: %+v, want %q", c.name, r, want)
				}
			}
			rooms := []v1alpha1.AgreementRoom{{Gateway: "gro-1", Amount: resource.MustParse("1Ti")}}
			says(host, func(s *v1alpha1.StorageAgreementSpec) {
				s.Decision, s.Endpoint = v1alpha1.DecisionAccept, "https://elsewhere:7005"
			}, "spec.endpoint: kind is "+string(kind)+": take it out, the room is at the gateways of site ams")
			wantPhase(anID, paper.Active, "", host, guest)
			says(guest, func(s *v1alpha1.StorageAgreementSpec) { s.Rooms = rooms },
				"spec.rooms: kind is "+string(kind)+": take it out, the room is for all volumes together")
			if s := agreementOf(host, anID).Status; len(s.Rooms) > 0 || s.Endpoint != "" || s.Kind != string(kind) {
				t.Errorf("the host sees kind %s with rooms %v at %q", s.Kind, s.Rooms, s.Endpoint)
			}
			says(guest, func(s *v1alpha1.StorageAgreementSpec) { s.Rooms = nil }, "")
			says(guest, func(s *v1alpha1.StorageAgreementSpec) { s.Endpoint = "https://here:7005" },
				`spec.endpoint: that is for "SURF" to say: take it out`)

			// The host's field is there still, and it deletes what was drained all the same.
			says(guest, func(s *v1alpha1.StorageAgreementSpec) { s.Endpoint, s.Drained = "", &v1alpha1.Statement{} }, "")
			if a := agreementOf(host, anID).Status; !strings.Contains(said(a), "the host deletes") {
				t.Errorf("the guest drained, and the host said %s", said(a))
			}
		})
	}
}

// said is what was said of an agreement.
func said(s v1alpha1.StorageAgreementStatus) string {
	var all []string
	for _, x := range s.Said {
		all = append(all, x.What)
	}
	return strings.Join(all, ", ")
}
