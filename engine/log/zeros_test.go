// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
)

// zeroed is a log that writes zeros ahead, with its directory and room.
type zeroed struct {
	*Log
	t     *testing.T
	dir   cachepool.Dir
	room  *cachepool.Room
	other int64 // what the room has besides the segments' files
}

func (s setup) zeroed(t *testing.T) *zeroed {
	t.Helper()
	l, pool, err := s.open()
	must(t, err)
	d, err := pool.Volume(testDir)
	must(t, err)
	z := &zeroed{Log: l, t: t, dir: d, room: pool.Room()}
	z.other = z.room.Status().Used - z.files()
	return z
}

// files returns the length of all segments' files.
func (z *zeroed) files() int64 {
	z.t.Helper()
	size, err := Size(z.dir)
	must(z.t, err)
	return size
}

// exact checks that the room has what the segments' files take.
func (z *zeroed) exact(what string) {
	z.t.Helper()
	if used, size := z.room.Status().Used-z.other, z.files(); used != size {
		z.t.Fatalf("%s: the room has %d bytes for segments, their files have %d", what, used, size)
	}
}

// length returns the length of a segment's file.
func (z *zeroed) length(seq uint64) int64 {
	z.t.Helper()
	f, err := z.dir.Open(fileName(seq))
	must(z.t, err)
	size, err := f.Size()
	must(z.t, err)
	must(z.t, f.Close())
	return size
}

// TestZerosAhead: small records that are synced find zeros to overwrite, so that the file does not
// grow each time. The zeros are no records, no damage, and no torn tail. A closed segment has none.
func TestZerosAhead(t *testing.T) {
	var told bytes.Buffer
	s := setup{disk: newZeroedDisk(1, 1<<30, 4000), size: 50_000, logger: &told}
	z := s.zeroed(t)
	_, err := z.BeginEpoch(1)
	must(t, err)
	lengths := map[int64]bool{}
	want := []string{"segment 1 epoch 1"}
	for id := 1; id <= 20; id++ {
		appendSync(t, z.Log, id)
		z.exact(fmt.Sprint("after record ", id))
		lengths[z.length(1)] = true
		want = append(want, fmt.Sprint("record ", id))
	}
	end := int64(z.End().Off)
	if len(lengths) > 8 || z.length(1) <= end {
		t.Errorf("the file had %d lengths, and %d bytes where the log has %d", len(lengths), z.length(1), end)
	}
	s.disk.Kill()
	z = s.zeroed(t)
	wantLines(t, z.Log, want...)
	if z.Recovered() != (Recovered{End: z.End()}) || z.length(1) != end || strings.Contains(told.String(), "cutting") {
		t.Errorf("recovered %+v, %d bytes of %d, %s", z.Recovered(), z.length(1), end, &told)
	}
	z.exact("after Open")
	_, err = z.BeginEpoch(2)
	must(t, err)
	appendSync(t, z.Log, 21)
	appendSync(t, z.Log, 22) // it finds zeros
	end = int64(z.End().Off)
	if z.length(2) <= end {
		t.Fatalf("no zeros: %d bytes of %d", z.length(2), end)
	}
	must(t, z.Roll())
	if z.length(2) != end {
		t.Errorf("the closed segment's file has %d bytes, the segment %d", z.length(2), end)
	}
	z.exact("after Roll")
	s.disk.Crash() // what Roll did not make durable is lost, or not
	z = s.zeroed(t)
	if r := z.Recovered(); r.Doubt != nil {
		t.Fatal(r.Doubt)
	}
	wantLines(t, z.Log, append(want, "segment 2 epoch 2", "record 21", "record 22", "segment 3 epoch 2")...)
}

// TestClosedSegmentIsCutDurably: whatever a crash leaves of what was not fsynced, the file of a
// closed segment ends with the segment.
func TestClosedSegmentIsCutDurably(t *testing.T) {
	for seed := range uint64(20) {
		s := setup{disk: newZeroedDisk(seed, 1<<30, 3000), size: 50_000}
		z := s.zeroed(t)
		_, err := z.BeginEpoch(1)
		must(t, err)
		appendSync(t, z.Log, 1)
		appendSync(t, z.Log, 2) // all is durable: nothing but the cut is left to sync
		must(t, z.Roll())
		s.disk.Crash()
		z = s.zeroed(t)
		if r := z.Recovered(); r.Doubt != nil || len(z.Segments()) != 1 {
			t.Fatalf("seed %d: %d closed segments, doubt: %v", seed, len(z.Segments()), r.Doubt)
		}
	}
}

