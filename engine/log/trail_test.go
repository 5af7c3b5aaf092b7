// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/engine/segment"
)

// trailed is a log with zeros enough for a trail.
func trailed(seed uint64) setup {
	return setup{disk: newZeroedDisk(seed, 1<<30, 64<<10), size: 1 << 20}
}

// fsyncs has the disk count the fsyncs of a file from now on.
func fsyncs(d *crashfs.Disk, name string) *int {
	n := new(int)
	d.Watch(func(s crashfs.Step) {
		if s.Op == crashfs.OpSync && strings.HasSuffix(s.Name, name) {
			*n++
		}
	})
	return n
}

// TestTrailSparesAnFsync: records that come one after the other take one fsync each, and none of
// the watermark's file. What is told is in the log's own file all the same.
func TestTrailSparesAnFsync(t *testing.T) {
	s := trailed(1)
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	before := appendSync(t, l, 1) // it makes the zeros
	appendSync(t, l, 2)
	beside, own := fsyncs(s.disk, watermarkName), fsyncs(s.disk, ".seg")
	for id := 3; id <= 40; id++ {
		l.NoteCommitted(before)
		before = appendSync(t, l, id)
	}
	s.disk.Watch(nil)
	if *beside != 0 || *own != 38 {
		t.Errorf("38 records took %d fsyncs of the watermark's file and %d of the log's", *beside, *own)
	}
	s.disk.Crash()
	pool, err := s.disk.Open()
	must(t, err)
	d, err := pool.Volume(testDir)
	must(t, err)
	w, err := openWatermark(d)
	must(t, err)
	must(t, w.close())
	must(t, pool.Close())
	l = s.mustOpen(t)
	end := l.End()
	if got := l.Recovered(); got.Doubt != nil || got.Committed.Less(w.committed) || got.Committed == w.committed || got.CutBytes != 0 {
		t.Errorf("recovered %+v; the watermark's own file says %+v", got, w.mark)
	}
	// What only the trail said is kept, also when the next process ends at once.
	s.disk.Crash()
	s.disk.Damage(testDir, fileName(end.Seq), func(b []byte) []byte { b[end.Off-1] ^= 1; return b })
	if l = s.mustOpen(t); l.Recovered().Doubt == nil {
		t.Error("the newest frame was durable, and is damaged, and nobody misses it")
	}
}

// TestTrailIsKeptBeforeItIsCut: the power goes at each step of an Open, after a loss of power. What
// the trail said is known afterwards: a frame that is damaged then is missed.
func TestTrailIsKeptBeforeItIsCut(t *testing.T) {
	for seed := range uint64(20) {
		for at, opened := 1, false; !opened; at++ {
			s := trailed(seed)
			l := s.mustOpen(t)
			_, err := l.BeginEpoch(1)
			must(t, err)
			var told Position
			for id := range 12 {
				told = l.End()
				appendSync(t, l, id)
			}
			s.disk.Crash()
			pool, err := s.disk.Open()
			must(t, err)
			dir, err := pool.Volume(testDir)
			must(t, err)
			s.disk.CrashAt(at)
			_, err = Open(Config{Dir: dir, Room: pool.Room(), Volume: testVolume, DataKey: testKey, Rand: salts})
			if opened = err == nil; opened {
				s.disk.Kill()
			}
			s.disk.Damage(testDir, fileName(told.Seq), func(b []byte) []byte { b[told.Off-1] ^= 1; return b })
			if l = s.mustOpen(t); l.Recovered().Doubt == nil {
				t.Fatalf("seed %d, step %d of Open: a frame that was told to be durable is damaged, and nobody misses it", seed, at)
			}
		}
	}
}

// TestTrailOutlivesWhatComes: the power goes at each step of what comes after records that were
// told to be durable. They are damaged then, and missed, whatever became of the zeros with the
// trail.
func TestTrailOutlivesWhatComes(t *testing.T) {
	appends := func(bytes int) func(*Log) error {
		return func(l *Log) error {
			r := rec(99)
			r.Ops = append(r.Ops, segment.Op{Kind: segment.Set, Key: []byte("more"), Value: make([]byte, bytes)})
			_, err := l.Append(r)
			return err
		}
	}
	for name, next := range map[string]func(*Log) error{
		"nothing":        func(*Log) error { return nil },
		"a small record": appends(10),
		"a record that is fsynced": func(l *Log) error {
			end, err := l.Append(rec(99))
			if err == nil {
				err = l.Wait(context.Background(), end)
			}
			return err
		},
		"a record of more pages":      appends(9000),
		"a record where the trail is": appends(60 << 10),
		"a record behind the zeros":   appends(100 << 10),
		"a roll":                      (*Log).Roll,
		"an epoch":                    func(l *Log) error { _, err := l.BeginEpoch(2); return err },
		"a close":                     (*Log).Close,
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(60) {
				for at, over := 1, false; !over; at++ {
					s := trailed(seed)
					l := s.mustOpen(t)
					_, err := l.BeginEpoch(1)
					must(t, err)
					must(t, l.SyncWatermark())
					var ends []Position
					for id := range 6 {
						ends = append(ends, appendSync(t, l, id))
					}
					s.disk.CrashAt(at)
					if err := next(l); err == nil {
						over = true
						s.disk.Crash()
					}
					s.disk.Damage(testDir, fileName(1), func(b []byte) []byte { b[ends[2].Off-1] ^= 1; return b })
					l = s.mustOpen(t) // of a segment that is closed it looks at the length, and verifies what is read
					if l.Recovered().Doubt == nil && l.End().Seq == 1 {
						t.Fatalf("seed %d, step %d: a frame that was told to be durable is damaged, and nobody misses it", seed, at)
					}
				}
			}
		})
	}
}

