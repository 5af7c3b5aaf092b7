// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GeoVolumeContentSpec is the desired state of a volume. In the owner's cluster the operator (for
// GeoVolumes) and the CSI controller (for StorageClasses) write it, and the operator carries it to
// the registry; elsewhere the operator keeps it equal to the registry's.
type GeoVolumeContentSpec struct {
	// The volume's name, unique in the federation. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=127
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a volume keeps its name"
	FederationName string `json:"federationName"`
	// The site whose cluster owns the volume; empty for a volume that was made by `weir volume
	// create`, which is changed there. Immutable: not for people to change; the operator writes it
	// when the ownership goes elsewhere (`weir volume transfer`).
	// +optional
	Owner SiteName `json:"owner,omitempty"`
	// How much the volume may hold. Live: it grows, and does not shrink.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="size must be more than 0: write how much the volume may hold, such as 10Gi"
	Size resource.Quantity `json:"size"`
	// The VolumePolicy of the owner's cluster. Live.
	// +optional
	Policy string `json:"policy,omitempty"`
	// Fields that come before the policy's.
	// +optional
	Overrides *VolumePolicySpec `json:"overrides,omitempty"`
	// What the volume begins with; empty by default. Immutable: what it says when the volume is
	// made counts.
	// +optional
	Source *ContentSource `json:"source,omitempty"`
	// Who may import the volume. Live: a grant that is removed ends the imports that it allowed.
	// +optional
	// +listType=atomic
	Grants []Grant `json:"grants,omitempty"`
	// What becomes of the volume when this object is deleted by its owner. Live: what it says at
	// that time counts.
	// +optional
	// +kubebuilder:default=Delete
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`
	// The claims of this cluster on the volume. Pods of other namespaces cannot use it. Live: the
	// operator and the CSI controller write it.
	// +optional
	// +listType=atomic
	Claims []ClaimReference `json:"claims,omitempty"`
}

// ContentSource is what a volume begins with: a copy of a snapshot of another volume.
type ContentSource struct {
	// The other volume's UUID.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Volume string `json:"volume"`
	// The name of its snapshot. Without one, a snapshot is taken for this, and dropped when it was
	// copied.
	// +optional
	Snapshot string `json:"snapshot,omitempty"`
}

// ClaimReference is a claim in this cluster.
type ClaimReference struct {
	// GeoVolume, or PersistentVolumeClaim for a volume that was provisioned by a StorageClass.
	// +kubebuilder:validation:Enum=GeoVolume;PersistentVolumeClaim
	Kind string `json:"kind"`
	// Its namespace.
	Namespace string `json:"namespace"`
	// Its name.
	Name string `json:"name"`
	// Its UID, if that is known.
	// +optional
	UID string `json:"uid,omitempty"`
	// What its pods may do.
	// +optional
	// +kubebuilder:default=ReadWrite
	Access Access `json:"access,omitempty"`
}

// GeoVolumeContentStatus is what is known of a volume.
type GeoVolumeContentStatus struct {
	// The generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Generation of the desired state in the registry that this status is about.
	// +optional
	VolumeGeneration int64 `json:"volumeGeneration,omitempty"`
	// Generation of the VolumePolicy that is in force.
	// +optional
	ObservedPolicyGeneration int64 `json:"observedPolicyGeneration,omitempty"`
	// The policy in force, with all defaults.
	// +optional
	Policy *VolumePolicySpec `json:"policy,omitempty"`
	// How much the volume may hold, as the registry has it.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// How much it holds, as the home last reported it.
	// +optional
	Used *resource.Quantity `json:"used,omitempty"`
	// How much only snapshots hold, which the volume's size does not count; not there if that is
	// not known.
	// +optional
	Held *resource.Quantity `json:"held,omitempty"`
	// How many files it holds, directories and what is in its trash included, and how many it may
	// hold if its policy says so: 1200/5000.
	// +optional
	Files string `json:"files,omitempty"`
	// Where writes are put in order now.
	// +optional
	Home VolumeHome `json:"home,omitzero"`
	// Sites that were chosen to have a copy, the first home first.
	// +optional
	// +listType=atomic
	Sites []SiteName `json:"sites,omitempty"`
	// The copy at each of the sites, and at those that give theirs up.
	// +optional
	// +listType=map
	// +listMapKey=site
	Replicas []Replica `json:"replicas,omitempty"`
	// The lent stores that have its sealed segments, by agreement.
	// +optional
	// +listType=map
	// +listMapKey=agreement
	Stores []StoreReplica `json:"stores,omitempty"`
	// Copies that are alive and not behind, and how many the policy wants: 3/3.
	// +optional
	Copies string `json:"copies,omitempty"`
	// How far the copy that trails most is behind; updated at most every 30 s.
	// +optional
	Lag string `json:"lag,omitempty"`
	// How far a copy has come that catches up: part, rate and time left. Of several copies it is
	// the one that lacks most. It is updated every few seconds.
	// +optional
	Progress string `json:"progress,omitempty"`
	// The volume's snapshots.
	// +optional
	Snapshots *VolumeSnapshots `json:"snapshots,omitempty"`
	// The volume's newest data key: what is written is sealed with it a moment later.
	// +optional
	Key *VolumeKey `json:"key,omitempty"`
	// Claims of all clusters: SITE/NAMESPACE/NAME.
	// +optional
	// +listType=atomic
	Claims []string `json:"claims,omitempty"`
	// What holds of it, such as Ready. The API reference explains types and reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VolumeHome is where writes are put in order.
type VolumeHome struct {
	// The home's site.
	Site string `json:"site"`
	// The gateway there.
	Gateway string `json:"gateway"`
	// Grows whenever the home changes.
	Epoch int64 `json:"epoch"`
}

// Replica is a site's copy.
type Replica struct {
	// Its site.
	Site SiteName `json:"site"`
	// The gateway that has it, once that is known.
	// +optional
	Gateway string `json:"gateway,omitempty"`
	// Home, Member (counts before a write is acknowledged), Follower, Joining, Lost, or Unknown.
	State string `json:"state"`
	// It holds ciphertext only.
	// +optional
	Blind bool `json:"blind,omitempty"`
	// How far it is behind in time, as the home last reported it.
	// +optional
	Lag string `json:"lag,omitempty"`
	// How much of the log it lacks, in whole MiB; nothing if it is less than 2.
	// +optional
	LagBytes *resource.Quantity `json:"lagBytes,omitempty"`
	// How far it has come, if it catches up: part, rate and time left.
	// +optional
	Progress string `json:"progress,omitempty"`
	// When its gateway had read all of it again, the last time.
	// +optional
	Scrubbed *metav1.Time `json:"scrubbed,omitempty"`
	// How many segments of it are damaged and in no other copy in reach, and how many things are
	// wrong with its metadata; see its gateway's log, or `weir fsck`.
	// +optional
	Damaged *int32 `json:"damaged,omitempty"`
}

// StoreReplica is what a lent store has of a volume.
type StoreReplica struct {
	// The StorageAgreement under which it is lent.
	Agreement string `json:"agreement"`
	// The site where the store is, once that is known.
	// +optional
	Site SiteName `json:"site,omitempty"`
	// Whole, Filling, Failing, or Unknown.
	State string `json:"state"`
	// How far it is behind in time, as the home last reported it.
	// +optional
	Lag string `json:"lag,omitempty"`
}

// GeoVolumeContent is a volume; its name is the volume's UUID, the same at all sites.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=gvc,categories=weir
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.spec.federationName`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Home",type=string,JSONPath=`.status.home.site`
// +kubebuilder:printcolumn:name="Copies",type=string,JSONPath=`.status.copies`
// +kubebuilder:printcolumn:name="Lag",type=string,JSONPath=`.status.lag`
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.progress`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.capacity`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.spec.owner`,priority=1
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policy`,priority=1
// +kubebuilder:printcolumn:name="Sites",type=string,JSONPath=`.status.sites`,priority=1
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.status.home.epoch`,priority=1
// +kubebuilder:printcolumn:name="Snapshots",type=integer,JSONPath=`.status.snapshots.count`,priority=1
// +kubebuilder:printcolumn:name="Used",type=string,JSONPath=`.status.used`,priority=1
// +kubebuilder:printcolumn:name="Held",type=string,JSONPath=`.status.held`,priority=1
// +kubebuilder:printcolumn:name="Files",type=string,JSONPath=`.status.files`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')",message="a GeoVolumeContent's name is its volume's UUID: to make a volume, create a GeoVolume, or a PersistentVolumeClaim with a StorageClass of csi.weir.dev"
type GeoVolumeContent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// What the volume is to be.
	Spec GeoVolumeContentSpec `json:"spec"`
	// What is known of it.
	// +optional
	Status GeoVolumeContentStatus `json:"status,omitzero"`
}

// GeoVolumeContentList is a list of GeoVolumeContent.
// +kubebuilder:object:root=true
type GeoVolumeContentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GeoVolumeContent `json:"items"`
}
