// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// objects is a store of objects in memory.
type objects struct {
	sync.Mutex
	all map[string][]byte
	get func(name string) error // nil: all goes well
}

func newObjects() *objects { return &objects{all: map[string][]byte{}} }

func (o *objects) Has(_ context.Context, name string) (bool, error) {
	o.Lock()
	defer o.Unlock()
	return o.all[name] != nil, nil
}

func (o *objects) Put(_ context.Context, name string, object []byte) error {
	o.Lock()
	defer o.Unlock()
	if o.all[name] == nil {
		o.all[name] = bytes.Clone(object)
	}
	return nil
}

func (o *objects) Get(_ context.Context, name string) ([]byte, error) {
	o.Lock()
	defer o.Unlock()
	if o.get != nil {
		if err := o.get(name); err != nil {
			return nil, err
		}
	}
	if o.all[name] == nil {
		return nil, errors.New("no such object")
	}
	return bytes.Clone(o.all[name]), nil
}

var checkpointKey = segment.DataKey{4, 5}

// checkpointKeys knows the one key that seals the checkpoints of the tests.
func checkpointKeys(number uint32) (segment.DataKey, bool) { return checkpointKey, number == 1 }

func takeCheckpoint(t *testing.T, e *Engine, to checkpoint.Objects) *checkpoint.Manifest {
	t.Helper()
	view := e.store.Snapshot(nil)
	var state meta.State
	value, ok, _, err := view.Get(meta.AppliedKey())
	if err == nil && ok {
		state, err = meta.DecodeState(meta.AppliedKey(), value)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := Cut{view: view, head: checkpoint.Head{Volume: segment.VolumeID(testID), At: state.Position, Epoch: state.Epoch, Key: 1}}
	m, _, err := c.Write(t.Context(), checkpointKeys, to)
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	return m
}

func openCheckpoint(t *testing.T, hash checkpoint.Hash, from checkpoint.Objects) *checkpoint.Manifest {
	t.Helper()
	keys := segment.NewKeys(testKey)
	keys.Add(map[uint32]segment.DataKey{1: checkpointKey})
	m, err := checkpoint.Open(t.Context(), segment.VolumeID(testID), hash, keys.Get, from)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// anyLog takes segments for no log.
func anyLog([]Segment, map[uint64]uint64) error { return nil }

func installConfig(disk vfs.FS) Config {
	return Config{ID: testID, FS: disk, Dir: "meta", DataKey: testKey, Rand: rand.Reader, Logger: slog.New(slog.DiscardHandler)}
}

// everything is all pairs of a store, the applied position among them.
func everything(t *testing.T, e *Engine) []meta.Pair { return pairs(t, e, nil, nil) }

func samePairs(a, b []meta.Pair) bool {
	return slices.EqualFunc(a, b, func(p, q meta.Pair) bool { return bytes.Equal(p.Key, q.Key) && bytes.Equal(p.Value, q.Value) })
}

// TestRebuiltFromCheckpoint makes random changes and checkpoints, throws the metadata away, and
// makes them again from a checkpoint and what the log has after it. They must be equal key by key.
func TestRebuiltFromCheckpoint(t *testing.T) {
	rng := mathrand.New(mathrand.NewPCG(7, 1))
	h := newHost(t, nil)
	store := newObjects()
	var made []*checkpoint.Manifest
	for i := range 400 {
		if err := randomStep(rng, i).do(t.Context(), h); err != nil && outcomeOf(err) == nil {
			t.Fatal(err)
		}
		if i%80 == 40 {
			if err := h.WaitApplied(t.Context(), h.lastEnd()); err != nil {
				t.Fatal(err)
			}
			made = append(made, takeCheckpoint(t, h.Engine, store))
		}
	}
	want, seen := everything(t, h.Engine), picture(t, h)
	for _, m := range made {
		opened := openCheckpoint(t, m.Hash(), store)
		if opened.Head != m.Head || opened.Epoch != h.epoch || opened.Pairs != m.Pairs {
			t.Fatalf("opened %+v, made %+v", opened.Head, m.Head)
		}
		disk := vfs.NewCrashableMem()
		if err := Install(t.Context(), installConfig(disk), opened, store, anyLog); err != nil {
			t.Fatal(err)
		}
		e := openEngine(t, disk.CrashClone(vfs.CrashCloneCfg{}), h.journal, nil)
		if e.Applied() != m.At {
			t.Fatalf("applied up to %s, checkpoint at %s", e.Applied(), m.At)
		}
		if again := takeCheckpoint(t, e, newObjects()); again.Hash() != m.Hash() {
			t.Fatal("a checkpoint of what was made from a checkpoint has another hash")
		}
		entries, commit := h.journal.after(e.Applied())
		if err := e.Ingest(entries); err != nil {
			t.Fatal(err)
		}
		e.Committed(commit)
		if got := everything(t, e); !samePairs(got, want) {
			t.Fatalf("from the checkpoint at %s: %d pairs, want %d", m.At, len(got), len(want))
		}
		if got := picture(t, e); got != seen {
			t.Fatalf("from the checkpoint at %s:\n%.2000s\nwant\n%.2000s", m.At, got, seen)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCheckpointOverLog does the same with a real log, at a home and at what it recovers to.
func TestCheckpointOverLog(t *testing.T) {
	h := newLogHost(t)
	ctx := t.Context()
	for i := range 60 {
		f := newFile(t, h.engine, volume.Root, fmt.Sprint("file ", i))
		if _, err := h.engine.Write(ctx, asRoot, f, 0, bytes.Repeat([]byte{byte(i)}, 70<<10), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.engine.WaitApplied(ctx, h.log.End()); err != nil {
		t.Fatal(err)
	}
	store := newObjects()
	m := takeCheckpoint(t, h.engine, store)
	h.crash() // begins another epoch
	for i := range 20 {
		newFile(t, h.engine, volume.Root, fmt.Sprint("later ", i))
	}
	want := everything(t, h.engine)
	disk := vfs.NewMem()
	if err := Install(ctx, installConfig(disk), openCheckpoint(t, m.Hash(), store), store, anyLog); err != nil {
		t.Fatal(err)
	}
	var j logJournal
	e := openEngine(t, disk, &j, nil)
	if err := h.log.Replay(ctx, e.Applied(), func(en journal.Entry) error { return e.Ingest([]journal.Entry{en}) }); err != nil {
		t.Fatal(err)
	}
	e.Committed(h.log.End())
	if got := everything(t, e); !samePairs(got, want) {
		t.Errorf("%d pairs, want %d", len(got), len(want))
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCheckpointWhileChangesGoOn: the pairs are those at the position that the manifest has,
// whatever is applied meanwhile.
func TestCheckpointWhileChangesGoOn(t *testing.T) {
	h := newHost(t, nil)
	file := newFile(t, h, volume.Root, "f")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for size := uint64(0); ; size++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := h.SetAttr(context.Background(), asRoot, file, volume.SetAttr{Size: &size}); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	end := sync.OnceFunc(func() {
		close(stop)
		<-stopped
	})
	t.Cleanup(end)
	store := newObjects()
	var made []*checkpoint.Manifest
	for i := range 200 {
		waitFor(func() bool { return records(h) > i })
		made = append(made, takeCheckpoint(t, h.Engine, store))
	}
	end()
	// The other copy gets exactly the records up to each checkpoint.
	entries, _ := h.journal.after(segment.Position{})
	e := openEngine(t, vfs.NewMem(), h.journal, nil)
	for _, m := range made {
		for len(entries) > 0 && entries[0].End.Compare(m.At) <= 0 {
			if err := e.Ingest(entries[:1]); err != nil {
				t.Fatal(err)
			}
			entries = entries[1:]
		}
		e.Committed(m.At)
		if err := e.WaitApplied(t.Context(), m.At); err != nil {
			t.Fatal(err)
		}
		if other := takeCheckpoint(t, e, newObjects()); other.Hash() != m.Hash() {
			t.Fatalf("two copies made different checkpoints at %s: %d and %d pairs", m.At, m.Pairs, other.Pairs)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// largeCheckpoint is of several chunks, so that an Install has several steps.
func largeCheckpoint(t *testing.T, store *objects) (*checkpoint.Manifest, []meta.Pair) {
	t.Helper()
	h := newHost(t, nil)
	value := make([]byte, 60<<10)
	for i := range 60 {
		f := newFile(t, h, volume.Root, fmt.Sprint(i))
		_, _ = mathrand.NewChaCha8([32]byte{byte(i)}).Read(value)
		if _, err := h.SetXattr(t.Context(), asRoot, f, "user.a", value, volume.XattrEither); err != nil {
			t.Fatal(err)
		}
	}
	want := everything(t, h.Engine)
	return takeCheckpoint(t, h.Engine, store), want
}

// TestCrashDuringInstall cuts the power at many moments of an Install. What is in the folder then
// is nothing or all, and another Install succeeds if it is nothing.
func TestCrashDuringInstall(t *testing.T) {
	store := newObjects()
	m, want := largeCheckpoint(t, store)
	if len(m.Chunks) < 5 {
		t.Fatalf("only %d chunks", len(m.Chunks))
	}
	disk := vfs.NewCrashableMem()
	var crashed []*vfs.MemFS
	picture := func() {
		for _, percent := range []int{0, 50, 100} {
			crashed = append(crashed, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng2(uint64(len(crashed)))}))
		}
	}
	store.get = func(string) error {
		picture()
		return nil
	}
	opened := openCheckpoint(t, m.Hash(), store)
	if err := Install(t.Context(), installConfig(watched{disk, picture}), opened, store, anyLog); err != nil {
		t.Fatal(err)
	}
	store.get = nil
	picture()
	unfinished, left := 0, 0
	for i, d := range crashed {
		names, err := d.List("meta")
		if err != nil || len(names) == 0 {
			unfinished++
			if _, err := d.Stat("meta" + installing); err == nil {
				left++
			}
			if err := Install(t.Context(), installConfig(d), opened, store, anyLog); err != nil {
				t.Fatalf("crash %d: %v", i, err)
			}
		} else if err := Install(t.Context(), installConfig(d), opened, store, anyLog); err == nil ||
			!strings.Contains(err.Error(), "remove") {
			t.Fatalf("crash %d: over metadata: %v", i, err)
		}
		if i%7 > 0 && len(names) == 0 {
			continue // opening each takes long
		}
		e := openEngine(t, d, newMemJournal(), nil)
		if got := everything(t, e); !samePairs(got, want) {
			t.Fatalf("crash %d: %d pairs, want %d", i, len(got), len(want))
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if unfinished < 10 || left < 5 || unfinished == len(crashed) {
		t.Fatalf("%d of %d crashes were before the end, %d left something", unfinished, len(crashed), left)
	}
}

// watched calls before each change of names.
type watched struct {
	vfs.FS
	before func()
}

func (w watched) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	w.before()
	return w.FS.Create(name, c)
}

func (w watched) Rename(from, to string) error {
	w.before()
	defer w.before()
	return w.FS.Rename(from, to)
}

// TestInstallOfADamagedCheckpoint: nothing is in the folder when a chunk is missing or damaged, and
// the error names it.
func TestInstallOfADamagedCheckpoint(t *testing.T) {
	store := newObjects()
	m, _ := largeCheckpoint(t, store)
	disk := vfs.NewMem()
	for _, n := range m.Names()[:len(m.Chunks)] {
		whole := store.all[n]
		for _, b := range [][]byte{nil, append(bytes.Clone(whole), 0), whole[1:]} {
			store.all[n] = b
			err := Install(t.Context(), installConfig(disk), m, store, anyLog)
			var object *checkpoint.ObjectError
			if !errors.As(err, &object) || object.Name != n {
				t.Fatalf("%s: %v", n, err)
			}
			if names, err := disk.List("meta"); err == nil {
				t.Fatalf("%s: in the folder are %q", n, names)
			}
		}
		store.all[n] = whole
	}
	other := installConfig(disk)
	other.ID[0]++
	if err := Install(t.Context(), other, m, store, anyLog); err == nil || !strings.Contains(err.Error(), "it is of volume") {
		t.Fatalf("of another volume: %v", err)
	}
	if err := Install(t.Context(), installConfig(disk), m, store, anyLog); err != nil {
		t.Fatal(err)
	}
}