// TestBeliefAndTrail: the power goes at each step while a log is believed whose loss only the trail
// told of. It is in doubt still, or is the other log that others know by its identity.
func TestBeliefAndTrail(t *testing.T) {
	for seed := range uint64(10) {
		for at, opened := 1, false; !opened; at++ {
			s := trailed(seed)
			l := s.mustOpen(t)
			_, err := l.BeginEpoch(1)
			must(t, err)
			must(t, l.SyncWatermark())
			var ends []Position
			for id := range 6 {
				ends = append(ends, appendSync(t, l, id))
			}
			s.disk.Crash()
			s.disk.Damage(testDir, fileName(1), func(b []byte) []byte { b[ends[2].Off-1] ^= 1; return b })
			l = s.mustOpen(t)
			was := l.Recovered()
			if was.Doubt == nil {
				t.Fatalf("seed %d: there is no doubt at first", seed)
			}
			s.disk.Kill()
			pool, err := s.disk.Open()
			must(t, err)
			dir, err := pool.Volume(testDir)
			must(t, err)
			s.disk.CrashAt(at)
			other := cachepool.ID{7}
			_, err = Open(Config{Dir: dir, Room: pool.Room(), Volume: testVolume, DataKey: testKey, Rand: salts,
				Believe: Belief{Identity: other, End: was.End}})
			if opened = err == nil; opened {
				s.disk.Kill()
			}
			if l = s.mustOpen(t); l.Recovered().Doubt == nil && l.identity != other {
				t.Fatalf("seed %d, step %d: the log is the one that it was, and there is no doubt", seed, at)
			}
		}
	}
}

// TestTrailIsGivenUpFirst: before a record comes where the trail is, the watermark's own file is
// fsynced.
func TestTrailIsGivenUpFirst(t *testing.T) {
	s := trailed(1)
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	for id := range 3 {
		appendSync(t, l, id)
	}
	var steps []string
	s.disk.Watch(func(st crashfs.Step) {
		steps = append(steps, fmt.Sprint(st.Op, " ", st.Name[strings.LastIndexByte(st.Name, '/')+1:]))
	})
	_, err = l.Append(&segment.Record{Slot: "s", Ops: []segment.Op{{Kind: segment.Set, Key: []byte("k"), Value: make([]byte, 60<<10)}}})
	must(t, err)
	s.disk.Watch(nil)
	if want := []string{"sync " + watermarkName, "write " + fileName(1)}; len(steps) < 2 || !slices.Equal(steps[:2], want) {
		t.Errorf("the disk did %q, want %q first", steps, want)
	}
}

// TestTrailOfAnotherLog: what is not of this log's identity, or does not verify, says nothing.
func TestTrailOfAnotherLog(t *testing.T) {
	for name, spoil := range map[string]func(b []byte){
		"another log":     func(b []byte) { b[16] ^= 1; copy(b, resummed(b)) },
		"does not verify": func(b []byte) { b[40] ^= 1 },
	} {
		s := trailed(3)
		l := s.mustOpen(t)
		_, err := l.BeginEpoch(1)
		must(t, err)
		for id := range 4 {
			appendSync(t, l, id)
		}
		end, at := l.End(), l.trail
		s.disk.Crash()
		s.disk.Damage(testDir, fileName(end.Seq), func(b []byte) []byte {
			for range 2 {
				if decodeMark(b[at:]) == nil {
					t.Fatalf("%s: there is no trail", name)
				}
				spoil(b[at : at+slotSize])
				at += watermarkGap
			}
			return b
		})
		if l = s.mustOpen(t); l.Recovered().Doubt != nil || l.End() != end || l.Recovered().CutBytes == 0 {
			t.Errorf("%s: recovered %+v, ends at %v, want %v", name, l.Recovered(), l.End(), end)
		}
	}
}

// resummed returns a slot with a checksum that fits.
func resummed(b []byte) []byte {
	body := bytes.Clone(b[:slotSize-4])
	return binary.BigEndian.AppendUint32(body, crc32.Checksum(body, castagnoli))
}
