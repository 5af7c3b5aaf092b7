// SPDX-License-Identifier: Apache-2.0

package journaltest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-storage/weir/journal"
)

// Machine is a journal.Machine that notes the records it gets, and applies what is committed at
// once. Any goroutine may call its methods.
type Machine struct {
	turn chan struct{} // held by Lead and Unlead

	mu        sync.Mutex
	moved     chan struct{} // closed and replaced when applied moves
	shown     []journal.Entry
	pending   []journal.Entry // shown or ingested, not applied
	end       journal.Position
	applied   journal.Position
	committed journal.Position
	epoch     uint64
	leading   bool
	onShow    func(rec *journal.Record, end journal.Position)
}

var _ journal.Machine = (*Machine)(nil)

// NewMachine returns a follower without records.
func NewMachine() *Machine {
	return &Machine{turn: make(chan struct{}, 1), moved: make(chan struct{})}
}

// Shown returns what was shown so far, in order.
func (m *Machine) Shown() []journal.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.shown)
}

// CommittedUpTo returns the last position that Committed was called with.
func (m *Machine) CommittedUpTo() journal.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.committed
}

// Epoch returns the epoch of the last Lead.
func (m *Machine) Epoch() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epoch
}

// OnShow makes Show call f from now on, or nothing if f is nil.
func (m *Machine) OnShow(f func(rec *journal.Record, end journal.Position)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onShow = f
}

// Show implements journal.Leader.
func (m *Machine) Show(rec *journal.Record, end journal.Position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := journal.Entry{End: end, Record: rec}
	m.shown, m.pending, m.end = append(m.shown, e), append(m.pending, e), end
	if m.onShow != nil {
		m.onShow(rec, end)
	}
}

// Ingest implements journal.Follower.
func (m *Machine) Ingest(entries []journal.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		switch {
		case m.leading:
			return fmt.Errorf("ingest record at %v: this machine leads", e.End)
		case !m.end.Less(e.End):
			return fmt.Errorf("ingest record at %v: the log is known up to %v", e.End, m.end)
		}
		m.pending, m.end = append(m.pending, e), e.End
	}
	m.apply()
	return nil
}

// Committed implements journal.Follower.
func (m *Machine) Committed(pos journal.Position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.committed.Less(pos) {
		m.committed = pos
	}
	m.apply()
}

// apply applies what is committed. The caller holds mu.
func (m *Machine) apply() {
	for len(m.pending) > 0 && m.pending[0].End.Compare(m.committed) <= 0 {
		m.applied, m.pending = m.pending[0].End, m.pending[1:]
	}
	close(m.moved)
	m.moved = make(chan struct{})
}

// Drop implements journal.Follower.
func (m *Machine) Drop(pos journal.Position) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leading || pos.Less(m.applied) {
		return fmt.Errorf("drop records after %v: applied up to %v, leads: %t", pos, m.applied, m.leading)
	}
	m.pending = slices.DeleteFunc(m.pending, func(e journal.Entry) bool { return pos.Less(e.End) })
	m.end = m.applied
	if n := len(m.pending); n > 0 {
		m.end = m.pending[n-1].End
	}
	return nil
}

// Applied implements journal.Follower.
func (m *Machine) Applied() journal.Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.applied
}

// Behind implements journal.Follower.
func (m *Machine) Behind() bool { return false }

// Persist implements journal.Follower.
func (m *Machine) Persist(journal.Position) (journal.Position, error) { return m.Applied(), nil }

// Lead implements journal.Leader.
func (m *Machine) Lead(ctx context.Context, epoch uint64) error {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-m.turn }()
	m.mu.Lock()
	for len(m.pending) > 0 {
		moved := m.moved
		m.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
		m.mu.Lock()
	}
	defer m.mu.Unlock()
	if m.leading || epoch <= m.epoch {
		return fmt.Errorf("lead in epoch %d: the machine is in %d, leads: %t", epoch, m.epoch, m.leading)
	}
	m.leading, m.epoch = true, epoch
	return nil
}

// Unlead implements journal.Leader.
func (m *Machine) Unlead() {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leading = false
}
