// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VolumePolicySpec says, for an application, how many copies a volume has and where, when a write
// is safe, what readers at other sites see, and how it is cached. Every field may be left out, and
// then has a default. Each is marked with what a change does to volumes that exist: Live (soon,
// without a remount), NewDataOnly, or Immutable (a change is refused, or does not reach them).
type VolumePolicySpec struct {
	// How many copies there are, and at which sites.
	// +optional
	Replication Replication `json:"replication,omitzero"`
	// What a stable write (fsync, a change of a name) waits for.
	// +optional
	Durability Durability `json:"durability,omitzero"`
	// What readers at other sites see.
	// +optional
	Consistency Consistency `json:"consistency,omitzero"`
	// How gateways cache the volume.
	// +optional
	Cache Cache `json:"cache,omitzero"`
	// Where the volume should be at home.
	// +optional
	Home Home `json:"home,omitzero"`
	// Who the users of clients are to the volume, at all sites but those whose grants say it.
	// +optional
	Clients Clients `json:"clients,omitzero"`
	// Which snapshots the volume gets by itself, and how they are seen.
	// +optional
	Snapshots Snapshots `json:"snapshots,omitzero"`
	// For how long removed files can be restored.
	// +optional
	Trash Trash `json:"trash,omitzero"`
	// When the volume's data keys are replaced.
	// +optional
	Encryption Encryption `json:"encryption,omitzero"`
	// How many files the volume may hold.
	// +optional
	Quota VolumeQuota `json:"quota,omitzero"`
	// How often gateways read again what they have.
	// +optional
	Scrub Scrub `json:"scrub,omitzero"`
	// How fast and when room that is not used any more comes back.
	// +optional
	Compaction Compaction `json:"compaction,omitzero"`
}

// Squash is which users of clients are nobody.
// +kubebuilder:validation:Enum=None;Root;All
type Squash string

// Who is squashed.
const (
	SquashNone Squash = "None"
	// user 0, and group 0
	SquashRoot Squash = "Root"
	SquashAll  Squash = "All"
)

// Clients says who the users of clients are to a volume. Clients send numbers, and whoever has the
// address of a node that is admitted can send any.
// +kubebuilder:validation:XValidation:rule="!has(self.squash) || self.squash != 'All' || (!has(self.uids) && !has(self.gids))",message="squash: All leaves nobody for uids and gids: remove them, or write squash: None"
type Clients struct {
	// Which users are nobody. Root: user 0, and group 0. Default None. Live.
	// +optional
	Squash Squash `json:"squash,omitempty"`
	// Who nobody is in the volume. Default 65534. Live.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483646
	AnonymousUID *int32 `json:"anonymousUID,omitempty"`
	// The group of nobody in the volume. Default 65534. Live.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483646
	AnonymousGID *int32 `json:"anonymousGID,omitempty"`
	// Which users of clients are which of the volume. With any, in uids or gids, who is in none is
	// nobody, and what belongs to others is shown as nobody's (65534). Live.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	UIDs []IDRange `json:"uids,omitempty"`
	// Which groups of clients are which of the volume. Live.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	GIDs []IDRange `json:"gids,omitempty"`
	// Permissions of groups and others that do not count for clients, in octal: with 077 only
	// owners have any, and what clients create is their owners' only. Live.
	// +optional
	// +kubebuilder:validation:Pattern=`^0?[0-7]{1,2}$`
	Mask string `json:"mask,omitempty"`
	// Whether a client has to show a certificate of its site, on a connection of TLS. Nodes do it
	// where the chart's csi.node.tls is set; others are refused. Default None. Live.
	// +optional
	Certificates Certificates `json:"certificates,omitempty"`
}

// Certificates is which clients have to show one.
// +kubebuilder:validation:Enum=None;Required
type Certificates string

// Who shows a certificate.
const (
	CertificatesNone     Certificates = "None"
	CertificatesRequired Certificates = "Required"
)

