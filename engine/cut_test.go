// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// checkpoints are the hashes of checkpoints by their number, as several copies made them.
type checkpoints map[uint64]*checkpoint.Manifest

// elsewhere are objects of a store that are also looked for in another one.
type elsewhere struct {
	*objects
	others *objects
}

func (o elsewhere) Get(ctx context.Context, name string) ([]byte, error) {
	if b, err := o.objects.Get(ctx, name); err == nil {
		return b, nil
	}
	return o.others.Get(ctx, name)
}

// add makes the checkpoint that e cut, if it cut one, and compares it with those of other copies.
func (c checkpoints) add(t *testing.T, e *Engine, to checkpoint.Objects) *checkpoint.Manifest {
	t.Helper()
	cut := e.TakeCut()
	if cut == nil {
		return nil
	}
	m, _, err := cut.Write(t.Context(), checkpointKeys, to)
	if err != nil {
		t.Fatal(err)
	}
	if was := c[cut.Number]; was != nil && was.Hash() != m.Hash() {
		t.Fatalf("checkpoint %d at %s is made at %s by another copy, of %d pairs, not %d", cut.Number, was.At, m.At, m.Pairs, was.Pairs)
	}
	end := cut.Close
	if c[cut.Number] == nil { // the first keeps what the next one is a change of, the others read it
		end = func() error { return e.Keep(cut) }
	}
	c[cut.Number] = m
	if err := end(); err != nil {
		t.Fatal(err)
	}
	return m
}

// askAndRoll has the home cut a checkpoint.
func (h *logHost) askAndRoll() {
	h.Helper()
	h.ok(h.engine.AskCheckpoint(h.Context(), 1, false))
	h.ok(h.log.Roll())
	h.ok(h.engine.AskCheckpoint(h.Context(), 1, false))
	h.ok(h.engine.WaitApplied(h.Context(), h.log.End()))
}

// TestCopiesCutAlike: a home and copies that follow it at other speeds, and crash, cut the same
// checkpoints. A copy that begins with one gets the same metadata.
func TestCopiesCutAlike(t *testing.T) {
	changes := 0
	for seed := range uint64(6) {
		rng := mathrand.New(mathrand.NewPCG(seed, 31))
		h := newLogHost(t)
		ctx := context.Background()
		made, store := checkpoints{}, newObjects()
		for i := range 250 {
			if err := randomStep(rng, i).do(ctx, h.engine); err != nil && outcomeOf(err) == nil {
				t.Fatal(err)
			}
			switch rng.IntN(25) {
			case 0:
				h.askAndRoll()
			case 1:
				h.ok(h.engine.AskCheckpoint(ctx, 1, false))
			case 2:
				h.ok(h.log.Roll())
			case 3:
				h.crash()
			}
			if m := made.add(t, h.engine, store); m != nil && rng.IntN(2) == 0 {
				c, err := h.engine.Checkpoints()
				h.ok(err)
				h.ok(h.engine.MadeCheckpoint(ctx, m, c.Placed.Number, c.Used))
			}
		}
		h.askAndRoll()
		last := made.add(t, h.engine, store)
		h.ok(h.log.Wait(ctx, h.log.End()))
		h.ok(h.engine.WaitApplied(ctx, h.log.End()))
		want := everything(t, h.engine)
		if last == nil || len(made) < 3 {
			t.Fatalf("seed %d: %d checkpoints were made", seed, len(made))
		}

		// A copy gets the log in pieces, hears late what is committed, and loses its power.
		disk := vfs.NewCrashableMem()
		var e *Engine
		open := func() {
			e = openEngine(t, disk, &logJournal{}, nil)
			e.KnowSegments(closedOf(h.log))
		}
		open()
		again := 0
		for e.Applied() != h.log.End() { // in pieces
			n := 1 + rng.IntN(20)
			var entries []journal.Entry
			err := h.log.Replay(ctx, e.lastEnd(), func(en log.Entry) error {
				if entries = append(entries, en); len(entries) == n {
					return context.Canceled
				}
				return nil
			})
			if err != nil && err != context.Canceled {
				t.Fatal(err)
			}
			h.ok(e.Ingest(entries))
			if rng.IntN(3) == 0 || len(entries) < n {
				e.Committed(e.lastEnd())
				h.ok(e.WaitApplied(ctx, e.lastEnd()))
			}
			if rng.IntN(2) == 0 {
				made.add(t, e, elsewhere{newObjects(), store})
			}
			if rng.IntN(40) == 0 && again < 20 {
				again++
				crashed := disk.CrashClone(vfs.CrashCloneCfg{})
				h.ok(e.Close())
				disk = crashed
				open()
			}
		}
		made.add(t, e, elsewhere{newObjects(), store})
		if got := everything(t, e); !samePairs(got, want) {
			t.Fatalf("seed %d: a copy that followed has %d pairs, want %d", seed, len(got), len(want))
		}
		h.ok(e.Close())

		// What is in it is what the log has up to there, and no more.
		e = openEngine(t, vfs.NewMem(), &logJournal{}, nil)
		h.ok(h.log.Replay(ctx, e.Applied(), func(en log.Entry) error {
			if last.At.Less(en.End) {
				return nil
			}
			return e.Ingest([]journal.Entry{en})
		}))
		e.Committed(last.At)
		h.ok(e.WaitApplied(ctx, last.At))
		var have []meta.Pair
		for p, err := range last.ReadPairs(ctx, store) {
			h.ok(err)
			have = append(have, meta.Pair{Key: p.Key, Value: p.Value})
		}
		derived := func(p meta.Pair) bool {
			return slices.Contains([]meta.Table{meta.Applied, meta.Segments, meta.Checkpoints}, meta.Table(p.Key[0]))
		}
		if full := slices.DeleteFunc(everything(t, e), derived); !samePairs(slices.DeleteFunc(have, derived), full) {
			t.Fatalf("seed %d: the checkpoint at %s has %d pairs that the log makes, want %d", seed, last.At, len(have), len(full))
		}
		h.ok(e.Close())

		// A copy begins with the last checkpoint.
		disk = vfs.NewCrashableMem()
		h.ok(Install(ctx, installConfig(disk), openCheckpoint(t, last.Hash(), store), store, anyLog))
		e = openEngine(t, disk, &logJournal{}, nil)
		e.KnowSegments(func(seq uint64) (Segment, bool) {
			if seq <= last.At.Seq {
				t.Errorf("it asks for segment %d, which is in the checkpoint", seq)
			}
			return closedOf(h.log)(seq)
		})
		h.ok(h.log.Replay(ctx, e.Applied(), func(en log.Entry) error { return e.Ingest([]journal.Entry{en}) }))
		e.Committed(h.log.End())
		h.ok(e.WaitApplied(ctx, h.log.End()))
		if got := everything(t, e); !samePairs(got, want) {
			t.Fatalf("seed %d: a copy that began with a checkpoint has %d pairs, want %d", seed, len(got), len(want))
		}
		segments, err := e.Segments()
		h.ok(err)
		if n := len(segments); uint64(n) < last.At.Seq || segments[last.At.Seq-1].Len != last.At.Off {
			t.Fatalf("seed %d: %d segments are listed, the checkpoint is at %s", seed, n, last.At)
		}
		h.ok(e.Close())
		for _, m := range made {
			changes += len(m.Changes)
		}
	}
	if t.Logf("%d chunks of changes", changes); changes == 0 {
		t.Error("no checkpoint was a change of another")
	}
}

