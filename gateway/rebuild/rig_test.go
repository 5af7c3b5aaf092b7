// SPDX-License-Identifier: Apache-2.0

package rebuild

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/store/memory"
	"github.com/weir-storage/weir/volume"
)

var (
	testID   = volume.ID{0: 5, 15: 1}
	testKeys = func() *segment.Keys {
		k := segment.NewKeys(segment.DataKey{1})
		k.Add(map[uint32]segment.DataKey{1: {2}})
		return k
	}
)

// home is a volume's home without other members, whose log and metadata are on a pool, and that
// uploads to a store.
type home struct {
	*testing.T
	path   string
	pool   cachepool.Pool
	log    *log.Log
	engine *engine.Engine
	keys   *segment.Keys
	epoch  uint64
	store  store.Store
	made   []*checkpoint.Manifest
	step   int
	rng    *mathrand.Rand
}

// own is the journal of a home alone.
type own struct {
	finished
}

func (j own) Append(_ context.Context, rec *segment.Record) (segment.Position, error) {
	end, err := j.log.Append(rec)
	if err == nil {
		j.log.Sync(end)
	}
	return end, err
}

func (j own) WaitCommitted(ctx context.Context, pos segment.Position) error {
	return j.log.Wait(ctx, pos)
}

func newHome(t *testing.T, seed uint64, to store.Store) *home {
	h := &home{T: t, path: t.TempDir(), keys: testKeys(), store: to, rng: mathrand.New(mathrand.NewPCG(seed, 8))}
	h.open()
	t.Cleanup(func() { h.close() })
	return h
}

