// SPDX-License-Identifier: Apache-2.0

// Package plan has the operator's decisions, as pure functions: they get what they need as
// arguments, return what they decide, and read or write nothing else.
//
//	Resolve    the policy in force: GeoVolume over VolumePolicy over defaults
//	Place      the sites of a volume's copies, within its quotas, or which rule refuses which site
//	Admit      whether a claim may use a volume
//	Named      what to say to who creates a volume whose name is taken
//	Dispose    what becomes of a volume when its owner's object is deleted
//	Look       what is shown of a volume: home, replicas, copies, lag, conditions
//
// A refusal is a value. It has a reason, which is one of package v1alpha1, and a message that says
// what is wrong and what to do.
package plan

import (
	"fmt"

	"github.com/weir-storage/weir/federation"
)

// Self is the cluster that decides.
type Self struct {
	Organization, Site string
	// Cluster is the UID of its namespace kube-system.
	Cluster string
}

// Owns reports whether this cluster is the one writer of the volume's record. Another cluster that
// has or had the site's name is not.
func (s Self) Owns(v federation.Volume) bool {
	return v.OwnerCluster != "" && v.OwnerCluster == s.Cluster && v.OwnerSite == s.Site
}

// Verdict is why something is not as the user asked.
type Verdict struct {
	// Reason is one of package v1alpha1.
	Reason string
	// Message says what is wrong and what to do.
	Message string
}

func (v *Verdict) Error() string { return v.Message }

func verdict(reason, format string, a ...any) *Verdict {
	return &Verdict{reason, fmt.Sprintf(format, a...)}
}