// IDRange says which users of clients are which of the volume.
type IDRange struct {
	// The first user of clients. Live.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483646
	Client int32 `json:"client"`
	// The user of the volume that it is. Live.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483646
	Volume int32 `json:"volume"`
	// How many follow each other. Default 1. Live.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Count *int32 `json:"count,omitempty"`
}

// Spread is what no two copies may share.
// +kubebuilder:validation:Enum=Organization;Region;Site
type Spread string

// Spreads.
const (
	SpreadOrganization Spread = "Organization"
	SpreadRegion       Spread = "Region"
	SpreadSite         Spread = "Site"
)

// Replication says how many copies there are and where they may be.
// +kubebuilder:validation:XValidation:rule="!has(self.sites) || !has(self.sites.required) || size(self.sites.required) <= (has(self.copies) ? self.copies : 2)",message="more sites.required than copies: raise copies to the number of required sites, or require fewer"
type Replication struct {
	// Sites that have a whole copy. Default 2. Live.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Copies *int32 `json:"copies,omitempty"`
	// What no two copies share. Default Site. Live: of two copies that share it, the one that is
	// not the home moves.
	// +optional
	Spread Spread `json:"spread,omitempty"`
	// Sites that must, should and must not have a copy.
	// +optional
	Sites SiteRules `json:"sites,omitzero"`
	// What copies at sites of other organizations than the volume's are. Default Keyed. Live: a
	// copy that becomes blind gives its key up, and what is written from then on has another one,
	// if the federation's records are signed; a home moves before. One copy at least is keyed. No
	// blind copy is made where a site was granted something.
	// +optional
	OtherOrganizations Copies `json:"otherOrganizations,omitempty"`
	// In how many stores, which other organizations lend by a StorageAgreement, the volume's sealed
	// segments are besides its copies. They hold ciphertext only, count as copies, and acknowledge
	// nothing. A copy for which there is no site is in such a store too. Default 0. Live.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	Stores *int32 `json:"stores,omitempty"`
}

// Copies is a kind of copies.
// +kubebuilder:validation:Enum=Keyed;Blind
type Copies string

// Kinds of copies.
const (
	// it has the volume's key: it may become home, and serve its site
	CopiesKeyed Copies = "Keyed"
	// it holds ciphertext only: it counts for durability, and nobody there can read it
	CopiesBlind Copies = "Blind"
)

// SiteName is the name of a Site.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
type SiteName string

