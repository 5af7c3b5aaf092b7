// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/space"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// overwriting is a volume whose files are written at random places, by several clients at once.
type overwriting struct {
	*cluster
	id     string
	part   int64 // what the usual bounds are divided by
	files  []volume.Handle
	model  [][]byte
	turns  int
	noise  int64        // bytes that turns wrote
	last   log.Position // up to where logged counts
	logged int64
	most   int64 // bytes that a store had at once, and that were not put in the last moment
}

// writers is how many clients there are. Each has a file.
const writers = 8

// rule is the usual one, divided by o.part. What is condemned goes soon.
func (o *overwriting) rule() checkpoints.Due {
	n := o.part
	p := uint64(n)
	return checkpoints.Due{Bytes: (128 << 20) / n, Least: (32 << 20) / n, Shrunk: (32 << 20) / n, Segments: 8, Cost: 2,
		Grace: time.Millisecond, Every: 200 * time.Millisecond,
		Pack: pack.Rule{Percent: 120, Spare: (64 << 20) / p, Write: (64 << 20) / p, Share: 20, Small: (4 << 20) / p, Merge: 64}}
}

// begin makes the volume, with files of size bytes together.
func (o *overwriting) begin(size int) {
	o.t.Helper()
	for _, s := range []string{"a", "b"} {
		o.add(s)
	}
	o.id = o.createAt("v", manifest("v", 2), []string{"a", "b"})
	r := o.router("a", o.id)
	o.whole("a", o.id, "b")
	cl := &client{name: "begin"}
	for i := range writers {
		h := file(o.t.(*testing.T), r, cl, fmt.Sprint("file ", i))
		o.files = append(o.files, h)
		o.model = append(o.model, make([]byte, size/writers))
		rng := rand.NewChaCha8([32]byte{1, byte(i)})
		_, _ = rng.Read(o.model[i])
		for off := 0; off < len(o.model[i]); off += 1 << 20 {
			p := o.model[i][off:min(off+1<<20, len(o.model[i]))]
			if _, err := r.Write(o.t.Context(), cl.next(), h, uint64(off), p, off%(16<<20) == 0); err != nil {
				o.t.Fatal(err)
			}
			r.Copy().Replica.Roll()
		}
	}
}

