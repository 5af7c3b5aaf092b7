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

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// all of it: whatever is mostly dead is written again.
var allRemnants = RewriteRule{Percent: 100, Write: 64 << 20, Share: 1}

// remnants makes a checkpoint, and returns what is to be written again by a rule.
func (h *logHost) remnants(rule RewriteRule) []Remnant {
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
	left, err := cut.Remnants(ctx, uses, rule)
	h.ok(err)
	h.ok(cut.Close())
	h.ok(h.engine.MadeCheckpoint(ctx, m, cut.Number, 0))
	return left
}

// rewrite writes remnants again, and returns how many bytes that was.
func (h *logHost) rewrite(left []Remnant) (all int) {
	h.Helper()
	for len(left) > 0 {
		rest, n, err := h.engine.Rewrite(context.Background(), left)
		h.ok(err)
		if len(rest) >= len(left) {
			h.Fatal("nothing was taken from the list")
		}
		left, all = rest, all+n
	}
	return all
}

// inodes has the attributes of all inodes.
func (h *logHost) inodes() (out string) {
	h.Helper()
	t, err := h.engine.look()
	h.ok(err)
	lo, hi := []byte{byte(meta.Inodes)}, []byte{byte(meta.Inodes) + 1}
	for p, err := range t.view.Range(lo, hi) {
		h.ok(err)
		out += fmt.Sprintf("%x %x\n", p.Key, p.Value)
	}
	h.ok(t.view.Close())
	return out
}

// TestRewriteIsNotSeen: files, their attributes, and snapshots are as before when what was left of
// blocks is written again, and the blocks have moved into packs, or are gone; after a crash too. At
// the next checkpoint nothing is left.
func TestRewriteIsNotSeen(t *testing.T) {
	bytes, kept := 0, 0
	for seed := range uint64(6) {
		rng := mathrand.New(mathrand.NewPCG(seed, 79))
		h, store := newPackHost(t)
		if seed%2 == 0 {
			h.engine.Tune(Tuning{BlockSize: 8 << 10})
		}
		ctx := context.Background()
		pictures := map[string]string{}
		var snaps []volume.Snapshot
		same := func(what, before string) {
			t.Helper()
			v := withLocks(h.engine)
			if got := look(t, v, volume.Root); got != before {
				t.Fatalf("seed %d: %s the volume has\n%swant\n%s", seed, what, got, before)
			}
			for _, s := range snaps {
				kept++
				if got := look(t, v, at(volume.Root, s.Snap)); got != pictures[s.Name] {
					t.Fatalf("seed %d: %s snapshot %s has\n%swant\n%s", seed, what, s.Name, got, pictures[s.Name])
				}
			}
			if err := health(h.engine, h.log); err != nil {
				t.Fatalf("seed %d: %s: %v", seed, what, err)
			}
		}
		for i := range 400 {
			s := randomStep(rng, i)
			if rng.IntN(2) == 0 {
				s.kind = 7
			}
			for k := range s.data { // else blocks are so small that nothing comes back
				s.data[k] = byte(rng.Uint32())
			}
			if err := s.do(ctx, h.engine); err != nil && outcomeOf(err) == nil {
				t.Fatal(err)
			}
			switch rng.IntN(40) {
			case 0:
				s, err := h.engine.TakeSnapshot(ctx, asRoot, fmt.Sprint("s", i))
				h.ok(err)
				snaps = append(snaps, s)
				pictures[s.Name] = look(t, withLocks(h.engine), at(volume.Root, s.Snap))
			case 1, 2:
				if n := len(snaps); n > 0 {
					k := rng.IntN(n)
					h.ok(h.engine.DropSnapshot(ctx, asRoot, snaps[k].Name))
					snaps = slices.Delete(snaps, k, k+1)
				}
			case 3:
				_, err := h.engine.Clean(ctx)
				h.ok(err)
			case 4:
				h.ok(h.log.Roll())
			case 5:
				h.packs(store)
			case 6, 7:
				left := h.remnants(allRemnants)
				before, inodes := look(t, withLocks(h.engine), volume.Root), h.inodes()
				bytes += h.rewrite(left)
				same("written again", before)
				if h.inodes() != inodes {
					t.Fatalf("seed %d: inodes have changed", seed)
				}
				if left := h.remnants(allRemnants); len(left) > 0 && len(snaps) == 0 {
					t.Fatalf("seed %d: %d blocks are mostly dead", seed, len(left))
				}
				h.packs(store)
				h.crash()
				same("after a crash", before)
			}
		}
	}
	if t.Logf("%d bytes were written again", bytes); bytes < 200<<10 || kept < 20 {
		t.Errorf("only %d bytes were written again, and snapshots looked at %d times", bytes, kept)
	}
}

