// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"time"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
)

// Time is a reading of a monotonic clock that counts suspend (CLOCK_BOOTTIME).
type Time = time.Duration

// Position is a place in the volume's log.
type Position = segment.Position

// Member is a gateway's log: gateway, site, incarnation.
type Member = federation.Member

// Config is what a Core is made for.
type Config struct {
	Self      Member
	Volume    string
	Promise   time.Duration // how long a member supports a home that it does not hear from
	Heartbeat time.Duration // between messages to a follower; at most a quarter of Promise
}

// Policy is what the volume's durability policy asks of the protocol.
type Policy struct {
	Want      int      // members wanted, the home included: 1 for acknowledge Gateway
	Continue  bool     // whenDegraded: Continue
	Sites     []string // sites that hold copies, most preferred home first
	FirstHome string   // site whose gateway makes the first control record
}

// Role is what this gateway is for the volume.
type Role uint8

// The roles.
const (
	Follower  Role = iota // has or receives the log
	Candidate             // its swap to become home is under way
	Starting              // is home; the beginning of its epoch is not committed yet
	Home                  // is home and its epoch has begun
	Failed                // its log is not to be trusted: it takes no part
)

func (r Role) String() string {
	return [...]string{"Follower", "Candidate", "Starting", "Home", "Failed"}[r]
}

// LogState is what the local log holds.
type LogState struct {
	End     Position // everything written
	Durable Position // everything fsynced
	Epochs  []log.EpochStart
}

// Kind is a message's kind.
type Kind uint8

// The kinds of messages. From the home: Hello, Append, Advance, Beat, Release. To the home: Welcome, Ack, Lost. Both ways: Reject.
const (
	Hello   Kind = iota + 1 // begins an epoch with a follower: Epochs
	Welcome                 // the follower's log is a prefix of the home's and durable up to End
	Append                  // frames that begin at Start; the bytes travel beside the message
	Advance                 // Commit has moved; not answered
	Beat                    // Commit, lease; answered by Ack
	Ack                     // durable up to End; promise
	Lost                    // the follower can not place the frames: greet again
	Reject                  // Epoch is over: the receiver must look at the control record
	Release                 // the home has stopped: the receiver may take over at once
)

// Message is what gateways say to each other about one volume.
type Message struct {
	Kind   Kind
	From   Member
	Epoch  uint64
	Stamp  Time             // sender's clock
	Echo   Time             // newest Stamp that the sender had of the receiver, 0 for none
	Epochs []log.EpochStart // Hello
	Forced []uint64         // Hello: the epochs that a person forced
	Start  Position         // Append: of the frames; Welcome: where the follower's log ends
	End    Position         // Hello: where the home's log ends; Welcome, Ack: durable up to here
	Commit Position         // Append, Advance, Beat, Release
	Grant  time.Duration    // promise (Ack, Welcome) or lease (Append, Beat), counted from Echo
	Proved bool             // Welcome: the shell checked that the sender can unwrap the data key
}

// Event is something that happened; see the types below.
type Event interface{ event() }

// Effect is something for the shell to do; see the types below.
type Effect interface{ effect() }

// Events.
type (
	// ControlRead is the control record as read or watched; nil means there is none.
	ControlRead struct {
		Control  *federation.Control
		Revision federation.Revision
	}
	// Swapped ends a Swap effect.
	Swapped struct {
		Outcome  SwapOutcome
		Revision federation.Revision // if SwapDone
	}
	// Received is a message from another gateway.
	Received struct{ Message Message }
	// Appended says that the local log grew, or was cut: after Append at home, ingest at a follower, Truncate and BeginEpoch.
	Appended struct{ Log LogState }
	// Synced says that the log is durable up to Position; also as the answer to a probe with nothing new.
	Synced struct{ Position Position }
	// LogFailed says that the log can not be trusted any more (rule 3).
	LogFailed struct{}
	// PeerDown says that the connection to a gateway is gone: what was in flight may be lost.
	PeerDown struct{ Gateway string }
	// PolicyChanged replaces the policy.
	PolicyChanged struct{ Policy Policy }
	// Peers lists the members (present incarnations) of the volume's sites.
	Peers struct{ Members []Member }
	// Tick comes at least every Heartbeat.
	Tick struct{}
	// Force makes this gateway home without anybody's leave: a person accepted the loss.
	Force struct{}
	// Move makes the home hand over to another gateway.
	Move struct{ To string }
)

// SwapOutcome is how a swap ended.
type SwapOutcome uint8

// The outcomes of a swap.
const (
	SwapDone SwapOutcome = iota
	SwapConflict
	SwapUnknown
)

// Effects.
type (
	// ReadControl asks for a ControlRead event, soon.
	ReadControl struct{}
	// Swap asks for a compare-and-swap and a Swapped event.
	Swap struct {
		Previous federation.Revision // 0: create
		Next     federation.Control
	}
	// Send sends a message, unreliably.
	Send struct {
		To      string
		Message Message
	}
	// Stream begins sending Append messages of Epoch to a follower from From on, and goes on as the log grows, until Unstream.
	Stream struct {
		To    string
		Epoch uint64
		From  Position
	}
	// Unstream ends a Stream.
	Unstream struct{ To string }
	// Ingest accepts the frames that came with the Append message being stepped.
	Ingest struct{}
	// Truncate cuts the local log and, once that is durable, gives an Appended event. Forced: a person forced an epoch that this log knows
	// nothing of, so what would be cut may have been acknowledged: the log is kept aside instead (rule 6).
	Truncate struct {
		To     Position
		Forced bool
	}
	// BeginEpoch begins an epoch in the local log, gives an Appended event and syncs.
	BeginEpoch struct{ Epoch uint64 }
	// Committed says that everything up to Position is committed.
	Committed struct{ Position Position }
	// RoleChanged tells the shell to lead, pause or follow.
	RoleChanged struct {
		Role  Role
		Epoch uint64
	}
	// Pause stops new changes at the home, because it is to hand over.
	Pause struct{}
)

func (ControlRead) event()   {}
func (Swapped) event()       {}
func (Received) event()      {}
func (Appended) event()      {}
func (Synced) event()        {}
func (LogFailed) event()     {}
func (PeerDown) event()      {}
func (PolicyChanged) event() {}
func (Peers) event()         {}
func (Tick) event()          {}
func (Force) event()         {}
func (Move) event()          {}

func (ReadControl) effect() {}
func (Swap) effect()        {}
func (Send) effect()        {}
func (Stream) effect()      {}
func (Unstream) effect()    {}
func (Ingest) effect()      {}
func (Truncate) effect()    {}
func (BeginEpoch) effect()  {}
func (Committed) effect()   {}
func (RoleChanged) effect() {}
func (Pause) effect()       {}
