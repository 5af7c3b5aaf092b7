// SPDX-License-Identifier: Apache-2.0

package meta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"github.com/weir-storage/weir/cachepool/failstop"
	"github.com/weir-storage/weir/engine/meta/cryptfs"
	"github.com/weir-storage/weir/engine/segment"
)

// Options describe where a Store is. All fields but Cache must be set.
type Options struct {
	FS      vfs.FS // contains Dir; cryptfs encrypts everything in it
	Dir     string
	DataKey [32]byte
	Rand    io.Reader     // secure random source
	Cache   *pebble.Cache // shared by the volumes of a process; nil: a small one of its own
	Logger  *slog.Logger
	// Failed is called once, in a goroutine of its own, with the first change of the disk that
	// failed. From then on every change fails. nil: nobody is called.
	Failed func(why error)
}

// Store is a volume's metadata up to the applied position. Reads may run concurrently with
// everything but Close. Calls of Apply must not run concurrently.
type Store struct {
	db    *pebble.DB
	disk  *failstop.FS
	state State
}

// memTableSize bounds the metadata that the engine replays after a crash. It also bounds the memory
// of an open volume.
const memTableSize = 8 << 20

// Open opens the metadata in o.Dir, which it makes if it does not exist. A store that cannot be
// opened can be deleted, and rebuilt from a checkpoint and the log.
func Open(o Options) (*Store, error) {
	disk, err := failstop.New(o.FS, o.Dir, o.Failed)
	if err != nil {
		return nil, fmt.Errorf("open metadata: %w", err)
	}
	if err := forget(vfs.Root(o.FS), o.Dir); err != nil {
		return nil, fmt.Errorf("open metadata %s: %w", o.Dir, err)
	}
	if err := removeLogs(disk, o.Dir); err != nil {
		return nil, fmt.Errorf("open metadata %s: %w", o.Dir, err)
	}
	encrypted, err := cryptfs.New(disk, o.DataKey, o.Rand)
	if err != nil {
		return nil, err
	}
	var stalled atomic.Bool // somebody waits for the background
	opts := &pebble.Options{
		FS: encrypted, Cache: o.Cache, Logger: logger{o.Logger, disk},
		FormatMajorVersion: pebble.FormatTableFormatV6,
		DisableWAL:         true,
		MemTableSize:       memTableSize,
		// An idle volume must cost little (protocol-12). Most of what is deleted is deleted soon
		// after it was made.
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		MaxOpenFiles:                256,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		// Without this listener Pebble ends the process, and all other volumes with it. Whoever
		// reads the damaged data gets an error.
		EventListener: &pebble.EventListener{
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				o.Logger.Error("metadata on the pool is damaged, rebuild it from another copy", "path", info.Path, "details", info.Details)
			},
			WriteStallBegin: func(pebble.WriteStallBeginInfo) { stalled.Store(true) },
			WriteStallEnd:   func() { stalled.Store(false) },
			BackgroundError: func(err error) {
				o.Logger.Error("metadata cannot be written in the background", "error", err)
				if disk.Err() != nil && stalled.Load() {
					disk.Fatal("") // who waits for this holds the lock that Close needs: the work would never end
				}
			},
		},
	}
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	if o.Cache == nil {
		opts.CacheSize = 8 << 20
	}
	var db *pebble.DB
	err = disk.Do(func() (err error) {
		db, err = pebble.Open(o.Dir, opts)
		return err
	})
	if err != nil {
		if disk.Err() != nil {
			disk.Abandon(nil)
		}
		return nil, fmt.Errorf("open metadata %s: %w", o.Dir, err)
	}
	s := &Store{db: db, disk: disk}
	v := View{base: db}
	value, ok, _, err := v.Get(AppliedKey())
	if err == nil && ok {
		s.state, err = DecodeState(AppliedKey(), value)
	}
	if err == nil {
		err = s.Flush() // it writes a manifest: a disk that cannot be written is found now
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open metadata %s: %w", o.Dir, err), s.Close())
	}
	return s, nil
}

