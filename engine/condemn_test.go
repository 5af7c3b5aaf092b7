// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/volume"
)

// condemn makes a checkpoint, condemns what nothing uses then, and drops it.
func (h *logHost) condemn() (dropped int) {
	h.Helper()
	ctx := context.Background()
	h.askAndRoll()
	cut := h.engine.TakeCut()
	if cut == nil {
		h.Fatal("nothing was cut")
	}
	m, _, err := cut.Write(ctx, checkpointKeys, h.objects)
	h.ok(err)
	uses, err := cut.Uses(ctx)
	h.ok(err)
	h.ok(cut.Close())
	h.ok(h.engine.MadeCheckpoint(ctx, m, cut.Number, 0))
	h.ok(h.engine.Condemn(ctx, cut.Number, uses.Unused))
	h.ok(h.engine.WaitApplied(ctx, h.log.End()))
	gone, err := h.engine.Condemned()
	h.ok(err)
	for seq := range gone {
		if s, _ := h.log.Segment(seq); !s.Dropped {
			dropped++
		}
		h.ok(h.log.Drop(seq))
	}
	return dropped
}

// TestWhatIsUsedStays: files and snapshots are as before when everything was dropped that the
// engine says nothing uses; after a crash too.
func TestWhatIsUsedStays(t *testing.T) {
	dropped, kept := 0, 0
	for seed := range uint64(8) {
		rng := mathrand.New(mathrand.NewPCG(seed, 77))
		h := newLogHost(t)
		ctx := context.Background()
		pictures := map[string]string{}
		var snaps []volume.Snapshot
		for i := range 400 {
			if err := randomStep(rng, i).do(ctx, h.engine); err != nil && outcomeOf(err) == nil {
				t.Fatal(err)
			}
			switch rng.IntN(40) {
			case 0:
				s, err := h.engine.TakeSnapshot(ctx, asRoot, fmt.Sprint("s", i))
				h.ok(err)
				snaps = append(snaps, s)
				pictures[s.Name] = look(t, withLocks(h.engine), at(volume.Root, s.Snap))
			case 1:
				if n := len(snaps); n > 0 {
					k := rng.IntN(n)
					h.ok(h.engine.DropSnapshot(ctx, asRoot, snaps[k].Name))
					snaps = slices.Delete(snaps, k, k+1)
				}
			case 2:
				_, err := h.engine.Clean(ctx)
				h.ok(err)
			case 3, 4:
				h.ok(h.log.Roll())
			case 5:
				_, err := h.engine.Reap(ctx, nil)
				h.ok(err)
			case 6, 7:
				before := look(t, withLocks(h.engine), volume.Root)
				dropped += h.condemn()
				h.crash() // what is in memory goes
				v := withLocks(h.engine)
				if got := look(t, v, volume.Root); got != before {
					t.Fatalf("seed %d: the volume has\n%swant\n%s", seed, got, before)
				}
				for _, s := range snaps {
					kept++
					if got := look(t, v, at(volume.Root, s.Snap)); got != pictures[s.Name] {
						t.Fatalf("seed %d: snapshot %s has\n%swant\n%s", seed, s.Name, got, pictures[s.Name])
					}
				}
			}
		}
	}
	if dropped < 20 || kept < 20 {
		t.Errorf("only %d segments were dropped, and snapshots looked at %d times", dropped, kept)
	}
}

// TestCondemnedIsDurable: what the engine says is condemned is still so after the power was cut.
func TestCondemnedIsDurable(t *testing.T) {
	h := newLogHost(t)
	newFile(t, h.engine, volume.Root, "f")
	if n := h.condemn(); n == 0 {
		t.Fatal("nothing was condemned")
	}
	want, err := h.engine.Condemned()
	h.ok(err)
	// The metadata are as the disk has them, and the log may be without its past.
	e := openEngine(t, h.fs.CrashClone(vfs.CrashCloneCfg{}), newMemJournal(), nil)
	got, err := e.Condemned()
	h.ok(err)
	if len(got) != len(want) {
		t.Errorf("the disk knows of %d condemned segments, %d were named", len(got), len(want))
	}
	h.ok(e.Close())
}

// TestCondemnRefuses: what is not before the newest checkpoint is not condemned.
func TestCondemnRefuses(t *testing.T) {
	h := newLogHost(t)
	ctx := context.Background()
	h.condemn()
	c, err := h.engine.Checkpoints()
	h.ok(err)
	if err := h.engine.Condemn(ctx, c.Made.Number, []uint64{c.Made.At.Seq + 1}); err == nil {
		t.Error("a segment after the checkpoint was condemned")
	}
	if err := h.engine.Condemn(ctx, c.Made.Number-1, []uint64{1}); err == nil {
		t.Error("a segment was condemned at an earlier checkpoint")
	}
	if err := h.engine.Condemn(ctx, c.Made.Number+1, []uint64{1}); err == nil {
		t.Error("a segment was condemned at a checkpoint that is not made")
	}
}
