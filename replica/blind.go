// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/protocol"
)

// blind is the machine of a copy without a key (protocol-28). It knows how far the log is
// committed, and nothing of what is in it.
type blind struct {
	mu        sync.Mutex
	committed Position
}

var _ journal.Machine = (*blind)(nil)

// Ingest implements journal.Follower.
func (b *blind) Ingest([]journal.Entry) error { return nil }

// Behind implements journal.Follower.
func (b *blind) Behind() bool { return false }

// Committed implements journal.Follower.
func (b *blind) Committed(pos Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.committed.Less(pos) {
		b.committed = pos
	}
}

// Drop implements journal.Follower.
func (b *blind) Drop(pos Position) error {
	if at := b.Applied(); pos.Less(at) {
		return fmt.Errorf("the log is to be cut at %v, although %v is committed", pos, at)
	}
	return nil
}

// Applied implements journal.Follower.
func (b *blind) Applied() Position {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.committed
}

// Persist implements journal.Follower. Nothing is needed after a start.
func (b *blind) Persist(Position) (Position, error) { return b.Applied(), nil }

// Lead implements journal.Leader. A blind copy does not lead.
func (b *blind) Lead(context.Context, uint64) error {
	return errors.New("a copy without a key executes nothing")
}

// Unlead implements journal.Leader.
func (b *blind) Unlead() {}

// Show implements journal.Leader.
func (b *blind) Show(*segment.Record, Position) {}

// Blind reports whether the copy has no key.
func (r *Replica) Blind() bool { return r.cfg.Blind }

// Reigns reports whether this gateway is home, and in which epoch: one that executes changes, as
// Leading says, or a steward.
func (r *Replica) Reigns() (epoch uint64, ok bool) {
	if !r.cfg.Blind {
		return r.Leading()
	}
	s := r.Status()
	return s.Epoch, s.Role == protocol.Home
}
