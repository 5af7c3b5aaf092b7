// SPDX-License-Identifier: Apache-2.0

package scrub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation/upkeep"
)

// elsewhere is a store in memory.
type elsewhere map[string][]byte

func (e elsewhere) String() string { return "elsewhere" }

func (e elsewhere) ReadSegment(_ context.Context, name string, off int64, p []byte) error {
	b, ok := e[name]
	if !ok || int64(len(b)) < off+int64(len(p)) {
		return errors.New("it is not there")
	}
	copy(p, b[off:])
	return nil
}

// TestScrub: damage in a segment that nobody reads is found and healed, with and without the key;
// without another copy it is told. What was evicted stays where it is.
func TestScrub(t *testing.T) {
	for _, blind := range []bool{false, true} {
		disk := crashfs.NewDisk(crashfs.Config{Gateway: "g", Limit: 1 << 30, Rand: mathrand.New(mathrand.NewPCG(1, 2))})
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		pool, err := disk.Open()
		ok(err)
		dir, err := pool.Volume("v")
		ok(err)
		store := elsewhere{}
		l, err := log.Open(log.Config{Dir: dir, Room: pool.Room(), Volume: segment.VolumeID{1}, DataKey: segment.DataKey{2},
			Rand: rand.Reader, Now: time.Now, SegmentSize: 2000, Sources: func() []log.Source { return []log.Source{store} }})
		ok(err)
		_, err = l.BeginEpoch(1)
		ok(err)
		for i := range 40 {
			blocks := []segment.Block{{Raw: make([]byte, 300)}}
			_, _ = rand.Read(blocks[0].Raw) // never fails
			segment.PackAll(blocks, segment.None)
			_, err := l.Append(&segment.Record{Time: int64(i), Blocks: blocks,
				Ops: []segment.Op{{Kind: segment.SetBlock, Key: []byte("key"), Value: []byte("v")}}})
			ok(err)
		}
		ok(l.Roll())
		ok(l.Wait(t.Context(), l.End()))
		all := segments(l)
		if len(all) < 5 {
			t.Fatalf("%d segments", len(all))
		}
		want := func(seq uint64, result string) {
			t.Helper()
			if got, err := scrub(t.Context(), l, blind, seq); got != result {
				t.Errorf("blind %t, segment %d is %q (%v), want %q", blind, seq, got, err, result)
			}
		}
		for _, seq := range all {
			want(seq, Whole)
			info, _ := l.Segment(seq)
			b := make([]byte, info.Len)
			_, err := l.ReadSegmentFile(seq, b, 0)
			ok(err)
			store[info.Name] = b
		}
		damage := func(seq uint64) {
			f, err := dir.Open(fmt.Sprintf("%016x.seg", seq))
			ok(err)
			_, err = f.WriteAt([]byte{1, 2, 3}, 700)
			ok(errors.Join(err, f.Close()))
		}
		damage(all[1])
		want(all[1], Healed)
		want(all[1], Whole)
		info, _ := l.Segment(all[2])
		whole := store[info.Name]
		delete(store, info.Name)
		damage(all[2])
		want(all[2], Damaged)
		store[info.Name] = whole
		want(all[2], Healed)
		gone, _ := l.Segment(all[3])
		ok(l.MarkStored(gone.Name))
		ok(l.Evict(all[3]))
		if slices.Contains(segments(l), all[3]) {
			t.Error("what was evicted is to be read again")
		}
		want(all[3], Whole)
		if now, _ := l.Segment(all[3]); now.Local {
			t.Error("what was evicted is back")
		}
		ok(l.Drop(all[3]))
		want(all[2], Whole) // the one after it was condemned
		ok(l.Close())
	}
}

// TestPass: each segment is read once, from anywhere on, and what is damaged again after a while.
func TestPass(t *testing.T) {
	s := New(Config{Rand: rand.Reader})
	begun := time.Now()
	p := pass{left: []uint64{1, 2, 3, 4, 5}}
	s.rotate(p.left)
	first := p.left[0]
	for i := range uint64(5) {
		if seq, ok := p.take(begun); !ok || seq != (first-1+i)%5+1 {
			t.Fatalf("segment %d is read after %d others, begun with %d", seq, i, first)
		}
	}
	if seq, ok := p.take(begun); ok {
		t.Fatalf("segment %d is read twice", seq)
	}
	p.was(begun, upkeep.Scrub{}, 3, 1, Damaged)
	if _, ok := p.take(begun); ok {
		t.Fatal("a damaged one is read again at once")
	}
	if seq, ok := p.take(begun.Add(retryAfter)); !ok || seq != 3 {
		t.Fatalf("read again: %d, %t", seq, ok)
	}
}

// TestScrubByPolicy: how often a copy is read, and how fast, is as its owner says now. Damage is
// told until it was read again and is not there, also in the pass after it.
func TestScrubByPolicy(t *testing.T) {
	begun := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	here := []uint64{1, 2, 3}
	var p pass
	begin := func(after, every time.Duration) bool {
		return p.begin(begun.Add(after), every, func() []uint64 { return slices.Clone(here) })
	}
	if !begin(0, time.Hour) || begin(0, time.Hour) {
		t.Fatal("a pass begins once")
	}
	read := func(after time.Duration, says upkeep.Scrub, result string) (seq uint64, news bool) {
		t.Helper()
		seq, ok := p.take(begun.Add(after))
		if !ok {
			t.Fatal("nothing is left")
		}
		return seq, p.was(begun.Add(after), says, seq, 64<<20, result)
	}
	if _, news := read(0, upkeep.Scrub{}, Whole); news || p.next.Sub(begun) != 3200*time.Millisecond {
		t.Errorf("64 MiB by default: the next one %v later", p.next.Sub(begun))
	}
	if seq, news := read(0, upkeep.Scrub{Rate: 1 << 20}, Damaged); seq != 2 || !news || p.next.Sub(begun) != 64*time.Second {
		t.Errorf("64 MiB at 1 MiB/s: the next one %v later", p.next.Sub(begun))
	}
	if begin(2*time.Hour, time.Hour) {
		t.Error("another pass begins before the end of this one")
	}
	read(0, upkeep.Scrub{}, Healed)
	p.due = false
	if seq, ok := p.take(begun.Add(time.Minute)); ok || p.read != 3 || p.bytes != 3*64<<20 {
		t.Fatalf("segment %d, after %d segments and %d bytes", seq, p.read, p.bytes)
	}
	if begin(2*time.Hour, 3*time.Hour) {
		t.Error("the next pass begins early")
	}
	if !begin(2*time.Hour, 90*time.Minute) || !slices.Equal(p.bad, []uint64{2}) {
		t.Errorf("the owner wants the next pass, and %d are damaged", p.bad)
	}
	if seq, news := read(2*time.Hour, upkeep.Scrub{}, Whole); seq != 1 || news {
		t.Errorf("segment %d, again: news %t", seq, news)
	}
	if seq, news := read(2*time.Hour, upkeep.Scrub{}, Healed); seq != 2 || !news || len(p.bad) > 0 {
		t.Errorf("segment %d is healed: news %t, damaged %d", seq, news, p.bad)
	}
	p.bad, p.left = []uint64{3}, nil
	if p.was(begun, upkeep.Scrub{}, 3, 0, ""); len(p.bad) > 0 {
		t.Error("what is not here any more is damaged")
	}

	p.bad, p.left, p.due = []uint64{2}, nil, false
	here = []uint64{3} // what is gone is not damaged any more
	if !begin(9*time.Hour, time.Hour) || len(p.bad) > 0 {
		t.Errorf("damaged: %d", p.bad)
	}
}
