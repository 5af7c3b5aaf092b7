// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"github.com/weir-storage/weir/federation/encryption"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/federation/upkeep"
	"github.com/weir-storage/weir/federation/users"
)

// VolumeSpec is what an application asked for: the policy dimensions of architecture.md. Package
// federation/spec reads, defaults and checks it; the names are those of the GeoVolume kind.
type VolumeSpec struct {
	// Size is the volume's capacity, in bytes.
	Size        Bytes             `json:"size"`
	Replication Replication       `json:"replication"`
	Durability  Durability        `json:"durability"`
	Consistency Consistency       `json:"consistency"`
	Cache       Cache             `json:"cache"`
	Home        HomeRules         `json:"home"`
	Clients     users.Policy      `json:"clients,omitzero"`
	Snapshots   snapshots.Policy  `json:"snapshots,omitzero"`
	Trash       snapshots.Trash   `json:"trash,omitzero"`
	Encryption  encryption.Policy `json:"encryption,omitzero"`
	Quota       upkeep.Quota      `json:"quota,omitzero"`
	Scrub       upkeep.Scrub      `json:"scrub,omitzero"`
	Compaction  upkeep.Compaction `json:"compaction,omitzero"`
}

// Replication says how many copies there are and where they may be.
type Replication struct {
	Copies int       `json:"copies"`
	Spread Spread    `json:"spread"`
	Sites  SiteRules `json:"sites"`
	// OtherOrganizations says what copies at sites of others than the owner are; "": Keyed.
	OtherOrganizations Copies `json:"otherOrganizations,omitempty"`
	// Stores is how many lent stores have its sealed segments besides the copies.
	Stores int `json:"stores,omitempty"`
}

// Spread is what no two copies may share.
type Spread string

// Spreads.
const (
	SpreadOrganization Spread = "Organization"
	SpreadRegion       Spread = "Region"
	SpreadSite         Spread = "Site"
)

// Copies says whether copies are keyed: have the data keys; or blind: ciphertext (protocol-28).
type Copies string

// Kinds of copies.
const (
	CopiesKeyed Copies = "Keyed"
	CopiesBlind Copies = "Blind"
)

// SiteRules name sites that must, should and must not have a copy, and whose copies are blind.
type SiteRules struct {
	Required  []string `json:"required,omitempty"`
	Preferred []string `json:"preferred,omitempty"`
	Forbidden []string `json:"forbidden,omitempty"`
	Blind     []string `json:"blind,omitempty"`
}

// Durability says what a stable write waits for.
type Durability struct {
	Acknowledge Acknowledge `json:"acknowledge"`
	// Sites counts the home's; only with AcknowledgeSites.
	Sites        int          `json:"sites,omitempty"`
	WhenDegraded WhenDegraded `json:"whenDegraded"`
	MaxLag       MaxLag       `json:"maxLag"`
}

// Acknowledge is the set of gateways on which a stable write is fsynced before it is answered.
type Acknowledge string

// Acknowledgements.
const (
	AcknowledgeGateway Acknowledge = "Gateway" // the home alone
	AcknowledgePair    Acknowledge = "Pair"    // a second gateway on another host of the site
	AcknowledgeSites   Acknowledge = "Sites"   // gateways at Durability.Sites sites
)

// WhenDegraded is what stable writes do while fewer members are left than Acknowledge wants.
type WhenDegraded string

// Behaviours when degraded.
const (
	WhenDegradedStall    WhenDegraded = "Stall"
	WhenDegradedContinue WhenDegraded = "Continue"
)

// MaxLag bounds how far any copy may trail before writers are slowed (protocol-11).
type MaxLag struct {
	Time  Duration `json:"time"`
	Bytes Bytes    `json:"bytes"`
}

// Consistency is what readers at other sites see.
type Consistency struct {
	Mode ConsistencyMode `json:"mode"`
	// MaxStaleness only with ConsistencyBounded.
	MaxStaleness Duration `json:"maxStaleness,omitempty"`
}

// ConsistencyMode is how a follower may lag (protocol-26).
type ConsistencyMode string

// Consistency modes.
const (
	ConsistencyStrong  ConsistencyMode = "Strong"
	ConsistencyBounded ConsistencyMode = "Bounded"
)