func (h *home) ok(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func engineConfig(dir string) engine.Config {
	key, _ := testKeys().Get(0)
	return engine.Config{ID: testID, FS: vfs.Default, Dir: dir, DataKey: key, Now: time.Now, Clock: clockwork.NewRealClock(),
		Rand: rand.Reader, Logger: slog.New(slog.DiscardHandler)}
}

func (h *home) open() {
	h.Helper()
	pool, err := dir.Open(dir.Config{Path: h.path, Gateway: "home", Limit: 1 << 40, Random: rand.Reader})
	h.ok(err)
	h.pool = pool
	d, err := pool.Volume(testID.String())
	h.ok(err)
	h.engine, err = engine.Open(engineConfig(d.Path() + "/meta"))
	h.ok(err)
	key, _ := h.keys.Get(0)
	h.log, err = log.Open(log.Config{Dir: d, Room: pool.Room(), Volume: segment.VolumeID(testID), DataKey: key, Keys: h.keys,
		Rand: rand.Reader, Now: time.Now, SegmentSize: 1 << 20, KnownApplied: h.engine.Applied()})
	h.ok(err)
	h.ok(h.log.Recovered().Doubt)
	h.log.ShowTo(h.engine)
	h.engine.KnowSegments(checkpoints.ClosedOf(h.log))
	h.ok(h.engine.Replay(h.Context(), h.log, h.log.End()))
	end := h.log.End()
	h.epoch++
	_, err = h.log.BeginEpoch(h.epoch)
	h.ok(err)
	h.ok(h.log.Replay(h.Context(), end, func(e log.Entry) error { return h.engine.Ingest([]journal.Entry{e}) }))
	h.ok(h.log.Wait(h.Context(), h.log.End()))
	h.engine.Committed(h.log.End())
	h.ok(h.engine.WaitApplied(h.Context(), h.log.End()))
	e := h.engine
	h.log.OnDurable(func(pos segment.Position, err error) {
		if err == nil {
			e.Committed(pos)
		}
	})
	h.engine.Attach(own{finished{h.log}})
	h.ok(h.engine.Lead(h.Context(), h.epoch))
}

func (h *home) close() {
	h.Helper()
	if h.log != nil {
		h.ok(errors.Join(h.engine.Close(), h.log.Close(), h.pool.Close()))
		h.log = nil
	}
}

// again starts the home anew: another epoch.
func (h *home) again() {
	h.Helper()
	h.close()
	h.open()
}

var asRoot = volume.Request{}

// change makes one random change below a few directories.
func (h *home) change() {
	h.Helper()
	h.step++
	ctx := h.Context()
	must := func(_ any, err error) {
		h.Helper()
		ok := []error{nil, volume.ErrExist, volume.ErrNotExist, volume.ErrNotEmpty, volume.ErrInvalid, volume.ErrIsDir, volume.ErrNotDir,
			volume.ErrNoXattr, volume.ErrPerm}
		if !slices.ContainsFunc(ok, func(o error) bool { return errors.Is(err, o) }) {
			h.Fatal(err)
		}
	}
	pick := func() (dir volume.Handle, name string, a volume.Attr) {
		dir = volume.Root
		if h.rng.IntN(2) == 0 {
			if d, err := h.engine.Lookup(ctx, asRoot, dir, fmt.Sprint("d", h.rng.IntN(4))); err == nil && d.Type == volume.Directory {
				dir = d.Handle
			}
		}
		name = fmt.Sprint([]string{"f", "f", "d"}[h.rng.IntN(3)], h.rng.IntN(9))
		a, _ = h.engine.Lookup(ctx, asRoot, dir, name)
		return dir, name, a
	}
	dir, name, a := pick()
	var err error
	switch n := h.rng.IntN(14); {
	case n < 3:
		args := volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded}
		mode, uid := uint32(h.rng.IntN(0o1000)), uint32(h.rng.IntN(2000))
		args.Attr.Mode, args.Attr.UID = &mode, &uid
		if strings.HasPrefix(name, "d") {
			args.Type = volume.Directory
		} else if h.rng.IntN(4) == 0 {
			args.Type, args.Target = volume.Symlink, "../some/where"
		}
		_, err = h.engine.Create(ctx, asRoot, dir, name, args)
	case n < 7 && a.Type == volume.Regular:
		p := make([]byte, 1+h.rng.IntN(150<<10))
		_, _ = mathrand.NewChaCha8([32]byte{byte(h.step), byte(h.step >> 8)}).Read(p)
		_, err = h.engine.Write(ctx, asRoot, a.Handle, uint64(h.rng.IntN(1<<20)), p, true)
	case n == 7 && a.Type == volume.Regular:
		size := uint64(h.rng.IntN(1 << 20))
		_, err = h.engine.SetAttr(ctx, asRoot, a.Handle, volume.SetAttr{Size: &size})
	case n == 8 && a.Type == volume.Regular:
		_, err = h.engine.Punch(ctx, asRoot, a.Handle, uint64(h.rng.IntN(1<<18)), uint64(h.rng.IntN(1<<19)))
	case n == 9 && a.Ino != 0:
		_, err = h.engine.Remove(ctx, asRoot, dir, name)
	case n == 10 && a.Ino != 0:
		to, other, _ := pick()
		_, _, err = h.engine.Rename(ctx, asRoot, dir, name, to, other)
	case n == 11 && a.Type == volume.Regular:
		to, other, _ := pick()
		_, err = h.engine.Link(ctx, asRoot, a.Handle, to, other)
	case n == 12 && a.Ino != 0:
		_, err = h.engine.SetXattr(ctx, asRoot, a.Handle, fmt.Sprint("x", h.rng.IntN(3)), []byte(fmt.Sprint(h.step)), volume.XattrEither)
	case n == 13 && h.rng.IntN(6) == 0:
		_, err = h.engine.TakeSnapshot(ctx, asRoot, fmt.Sprint("s", h.step))
	}
	must(nil, err)
}

func (h *home) changes(n int) {
	h.Helper()
	for range n {
		h.change()
	}
}

// checkpoint makes one, of the state at the end of a segment.
func (h *home) checkpoint() *checkpoint.Manifest {
	h.Helper()
	h.ok(h.engine.AskCheckpoint(h.Context(), 1, false))
	h.ok(h.log.Roll())
	h.ok(h.engine.AskCheckpoint(h.Context(), 1, false))
	h.ok(h.engine.WaitApplied(h.Context(), h.log.End()))
	cut := h.engine.TakeCut()
	if cut == nil {
		h.Fatal("no checkpoint is cut")
	}
	m, _, err := cut.Write(h.Context(), h.keys.Get, checkpoints.Objects(h.store, testID.String()))
	h.ok(errors.Join(err, cut.Close()))
	h.ok(h.engine.MadeCheckpoint(h.Context(), m, cut.Number, 0))
	h.made = append(h.made, m)
	return m
}

// upload puts all segments that ended into the store, and returns the end of the last.
func (h *home) upload() (end log.Position) {
	h.Helper()
	h.ok(h.log.Wait(h.Context(), h.log.End()))
	for _, s := range h.log.Segments() {
		p := make([]byte, s.Len)
		if n, err := h.log.ReadSegmentFile(s.Seq, p, 0); err != nil && !errors.Is(err, io.EOF) || uint64(n) != s.Len {
			h.Fatal(n, err)
		}
		h.ok(h.store.Put(h.Context(), s.Name, int64(s.Len), bytes.NewReader(p)))
		end = log.Position{Seq: s.Seq, Off: s.Len}
	}
	return end
}

