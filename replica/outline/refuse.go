// SPDX-License-Identifier: Apache-2.0

package outline

import (
	"context"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
)

// Append implements journal.Journal: it never does.
func (f *Follower) Append(context.Context, *journal.Record) (Position, error) {
	return Position{}, journal.ErrNotHome
}

// WaitCommitted implements journal.Journal.
func (f *Follower) WaitCommitted(context.Context, Position) error { return journal.ErrNotHome }

// Ready implements journal.Journal.
func (f *Follower) Ready(context.Context) error { return nil }

// SealAhead implements journal.Journal.
func (f *Follower) SealAhead([]segment.Block) {}

// WaitKnown implements journal.Journal.
func (f *Follower) WaitKnown(context.Context, Position) error { return journal.ErrNotHome }

// WaitRoom implements journal.Journal.
func (f *Follower) WaitRoom(context.Context) error { return nil }

// MayServe implements journal.Journal: a follower without a copy has no lease.
func (f *Follower) MayServe() error { return journal.ErrNoLease }

// ReadBlocks implements journal.Journal.
func (f *Follower) ReadBlocks(ctx context.Context, refs []segment.BlockRef) ([][]byte, error) {
	return f.cfg.Log.ReadBlocks(ctx, refs)
}
