// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// Config is what an Engine needs. The caller must set every field that has no default.
type Config struct {
	ID      volume.ID
	FS      vfs.FS // contains Dir; the engine encrypts everything that it writes there
	Dir     string // for metadata; created if it does not exist
	DataKey [32]byte
	Now     func() time.Time
	Clock   clockwork.Clock // for waits
	Rand    io.Reader       // secure random source
	Logger  *slog.Logger

	Bytes    uint64        // room for data; default 1 TiB. See SetRoom
	Inodes   uint64        // room for inodes, the root included; default 2^32
	RootMode uint32        // of the root directory of an empty volume; default 0755
	Cache    *BlockCache   // default: a cache of 16 MiB for this volume
	Pebble   *pebble.Cache // shared cache of metadata; default: a small one
	Tuning   Tuning        // see Tune

	// MayBeHeld reports whether a client of another gateway may hold h. The home knows this, since
	// gateways register what their clients hold (protocol-23). It returns true while the home is
	// not sure. It must not block. The default always returns false, which suits a volume with one
	// gateway.
	MayBeHeld func(h volume.Handle) bool

	// Agreed returns the time, if it may decide what is old enough to be dropped for good: clocks
	// of other gateways agree (ADR 66). Else it returns an error. It is called without locks, and
	// may ask others. The default believes Now, which suits a tool or a test.
	Agreed func(ctx context.Context) (time.Time, error)

	// Level returns the newest format level that all copies of the volume know. It must not block.
	// The default returns meta.Format, which suits a volume with one copy.
	Level func() uint32

	// Failed is called once when the metadata on the pool cannot be written, when committed records
	// cannot be applied, or when a change panicked, so that the log may have a record that was not
	// shown. Nothing works from then on, until the engine is opened again. It must not
	// block. The default does nothing.
	Failed func(why error)

	// Verifier returns the write verifier, which names the gateway's incarnation and the epoch
	// (protocol-24). The default names the epoch only. That is enough where every start begins a
	// new epoch.
	Verifier func(epoch uint64) volume.Verifier
}

// Engine is one volume at one gateway. It implements volume.Volume except for the locks, which
// belong to the home's gateway, and the journal.Machine of the volume's log. Open and Attach make
// one.
type Engine struct {
	cfg   Config
	log   *slog.Logger
	store *meta.Store
	cache *BlockCache
	share *cacheShare // of cache
	rows  rows
	tuned atomic.Pointer[Tuning]
	ahead readahead
	// indexes are those of packs that blocks were read from.
	indexes *pack.Cache
	room    struct{ bytes, inodes atomic.Uint64 }

	readOnly atomic.Bool
	journal  journal.Journal // set by Attach

	// A lock whose wait can end with a context. See the package comment.
	turn chan struct{}
	// The large writes that are under way.
	large chan struct{}
	// The snapshot that the volume is being rolled back to, as far as this engine shows it; 0:
	// none. It is set with mu held.
	rolling atomic.Uint32
	spaced  atomic.Uint64 // see SpaceChanges
	// See SpaceTables.
	spaceTables atomic.Uint64
	holding     holding
	// For Show: the properties of the record that appendRecord is adding. Guarded by turn.
	appending struct{ unstable, shown, under bool }
	// How many numbers were used in the epoch numbered. Guarded by turn.
	counter, numbered uint64
	// How often this engine rolled the volume back, or tried to. Guarded by turn.
	rolledBack uint64

	mu      sync.Mutex
	overlay *meta.Overlay // nil unless leading
	leading bool
	epoch   uint64           // the greatest seen
	pending []pendingRecord  // in log order, not applied
	lag     int              // bytes of keys and values in pending
	end     segment.Position // end of the last pending record, else applied
	commit  segment.Position // all up to here is committed, whether this gateway has it or not
	applied segment.Position // all up to here is in the store
	kept    segment.Position // all up to here is in the store durably
	// For each inode, the end of the last pending record that changes more than unstable data of
	// it.
	names map[uint64]segment.Position
	// For each inode, the end of the last pending record of unstable data.
	data     map[uint64]segment.Position
	applying bool
	// mixing: the applier writes a batch. A view that begins now may have it, or not.
	mixing bool
	// persisting: a flush of the metadata is under way. Nothing but the applier begins one.
	persisting bool
	moved      chan struct{} // closed and replaced when applied or pending changes
	failed     error         // the store refused a record; nothing works after that
	closed     bool
	cacheGen   uint64 // namespace in the cache; new when positions may be used again
	cutting    cutting
	latest     moment
	transient  map[string]*transientSlot

	holds struct {
		sync.Mutex
		count map[volume.Handle]int
		dying map[volume.Handle]bool // marked for deletion: a record that deletes it is being made
	}
}

