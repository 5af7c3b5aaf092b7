// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
)

// hooked is a directory that calls a function at the next read of a file.
type hooked struct {
	cachepool.Dir
	hook func()
}

type hookedFile struct {
	cachepool.File
	h *hooked
}

func (h *hooked) Open(name string) (cachepool.File, error) {
	f, err := h.Dir.Open(name)
	return &hookedFile{f, h}, err
}

func (f *hookedFile) ReadAt(p []byte, off int64) (int, error) {
	if hook := f.h.hook; hook != nil {
		f.h.hook = nil
		hook()
	}
	return f.File.ReadAt(p, off)
}

// TestTruncateDuringRead: a read that begins before a Truncate and ends after it returns what is
// there afterwards, and never a mixture.
func TestTruncateDuringRead(t *testing.T) {
	s := newSetup(1)
	h := &hooked{}
	s.wrap = func(d cachepool.Dir) cachepool.Dir { h.Dir = d; return h }
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	appendSync(t, l, 1, 2, 4)
	l = s.restart(t)
	start := Position{Seq: 1, Off: segment.HeaderSize}
	cut := func() {
		must(t, l.Truncate(start))
		_, err := l.BeginEpoch(2)
		must(t, err)
		appendSync(t, l, 7)
	}
	h.hook = cut
	frames, next, err := l.Read(t.Context(), start, 1<<20)
	must(t, err)
	if next != l.End() || !bytes.Equal(frames, allFrames(t, l, 1<<20)[segment.HeaderSize:]) {
		t.Fatalf("%d bytes up to %v", len(frames), next)
	}
	l = s.restart(t)
	h.hook = func() { must(t, l.Truncate(start)) }
	wantErr(t, l.Replay(t.Context(), Position{}, func(Entry) error { return nil }), ErrGap)
}

// TestEverythingAtOnce: readers, syncs, evictions and heals run while a home appends, truncates and
// begins epochs. Nobody must see wrong data, and the race detector must find nothing.
func TestEverythingAtOnce(t *testing.T) {
	s := newSetup(1)
	store := newSource("store")
	s.sources = []Source{store}
	l := s.mustOpen(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	loop := func(f func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	loop(func() {
		var refs []segment.BlockRef
		var raws [][]byte
		_ = l.Replay(t.Context(), Position{}, func(e Entry) error { // may end in the middle of a truncation
			if e.Record != nil {
				for i, b := range e.Record.Blocks {
					refs, raws = append(refs, b.Ref), append(raws, blockOf(int(e.Record.Time)+i))
				}
			}
			return nil
		})
		for i := range refs {
			raw, err := readBlock(t.Context(), l, refs[i])
			if err == nil && !bytes.Equal(raw, raws[i]) {
				t.Error("wrong data")
			}
		}
	})
	loop(func() {
		var pos Position
		for {
			_, next, err := l.Read(t.Context(), pos, 500)
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, ErrGap) &&
					!errors.Is(err, segment.ErrCorrupt) && !errors.Is(err, ErrUnreadable) {
					t.Error(err)
				}
				return
			}
			pos = next
		}
	})
	loop(func() {
		for _, seg := range l.Segments() {
			// Each of these may be refused, since the segment may be gone by now.
			_ = store.upload(l, seg.Seq)
			_ = l.Evict(seg.Seq)
			_ = l.Heal(t.Context(), seg.Seq)
		}
	})
	loop(func() {
		_ = l.Epochs()
		l.Sync(l.End())
		l.trim()
	})
	id := 0
	for epoch := uint64(1); epoch <= 60; epoch++ {
		if epoch%3 == 0 {
			segs := l.Segments()
			if to := segs[len(segs)/2]; to.Seq > 0 {
				if err := l.Truncate(Position{Seq: to.Seq}); err != nil && !errors.Is(err, ErrNotLocal) {
					t.Fatal(err)
				}
			}
		}
		_, err := l.BeginEpoch(epoch)
		must(t, err)
		for range 20 {
			id++
			_, err := l.Append(rec(id))
			must(t, err)
		}
	}
	close(stop)
	wg.Wait()
	must(t, l.Wait(t.Context(), l.End()))
	want := lines(t, l, Position{})
	wantLines(t, s.restart(t), want...)
}
