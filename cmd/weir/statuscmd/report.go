// SPDX-License-Identifier: Apache-2.0

package statuscmd

import (
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/upkeep"
)

// Report is what `weir status -o json` prints.
type Report struct {
	Federation string          `json:"federation"`
	At         time.Time       `json:"at"`
	Volumes    []VolumeReport  `json:"volumes"`  // by name
	Gateways   []GatewayReport `json:"gateways"` // by site and name; all of the federation
	// Registry says that the registry went back, and who noticed; empty: nobody did.
	Registry string `json:"registry,omitempty"`
}

// VolumeState is how a volume is.
type VolumeState string

// Volume states.
const (
	StateReady      VolumeState = "Ready"      // it is served as its policy wants
	StateDegraded   VolumeState = "Degraded"   // it is served, or waits, with fewer members than wanted
	StatePending    VolumeState = "Pending"    // it has no home yet
	StateTakingOver VolumeState = "TakingOver" // a new epoch is about to begin, without a person and without loss
	StateHomeLost   VolumeState = "HomeLost"   // its members are not alive; a person must decide what happens
	StateNotServing VolumeState = "NotServing" // its home is alive and cannot serve it
	StateUnknown    VolumeState = "Unknown"    // its home is alive and does not answer from here
)

// VolumeReport is one volume.
type VolumeReport struct {
	Name  string      `json:"name"`
	UUID  string      `json:"uuid"`
	State VolumeState `json:"state"`
	// Message says why the volume is not Ready, or what else there is to know. Remedy is a command
	// that helps, if there is one.
	Message  string `json:"message,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
	Home     string `json:"home,omitempty"` // gateway
	HomeSite string `json:"homeSite,omitempty"`
	Epoch    uint64 `json:"epoch"`
	// Members are the gateways on which a write is fsynced before it is committed, the home among
	// them.
	Members       []string `json:"members"`
	WantedMembers int      `json:"wantedMembers"`
	// Commit is the commit position. It is missing when it is not known.
	Commit *federation.Position `json:"commit,omitempty"`
	// AsOf is set when the home did not answer. Commit and lags are what it wrote to the registry
	// then.
	AsOf     time.Time                  `json:"asOf,omitzero"`
	Replicas []ReplicaReport            `json:"replicas"`         // home first, then by gateway
	Stores   []federation.ObservedStore `json:"stores,omitempty"` // lent ones
}

// ReplicaReport is one copy.
type ReplicaReport struct {
	Gateway string `json:"gateway"`
	Site    string `json:"site"`
	// State is Home, Member, Follower, Joining or Lost as the home sees it, or Down (not alive), or
	// Unknown (nobody said anything of it).
	State string `json:"state"`
	// Blind: it holds ciphertext only, and is never home.
	Blind bool `json:"blind,omitempty"`
	// LagSeconds and LagBytes are how far it trails the home. They are missing when that is not
	// known.
	LagSeconds *float64 `json:"lagSeconds,omitempty"`
	LagBytes   *int64   `json:"lagBytes,omitempty"`
	// Progress is set while it catches up.
	Progress *federation.Progress `json:"progress,omitempty"`
	// End is the end of its log, as its gateway says. It is missing when the gateway does not
	// answer.
	End *federation.Position `json:"end,omitempty"`
	// Durable is the end of its log, as the home says.
	Durable *federation.Position `json:"durable,omitempty"`
	// Serving reports whether it answers reads. It is missing when the gateway does not answer.
	Serving *bool `json:"serving,omitempty"`
	// Salvage are copies that were set aside there: they have what a forced failover left out.
	Salvage []string `json:"salvage,omitempty"`
	Problem string   `json:"problem,omitempty"`
	// Scrub is what its gateway found when it read the copy again; missing: nothing is known.
	Scrub *upkeep.Scrubbed `json:"scrub,omitempty"`
}

// GatewayReport is one gateway.
type GatewayReport struct {
	Name         string `json:"name"`
	Site         string `json:"site"`
	Organization string `json:"organization"`
	Addr         string `json:"addr"`
	NFSAddr      string `json:"nfsAddr,omitempty"`
	Alive        bool   `json:"alive"`    // its heartbeat is in the registry
	Answered     bool   `json:"answered"` // to the request for its status
	Problem      string `json:"problem,omitempty"`
}

// Replica states besides federation.ReplicaState.
const (
	replicaDown    = "Down"
	replicaUnknown = "Unknown"
)
