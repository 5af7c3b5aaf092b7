// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"fmt"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/protocol"
)

// Position is a place in a volume's log.
type Position = journal.Position

// errClosed reports that the replica was closed.
var errClosed = fmt.Errorf("replica is closed: %w", journal.ErrNotHome)

// Transport carries envelopes to other gateways. Deliveries to one gateway stay in order per
// method. The owner of the transport reports a broken connection with Node.PeerDown.
type Transport interface {
	// Send queues messages, which stay in order, and does not wait. They may get lost. Those of one
	// call travel together if the other side can take that. The slice belongs to the transport.
	Send(gateway string, all []Envelope)
	// SendFrames sends a message with frames. It waits while the receiver's window is full.
	SendFrames(ctx context.Context, gateway string, e Envelope) error
}

// Envelope is a protocol message with what belongs to it.
type Envelope struct {
	Volume  string
	Message protocol.Message
	Proof   []byte // with Welcome and Refuse
	Frames  []byte // with Append
}

// Controls is the part of the registry that a replica needs.
type Controls interface {
	GetControl(ctx context.Context, volume string) (federation.Control, federation.Revision, error)
	SwapControl(ctx context.Context, volume string, prev federation.Revision, next federation.Control) (federation.Revision, error)
}
