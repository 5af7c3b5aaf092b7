// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CachePoolSpec says what a pool is made of: a directory of any local file system, or a dataset of
// ZFS. The chart writes it with the values that it also writes into the gateway's configuration,
// which the gateway goes by. What is not as it is written here is told by the condition Ready.
type CachePoolSpec struct {
	// How much of the pool's disk Weir may use. Live: it is compared with what the gateway keeps
	// to, pool.size of its configuration.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('64Mi')) >= 0",message="a pool needs at least 64Mi: write how much of its disk it may use, such as 100Gi"
	Size resource.Quantity `json:"size"`
	// The directory in the gateway's pod that is the pool, or where its dataset is mounted.
	// Immutable.
	// +kubebuilder:validation:Pattern=`^/`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a pool does not change its directory: what is acknowledged is there; make another pool"
	Directory string `json:"directory"`
	// The dataset of ZFS that is mounted at the directory. Without it the pool is the directory of
	// any local file system. Live: it is compared with what the gateway has.
	// +optional
	ZFS *CachePoolZFS `json:"zfs,omitempty"`
	// NAMESPACE/NAME, where NAME is the gateway's in the registry. Live: it says whose state is
	// shown.
	// +kubebuilder:validation:MinLength=1
	Gateway string `json:"gateway"`
	// The pool's name in the gateway's configuration. Default: main. Live.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
}

// CachePoolZFS is a dataset of a ZFS pool, with one for each volume below it.
type CachePoolZFS struct {
	// The dataset, such as tank/weir. Live: it is compared with the gateway's. A gateway with
	// another dataset has another pool, and begins anew there.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)+$`
	Dataset string `json:"dataset"`
	// The devices that the ZFS pool has been made of, or is to have by now. Live: it is told what
	// is missing. Nothing is added or taken away by itself.
	// +optional
	Devices *CachePoolDevices `json:"devices,omitempty"`
}

// Layout is how a ZFS pool keeps data on its devices.
// +kubebuilder:validation:Enum=Stripe;Mirror;Raidz;Raidz2;Raidz3
type Layout string

// Layouts.
const (
	LayoutStripe Layout = "Stripe" // no redundancy
	LayoutMirror Layout = "Mirror" // each device has everything
	LayoutRaidz  Layout = "Raidz"  // one device may be lost
	LayoutRaidz2 Layout = "Raidz2" // two may be lost
	LayoutRaidz3 Layout = "Raidz3" // three may be lost
)

// CachePoolDevices are paths of block devices of the gateway's machine, best those in
// /dev/disk/by-id.
type CachePoolDevices struct {
	// What has the data. Live: it is compared by number.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	Data []DevicePath `json:"data"`
	// How data are kept on them. Default Stripe. Live: it is compared.
	// +optional
	Layout Layout `json:"layout,omitempty"`
	// SLOG: what is synced is durable there. Live: it is compared by number.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +listType=set
	Log []DevicePath `json:"log,omitempty"`
	// L2ARC: what is read often, and does not fit in memory. Live: it is compared by number.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	Cache []DevicePath `json:"cache,omitempty"`
}

// DevicePath is the absolute path of a block device.
// +kubebuilder:validation:MaxLength=255
// +kubebuilder:validation:Pattern=`^/`
type DevicePath string

