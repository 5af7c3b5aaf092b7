// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

func TestBlockCache(t *testing.T) {
	c := NewBlockCache(100)
	ref := func(n uint64) segment.BlockRef { return segment.BlockRef{Seq: 1, Off: n} }
	a, b, one := c.namespace(), c.namespace(), c.open()
	for n := range uint64(3) {
		c.put(one, a, ref(n), make([]byte, 40), 0)
		if n == 1 {
			c.done(c.get(a, ref(0), 1)) // block 1 is the oldest now
		}
	}
	for n, want := range []bool{true, false, true} {
		if got := c.has(a, ref(uint64(n))); got != want {
			t.Errorf("block %d is cached: %t", n, got)
		}
	}
	if c.has(b, ref(0)) {
		t.Error("a block is found in another namespace")
	}
	c.put(one, a, ref(9), make([]byte, 101), 0)
	if c.size != 80 || len(c.blocks) != 2 || c.recent.Len() != 2 {
		t.Errorf("cache holds %d bytes in %d blocks", c.size, len(c.blocks))
	}
}

// TestShareOfBlockCache: a volume has no more in the cache than its limit, also when that is
// lowered, and pushes out its own blocks first.
func TestShareOfBlockCache(t *testing.T) {
	c := NewBlockCache(1000)
	ns, one, other := c.namespace(), c.open(), c.open()
	ref := func(n uint64) segment.BlockRef { return segment.BlockRef{Seq: 1, Off: n} }
	c.put(other, ns, ref(100), make([]byte, 100), 0)
	c.setLimit(one, 200)
	for n := range uint64(4) {
		c.put(one, ns, ref(n), make([]byte, 100), 0)
	}
	has := func() (all []uint64) {
		for _, n := range []uint64{0, 1, 2, 3, 100} {
			if b := c.get(ns, ref(n), 1); b != nil {
				c.done(b)
				all = append(all, n)
			}
		}
		return all
	}
	if got := has(); !slices.Equal(got, []uint64{2, 3, 100}) || one.size != 200 {
		t.Errorf("kept are %v, %d bytes", got, one.size)
	}
	c.put(one, ns, ref(4), make([]byte, 201), 0)
	if got := has(); !slices.Equal(got, []uint64{2, 3, 100}) {
		t.Errorf("after a block that is larger than the limit: %v", got)
	}
	c.setLimit(one, 100)
	if got := has(); !slices.Equal(got, []uint64{3, 100}) || c.size != 200 || c.recent.Len() != 2 || one.recent.Len() != 1 {
		t.Errorf("with a lower limit: %v, %d bytes", got, c.size)
	}
	c.setLimit(one, 0)
	for n := range uint64(10) {
		c.put(one, ns, ref(200+n), make([]byte, 100), 0)
	}
	if c.size != 1000 || one.size != 1000 || other.size != 0 || other.recent.Len() != 0 {
		t.Errorf("without a limit: %d bytes, of them %d and %d", c.size, one.size, other.size)
	}
}

// TestTuning: size and compression of new blocks, and the read-ahead, are what was asked for last,
// and what was written before is read all the same.
func TestTuning(t *testing.T) {
	h := newHost(t, nil)
	f := newFile(t, h, volume.Root, "f")
	text := bytes.Repeat([]byte("a line of text that is small when it is compressed\n"), 4<<10) // 208 KiB
	var sizes [][]int
	var stored []int
	for i, tuning := range []Tuning{{}, {BlockSize: 4 << 10}, {BlockSize: 5000, Compression: segment.None}, {BlockSize: 1},
		{BlockSize: 1 << 20, Compression: segment.Strong}} {
		h.Tune(tuning)
		off := uint64(i) << 20
		if _, err := h.Write(t.Context(), asRoot, f, off, text, true); err != nil {
			t.Fatal(err)
		}
		refs, _, err := h.Blocks(t.Context(), f, off, 1000)
		if err != nil {
			t.Fatal(err)
		}
		var lengths []int
		total := 0
		for _, r := range refs {
			total += int(r.Len)
			lengths = append(lengths, int(r.Len))
		}
		sizes, stored = append(sizes, lengths), append(stored, total)
		got := make([]byte, len(text))
		if _, _, err := h.Read(t.Context(), asRoot, f, off, got); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%+v: %v", tuning, err)
		}
	}
	for i, want := range []int{4, 51, 51, 51, 4} {
		if got := len(sizes[i]); got != want && got != want+1 {
			t.Errorf("write %d has %d blocks, want %d", i, got, want)
		}
	}
	if stored[2] < len(text) || stored[0] > len(text)/10 || stored[4] >= stored[0] {
		t.Errorf("stored are %v of %d bytes", stored, len(text))
	}
}