// between is a Journal that does something after blocks are read, and before their reader goes on.
type between struct {
	journal.Journal
	do func()
}

func (j *between) ReadBlocks(ctx context.Context, refs []segment.BlockRef) ([][]byte, error) {
	out, err := j.Journal.ReadBlocks(ctx, refs)
	if do := j.do; do != nil {
		j.do = nil
		do()
	}
	return out, err
}

// TestRewriteLeavesWhatCameBetween: what changes a file between the reading of what is left of its
// blocks and the record that would write that again is not undone.
func TestRewriteLeavesWhatCameBetween(t *testing.T) {
	const size = 64 << 10
	rng := mathrand.New(mathrand.NewPCG(1, 3))
	random := func(n int) []byte {
		p := make([]byte, n)
		for k := range p {
			p[k] = byte(rng.Uint32())
		}
		return p
	}
	old, newer, newest := random(size), random(size-9000), random(500)
	for _, c := range []struct {
		name string
		do   func(h *logHost, f volume.Handle) error
		want func(p []byte) []byte
		same int // bytes that are written again
	}{
		{"nothing", func(*logHost, volume.Handle) error { return nil }, nil, 9000},
		{"an overwrite of all of it", func(h *logHost, f volume.Handle) error {
			_, err := h.engine.Write(h.Context(), asRoot, f, 0, old, false)
			return err
		}, func([]byte) []byte { return old }, 0},
		{"an unstable overwrite of a part", func(h *logHost, f volume.Handle) error {
			_, err := h.engine.Write(h.Context(), asRoot, f, 100, newest, false)
			return err
		}, func(p []byte) []byte { copy(p[100:], newest); return p }, 0},
		{"the same bytes again", func(h *logHost, f volume.Handle) error {
			_, err := h.engine.Write(h.Context(), asRoot, f, 0, old[:9000], true)
			return err
		}, nil, 0},
		{"a hole", func(h *logHost, f volume.Handle) error {
			_, err := h.engine.Punch(h.Context(), asRoot, f, 10, 1000)
			return err
		}, func(p []byte) []byte { clear(p[10:1010]); return p }, 0},
		{"a truncation", func(h *logHost, f volume.Handle) error {
			_, err := h.engine.SetAttr(h.Context(), asRoot, f, volume.SetAttr{Size: new(uint64(17))})
			return err
		}, func(p []byte) []byte { return p[:17] }, 0},
		{"a truncation to nothing", func(h *logHost, f volume.Handle) error {
			_, err := h.engine.SetAttr(h.Context(), asRoot, f, volume.SetAttr{Size: new(uint64(0))})
			return err
		}, func([]byte) []byte { return nil }, 0},
		{"a removal", func(h *logHost, _ volume.Handle) error {
			_, err := h.engine.Remove(h.Context(), asRoot, volume.Root, "f")
			return err
		}, nil, 0},
		{"a snapshot", func(h *logHost, _ volume.Handle) error {
			_, err := h.engine.TakeSnapshot(h.Context(), asRoot, "s")
			return err
		}, nil, 0},
		{"another role", func(h *logHost, _ volume.Handle) error {
			h.engine.Unlead()
			return nil
		}, nil, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, _ := newPackHost(t)
			f := newFile(t, h.engine, volume.Root, "f")
			for _, w := range []struct {
				off  uint64
				data []byte
			}{{0, old}, {9000, newer}} {
				_, err := h.engine.Write(t.Context(), asRoot, f, w.off, w.data, true)
				h.ok(err)
			}
			want := slices.Concat(old[:9000], newer)
			left := h.remnants(allRemnants)
			if len(left) != 1 || left[0].used != 9000 {
				t.Fatalf("what is left: %+v", left)
			}
			h.engine.journal = &between{h.engine.journal, func() { h.ok(c.do(h, f)) }}
			rest, n, err := h.engine.Rewrite(t.Context(), left)
			if c.same < 0 {
				if len(rest) != 0 || !errors.Is(err, volume.ErrDelay) {
					t.Fatalf("%d bytes are written again, %v", n, err)
				}
				return
			}
			if h.ok(err); n != c.same || len(rest) != 0 {
				t.Errorf("%d bytes are written again, want %d", n, c.same)
			}
			if c.want != nil {
				want = c.want(want)
			}
			for range 2 {
				a, err := h.engine.Lookup(t.Context(), asRoot, volume.Root, "f")
				if c.name == "a removal" {
					if !errors.Is(err, volume.ErrNotExist) {
						t.Error(err)
					}
					a.Size, want = 0, nil
				} else {
					h.ok(err)
				}
				p := make([]byte, a.Size)
				if len(p) > 0 {
					_, _, err = h.engine.Read(t.Context(), asRoot, a.Handle, 0, p)
					h.ok(err)
				}
				if !bytes.Equal(p, want) {
					t.Errorf("the file has %d bytes, which are not the newest", len(p))
				}
				h.ok(health(h.engine, h.log))
				if c.name != "a removal" {
					_, err = h.engine.Commit(t.Context(), asRoot, a.Handle)
					h.ok(err)
				}
				h.crash()
			}
		})
	}
}

