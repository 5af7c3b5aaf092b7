// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"github.com/weir-storage/weir/journal"

	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
)

// machine is as strict as the engine: entries in a wrong order, or at a home, are an error. It
// applies numbers.
type machine struct {
	behind  bool
	w       *world
	replica *Replica
	turn    chan struct{}

	mu      sync.Mutex
	moved   chan struct{}
	pending []change
	done    []change
	applied Position
	kept    Position // Persist's
	end     Position
	commit  Position
	leading bool
	lazy    bool // commits and does not apply
	epoch   uint64

	onLead   func() // when it leads, before Lead returns
	onCommit func()
}

type change struct {
	end Position
	id  int64 // 0: the header of a segment
}

func newMachine(w *world) *machine {
	return &machine{w: w, turn: make(chan struct{}, 1), moved: make(chan struct{})}
}

func (m *machine) Ingest(entries []log.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		if m.leading {
			return fmt.Errorf("ingest at %v: is home", e.End)
		}
		if !m.end.Less(e.End) {
			return fmt.Errorf("ingest at %v: has %v", e.End, m.end)
		}
		c := change{end: e.End}
		if e.Record != nil {
			c.id = e.Record.Time
		}
		m.pending, m.end = append(m.pending, c), e.End
	}
	return nil
}

func (m *machine) Committed(pos Position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.onCommit; f != nil {
		m.mu.Unlock()
		f()
		m.mu.Lock()
	}
	if m.commit.Less(pos) {
		m.commit = pos
	}
	m.apply()
}

func (m *machine) apply() {
	for !m.lazy && len(m.pending) > 0 && m.pending[0].end.Compare(m.commit) <= 0 {
		m.done, m.applied = append(m.done, m.pending[0]), m.pending[0].end
		m.pending = m.pending[1:]
	}
	close(m.moved)
	m.moved = make(chan struct{})
}

func (m *machine) Drop(pos Position) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leading || pos.Less(m.applied) || pos.Less(m.commit) && pos.Less(m.end) {
		return fmt.Errorf("drop after %v: applied %v, committed %v, home %t", pos, m.applied, m.commit, m.leading)
	}
	m.pending = slices.DeleteFunc(m.pending, func(c change) bool { return pos.Less(c.end) })
	m.end = m.applied
	if n := len(m.pending); n > 0 {
		m.end = m.pending[n-1].end
	}
	m.apply()
	return nil
}

func (m *machine) Lead(ctx context.Context, epoch uint64) error {
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
	if m.leading || epoch <= m.epoch {
		defer m.mu.Unlock()
		return fmt.Errorf("lead in epoch %d: is in %d, home %t", epoch, m.epoch, m.leading)
	}
	m.leading, m.epoch = true, epoch
	f := m.onLead
	m.mu.Unlock()
	if f != nil {
		f()
	}
	return nil
}

func (m *machine) Unlead() {
	m.turn <- struct{}{}
	m.mu.Lock()
	m.leading = false
	m.mu.Unlock()
	<-m.turn
}

func (m *machine) Applied() Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.applied
}

// Behind implements journal.Follower.
func (m *machine) Behind() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.behind
}

// Persist implements journal.Follower.
func (m *machine) Persist(Position) (Position, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = m.applied
	return m.kept, nil
}

// ids returns what is applied.
func (m *machine) ids() (out []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.done {
		if c.id != 0 {
			out = append(out, c.id)
		}
	}
	return out
}

var errNotLeading = errors.New("machine does not lead")

// removal is the size that stands for a removal: a record without data, which frees room.
const removal = -1

// append appends a record of about size bytes.
func (m *machine) append(ctx context.Context, id int64, size int) (Position, uint64, error) {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	m.mu.Lock()
	leading, epoch := m.leading, m.epoch
	m.mu.Unlock()
	if !leading {
		return Position{}, 0, errNotLeading
	}
	rec := &segment.Record{Time: id, Slot: "s", Ops: []segment.Op{{Kind: segment.Set, Key: fmt.Appendf(nil, "key %d", id)}}}
	if size == removal {
		rec.Ops = append(rec.Ops, segment.Op{Kind: segment.Delete, Key: []byte("block")})
	}
	if size > 0 {
		raw := make([]byte, size)
		_, _ = rand.Read(raw) // never fails
		rec.Blocks = []segment.Block{{Raw: raw}}
		rec.Ops = append(rec.Ops, segment.Op{Kind: segment.SetBlock, Key: []byte("block"), Block: 0})
	}
	if err := m.replica.Ready(ctx); err != nil {
		return Position{}, 0, err
	}
	end, err := m.replica.Append(ctx, rec)
	return end, epoch, err
}

func (m *machine) Show(rec *segment.Record, end Position) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending, m.end = append(m.pending, change{end, rec.Time}), end
	m.apply()
}

// write appends a record and waits until it is committed.
func (m *machine) write(ctx context.Context, id int64, size int) error {
	end, epoch, err := m.append(ctx, id, size)
	for errors.Is(err, journal.ErrFull) && m.replica.WaitRoom(ctx) == nil {
		end, epoch, err = m.append(ctx, id, size)
	}
	if err != nil {
		return err
	}
	if err := m.replica.WaitCommitted(ctx, end); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.leading || m.epoch != epoch {
		return journal.ErrNotHome
	}
	return nil
}

// entriesUpTo returns a function for Replay that passes a machine the entries up to end.
func entriesUpTo(end Position, m *machine) func(log.Entry) error {
	return func(e log.Entry) error {
		if end.Less(e.End) {
			return nil
		}
		return m.Ingest([]log.Entry{e})
	}
}
