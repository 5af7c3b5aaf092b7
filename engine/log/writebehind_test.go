// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/engine/segment"
)

// slowWrites is a directory in which writes to new segments' files of at least a chunk that is a
// frame's own wait until there is a word in open. entered gets one for each. No file is fsynced,
// cut or measured before left, which counts those that are to come, is 0.
type slowWrites struct {
	cachepool.Dir
	t             *testing.T
	entered, open chan struct{}
	left          atomic.Int64
}

type slowFile struct {
	cachepool.File
	d *slowWrites
}

func (d *slowWrites) Create(name string) (cachepool.File, error) {
	f, err := d.Dir.Create(name)
	if _, ok := parseFileName(name); !ok {
		return f, err
	}
	return &slowFile{f, d}, err
}

func (f *slowFile) WriteAt(p []byte, off int64) (int, error) {
	if len(p) >= ownChunk {
		f.d.entered <- struct{}{}
		<-f.d.open
		defer f.d.left.Add(-1)
	}
	return f.File.WriteAt(p, off)
}

func (f *slowFile) Sync() error {
	if n := f.d.left.Load(); n != 0 {
		f.d.t.Errorf("an fsync while %d frames are not written", n)
	}
	return f.File.Sync()
}

func (f *slowFile) Size() (int64, error) {
	if n := f.d.left.Load(); n != 0 {
		f.d.t.Errorf("somebody looks how long the file is while %d frames are not written", n)
	}
	return f.File.Size()
}

func (f *slowFile) Truncate(size int64) error {
	if n := f.d.left.Load(); n != 0 {
		f.d.t.Errorf("the file is cut to %d while %d frames are not written", size, n)
	}
	return f.File.Truncate(size)
}

// large appends a large record.
func (d *slowWrites) large(l *Log, rng *rand.Rand) (*segment.Record, Position) {
	d.t.Helper()
	d.left.Add(1)
	r, release := large(l, rng)
	end, err := l.Append(r)
	must(d.t, err)
	release()
	return r, end
}

// slowly opens a log whose large frames wait before they are written.
func slowly(t *testing.T, seed uint64) (*setup, *Log, *slowWrites) {
	t.Helper()
	s := newSetup(seed)
	s.size = 64 << 20
	d := &slowWrites{t: t, entered: make(chan struct{}, 100), open: make(chan struct{}, 100)}
	s.wrap = func(of cachepool.Dir) cachepool.Dir { d.Dir = of; return d }
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	return &s, l, d
}

// Large frames are written while others are appended. Nothing is durable, read, or cut before they
// are. What lies before them is read at once.
func TestWriteBehind(t *testing.T) {
	s, l, d := slowly(t, 21)
	first, err := l.Append(rec(1))
	must(t, err)
	must(t, l.Wait(t.Context(), first))
	rng := rand.New(rand.NewPCG(2, 1))
	var refs []segment.BlockRef
	var raws [][]byte
	for range 3 {
		r, _ := d.large(l, rng)
		refs, raws = append(refs, r.Blocks[0].Ref), append(raws, r.Blocks[0].Raw)
	}
	end, err := l.Append(rec(2))
	must(t, err)
	<-d.entered // the first one of them

	// What lies before is read.
	frames := make([]byte, first.Off)
	if _, err := l.ReadSegmentFile(1, frames, 0); err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 2)
	go func() { told <- l.Wait(t.Context(), end) }()
	type answer struct {
		b   []byte
		err error
	}
	read := make(chan answer, 1)
	go func() {
		b, err := readBlock(t.Context(), l, refs[2])
		read <- answer{b, err}
	}()
	for range 2 {
		select {
		case err := <-told:
			t.Fatalf("durable although it is not written: %v", err)
		case a := <-read:
			t.Fatalf("read although it is not written: %v", a.err)
		case d.open <- struct{}{}:
			<-d.entered // the next one is being written
		}
	}
	if l.Durable() != first {
		t.Fatalf("durable %v", l.Durable())
	}
	d.open <- struct{}{}
	must(t, <-told)
	a := <-read
	must(t, a.err)
	if !bytes.Equal(a.b, raws[2]) {
		t.Fatal("it differs")
	}

	// What is cut does not come back.
	d.large(l, rng)
	<-d.entered
	cut := make(chan error, 1)
	go func() { cut <- l.Truncate(end) }()
	select {
	case err := <-cut:
		t.Fatalf("cut while a frame was on its way: %v", err)
	case <-time.After(100 * time.Millisecond): // it has come to where it waits
	}
	d.open <- struct{}{}
	must(t, <-cut)
	must(t, l.Close())
	s.wrap = nil
	l = s.restart(t)
	if l.End() != end {
		t.Fatalf("the log ends at %v, and was cut at %v", l.End(), end)
	}
	got, err := readBlock(t.Context(), l, refs[1])
	must(t, err)
	if !bytes.Equal(got, raws[1]) {
		t.Fatal("it differs")
	}
	must(t, l.Close())
}

// A large frame that can not be written poisons the log, and nothing after it is durable.
func TestLargeFrameFails(t *testing.T) {
	s, l, d := slowly(t, 22)
	first, err := l.Append(rec(1))
	must(t, err)
	must(t, l.Wait(t.Context(), first))
	told := make(chan error, 10)
	l.OnDurable(func(_ Position, err error) {
		if err != nil {
			told <- err
		}
	})
	rng := rand.New(rand.NewPCG(3, 1))
	var ends []Position
	for range 2 {
		_, end := d.large(l, rng)
		ends = append(ends, end)
	}
	<-d.entered
	s.disk.FailWrite(1)
	for range ends {
		d.open <- struct{}{}
	}
	wantErr(t, <-told, ErrPoisoned) // nobody waits for it
	d.left.Store(0)                 // nothing is written any more
	err = l.Wait(t.Context(), ends[1])
	wantErr(t, err, ErrPoisoned)
	wantErr(t, err, crashfs.ErrIO)
	_, err = l.Append(rec(2))
	wantErr(t, err, ErrPoisoned)
	wantErr(t, l.Close(), ErrPoisoned)
	if n := len(d.entered); n != 0 {
		t.Errorf("%d frames were written behind one that was not", n)
	}
	s.wrap = nil
	l = s.restart(t)
	if l.End() != first {
		t.Fatalf("the log ends at %v, and was durable up to %v", l.End(), first)
	}
	must(t, l.Close())
}