// TestRewriteRule: the deadest go first, until the rule holds; and a round writes no more than it
// may.
func TestRewriteRule(t *testing.T) {
	h, _ := newPackHost(t)
	rng := mathrand.New(mathrand.NewPCG(1, 2))
	const blocks = 32
	f := newFile(t, h.engine, volume.Root, "f")
	p := make([]byte, 64<<10)
	for i := range uint64(blocks) {
		for k := range p {
			p[k] = byte(rng.Uint32())
		}
		_, err := h.engine.Write(t.Context(), asRoot, f, i<<16, p, true)
		h.ok(err)
	}
	for i := range uint64(blocks) { // of block i there stay i+1 KiB
		_, err := h.engine.Write(t.Context(), asRoot, f, i<<16, p[:64<<10-(i+1)<<10], true)
		h.ok(err)
	}
	used := func(rule RewriteRule) (out []uint32) {
		for _, r := range h.remnants(rule) {
			out = append(out, r.used>>10)
		}
		return out
	}
	// All live blocks have 3568 KiB, files use 2048 of them. The first nine give back 531.
	for _, c := range []struct {
		rule RewriteRule
		last int // blocks 0 to this
	}{
		{allRemnants, 31},
		{RewriteRule{Percent: 100, Spare: 64 << 20, Write: 1 << 20, Share: 1}, -1},
		{RewriteRule{Percent: 200, Write: 1 << 20, Share: 1}, -1},
		{RewriteRule{Percent: 150, Write: 1 << 20, Share: 1}, 8},
		{RewriteRule{Percent: 100, Spare: 1 << 20, Write: 1 << 20, Share: 1}, 8},
		{RewriteRule{Percent: 100, Write: 50 << 10, Share: 1 << 30}, 8},
	} {
		got := used(c.rule)
		for i, n := range got {
			if int(n) != i+1 {
				t.Fatalf("%+v: %v", c.rule, got)
			}
		}
		if len(got) != c.last+1 {
			t.Errorf("%+v: %d blocks, want %d", c.rule, len(got), c.last+1)
		}
	}
}