// CachePoolStatus is what is known of a pool.
type CachePoolStatus struct {
	// The generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The identity of the logs on the pool; a pool that was lost comes back with another.
	// +optional
	Incarnation string `json:"incarnation,omitempty"`
	// When the amounts below were so. If they are all that changes, they are written anew after
	// half a minute.
	// +optional
	AsOf *metav1.Time `json:"asOf,omitempty"`
	// The ZFS pool's state, as zpool tells it: ONLINE, DEGRADED, FAULTED, UNAVAIL or SUSPENDED.
	// +optional
	State string `json:"state,omitempty"`
	// How much the gateway keeps to.
	// +optional
	Limit *resource.Quantity `json:"limit,omitempty"`
	// How much of that is used: logs, metadata, and what is kept to be read.
	// +optional
	Used *resource.Quantity `json:"used,omitempty"`
	// How much of what is used is only kept to be read, and goes when the room is needed.
	// +optional
	Kept *resource.Quantity `json:"kept,omitempty"`
	// Devices of the ZFS pool by what they are for.
	// +optional
	// +listType=map
	// +listMapKey=class
	Classes []CachePoolClass `json:"classes,omitempty"`
	// The ZFS pool's devices.
	// +optional
	// +listType=atomic
	Devices []CachePoolDevice `json:"devices,omitempty"`
	// The memory that ZFS reads from first. It is of all ZFS pools of the machine.
	// +optional
	ARC *CachePoolTier `json:"arc,omitempty"`
	// The cache devices, which are asked next. They are of all ZFS pools of the machine.
	// +optional
	L2ARC *CachePoolTier `json:"l2arc,omitempty"`
	// What volumes take of the pool: at most 32, those that take most.
	// +optional
	// +listType=map
	// +listMapKey=name
	Volumes []CachePoolVolume `json:"volumes,omitempty"`
	// What holds of it, such as Ready. The API reference explains types and reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CachePoolClass is how much of the devices of one class is used.
type CachePoolClass struct {
	// Data, Special, Log (SLOG) or Cache (L2ARC).
	Class string `json:"class"`
	// How many devices there are.
	Devices int32 `json:"devices"`
	// How much they hold.
	Size resource.Quantity `json:"size"`
	// How much of that is used.
	Used resource.Quantity `json:"used"`
	// What was read from them since the machine started.
	Read resource.Quantity `json:"read"`
	// What was written to them since the machine started.
	Written resource.Quantity `json:"written"`
	// How often they failed to read or to write, or gave damaged blocks, since the ZFS pool was
	// imported.
	Errors int64 `json:"errors"`
}

// CachePoolDevice is a device of a ZFS pool.
type CachePoolDevice struct {
	// Its name, as zpool shows it.
	Name string `json:"name"`
	// Data, Special, Log (SLOG), Cache (L2ARC) or Spare.
	Class string `json:"class"`
	// The mirror or raidz that it is part of.
	// +optional
	Group string `json:"group,omitempty"`
	// ONLINE, DEGRADED, FAULTED, OFFLINE, REMOVED, UNAVAIL or AVAIL.
	State string `json:"state"`
	// How often it failed to read or to write, or gave damaged blocks, since the ZFS pool was
	// imported.
	Errors int64 `json:"errors"`
	// What zpool says besides.
	// +optional
	Note string `json:"note,omitempty"`
}

// CachePoolTier is a cache of ZFS.
type CachePoolTier struct {
	// How much is in it.
	Size resource.Quantity `json:"size"`
	// The share of reads that found the block there, since ZFS started, such as 97.5%.
	HitRate string `json:"hitRate"`
}

// CachePoolVolume is what a volume takes of a pool.
type CachePoolVolume struct {
	// The volume's name.
	Name string `json:"name"`
	// Its log.
	Log resource.Quantity `json:"log"`
	// Its names and attributes.
	Metadata resource.Quantity `json:"metadata"`
	// Blocks that were read from elsewhere.
	Cache resource.Quantity `json:"cache"`
}

// CachePool is the pool of a site's gateway: the end of the logs of its volumes, and a cache of the
// rest.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cp,categories=weir
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=`.spec.gateway`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.spec.size`
// +kubebuilder:printcolumn:name="Used",type=string,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Directory",type=string,JSONPath=`.spec.directory`,priority=1
// +kubebuilder:printcolumn:name="Dataset",type=string,JSONPath=`.spec.zfs.dataset`,priority=1
// +kubebuilder:printcolumn:name="Slog Written",type=string,JSONPath=`.status.classes[?(@.class=="Log")].written`,priority=1
// +kubebuilder:printcolumn:name="ARC Hits",type=string,JSONPath=`.status.arc.hitRate`,priority=1
// +kubebuilder:printcolumn:name="L2ARC Hits",type=string,JSONPath=`.status.l2arc.hitRate`,priority=1
// +kubebuilder:printcolumn:name="L2ARC Size",type=string,JSONPath=`.status.l2arc.size`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type CachePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// What the pool is made of.
	Spec CachePoolSpec `json:"spec"`
	// What is known of it.
	// +optional
	Status CachePoolStatus `json:"status,omitzero"`
}

// CachePoolList is a list of CachePool.
// +kubebuilder:object:root=true
type CachePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CachePool `json:"items"`
}
