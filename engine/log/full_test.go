// SPDX-License-Identifier: Apache-2.0

package log

import (
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/engine/segment"
)

// removal returns a record that removes something.
func removal(id int) *segment.Record {
	return &segment.Record{Time: int64(id), Slot: "s", Ops: []segment.Op{{Kind: segment.Delete, Key: []byte("key")}}}
}

// TestReserveIsForRemovals: small records of other kinds do not use up the room that is reserved
// for removals (protocol-15). This holds at the home and at a follower, whose log must be able to
// follow.
func TestReserveIsForRemovals(t *testing.T) {
	small := setup{disk: newDisk(5, 64<<10), size: 8 << 10}
	home := small.mustOpen(t)
	_, err := home.BeginEpoch(1)
	must(t, err)
	id := 1
	for ; ; id++ {
		if _, err = home.Append(rec(id)); err != nil {
			break
		}
		if id > 10000 {
			t.Fatal("a pool of 64 KiB is never full")
		}
	}
	wantErr(t, err, cachepool.ErrFull)
	for range 3 {
		_, err = home.Append(removal(id))
		must(t, err)
	}
	must(t, home.Roll())
	_, err = home.BeginEpoch(2)
	must(t, err)

	big := newSetup(6)
	source := big.mustOpen(t)
	_, err = source.BeginEpoch(1)
	must(t, err)
	for id := range 1000 {
		_, err := source.Append(&segment.Record{Time: int64(id),
			Ops: []segment.Op{{Kind: segment.Set, Key: []byte("key"), Value: make([]byte, 100)}}})
		must(t, err)
	}
	mark := source.End()
	_, err = source.Append(removal(1))
	must(t, err)
	f := setup{disk: newDisk(7, 64<<10), size: 2000}.mustOpen(t)
	for {
		frames, _, rerr := source.Read(t.Context(), f.End(), 700)
		must(t, rerr)
		got, err := f.Ingest(f.End(), frames)
		if len(got) > 0 && got[len(got)-1].End != f.End() {
			t.Fatalf("entries up to %v, the log ends at %v", got[len(got)-1].End, f.End())
		}
		if err != nil {
			wantErr(t, err, cachepool.ErrFull)
			break
		}
		if f.End() == mark {
			t.Fatal("a pool of 64 KiB took everything")
		}
	}
	_, err = f.BeginEpoch(2) // it may have to take over
	must(t, err)
}

// TestIngestTakesRemovalsInOrder: if not all frames fit, a follower takes those before the first
// one that does not fit.
func TestIngestTakesRemovalsInOrder(t *testing.T) {
	hs := newSetup(8)
	home := hs.mustOpen(t)
	_, err := home.BeginEpoch(1)
	must(t, err)
	start := home.End()
	for range 3 {
		_, err = home.Append(removal(1))
		must(t, err)
	}
	part := home.End()
	_, err = home.Append(rec(3))
	must(t, err)
	_, err = home.Append(removal(4))
	must(t, err)
	frames := allFrames(t, home, 1<<20)
	s := setup{disk: newDisk(9, 64<<10), size: 2000}
	l, pool, err := s.open()
	must(t, err)
	_, err = l.Ingest(Position{}, frames[:segment.HeaderSize])
	must(t, err)
	room := pool.Room().Status()
	must(t, pool.Room().Reserve(room.Limit-room.ReservedForDelete-room.Used))
	got, err := l.Ingest(start, frames[segment.HeaderSize:])
	wantErr(t, err, cachepool.ErrFull)
	if len(got) != 3 || l.End() != part || got[2].End != part {
		t.Fatalf("%d entries, the log ends at %v, want %v", len(got), l.End(), part)
	}
	pool.Room().Release(32 << 10)
	got, err = l.Ingest(start, frames[segment.HeaderSize:])
	must(t, err)
	if len(got) != 2 {
		t.Fatalf("%d entries", len(got))
	}
	same(t, home, l)
}

// TestNewSegmentFails: if there is no file for the next segment for lack of room, nothing changed,
// and the log goes on when there is. Any other error ends the log.
func TestNewSegmentFails(t *testing.T) {
	s := newSetup(10)
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	end := appendSync(t, l, 1)
	s.disk.Fail(crashfs.OpCreate, 1, cachepool.ErrFull)
	wantErr(t, l.Roll(), cachepool.ErrFull)
	if l.End() != end {
		t.Fatalf("the log ends at %v, want %v", l.End(), end)
	}
	must(t, l.Roll())
	appendSync(t, l, 2)
	want := lines(t, l, Position{})
	s.disk.Fail(crashfs.OpCreate, 1, crashfs.ErrIO)
	err = l.Roll()
	wantErr(t, err, ErrPoisoned)
	wantErr(t, err, crashfs.ErrIO)
	l = s.restart(t)
	must(t, l.Recovered().Doubt)
	wantLines(t, l, want...)
}

// TestNewSalt: after NewSalt, nothing is sealed under the salt of before, also in a segment that
// has no records yet, and after a segment could not be begun.
func TestNewSalt(t *testing.T) {
	s := newSetup(11)
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	l.NewSalt()
	s.disk.Fail(crashfs.OpCreate, 1, cachepool.ErrFull)
	_, err = l.Append(rec(1))
	wantErr(t, err, cachepool.ErrFull)
	appendSync(t, l, 1, 2)
	l.NewSalt()
	appendSync(t, l, 4)
	_, err = l.BeginEpoch(2)
	must(t, err)
	want := []string{"segment 1 epoch 1", "segment 2 epoch 1", "record 1", "record 2", "segment 3 epoch 1", "record 4", "segment 4 epoch 2"}
	wantLines(t, l, want...)
	salts := map[[32]byte]bool{}
	for i := range l.segs {
		salts[l.segs[i].header.Salt] = true
	}
	if len(salts) != 4 {
		t.Fatalf("%d salts in 4 segments", len(salts))
	}
	f := newSetup(12).mustOpen(t)
	_, err = f.Ingest(Position{}, allFrames(t, l, 1<<20)) // a segment without records is like any other
	must(t, err)
	same(t, l, f)
	if got := f.Epochs(); len(got) != 2 || !got[0].Same(l.Epochs()[0]) {
		t.Fatalf("epochs %v, want %v", got, l.Epochs())
	}
	l = s.restart(t)
	wantLines(t, l, want...)
}
