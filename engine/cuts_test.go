// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/weir-storage/weir/cachepool/readcache"
	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// TestCuts: what is left of a block that is mostly dead moves without the rest, and is read when
// the segment has gone; so is what only a snapshot shows of it. A pack that lacks bytes which a
// copy's metadata name replaces nothing there, the check finds that, and who reads such bytes gets
// an error, and no zeros.
func TestCuts(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		h, store := newPackHost(t)
		h.spoilt = forgets
		ctx := context.Background()
		rng := rand.NewChaCha8([32]byte{64})
		f := newFile(t, h.engine, volume.Root, "f")
		p := make([]byte, 64<<10)
		write := func(off, n int) {
			t.Helper()
			_, _ = rng.Read(p[off : off+n])
			_, err := h.engine.Write(ctx, asRoot, f, uint64(off), p[off:off+n], true)
			h.ok(err)
		}
		write(0, 64<<10)
		write(0, 20<<10)
		write(40<<10, 24<<10)
		s, err := h.engine.TakeSnapshot(ctx, asRoot, "s") // has 20 KiB of the first block
		h.ok(err)
		was := bytes.Clone(p)
		write(22<<10, 4<<10)
		h.ok(h.log.Roll())
		h.askAndRoll()
		cut := h.engine.TakeCut()
		m, _, err := cut.Write(ctx, checkpointKeys, h.objects)
		h.ok(err)
		uses, err := cut.Uses(ctx)
		h.ok(err)
		plans, err := cut.Plan(ctx, uses, pack.Rule{Percent: 112, Write: 1 << 20, Share: 1, Small: 64 << 20, Merge: 1})
		h.ok(err)
		h.ok(cut.Close())
		h.ok(h.engine.MadeCheckpoint(ctx, m, cut.Number, 0))
		var left *pack.Cut
		for _, plan := range plans {
			for i := range plan.Kept {
				for j := range plan.Kept[i].Cuts {
					left = &plan.Kept[i].Cuts[j]
				}
			}
		}
		if left == nil || left.Bytes() != 20<<10 || len(left.Ranges) != 1 || left.Ranges[0].Off != 20<<10 {
			t.Fatalf("of the first block is kept %+v", left)
		}
		if forgets { // what the snapshot shows
			left.Ranges = []pack.Range{{Off: 20 << 10, Len: 2 << 10}, {Off: 26 << 10, Len: 14 << 10}}
		}
		for _, plan := range plans {
			built, whole := h.build(plan, store)
			h.ok(h.engine.Pack(ctx, cut.Number, plan, built))
			store[built.Index.Name()] = whole
		}
		h.ok(h.engine.WaitApplied(ctx, h.log.End()))
		table, err := h.engine.Packs()
		h.ok(err)
		if err := h.engine.Covers(ctx, table.All); (err != nil) != forgets {
			t.Errorf("forgets %v: the packs have all that is named: %v", forgets, err)
		}
		report, err := h.engine.Check(ctx, fsck.Config{})
		if h.ok(err); (len(report.Findings) > 0) != forgets {
			t.Errorf("forgets %v: the check finds %+v", forgets, report.Findings)
		}
		gone, err := h.engine.Condemned()
		h.ok(err)
		for seq := range gone {
			h.ok(h.log.Drop(seq))
		}
		h.crash() // what is in memory goes
		for _, of := range []struct {
			snap uint32
			want []byte
		}{{0, p}, {s.Snap, was}} {
			got := make([]byte, len(p))
			_, _, err := h.engine.Read(ctx, asRoot, at(f, of.snap), 0, got)
			if forgets && of.snap != 0 {
				if !errors.Is(err, volume.ErrIO) {
					t.Errorf("what was cut away of a snapshot is read: %v", err)
				}
				continue
			}
			if h.ok(err); !bytes.Equal(got, of.want) {
				t.Errorf("snapshot %d has other bytes", of.snap)
			}
		}
	}
}

