// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// sealing is what packs of a host are built with: the newest data key.
func (h *logHost) sealing(store packStore) *pack.Sealing {
	number, key := uint32(0), segment.DataKey(testKey)
	get := func(uint32) segment.DataKey { return key }
	if h.keys != nil {
		number, key = h.keys.Newest()
		get = func(n uint32) segment.DataKey {
			is, ok := h.keys.Get(n)
			if !ok {
				h.Fatalf("no data key %d", n)
			}
			return is
		}
	}
	packed := func(ref segment.BlockRef) ([]byte, error) {
		if s, _ := h.log.Segment(ref.Seq); !s.Dropped {
			b := make([]byte, ref.Len)
			if _, err := h.log.ReadSegmentFile(ref.Seq, b, int64(ref.Off)); err != nil {
				return nil, err
			}
			return h.log.OpenPacked(ref, b)
		}
		index, err := h.engine.Moved(ref.Seq)
		if err != nil {
			return nil, err
		}
		read := func(p []byte, off uint64) error {
			return store.ReadSegment(context.Background(), index.Name(), int64(off), p)
		}
		at, cut, err := index.At(ref)
		if err != nil {
			return nil, err
		}
		if cut == nil {
			b, err := index.Read(ref, read)
			if err != nil {
				return nil, err
			}
			return h.log.OpenPacked(ref, b)
		}
		b := make([]byte, cut.Size+pack.SumSize)
		if err := read(b, at); err != nil {
			return nil, err
		}
		data := get(index.Key())
		return index.OpenPacked(&data, ref.Seq, cut, b)
	}
	return &pack.Sealing{Key: number, Data: &key,
		Raw: func(refs []segment.BlockRef) ([][]byte, error) { return h.log.ReadBlocks(h.Context(), refs) },
		Packed: func(refs []segment.BlockRef) (all [][]byte, err error) {
			for _, ref := range refs {
				b, err := packed(ref)
				if err != nil {
					return nil, err
				}
				all = append(all, b)
			}
			return all, nil
		}}
}

