// SPDX-License-Identifier: Apache-2.0

package cachepool

import (
	"fmt"
	"time"
)

// Report is how the storage below a pool is, as its administrator sees it.
type Report struct {
	// At is when it was looked; zero: it was not yet.
	At time.Time `json:"at,omitzero"`
	// Path is the pool's folder, Dataset the dataset of ZFS that is mounted there; empty: none is.
	Path    string `json:"path"`
	Dataset string `json:"dataset,omitempty"`
	// State is that of the ZFS pool: ONLINE, DEGRADED, FAULTED, UNAVAIL or SUSPENDED.
	State string `json:"state,omitempty"`
	// Classes and Devices are those of the ZFS pool.
	Classes []ClassUse `json:"classes,omitempty"`
	Devices []Device   `json:"devices,omitempty"`
	// ARC is the memory that ZFS reads from first, and L2ARC the cache devices, which it asks next.
	// Both are of all ZFS pools of the machine. nil: nothing is known.
	ARC   *Tier `json:"arc,omitempty"`
	L2ARC *Tier `json:"l2arc,omitempty"`
	// Conditions are sentences about the pool. What is not known is no condition.
	Conditions []Condition `json:"conditions,omitempty"`
}

// Class is what a device is for.
type Class string

// Classes of devices.
const (
	Data    Class = "Data"
	Log     Class = "Log"     // SLOG
	Cache   Class = "Cache"   // L2ARC
	Special Class = "Special" // of special allocation, and of deduplication
	Spare   Class = "Spare"   // also what is not known
)

// ClassUse is how much of a pool's devices of one class is used, in bytes.
type ClassUse struct {
	Class Class `json:"class"`
	Size  int64 `json:"size"`
	Used  int64 `json:"used"`
	// Read and Written count what the devices did since the machine started, for whomever.
	Read    uint64 `json:"read"`
	Written uint64 `json:"written"`
}

// Device is a device of a ZFS pool.
type Device struct {
	Name  string `json:"name"` // as zpool status shows it
	Class Class  `json:"class"`
	Group string `json:"group,omitempty"` // such as mirror-0; "": none
	State string `json:"state"`           // ONLINE, DEGRADED, FAULTED, OFFLINE, REMOVED, UNAVAIL, AVAIL
	// Read, Write and Checksum count errors since the pool was imported, or since zpool clear.
	Read     int64  `json:"readErrors"`
	Write    int64  `json:"writeErrors"`
	Checksum int64  `json:"checksumErrors"`
	Note     string `json:"note,omitempty"` // what zpool says besides
}

// Tier is a cache below the pool.
type Tier struct {
	Size   int64  `json:"size"` // bytes
	Hits   uint64 `json:"hits"` // blocks, since ZFS started
	Misses uint64 `json:"misses"`
}

// Condition is a sentence about a pool, as in Kubernetes.
type Condition struct {
	Type    string `json:"type"`
	Is      bool   `json:"is"`
	Reason  string `json:"reason"`  // one word
	Message string `json:"message"` // with a remedy
}

// Types of conditions. Healthy is good when it is true, the others are bad.
const (
	Healthy     = "Healthy"
	Degraded    = "Degraded"
	SlogMissing = "SlogMissing"
	NearlyFull  = "NearlyFull"
	NotDurable  = "NotDurable"
	Rewound     = "Rewound"
)

// Well reports whether a person need do nothing about it.
func (c Condition) Well() bool { return c.Is == (c.Type == Healthy) }

// FullCondition is NearlyFull for what is used to that many percent, which is much from nearly on.
// why says what a full one means, and what to do.
func FullCondition(what string, percent, nearly int, why string) Condition {
	c := Condition{Type: NearlyFull, Is: percent >= nearly, Reason: "Well", Message: fmt.Sprintf("%d%% of %s are used", percent, what)}
	if c.Is {
		c.Reason = "Full"
		c.Message += ": " + why
	}
	return c
}
