// SPDX-License-Identifier: Apache-2.0

package log

import (
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// Log is one volume's log. Any goroutine may call its methods. The package comment says which wait
// for each other. After a poisoning everything but End, Durable, Epochs, Segments, Recovered and
// Close fails with ErrPoisoned.
type Log struct {
	cfg   Config
	files *files
	ahead int64 // how many zeros are written at a time, see zeros.go; 0: none

	// Guarded by writer.
	writer sync.Mutex
	sealer *segment.Sealer // of the last segment; nil unless this Log began it
	// newest is the last that sealer was, for SealAhead. It may be stopped.
	newest atomic.Pointer[segment.Sealer]
	// saltDue: nothing is sealed under the salt of sealer any more. Who begins a segment clears it.
	saltDue atomic.Bool
	// size is the length of the current file, if it has zeros behind the log's end; see zeros.go.
	size    int64
	noZeros bool     // they cannot be written
	viewer  Viewer   // nil: records are shown to nobody
	hash    *hasher  // over the last segment; nil when that is closed
	unnoted []uint64 // segments that were closed, and may not be in the segment table yet

	tableMu sync.Mutex
	notes   notes

	healMu  sync.Mutex
	fetched uint64 // bytes that are here of an absent segment that Heal fetches; guarded by mu
	repairs repairs

	syncMu sync.Mutex
	// Guarded by syncMu.
	mark    *watermark
	trimmed bool // the current file was cut, and not fsynced since

	// steady: few bytes are synced at a time.
	steady atomic.Bool

	// Guarded by mu.
	mu      sync.Mutex
	base    segment.Link // the segment before the first; normally zero
	segs    []seg        // with consecutive sequences
	tally   tally        // of segs
	epochs  []EpochStart // of segs
	end     Position
	durable Position
	want    Position // durability up to here was asked for
	// committed is what NoteCommitted told; at most durable.
	committed Position
	unsynced  int64
	cur       *handle // file of the last segment while it may grow
	tail      tail
	gen       uint64 // counts truncations
	poison    error
	// durable is what the disk has: Open found no doubt, or Truncate settled it.
	settled   bool
	closed    bool
	syncing   bool // the syncer exists
	tell      bool // the syncer has something to report
	noticed   bool // the poisoning is to be reported
	told      bool // the poisoning was reported
	changed   chan struct{}
	callbacks []func(Position, error)
	syncers   sync.WaitGroup

	identity  cachepool.ID // does not change after Open
	recovered Recovered
	doubt     error // guarded by mu; recovered.Doubt until Truncate
	noted     bool  // guarded by writer; a note of a poisoning exists
	// Guarded by writer. Files to remove: segments after the end, and leftovers.
	strays []cachepool.FileInfo

	openers openers
	flights flights

	loans atomic.Bool // NoteLoans was called

	outline *outline // nil: the log has its records on this pool, or had them; see OpenOutline
}

// seg is what is known of one segment.
type seg struct {
	header   segment.Header
	len      uint64
	hash     segment.Hash // set when the segment is closed
	closed   bool
	local    bool
	uploaded bool
	dropped  bool   // nobody has it any more; not local, not uploaded
	mending  bool   // the store's object is being replaced, see Unstore
	noted    bool   // the segment table has it, as it is
	before   uint64 // bytes of the known segments before it
}

func (s *seg) link() segment.Link {
	return segment.Link{Seq: s.header.Seq, Len: s.len, Hash: s.hash}
}

func (s *seg) end() Position { return Position{Seq: s.header.Seq, Off: s.len} }

func (s *seg) name() string { return segment.Name(s.header.Volume, s.header.Seq, s.hash) }

func (s *seg) info() SegmentInfo {
	return SegmentInfo{
		Seq: s.header.Seq, Epoch: s.header.Epoch, Key: s.header.Key, Salt: s.header.Salt, Prev: s.header.Prev,
		Len: s.len, Hash: s.hash, Name: s.name(), Local: s.local, Uploaded: s.uploaded, Dropped: s.dropped,
	}
}

func fileName(seq uint64) string { return fmt.Sprintf("%016x.seg", seq) }

// Size returns how much of the pool's room a log in dir takes, which nobody has open.
func Size(dir cachepool.Dir) (n int64, err error) {
	files, err := dir.List()
	for _, f := range files {
		if _, ok := parseFileName(f.Name); ok {
			n += f.Size
		}
	}
	return n, err
}

// LocalBytes returns what the log's files take on the pool.
func (l *Log) LocalBytes() (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tally.local
}

// path returns the name of a segment's file, for messages.
func (l *Log) path(seq uint64) string { return l.cfg.Dir.Path() + "/" + fileName(seq) }

func (c *Config) setDefaults() error {
	if c.Dir == nil || c.Room == nil || c.Rand == nil {
		return fmt.Errorf("open log: Dir, Room and Rand are required")
	}
	if c.Volume == (segment.VolumeID{}) || (c.DataKey == (segment.DataKey{})) != c.Blind || c.Blind && c.Keys != nil {
		return fmt.Errorf("open log: Volume and DataKey are required; a blind log has no keys")
	}
	if c.Keys == nil && c.Blind {
		c.Keys = new(segment.Keys)
	} else if c.Keys == nil {
		c.Keys = segment.NewKeys(c.DataKey)
	}
	if c.SegmentSize == 0 {
		c.SegmentSize = segment.MaxSize
	}
	if c.SegmentSize <= segment.HeaderSize || c.SegmentSize > segment.MaxSize {
		return fmt.Errorf("open log: SegmentSize %d: want %d to %d", c.SegmentSize, segment.HeaderSize+1, segment.MaxSize)
	}
	if c.SyncBytes == 0 {
		c.SyncBytes = 8 << 20
	}
	if c.TailBytes == 0 {
		c.TailBytes = 4 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// End returns the end of the log. What lies before it may not be durable yet.
func (l *Log) End() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// Durable returns the position up to which the log is fsynced.
func (l *Log) Durable() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
}

// Identity returns the identity that the log drew when it was empty. Another log of the volume, and
// also one that begins anew in the same folder, has another one. It is empty for a log from a
// release that drew none, and for one in doubt that never had one.
func (l *Log) Identity() string {
	if l.identity.IsZero() {
		return ""
	}
	return l.identity.String()
}

// Recovered returns what Open found.
func (l *Log) Recovered() Recovered { return l.recovered }

// Epochs returns the epochs of the log, oldest first. The last one may have no records yet. The
// caller owns the result.
func (l *Log) Epochs() []EpochStart {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.epochs)
}

// setSegs replaces the segments. The caller holds mu. It also computes the epochs, because they are
// needed for each record, and computing them each time costs too much in a long log.
func (l *Log) setSegs(segs []seg) {
	l.segs, l.epochs, l.tally = make([]seg, 0, len(segs)), nil, tally{}
	for i := range segs {
		l.addSeg(segs[i])
	}
}

// addSeg adds a segment. The caller holds mu.
func (l *Log) addSeg(s seg) {
	s.before = 0
	if last := l.last(); last != nil {
		s.before = last.before + last.len
	}
	l.segs = append(l.segs, s)
	l.tally.add(&s)
	l.tally.salt(&s)
	if n := len(l.epochs); n == 0 || l.epochs[n-1].Epoch != s.header.Epoch {
		l.epochs = append(l.epochs, EpochStart{Epoch: s.header.Epoch, Start: Position{Seq: s.header.Prev.Seq, Off: s.header.Prev.Len},
			Salt: s.header.Salt})
	}
}

// Segments returns the closed segments, oldest first. The last segment is among them only if it
// cannot grow. The caller owns the result.
func (l *Log) Segments() []SegmentInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]SegmentInfo, 0, len(l.segs))
	for i := range l.segs {
		s := &l.segs[i]
		if !s.closed {
			continue
		}
		out = append(out, s.info())
	}
	return out
}

