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
	p.bad, p.retry = []uint64{3}, begun.Add(retryAfter)
	if _, ok := p.take(begun); ok {
		t.Fatal("a damaged one is read again at once")
	}
	if seq, ok := p.take(begun.Add(retryAfter)); !ok || seq != 3 {
		t.Fatalf("read again: %d, %t", seq, ok)
	}
}
