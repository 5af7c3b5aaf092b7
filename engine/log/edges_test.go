// SPDX-License-Identifier: Apache-2.0

package log

import (
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/engine/segment"
)

// TestIngestDoesNotWriteAgain: a write that failed is never retried (protocol-3).
func TestIngestDoesNotWriteAgain(t *testing.T) {
	hs := newSetup(10)
	home := hs.mustOpen(t)
	_, err := home.BeginEpoch(1)
	must(t, err)
	for id := range 40 {
		_, err = home.Append(rec(id))
		must(t, err)
	}
	if home.End().Seq < 2 {
		t.Fatal("want several segments")
	}
	frames := allFrames(t, home, 1<<20)
	s := newSetup(11)
	l := s.mustOpen(t)
	_, err = l.Ingest(Position{}, frames[:segment.HeaderSize])
	must(t, err)
	before := l.End()
	s.disk.FailWrite(1)
	got, err := l.Ingest(before, frames[segment.HeaderSize:])
	wantErr(t, err, crashfs.ErrIO)
	wantErr(t, err, ErrPoisoned)
	if len(got) != 0 || l.End() != before {
		t.Fatalf("%d entries, the log ends at %v", len(got), l.End())
	}
}

// TestBeforeTheBeginning reads positions before the first segment that a log knows, and truncates
// the log to its beginning.
func TestBeforeTheBeginning(t *testing.T) {
	s := newSetup(12)
	l, _, _, _, _ := stored(t, &s)
	segs := l.Segments()
	n := setup{disk: newDisk(13, 1<<30), size: 2000, sources: s.sources}
	a := n.mustOpen(t)
	must(t, a.Adopt(segs[1:]))
	inside := Position{Seq: segs[0].Seq, Off: segment.HeaderSize}
	_, _, err := a.Read(t.Context(), inside, 1) // not the frames of the next segment
	wantErr(t, err, ErrNotLocal)
	must(t, a.Truncate(segs[0].end()))
	if a.End() != segs[0].end() {
		t.Fatal(a.End())
	}
	_, _, err = a.Read(t.Context(), inside, 1)
	wantErr(t, err, ErrNotLocal)
	must(t, a.Truncate(Position{}))
	for range 2 {
		if a.End() != (Position{}) || a.Recovered().Doubt != nil {
			t.Fatal(a.End(), a.Recovered().Doubt)
		}
		a = n.restart(t)
	}
	must(t, a.Adopt(segs))
	if a.End() != segs[len(segs)-1].end() {
		t.Fatal(a.End())
	}
}

// meeting is a directory in which a reader opens each file while it is being removed.
type meeting struct {
	cachepool.Dir
	meet func(name string)
}

func (m *meeting) Remove(name string) error {
	m.meet(name)
	return m.Dir.Remove(name)
}

// TestEvictedFilesAreClosed: a reader that opens a file during its eviction does not keep it open
// for long, since its room was released already.
func TestEvictedFilesAreClosed(t *testing.T) {
	s := newSetup(14)
	var m *meeting
	s.wrap = func(d cachepool.Dir) cachepool.Dir { m = &meeting{Dir: d, meet: func(string) {}}; return m }
	l, _, _, _, _ := stored(t, &s)
	met := 0
	m.meet = func(name string) {
		if seq, ok := parseFileName(name); ok {
			h, err := l.files.acquire(seq)
			must(t, err)
			l.files.release(h)
			met++
		}
	}
	evictAll(t, l)
	l.files.mu.Lock()
	defer l.files.mu.Unlock()
	for _, seg := range l.Segments() {
		if l.files.open[seg.Seq] != nil {
			t.Errorf("the file of segment %d is still open", seg.Seq)
		}
	}
	if met == 0 {
		t.Fatal("nobody met")
	}
}

// TestNothingOpensAfterClose: a reader that is still at work when the log is closed opens no file,
// since nobody would close it.
func TestNothingOpensAfterClose(t *testing.T) {
	s := newSetup(15)
	l, _, _, _, _ := stored(t, &s)
	must(t, l.Close())
	_, err := l.ReadSegmentFile(1, make([]byte, 10), 0)
	wantErr(t, err, ErrClosed)
	if n := len(l.files.open); n != 0 {
		t.Fatalf("%d files open", n)
	}
}
