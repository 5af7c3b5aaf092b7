// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Snapshots says which snapshots a volume gets by itself, and how they are seen. A snapshot is part
// of the volume: it has the same copies, and takes only what has changed since.
// +kubebuilder:validation:XValidation:rule="!has(self.window) || (duration(self.window) >= duration('0s') && duration(self.window) <= duration('24h'))",message="window is not from 0s to 24h: write a time span, such as 1h"
type Snapshots struct {
	// What is taken regularly, by the volume's home. Live: what an entry made stays when the entry
	// goes. With a smaller keep the oldest go.
	// +optional
	// +listType=map
	// +listMapKey=every
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:XValidation:rule="self.map(s, s.keep).sum() <= 128",message="more than 128 snapshots are kept in all: keep fewer"
	Schedule []SnapshotSchedule `json:"schedule,omitempty"`
	// For how long the volume can be looked at as of any second: .snapshots has a directory @ with
	// a time. At most 24h. What changes often takes more room. Default 0s: not at all. Live: what
	// is older is forgotten, and a longer one begins to count when it is written.
	// +optional
	Window *metav1.Duration `json:"window,omitempty"`
	// How clients see snapshots. Hidden: each directory has a directory .snapshots, which listings
	// do not show. None: there is no such directory. Default Hidden. Live.
	// +optional
	Directory SnapshotDirectory `json:"directory,omitempty"`
}

// Trash says what becomes of removed files.
// +kubebuilder:validation:XValidation:rule="!has(self.keep) || (duration(self.keep) >= duration('0s') && duration(self.keep) <= duration('8784h'))",message="keep is not from 0s to 8784h: write a time span, such as 168h"
type Trash struct {
	// For how long what is removed can be restored from the directory .trash of its directory; at
	// most 8784h. It counts in the volume's size, and goes earlier if the volume gets full. Default
	// 0s: not at all. Live: what is there and older goes.
	// +optional
	Keep *metav1.Duration `json:"keep,omitempty"`
}

// SnapshotDirectory is how clients see snapshots.
// +kubebuilder:validation:Enum=Hidden;None
type SnapshotDirectory string

// SnapshotEvery is how often a schedule takes a snapshot.
// +kubebuilder:validation:Enum=QuarterHourly;Hourly;Daily;Weekly;Monthly
type SnapshotEvery string

// SnapshotSchedule takes a snapshot in each period.
type SnapshotSchedule struct {
	// Periods begin at the quarters of the hour, the hours, midnight, Monday and the first of the
	// month, in UTC. A snapshot has a name such as hourly-2026-11-27T15-00Z. A period in which the
	// volume had no home gets none. Live.
	Every SnapshotEvery `json:"every"`
	// How many of them stay; the oldest go first. All entries together keep at most 128. Live.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=128
	Keep int32 `json:"keep"`
}

// VolumeSnapshots are the snapshots that a volume has, as the home last reported.
type VolumeSnapshots struct {
	// How many there are that have names.
	Count int32 `json:"count"`
	// Why one could not be taken or dropped that was asked for or scheduled; it is tried again.
	// +optional
	Problem string `json:"problem,omitempty"`
	// The newest ones, newest first.
	// +optional
	// +listType=map
	// +listMapKey=name
	Newest []VolumeSnapshot `json:"newest,omitempty"`
}

// VolumeSnapshot is a snapshot that a volume has.
type VolumeSnapshot struct {
	// Its name.
	Name string `json:"name"`
	// When it was taken.
	Time metav1.Time `json:"time"`
	// How much the volume held then.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
}

// SnapshotName is the name of a snapshot in its volume.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._-]*$`
type SnapshotName string

// SnapshotSourceKind is the kind of a claim on a volume.
// +kubebuilder:validation:Enum=GeoVolume;PersistentVolumeClaim
type SnapshotSourceKind string

