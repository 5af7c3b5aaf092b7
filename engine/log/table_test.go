// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// encodeOld encodes a table as earlier releases did.
func encodeOld(t table) []byte {
	keys := slices.ContainsFunc(t.entries, func(e tableEntry) bool { return e.key != 0 })
	b := slices.Clone(oldTableMagic)
	if keys {
		b = slices.Clone(oldTableKeys)
	}
	b = binary.BigEndian.AppendUint64(b, t.base.Seq)
	b = binary.BigEndian.AppendUint64(b, t.base.Len)
	b = append(b, t.base.Hash[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(t.entries)))
	for _, e := range t.entries {
		b = binary.BigEndian.AppendUint64(b, e.seq)
		b = binary.BigEndian.AppendUint64(b, e.epoch)
		b = append(b, e.salt[:]...)
		b = binary.BigEndian.AppendUint64(b, e.len)
		b = append(b, e.hash[:]...)
		b = append(b, byte(e.state-storedToo))
		if keys {
			b = binary.BigEndian.AppendUint32(b, e.key)
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// TestOldTable: the tables of earlier releases are read, and every bit of them counts.
func TestOldTable(t *testing.T) {
	for _, key := range []uint32{0, 3} {
		tab := table{base: segment.Link{}, entries: []tableEntry{
			{state: storedToo, seq: 1, epoch: 1, len: 200}, {state: evicted, seq: 5, epoch: 2, key: key, len: 300}}}
		b := encodeOld(tab)
		if got, whole, err := decodeTable(b); err != nil || whole || !slices.Equal(got.entries, tab.entries) {
			t.Fatal(got, whole, err)
		}
		for i := range b {
			if _, _, err := decodeTable(b[:i]); err == nil {
				t.Fatalf("cut at %d: accepted", i)
			}
			if _, _, err := decodeTable(flip(b, i)); err == nil {
				t.Fatalf("flipped at %d: accepted", i)
			}
		}
	}
}

// TestTableDecoder: the last slot of a segment counts, a cut ends what is before it, and a slot
// that is torn or damaged is left out.
func TestTableDecoder(t *testing.T) {
	one, two, three := tableEntry{state: closedHere, seq: 1, len: 200}, tableEntry{state: closedHere, seq: 2, len: 300},
		tableEntry{state: evicted, seq: 3, key: 7, len: 400}
	stored := two
	stored.state = storedToo
	all := []tableEntry{one, two, three, cutEntry(2), stored}
	b := (&table{entries: all}).encode()
	want := []tableEntry{one, stored}
	if got, whole, err := decodeTable(b); err != nil || !whole || !slices.Equal(got.entries, want) {
		t.Fatal(got, whole, err)
	}
	for i := range b {
		for _, bad := range [][]byte{b[:i], flip(b, i)} {
			got, whole, err := decodeTable(bad)
			if i < tableHead {
				if err == nil && !slices.Equal(bad, b[:tableHead]) {
					t.Fatalf("damaged at %d of the head: accepted", i)
				}
				continue
			}
			slot := (i - tableHead) / entrySize
			var left []tableEntry
			for k, e := range all {
				if k < slot || k > slot && len(bad) == len(b) {
					left = append(left, e)
				}
			}
			wanted, _, _ := decodeTable((&table{entries: left}).encode())
			clean := len(bad) == i && (i-tableHead)%entrySize == 0
			if err != nil || whole != clean || !slices.Equal(got.entries, wanted.entries) {
				t.Fatalf("damaged at %d: %v, whole %t: %v", i, got, whole, err)
			}
		}
	}
}

func FuzzTable(f *testing.F) {
	f.Add((&table{entries: []tableEntry{{state: closedHere, seq: 1, len: 200}, cutEntry(0)}}).encode())
	f.Add(encodeOld(table{entries: []tableEntry{{state: evicted, seq: 1, len: 200}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, _, err := decodeTable(b)
		if err != nil {
			return
		}
		again, whole, err := decodeTable(got.encode())
		if err != nil || !whole || again.base != got.base || !slices.Equal(again.entries, got.entries) {
			t.Fatal("it is not read as it was written")
		}
	})
}

// noted makes a log of closed segments, which the table lists, and ends the process. Its records
// are 1 to 6, two in each segment; the last segment is not closed.
func noted(t testing.TB, s *setup) {
	t.Helper()
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	for id := 1; id <= 6; id += 2 {
		appendSync(t, l, id, id+1)
		must(t, l.Roll())
	}
	for i := range l.segs[:3] {
		if !l.segs[i].noted {
			t.Fatalf("segment %d is not noted", i+1)
		}
	}
	s.disk.Kill()
}

// countReads counts the bytes that are read of files.
type countReads struct {
	cachepool.Dir
	bytes *atomic.Int64
}

type countedFile struct {
	cachepool.File
	bytes *atomic.Int64
}

func (c countReads) Open(name string) (cachepool.File, error) {
	f, err := c.Dir.Open(name)
	if err != nil || !strings.HasSuffix(name, ".seg") {
		return f, err
	}
	return countedFile{f, c.bytes}, nil
}

func (f countedFile) ReadAt(p []byte, off int64) (int, error) {
	f.bytes.Add(int64(len(p)))
	return f.File.ReadAt(p, off)
}

// TestOpenReadsHeadersOnly: Open does not read again what it knows of closed segments.
func TestOpenReadsHeadersOnly(t *testing.T) {
	s := newSetup(1)
	noted(t, &s)
	var read atomic.Int64
	s.wrap = func(d cachepool.Dir) cachepool.Dir { return countReads{d, &read} }
	l := s.mustOpen(t)
	must(t, l.Recovered().Doubt)
	if most := int64(3*segment.HeaderSize + 256<<10); read.Load() > most { // the last one is read through a buffer
		t.Errorf("%d bytes of segments were read, want at most %d", read.Load(), most)
	}
	if got := l.Segments(); len(got) != 3 || got[0].Uploaded || !got[0].Local {
		t.Errorf("%+v", got)
	}
	wantLines(t, l, "segment 1 epoch 1", "record 1", "record 2", "segment 2 epoch 1", "record 3", "record 4",
		"segment 3 epoch 1", "record 5", "record 6", "segment 4 epoch 1")
	must(t, l.Close())
	s.disk.Kill()
	behind(t, s, func(d cachepool.Dir) error { return d.Remove(tableName) })
	l = s.mustOpen(t)
	must(t, l.Recovered().Doubt)
	for i := range l.segs[:3] {
		if !l.segs[i].noted {
			t.Errorf("segment %d was read, and is not noted", i+1)
		}
	}
}

// TestDamageInANotedSegment: Open does not find damage inside a segment that the table lists. Heal,
// which comes before each upload, does, and so does every read. Without the table Open reads all.
func TestDamageInANotedSegment(t *testing.T) {
	for name, at := range map[string]int{"record": -5, "block": 200} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(1)
			noted(t, &s)
			var good []byte
			s.disk.Damage(testDir, fileName(2), func(b []byte) []byte {
				good = slices.Clone(b)
				return flip(b, (at+len(b))%len(b))
			})
			l := s.mustOpen(t)
			must(t, l.Recovered().Doubt)
			wantErr(t, l.Heal(context.Background(), 2), ErrUnreadable)
			if _, _, err := l.Read(t.Context(), Position{Seq: 2, Off: segment.HeaderSize}, 1<<20); !errors.Is(err, ErrUnreadable) {
				t.Fatalf("what is damaged was read: %v", err)
			}
			store := newSource("store")
			info, _ := l.Segment(2)
			store.objects[info.Name] = good
			s.sources = []Source{store}
			l = s.restart(t)
			must(t, l.Heal(context.Background(), 2))
			s.sources = nil
			l = s.restart(t)
			must(t, l.Heal(context.Background(), 2))
			if n := len(lines(t, l, Position{})); n != 10 {
				t.Fatalf("%d entries", n)
			}

			s.disk.Kill()
			s.disk.Damage(testDir, fileName(2), func(b []byte) []byte { return flip(b, (at+len(b))%len(b)) })
			behind(t, s, func(d cachepool.Dir) error { return d.Remove(tableName) })
			l = s.mustOpen(t)
			if doubt := l.Recovered().Doubt; doubt == nil || !strings.Contains(doubt.Error(), "segment 2") {
				t.Fatalf("without the table nothing was found: %v", doubt)
			}
		})
	}
}

// TestTableIsWrittenAnew: the table does not grow for ever, and says the same afterwards.
func TestTableIsWrittenAnew(t *testing.T) {
	s := newSetup(1)
	store := newSource("store")
	s.sources = []Source{store}
	noted(t, &s)
	l := s.mustOpen(t)
	must(t, store.upload(l, 1))
	must(t, store.upload(l, 2))
	most := int64(tableHead + (2*4+maxSlack+1)*entrySize)
	for range maxSlack {
		must(t, l.Evict(1))
		must(t, l.Heal(t.Context(), 1))
	}
	must(t, l.Evict(1))
	files, err := l.cfg.Dir.List()
	must(t, err)
	for _, f := range files {
		if f.Name == tableName && f.Size > most {
			t.Errorf("the table has %d bytes", f.Size)
		}
	}
	want := l.Segments()
	s.disk.Crash()
	l = s.mustOpen(t)
	must(t, l.Recovered().Doubt)
	if got := l.Segments(); !slices.Equal(got, want) {
		t.Errorf("%+v\n%+v", got, want)
	}
}

// TestOldTableIsTakenOver: what an earlier release left is read, and written in the present form.
func TestOldTableIsTakenOver(t *testing.T) {
	s := newSetup(1)
	store := newSource("store")
	s.sources = []Source{store}
	noted(t, &s)
	l := s.mustOpen(t)
	for seq := uint64(1); seq <= 2; seq++ {
		must(t, store.upload(l, seq))
	}
	must(t, l.Evict(1))
	want := l.Segments()
	old := table{}
	for i := range l.segs[:2] {
		old.entries = append(old.entries, entryOf(&l.segs[i]))
	}
	s.disk.Kill()
	s.disk.Damage(testDir, tableName, func([]byte) []byte { return encodeOld(old) })
	for range 2 {
		l = s.mustOpen(t)
		must(t, l.Recovered().Doubt)
		if got := l.Segments(); !slices.Equal(got, want) {
			t.Errorf("%+v\n%+v", got, want)
		}
		if !l.segs[2].noted {
			t.Error("segment 3 is not noted")
		}
		s.disk.Kill()
	}
}

// TestTally: what is kept up is what counting gives.
func TestTally(t *testing.T) {
	s := newSetup(1)
	store := newSource("store")
	s.sources = []Source{store}
	l := s.mustOpen(t)
	check := func() {
		t.Helper()
		end := l.End()
		for _, upTo := range []Position{{}, {Seq: end.Seq / 2, Off: 300}, {Seq: end.Seq - 1, Off: 1 << 30}, end} {
			var waiting, local uint64
			var all, some []SegmentInfo
			var sealed Position
			evict := 0
			for _, s := range l.Segments() {
				if upTo.Less(Position{Seq: s.Seq, Off: s.Len}) {
					continue
				}
				sealed = Position{Seq: s.Seq, Off: s.Len}
				if !s.Uploaded {
					waiting += s.Len
					all = append(all, s)
					if s.Seq > end.Seq/3 {
						some = append(some, s)
					}
				} else if s.Local {
					evict++
				}
			}
			for i := range l.segs {
				if l.segs[i].local {
					local += l.segs[i].len
				}
			}
			files, _ := l.Evictable(upTo)
			if got := l.UnstoredBytes(upTo); got != waiting || local != l.LocalBytes() || l.Sealed(upTo) != sealed || len(files) != evict {
				t.Fatalf("up to %v: %d bytes wait, want %d; %d are local, want %d; sealed %v, want %v; %d can go, want %d",
					upTo, got, waiting, l.LocalBytes(), local, l.Sealed(upTo), sealed, len(files), evict)
			}
			if got := l.Unstored(0, upTo, 1000); !slices.Equal(got, all) {
				t.Fatalf("up to %v wait %+v, want %+v", upTo, got, all)
			}
			if got := l.Unstored(end.Seq/3, upTo, 2); !slices.Equal(got, some[:min(2, len(some))]) {
				t.Fatalf("up to %v wait %+v, want %+v", upTo, got, some)
			}
			for _, from := range []Position{{}, {Seq: 1, Off: 200}, {Seq: end.Seq / 2}, end} {
				var n int64
				for i := range l.segs {
					s := &l.segs[i]
					for off := uint64(0); off < s.len; off++ {
						if p := (Position{Seq: s.header.Seq, Off: off}); !p.Less(from) && p.Less(upTo) {
							n++
						}
					}
				}
				if got := l.Distance(from, upTo); got != n {
					t.Fatalf("%v to %v are %d bytes, not %d", from, upTo, got, n)
				}
			}
		}
	}
	check()
	id := 0
	for epoch := uint64(1); epoch <= 6; epoch++ {
		_, err := l.BeginEpoch(epoch)
		must(t, err)
		for range 40 {
			id++
			appendSync(t, l, id)
		}
		check()
		segs := l.Segments()
		for i, in := range segs {
			if i%3 != 0 {
				_ = store.upload(l, in.Seq) // it may be evicted
				check()
			}
			if i%3 == 1 {
				must(t, l.Evict(in.Seq))
			}
		}
		check()
		must(t, l.Heal(t.Context(), segs[1].Seq))
		check()
		must(t, l.Truncate(Position{Seq: segs[len(segs)-2].Seq}))
		check()
		if epoch%2 == 0 {
			l = s.restart(t)
			check()
		}
	}
}

// TestNotedSegmentGrows: when the segment after a noted one is cut, or its file was never durable,
// the noted one may grow again. The table does not say then that it is shorter.
func TestNotedSegmentGrows(t *testing.T) {
	home := newSetup(1)
	home.size = 1 << 20
	a := home.mustOpen(t)
	_, err := a.BeginEpoch(1)
	must(t, err)
	appendSync(t, a, 1, 2)
	first := allFrames(t, a, 1<<20)
	end := a.End()
	appendSync(t, a, 4)
	more := allFrames(t, a, 1<<20)[len(first):]
	branch := newSetup(2)
	branch.size = 1 << 20
	b := branch.mustOpen(t)
	_, err = b.Ingest(Position{}, first)
	must(t, err)
	_, err = b.BeginEpoch(2)
	must(t, err)
	header := allFrames(t, b, 1<<20)[len(first):]

	for name, undo := range map[string]func(*testing.T, setup, *Log) *Log{
		"cut": func(t *testing.T, _ setup, l *Log) *Log {
			must(t, l.Truncate(end))
			return l
		},
		"never there": func(t *testing.T, s setup, _ *Log) *Log {
			behind(t, s, func(d cachepool.Dir) error { return errors.Join(d.Remove(fileName(2)), d.Remove(watermarkName)) })
			return s.mustOpen(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(3)
			s.size = 1 << 20
			l := s.mustOpen(t)
			_, err := l.Ingest(Position{}, append(slices.Clone(first), header...))
			must(t, err)
			if !l.segs[0].noted {
				t.Fatal("segment 1 is not noted")
			}
			l = undo(t, s, l)
			must(t, l.Recovered().Doubt)
			_, err = l.Ingest(end, more)
			must(t, err)
			must(t, l.Wait(t.Context(), l.End()))
			s.disk.Crash()
			l = s.mustOpen(t)
			must(t, l.Recovered().Doubt)
			wantLines(t, l, "segment 1 epoch 1", "record 1", "record 2", "record 4")
		})
	}
}

// TestCrashInTruncateOfEvicted cuts the power at each step of a Truncate that drops segments with
// and without files. What is left has no hole.
func TestCrashInTruncateOfEvicted(t *testing.T) {
	for seed := range uint64(10) {
		for at := 1; ; at++ {
			s := newSetup(seed)
			store := newSource("store")
			s.sources = []Source{store}
			l := s.mustOpen(t)
			_, err := l.BeginEpoch(1)
			must(t, err)
			for id := 1; id <= 8; id++ {
				appendSync(t, l, id)
				must(t, l.Roll())
			}
			for seq := uint64(1); seq <= 7; seq++ {
				must(t, store.upload(l, seq))
			}
			must(t, l.Evict(3, 4, 6))
			want := lines(t, l, Position{})
			s.disk.CrashAt(at)
			err = l.Truncate(Position{Seq: 2})
			if done := !s.disk.Crashed(); done != (err == nil) {
				t.Fatal(err)
			}
			s.disk.Crash()
			l = s.mustOpen(t)
			if l.Recovered().Doubt != nil {
				t.Fatalf("seed %d, crash at step %d: %v", seed, at, l.Recovered().Doubt)
			}
			got := lines(t, l, Position{})
			if len(got) < 2 || !slices.Equal(got, want[:len(got)]) || err == nil && len(got) != 2 {
				t.Fatalf("seed %d, crash at step %d: %v", seed, at, got)
			}
			if err == nil {
				break
			}
		}
	}
}
