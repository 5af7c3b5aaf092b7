// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/federation/upkeep"
)

// Access is what an admitted client may do.
type Access string

// Accesses.
const (
	ReadOnly  Access = "ro"
	ReadWrite Access = "rw"
)

// Admission lets one client address of one site use a volume. Its writer is a person of the
// volume's owner, or with Node the site's gateway, at which that node's plugin asked.
type Admission struct {
	Volume string `json:"volume"`
	Site   string `json:"site"`
	// Client is an IP address in canonical form (netip.Addr.String, without zone).
	Client string `json:"client"`
	Access Access `json:"access"`
	// Node is the node that has the address. The admission counts only while that node has an
	// Attachment.
	Node string `json:"node,omitempty"`
}

// Validate checks the record; errors wrap ErrInvalid.
func (a Admission) Validate() error {
	if err := CheckName("volume", a.Volume); err != nil {
		return err
	}
	if err := CheckLabel("site", a.Site); err != nil {
		return err
	}
	ip, err := netip.ParseAddr(a.Client)
	if err != nil || ip.String() != a.Client || ip.Zone() != "" || ip.Is4In6() {
		return invalid("check", "admission", a.Volume, fmt.Sprintf("client is %q: write one IP address in its canonical form", a.Client))
	}
	if a.Access != ReadOnly && a.Access != ReadWrite {
		return invalid("check", "admission", a.Volume, fmt.Sprintf("access is %q: write ro or rw", a.Access))
	}
	return nil
}

// Keyring holds a volume's data keys, wrapped for each site that may be home (protocol-17).
type Keyring struct {
	Volume     string            `json:"volume"`
	Generation uint64            `json:"generation"` // a later keyring has a higher one
	Wrapped    map[string][]byte `json:"wrapped"`    // the first data key, by site
	// Later are the data keys after the first, in order. New data is sealed with the last.
	Later []LaterKey `json:"later,omitempty"`
}

// LaterKey is a data key that replaced another.
type LaterKey struct {
	At       time.Time         `json:"at"`
	Wrapped  map[string][]byte `json:"wrapped"`            // by site
	Rotation int64             `json:"rotation,omitempty"` // encryption.Newest's
	Under    []byte            `json:"under,omitempty"`    // digest of the keyring.Secret that it is sealed under besides
}

// Keys are the wraps of all data keys, in order.
func (k Keyring) Keys() []map[string][]byte {
	out := []map[string][]byte{k.Wrapped}
	for _, l := range k.Later {
		out = append(out, l.Wrapped)
	}
	return out
}

// Newest are the wraps of the data key that new data is sealed with.
func (k Keyring) Newest() map[string][]byte { return k.Keys()[len(k.Later)] }

// CheckKeyring checks that next may replace prev (nil: next is the first); errors wrap ErrInvalid.
func CheckKeyring(prev *Keyring, next Keyring) error {
	if err := CheckName("volume", next.Volume); err != nil {
		return err
	}
	for _, key := range next.Keys() {
		if len(key) == 0 {
			return invalid("put", "keyring", next.Volume, "it is wrapped for no site: nobody could read the volume; wrap it for each of "+
				"its sites")
		}
		for s := range key {
			if err := CheckLabel("site", s); err != nil {
				return err
			}
		}
	}
	if prev != nil && next.Generation <= prev.Generation {
		return invalid("put", "keyring", next.Volume, fmt.Sprintf(
			"generation %d does not follow %d: a key that is in use is only replaced by a later generation", next.Generation,
			prev.Generation))
	}
	return nil
}

// Observed is a volume as one gateway sees it; that gateway is its only writer, and never swaps it.
// The home's is the one to show. Fields that are not known are left out when it is read.
type Observed struct {
	Volume  string `json:"volume"`
	Gateway string `json:"gateway"`
	// Generation of the desired state that is in force here.
	Generation uint64            `json:"generation"`
	Epoch      uint64            `json:"epoch"`
	Home       string            `json:"home"` // gateway
	Commit     Position          `json:"commit"`
	Replicas   []ObservedReplica `json:"replicas,omitempty"`
	Stores     []ObservedStore   `json:"stores,omitempty"`
	Used       Bytes             `json:"used"`
	Files      uint64            `json:"files,omitempty"` // inodes in use; 0: an older program
	// Held is how much only snapshots hold, which Used does not count; nil: it is not known.
	Held *Bytes `json:"held,omitempty"`
	// Snapshots are the volume's; nil: the home does not know yet.
	Snapshots *snapshots.Report `json:"snapshots,omitempty"`
	// Scrub is how the gateway's own copy is, home or not; nil: it has not been read again yet.
	Scrub *upkeep.Scrubbed `json:"scrub,omitempty"`
	// Opening says why the gateway, which is home, has not opened its copy yet; empty: it has, or
	// is an older program. At and the figures are then those of before.
	Opening string `json:"opening,omitempty"`
	// Replay is how far the gateway has replayed its log; zero: it does not.
	Replay Progress `json:"replay,omitzero"`
	// Message says why the volume is not well; empty when it is.
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// ObservedReplica is one copy as the home sees it.
type ObservedReplica struct {
	Gateway    string       `json:"gateway"`
	Site       string       `json:"site"`
	State      ReplicaState `json:"state"`
	LagBytes   int64        `json:"lagBytes"`
	LagSeconds float64      `json:"lagSeconds"`
	Durable    Position     `json:"durable"`
	// Unheard: it has not answered since this home's reign began. Nobody knows how far it trails.
	// LagBytes, LagSeconds and Durable are zero.
	Unheard bool `json:"unheard,omitempty"`
	// StuckSeconds is how long it has stored nothing although it lacks something, if that is too
	// long (protocol-3).
	StuckSeconds float64 `json:"stuckSeconds,omitempty"`
	// Progress is of a copy that catches up; zero: it does not.
	Progress Progress `json:"progress,omitzero"`
}

// ObservedStore is how far a lent store has a volume's log, as the home sees it.
type ObservedStore = paper.Filled

// Progress is how far a copy has come that catches up with its home's log.
type Progress = quantity.Progress

// Bytes is an amount of bytes, in records.
type Bytes = quantity.Bytes

// Duration is a time span, in records.
type Duration = quantity.Duration

// ReplicaState is what a copy counts for.
type ReplicaState string

// Replica states.
const (
	ReplicaHome     ReplicaState = "Home"
	ReplicaMember   ReplicaState = "Member"   // counts for commit
	ReplicaFollower ReplicaState = "Follower" // has the log, does not count
	ReplicaJoining  ReplicaState = "Joining"  // fetching what it lacks
	ReplicaLost     ReplicaState = "Lost"     // no answer
)
