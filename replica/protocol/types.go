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

// Member is a gateway's log: gateway, site, incarnation of the pool, log.
type Member = federation.Member

// Config names the gateway and the volume of a Core, and sets its times.
type Config struct {
	Self      Member
	Volume    string
	Promise   time.Duration // how long a member supports a home that it does not hear from
	Former    time.Duration // the longest Promise of earlier processes, whose promises may last; 0: none
	Heartbeat time.Duration // between messages to a follower; at most a quarter of Promise
	Lent      bool          // earlier processes may have lent leases to gateways without a copy
	Blind     bool          // the log has no key: this gateway leads only to hand on (protocol-28)
}

// Policy is the part of the volume's durability policy that the protocol needs.
type Policy struct {
	Want      int      // members wanted, the home included: 1 for acknowledge Gateway
	Continue  bool     // whenDegraded: Continue
	Sites     []string // sites that hold copies, most preferred home first, blind ones last
	Blind     []string // those of Sites whose copies are blind
	Heirs     []string // other sites to which a steward may hand on, if a copy is there still
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

// LogState is the state of the local log.
type LogState struct {
	End     Position // everything written
	Durable Position // everything fsynced
	Epochs  []log.EpochStart
	// Committed is how far the log is certainly committed, from an earlier life. New alone uses it.
	Committed Position
	// Lacks is how many bytes of the log's past the copy does not have yet: it began with a
	// checkpoint (ADR 47).
	Lacks uint64
	// Base is where the log begins in order: what lies before was condemned, in part or whole.
	Base Position
}

// Kind is a message's kind.
type Kind uint8

// The kinds of messages. From the home: Hello, Append, Advance, Beat, Release. To the home:
// Welcome, Ack, Lost. Both ways: Reject, Refuse. From the home too: Behind.
const (
	Hello   Kind = iota + 1 // begins an epoch with a follower: Epochs
	Welcome                 // the follower's log is a prefix of the home's and durable up to End
	Append                  // frames that begin at Start; the bytes travel beside the message
	Advance                 // Commit has moved; not answered
	Beat                    // Commit, lease; answered by Ack
	Ack                     // durable up to End; promise
	Lost                    // the follower does not have the log from the home, or not in order: send Hello
	Reject                  // Epoch is over: the receiver must read the control record
	Release                 // the home has stopped: the receiver may take over at once
	Refuse                  // Commit is committed, and the receiver's log lacks it: the receiver lost something
	Behind                  // from the home: what comes after the follower's log is not there any more
)

// Message is a message between two gateways about one volume.
type Message struct {
	Kind   Kind
	From   Member
	Epoch  uint64
	Stamp  Time             // sender's clock
	Echo   Time             // newest Stamp that the sender had of the receiver, 0 for none
	Epochs []log.EpochStart // Hello; Refuse to a home
	Part   bool             // Hello: Epochs are only the newest ones
	Whole  bool             // Lost: those were not enough; Hello: Epochs are to stay whole
	Forced []uint64         // Hello: the epochs that a person forced. Releases of before believe it
	Start  Position         // Append: where the frames begin; Welcome: where the follower's log ends
	End    Position         // Hello, Beat: where the home's log ends; Welcome, Ack: durable up to here; Refuse: where the log ends
	Commit Position         // Append, Advance, Beat, Release, Refuse
	Grant  time.Duration    // promise (Ack, Welcome) or lease (Append, Beat), counted from Echo
	// Current: Beat: at Stamp the sender reigned, so all that was acknowledged by then is at or
	// before Commit, and what is not stable at or before End.
	Current bool
	Proved  bool   // Welcome, Refuse: the sender proved to the shell that it can unwrap the data key
	Blind   bool   // Welcome: the sender's copy has no key
	Lacks   uint64 // Welcome, Ack: how many bytes of the log's past the sender does not have yet
	Reads   int    // Ack: how many reads clients of the sender asked for since the last one
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
	Received struct {
		Message Message
		End     Position // of the local log at the time of the step, if that is later than Appended told
	}
	// Appended reports that the local log grew or was cut: after an append at the home, Ingest at a
	// follower, Truncate and BeginEpoch.
	Appended struct{ Log LogState }
	// Synced reports that the log is durable up to Position. It also comes after a probe, with no
	// new position: each one is evidence that fsync works.
	Synced struct{ Position Position }
	// LogFailed reports that the log cannot be trusted any more (protocol-3).
	LogFailed struct{}
	// Jumped reports that time may have passed which the clock did not count: the machine was
	// stopped from outside, or resumed from a picture of its memory (protocol-4).
	Jumped struct{}
	// PeerDown reports that the connection to a gateway broke. What was in flight may be lost.
	PeerDown struct{ Gateway string }
	// PolicyChanged replaces the policy.
	PolicyChanged struct{ Policy Policy }
	// Peers lists the gateways of the federation, with their pools' present incarnations. Their
	// messages tell which log they have. The list is not changed any more.
	Peers struct{ Members []Member }
	// Wanted reports that clients of this gateway read, as often as Reads since the last one. If it
	// may not read from its own copy, it asks the home for a lease (protocol-26).
	Wanted struct{ Reads int }
	// Reading is a message from a gateway without a copy.
	Reading struct {
		Gateway string
		Epoch   uint64   // of the home that it speaks to
		Known   Position // it knows that the log reaches to here, and shows nothing older
		Stamp   Time     // its clock
		Reads   int      // how often its clients read since the last one
	}
	// NotLent reports that a Lend effect was not carried out, and the gateway had no lease before.
	NotLent struct{ Gateway string }
	// Tick comes at least every Heartbeat.
	Tick struct{}
	// Force makes this gateway home without the members' consent: a person accepted the loss, in
	// place of the control record of that epoch and change. His word goes into the record.
	Force struct {
		Epoch, Change uint64
		Word          string
	}
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
	SwapNotMade // the registry did not get it, or could not make it; it never will
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
	// Stream sends Append messages of Epoch to a follower, beginning at From. It goes on as the log
	// grows, until Unstream.
	Stream struct {
		To    string
		Epoch uint64
		From  Position
	}
	// Unstream ends a Stream.
	Unstream struct{ To string }
	// Ingest accepts the frames that came with the Append message being stepped.
	Ingest struct{}
	// Truncate cuts the local log at To. An Appended event follows once that is durable. With
	// Forced, a person forced an epoch that this log does not have, so what would be cut may have
	// been acknowledged: the shell keeps the log aside instead (protocol-6).
	Truncate struct {
		To     Position
		Forced bool
	}
	// BeginEpoch begins an epoch in the local log and syncs it. An Appended event follows.
	BeginEpoch struct{ Epoch uint64 }
	// Committed reports that everything up to Position is committed.
	Committed struct{ Position Position }
	// RoleChanged makes the shell begin or end leading.
	RoleChanged struct {
		Role  Role
		Epoch uint64
	}
	// Pause makes the shell refuse new changes, because the home is about to hand over.
	Pause struct{}
	// Resume ends a Pause: the home does not hand over.
	Resume struct{}
	// Lend gives a gateway without a copy a lease, counted from Echo, a reading of its clock. It
	// then shows nothing that lacks what lies before End.
	Lend struct {
		To    string
		Epoch uint64
		Grant time.Duration
		Echo  Time
		End   Position
	}
	// Anew makes the shell begin anew with a checkpoint: what comes after the end of this log is
	// not there any more, and all that it has is in the home's.
	Anew struct{}
	// Disown reports that the local log lacks something that is committed up to Position, as
	// gateway By knows. It is no member's log any more, and must not be taken for one after a
	// restart (protocol-3).
	Disown struct {
		Committed Position
		By        string
	}
)

func (ControlRead) event()   {}
func (Swapped) event()       {}
func (Received) event()      {}
func (Appended) event()      {}
func (Synced) event()        {}
func (LogFailed) event()     {}
func (Jumped) event()        {}
func (PeerDown) event()      {}
func (PolicyChanged) event() {}
func (Peers) event()         {}
func (Wanted) event()        {}
func (Reading) event()       {}
func (NotLent) event()       {}
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
func (Resume) effect()      {}
func (Disown) effect()      {}
func (Anew) effect()        {}
func (Lend) effect()        {}