var (
	_ volume.Reader   = (*Engine)(nil)
	_ volume.Changer  = (*Engine)(nil)
	_ journal.Machine = (*Engine)(nil)

	_ volume.Snapshotter = (*Engine)(nil)
)

// Open opens the volume's metadata. The engine is a follower until Lead. The caller ingests the
// records after Applied, and calls Attach before the first operation.
func Open(cfg Config) (*Engine, error) {
	if cfg.Bytes == 0 {
		cfg.Bytes = 1 << 40
	}
	if cfg.Inodes == 0 {
		cfg.Inodes = 1 << 32
	}
	if cfg.RootMode == 0 {
		cfg.RootMode = 0o755
	}
	if cfg.Cache == nil {
		cfg.Cache = NewBlockCache(16 << 20)
	}
	if cfg.MayBeHeld == nil {
		cfg.MayBeHeld = func(volume.Handle) bool { return false }
	}
	if cfg.Agreed == nil {
		cfg.Agreed = func(context.Context) (time.Time, error) { return cfg.Now(), nil }
	}
	if cfg.Level == nil {
		cfg.Level = func() uint32 { return meta.Format }
	}
	if cfg.Failed == nil {
		cfg.Failed = func(error) {}
	}
	if cfg.Verifier == nil {
		cfg.Verifier = func(epoch uint64) (v volume.Verifier) {
			binary.BigEndian.PutUint64(v[:], epoch)
			return v
		}
	}
	log := cfg.Logger.With("volume", cfg.ID)
	e := &Engine{
		cfg: cfg, log: log, cache: cfg.Cache, share: cfg.Cache.open(),
		turn: make(chan struct{}, 1), large: make(chan struct{}, largeMost),
		names: make(map[uint64]segment.Position), data: make(map[uint64]segment.Position),
		moved: make(chan struct{}), cacheGen: cfg.Cache.namespace(),
	}
	e.indexes = pack.NewCache(indexMemory)
	e.rows.cache = cfg.Cache.rows
	e.rows.namespace.Store(cfg.Cache.namespace())
	store, err := meta.Open(meta.Options{
		FS: cfg.FS, Dir: cfg.Dir, DataKey: cfg.DataKey, Rand: cfg.Rand, Cache: cfg.Pebble, Logger: log,
		Failed: func(why error) { e.fail(fmt.Errorf("write metadata: %w", why)) },
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("open volume %s: %w", cfg.ID, err)
	}
	state := store.State()
	e.store, e.epoch, e.end = store, state.Epoch, state.Position
	e.commit, e.applied, e.kept = state.Position, state.Position, state.Position
	if e.failed == nil {
		e.failed = e.openVersions()
	}
	if e.failed == nil {
		e.failed = e.openCutting()
	}
	if e.failed != nil {
		return nil, errors.Join(fmt.Errorf("open volume %s: %w", cfg.ID, e.failed), store.Close())
	}
	e.holds.count = make(map[volume.Handle]int)
	e.holds.dying = make(map[volume.Handle]bool)
	e.ahead.init()
	e.Tune(cfg.Tuning)
	e.SetRoom(cfg.Bytes, cfg.Inodes)
	return e, nil
}

// openVersions reads what the volume's snapshots have in common. Only Open calls it.
func (e *Engine) openVersions() error {
	t := &tree{engine: e, view: e.store.Live(nil)}
	v, err := t.versionsOf()
	e.rolling.Store(v.Rolling)
	return err
}

// Attach sets the journal of the volume's log. It is called once, before any operation and before
// Lead. Ingest, Committed, Drop and Applied work without it.
func (e *Engine) Attach(j journal.Journal) { e.journal = j }

// ID implements volume.Volume.
func (e *Engine) ID() volume.ID { return e.cfg.ID }

// SetRoom limits the volume to the given numbers of bytes of data and of inodes. A volume that
// already uses more can only shrink from then on.
func (e *Engine) SetRoom(bytes, inodes uint64) {
	e.room.bytes.Store(bytes)
	e.room.inodes.Store(inodes)
}

// setReadOnly makes every change fail with ErrReadOnly, or ends that. Reap and Forget work all the
// time.
func (e *Engine) setReadOnly(on bool) { e.readOnly.Store(on) }

// Flush makes what was applied durable, which shortens the next replay.
func (e *Engine) Flush() error { return e.store.Flush() }

// Close applies what is committed and closes the metadata. Every operation must have ended before
// the call, and none may begin later.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.holding.open(e.cfg.Clock.Now(), "")
	for e.applying || e.persisting {
		ch := e.moved
		e.mu.Unlock()
		<-ch
		e.mu.Lock()
	}
	e.mu.Unlock()
	e.ahead.stop()
	var err error
	for _, c := range []*Cut{e.TakeCut(), e.cutting.kept} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	e.mu.Lock()
	err = errors.Join(err, e.pass())
	e.mu.Unlock()
	return errors.Join(err, e.store.Close())
}

