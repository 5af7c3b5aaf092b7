// SPDX-License-Identifier: Apache-2.0

package log

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// behind calls f on the disk without the log's knowledge.
func behind(t *testing.T, s setup, f func(cachepool.Dir) error) {
	t.Helper()
	s.disk.Kill()
	pool, err := s.disk.Open()
	must(t, err)
	dir, err := pool.Volume(testDir)
	must(t, err)
	must(t, f(dir))
	must(t, dir.Sync())
	must(t, pool.Close())
}

// anothersSegment returns the file of a segment of another log, with the same key and volume.
func anothersSegment(t *testing.T, seq uint64) []byte {
	t.Helper()
	s := newSetup(2)
	s.size = 200
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	for id := range 5 {
		r := rec(10 + id)
		r.Blocks = append(r.Blocks, segment.Block{Raw: blockOf(id)})
		_, err := l.Append(r)
		must(t, err)
	}
	must(t, l.Wait(t.Context(), l.End()))
	var b []byte
	s.disk.Damage(testDir, fileName(seq), func(have []byte) []byte { b = slices.Clone(have); return have })
	return b
}

func TestDoubt(t *testing.T) {
	damage := func(seq uint64, f func([]byte) []byte) func(*testing.T, setup) {
		return func(t *testing.T, s setup) {
			s.disk.Kill()
			s.disk.Damage(testDir, fileName(seq), f)
		}
	}
	remove := func(names ...string) func(*testing.T, setup) {
		return func(t *testing.T, s setup) {
			behind(t, s, func(d cachepool.Dir) error {
				var errs []error
				for _, n := range names {
					errs = append(errs, d.Remove(n))
				}
				return errors.Join(errs...)
			})
		}
	}
	flipAt := func(i int) func([]byte) []byte {
		return func(b []byte) []byte { b[(i+len(b))%len(b)] ^= 1; return b }
	}
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	// The log: segments 1 (evicted), 2 (uploaded), 3, 4, 5 with records 1 to 5.
	for name, c := range map[string]struct {
		spoil func(*testing.T, setup)
		doubt string   // part of the message; "" for none
		known Position // KnownApplied
		lines int      // entries that remain
	}{
		"nothing":               {func(*testing.T, setup) {}, "", Position{Seq: 5, Off: 129}, 10},
		"torn tail":             {damage(5, cut), "was durable up to", Position{}, 9},
		"unsynced: torn tail":   {damage(5, cut), "", Position{}, 9},
		"garbage tail":          {damage(5, func(b []byte) []byte { return append(b, "garbage"...) }), "", Position{}, 10},
		"zero tail":             {damage(5, func(b []byte) []byte { return append(b, make([]byte, 5000)...) }), "", Position{}, 10},
		"torn header":           {damage(5, func(b []byte) []byte { return b[:100] }), "was durable up to", Position{}, 8},
		"empty last file":       {damage(5, func(b []byte) []byte { return b[:0] }), "was durable up to", Position{}, 8},
		"unsynced: below known": {damage(5, cut), "was known to reach", Position{Seq: 5, Off: 129}, 9},
		"last removed":          {remove(fileName(5)), "was durable up to", Position{}, 8},
		"watermark damaged": {func(t *testing.T, s setup) {
			s.disk.Kill()
			s.disk.Damage(testDir, watermarkName, func(b []byte) []byte { clear(b); return b })
		}, "does not verify", Position{}, 10},
		"watermark missing":     {remove(watermarkName), "", Position{}, 10},
		"hole":                  {remove(fileName(4)), "segment 4 is missing", Position{}, 6},
		"uploaded file missing": {remove(fileName(2)), "segment 2 is missing and was not evicted", Position{}, 2},
		"table missing":         {remove(tableName), "segment 1 is missing", Position{}, 0},
		"table damaged": {func(t *testing.T, s setup) {
			s.disk.Kill()
			s.disk.Damage(testDir, tableName, flipAt(20))
		}, "segment 1 is missing", Position{}, 0},
		"header damaged":        {damage(4, flipAt(50)), "corrupt header crc", Position{}, 6},
		"uploaded header":       {damage(2, flipAt(50)), "segment table says", Position{}, 2},
		"uploaded cut":          {damage(2, cut), "segment table says", Position{}, 2},
		"cut before the last":   {damage(4, cut), "segment 4", Position{}, 7},
		"last header damaged":   {damage(5, flipAt(50)), "corrupt header crc", Position{}, 8},
		"last record damaged":   {damage(5, flipAt(-1)), "was durable up to", Position{}, 9},
		"unsynced: damaged":     {damage(5, flipAt(-1)), "", Position{}, 9},
		"other segment's bytes": {damage(4, func([]byte) []byte { return nil }), "segment 4", Position{}, 6},
		"another log's segment": {func(t *testing.T, s setup) {
			b := anothersSegment(t, 4)
			damage(4, func([]byte) []byte { return b })(t, s)
		}, "does not follow", Position{}, 6},
		"two swapped": {func(t *testing.T, s setup) {
			behind(t, s, func(d cachepool.Dir) error {
				return errors.Join(d.Rename(fileName(3), "x"), d.Rename(fileName(4), fileName(3)), d.Rename("x", fileName(4)))
			})
		}, "does not follow", Position{}, 4},
		"uploaded cut, and last": {func(t *testing.T, s setup) {
			remove(fileName(3), fileName(4), fileName(5))(t, s)
			s.disk.Damage(testDir, fileName(2), cut)
		}, "that the segment table says", Position{}, 3},
		"foreign names": {func(t *testing.T, s setup) {
			behind(t, s, func(d cachepool.Dir) error {
				var errs []error
				for _, n := range []string{"segments.tmp", "0000000000000007.seg.tmp", "notes", "7.seg", "000000000000000A.seg"} {
					_, err := d.Create(n)
					errs = append(errs, err)
				}
				return errors.Join(errs...)
			})
		}, "", Position{}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(1)
			s.size = 200 // one record each
			store := newSource("store")
			s.sources = []Source{store}
			l := s.mustOpen(t)
			_, err := l.BeginEpoch(1)
			must(t, err)
			for id := 1; id <= 5; id++ {
				r := rec(id)
				r.Blocks = append(r.Blocks, segment.Block{Raw: blockOf(id)})
				_, err := l.Append(r)
				must(t, err)
				if id < 5 || !strings.HasPrefix(name, "unsynced") {
					must(t, l.Wait(t.Context(), l.End()))
				}
			}
			must(t, store.upload(l, 1))
			must(t, store.upload(l, 2))
			must(t, l.Evict(1))
			c.spoil(t, s)
			s.known = c.known
			if s.disk.Crashed() {
				l = s.mustOpen(t)
			} else {
				l = s.restart(t)
			}
			rec0 := l.Recovered()
			if (rec0.Doubt == nil) != (c.doubt == "") || rec0.Doubt != nil && !strings.Contains(rec0.Doubt.Error(), c.doubt) {
				t.Fatalf("doubt %v, want %q", rec0.Doubt, c.doubt)
			}
			var got []string
			must(t, l.Replay(t.Context(), Position{}, func(e Entry) error { got = append(got, line(e)); return nil }))
			if len(got) != c.lines || rec0.End != l.End() {
				t.Fatalf("%d entries are left: %v", len(got), got)
			}
			if rec0.Doubt != nil {
				_, err := l.BeginEpoch(2)
				wantErr(t, err, ErrDoubt)
				_, err = l.Ingest(l.End(), nil)
				wantErr(t, err, ErrDoubt)
				if l.Durable() != (Position{}) {
					t.Fatal("a log in doubt counts as durable")
				}
				// The doubt is the same at the next start.
				l = s.restart(t)
				if l.Recovered().Doubt == nil {
					t.Fatal("opening made the doubt go")
				}
				must(t, l.Truncate(l.End()))
			}
			if l.Durable() != l.End() {
				t.Fatal(l.Durable(), l.End())
			}
			_, err = l.BeginEpoch(2)
			must(t, err)
			_, err = l.Append(rec(99))
			must(t, err)
			must(t, l.Wait(t.Context(), l.End()))
			s.known = Position{}
			l = s.restart(t)
			if l.Recovered().Doubt != nil {
				t.Fatal(l.Recovered().Doubt)
			}
			var again []string
			must(t, l.Replay(t.Context(), Position{}, func(e Entry) error { again = append(again, line(e)); return nil }))
			if len(again) != c.lines+2 || !slices.Equal(again[:c.lines], got) {
				t.Fatalf("%v", again)
			}
		})
	}
}

