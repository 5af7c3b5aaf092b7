// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Access is what a claim, a grant or a node may do with a volume.
// +kubebuilder:validation:Enum=ReadWrite;ReadOnly
type Access string

// Accesses.
const (
	ReadWrite Access = "ReadWrite"
	ReadOnly  Access = "ReadOnly"
)

// ReclaimPolicy is what becomes of a volume when its owner's claim is deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type ReclaimPolicy string

// Reclaim policies.
const (
	// Retain keeps the volume, without a claim. It can be imported again, by its owner.
	Retain ReclaimPolicy = "Retain"
	// Delete puts the volume into the trash.
	Delete ReclaimPolicy = "Delete"
)

// GeoVolumeSpec asks for a new volume, or for another site's.
// +kubebuilder:validation:XValidation:rule="has(self.import) || has(self.size)",message="size is missing: write how much the volume may hold, such as 10Gi; or name another site's volume in import"
// +kubebuilder:validation:XValidation:rule="!has(self.import) || !has(self.size)",message="size is the owner's to set: an import has only import, access and cache; remove size"
// +kubebuilder:validation:XValidation:rule="!has(self.import) || !has(self.policy)",message="policy is the owner's to set: an import has only import, access and cache; remove policy"
// +kubebuilder:validation:XValidation:rule="!has(self.import) || (!has(self.replication) && !has(self.durability) && !has(self.consistency) && !has(self.home) && !has(self.clients) && !has(self.snapshots) && !has(self.trash) && !has(self.encryption) && !has(self.quota) && !has(self.scrub) && !has(self.compaction))",message="replication, durability, consistency, home, clients, snapshots, trash, encryption, quota, scrub and compaction are the owner's to set: an import has only import, access and cache; remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.import) || !has(self.cache) || (!has(self.cache.blockSize) && !has(self.cache.compression))",message="cache.blockSize and cache.compression are the owner's to set: an import's cache is what its own site keeps; remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.import) || !has(self.grants)",message="grants are the owner's to give: an import has only import, access and cache; remove grants"
// +kubebuilder:validation:XValidation:rule="!has(self.import) || !has(self.reclaimPolicy) || self.reclaimPolicy == 'Retain'",message="deleting an import never deletes the volume: remove reclaimPolicy"
// +kubebuilder:validation:XValidation:rule="has(self.import) == has(oldSelf.import)",message="a volume does not become an import, nor an import a volume: delete this GeoVolume and make another"
// +kubebuilder:validation:XValidation:rule="!has(self.size) || !has(oldSelf.size) || quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0",message="a volume does not shrink: write its present size or more"
// +kubebuilder:validation:XValidation:rule="!has(self.durability) || !has(self.durability.sites) || has(self.policy) || self.durability.sites <= (has(self.replication) && has(self.replication.copies) ? self.replication.copies : 2)",message="durability.sites is more than replication.copies: more sites than have a copy can never fsync a write; lower it, or raise copies"
// +kubebuilder:validation:XValidation:rule="!has(self.import) || !has(self.source)",message="an import begins with what the volume has: remove source; or remove import, and make a volume"
// +kubebuilder:validation:XValidation:rule="has(self.source) == has(oldSelf.source)",message="a volume keeps what it was made of: make another GeoVolume"
type GeoVolumeSpec struct {
	// How much the volume may hold. Live: it grows, and does not shrink.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="size must be more than 0: write how much the volume may hold, such as 10Gi"
	Size *resource.Quantity `json:"size,omitempty"`
	// The VolumePolicy; without one, each field's default. Live.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Policy string `json:"policy,omitempty"`
	// Another site's volume, instead of a new one; or a volume of this cluster that was retained.
	// Immutable.
	// +optional
	Import *Import `json:"import,omitempty"`
	// What the volume begins with: a copy of a snapshot, or of another volume. It is empty by
	// default. Immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a volume keeps what it was made of: make another GeoVolume"
	Source *VolumeSource `json:"source,omitempty"`
	// What the pods of this namespace may do. ReadOnly makes the PersistentVolumeClaim
	// ReadOnlyMany. Immutable.
	// +optional
	// +kubebuilder:default=ReadWrite
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="access is part of the PersistentVolumeClaim, which does not change: delete this GeoVolume, with reclaimPolicy: Retain if it is the volume's owner, and import the volume with the other access"
	Access Access `json:"access,omitempty"`
	// Who else may import the volume; nobody by default. Live: a grant that is removed ends the
	// imports that it allowed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(g, self.exists_one(h, h.site == g.site && h.__namespace__ == g.__namespace__))",message="the same site and namespace are granted twice: keep one of them"
	// +kubebuilder:validation:XValidation:rule="self.all(g, self.all(h, h.site != g.site || has(h.clients) == has(g.clients) && (!has(g.clients) || h.clients == g.clients)))",message="grants to one site say different things of clients: pods of its namespaces have the same addresses; write the same in all"
	Grants []Grant `json:"grants,omitempty"`
	// What becomes of the volume when this GeoVolume, or its namespace, is deleted. Live: what it
	// says at that time counts.
	// +optional
	// +kubebuilder:default=Retain
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`

	// How many copies there are, and at which sites. In this field and the eleven after it, what is
	// given comes before what the VolumePolicy says.
	// +optional
	Replication *Replication `json:"replication,omitempty"`
	// What a stable write (fsync, a change of a name) waits for.
	// +optional
	Durability *Durability `json:"durability,omitempty"`
	// What readers at other sites see.
	// +optional
	Consistency *Consistency `json:"consistency,omitempty"`
	// How much of the volume gateways keep to be read. An import may have it: then it is what its
	// own site keeps, whatever the owner says. Live.
	// +optional
	Cache *Cache `json:"cache,omitempty"`
	// Where the volume should be at home.
	// +optional
	Home *Home `json:"home,omitempty"`
	// Who the users of clients are to the volume. Live.
	// +optional
	Clients *Clients `json:"clients,omitempty"`
	// Which snapshots the volume gets by itself, and how they are seen.
	// +optional
	Snapshots *Snapshots `json:"snapshots,omitempty"`
	// For how long removed files can be restored.
	// +optional
	Trash *Trash `json:"trash,omitempty"`
	// When the volume's data keys are replaced.
	// +optional
	Encryption *Encryption `json:"encryption,omitempty"`
	// How many files the volume may hold.
	// +optional
	Quota *VolumeQuota `json:"quota,omitempty"`
	// How often gateways read again what they have.
	// +optional
	Scrub *Scrub `json:"scrub,omitempty"`
	// How fast and when room that is not used any more comes back.
	// +optional
	Compaction *Compaction `json:"compaction,omitempty"`
}

// VolumeSource is what a volume begins with. This cluster has to own the other volume, and the new
// one has to be as large as what that held. It is served when it has all, and needs nothing of the
// other one then.
// +kubebuilder:validation:XValidation:rule="has(self.snapshot) != has(self.volume)",message="give either snapshot, the name of a GeoVolumeSnapshot, or volume, that of a GeoVolume"
type VolumeSource struct {
	// The name of a GeoVolumeSnapshot of this namespace. Immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Snapshot string `json:"snapshot,omitempty"`
	// The name of a GeoVolume of this namespace. A snapshot of it is taken for this, and dropped
	// when it was copied. Immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Volume string `json:"volume,omitempty"`
}

// Import names a volume of the federation.
type Import struct {
	// The volume's name in the federation, NAMESPACE.NAME of the GeoVolume that made it, or its
	// UUID. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=127
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an import does not change to another volume: delete this GeoVolume and make another"
	Volume string `json:"volume"`
}

// Grant lets a namespace of another site import the volume.
type Grant struct {
	// The site whose cluster may import it.
	Site SiteName `json:"site"`
	// The namespace there whose pods may use it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// The most that they may do. ReadOnly allows imports with access: ReadOnly only.
	// +optional
	// +kubebuilder:default=ReadWrite
	Access Access `json:"access,omitempty"`
	// Who the users of clients of that site are to the volume, instead of what its policy says. All
	// grants to a site say the same, since pods of its namespaces call from the same addresses. It
	// also counts for clients there that somebody admitted otherwise.
	// +optional
	Clients *Clients `json:"clients,omitempty"`
}

// GeoVolumeStatus is what became of the wish.
type GeoVolumeStatus struct {
	// The generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The volume's UUID, which is the name of its GeoVolumeContent.
	// +optional
	Volume string `json:"volume,omitempty"`
	// The volume's name in the federation, by which other sites import it.
	// +optional
	FederationName string `json:"federationName,omitempty"`
	// The site whose cluster owns the volume.
	// +optional
	Owner string `json:"owner,omitempty"`
	// How much the volume may hold, as the registry has it.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// The site where writes are put in order now.
	// +optional
	Home string `json:"home,omitempty"`
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
	// How many snapshots with names the volume has, as the home last reported.
	// +optional
	Snapshots *int32 `json:"snapshots,omitempty"`
	// How much the volume holds, what is in its trash included.
	// +optional
	Used *resource.Quantity `json:"used,omitempty"`
	// How much only snapshots hold, which the size does not count; not there if that is not known.
	// +optional
	Held *resource.Quantity `json:"held,omitempty"`
	// How many files the volume holds, directories and what is in its trash included, and how many
	// it may hold if its policy says so: 1200/5000.
	// +optional
	Files string `json:"files,omitempty"`
	// When each of the copies had been read again; of several times it is the earliest. It is not
	// there while one has not been read yet.
	// +optional
	Scrubbed *metav1.Time `json:"scrubbed,omitempty"`
	// How much damage gateways found in copies that no other copy could heal; see `weir fsck`.
	// +optional
	Damaged *int32 `json:"damaged,omitempty"`
	// The volume's newest data key: what is written is sealed with it a moment later.
	// +optional
	Key *VolumeKey `json:"key,omitempty"`
	// What holds of it, such as Ready. The API reference explains types and reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GeoVolume is a volume that lives at several sites. It makes a PersistentVolume and a
// PersistentVolumeClaim of its own name in its namespace, for pods to use.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=gv,categories=weir
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Home",type=string,JSONPath=`.status.home`
// +kubebuilder:printcolumn:name="Copies",type=string,JSONPath=`.status.copies`
// +kubebuilder:printcolumn:name="Lag",type=string,JSONPath=`.status.lag`
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.progress`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.capacity`
// +kubebuilder:printcolumn:name="Used",type=string,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="Files",type=string,JSONPath=`.status.files`
// +kubebuilder:printcolumn:name="Snapshots",type=integer,JSONPath=`.status.snapshots`
// +kubebuilder:printcolumn:name="Held",type=string,JSONPath=`.status.held`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.status.federationName`,priority=1
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.status.owner`,priority=1
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policy`,priority=1
// +kubebuilder:printcolumn:name="Scrubbed",type=date,JSONPath=`.status.scrubbed`,priority=1
// +kubebuilder:printcolumn:name="Damaged",type=integer,JSONPath=`.status.damaged`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",message="a GeoVolume's name is a DNS label: at most 63 lower-case letters, digits and '-'"
type GeoVolume struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// What is wished for.
	Spec GeoVolumeSpec `json:"spec"`
	// What became of it.
	// +optional
	Status GeoVolumeStatus `json:"status,omitzero"`
}

// GeoVolumeList is a list of GeoVolume.
// +kubebuilder:object:root=true
type GeoVolumeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GeoVolume `json:"items"`
}
