// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VolumeQuota says how much a volume may hold, besides its size.
type VolumeQuota struct {
	// How many files the volume may hold: files of any kind and directories, with its root and
	// what is in its trash, and without what only snapshots hold. When they are used up, clients
	// are told that there is no space (ENOSPC), and `df -i` shows why. Default 4294967296. Live: a
	// volume that has more keeps them, and takes no new one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967296
	Files *int64 `json:"files,omitempty"`
}

// Scrub says how often gateways read again what they have of a volume on their pools. What is
// damaged is healed from another copy.
// +kubebuilder:validation:XValidation:rule="!has(self.every) || (duration(self.every) >= duration('1h') && duration(self.every) <= duration('8784h'))",message="every is not from 1h to 8784h: write a time span, such as 168h"
// +kubebuilder:validation:XValidation:rule="!has(self.rate) || quantity(string(self.rate)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self.rate)).compareTo(quantity('16Gi')) <= 0",message="rate is not from 1Mi to 16Gi: write bytes a second, such as 20Mi"
type Scrub struct {
	// How often each copy is read, from 1h to 8784h. A gateway that starts begins anew. Default
	// 168h. Live.
	// +optional
	Every *metav1.Duration `json:"every,omitempty"`
	// The most bytes a second that a gateway reads for it, from 1Mi to 16Gi. A copy that cannot be
	// read in `every` at this rate takes longer. Default 20Mi. Live.
	// +optional
	Rate *resource.Quantity `json:"rate,omitempty"`
}

// Compaction says how the blocks that are still used of old segments move into packs, so that the
// room of what was overwritten and removed comes back.
// +kubebuilder:validation:XValidation:rule="!has(self.rate) || quantity(string(self.rate)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self.rate)).compareTo(quantity('16Gi')) <= 0",message="rate is not from 1Mi to 16Gi: write bytes a second, such as 50Mi"
// +kubebuilder:validation:XValidation:rule="!has(self.hours) || self.hours.substring(0, 5) != self.hours.substring(6)",message="hours begins and ends at the same time: leave it out for all day"
type Compaction struct {
	// The most bytes a second that move. Each copy moves what the home moves. If more is
	// overwritten than that, stores have more than the volume needs. Default: no limit. Live.
	// +optional
	Rate *resource.Quantity `json:"rate,omitempty"`
	// The hours of the day, in UTC, such as 22:00-06:00, which may end on the next day. What was
	// begun is ended. Default: all day. Live.
	// +optional
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:Pattern=`^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$`
	Hours string `json:"hours,omitempty"`
}

// Home says where the volume should be at home.
type Home struct {
	// Sites, best first. The first that has a copy is where a volume begins. Live: it counts when a
	// site is chosen the next time; a change moves no home.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	PreferredSites []SiteName `json:"preferredSites,omitempty"`
}