// SiteRules name sites, or select them by label.
// +kubebuilder:validation:XValidation:rule="!has(self.forbidden) || !has(self.required) || self.required.all(s, !(s in self.forbidden))",message="a site is in both required and forbidden: remove it from one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.forbidden) || !has(self.preferred) || self.preferred.all(s, !(s in self.forbidden))",message="a site is in both preferred and forbidden: remove it from one of them"
type SiteRules struct {
	// Sites that have a copy in any case. Live: one that is added gets a copy; a site that is not
	// named gives its own up for it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	Required []SiteName `json:"required,omitempty"`
	// Sites that come first where there is a choice, best first. Live: it counts when a site is
	// chosen the next time; copies that are there stay.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Preferred []SiteName `json:"preferred,omitempty"`
	// Sites that never have one. Live: a copy there moves to another site.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Forbidden []SiteName `json:"forbidden,omitempty"`
	// Sites whose copies hold ciphertext only, whichever organization they are of. Live, as
	// otherOrganizations.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Blind []SiteName `json:"blind,omitempty"`
	// Labels that a site must have to get a copy, for instance its jurisdiction. A site's
	// organization and region are labels too: organization.weir.dev and region.weir.dev. A label
	// that the federation's charter says of any site counts only as the charter says. Live: copies
	// at sites that do not have them move.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// Acknowledge is where a stable write has to be on disk before it is acknowledged.
// +kubebuilder:validation:Enum=Gateway;Pair;Sites
type Acknowledge string

// Acknowledgements.
const (
	// the home alone
	AcknowledgeGateway Acknowledge = "Gateway"
	// a second gateway on another host of the home's site; not available yet
	AcknowledgePair Acknowledge = "Pair"
	// gateways at as many sites as durability.sites says
	AcknowledgeSites Acknowledge = "Sites"
)

// WhenDegraded is what stable writes do while fewer members are left than Acknowledge wants.
// +kubebuilder:validation:Enum=Stall;Continue
type WhenDegraded string

// Behaviours when degraded.
const (
	WhenDegradedStall    WhenDegraded = "Stall"
	WhenDegradedContinue WhenDegraded = "Continue"
)

// Durability says what a stable write waits for.
// +kubebuilder:validation:XValidation:rule="!has(self.sites) || (has(self.acknowledge) && self.acknowledge == 'Sites')",message="sites is only for acknowledge: Sites: remove sites, or write acknowledge: Sites"
// +kubebuilder:validation:XValidation:rule="!has(self.acknowledge) || self.acknowledge != 'Pair'",message="acknowledge: Pair is not available yet: write Gateway, or Sites to have writes fsynced at a second site"
type Durability struct {
	// Gateway: on the home's disk. Sites: on disks at `sites` sites. Default Gateway. Live.
	// +optional
	Acknowledge Acknowledge `json:"acknowledge,omitempty"`
	// How many sites, with the home's own; only with acknowledge: Sites, and at most copies.
	// Default 2. Live.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Sites *int32 `json:"sites,omitempty"`
	// With fewer sites left than that: Stall makes stable writes wait, Continue goes on with those
	// that are left. Default Stall. Live.
	// +optional
	WhenDegraded WhenDegraded `json:"whenDegraded,omitempty"`
	// How far any other copy may trail before writers are slowed.
	// +optional
	MaxLag MaxLag `json:"maxLag,omitzero"`
}

// MaxLag bounds how far a copy may trail.
// +kubebuilder:validation:XValidation:rule="!has(self.time) || duration(self.time) > duration('0s')",message="time must be more than 0: write a time span, such as 1m"
// +kubebuilder:validation:XValidation:rule="!has(self.bytes) || quantity(string(self.bytes)).isGreaterThan(quantity('0'))",message="bytes must be more than 0: write an amount, such as 1Gi"
type MaxLag struct {
	// How old the oldest change may be that a copy lacks. Default 1m. Live.
	// +optional
	Time *metav1.Duration `json:"time,omitempty"`
	// How much of the log a copy may lack. Default 1Gi. Live.
	// +optional
	Bytes *resource.Quantity `json:"bytes,omitempty"`
}

// ConsistencyMode is how far behind readers at other sites may be.
// +kubebuilder:validation:Enum=Strong;Bounded
type ConsistencyMode string

// Consistency modes.
const (
	ConsistencyStrong  ConsistencyMode = "Strong"
	ConsistencyBounded ConsistencyMode = "Bounded"
)

// Consistency is what readers at other sites see.
// +kubebuilder:validation:XValidation:rule="!has(self.maxStaleness) || (has(self.mode) && self.mode == 'Bounded')",message="maxStaleness is only for mode: Bounded: remove maxStaleness, or write mode: Bounded"
type Consistency struct {
	// Strong: a change is acknowledged when all sites that read show it. Bounded: other sites may
	// show what was true maxStaleness ago, without asking another site; what is written at a site
	// is seen there at once. Default Strong. Live.
	// +optional
	Mode ConsistencyMode `json:"mode,omitempty"`
	// How old what other sites show may be; only with mode: Bounded. With less than about 500ms
	// most reads ask the home. Default 5s. Live.
	// +optional
	MaxStaleness *metav1.Duration `json:"maxStaleness,omitempty"`
}

// Kept is what a cache of ZFS keeps of a volume.
// +kubebuilder:validation:Enum=All;Metadata;None
type Kept string

// What a cache of ZFS keeps.
const (
	KeptAll Kept = "All"
	// only what ZFS needs to find data
	KeptMetadata Kept = "Metadata"
	KeptNone     Kept = "None"
)

// LogBias is what writes are made fast for.
// +kubebuilder:validation:Enum=Latency;Throughput
type LogBias string

// What writes are made fast for.
const (
	// they are durable on the log devices first
	LogLatency LogBias = "Latency"
	// they are durable on the data devices, at once
	LogThroughput LogBias = "Throughput"
)

// Compression is how much work is spent to make data smaller.
// +kubebuilder:validation:Enum=Fast;None;Strong
type Compression string

// Kinds of compression.
const (
	// zstd at its fastest
	CompressionFast Compression = "Fast"
	// data is kept as it is
	CompressionNone Compression = "None"
	// zstd with several times the work
	CompressionStrong Compression = "Strong"
)

// Prefetch says what is fetched before it is read.
// +kubebuilder:validation:Enum=None;File;Directory;Pattern
type Prefetch string

// The values of Prefetch.
const (
	PrefetchNone      Prefetch = "None"
	PrefetchFile      Prefetch = "File"
	PrefetchDirectory Prefetch = "Directory"
	PrefetchPattern   Prefetch = "Pattern"
)

// Cache says how much of the volume each gateway with a copy keeps to be read, beyond what the log
// needs, and how it reads and writes. Nothing of it changes what is read or what is durable.
// +kubebuilder:validation:XValidation:rule="!has(self.size) || !has(self.reserve) || quantity(string(self.reserve)).compareTo(quantity(string(self.size))) <= 0",message="reserve is more than size, so it would never be used: lower it, or raise size"
// +kubebuilder:validation:XValidation:rule="!has(self.memory) || quantity(string(self.memory)).compareTo(quantity('1Mi')) >= 0",message="memory is less than 1Mi: write more, or leave it out for no limit of its own"
// +kubebuilder:validation:XValidation:rule="!has(self.readAhead) || quantity(string(self.readAhead)).compareTo(quantity('64Mi')) <= 0 && quantity(string(self.readAhead)).compareTo(quantity('0')) >= 0",message="readAhead is not from 0 to 64Mi: write an amount such as 4Mi, or 0 for none"
// +kubebuilder:validation:XValidation:rule="!has(self.blockSize) || string(self.blockSize) in ['4Ki', '8Ki', '16Ki', '32Ki', '64Ki', '4096', '8192', '16384', '32768', '65536']",message="blockSize is no power of two from 4Ki to 64Ki: write 4Ki, 8Ki, 16Ki, 32Ki or 64Ki"
type Cache struct {
	// Which of a gateway's pools the volume is on. A site without such a pool gets no copy. A
	// volume whose pool is another moves while it is used; it is closed for a moment. Default: the
	// gateway's main pool. Live.
	// +optional
	Pool *PoolSelector `json:"pool,omitempty"`
	// The most that is kept on the pool to be read. What is used least goes first. Default: no
	// limit but the pool's room. Live.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// How much of what is kept other volumes cannot push out; at most size. If the reserves of all
	// volumes are more than three quarters of what logs leave of a pool, each gets its share of
	// that. Default: none. Live.
	// +optional
	Reserve *resource.Quantity `json:"reserve,omitempty"`
	// The most that a gateway keeps in its memory. What was read longest ago goes first. Default:
	// no limit but the gateway's. Live.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
	// What ZFS keeps in memory, where the pool is ZFS. Default: as the pool's administrator has it.
	// Live.
	// +optional
	ARC Kept `json:"arc,omitempty"`
	// What ZFS keeps on cache devices, where the pool is ZFS. Default: as the pool's administrator
	// has it. Live.
	// +optional
	L2ARC Kept `json:"l2arc,omitempty"`
	// What writes are made fast for, where the pool is ZFS: Latency puts what is synced on log
	// devices first; Throughput leaves those to others. Default: as the pool's administrator has
	// it. Live.
	// +optional
	Log LogBias `json:"log,omitempty"`
	// How much a gateway fetches ahead of who reads a file in order; 0 is none. Default 4Mi. Live.
	// +optional
	ReadAhead *resource.Quantity `json:"readAhead,omitempty"`
	// What a gateway brings to its pool from elsewhere before it is read. File: all of a file that
	// is read. Directory: all files of a directory of which two are read, not those below it.
	// Pattern: the next four files, when three of a directory are read in the order of their
	// names, or every second, third … of them, also backwards. Default None. Live.
	// +optional
	Prefetch Prefetch `json:"prefetch,omitempty"`
	// The largest block: what a read of a single byte fetches, and what is compressed together.
	// Smaller ones suit random access, and take more room. Default 64Ki. NewDataOnly.
	// +optional
	BlockSize *resource.Quantity `json:"blockSize,omitempty"`
	// How much work is spent to make data smaller. Default Fast. NewDataOnly.
	// +optional
	Compression Compression `json:"compression,omitempty"`
	// What gateways that have a copy keep on their pools whatever is read, again after changes.
	// Pins and reserves of all volumes leave a quarter of a pool to all else. Live.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Pin []Pin `json:"pin,omitempty"`
}

// PoolSelector chooses pools by their labels.
type PoolSelector struct {
	// Labels that the pool has, all of them, such as tier: nvme. They are the labels of CachePools,
	// which the chart writes. Live.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	MatchLabels map[string]string `json:"matchLabels"`
}

// Pin is what is kept of a volume, and where.
type Pin struct {
	// A path from the volume's root, such as /reference. A directory stands for all below. Names
	// may have * and ? and [a-z], and ** stands for any number of directories. Live.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/`
	Path string `json:"path"`
	// Sites whose gateways keep it. Default: all that have a copy. Live.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	Sites []SiteName `json:"sites,omitempty"`
}

// VolumePolicyStatus says who uses the policy.
type VolumePolicyStatus struct {
	// The generation of the spec that the counts are about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Volumes owned by this cluster that use the policy.
	// +optional
	Volumes int32 `json:"volumes"`
	// How many of them have the present generation of the policy in force.
	// +optional
	UpToDate int32 `json:"upToDate"`
	// What holds of it, such as Ready. The API reference explains types and reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VolumePolicy is a way to keep data that applications choose by name: in a StorageClass, a
// VolumeAttributesClass or a GeoVolume. It is local to its cluster. An edit reaches the volumes
// that use it one by one.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=vp,categories=weir
// +kubebuilder:printcolumn:name="Copies",type=integer,JSONPath=`.spec.replication.copies`
// +kubebuilder:printcolumn:name="Acknowledge",type=string,JSONPath=`.spec.durability.acknowledge`
// +kubebuilder:printcolumn:name="Sites",type=integer,JSONPath=`.spec.durability.sites`
// +kubebuilder:printcolumn:name="Volumes",type=integer,JSONPath=`.status.volumes`
// +kubebuilder:printcolumn:name="UpToDate",type=integer,JSONPath=`.status.upToDate`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Spread",type=string,JSONPath=`.spec.replication.spread`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type VolumePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// What the policy says. A volume's own fields come before it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.durability) || !has(self.durability.sites) || self.durability.sites <= (has(self.replication) && has(self.replication.copies) ? self.replication.copies : 2)",message="durability.sites is more than replication.copies: more sites than have a copy can never fsync a write; lower it, or raise copies"
	Spec VolumePolicySpec `json:"spec,omitzero"`
	// Who uses it.
	// +optional
	Status VolumePolicyStatus `json:"status,omitzero"`
}

// VolumePolicyList is a list of VolumePolicy.
// +kubebuilder:object:root=true
type VolumePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VolumePolicy `json:"items"`
}
