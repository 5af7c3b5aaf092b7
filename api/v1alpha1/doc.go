// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the kinds of storage.weir.dev.
//
//	kind              scope       what it is
//	Site              cluster     a place with gateways and perhaps a store
//	CachePool         cluster     the pool of a site's gateway
//	VolumePolicy      cluster     copies, durability, consistency, cache, home; of this cluster only
//	GeoVolume         namespaced  the claim: a new volume, or the import of another site's volume
//	GeoVolumeContent  cluster     the volume; a read-only mirror where this cluster is not its owner
//	GeoVolumeSnapshot namespaced  the state of a volume at one moment, which is kept
//	StorageOffer      cluster     room that an organization lends; a read-only mirror elsewhere
//	StorageRequest    cluster     asks for room that another organization offers
//	StorageAgreement  cluster     what both sides said, and in its spec what this side decides
//	StorageUsage      cluster     what both sides counted of an agreement
//	PlacementQuota    cluster     how much namespaces of this cluster may place where
//
// The chart writes the spec of the local Site, and the operator those of the others. Administrators
// write CachePools, VolumePolicies and PlacementQuotas, users write GeoVolumes and
// GeoVolumeSnapshots, and the operator and the CSI controller write GeoVolumeContents. Who may lend
// and borrow for the organization writes StorageOffers, StorageRequests and the spec of
// StorageAgreements, which the operator makes. The operator writes every status.
//
// GeoVolume is to GeoVolumeContent what PersistentVolumeClaim is to PersistentVolume. The truth
// about a volume that several clusters share is in the registry; the objects here are one cluster's
// wishes (spec) and what it knows (status).
//
// Messages of validation rules say what to do. Rules that need more than the object itself (how
// many sites there are, whether a name is free) are the operator's: it answers with conditions.
// Their types and reasons are part of the API too.
//
// +kubebuilder:object:generate=true
// +groupName=storage.weir.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names that are part of the contract with other programs.
const (
	// Group is the API group of all kinds.
	Group = "storage.weir.dev"
	// Driver is the CSI driver's name: the provisioner of StorageClasses, driverName of
	// VolumeAttributesClasses, and spec.csi.driver of persistent volumes.
	Driver = "csi.weir.dev"
	// TopologyKey is a label of nodes, which get it from the node plugin. It has one value per
	// cluster: the site.
	TopologyKey = "topology.weir.dev/site"
	// PolicyParameter is the parameter of StorageClass and VolumeAttributesClass that names a
	// VolumePolicy. There is no other parameter.
	PolicyParameter = "policy"
	// Finalizer is the finalizer of GeoVolumes and GeoVolumeSnapshots, of GeoVolumeContents of
	// which this cluster is the owner, and of what was said to other organizations in StorageOffers
	// and StorageRequests.
	Finalizer = Group + "/volume"
	// VolumeLabel is a label of the PersistentVolume and the PersistentVolumeClaim that a GeoVolume
	// makes; its value is the volume's UUID.
	VolumeLabel = Group + "/volume"
	// ForceAnnotation is an annotation of a GeoVolume or GeoVolumeContent, with the volume's UUID
	// as its value: it may be deleted although the registry does not know the volume any more.
	ForceAnnotation = Group + "/forget"
	// MirrorAnnotation is an annotation of Sites, StorageOffers, StorageAgreements and
	// StorageUsages that the operator makes by what the registry has; its value is the federation.
	MirrorAnnotation = Group + "/mirror-of"
	// OrganizationLabel is what replication.sites.selector calls a site's organization. No object
	// needs to have the label.
	OrganizationLabel = "organization.weir.dev"
	// RegionLabel is what replication.sites.selector calls a site's region. No object needs to have
	// the label.
	RegionLabel = "region.weir.dev"
)

// GroupVersion is the version of all kinds.
var GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

// AddToScheme registers the kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Site{}, &SiteList{}, &CachePool{}, &CachePoolList{}, &VolumePolicy{}, &VolumePolicyList{},
		&GeoVolume{}, &GeoVolumeList{}, &GeoVolumeContent{}, &GeoVolumeContentList{},
		&StorageOffer{}, &StorageOfferList{}, &StorageRequest{}, &StorageRequestList{},
		&StorageAgreement{}, &StorageAgreementList{}, &StorageUsage{}, &StorageUsageList{},
		&PlacementQuota{}, &PlacementQuotaList{}, &GeoVolumeSnapshot{}, &GeoVolumeSnapshotList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
