// SPDX-License-Identifier: Apache-2.0

// Package plan has the operator's decisions, as pure functions: what they need is handed over, what they decide is returned, and
// nothing is read or written.
//
//	Resolve    the policy in force: GeoVolume over VolumePolicy over defaults
//	Place      the sites of a volume's copies, or which rule refuses which site
//	Admit      whether a claim may use a volume
//	Named      what to say to who creates a volume whose name is taken
//	Dispose    what becomes of a volume when its owner's object is deleted
//	Look       what is shown of a volume: home, replicas, copies, lag, conditions
//
// Refusals are values with a reason, which is one of package v1alpha1, and a message that says what is wrong and what to do.
package plan

import "github.com/weir-storage/weir/federation"

// Self is the cluster that decides.
type Self struct {
	Organization, Site string
	// Cluster is the UID of its namespace kube-system.
	Cluster string
}

// Owns tells whether this cluster, and not another that had or has the site's name, is the one writer of the volume's record.
func (s Self) Owns(v federation.Volume) bool {
	return v.OwnerCluster != "" && v.OwnerCluster == s.Cluster && v.OwnerSite == s.Site
}

// Verdict is why something is not as it was asked for.
type Verdict struct {
	// Reason is one of package v1alpha1.
	Reason string
	// Message says what is wrong and what to do.
	Message string
}

func (v *Verdict) Error() string { return v.Message }
