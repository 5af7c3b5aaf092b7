// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// ErrNotHome says that this gateway is not, or not any more, the volume's home,
// and that nothing was changed. It is a volume.ErrDelay: ask the new home.
var ErrNotHome = fmt.Errorf("this gateway is not the home of the volume: %w", volume.ErrDelay)

// Journal is the log as the home sees it, and where blocks are read. Its methods
// may be called from any goroutine, Append from one at a time.
type Journal interface {
	// Append puts rec at the end of the log, fills the Ref of its blocks, and
	// returns where it ends; it does not wait for the commit. It may wait for
	// room; see RoomWaiter. An error means that rec is not in the log and never will be:
	// ErrNotHome, volume.ErrNoSpace, the error of ctx. A record that may or may
	// not be in the log is appended, and WaitCommitted tells. The memory of rec's
	// blocks is the caller's again when Append returns.
	//
	// Of what is in the log, Append calls note with end, once, when rec is as it will stay, and before anybody else can have it or it can be
	// committed: nobody may be shown it who could then look at this gateway before this gateway shows it. ReadBlocks called after note began
	// finds the blocks of rec. note does not wait, nor call the Journal.
	Append(ctx context.Context, rec *segment.Record, note func(end segment.Position)) (end segment.Position, err error)
	// WaitCommitted returns nil when everything up to pos is committed, ErrNotHome
	// if the role ended before that was known, or the error of ctx.
	WaitCommitted(ctx context.Context, pos segment.Position) error
	// MayServe returns nil if an answer read just now may be given (rule 4), else
	// an error that wraps volume.ErrDelay.
	MayServe() error
	// ReadBlocks returns the verified plaintext of blocks. What cannot be read or
	// verified is an error, never zeros. The slices are not changed any more.
	ReadBlocks(ctx context.Context, refs []segment.BlockRef) ([][]byte, error)
}

// ErrNoRoom says that the log has no room for a record just now, and that it was not appended. It is a
// volume.ErrNoSpace.
var ErrNoRoom = fmt.Errorf("no room in the log just now: %w", volume.ErrNoSpace)

// RoomWaiter is a Journal whose Append does not wait for room but returns ErrNoRoom. The change then waits outside the
// critical section, so that others, which may give room back, are not held up (rule 15), and is tried again.
type RoomWaiter interface {
	// WaitRoom returns nil when there may be room for records that bring data, or when this gateway is not home any
	// more; an error when it is no use to wait.
	WaitRoom(ctx context.Context) error
}

// Entry is a record with the position where it ends. Rec is nil for what else
// stands in the log, headers of segments; it only moves the position.
type Entry struct {
	Rec *segment.Record
	End segment.Position
}
