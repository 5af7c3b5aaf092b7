// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
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

// meddled is a directory whose segments' files call before as their fsync begins.
type meddled struct {
	cachepool.Dir
	before *func()
}

type meddledFile struct {
	cachepool.File
	before *func()
}

func (d meddled) Open(name string) (cachepool.File, error) {
	f, err := d.Dir.Open(name)
	return d.wrap(name, f), err
}

func (d meddled) Create(name string) (cachepool.File, error) {
	f, err := d.Dir.Create(name)
	return d.wrap(name, f), err
}

func (d meddled) wrap(name string, f cachepool.File) cachepool.File {
	if f == nil || !strings.HasSuffix(name, ".seg") {
		return f
	}
	return meddledFile{f, d.before}
}

func (f meddledFile) Sync() error {
	if do := *f.before; do != nil {
		*f.before = nil
		do()
	}
	return f.File.Sync()
}

// TestTrailThatIsOverwritten: when a record comes while an fsync runs, it takes the place of the
// trail that the fsync was to carry, before that or after. So the watermark's own file is fsynced
// before anybody is told.
func TestTrailThatIsOverwritten(t *testing.T) {
	for _, size := range []int{10, 6000} {
		s := trailed(uint64(size))
		pool, err := s.disk.Open()
		must(t, err)
		d, err := pool.Volume(testDir)
		must(t, err)
		var before func()
		l, err := Open(Config{Dir: meddled{d, &before}, Room: pool.Room(), Volume: testVolume, DataKey: testKey, Rand: salts,
			SegmentSize: s.size})
		must(t, err)
		_, err = l.BeginEpoch(1)
		must(t, err)
		appendSync(t, l, 1)
		told := appendSync(t, l, 2)
		var later Position
		before = func() {
			var err error
			later, err = l.Append(&segment.Record{Slot: "s", Blocks: []segment.Block{{Raw: bytes.Repeat([]byte{7}, size)}}})
			if err != nil {
				t.Error(err)
			}
		}
		beside := fsyncs(s.disk, watermarkName)
		end := appendSync(t, l, 3)
		if *beside != 1 {
			t.Errorf("a record of %d bytes came meanwhile: %d fsyncs of the watermark's file, want 1", size, *beside)
		}
		must(t, l.Wait(t.Context(), later))
		if later.Compare(end) <= 0 {
			t.Fatalf("the record ends at %v, before %v", later, end)
		}
		s.disk.Watch(nil)
		s.disk.Crash()
		s.disk.Damage(testDir, fileName(end.Seq), func(b []byte) []byte { b[told.Off-1] ^= 1; return b })
		if l = s.mustOpen(t); l.Recovered().Doubt == nil {
			t.Error("a frame that was told to be durable is damaged, and nobody misses it")
		}
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
		end := l.End()
		at := trailAt(int64(end.Off))
		s.disk.Crash()
		s.disk.Damage(testDir, fileName(end.Seq), func(b []byte) []byte {
			if decodeMark(b[at:]) == nil {
				t.Fatalf("%s: there is no trail", name)
			}
			spoil(b[at : at+slotSize])
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