// Cache says how much of the volume each gateway with a copy keeps on its pool to be read, beyond
// what the log needs there.
type Cache struct {
	// Pool has the labels that the gateway's pool is to have which the volume is on; none: any
	// pool.
	Pool map[string]string `json:"pool,omitempty"`
	// Size in bytes is the most; 0: no limit but the pool's room.
	Size Bytes `json:"size"`
	// Reserve in bytes is what other volumes cannot push out.
	Reserve Bytes `json:"reserve,omitempty"`
	// Memory is the most that a gateway keeps of the volume's blocks in memory, in bytes; 0: no
	// limit but the gateway's.
	Memory Bytes `json:"memory,omitempty"`
	// ARC and L2ARC are what ZFS keeps of it on its pools; "": as their administrators have it.
	ARC   Kept `json:"arc,omitempty"`
	L2ARC Kept `json:"l2arc,omitempty"`
	// Log is what writes are made fast for on pools of ZFS; "": as their administrators have it.
	Log LogBias `json:"log,omitempty"`
	// ReadAhead, in bytes, is fetched ahead of who reads in order; nil: the engine's default.
	ReadAhead *Bytes `json:"readAhead,omitempty"`
	// Prefetch is what is fetched before it is read; "": nothing.
	Prefetch Prefetch `json:"prefetch,omitempty"`
	// BlockSize is the most that a new block has of a file, in bytes; 0: the engine's default.
	BlockSize Bytes `json:"blockSize,omitempty"`
	// Compression is that of new blocks.
	Compression Compression `json:"compression,omitempty"`
	// Pin is what gateways keep on their pools whatever is read.
	Pin []Pin `json:"pin,omitempty"`
}

// With returns c with those fields of local, what a site says of its own cache, that say something.
// What is written is not a matter of one site: BlockSize and Compression are c's.
func (c Cache) With(local *Cache, site string) Cache {
	if local == nil {
		return c
	}
	if len(local.Pool) > 0 {
		c.Pool = local.Pool
	}
	over(&c.Size, local.Size)
	over(&c.Reserve, local.Reserve)
	over(&c.Memory, local.Memory)
	over(&c.ARC, local.ARC)
	over(&c.L2ARC, local.L2ARC)
	over(&c.Log, local.Log)
	over(&c.ReadAhead, local.ReadAhead)
	over(&c.Prefetch, local.Prefetch)
	if len(local.Pin) > 0 {
		c.Pin = nil
		for _, p := range local.Pin {
			if len(p.Sites) == 0 {
				p.Sites = []string{site} // also if it has no copy
			}
			c.Pin = append(c.Pin, p)
		}
	}
	if c.Size > 0 {
		c.Reserve = min(c.Reserve, c.Size) // of which one may be the owner's
	}
	return c
}

// over sets a field to a value that says something.
func over[T comparable](to *T, value T) {
	var nothing T
	if value != nothing {
		*to = value
	}
}

// Pin is what is kept of a volume, and where.
type Pin struct {
	// Path is from the volume's root, absolute. Its names may have the wildcards of path.Match, and
	// ** stands for any number of directories. A directory stands for all below.
	Path string `json:"path"`
	// Sites whose gateways keep it; none: all that have a copy.
	Sites []string `json:"sites,omitempty"`
}

// Kept is what a cache of ZFS keeps of a volume.
type Kept string

// What a cache of ZFS keeps.
const (
	KeptAll      Kept = "All"
	KeptMetadata Kept = "Metadata" // ZFS' own
	KeptNone     Kept = "None"
)

// Prefetch says what gateways fetch to their pools because a client reads something like it.
type Prefetch string

// The values of Prefetch.
const (
	PrefetchNone      Prefetch = "None"
	PrefetchFile      Prefetch = "File"      // all of a file that is read
	PrefetchDirectory Prefetch = "Directory" // all files of a directory of which two are read
	PrefetchPattern   Prefetch = "Pattern"   // the next files, if three are read in the order of names
)

// LogBias is what writes are made fast for.
type LogBias string

// What writes are made fast for.
const (
	LogLatency    LogBias = "Latency"
	LogThroughput LogBias = "Throughput"
)

// Compression is how much work is spent to make blocks smaller.
type Compression string

// Kinds of compression. The empty one is CompressionFast.
const (
	CompressionFast   Compression = "Fast"
	CompressionNone   Compression = "None"
	CompressionStrong Compression = "Strong"
)

// Bounds of Cache.BlockSize, a power of two, in bytes.
const (
	MinBlockSize Bytes = 4 << 10
	MaxBlockSize Bytes = 64 << 10
)

// HomeRules say where the home should be, best first.
type HomeRules struct {
	PreferredSites []string `json:"preferredSites,omitempty"`
}
