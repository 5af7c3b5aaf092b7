// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/readcache"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
)

// Position is a place in the log.
type Position = journal.Position

// EpochStart is the beginning of an epoch: the records after Start, up to the next EpochStart, are
// of Epoch.
type EpochStart struct {
	Epoch uint64
	Start Position // where the log ended when the epoch began
	// Salt is that of the epoch's first segment. It tells two epochs of the same number apart,
	// which two homes began. Zero: not known.
	Salt [32]byte
}

// Same reports whether e and o are the same epoch, as far as is known.
func (e EpochStart) Same(o EpochStart) bool {
	var unknown [32]byte
	return e.Epoch == o.Epoch && (e.Salt == o.Salt || e.Salt == unknown || o.Salt == unknown)
}

// Entry is one frame of the log, decoded.
type Entry = journal.Entry

// SegmentInfo describes a closed segment.
type SegmentInfo struct {
	Seq, Epoch uint64
	Key        uint32 // number of the data key
	Salt       [32]byte
	Prev       segment.Link
	Len        uint64
	Hash       segment.Hash
	Name       string // of the object in stores
	Local      bool   // its file is on this pool
	Uploaded   bool   // MarkStored recorded an upload
	Dropped    bool   // Drop was called: no copy has it any more
}

// Source is another place that has closed segments: a store, or another gateway.
type Source interface {
	// ReadSegment fills p from offset off of the named segment, or fails. The caller verifies what
	// it returns.
	ReadSegment(ctx context.Context, name string, off int64, p []byte) error
	// String names the source in logs and errors.
	String() string
}

// Belief is what a person said of a log in doubt.
type Belief struct {
	Identity cachepool.ID // that the log gets
	End      Position     // of what was left; not zero
}

// Config is what a Log needs. Dir, Room, Volume, DataKey and Rand are required. A blind log has no
// DataKey.
type Config struct {
	Dir     cachepool.Dir
	Room    Room
	Volume  segment.VolumeID
	DataKey segment.DataKey
	// Keys has the volume's data keys, of which DataKey is the first; nil: there is no other. More
	// may come. See NewSalt.
	Keys *segment.Keys
	// Blind: no data key is known here, and none will be (protocol-28). What Ingest takes in is
	// verified by checksum, length and hash. Its entries have no Record. Nothing can be appended or
	// decrypted.
	Blind bool
	// Sources returns the present sources, nearest first; nil: none. It is called without locks.
	Sources func() []Source
	// HealsReads: when a read finds a segment's file damaged and gets the bytes from a Source, the
	// file is healed in the background.
	HealsReads bool
	// Moved returns the index of the pack that has the live blocks of a segment; nil: they are in
	// the segment. Blocks are read from packs of Sources, where the segment is gone. It is called
	// without locks. A nil Moved: the volume has no packs.
	Moved func(seq uint64) (*pack.Pack, error)
	// BadPack, if it is not nil, is told the name of a pack that a Source did not have as it should
	// be, or could not be asked for. It must not block.
	BadPack func(name string)
	// Cache keeps blocks on the pool that were read from Sources; nil: nothing does.
	Cache *readcache.Volume
	// Rand is cryptographic randomness for salts. It must not repeat itself in a machine that is
	// resumed from a picture of its memory (protocol-16).
	Rand io.Reader
	Now  func() time.Time
	// Synced is told how long each fsync that succeeded took. nil: nobody is. It needs Now, and
	// must not block.
	Synced func(took time.Duration)
	Logger *slog.Logger // nil: nothing is logged

	// Bytes at which a segment is rolled; 0 means segment.MaxSize, which is also the maximum.
	SegmentSize int64
	SyncBytes   int64 // unsynced bytes at which a sync starts by itself; 0 means 8 MiB
	TailBytes   int64 // most memory for the newest frames, in bytes; 0 means 4 MiB

	// KnownApplied is the applied position in the metadata. This log certainly reached it once, and
	// it is committed. If the log ends before it, the log lost something (protocol-3).
	KnownApplied Position
	// Lost says why the directory may have lost what was durable there, such as that it went back
	// to an earlier state (cachepool.Volumes); nil: nothing tells so. The log is then in doubt.
	Lost error
	// Believe, if it has an identity: a person gave up what a log in doubt has lost. Open cuts it
	// to its valid prefix, gives it this identity, and settles the doubt, which Recovered still
	// tells. A log that has less than the person knew stays in doubt.
	Believe Belief
}

// Recovered is what Open found.
type Recovered struct {
	End      Position
	CutBytes int64 // length of a torn tail, which an earlier crash left
	// Committed is how far the log is certainly committed: what NoteCommitted told, as far as it
	// reached the disk.
	Committed Position
	// Doubt says why this log may have lost or changed something (protocol-3). It is nil if nothing
	// is wrong but a torn tail. Reading works up to End. Everything that would add to the log fails
	// with ErrDoubt until Truncate, which drops what lies after End. Config.Believe settles it too.
	Doubt error
}

// Errors of a Log, for errors.Is. Methods also return cachepool.ErrFull when the pool has no room.
// Then the log is unchanged; the caller evicts segments and tries again.
var (
	// ErrPoisoned: a write or fsync failed once. This log takes no more records. Opened again, it
	// has what the disk has (protocol-3).
	ErrPoisoned = errors.New("log is poisoned")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("log is closed")
	// ErrDoubt: Open reported a doubt, and the log was not truncated since.
	ErrDoubt = errors.New("log is in doubt")
	// ErrNoEpoch: Append or Roll was called without a BeginEpoch since Open, Ingest or Truncate
	// (protocol-16).
	ErrNoEpoch = errors.New("no epoch begun here")
	// ErrStaleEpoch: the epoch is not after the log's last one (BeginEpoch), or is before it
	// (Ingest).
	ErrStaleEpoch = errors.New("stale epoch")
	// ErrDiverged: the other log has other bytes where this one already has some. Truncate to the
	// common prefix.
	ErrDiverged = errors.New("logs diverge")
	// ErrGap: the position lies after the log's end.
	ErrGap = errors.New("position lies after the end of the log")
	// ErrUnreadable: no copy of a segment returned the bytes. Clients get EIO (protocol-19).
	ErrUnreadable = errors.New("no readable copy")
	// ErrNotLocal: the segment's file is not on this pool. Heal fetches it.
	ErrNotLocal = errors.New("segment is not local")
	// ErrNoKey: the segment is sealed with a data key that is not known here.
	ErrNoKey = errors.New("data key is not known")
	// ErrNotClosed: the segment may still grow, or there is no such segment.
	ErrNotClosed = errors.New("segment is not closed")
	// ErrDropped: the segment was condemned, and no copy keeps it.
	ErrDropped = errors.New("segment was condemned and dropped")
	// ErrNotUploaded: the segment exists nowhere else.
	ErrNotUploaded = errors.New("segment is not uploaded")
)
