// SPDX-License-Identifier: Apache-2.0

// Package blind has the machine of a copy without a key (protocol-28). It knows how far the log is
// committed, and nothing of what is in it.
package blind

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
)

// Machine is the machine of a copy without a key. It is safe for concurrent use.
type Machine struct {
	mu        sync.Mutex
	committed journal.Position
}

var _ journal.Machine = (*Machine)(nil)

// New returns the machine of a copy that is committed up to a position.
func New(committed journal.Position) *Machine { return &Machine{committed: committed} }

// Ingest implements journal.Follower.
func (b *Machine) Ingest([]journal.Entry) error { return nil }

// Behind implements journal.Follower.
func (b *Machine) Behind() bool { return false }

// Committed implements journal.Follower.
func (b *Machine) Committed(pos journal.Position) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.committed.Less(pos) {
		b.committed = pos
	}
}

// Drop implements journal.Follower.
func (b *Machine) Drop(pos journal.Position) error {
	if at := b.Applied(); pos.Less(at) {
		return fmt.Errorf("the log is to be cut at %v, although %v is committed", pos, at)
	}
	return nil
}

// Applied implements journal.Follower.
func (b *Machine) Applied() journal.Position {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.committed
}

// Persist implements journal.Follower. Nothing is needed after a start.
func (b *Machine) Persist(journal.Position) (journal.Position, error) { return b.Applied(), nil }

// Lead implements journal.Leader. A blind copy does not lead.
func (b *Machine) Lead(context.Context, uint64) error {
	return errors.New("a copy without a key executes nothing")
}

// Unlead implements journal.Leader.
func (b *Machine) Unlead() {}

// Show implements journal.Leader.
func (b *Machine) Show(*segment.Record, journal.Position) {}
