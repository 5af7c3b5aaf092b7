// SPDX-License-Identifier: Apache-2.0

package rebuild

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/store"
)

// Copy is a copy that is open for reading, and is no member of anything.
type Copy struct {
	*engine.Engine
	Log *log.Log
}

// Open opens what Make made, and reads blocks from the store. The caller closes it.
func (r *Report) Open(from store.Store) (*Copy, error) {
	return Open(context.Background(), r.engine, r.log, from)
}

// Open opens a copy that no gateway has open. What its log lacks it reads from a store; nil: from
// nowhere. What is committed for certain is applied to its metadata. The caller closes the copy.
func Open(ctx context.Context, metadata engine.Config, records log.Config, from store.Store) (_ *Copy, err error) {
	e, err := engine.Open(metadata)
	if err != nil {
		return nil, err
	}
	records.KnownApplied, records.Moved = e.Applied(), e.Moved
	if from != nil {
		records.Sources = func() []log.Source { return []log.Source{replica.StoreSource{Store: from, Site: "given"}} }
	}
	l, err := log.Open(records)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	c := &Copy{e, l}
	if l.Recovered().Doubt == nil {
		e.KnowSegments(checkpoints.ClosedOf(l))
		committed := l.Recovered().Committed
		if err = e.Replay(ctx, l, committed); err == nil && e.Applied().Less(committed) {
			err = e.WaitApplied(ctx, committed)
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	e.Attach(finished{l})
	return c, nil
}

// Close closes the copy. No operation is under way.
func (c *Copy) Close() error { return errors.Join(c.Engine.Close(), c.Log.Close()) }

// finished is the journal of a log to which nothing comes any more.
type finished struct{ log *log.Log }

var _ journal.Journal = finished{}

// Ready implements journal.Journal.
func (finished) Ready(context.Context) error { return nil }

// SealAhead implements journal.Journal.
func (finished) SealAhead([]segment.Block) {}

// Append implements journal.Journal.
func (finished) Append(context.Context, *segment.Record) (end segment.Position, err error) {
	return end, fmt.Errorf("a copy that was rebuilt is only read here: %w", journal.ErrNotHome)
}

// WaitCommitted implements journal.Journal: all that is in a store was committed.
func (finished) WaitCommitted(context.Context, segment.Position) error { return nil }

// WaitKnown implements journal.Journal.
func (finished) WaitKnown(context.Context, segment.Position) error { return nil }

// WaitRoom implements journal.Journal.
func (finished) WaitRoom(context.Context) error { return nil }

// MayServe implements journal.Journal.
func (finished) MayServe() error { return nil }

// Bounded implements journal.Journal.
func (finished) Bounded() (pos segment.Position, ok bool) { return pos, false }

// ReadBlocks implements journal.Journal.
func (f finished) ReadBlocks(ctx context.Context, refs []segment.BlockRef) ([][]byte, error) {
	return f.log.ReadBlocks(ctx, refs)
}