// TestDamageShowsInEachCheckpoint: a copy whose metadata are damaged makes other checkpoints than
// the home, also when they are changes of one that was other already.
func TestDamageShowsInEachCheckpoint(t *testing.T) {
	h := newLogHost(t)
	ctx := context.Background()
	e := openEngine(t, vfs.NewMem(), &logJournal{}, nil)
	e.KnowSegments(closedOf(h.log))
	store := newObjects()
	files := 0
	grow := func(n int) {
		for range n {
			files++
			_, err := h.engine.Create(ctx, volume.Request{}, volume.Root, fmt.Sprint("file ", files),
				volume.CreateArgs{Type: volume.FIFO, Mode: volume.Guarded})
			h.ok(err)
		}
	}
	follow := func() {
		h.ok(h.log.Replay(ctx, e.lastEnd(), func(en log.Entry) error { return e.Ingest([]journal.Entry{en}) }))
		e.Committed(h.log.End())
		h.ok(e.WaitApplied(ctx, h.log.End()))
	}
	grow(500)
	follow()
	changes := 0
	for i := range 3 {
		if i == 0 { // a file is another one at the copy alone
			lo := []byte{byte(meta.Inodes)}
			for p, err := range e.store.Live(nil).Range(lo, []byte{byte(meta.Inodes) + 1}) {
				h.ok(err)
				if !bytes.Equal(p.Key, meta.InodeKey(volume.Root.Ino)) {
					wrong := bytes.Clone(p.Value)
					wrong[len(wrong)/2] ^= 1
					h.ok(e.store.Apply([][]segment.Op{{{Kind: segment.Set, Key: bytes.Clone(p.Key), Value: wrong}}}, e.store.State()))
					break
				}
			}
		}
		h.askAndRoll()
		follow()
		mine, theirs := h.engine.TakeCut(), e.TakeCut()
		m, _, err := mine.Write(ctx, checkpointKeys, store)
		h.ok(err)
		other, _, err := theirs.Write(ctx, checkpointKeys, elsewhere{newObjects(), store})
		h.ok(err)
		if m.Hash() == other.Hash() {
			t.Errorf("checkpoint %d of a damaged copy is what the home made, with %d chunks of changes", mine.Number, len(m.Changes))
		}
		changes += len(m.Changes)
		h.ok(errors.Join(h.engine.Keep(mine), e.Keep(theirs), h.engine.MadeCheckpoint(ctx, m, mine.Number, 0)))
		grow(3)
	}
	if h.ok(e.Close()); changes == 0 {
		t.Error("no checkpoint was a change of another")
	}
}
