// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
)

// stored makes a log of some closed segments, all uploaded to both sources. It returns the
// references of all blocks in them, and the blocks' data.
func stored(t testing.TB, s *setup) (l *Log, refs []segment.BlockRef, raws [][]byte, near, far *source) {
	t.Helper()
	near, far = newSource("near"), newSource("far")
	s.sources = []Source{near, far}
	s.logger = &bytes.Buffer{}
	l = s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	for id := range 75 {
		r := rec(id)
		_, err := l.Append(r)
		must(t, err)
		for _, b := range r.Blocks {
			refs, raws = append(refs, b.Ref), append(raws, b.Raw)
		}
	}
	must(t, l.Roll())
	for _, seg := range l.Segments() {
		must(t, near.upload(l, seg.Seq))
		must(t, far.upload(l, seg.Seq))
	}
	if len(l.Segments()) < 3 {
		t.Fatal("want several segments")
	}
	return l, refs, raws, near, far
}

func evictAll(t testing.TB, l *Log) {
	t.Helper()
	for _, s := range l.Segments() {
		must(t, l.Evict(s.Seq))
	}
}

func wantBlocks(t testing.TB, l *Log, refs []segment.BlockRef, raws [][]byte) {
	t.Helper()
	got, err := l.ReadBlocks(t.Context(), refs)
	must(t, err)
	for i := range refs {
		if !bytes.Equal(got[i], raws[i]) {
			t.Fatalf("block %d differs", i)
		}
		one, err := readBlock(t.Context(), l, refs[i])
		if err != nil || !bytes.Equal(one, raws[i]) {
			t.Fatalf("block %d: %v", i, err)
		}
	}
}

func TestEvictedIsReadFromSources(t *testing.T) {
	s := newSetup(1)
	l, refs, raws, near, far := stored(t, &s)
	wantBlocks(t, l, refs, raws)
	if near.reads+far.reads != 0 {
		t.Fatal("a source was asked for what is here")
	}
	before := lines(t, l, Position{})
	frames := allFrames(t, l, 1000)
	evictAll(t, l)
	evictAll(t, l) // evicted already: no error
	l.trim()
	near.reads = 0
	got, err := l.ReadBlocks(t.Context(), refs)
	must(t, err)
	if len(got) != len(refs) || near.reads != len(l.Segments()) || far.reads != 0 {
		t.Fatalf("%d and %d reads for %d segments", near.reads, far.reads, len(l.Segments()))
	}
	wantBlocks(t, l, refs, raws)
	// Blocks may be asked for in any order, and twice.
	slices.Reverse(refs)
	slices.Reverse(raws)
	wantBlocks(t, l, append(refs, refs...), append(raws, raws...))
	check := func(l *Log) {
		t.Helper()
		wantLines(t, l, before...)
		if !bytes.Equal(allFrames(t, l, 300), frames) {
			t.Fatal("frames differ")
		}
	}
	check(l)
	segs := l.Segments()
	l = s.restart(t)
	if l.Recovered().Doubt != nil {
		t.Fatal(l.Recovered().Doubt)
	}
	check(l)
	again := l.Segments() // the last one holds only a header, and is not closed
	if !slices.Equal(again, segs) || again[0].Local || !again[0].Uploaded {
		t.Fatalf("%+v\n%+v", again, segs)
	}
	_, err = l.ReadSegmentFile(1, make([]byte, 1), 0)
	wantErr(t, err, ErrNotLocal)
	// The log continues after what was evicted.
	_, err = l.BeginEpoch(2)
	must(t, err)
	appendSync(t, l, 50)
	wantLines(t, l, append(before, "segment "+itoa(l.End().Seq)+" epoch 2", "record 50")...)
}

func itoa(n uint64) string { return string(rune('0' + n)) }