// TestUnreadableDisk: an error of the disk is not a torn tail.
// TestUnreadableDisk: a read that fails is an error, and no sign that something is lost.
func TestUnreadableDisk(t *testing.T) {
	broken := errors.New("medium error")
	for n := 1; ; n++ {
		s := newSetup(2)
		l := s.mustOpen(t)
		_, err := l.BeginEpoch(1)
		must(t, err)
		appendSync(t, l, 1)
		must(t, l.Roll())
		appendSync(t, l, 2)
		must(t, l.MarkStored(nameOf(t, l, 1)))
		want := lines(t, l, Position{})
		s.disk.Kill()
		s.wrap = func(d cachepool.Dir) cachepool.Dir {
			s.disk.Fail("read", n, broken)
			return d
		}
		l, _, err = s.open()
		if err == nil { // it reads less
			must(t, l.Recovered().Doubt)
			if n < 8 {
				t.Fatalf("read %d of the disk does not fail", n)
			}
			return
		}
		if !errors.Is(err, broken) {
			t.Fatal(err)
		}
		s.wrap = nil
		l = s.restart(t)
		must(t, l.Recovered().Doubt)
		wantLines(t, l, want...)
	}
}

func TestTruncate(t *testing.T) {
	s := newSetup(3)
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	type place struct {
		pos   Position
		lines int
	}
	places := []place{{Position{}, 0}}
	n := 0
	for epoch := uint64(1); epoch <= 3; epoch++ {
		if epoch > 1 {
			_, err := l.BeginEpoch(epoch)
			must(t, err)
		}
		for id := range 12 {
			_, err := l.Append(rec(id))
			must(t, err)
		}
	}
	must(t, l.Replay(t.Context(), Position{}, func(e Entry) error {
		n++
		places = append(places, place{e.End, n})
		return nil
	}))
	all := lines(t, l, Position{})
	must(t, l.Wait(t.Context(), l.End()))
	wantErr(t, l.Truncate(Position{Seq: 99}), ErrGap)
	if err := l.Truncate(Position{Seq: 1, Off: 129}); err == nil {
		t.Fatal("cut inside a frame")
	}
	wantLines(t, l, all...)
	for i, p := range slices.Backward(places) {
		must(t, l.Truncate(p.pos))
		if l.End() != p.pos || l.Durable() != p.pos {
			t.Fatal(l.End(), p.pos)
		}
		wantLines(t, l, all[:p.lines]...)
		_, err := l.Append(rec(1))
		wantErr(t, err, ErrNoEpoch)
		if i%4 == 0 {
			s.disk.Crash() // it was durable
			l = s.mustOpen(t)
			if l.End() != p.pos || l.Recovered() != (Recovered{End: p.pos}) {
				t.Fatalf("%v: %+v", p.pos, l.Recovered())
			}
		}
	}
	dir, err := l.cfg.Dir.List()
	if err != nil || len(dir) != 1 || dir[0].Name != watermarkName { // no table either
		t.Fatal(dir, err)
	}
	if _, err := l.cfg.Dir.Open(fileName(1)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if len(l.Epochs()) != 0 {
		t.Fatal(l.Epochs())
	}
	// The start of a segment is the end of the one before.
	_, err = l.BeginEpoch(9)
	must(t, err)
	end := appendSync(t, l, 1)
	must(t, l.Roll())
	must(t, l.Truncate(Position{Seq: 2}))
	if l.End() != end {
		t.Fatal(l.End())
	}
}

// TestTruncateDropsUploads: an uploaded segment that is cut is forgotten, evicted or not.
func TestTruncateDropsUploads(t *testing.T) {
	s := newSetup(4)
	l, _, _, _, _ := stored(t, &s)
	segs := l.Segments()
	must(t, l.Evict(segs[1].Seq))
	must(t, l.Truncate(Position{Seq: 2}))
	if got := l.Segments(); len(got) != 0 {
		t.Fatalf("the last segment may grow, it is not closed: %+v", got)
	}
	_, err := l.BeginEpoch(5)
	must(t, err)
	appendSync(t, l, 77)
	l = s.restart(t)
	if got := l.Segments(); l.Recovered().Doubt != nil || len(got) != 1 || got[0].Uploaded || got[0].Hash != segs[0].Hash {
		t.Fatalf("%+v %v", got, l.Recovered().Doubt)
	}
}
