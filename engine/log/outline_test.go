// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/engine/segment"
)

// home is another gateway's log as a source, which is asked by names.
type home struct{ l *Log }

func (h home) String() string { return "home" }

func (h home) ReadSegment(_ context.Context, name string, off int64, p []byte) error {
	s, ok := h.l.Find(name)
	if !ok {
		return fmt.Errorf("no segment %s", name)
	}
	_, err := h.l.ReadSegmentFile(s.Seq, p, off)
	return err
}

// outlined is an outline of a log on a disk of its own.
type outlined struct {
	disk *crashfs.Disk
	from *Log
	next Position
}

func (o *outlined) config(t testing.TB) Config {
	t.Helper()
	o.disk.Kill()
	pool, err := o.disk.Open()
	must(t, err)
	dir, err := pool.Volume(testDir)
	must(t, err)
	return Config{Dir: dir, Room: pool.Room(), Volume: testVolume, DataKey: testKey, Rand: salts, Now: time.Now,
		Sources: func() []Source { return []Source{home{o.from}} }, KnownApplied: o.next}
}

func (o *outlined) open(t testing.TB) *Log {
	t.Helper()
	l, err := OpenOutline(o.config(t))
	must(t, err)
	return l
}

// follow takes in what the log has after next up to a position, a few frames at a time.
func (o *outlined) follow(t testing.TB, l *Log, upTo Position, max int) (entries []Entry) {
	t.Helper()
	for o.next.Less(upTo) {
		b, _, err := o.from.Read(t.Context(), o.next, max)
		must(t, err)
		frames, end, err := Frames(b, o.next, upTo)
		must(t, err)
		got, next, err := l.Outline(o.next, frames)
		must(t, err)
		if next != end {
			t.Fatalf("it goes to %v, the frames to %v", next, end)
		}
		entries, o.next = append(entries, got...), next
	}
	return entries
}

// An outline tells what the log tells, and its blocks are read from there, sealed segments and the
// last one too. It goes on where it was after a restart, and is never appended to.
func TestOutline(t *testing.T) {
	s := newSetup(1)
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	var refs []segment.BlockRef
	var raws [][]byte
	o := &outlined{disk: newDisk(2, 1<<20), from: l}
	out := o.open(t)
	var got []string
	for id := range 75 {
		r := rec(id)
		end, err := l.Append(r)
		must(t, err)
		for _, b := range r.Blocks {
			refs, raws = append(refs, b.Ref), append(raws, b.Raw)
		}
		if id%5 == 4 {
			for _, e := range o.follow(t, out, end, 1+500*(id%3)) {
				got = append(got, line(e))
			}
			wantBlocks(t, out, refs, raws)
		}
		if id%20 == 19 {
			must(t, out.Close())
			must(t, out.Close())
			out = o.open(t)
			if out.End() != o.next {
				t.Fatalf("it ends at %v, was at %v", out.End(), o.next)
			}
			wantBlocks(t, out, refs, raws)
		}
	}
	if want := lines(t, l, Position{}); !slices.Equal(got, want) {
		t.Fatalf("entries are\n%v\nwant\n%v", got, want)
	}
	if out.LocalBytes() != 0 {
		t.Error("it has files of segments")
	}
	if _, err := out.Append(rec(1)); !errors.Is(err, ErrNotLocal) {
		t.Errorf("append: %v", err)
	}
	if _, err := out.Ingest(o.next, nil); !errors.Is(err, ErrNotLocal) {
		t.Errorf("ingest: %v", err)
	}
	// What it knows comes again: it is the same. From another log it is refused.
	o.next = Position{}
	if again := o.follow(t, out, l.End(), 4000); len(again) != len(got) {
		t.Errorf("%d entries the second time, not %d", len(again), len(got))
	}
	other := newSetup(9).mustOpen(t)
	_, err = other.BeginEpoch(1)
	must(t, err)
	appendSync(t, other, 1, 2, 3)
	b, _, err := other.Read(t.Context(), Position{}, 1)
	must(t, err)
	frames, _, err := Frames(b, Position{}, other.End())
	must(t, err)
	if _, _, err := out.Outline(Position{}, frames); !errors.Is(err, ErrDiverged) {
		t.Errorf("a header of another log: %v", err)
	}
	b, _, err = other.Read(t.Context(), Position{Seq: 1, Off: segment.HeaderSize}, 1)
	must(t, err)
	frames, _, err = Frames(b, Position{Seq: 1, Off: segment.HeaderSize}, other.End())
	must(t, err)
	if _, _, err := out.Outline(Position{Seq: 1, Off: segment.HeaderSize}, frames); !errors.Is(err, segment.ErrCorrupt) {
		t.Errorf("a record of another log: %v", err)
	}
	if _, ok := out.Find(segment.OpenName(testVolume, 1, [32]byte{1})); ok {
		t.Error("a segment with another salt is found")
	}
}

// A crash at any step loses at most headers that nobody was told of. What the metadata need and is
// not there is told, and never guessed.
func TestOutlineSurvivesCrashes(t *testing.T) {
	s := newSetup(3)
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	for id := range 40 {
		_, err := l.Append(rec(id))
		must(t, err)
	}
	for step := 1; ; step++ {
		o := &outlined{disk: newDisk(uint64(step), 1<<20), from: l}
		cfg := o.config(t)
		o.disk.CrashAt(step)
		var told Position
		err := func() error {
			out, err := OpenOutline(cfg)
			if err != nil {
				return err
			}
			for told.Less(l.End()) {
				b, _, err := l.Read(t.Context(), told, 1)
				must(t, err)
				frames, _, err := Frames(b, told, l.End())
				must(t, err)
				_, next, err := out.Outline(told, frames)
				if err != nil {
					return err
				}
				told = next
			}
			return nil
		}()
		if err == nil {
			if step < 10 {
				t.Fatalf("only %d steps", step)
			}
			return
		}
		o.next = told
		again, err := OpenOutline(o.config(t))
		if err != nil || !again.Has(told) {
			t.Fatalf("step %d: it had %v: %v", step, told, err)
		}
		must(t, again.Close())
		o.next = Position{Seq: told.Seq + 2, Off: 500}
		if _, err := OpenOutline(o.config(t)); !errors.Is(err, ErrDiverged) {
			t.Fatalf("step %d: metadata that are ahead: %v", step, err)
		}
	}
}

// A file that is damaged, or torn, counts up to there.
func TestOutlineIsDamaged(t *testing.T) {
	s := newSetup(4)
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	for id := range 30 {
		_, err := l.Append(rec(id))
		must(t, err)
	}
	o := &outlined{disk: newDisk(5, 1<<20), from: l}
	out := o.open(t)
	o.follow(t, out, l.End(), 4000)
	must(t, out.Close())
	end := o.next
	for at := range int(l.End().Seq) * segment.HeaderSize {
		o.disk.Damage(testDir, outlineName, func(b []byte) []byte { b[at] ^= 1; return b })
		o.next = Position{}
		bad := o.open(t)
		if want := uint64(at) / segment.HeaderSize; bad.End().Seq != want {
			t.Fatalf("with byte %d changed it has %d segments, not %d", at, bad.End().Seq, want)
		}
		must(t, bad.Close())
		o.next = end
		if _, err := OpenOutline(o.config(t)); !errors.Is(err, ErrDiverged) {
			t.Fatalf("with byte %d changed and all applied: %v", at, err)
		}
		o.disk.Damage(testDir, outlineName, func(b []byte) []byte { b[at] ^= 1; return b })
	}
}