// TestReadAhead reads a file in order and then removes the blocks from the journal. What follows
// must be in the cache already. Reads at random offsets must not start a read-ahead.
func TestReadAhead(t *testing.T) {
	h := newHost(t, nil)
	const step = 128 << 10
	want := make([]byte, 3*DefaultReadAhead/2)
	for i := range want {
		want[i] = byte(i / 4096)
	}
	f, g := newFile(t, h, volume.Root, "f"), newFile(t, h, volume.Root, "g")
	for off := 0; off < len(want); off += 1 << 20 {
		for _, file := range []volume.Handle{f, g} {
			if _, err := h.Write(t.Context(), asRoot, file, uint64(off), want[off:off+1<<20], false); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := make([]byte, step)
	read := func(file volume.Handle, off int) error {
		t.Helper()
		n, _, err := h.Read(t.Context(), asRoot, file, uint64(off), p)
		if err == nil && !bytes.Equal(p[:n], want[off:off+step]) {
			t.Fatalf("read at %d differs", off)
		}
		return err
	}
	for i := range 2 {
		if err := read(f, i*step); err != nil {
			t.Fatal(err)
		}
		if err := read(g, i*5*step); err != nil {
			t.Fatal(err)
		}
	}
	h.ahead.wg.Wait()
	h.journal.forgetBlocks()
	for off := 2 * step; off < DefaultReadAhead; off += step {
		if err := read(f, off); err != nil {
			t.Fatalf("read at %d was not fetched ahead: %v", off, err)
		}
	}
	h.ahead.wg.Wait()
	wantOutcome(t, "read in no order", read(g, 6*step), volume.ErrIO)
}

// TestSmallWrites writes over and into extents and reads across them.
func TestSmallWrites(t *testing.T) {
	h := newHost(t, nil)
	f := newFile(t, h, volume.Root, "f")
	want := make([]byte, 200<<10)
	for i, w := range []struct{ off, n int }{
		{0, 64 << 10}, {10, 5}, {65530, 12}, {64<<10 - 1, 2}, {100 << 10, 100 << 10}, {131071, 1}, {0, 200 << 10}, {77, 65536}, {1, 1},
	} {
		data := bytes.Repeat([]byte{byte(i + 1)}, w.n)
		copy(want[w.off:], data)
		res, err := h.Write(t.Context(), asRoot, f, uint64(w.off), data, i%2 == 0)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want)+1)
		n, eof, err := h.Read(t.Context(), asRoot, f, 0, got)
		if err != nil || !eof || uint64(n) != res.Attr.Size || !bytes.Equal(got[:n], want[:n]) {
			t.Fatalf("after write %d: %d bytes, %t, %v", i, n, eof, err)
		}
	}
}

// slowBlocks is a journal whose ReadBlocks waits until it may go on.
type slowBlocks struct {
	journal.Journal
	began chan int // how many blocks
	may   chan error
}

func (j slowBlocks) ReadBlocks(ctx context.Context, refs []segment.BlockRef) ([][]byte, error) {
	j.began <- len(refs)
	if err := <-j.may; err != nil {
		return nil, err
	}
	return j.Journal.ReadBlocks(ctx, refs)
}

// TestABlockIsReadOnce: who needs a block that somebody else reads waits for it. If that fails, or
// the cache has no room for it, it reads the block itself.
func TestABlockIsReadOnce(t *testing.T) {
	for name, c := range map[string]struct {
		cache int64
		fails error
		reads int
		hangs bool
	}{
		"it comes":      {1 << 20, nil, 1, false},
		"it fails":      {1 << 20, errors.New("a bad disk"), 2, false},
		"there is none": {1 << 10, nil, 2, false},
		"it hangs":      {1 << 20, nil, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clockwork.NewFakeClock()
			slow := slowBlocks{began: make(chan int, 9), may: make(chan error, 9)}
			h := newHostOver(t, func(cfg *Config) { cfg.Cache, cfg.Clock, cfg.Tuning.ReadAhead = NewBlockCache(c.cache), clock, 0 },
				func(j *memJournal) journal.Journal { slow.Journal = j; return slow })
			f := newFile(t, h, volume.Root, "f")
			want := bytes.Repeat([]byte("block"), 1000)
			if _, err := h.Write(t.Context(), asRoot, f, 0, want, true); err != nil {
				t.Fatal(err)
			}
			h.cache.setLimit(h.share, 1) // nothing of the write is left
			h.cache.setLimit(h.share, 0)
			read := func() error {
				p := make([]byte, len(want))
				_, _, err := h.Read(t.Context(), asRoot, f, 0, p)
				if err == nil && !bytes.Equal(p, want) {
					t.Error("other bytes were read")
				}
				return err
			}
			first, second := make(chan error, 1), make(chan error, 1)
			go func() { first <- read() }()
			<-slow.began
			go func() { second <- read() }()
			waitFor(func() bool {
				h.cache.mu.Lock()
				defer h.cache.mu.Unlock()
				return h.cache.misses >= 2
			})
			if c.hangs {
				if err := clock.BlockUntilContext(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				clock.Advance(awaitMost)
				<-slow.began // by the second one
				slow.may <- nil
			}
			slow.may <- c.fails
			if err := <-first; !errors.Is(err, c.fails) {
				t.Fatalf("the first reader got %v", err)
			}
			for n := 1; n < c.reads && !c.hangs; n++ {
				select {
				case <-slow.began:
				case err := <-second:
					t.Fatalf("the second reader got %v, and did not read", err)
				}
				slow.may <- nil
			}
			if err := <-second; err != nil {
				t.Fatal(err)
			}
			if n := len(slow.began); n != 0 || len(h.cache.under) != 0 {
				t.Errorf("%d more reads than %d, %d blocks are still being read", n, c.reads, len(h.cache.under))
			}
		})
	}
}