// forget has the manifests read from the disk, not from what an earlier process left in memory: an
// fsync that failed made nothing durable of what is there (protocol-3). Pebble would remove tables
// that only those manifests do without.
func forget(disk vfs.FS, dir string) error {
	names, err := disk.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "MANIFEST-") {
			continue
		}
		f, err := disk.Open(disk.PathJoin(dir, name))
		if err != nil {
			return err
		}
		err = f.Sync()
		if err == nil {
			err = dropMemory(f)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("read %s from the disk: %w", name, err)
		}
	}
	return nil
}

// dropMemory drops what the kernel has of a file, which was synced.
func dropMemory(f vfs.File) error {
	if on, ok := f.(interface{ Forget() error }); ok { // a disk in memory
		return on.Forget()
	}
	if f.Fd() == vfs.InvalidFd {
		return nil
	}
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// removeLogs removes the logs that Pebble makes although it keeps none. They have no records, and a
// loss of power may have left one that does not open.
func removeLogs(disk vfs.FS, dir string) error {
	names, err := disk.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			if err := disk.Remove(disk.PathJoin(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// State returns how far records were applied. After Open it is the state that a crash left.
func (s *Store) State() State { return s.state }

// Snapshot returns a view of over and of Pebble as it is now. over may be nil, and is not copied.
// The caller closes the view.
func (s *Store) Snapshot(over *Overlay) *View {
	snap := s.db.NewSnapshot()
	return &View{over: over, base: snap, snap: snap}
}

// Live returns a view of over and of Pebble as it is at each call. The view is consistent as long
// as over contains every record that Apply may add meanwhile.
func (s *Store) Live(over *Overlay) *View { return &View{over: over, base: s.db} }

// Apply writes the resolved operations of records, in log order, and the state after them in one
// batch. They are durable after the next Flush.
func (s *Store) Apply(records [][]segment.Op, after State) error {
	err := s.disk.Do(func() error { return s.write(records, after) })
	if err == nil {
		s.state = after
	}
	return err
}

func (s *Store) write(records [][]segment.Op, after State) (err error) {
	b := s.db.NewBatch()
	defer func() { err = errors.Join(err, b.Close()) }()
	for _, ops := range records {
		for _, op := range ops {
			switch op.Kind {
			case segment.Set:
				err = b.Set(op.Key, op.Value, nil)
			case segment.Delete:
				err = b.Delete(op.Key, nil)
			case segment.DeleteRange:
				err = b.DeleteRange(op.Key, op.End, nil)
			default:
				err = fmt.Errorf("apply metadata: operation of unknown kind %d, was it written by a newer version?", op.Kind)
			}
			if err != nil {
				return err
			}
		}
	}
	key, value := after.Encode()
	if err := b.Set(key, value, nil); err != nil {
		return err
	}
	return b.Commit(pebble.NoSync)
}

// Flush makes everything that was applied durable.
func (s *Store) Flush() error {
	var flushed <-chan struct{}
	err := s.disk.Do(func() (err error) {
		flushed, err = s.db.AsyncFlush()
		return err
	})
	if err != nil {
		return err
	}
	return s.disk.Wait(flushed)
}

// Close flushes and closes the store. If the disk failed, it does not wait for it.
func (s *Store) Close() error {
	err := s.Flush()
	if s.disk.Err() != nil {
		s.disk.Abandon(s.db.Close)
		return err
	}
	err = errors.Join(err, s.disk.Do(s.db.Close))
	if s.disk.Err() != nil {
		s.disk.Abandon(nil)
	}
	return err
}

// logger passes Pebble's messages on to slog.
type logger struct {
	log  *slog.Logger
	disk *failstop.FS
}

func (l logger) Infof(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("pebble", "message", fmt.Sprintf(format, args...))
	}
}

func (l logger) Errorf(format string, args ...any) {
	l.log.Error("pebble", "message", fmt.Sprintf(format, args...))
}

// Fatalf does not return, as Pebble demands. It ends the process, unless the disk failed: then
// nothing is stored any more, and whoever waits for the store is told so.
func (l logger) Fatalf(format string, args ...any) {
	l.log.Error("pebble", "message", fmt.Sprintf(format, args...))
	l.disk.Fatal("pebble: " + fmt.Sprintf(format, args...))
}
