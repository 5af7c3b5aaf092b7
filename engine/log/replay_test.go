// SPDX-License-Identifier: Apache-2.0

package log

import (
	"crypto/rand"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/dir"
	"github.com/weir-storage/weir/engine/segment"
)

// wide makes a record with blocks that do not compress.
func wide(id, blocks, size int) *segment.Record {
	r := rec(id)
	r.Blocks, r.Ops = nil, r.Ops[:1]
	for i := range blocks {
		raw := make([]byte, size)
		_, _ = rand.Read(raw) // never fails
		r.Blocks = append(r.Blocks, segment.Block{Raw: raw})
		r.Ops = append(r.Ops, segment.Op{Kind: segment.SetBlock, Key: []byte("e"), Block: i})
	}
	return r
}

// TestReplayReadsOutlines: a replay returns all records as they are, and reads little of their
// blocks. Damage in a block does not stop it; damage in a record does.
func TestReplayReadsOutlines(t *testing.T) {
	s := newSetup(1)
	s.size = 1 << 20
	var read atomic.Int64
	s.wrap = func(d cachepool.Dir) cachepool.Dir { return countReads{d, &read} }
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	var want []Entry
	for i := range 60 {
		r := wide(i, 1+i%5, segment.MaxBlock)
		if i%7 == 0 {
			r = wide(i, 2, 3) // small ones too
		}
		end, err := l.Append(r)
		must(t, err)
		want = append(want, Entry{End: end, Record: r})
	}
	must(t, l.Wait(t.Context(), l.End()))
	l = s.restart(t)
	size := l.Distance(Position{}, l.End())
	read.Store(0)
	var got []Entry
	must(t, l.Replay(t.Context(), Position{}, func(e Entry) error {
		if e.Record != nil {
			got = append(got, e)
		}
		return nil
	}))
	if n := read.Load(); n > size/4 {
		t.Errorf("%d bytes of %d were read", n, size)
	}
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i, e := range got {
		w := want[i]
		same := slices.EqualFunc(e.Record.Blocks, w.Record.Blocks, func(a, b segment.Block) bool {
			return a.Ref == b.Ref && a.Size == len(b.Raw)
		})
		if e.End != w.End || e.Record.Time != w.Record.Time || !same || len(e.Record.Ops) != len(w.Record.Ops) {
			t.Fatalf("record %d is %+v at %v", i, e.Record, e.End)
		}
	}

	// A position in the middle of a segment, and an end that is not the log's.
	from := want[7].End
	n := 0
	must(t, l.Replay(t.Context(), from, func(e Entry) error {
		if e.Record != nil {
			n++
		}
		return nil
	}))
	if n != len(want)-8 {
		t.Errorf("%d records after %v", n, from)
	}

	ref := want[20].Record.Blocks[0].Ref
	for at, ok := range map[uint64]bool{ref.Off + 9: true, ref.Off - 9: false, want[20].End.Off - 3: false} {
		s.disk.Kill()
		s.disk.Damage(testDir, fileName(ref.Seq), func(b []byte) []byte { return flip(b, int(at)) })
		l = s.mustOpen(t)
		must(t, l.Recovered().Doubt)
		err := l.Replay(t.Context(), Position{}, func(Entry) error { return nil })
		if ok {
			must(t, err)
		} else {
			wantErr(t, err, ErrUnreadable)
		}
		if at > ref.Off && at < ref.Off+uint64(ref.Len) {
			_, err = readBlock(t.Context(), l, ref)
			wantErr(t, err, ErrUnreadable)
		}
		s.disk.Kill()
		s.disk.Damage(testDir, fileName(ref.Seq), func(b []byte) []byte { return flip(b, int(at)) })
	}
}

// BenchmarkReplay replays a log of 256 MiB in records of 1 MiB and of one block.
func BenchmarkReplay(b *testing.B) {
	for name, blocks := range map[string]int{"1MiB": 16, "64KiB": 1} {
		b.Run(name, func(b *testing.B) {
			pool, err := dir.Open(dir.Config{Path: b.TempDir(), Gateway: "gw", Limit: 1 << 40, Random: rand.Reader})
			must(b, err)
			d, err := pool.Volume("v")
			must(b, err)
			l, err := Open(Config{Dir: d, Room: pool.Room(), Volume: testVolume, DataKey: testKey, Rand: rand.Reader})
			must(b, err)
			_, err = l.BeginEpoch(1)
			must(b, err)
			r := wide(1, blocks, segment.MaxBlock)
			for range 256 << 20 / (blocks * segment.MaxBlock) {
				_, err := l.Append(r)
				must(b, err)
			}
			b.SetBytes(l.Distance(Position{}, l.End()))
			for b.Loop() {
				must(b, l.Replay(b.Context(), Position{}, func(Entry) error { return nil }))
			}
			must(b, l.Close())
			must(b, pool.Close())
		})
	}
}