// TestZerosAreForSmallSyncs: who syncs much at a time does not write twice as much.
func TestZerosAreForSmallSyncs(t *testing.T) {
	s := setup{disk: newZeroedDisk(1, 1<<30, 400), size: 50_000}
	z := s.zeroed(t)
	_, err := z.BeginEpoch(1)
	must(t, err)
	for id := 1; id <= 40; id += 10 {
		appendSync(t, z.Log, id, id+1, id+2, id+3, id+4, id+5, id+6, id+7, id+8, id+9)
		if size, end := z.length(1), int64(z.End().Off); size != end {
			t.Errorf("the file has %d bytes, the log %d", size, end)
		}
	}
}

// TestNoRoomForZeros: what is there for records is not refused because of zeros, and a disk that
// takes no zeros takes records.
func TestNoRoomForZeros(t *testing.T) {
	s := setup{disk: newZeroedDisk(1, 1<<30, 1<<29), size: 1 << 21}
	z := s.zeroed(t)
	_, err := z.BeginEpoch(1)
	must(t, err)
	appendSync(t, z.Log, 1)
	must(t, z.room.Reserve(1<<30-1<<30/32-z.room.Status().Used-100_000))
	appendSync(t, z.Log, 2, 4)
	if size, end := z.length(1), int64(z.End().Off); size != end {
		t.Errorf("the file has %d bytes, the log %d", size, end)
	}

	s = setup{disk: newZeroedDisk(1, 1<<30, 1000), size: 50_000}
	z = s.zeroed(t)
	_, err = z.BeginEpoch(1)
	must(t, err)
	appendSync(t, z.Log, 1)
	s.disk.Fail(crashfs.OpWrite, 2, crashfs.ErrIO) // the zeros behind the next record
	for id := 2; id < 8; id++ {
		appendSync(t, z.Log, id)
		z.exact(fmt.Sprint("after record ", id))
	}
	if size, end := z.length(1), int64(z.End().Off); size != end {
		t.Errorf("the file has %d bytes, the log %d", size, end)
	}
}

// TestRecordsGetTheRoomOfZeros: when the pool is full, what zeros take is for records.
func TestRecordsGetTheRoomOfZeros(t *testing.T) {
	s := setup{disk: newZeroedDisk(1, 1<<20, 4000), size: 50_000}
	z := s.zeroed(t)
	_, err := z.BeginEpoch(1)
	must(t, err)
	appendSync(t, z.Log, 1)
	appendSync(t, z.Log, 2)
	if z.length(1) <= int64(z.End().Off)+2000 {
		t.Fatal("no zeros")
	}
	left := z.room.Status()
	must(t, z.room.Reserve(left.Limit-left.ReservedForDelete-left.Used))
	z.other = z.room.Status().Used - z.files()
	appendSync(t, z.Log, 3)
	z.exact("after a record in a full pool")
	wantLines(t, z.Log, "segment 1 epoch 1", "record 1", "record 2", "record 3")
}

// TestTruncateCutsZeros: the room gets back what a truncation takes away, zeros too.
func TestTruncateCutsZeros(t *testing.T) {
	s := setup{disk: newZeroedDisk(1, 1<<30, 4000), size: 50_000}
	z := s.zeroed(t)
	_, err := z.BeginEpoch(1)
	must(t, err)
	appendSync(t, z.Log, 1)
	keep := appendSync(t, z.Log, 2)
	must(t, z.Roll())
	appendSync(t, z.Log, 3)
	appendSync(t, z.Log, 4)
	must(t, z.Truncate(keep))
	z.exact("in an earlier segment")
	_, err = z.BeginEpoch(2)
	must(t, err)
	keep = appendSync(t, z.Log, 5)
	appendSync(t, z.Log, 6)
	must(t, z.Truncate(keep))
	z.exact("in the last segment")
	must(t, z.Truncate(Position{}))
	z.exact("of everything")
	must(t, z.Close())
}
