// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/internal/records"
	"github.com/weir-storage/weir/federation/internal/sieve"
	"github.com/weir-storage/weir/federation/signed"
)

// Fault is what goes wrong with one change (never with a read).
type Fault int

// Faults.
const (
	// None lets a change through; for scripts such as "the second from now".
	None Fault = iota
	// ConflictFault answers as if someone else had been faster: ErrConflict, not applied.
	ConflictFault
	// UnavailableFault answers ErrUnavailable, not applied.
	UnavailableFault
	// UnknownApplied answers ErrUnknown; it was applied.
	UnknownApplied
	// UnknownLost answers ErrUnknown; it never is applied.
	UnknownLost
	// UnknownLate answers ErrUnknown; it is tried when Deliver is called, if its conditions hold
	// then.
	UnknownLate
)

// faults is guarded by the server's lock.
type faults struct {
	down   bool
	script []Fault
	late   []func()
}

func (f *faults) next() Fault {
	if len(f.script) == 0 {
		return None
	}
	n := f.script[0]
	f.script = f.script[1:]
	return n
}

// Client is one gateway's connection, a federation.Registry.
type Client struct {
	*records.Registry
	kv *kv
}

var _ federation.Registry = (*Client)(nil)

// Client returns a new connection. Guard may be nil.
func (s *Server) Client(guard *federation.Guard) *Client {
	c := &kv{s: s, done: make(chan struct{})}
	return &Client{Registry: records.New(c, guard, c.pause), kv: c}
}

// Sealed is Client with a seal, which signs what is written, and checks what is read.
func (s *Server) Sealed(guard *federation.Guard, seal *signed.Seal) *Client {
	c := &kv{s: s, done: make(chan struct{})}
	return &Client{Registry: records.New(sieve.New(c, seal, guard), guard, c.pause), kv: c}
}

// SetDown cuts this client from the registry (ErrUnavailable, nothing applied), or heals the link.
// Its heartbeats stay until Server.Expire.
func (c *Client) SetDown(down bool) {
	c.kv.s.mu.Lock()
	defer c.kv.s.mu.Unlock()
	c.kv.faults.down = down
	c.kv.s.wake()
}

// Script sets the faults of this client's next changes, in order; after them all is well.
// Heartbeats are not counted.
func (c *Client) Script(f ...Fault) {
	c.kv.s.mu.Lock()
	defer c.kv.s.mu.Unlock()
	c.kv.faults.script = append([]Fault(nil), f...)
}

// Deliver lets the delayed changes of this client (UnknownLate) arrive, in order.
func (c *Client) Deliver() {
	c.kv.s.mu.Lock()
	defer c.kv.s.mu.Unlock()
	late := c.kv.faults.late
	c.kv.faults.late = nil
	for _, f := range late {
		f()
	}
}