func TestBadCopies(t *testing.T) {
	files := func(s setup, l *Log) {
		for _, seg := range l.Segments() {
			s.disk.Damage(testDir, fileName(seg.Seq), func(b []byte) []byte {
				for i := segment.HeaderSize; i < len(b); i += 10 {
					b[i] ^= 1
				}
				return b
			})
		}
	}
	t.Run("file", func(t *testing.T) {
		s := newSetup(2)
		l, refs, raws, near, _ := stored(t, &s)
		before := lines(t, l, Position{})
		files(s, l)
		l.trim()
		wantBlocks(t, l, refs, raws)
		wantLines(t, l, before...)
		if near.reads == 0 {
			t.Fatal("the source was not used")
		}
		if out := s.logger.String(); !strings.Contains(out, "segment=1") || !strings.Contains(out, l.path(1)) {
			t.Fatalf("protocol-19: not logged with segment and path: %s", out)
		}
	})
	t.Run("file and near", func(t *testing.T) {
		s := newSetup(3)
		l, refs, raws, near, far := stored(t, &s)
		files(s, l)
		for i := 140; i < 1400; i += 8 {
			near.damage(i)
		}
		wantBlocks(t, l, refs, raws)
		if far.reads == 0 {
			t.Fatal("the second source was not used")
		}
		evictAll(t, l)
		wantBlocks(t, l, refs, raws)
		l.trim()
		if got := len(lines(t, l, Position{})); got == 0 {
			t.Fatal("no lines")
		}
	})
	t.Run("each source half", func(t *testing.T) {
		s := newSetup(4)
		l, refs, raws, near, far := stored(t, &s)
		evictAll(t, l)
		// Blocks 0 and 1 lie in one run; each source has one of them.
		near.damage(int(refs[0].Off))
		far.damage(int(refs[1].Off))
		wantBlocks(t, l, refs[:2], raws[:2])
	})
	t.Run("all", func(t *testing.T) {
		s := newSetup(5)
		l, refs, _, near, far := stored(t, &s)
		files(s, l)
		near.damage(int(refs[0].Off))
		far.objects = nil
		l.trim()
		_, err := readBlock(t.Context(), l, refs[0])
		wantErr(t, err, ErrUnreadable)
		wantErr(t, err, segment.ErrCorrupt)
		for _, want := range []string{l.path(1), "near", "far"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not name %s", err, want)
			}
		}
		near.objects = nil
		_, _, err = l.Read(t.Context(), Position{Seq: 1, Off: segment.HeaderSize}, 1)
		wantErr(t, err, ErrUnreadable)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = readBlock(ctx, l, refs[0])
		wantErr(t, err, context.Canceled)
	})
	t.Run("forged header", func(t *testing.T) {
		s := newSetup(6)
		l, _, _, near, far := stored(t, &s)
		before := lines(t, l, Position{})
		evictAll(t, l)
		l.trim()
		// This header verifies by itself, but is not the one that the segment table knows.
		for name, b := range near.objects {
			h, err := segment.DecodeHeader(b)
			must(t, err)
			h.Epoch++
			near.objects[name] = append(segment.AppendHeader(nil, h), b[segment.HeaderSize:]...)
		}
		wantLines(t, l, before...)
		if far.reads == 0 {
			t.Fatal("the forged copy was used")
		}
	})
}

func TestBadReferences(t *testing.T) {
	s := newSetup(7)
	l, refs, _, _, _ := stored(t, &s)
	good := refs[0]
	for name, change := range map[string]func(*segment.BlockRef){
		"no segment": func(r *segment.BlockRef) { r.Seq = 99 },
		"zero":       func(r *segment.BlockRef) { *r = segment.BlockRef{} },
		"offset":     func(r *segment.BlockRef) { r.Off++ },
		"header":     func(r *segment.BlockRef) { r.Off = 0 },
		"far":        func(r *segment.BlockRef) { r.Off = 1 << 62 },
		"wraps":      func(r *segment.BlockRef) { r.Off = ^uint64(0) - 1 },
		"long":       func(r *segment.BlockRef) { r.Len = 1 << 31 },
		"short":      func(r *segment.BlockRef) { r.Len = 3 },
		"counter":    func(r *segment.BlockRef) { r.Counter++ },
		"other seq":  func(r *segment.BlockRef) { r.Seq, r.Counter = r.Seq+1, 7777 },
	} {
		ref := good
		change(&ref)
		if raw, err := readBlock(t.Context(), l, ref); err == nil {
			t.Errorf("%s: read %d bytes", name, len(raw))
		}
	}
}

func TestEvictRefuses(t *testing.T) {
	s := newSetup(8)
	store := newSource("store")
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	appendSync(t, l, 1)
	wantErr(t, l.Evict(1), ErrNotClosed)
	wantErr(t, l.MarkStored(nameOf(t, l, 1)), ErrNotClosed)
	wantErr(t, l.Heal(t.Context(), 1), ErrNotClosed)
	_, err = l.closedSegment(1)
	wantErr(t, err, ErrNotClosed)
	must(t, l.Roll())
	wantErr(t, l.Evict(1), ErrNotUploaded)
	wantErr(t, l.Evict(9), ErrNotClosed)
	closed, err := l.closedSegment(1)
	must(t, err)
	f, err := l.files.acquire(1)
	must(t, err)
	must(t, store.upload(l, 1))
	must(t, l.MarkStored(nameOf(t, l, 1)))
	must(t, l.Evict(1))
	h, err := rehash(io.NewSectionReader(f, 0, int64(closed.len)), closed.len) // still readable
	if err != nil || h != closed.hash {
		t.Fatal(err)
	}
	l.files.release(f)

	// An upload that a truncation overtook does not count.
	appendSync(t, l, 2)
	must(t, l.Roll())
	old := l.Segments()[1]
	must(t, l.Truncate(Position{Seq: old.Prev.Seq, Off: old.Prev.Len}))
	_, err = l.BeginEpoch(2)
	must(t, err)
	appendSync(t, l, 3)
	must(t, l.Roll())
	wantErr(t, l.MarkStored(old.Name), ErrNotClosed)
	if l.MarkStored("x") == nil {
		t.Fatal("took a name that is none")
	}
	must(t, l.MarkStored(l.Segments()[1].Name))
}

