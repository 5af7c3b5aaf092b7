// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/volumetest"
)

// logJournal is the Journal of a home without other members. What is fsynced in its own log is
// committed.
type logJournal struct{ *log.Log }

func (j logJournal) Append(_ context.Context, rec *segment.Record) (segment.Position, error) {
	end, err := j.Log.Append(rec)
	switch {
	case errors.Is(err, cachepool.ErrFull):
		return end, errors.Join(journal.ErrFull, err)
	case err != nil:
		return end, errors.Join(journal.ErrNotHome, err)
	}
	j.Sync(end)
	return end, nil
}

func (j logJournal) Ready(context.Context) error { return nil }

func (j logJournal) WaitKnown(context.Context, segment.Position) error { return nil }

func (j logJournal) WaitCommitted(ctx context.Context, pos segment.Position) error {
	err := j.Wait(ctx, pos)
	if err != nil && ctx.Err() == nil {
		err = errors.Join(journal.ErrNotHome, err)
	}
	return err
}

func (j logJournal) MayServe() error { return nil }

func (j logJournal) Bounded() (pos segment.Position, ok bool) { return pos, false }

func (j logJournal) WaitRoom(context.Context) error { return journal.ErrFull }

// logHost is an engine over a real log, on disks that can lose power.
type logHost struct {
	*testing.T
	disk   *crashfs.Disk
	fs     *vfs.MemFS
	pool   cachepool.Pool
	log    *log.Log
	engine *Engine
	epoch  uint64
	// objects are those of checkpoints.
	objects *objects
	tune    func(*log.Config) // nil: nothing is to be different
	spoilt  bool              // a test damaged it
	keys    *segment.Keys     // nil: there is one
	newest  uint32            // number of the data key under which all is to be; 0: each block stays under its own
	clean   uint32            // the same if the last plan said that nothing is left for that
}

func newLogHost(t *testing.T) *logHost {
	h := &logHost{T: t}
	h.begin()
	return h
}

// begin opens it for the first time.
func (h *logHost) begin() {
	h.disk = crashfs.NewDisk(crashfs.Config{Gateway: "gateway", Limit: 4 << 30, Rand: mathrand.New(mathrand.NewPCG(5, 5))})
	h.fs = vfs.NewCrashableMem()
	h.objects = newObjects()
	h.open()
	h.Cleanup(func() {
		if err := health(h.engine, h.log); err != nil && !h.Failed() && !h.spoilt {
			h.Error(err)
		}
		h.close()
		if err := h.engine.Close(); err != nil {
			h.Error(err)
		}
	})
}

func (h *logHost) ok(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *logHost) open() {
	h.Helper()
	var err error
	h.pool, err = h.disk.Open()
	h.ok(err)
	dir, err := h.pool.Volume(testID.String())
	h.ok(err)
	var j logJournal
	h.engine = openEngine(h, h.fs, &j, nil)
	cfg := log.Config{
		Dir: dir, Room: h.pool.Room(), Volume: segment.VolumeID(testID), DataKey: testKey,
		Rand: rand.Reader, Now: time.Now, Logger: slog.New(slog.DiscardHandler), SegmentSize: 3 << 20, KnownApplied: h.engine.Applied(),
	}
	if h.tune != nil {
		h.tune(&cfg)
	}
	h.log, err = log.Open(cfg)
	h.ok(err)
	h.ok(h.log.Recovered().Doubt)
	j.Log = h.log
	h.log.ShowTo(h.engine)
	h.engine.KnowSegments(closedOf(h.log))
	replay := func() {
		h.Helper()
		h.ok(h.log.Replay(context.Background(), h.engine.lastEnd(), func(e log.Entry) error {
			return h.engine.Ingest([]journal.Entry{e})
		}))
	}
	replay()
	h.epoch++
	_, err = h.log.BeginEpoch(h.epoch)
	h.ok(err)
	replay()
	h.ok(h.log.Wait(context.Background(), h.log.End()))
	h.engine.Committed(h.log.End())
	h.ok(h.engine.WaitApplied(context.Background(), h.log.End()))
	engine := h.engine
	h.log.OnDurable(func(pos segment.Position, err error) {
		if err == nil {
			engine.Committed(pos)
		}
	})
	h.ok(h.engine.Lead(context.Background(), h.epoch))
}

// closedOf returns what KnowSegments needs.
func closedOf(l *log.Log) func(uint64) (Segment, bool) {
	return func(seq uint64) (Segment, bool) {
		s, ok := l.Segment(seq)
		return Segment{Seq: s.Seq, Epoch: s.Epoch, Key: s.Key, Salt: s.Salt, Len: s.Len, Hash: s.Hash}, ok
	}
}

// close closes the log, which can no longer write if the power is lost.
func (h *logHost) close() {
	if err := h.log.Close(); err != nil {
		h.Logf("close log: %v", err)
	}
}

// crash cuts the power and starts again.
func (h *logHost) crash() {
	h.Helper()
	h.disk.Crash()
	disk := h.fs.CrashClone(vfs.CrashCloneCfg{})
	h.close()
	h.ok(h.engine.Close())
	h.fs = disk
	h.open()
}

func TestVolumeOverLog(t *testing.T) {
	volumetest.Run(t, func(t *testing.T) volumetest.Subject {
		var h *logHost
		return volumetest.Subject{
			Open: func() volume.Volume {
				h = newLogHost(t)
				return withLocks(h.engine)
			},
			Restart: func() volume.Volume {
				h.crash()
				return withLocks(h.engine)
			},
		}
	})
}

// TestCrashKeepsWhatWasAcknowledged cuts the power while several clients are at work. What was
// acknowledged to them must be there afterwards. Repeating a change must settle an unknown outcome.
func TestCrashKeepsWhatWasAcknowledged(t *testing.T) {
	h := newLogHost(t)
	const clients = 4
	seq := [clients]uint32{}
	name := func(client int, seq uint32) string { return fmt.Sprintf("%d-%d", client, seq) }
	create := func(client int) error {
		r := volume.Request{ID: volume.OpID{Slot: fmt.Sprint(client), Seq: seq[client] + 1}}
		_, err := h.engine.Create(context.Background(), r, volume.Root, name(client, seq[client]+1),
			volume.CreateArgs{Type: volume.FIFO, Mode: volume.Guarded})
		if err == nil {
			seq[client]++
		}
		return err
	}
	for round := range 8 {
		var wg sync.WaitGroup
		var done atomic.Int64
		for client := range clients {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for create(client) == nil {
					done.Add(1)
				}
			}()
		}
		waitFor(func() bool { return done.Load() > int64(20+round) })
		h.disk.Crash()
		wg.Wait()
		h.crash()
		for client := range clients {
			h.ok(create(client)) // a repeat, or the first execution
			for n := uint32(1); n <= seq[client]; n++ {
				if _, err := h.engine.Lookup(t.Context(), asRoot, volume.Root, name(client, n)); err != nil {
					t.Fatalf("round %d: %s: %v", round, name(client, n), err)
				}
			}
		}
	}
}