// countedStore counts reads.
type countedStore struct {
	packStore
	reads *int
}

func (s countedStore) ReadSegment(ctx context.Context, name string, off int64, p []byte) error {
	*s.reads++
	return s.packStore.ReadSegment(ctx, name, off, p)
}

// TestCutsAreCached: what is left of a block stays on the pool when it was read, or is pinned, as
// whole blocks do.
func TestCutsAreCached(t *testing.T) {
	h, store := newPackHost(t)
	reads, hidden := 0, 0 // hidden: so often nothing seems to have moved
	ctx := context.Background()
	tune := h.tune
	h.tune = func(cfg *log.Config) {
		tune(cfg)
		cfg.Sources = func() []log.Source { return []log.Source{countedStore{store, &reads}} }
		cfg.Moved = func(seq uint64) (*pack.Pack, error) {
			if hidden > 0 {
				hidden--
				return nil, nil
			}
			return h.engine.Moved(seq)
		}
		var err error
		cfg.Cache, err = readcache.New(readcache.Config{Room: h.pool.Room()}).Open(testID.String(), cfg.Dir, readcache.Share{})
		h.ok(err)
	}
	h.crash() // opens it again
	rng := rand.NewChaCha8([32]byte{65})
	f := newFile(t, h.engine, volume.Root, "f")
	p := make([]byte, 128<<10)
	write := func(off, n int) {
		_, _ = rng.Read(p[off : off+n])
		_, err := h.engine.Write(ctx, asRoot, f, uint64(off), p[off:off+n], true)
		h.ok(err)
	}
	write(0, 128<<10)
	h.ok(h.log.Roll())
	write(8<<10, 50<<10) // of the first block 14 KiB are left
	if h.packs(store) == 0 {
		t.Fatal("nothing moved")
	}
	all, _, err := h.engine.Blocks(ctx, f, 0, 100)
	h.ok(err)
	var refs []segment.BlockRef // of blocks that moved
	cuts := 0
	for _, ref := range all {
		index, err := h.engine.Moved(ref.Seq)
		if h.ok(err); index == nil {
			continue
		}
		_, cut, err := index.At(ref)
		h.ok(err)
		if refs = append(refs, ref); cut != nil {
			cuts++
		}
	}
	if cuts == 0 || cuts == len(refs) {
		t.Fatalf("%d of %d blocks are cut", cuts, len(refs))
	}
	read := func() int {
		before := reads
		_, err := h.log.ReadBlocks(ctx, refs)
		h.ok(err)
		return reads - before
	}
	if n := len(h.log.Missing(refs)); n != len(refs) {
		t.Errorf("%d of %d blocks are missing before they were read", n, len(refs))
	}
	moved, left, err := h.log.Fetch(ctx, refs)
	if h.ok(err); moved == 0 || left != 0 || reads == 0 {
		t.Errorf("%d bytes came in %d reads, and %d found no place", moved, reads, left)
	}
	if n, again := len(h.log.Missing(refs)), read(); n != 0 || again != 0 {
		t.Errorf("%d blocks are missing after they were read, and %d reads are needed again", n, again)
	}
	for range 2 { // from what is there, and from what is pinned
		before := reads
		left, open, err := h.log.Pin(ctx, refs, 1, false)
		if h.ok(err); left != 0 || open != 0 || reads != before {
			t.Errorf("%d bytes are not pinned, %d are in the log, after %d reads", left, open, reads-before)
		}
	}
	got := make([]byte, len(p))
	if _, _, err := h.engine.Read(ctx, asRoot, f, 0, got); err != nil || !bytes.Equal(got, p) {
		t.Errorf("other bytes are read: %v", err)
	}
	hidden = 1 // it moves when it was looked whether it had
	if _, err := h.log.ReadBlocks(ctx, refs); err != nil || hidden != 0 {
		t.Errorf("blocks that move while they are read: %v", err)
	}
}