func TestHeal(t *testing.T) {
	s := newSetup(9)
	l, refs, raws, near, far := stored(t, &s)
	must(t, l.Heal(t.Context(), 1)) // nothing wrong
	if near.reads != 0 {
		t.Fatal("fetched what is good")
	}
	for _, spoil := range []func([]byte) []byte{
		func(b []byte) []byte { b[200] ^= 1; return b },
		func(b []byte) []byte { return b[:len(b)-1] },
		func(b []byte) []byte { return append(b, 0) },
	} {
		s.disk.Damage(testDir, fileName(1), spoil)
		near.objects[l.Segments()[0].Name][300] ^= 1
		must(t, l.Heal(t.Context(), 1)) // far has it
		near.objects[l.Segments()[0].Name][300] ^= 1
		near.reads, far.reads = 0, 0
		wantBlocks(t, l, refs, raws)
		must(t, l.Heal(t.Context(), 1))
		if near.reads+far.reads != 0 {
			t.Fatal("not healed")
		}
	}
	evictAll(t, l)
	wantErr(t, l.Truncate(Position{Seq: 1, Off: segment.HeaderSize}), ErrNotLocal)
	must(t, l.Heal(t.Context(), 1))
	if segs := l.Segments(); !segs[0].Local || segs[1].Local {
		t.Fatalf("%+v", segs)
	}
	l = s.restart(t)
	if segs := l.Segments(); !segs[0].Local || segs[1].Local {
		t.Fatalf("%+v", segs)
	}
	near.objects, far.objects = nil, nil
	wantErr(t, l.Heal(t.Context(), 2), ErrUnreadable)
	must(t, l.Truncate(Position{Seq: 1, Off: segment.HeaderSize}))
	wantLines(t, l, "segment 1 epoch 1")
}

func TestAdopt(t *testing.T) {
	s := newSetup(10)
	l, refs, raws, _, _ := stored(t, &s)
	segs := l.Segments()
	for _, skip := range []int{0, 1} { // a whole log, and one whose start is lost
		n := setup{disk: newDisk(11, 1<<30), size: 2000, sources: s.sources}
		a := n.mustOpen(t)
		must(t, a.Adopt(segs[skip:]))
		check := func() {
			t.Helper()
			if a.End() != segs[len(segs)-1:][0].end() || a.Durable() != a.End() {
				t.Fatal(a.End())
			}
			from := Position{}
			if skip > 0 {
				from = segs[0].end()
				_, _, err := a.Read(t.Context(), Position{}, 1)
				wantErr(t, err, ErrNotLocal)
			}
			var want []string
			must(t, l.Replay(t.Context(), from, func(e Entry) error { want = append(want, line(e)); return nil }))
			got := lines(t, a, from)
			if !slices.Equal(got, want[:len(want)-1]) { // without the last header
				t.Fatalf("%v\n%v", got, want)
			}
			last := len(refs) - 1
			wantBlocks(t, a, refs[last:], raws[last:])
		}
		check()
		a = n.restart(t)
		if a.Recovered().Doubt != nil {
			t.Fatal(a.Recovered().Doubt)
		}
		check()
		if err := a.Adopt(segs); err == nil {
			t.Fatal("adopted into a log that is not empty")
		}
		pull(t, a, l, 1000)
		_, err := a.BeginEpoch(7)
		must(t, err)
		appendSync(t, a, 70)
		a = n.restart(t)
		if a.Recovered().Doubt != nil || lastEpoch(a) != 7 {
			t.Fatal(a.Recovered().Doubt)
		}
	}
	a := newSetup(12).mustOpen(t)
	if err := a.Adopt([]SegmentInfo{segs[0], segs[2]}); err == nil {
		t.Fatal("adopted a hole")
	}
}

