// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
)

// Position is a place in the log.
type Position = journal.Position

// EpochStart says that the records after Start, up to the next entry, are of Epoch.
type EpochStart struct {
	Epoch uint64
	Start Position // where the log ended when the epoch began
}

// Entry is one frame of the log, decoded.
type Entry = journal.Entry

// SegmentInfo describes a closed segment.
type SegmentInfo struct {
	Seq, Epoch uint64
	Salt       [32]byte
	Prev       segment.Link
	Len        uint64
	Hash       segment.Hash
	Name       string // of the object in stores
	Local      bool   // its file is on this pool
	Uploaded   bool   // MarkStored was called for it
}

// Source is another place that has closed segments: a store, another gateway.
type Source interface {
	// ReadSegment fills p from offset off of the named segment, or fails. What it
	// returns is verified by the caller.
	ReadSegment(ctx context.Context, name string, off int64, p []byte) error
	// String names the source in logs and errors.
	String() string
}

// Config is what a Log needs. Dir, Room, Volume, DataKey and Rand are required.
type Config struct {
	Dir     cachepool.Dir
	Room    Room
	Volume  segment.VolumeID
	DataKey segment.DataKey
	Sources func() []Source // nearest first, as they are now; nil: none. Called without locks
	Rand    io.Reader       // cryptographic randomness for salts
	Now     func() time.Time
	Logger  *slog.Logger // nil: nothing is logged

	SegmentSize int64 // bytes at which a segment is rolled; 0 means segment.MaxSize, which is also the most
	SyncBytes   int64 // unsynced bytes at which a sync starts unasked; 0 means 8 MiB
	TailBytes   int64 // most memory for the newest frames; 0 means 4 MiB

	// KnownApplied is how far this log had once certainly been, e.g. the applied
	// position in the metadata. If it ends before, it lost something (rule 3).
	KnownApplied Position
}

// Recovered is what Open found.
type Recovered struct {
	End      Position
	CutBytes int64 // of a torn tail, which an earlier crash left
	// Doubt says why this log may not be its old self (rule 3); nil if nothing is
	// wrong but a torn tail. Reading works up to End. Everything that would add to the
	// log fails with ErrDoubt until Truncate, which drops what lies after End.
	Doubt error
}

// What can be wrong, for errors.Is. Also cachepool.ErrFull: no room on the pool; the log
// is as before; evict and retry.
var (
	// ErrPoisoned: a write or fsync failed once; this log is over and needs a new incarnation (rule 3).
	ErrPoisoned = errors.New("log is poisoned")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("log is closed")
	// ErrDoubt: Open reported a doubt and the log was not truncated since.
	ErrDoubt = errors.New("log is in doubt")
	// ErrNoEpoch: Append or Roll without a BeginEpoch since Open, Ingest or Truncate (rule 16).
	ErrNoEpoch = errors.New("no epoch begun here")
	// ErrStaleEpoch: the epoch is not after (BeginEpoch) or is before (Ingest) the log's last one.
	ErrStaleEpoch = errors.New("stale epoch")
	// ErrDiverged: the other log has other bytes where this one has some already; truncate to what is common.
	ErrDiverged = errors.New("logs diverge")
	// ErrGap: the position lies after the log's end.
	ErrGap = errors.New("position lies after the end of the log")
	// ErrUnreadable: no copy of a segment gave the bytes: EIO (rule 19).
	ErrUnreadable = errors.New("no readable copy")
	// ErrNotLocal: the segment's file is not here; Heal brings it back.
	ErrNotLocal = errors.New("segment is not local")
	// ErrNotClosed: the segment may still grow, or there is no such segment.
	ErrNotClosed = errors.New("segment is not closed")
	// ErrNotUploaded: the segment exists nowhere else.
	ErrNotUploaded = errors.New("segment is not uploaded")
)
