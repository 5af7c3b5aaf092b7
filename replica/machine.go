// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/protocol"
)

// Position is a place in a volume's log.
type Position = log.Position

// Errors of this package.
var (
	// ErrNotHome: this gateway is not the volume's home, or not any more.
	ErrNotHome = errors.New("this gateway is not the home of the volume")
	// ErrNoLease: this gateway may not answer reads from its own copy now.
	ErrNoLease = errors.New("this gateway may not answer reads now")
	// ErrClosed: the replica was closed.
	ErrClosed = errors.New("replica is closed")
	// ErrAlive: a forced takeover was refused, because the home is alive.
	ErrAlive = errors.New("the home of the volume is alive")
)

// Machine is what committed records are applied to: the engine. The replica calls it from one goroutine at a time,
// except Lead, which may run beside Ingest-free calls and blocks until everything committed is applied.
type Machine interface {
	// Ingest takes records over into the queue of those that wait for their commit, in order.
	Ingest(entries []log.Entry) error
	// Commit says that everything up to pos is committed. It does not wait.
	Commit(pos Position)
	// Drop forgets the queued records after pos: the log was cut there.
	Drop(pos Position) error
	// Lead makes the machine execute changes in epoch; the end of ctx ends the attempt. Unlead ends what Lead began, and returns when no
	// Append is under way any more.
	Lead(ctx context.Context, epoch uint64) error
	Unlead()
	// Applied is what can not be taken back any more.
	Applied() Position
}

// Transport carries envelopes to other gateways. Deliveries to one gateway stay in order per
// method; a connection that broke is reported by Node.PeerDown.
type Transport interface {
	// Send queues a message without waiting; it may get lost.
	Send(gateway string, e Envelope)
	// SendFrames sends a message with frames, waiting for the receiver's window.
	SendFrames(ctx context.Context, gateway string, e Envelope) error
}

// Envelope is a protocol message with what belongs to it.
type Envelope struct {
	Volume  string
	Message protocol.Message
	Proof   []byte // with Welcome
	Frames  []byte // with Append
}

// Controls is the part of the registry that a replica needs.
type Controls interface {
	GetControl(ctx context.Context, volume string) (federation.Control, federation.Revision, error)
	SwapControl(ctx context.Context, volume string, prev federation.Revision, next federation.Control) (federation.Revision, error)
}
