// SPDX-License-Identifier: Apache-2.0

package federation

// VolumeSpec is what an application asked for: the policy dimensions of architecture.md. Package
// federation/spec reads, defaults and checks it; the names are those of the GeoVolume kind.
type VolumeSpec struct {
	// Size is the volume's capacity, in bytes.
	Size        Bytes       `json:"size"`
	Replication Replication `json:"replication"`
	Durability  Durability  `json:"durability"`
	Consistency Consistency `json:"consistency"`
	Cache       Cache       `json:"cache"`
	Home        HomeRules   `json:"home"`
}

// Replication says how many copies there are and where they may be.
type Replication struct {
	Copies int       `json:"copies"`
	Spread Spread    `json:"spread"`
	Sites  SiteRules `json:"sites"`
}

// Spread is what no two copies may share.
type Spread string

// Spreads.
const (
	SpreadOrganization Spread = "Organization"
	SpreadRegion       Spread = "Region"
	SpreadSite         Spread = "Site"
)

// SiteRules name sites that must, should and must not have a copy.
type SiteRules struct {
	Required  []string `json:"required,omitempty"`
	Preferred []string `json:"preferred,omitempty"`
	Forbidden []string `json:"forbidden,omitempty"`
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

// Cache says how much of the volume a gateway keeps on its pool beyond the end of the log.
type Cache struct {
	// Size in bytes; 0: no limit but the pool's room.
	Size Bytes `json:"size"`
}

// HomeRules say where the home should be, best first.
type HomeRules struct {
	PreferredSites []string `json:"preferredSites,omitempty"`
}