// place names an operation and its object, for errors.
type place struct {
	op   string
	ino  uint64
	name string
}

// outcomes are the errors of the volume contract that an operation may wrap.
var outcomes = []error{
	volume.ErrNotExist, volume.ErrExist, volume.ErrNotDir, volume.ErrIsDir, volume.ErrNotEmpty,
	volume.ErrNameTooLong, volume.ErrInvalid, volume.ErrTooBig, volume.ErrTooManyLinks, volume.ErrNoSpace,
	volume.ErrReadOnly, volume.ErrAccess, volume.ErrPerm, volume.ErrStale, volume.ErrNoXattr,
	volume.ErrXattrTooBig, volume.ErrNoData, volume.ErrLocked, volume.ErrGrace, volume.ErrNoGrace,
	volume.ErrDelay, volume.ErrIO, volume.ErrUnknown,
}

func outcomeOf(err error) error {
	for _, o := range outcomes {
		if errors.Is(err, o) {
			return o
		}
	}
	return nil
}

// wrap makes err an error of the volume contract. It is for operations that certainly changed
// nothing.
func (e *Engine) wrap(p place, err error) error {
	var done *volume.Error
	switch {
	case err == nil || errors.As(err, &done):
		return err
	case outcomeOf(err) != nil:
	case errors.Is(err, journal.ErrNotHome): // the client asks the new home
		err = fmt.Errorf("%w: %w", volume.ErrDelay, err)
	case errors.Is(err, journal.ErrFull):
		err = fmt.Errorf("%w: %w", volume.ErrNoSpace, err)
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w", volume.ErrDelay, err)
	default:
		var bad *meta.CorruptError
		kind := "none"
		if errors.As(err, &bad) {
			kind = bad.Table.String()
		}
		e.log.Error("operation failed, heal the volume from another copy",
			"op", p.op, "inode", p.ino, "table", kind, "error", err)
		err = fmt.Errorf("%w: %w", volume.ErrIO, err)
	}
	return &volume.Error{Op: p.op, Ino: p.ino, Name: p.name, Err: err}
}