// SnapshotSource names a volume by a claim on it.
type SnapshotSource struct {
	// The claim's kind: PersistentVolumeClaim for a volume that a StorageClass provisioned.
	// Immutable.
	// +optional
	// +kubebuilder:default=GeoVolume
	Kind SnapshotSourceKind `json:"kind,omitempty"`
	// The claim's name, in the namespace of the GeoVolumeSnapshot. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// GeoVolumeSnapshotSpec asks for a snapshot.
// +kubebuilder:validation:XValidation:rule="!has(self.rollback) || self.rollback.startsWith(self.source.name + '/')",message="rollback has to begin with the name of the source and a slash: this undoes all that changed in the volume since"
// +kubebuilder:validation:XValidation:rule="has(self.snapshotName) == has(oldSelf.snapshotName)",message="a snapshot keeps its name: make another GeoVolumeSnapshot"
// +kubebuilder:validation:XValidation:rule="has(self.hold) == has(oldSelf.hold)",message="whether changes are held is settled when the object is made: make another GeoVolumeSnapshot"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.take) || has(self.take)",message="take can not be taken back: make another GeoVolumeSnapshot"
// +kubebuilder:validation:XValidation:rule="!has(self.take) || (has(self.hold) && self.hold)",message="take is of a snapshot with hold only"
type GeoVolumeSnapshotSpec struct {
	// Of which volume. This cluster has to be its owner. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a snapshot is of one volume: make another GeoVolumeSnapshot"
	Source SnapshotSource `json:"source"`
	// The snapshot's name in the volume, by which .snapshots shows it. Default: the object's.
	// Immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a snapshot keeps its name: make another GeoVolumeSnapshot"
	SnapshotName SnapshotName `json:"snapshotName,omitempty"`
	// Has changes of the volume held before the snapshot is taken, for at most 8 s: status.hold
	// then has a token. That is for snapshots of several volumes that are to be of one moment, as
	// the CSI driver takes them. The snapshot's name in the volume ends in the object's UID.
	// Default false. Immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="whether changes are held is settled when the object is made: make another GeoVolumeSnapshot"
	Hold bool `json:"hold,omitempty"`
	// With hold: the token of status.hold, which has the snapshot taken. If changes are not held by
	// it any more, the snapshot is never taken. Written once, when all volumes have a token. Live.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="take can not be taken back: make another GeoVolumeSnapshot"
	Take string `json:"take,omitempty"`
	// What becomes of the snapshot when this object is deleted: Delete has it dropped, with Retain
	// it stays in the volume. Live: what it says at that time counts.
	// +optional
	// +kubebuilder:default=Delete
	DeletionPolicy ReclaimPolicy `json:"deletionPolicy,omitempty"`
	// Has the whole volume made what it was in this snapshot, once for each value: the name of the
	// source, a slash, and something that was not here before, such as the time. What the volume
	// had until then is kept as a snapshot, which status names. A value that is here before the
	// volume was found does nothing. Live.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=320
	Rollback string `json:"rollback,omitempty"`
}

// SnapshotRollback is what became of spec.rollback.
type SnapshotRollback struct {
	// The value that this is about.
	Value string `json:"value"`
	// Pending: the volume's home has not done it yet. Done: it has. Refused: it will not do it.
	State string `json:"state"`
	// Why it waits, or is refused.
	// +optional
	Message string `json:"message,omitempty"`
	// The snapshot of what the volume had until then.
	// +optional
	Before string `json:"before,omitempty"`
}

// GeoVolumeSnapshotStatus is what became of it.
type GeoVolumeSnapshotStatus struct {
	// The generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The volume's UUID, which is the name of its GeoVolumeContent.
	// +optional
	Volume string `json:"volume,omitempty"`
	// The snapshot's name in the volume.
	// +optional
	Snapshot string `json:"snapshot,omitempty"`
	// With spec.hold: the token by which the volume's home holds changes, as it last said.
	// +optional
	Hold string `json:"hold,omitempty"`
	// When it was taken.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// How much the volume held then.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// How many files and directories it had then.
	// +optional
	Files int64 `json:"files,omitempty"`
	// What became of spec.rollback.
	// +optional
	Rollback *SnapshotRollback `json:"rollback,omitempty"`
	// What holds of it, such as Ready. The API reference explains types and reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GeoVolumeSnapshot keeps the state of a volume at one moment. Pods find it in the directory
// .snapshots of each directory.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=gvs,categories=weir
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source.name`
// +kubebuilder:printcolumn:name="Taken",type=date,JSONPath=`.status.time`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Snapshot",type=string,JSONPath=`.status.snapshot`,priority=1
// +kubebuilder:printcolumn:name="Rollback",type=string,JSONPath=`.status.rollback.state`,priority=1
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.status.volume`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="has(self.spec.snapshotName) || size(self.metadata.name) <= 128",message="the object's name is longer than 128 letters: give the snapshot a shorter one in spec.snapshotName"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.hold) || !self.spec.hold || size(has(self.spec.snapshotName) ? self.spec.snapshotName : self.metadata.name) <= 91",message="with hold the snapshot's name gets a dash and the UID, and may have 91 letters before that"
// +kubebuilder:validation:XValidation:rule="!(has(self.spec.snapshotName) ? self.spec.snapshotName : self.metadata.name).matches('^((quarterhourly|hourly|daily|weekly|monthly)-[0-9]|before-rollback-)')",message="names like this are those of scheduled snapshots and of rollbacks: put a word before it"
type GeoVolumeSnapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// What is asked for.
	Spec GeoVolumeSnapshotSpec `json:"spec"`
	// What became of it.
	// +optional
	Status GeoVolumeSnapshotStatus `json:"status,omitzero"`
}

// GeoVolumeSnapshotList is a list of GeoVolumeSnapshot.
// +kubebuilder:object:root=true
type GeoVolumeSnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GeoVolumeSnapshot `json:"items"`
}