// upTo returns all pairs that the log makes up to a position.
func (h *home) upTo(end log.Position) []meta.Pair {
	h.Helper()
	dir := h.TempDir() + "/meta"
	e, err := engine.Open(engineConfig(dir))
	h.ok(err)
	e.KnowSegments(checkpoints.ClosedOf(h.log))
	e.Committed(end)
	h.ok(h.log.Replay(h.Context(), log.Position{}, func(en log.Entry) error {
		if end.Less(en.End) {
			return nil
		}
		return e.Ingest([]journal.Entry{en})
	}))
	h.ok(e.WaitApplied(h.Context(), end))
	h.ok(e.Close())
	return pairsIn(h.T, dir)
}

// pairsIn returns all pairs of metadata in a folder, the applied position among them.
func pairsIn(t *testing.T, dir string) (out []meta.Pair) {
	t.Helper()
	c := engineConfig(dir)
	s, err := meta.Open(meta.Options{FS: c.FS, Dir: dir, DataKey: c.DataKey, Rand: c.Rand, Logger: c.Logger})
	if err != nil {
		t.Fatal(err)
	}
	for p, err := range s.Live(nil).Range(nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, meta.Pair{Key: bytes.Clone(p.Key), Value: bytes.Clone(p.Value)})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

func same(a, b []meta.Pair) bool {
	return slices.EqualFunc(a, b, func(p, q meta.Pair) bool { return bytes.Equal(p.Key, q.Key) && bytes.Equal(p.Value, q.Value) })
}

// target is a pool on which a volume is rebuilt.
type target struct {
	*testing.T
	pool cachepool.Pool
	Config
}

func newTarget(t *testing.T, from store.Store) *target {
	t.Helper()
	pool, err := dir.Open(dir.Config{Path: t.TempDir(), Gateway: "new", Limit: 1 << 40, Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	d, err := pool.Volume(testID.String())
	if err != nil {
		t.Fatal(err)
	}
	return &target{t, pool, Config{Volume: testID, Store: from, Keys: testKeys(), Dir: d, Room: pool.Room(), FS: vfs.Default, Now: time.Now,
		Clock: clockwork.NewRealClock(), Rand: rand.Reader, Logger: slog.New(slog.DiscardHandler)}}
}

// clone copies a store, so that it can be damaged.
func clone(t *testing.T, from store.Store) *memory.Store {
	t.Helper()
	to := memory.New()
	err := from.List(t.Context(), "", func(i store.Info) error {
		p := make([]byte, i.Size)
		if err := from.GetRange(t.Context(), i.Name, 0, p); err != nil {
			return err
		}
		return to.Put(t.Context(), i.Name, i.Size, bytes.NewReader(p))
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// replace puts other bytes in the place of an object.
func replace(t *testing.T, in store.Store, name string, change func([]byte) []byte) {
	t.Helper()
	i, err := in.Stat(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, i.Size)
	if err := in.GetRange(t.Context(), name, 0, p); err != nil {
		t.Fatal(err)
	}
	if err := in.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	p = change(p)
	if err := in.Put(t.Context(), name, int64(len(p)), bytes.NewReader(p)); err != nil {
		t.Fatal(err)
	}
}

// copyLog gives b the log of h up to a position, on its own pool, which is returned open.
func copyLog(b, h *home, upTo log.Position) cachepool.Pool {
	b.Helper()
	pool, err := dir.Open(dir.Config{Path: b.path, Gateway: "home", Limit: 1 << 40, Random: rand.Reader})
	b.ok(err)
	d, err := pool.Volume(testID.String())
	b.ok(err)
	key, _ := b.keys.Get(0)
	l, err := log.Open(log.Config{Dir: d, Room: pool.Room(), Volume: segment.VolumeID(testID), DataKey: key, Keys: b.keys,
		Rand: rand.Reader})
	b.ok(err)
	for at := (log.Position{}); at.Less(upTo); {
		frames, next, err := h.log.Read(b.Context(), at, 1)
		b.ok(err)
		_, err = l.Ingest(at, frames)
		b.ok(err)
		at = next
	}
	b.ok(l.Close())
	return pool
}