// Segment returns a closed segment.
func (l *Log) Segment(seq uint64) (SegmentInfo, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.find(seq)
	if !ok || !s.closed {
		return SegmentInfo{}, false
	}
	return s.info(), true
}

// find returns segment seq. The caller holds mu.
func (l *Log) find(seq uint64) (*seg, bool) {
	if len(l.segs) == 0 || seq < l.segs[0].header.Seq || seq > l.segs[len(l.segs)-1].header.Seq {
		return nil, false
	}
	return &l.segs[seq-l.segs[0].header.Seq], true
}

// last returns the last segment, or nil in an empty log. The caller holds mu or writer.
func (l *Log) last() *seg {
	if len(l.segs) == 0 {
		return nil
	}
	return &l.segs[len(l.segs)-1]
}

// usable returns nil while the log can be read. The caller holds mu.
func (l *Log) usable() error {
	if l.poison != nil {
		return l.poison
	}
	if l.closed {
		return ErrClosed
	}
	return nil
}

// writable returns nil while the log can grow. It takes mu.
func (l *Log) writable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if l.doubt != nil {
		return fmt.Errorf("%w: %w", ErrDoubt, l.doubt)
	}
	if l.outline != nil {
		return fmt.Errorf("%w: this gateway has only an outline of the log", ErrNotLocal)
	}
	return nil
}

// reserve reserves room for n bytes. If urgent, it may use what is reserved for removals
// (protocol-15).
func (l *Log) reserve(n int, urgent bool) error {
	take := l.cfg.Room.Reserve
	if urgent {
		take = l.cfg.Room.ReserveUrgent
	}
	if err := take(int64(n)); err != nil {
		return fmt.Errorf("reserve %d bytes for the log in %s: %w", n, l.cfg.Dir.Path(), err)
	}
	return nil
}

// removes reports whether a record removes something and brings no data. Such a record may use the
// reserve. The answer depends on the record alone, so every copy of the log decides alike.
func removes(rec *segment.Record) bool {
	return rec != nil && len(rec.Blocks) == 0 && slices.ContainsFunc(rec.Ops, func(op segment.Op) bool {
		return op.Kind == segment.Delete || op.Kind == segment.DeleteRange
	})
}

func sum(h hash.Hash) (out segment.Hash) {
	h.Sum(out[:0])
	return out
}

// Close makes everything durable if it can, waits for the last callbacks and closes the files. It
// must not be called from a callback.
func (l *Log) Close() error {
	if l.outline != nil {
		return l.closeOutline()
	}
	l.repairs.stop()
	cur, err := l.stop()
	l.syncers.Wait()
	if cur != nil {
		l.files.release(cur)
	}
	return errors.Join(err, l.mark.close(), l.closeTable(), l.files.closeAll())
}

// stop makes everything but Close fail from now on. It returns the current file.
func (l *Log) stop() (cur *handle, err error) {
	l.writer.Lock()
	defer l.writer.Unlock()
	l.mu.Lock()
	closed := l.closed
	err = l.poison
	l.mu.Unlock()
	if closed {
		return nil, nil
	}
	if err == nil {
		err = errors.Join(l.syncNow(), l.syncWatermark(), l.noteAll())
	}
	if l.sealer != nil {
		l.sealer.Stop()
		l.sealer = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wake()
	cur, l.cur = l.cur, nil
	return cur, err
}