// TestAbsent: a copy that began with a checkpoint lacks segments until it fetched them or found
// them in its store, and knows so after each restart.
func TestAbsent(t *testing.T) {
	s := newSetup(20)
	l, _, _, _, _ := stored(t, &s)
	segs := l.Segments()
	var all uint64
	for i := range segs {
		segs[i].Uploaded = false
		all += segs[i].Len
	}
	n := setup{disk: newDisk(21, 1<<30), size: 2000, sources: s.sources}
	a := n.mustOpen(t)
	must(t, a.Adopt(segs))
	lacks := all
	check := func(missing ...uint64) {
		t.Helper()
		for range 2 {
			var got []uint64
			for after := uint64(0); ; {
				more := a.Absent(after, 1)
				if len(more) == 0 {
					break
				}
				after = more[0].Seq
				got = append(got, after)
			}
			if !slices.Equal(got, missing) || a.AbsentBytes() != lacks || a.Recovered().Doubt != nil {
				t.Fatalf("missing are %d, %d bytes, want %d, %d; %v", got, a.AbsentBytes(), missing, lacks, a.Recovered().Doubt)
			}
			a = n.restart(t)
		}
	}
	want := make([]uint64, len(segs))
	for i := range segs {
		want[i] = segs[i].Seq
	}
	check(want...)
	wantErr(t, a.Evict(1), ErrNotUploaded)
	must(t, a.Heal(t.Context(), 2))
	lacks -= segs[1].Len
	want = slices.Delete(want, 1, 2)
	check(want...)
	must(t, a.MarkStored(segs[0].Name))
	lacks -= segs[0].Len
	check(want[1:]...)
	must(t, a.MarkStored(segs[1].Name))
	must(t, a.Evict(2))
	check(want[1:]...)
	for _, seq := range want[1:] {
		must(t, a.Heal(t.Context(), seq))
	}
	lacks = 0
	check()
	pull(t, a, l, 1000)
	check()
}

// TestDrop: what is dropped is gone from the pool, stays so over restarts, and is known to be gone.
func TestDrop(t *testing.T) {
	s := newSetup(22)
	l, refs, raws, near, far := stored(t, &s)
	segs := l.Segments()
	must(t, l.Evict(segs[1].Seq))
	wantErr(t, l.Drop(l.End().Seq), ErrNotClosed)
	must(t, l.Drop(segs[0].Seq, segs[1].Seq))
	near.reads, far.reads = 0, 0
	l.tail.reset() // memory may have more
	for range 2 {
		if l.Base() != segs[1].end() || l.Recovered().Doubt != nil || l.AbsentBytes() != 0 || l.LocalBytes() == 0 {
			t.Fatal(l.Base(), l.Recovered().Doubt, l.AbsentBytes(), l.LocalBytes())
		}
		_, _, err := l.Read(t.Context(), Position{}, 1)
		wantErr(t, err, ErrDropped)
		_, err = l.ReadBlocks(t.Context(), refs[:1])
		wantErr(t, err, ErrDropped)
		wantErr(t, l.Heal(t.Context(), segs[0].Seq), ErrDropped)
		wantBlocks(t, l, refs[len(refs)-1:], raws[len(raws)-1:])
		must(t, l.Drop(segs[0].Seq))
		if len(l.Absent(0, 10)) > 0 || near.reads+far.reads > 0 {
			t.Fatal("somebody is asked for what is dropped")
		}
		l = s.restart(t)
	}
}

// TestRebase: a log that ends early begins with a checkpoint, and keeps the files that it has.
func TestRebase(t *testing.T) {
	s := newSetup(23)
	l, refs, raws, _, _ := stored(t, &s)
	segs := l.Segments()
	n := setup{disk: newDisk(24, 1<<30), size: 2000, sources: s.sources}
	a := n.mustOpen(t)
	frames := allFrames(t, l, 1<<20)
	_, err := a.Ingest(Position{}, frames[:int(segs[0].Len+segs[1].Len+segs[2].Len/2)])
	if a.End().Seq != segs[2].Seq {
		t.Fatal(a.End(), err)
	}
	must(t, a.Wait(t.Context(), a.End()))
	id := a.Identity()
	must(t, a.Close())
	infos := slices.Clone(segs)
	for i := range infos {
		infos[i].Local, infos[i].Uploaded, infos[i].Dropped = i == 0, false, i == 1
	}
	must(t, Rebase(a.cfg.Dir, infos))
	for range 2 {
		a = n.restart(t)
		if a.End() != segs[len(segs)-1].end() || a.Durable() != a.End() || a.Identity() != id || a.Recovered().Doubt != nil ||
			a.Recovered().Committed != a.End() {
			t.Fatal(a.End(), a.Recovered())
		}
		if got := a.Absent(0, 100); len(got) != len(segs)-2 || got[0].Seq != segs[2].Seq {
			t.Fatalf("%d are absent: %+v", len(got), got)
		}
		wantBlocks(t, a, refs[:1], raws[:1])
	}
	pull(t, a, l, 1000)
	if a.End() != l.End() {
		t.Fatal(a.End(), l.End())
	}
	if err := Rebase(a.cfg.Dir, []SegmentInfo{segs[1]}); err == nil {
		t.Fatal("rebased to a hole")
	}
}

func (s SegmentInfo) end() Position { return Position{Seq: s.Seq, Off: s.Len} }