// TestReseal: what lives of segments and of packs under older data keys is sealed anew, rounds
// after rounds, and then all of it is read with the newest key alone: after another rotation too,
// and what a snapshot shows. Blocks keep their compression and their length.
func TestReseal(t *testing.T) {
	h, store := newPackHost(t)
	h.keys = segment.NewKeys(testKey)
	all := map[uint32]segment.DataKey{0: testKey, 1: {1}, 2: {2}}
	h.keys.Add(all)
	tune := h.tune
	h.tune = func(cfg *log.Config) {
		tune(cfg)
		cfg.Keys = h.keys
	}
	h.crash()
	ctx := context.Background()
	rng := rand.NewChaCha8([32]byte{67})
	f := newFile(t, h.engine, volume.Root, "f")
	p := make([]byte, 2<<20)
	write := func(off, n int, same bool) {
		t.Helper()
		if _, _ = rng.Read(p[off : off+n]); same {
			copy(p[off:off+n], bytes.Repeat(p[off:off+16], n/16))
		}
		_, err := h.engine.Write(ctx, asRoot, f, uint64(off), p[off:off+n], true)
		h.ok(err)
	}
	write(0, 1<<20, false)
	write(1<<20, 1<<20, true)
	h.ok(h.log.Roll())
	write(100<<10, 400<<10, false)
	s, err := h.engine.TakeSnapshot(ctx, asRoot, "s")
	h.ok(err)
	was := bytes.Clone(p)
	write(300<<10, 100<<10, true)
	h.ok(h.log.Roll())
	if h.packs(store) == 0 {
		t.Fatal("nothing is in packs before")
	}
	for newest := uint32(1); newest <= 2; newest++ {
		if !h.keys.Use(newest) {
			t.Fatal("the key is not used")
		}
		h.log.NewSalt()
		write(900<<10, 70<<10, newest == 1)
		h.ok(h.engine.WaitApplied(ctx, h.log.End()))
		h.ok(h.log.Roll())
		usage, err := h.engine.Usage(ctx)
		if h.ok(err); usage.Keys[newest-1] == 0 {
			t.Fatalf("under data keys there are %v", usage.Keys)
		}
		before := usage.Keys[newest-1] + usage.Keys[newest]
		h.newest = newest
		rounds := 0
		for left := true; left; rounds++ {
			if rounds > 20 {
				t.Fatalf("there is no end: %v", usage.Keys)
			}
			h.ok(h.log.Roll())
			h.packs(store)
			usage, err = h.engine.Usage(ctx)
			h.ok(err)
			left = false
			for n, bytes := range usage.Keys {
				left = left || n < newest && bytes > 0
			}
			if before := h.clean == 0; rounds == 0 && !before {
				t.Errorf("nothing is said to be left: %v", usage.Keys)
			}
		}
		if after := usage.Keys[newest]; after > before+before/100 {
			t.Errorf("%d bytes became %d", before, after)
		}
		_, _, plans := h.plans(eager)
		if h.clean != newest {
			t.Errorf("all is said to be under key %d, and is under %d", h.clean, newest)
		}
		for _, plan := range plans {
			if plan.Reseals {
				t.Error("what is under the newest key is to be sealed anew")
			}
		}
		report, err := h.engine.Check(ctx, fsck.Config{})
		if h.ok(err); len(report.Findings) > 0 {
			t.Errorf("the check finds %+v", report.Findings)
		}
	}

	h.newest = 0
	h.ok(h.log.Roll())
	h.packs(store) // what older keys sealed and nothing uses goes
	for _, older := range []bool{true, false} {
		wrong := map[uint32]segment.DataKey{0: {9}, 1: {9}, 2: all[2]}
		if older {
			wrong = map[uint32]segment.DataKey{0: all[0], 1: all[1], 2: {9}}
		}
		blocks := 0
		for _, snap := range []uint32{0, s.Snap} {
			refs, _, err := h.engine.Blocks(ctx, at(f, snap), 0, 1000)
			h.ok(err)
			for _, ref := range refs {
				index, err := h.engine.Moved(ref.Seq)
				h.ok(err)
				if index == nil {
					continue // written since
				}
				off, cut, err := index.At(ref)
				h.ok(err)
				if cut == nil || index.Key() != 2 {
					t.Fatalf("the block at %d/%d is not sealed anew", ref.Seq, ref.Off)
				}
				b := make([]byte, cut.Size+pack.SumSize)
				h.ok(store.ReadSegment(ctx, index.Name(), int64(off), b))
				data := wrong[index.Key()]
				if _, err := index.Open(&data, ref.Seq, cut, b); (err != nil) != older {
					t.Fatalf("with the older keys %v, a block: %v", older, err)
				}
				if blocks++; cut.Whole() && cut.Size != ref.Len {
					t.Errorf("a block of %d bytes has %d", ref.Len, cut.Size)
				}
			}
		}
		if blocks < 20 {
			t.Errorf("only %d blocks moved", blocks)
		}
	}

	// A process that has no older key reads every byte.
	h.keys = segment.NewKeys(segment.DataKey{9})
	h.keys.Add(map[uint32]segment.DataKey{1: {9}, 2: all[2]})
	h.keys.Use(2)
	former := h.tune
	h.tune = func(cfg *log.Config) {
		former(cfg)
		cfg.DataKey = segment.DataKey{9}
	}
	h.crash()
	for snap, want := range map[uint32][]byte{0: p, s.Snap: was} {
		got := make([]byte, len(want))
		for off := 0; off < len(got); {
			n, _, err := h.engine.Read(ctx, asRoot, at(f, snap), uint64(off), got[off:min(len(got), off+1<<20)])
			if h.ok(err); n == 0 {
				t.Fatal("the file ends")
			}
			off += n
		}
		if !bytes.Equal(got, want) {
			t.Errorf("snapshot %d has other bytes", snap)
		}
	}
}
