// SPDX-License-Identifier: Apache-2.0

package format

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/store/dir"
	"github.com/weir-storage/weir/volume"
)

var (
	id     = volume.ID{0xab, 15: 7}
	keys   = [2]segment.DataKey{{1, 2, 3}, {4, 5, 6}}
	asRoot = volume.Request{}
)

// alone is the journal of a home without other members.
type alone struct{ *log.Log }

func (j alone) Append(_ context.Context, rec *segment.Record) (segment.Position, error) {
	end, err := j.Log.Append(rec)
	if err != nil {
		return end, errors.Join(journal.ErrNotHome, err)
	}
	j.Sync(end)
	return end, nil
}

func (j alone) Ready(context.Context) error                                 { return nil }
func (j alone) WaitKnown(context.Context, segment.Position) error           { return nil }
func (j alone) WaitCommitted(ctx context.Context, p segment.Position) error { return j.Wait(ctx, p) }
func (j alone) MayServe() error                                             { return nil }
func (j alone) Bounded() (pos segment.Position, ok bool)                    { return pos, false }
func (j alone) WaitRoom(context.Context) error                              { return journal.ErrFull }

// host is a gateway's copy of the volume.
type host struct {
	*testing.T
	*engine.Engine
	log  *log.Log
	keys *segment.Keys
	// rolled is where the log ends after a header that the engine was not told of.
	rolled segment.Position
	// changes are chunks of checkpoints that are changes of earlier ones.
	changes int
}

func newHost(t *testing.T) *host {
	disk := crashfs.NewDisk(crashfs.Config{Gateway: "gateway", Limit: 4 << 30, Rand: mathrand.New(mathrand.NewPCG(5, 5))})
	pool, err := disk.Open()
	if err != nil {
		t.Fatal(err)
	}
	h := &host{T: t, keys: segment.NewKeys(keys[0])}
	folder, err := pool.Volume(id.String())
	h.ok(err)
	h.open(folder, pool.Room())
	return h
}

func (h *host) open(folder cachepool.Dir, room *cachepool.Room) {
	h.Helper()
	quiet := slog.New(slog.DiscardHandler)
	var err error
	h.Engine, err = engine.Open(engine.Config{ID: id, FS: vfs.NewMem(), Dir: "meta", DataKey: keys[0], Rand: rand.Reader, Now: time.Now,
		Clock: clockwork.NewRealClock(), Logger: quiet, RootMode: 0o755})
	h.ok(err)
	h.log, err = log.Open(log.Config{Dir: folder, Room: room, Volume: segment.VolumeID(id), DataKey: keys[0], Keys: h.keys,
		Rand: rand.Reader, Now: time.Now, Logger: quiet, SegmentSize: 1 << 20})
	h.ok(err)
	h.Attach(alone{h.log})
	h.log.ShowTo(h.Engine)
	h.KnowSegments(func(seq uint64) (engine.Segment, bool) {
		s, ok := h.log.Segment(seq)
		return engine.Segment{Seq: s.Seq, Epoch: s.Epoch, Key: s.Key, Salt: s.Salt, Len: s.Len, Hash: s.Hash}, ok
	})
	h.Cleanup(func() {
		if err := errors.Join(h.log.Close(), h.Close()); err != nil {
			h.Error(err)
		}
	})
}

func (h *host) ok(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// lead makes h the home in an epoch.
func (h *host) lead(epoch uint64) {
	h.Helper()
	h.Unlead()
	end := h.log.End()
	_, err := h.log.BeginEpoch(epoch)
	h.ok(err)
	h.ok(h.log.Replay(h.Context(), end, func(e log.Entry) error { return h.Ingest([]journal.Entry{e}) }))
	h.ok(h.log.Wait(h.Context(), h.log.End()))
	h.Committed(h.log.End())
	h.log.OnDurable(func(pos segment.Position, err error) {
		if err == nil {
			h.Committed(pos)
		}
	})
	h.ok(h.Lead(h.Context(), epoch))
}

// copyFrom gives h the log that another host has.
func (h *host) copyFrom(from *host) {
	h.Helper()
	for h.log.End() != from.log.End() {
		frames, _, err := from.log.Read(h.Context(), h.log.End(), 1<<20)
		h.ok(err)
		entries, err := h.log.Ingest(h.log.End(), frames)
		h.ok(err)
		h.ok(h.Ingest(entries))
	}
	h.ok(h.log.Wait(h.Context(), h.log.End()))
	h.Committed(h.log.End())
}

// applied waits until all that was done is in the metadata.
func (h *host) applied() {
	h.Helper()
	if h.log.End() != h.rolled {
		h.ok(h.WaitApplied(h.Context(), h.log.End()))
	}
}

// upload closes the last segment, and puts those into a store that are closed.
func (h *host) upload(to store.Store) (names []string) {
	h.Helper()
	h.applied()
	h.ok(h.log.Roll())
	h.rolled = h.log.End()
	for _, s := range h.log.Segments() {
		if !s.Local {
			continue
		}
		b := make([]byte, s.Len)
		_, err := h.log.ReadSegmentFile(s.Seq, b, 0)
		h.ok(err)
		h.ok(to.Put(h.Context(), s.Name, int64(len(b)), bytes.NewReader(b)))
		names = append(names, s.Name)
	}
	return names
}

// objects is a store as checkpoints need it.
type objects struct{ store.Store }

func (o objects) Has(ctx context.Context, name string) (bool, error) {
	_, err := o.Stat(ctx, name)
	if errors.Is(err, store.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (o objects) Put(ctx context.Context, name string, object []byte) error {
	return o.Store.Put(ctx, name, int64(len(object)), bytes.NewReader(object))
}

func (o objects) Get(ctx context.Context, name string) ([]byte, error) {
	i, err := o.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	b := make([]byte, i.Size)
	return b, o.GetRange(ctx, name, 0, b)
}

// checkpoint puts a checkpoint of the end of the present segment into a store. It condemns what
// nothing uses there, and returns the manifest's hash and the sequences.
func (h *host) checkpoint(to store.Store, number uint32) (hash [32]byte, unused []uint64) {
	h.Helper()
	h.ok(h.AskCheckpoint(h.Context(), number, false))
	h.ok(h.log.Roll())
	h.ok(h.AskCheckpoint(h.Context(), number, false)) // the record after its end
	h.applied()
	cut := h.TakeCut()
	if cut == nil {
		h.Fatal("no checkpoint was cut")
	}
	m, _, err := cut.Write(h.Context(), h.keys.Get, objects{to})
	h.ok(err)
	uses, err := cut.Uses(h.Context())
	h.ok(err)
	h.ok(cut.Close())
	h.changes += len(m.Changes)
	h.ok(h.MadeCheckpoint(h.Context(), m, cut.Number, 0))
	h.ok(h.Condemn(h.Context(), cut.Number, uses.Unused))
	return m.Hash(), uses.Unused
}

// newStore makes a store in a folder.
func newStore(t *testing.T) (store.Store, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "store")
	s, err := dir.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return s, root
}

// duplicate copies a store's folder, so that something can be spoiled in it.
func duplicate(t *testing.T, root string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	return to
}