// overwrite writes so many bytes at random places, 1 to 128 KiB each, and returns how long it took.
func (o *overwriting) overwrite(total int) time.Duration {
	o.t.Helper()
	r := o.router("a", o.id)
	began := time.Now()
	var work sync.WaitGroup
	var written atomic.Int64
	for i := range writers {
		work.Go(func() {
			rng, fill := rand.New(rand.NewPCG(2, uint64(i))), rand.NewChaCha8([32]byte{2, byte(i)})
			cl, model := &client{name: fmt.Sprint("writer ", i)}, o.model[i]
			p := make([]byte, 128<<10)
			for n, left := 0, total/writers; left > 0; n++ {
				p := p[:min(1+rng.IntN(len(p)), left)]
				_, _ = fill.Read(p)
				off := rng.IntN(len(model) - len(p) + 1)
				if _, err := r.Write(o.t.Context(), cl.next(), o.files[i], uint64(off), p, false); err != nil {
					o.t.Error(err)
					return
				}
				copy(model[off:], p)
				left -= len(p)
				if n%16 == 15 {
					if _, err := r.Commit(o.t.Context(), volume.Request{}, o.files[i]); err != nil {
						o.t.Error(err)
						return
					}
				}
				if each, all := (64<<20)/o.part, written.Add(int64(len(p))); all/each > (all-int64(len(p)))/each {
					r.Copy().Replica.Roll()
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(o.t.Context())
	var took time.Duration
	go func() {
		defer cancel()
		work.Wait()
		took = time.Since(began)
	}()
	for ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		o.grew()
		o.most = max(o.most, o.stored("a"))
	}
	o.grew()
	return took
}

// stored returns what a site's store has of the volume.
func (o *overwriting) stored(site string) (n int64) {
	o.t.Helper()
	_ = o.nodes[site].store.List(context.Background(), o.id+"/", func(i store.Info) error {
		n += i.Size
		return nil
	})
	return n
}

// grew notes by how much the log has grown, which goes over a link once. What was dropped counts
// too, so it is called often.
func (o *overwriting) grew() {
	l := o.router("a", o.id).Copy().Log
	end := l.End()
	o.logged += l.Distance(o.last, end)
	o.last = end
}

// turn has something happen, so that segments end and checkpoints are due. It writes n bytes: a
// checkpoint is not due for less than twice what the one before takes.
func (o *overwriting) turn(n int64) {
	o.t.Helper()
	r := o.router("a", o.id)
	cl := &client{name: fmt.Sprint("turn ", o.turns)}
	h := file(o.t.(*testing.T), r, cl, "turn")
	noise := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{3, byte(o.turns), byte(o.turns >> 8)}).Read(noise)
	if _, err := r.Write(o.t.Context(), cl.next(), h, 0, noise, true); err != nil {
		o.t.Fatal(err)
	}
	o.turns++
	o.noise += n
	r.Copy().Replica.Roll()
	o.grew()
}

// compacted is what was moved, and what that took of the log.
type compacted struct {
	packs  int
	moved  uint64 // bytes of packs
	logged int64  // bytes of the log beside those of the clients, which cross a link
}

func (o *overwriting) compacted(plain int64) (is compacted) {
	o.t.Helper()
	table, err := o.router("a", o.id).Copy().Engine.Packs()
	if err != nil {
		o.t.Fatal(err)
	}
	for _, p := range table.All {
		is.packs++
		is.moved += p.Len
	}
	is.logged = o.logged - o.noise - plain
	return is
}

func (is compacted) String() string {
	return fmt.Sprintf("%d packs moved %d bytes, and the records of that have %d (%.2f %%)",
		is.packs, is.moved, is.logged, 100*float64(is.logged)/float64(is.moved))
}

// TestOverwrite overwrites a working set of 20 MiB ten times, at random and unaligned; with
// WEIR_SOAK=1 one of 200 MiB, and with WEIR_SOAK=full one of 2 GiB, which takes 14 GB of memory.
// Afterwards stores have little more than what lives. All bounds and rules are those of 2 GiB,
// divided by 100, 10 or 1. How fast clients are without compaction is compared with 200 MiB only.
func TestOverwrite(t *testing.T) {
	size, part, without := 20<<20, int64(100), 1
	limit := int64(8 << 30)
	switch os.Getenv("WEIR_SOAK") {
	case "1":
		size, part = 200<<20, 10
	case "full":
		size, part, without, limit = 2<<30, 1, 100, 3<<30
	}
	t.Log("without compaction")
	plain := &overwriting{cluster: newCluster(t), part: part}
	plain.due = checkpoints.Due{Bytes: 1 << 50, Shrunk: 1 << 50, Segments: 1 << 40, Grace: time.Hour}
	plain.limit = 8 << 30
	plain.begin(size / without)
	slow := plain.overwrite(10*size/without) * time.Duration(without)
	logged := plain.logged * int64(without)
	for _, s := range plain.order {
		plain.stop(s)
	}

	o := &overwriting{cluster: newCluster(t), part: part}
	o.due, o.limit = o.rule(), limit
	o.begin(size)
	with := o.overwrite(10 * size)
	live := int64(size)
	speed := slow.Seconds() / with.Seconds()
	t.Logf("%d bytes overwritten in %v without compaction, %v with: %.2f x the throughput; the store had %.2f x live then, %.2f at most",
		10*size, slow, with, speed, float64(o.stored("a"))/float64(live), float64(o.most)/float64(live))
	t.Log("then ", o.compacted(logged))
	began := time.Now()
	slack := (256 << 20) / part
	for _, site := range []string{"a", "b"} {
		var is space.Store
		o.until("space comes back at "+site, func() error {
			o.turn((2 << 20) / part)
			is = *o.spaceAt(site, o.id).Store
			if is.Bytes > live*13/10+slack {
				return fmt.Errorf("the store has %d bytes, %d are live: %+v", is.Bytes, live, is)
			}
			return nil
		})
		t.Logf("%s: stored %d: %.3f x live, %.3f without the slack of %d; blocks that live are %.3f x live; %+v", site, is.Bytes,
			float64(is.Bytes)/float64(live), float64(is.Bytes-slack)/float64(live), slack,
			float64(is.Of(space.Live).Bytes)/float64(live), is.Parts)
	}
	is := o.compacted(logged)
	t.Logf("settled in %v: %v", time.Since(began), is)
	if is.packs == 0 || is.logged*50 > int64(is.moved) {
		t.Errorf("too little is moved, or that takes too much: %v", is)
	}
	if part == 10 && speed < 0.8 {
		t.Errorf("clients have %.2f x the throughput", speed)
	}
	for i, want := range o.model {
		for _, site := range []string{"a", "b"} {
			r := o.router(site, o.id)
			p := make([]byte, len(want))
			for off := 0; off < len(p); {
				n, _, err := r.Read(t.Context(), volume.Request{}, o.files[i], uint64(off), p[off:min(len(p), off+1<<20)])
				if err != nil || n == 0 {
					t.Fatalf("file %d at %s from byte %d: %d bytes, %v", i, site, off, n, err)
				}
				off += n
			}
			if !bytes.Equal(p, want) {
				t.Fatalf("file %d has other bytes at %s", i, site)
			}
		}
	}

	// All goes.
	cl := &client{name: "remove"}
	for i := range o.files {
		if _, err := o.router("a", o.id).Remove(t.Context(), cl.next(), volume.Root, fmt.Sprint("file ", i)); err != nil {
			t.Fatal(err)
		}
	}
	began = time.Now()
	o.until("the stores are nearly empty", func() error {
		o.turn(100)
		for _, s := range []string{"a", "b"} {
			if n := o.stored(s); n > (64<<20)/part {
				return fmt.Errorf("%s has %d bytes", s, n)
			}
		}
		return nil
	})
	t.Logf("after everything was deleted stores have %d and %d bytes, in %v", o.stored("a"), o.stored("b"), time.Since(began))
	if _, err := o.router("b", o.id).Lookup(t.Context(), volume.Request{}, volume.Root, "file 0"); !errors.Is(err, volume.ErrNotExist) {
		t.Error(err)
	}
}
