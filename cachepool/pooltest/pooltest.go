// SPDX-License-Identifier: Apache-2.0

// Package pooltest is the suite that every cachepool.Pool passes. A second implementation's test is
// a Harness and a call of Run.
package pooltest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"reflect"
	"sync"
	"testing"

	"github.com/weir-storage/weir/cachepool"
)

// Gateway owns the suite's pools; Limit is their room.
const (
	Gateway = "ams-1"
	Limit   = 32 << 20
)

// Harness is one pool that is not open. Open may be called again after Close.
type Harness struct {
	Open func() (cachepool.Pool, error)
}

// Run runs the suite; start is called once per test.
func Run(t *testing.T, start func(t *testing.T) Harness) {
	tests := []struct {
		name string
		run  func(*fixture)
	}{
		{"Identity", identity},
		{"Lock", lock},
		{"Volumes", volumes},
		{"Files", files},
		{"Rename", rename},
		{"ReadWrite", readWrite},
		{"Overlap", overlap},
		{"Closed", closed},
		{"Names", names},
		{"Room", room},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := &fixture{T: t, h: start(t)}
			f.p = f.open()
			t.Cleanup(func() { _ = f.p.Close() })
			tt.run(f)
		})
	}
}

type fixture struct {
	*testing.T
	h Harness
	p cachepool.Pool
}

func (f *fixture) open() cachepool.Pool {
	f.Helper()
	p, err := f.h.Open()
	f.ok(err)
	return p
}

func (f *fixture) reopen() {
	f.Helper()
	f.ok(f.p.Close())
	f.p = f.open()
}

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("unexpected error: %v", err)
	}
}

func (f *fixture) is(err, want error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Fatalf("error is %v, want %v", err, want)
	}
}

func (f *fixture) volume(uuid string) cachepool.Dir {
	f.Helper()
	d, err := f.p.Volume(uuid)
	f.ok(err)
	return d
}

func (f *fixture) write(d cachepool.Dir, name, data string) {
	f.Helper()
	x, err := d.Create(name)
	f.ok(err)
	n, err := x.WriteAt([]byte(data), 0)
	if f.ok(err); n != len(data) {
		f.Fatalf("wrote %d of %d bytes", n, len(data))
	}
	f.ok(x.Sync())
	f.ok(x.Close())
}

func (f *fixture) has(d cachepool.Dir, name, data string) {
	f.Helper()
	x, err := d.Open(name)
	f.ok(err)
	defer func() { f.ok(x.Close()) }()
	size, err := x.Size()
	f.ok(err)
	p := make([]byte, size)
	if n, err := x.ReadAt(p, 0); n != len(p) || err != nil && (err != io.EOF || len(p) > 0) {
		f.Fatalf("read %d of %d bytes, %v", n, len(p), err)
	}
	if string(p) != data {
		f.Fatalf("file %s has %q, want %q", name, p, data)
	}
}

func (f *fixture) list(d cachepool.Dir, want ...cachepool.FileInfo) {
	f.Helper()
	got, err := d.List()
	f.ok(err)
	if len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
		f.Fatalf("files are %v, want %v", got, want)
	}
}

func identity(f *fixture) {
	id := f.p.Incarnation()
	if id.IsZero() || f.p.Boot() != 1 || f.p.Gateway() != Gateway {
		f.Fatalf("a new pool is %v, boot %d, gateway %s", id, f.p.Boot(), f.p.Gateway())
	}
	f.reopen()
	if f.p.Incarnation() != id || f.p.Boot() != 2 {
		f.Fatalf("opened again it is %v, boot %d, want %v, boot 2", f.p.Incarnation(), f.p.Boot(), id)
	}
	next, err := f.p.NewIncarnation()
	f.ok(err)
	if next == id || next.IsZero() || f.p.Incarnation() != next || f.p.Boot() != 1 {
		f.Fatalf("renewed it is %v, boot %d after %v", f.p.Incarnation(), f.p.Boot(), id)
	}
	f.reopen()
	if f.p.Incarnation() != next || f.p.Boot() != 2 {
		f.Fatalf("opened again it is %v, boot %d, want %v, boot 2", f.p.Incarnation(), f.p.Boot(), next)
	}
	if back, err := cachepool.ParseID(next.String()); err != nil || back != next {
		f.Fatalf("%v is read as %v, %v", next, back, err)
	}
}

func lock(f *fixture) {
	for range 2 {
		_, err := f.h.Open()
		f.is(err, cachepool.ErrLocked)
	}
	boot := f.p.Boot()
	f.reopen()
	if f.p.Boot() != boot+1 {
		f.Fatalf("boot went from %d to %d: an opening that was refused counts for nothing", boot, f.p.Boot())
	}
}

func volumes(f *fixture) {
	f.write(f.volume("v2"), "a", "2")
	f.write(f.volume("v1"), "a", "1")
	f.ok(f.volume("v1").Sync())
	f.ok(f.volume("v2").Sync())
	f.reopen()
	got, err := f.p.ListVolumes()
	f.ok(err)
	if !reflect.DeepEqual(got, []string{"v1", "v2"}) {
		f.Fatalf("volumes are %v", got)
	}
	f.has(f.volume("v1"), "a", "1")
	f.has(f.volume("v2"), "a", "2")
	f.ok(f.p.RemoveVolume("v1"))
	f.ok(f.p.RemoveVolume("v1"))
	f.list(f.volume("v1"))
	f.write(f.volume("v1"), "b", "new")
	f.is(f.p.RenameVolume("v3", "v4"), fs.ErrNotExist)
	f.is(f.p.RenameVolume("v2", "v1"), fs.ErrExist)
	f.has(f.volume("v1"), "b", "new")
	f.ok(f.p.RenameVolume("v2", "salvage-v2"))
	f.list(f.volume("v2"))
	f.reopen()
	f.has(f.volume("salvage-v2"), "a", "2")
	f.list(f.volume("v2"))
	if f.volume("v1").Path() == f.volume("v2").Path() {
		f.Fatal("two volumes share a path")
	}
}

func files(f *fixture) {
	d := f.volume("v")
	f.list(d)
	f.write(d, "b", "22")
	f.write(d, "a.log", "1")
	f.write(d, "empty", "")
	_, err := d.Create("b")
	f.is(err, fs.ErrExist)
	_, err = d.Open("none")
	f.is(err, fs.ErrNotExist)
	f.is(d.Remove("none"), fs.ErrNotExist)
	f.list(d, cachepool.FileInfo{Name: "a.log", Size: 1}, cachepool.FileInfo{Name: "b", Size: 2}, cachepool.FileInfo{Name: "empty"})
	f.ok(d.Sync())
	f.reopen()
	d = f.volume("v")
	f.has(d, "b", "22")
	f.has(d, "empty", "")
	x, err := d.Open("b")
	f.ok(err)
	f.ok(d.Remove("b"))
	p := make([]byte, 2)
	if _, err := x.ReadAt(p, 0); err != nil || string(p) != "22" {
		f.Fatalf("an open file goes on without its name: %q, %v", p, err)
	}
	f.ok(x.Close())
	f.write(d, "b", "new")
	f.has(d, "b", "new")
}

func rename(f *fixture) {
	d := f.volume("v")
	f.write(d, "a", "1")
	f.write(d, "b", "22")
	f.is(d.Rename("none", "c"), fs.ErrNotExist)
	f.ok(d.Rename("a", "b"))
	f.has(d, "b", "1")
	f.list(d, cachepool.FileInfo{Name: "b", Size: 1})
	f.ok(d.Rename("b", "c"))
	f.ok(d.Sync())
	f.reopen()
	f.list(f.volume("v"), cachepool.FileInfo{Name: "c", Size: 1})
}

func readWrite(f *fixture) {
	d := f.volume("v")
	x, err := d.Create("a")
	f.ok(err)
	write := func(s string, off int64) {
		f.Helper()
		_, err := x.WriteAt([]byte(s), off)
		f.ok(err)
	}
	write("hello", 0)
	write("J", 0)
	write("!", 8)
	f.has(d, "a", "Jello\x00\x00\x00!")
	f.ok(x.Truncate(3))
	f.has(d, "a", "Jel")
	f.ok(x.Truncate(5))
	f.has(d, "a", "Jel\x00\x00")
	f.ok(x.Forget()) // nothing is lost by it, synced or not
	f.has(d, "a", "Jel\x00\x00")
	f.ok(x.Sync())
	f.ok(x.Forget())
	f.has(d, "a", "Jel\x00\x00")
	p := bytes.Repeat([]byte("x"), 4)
	for _, tt := range []struct {
		off int64
		n   int
		err error
	}{{0, 4, nil}, {1, 4, nil}, {2, 3, io.EOF}, {5, 0, io.EOF}, {99, 0, io.EOF}} {
		if n, err := x.ReadAt(p, tt.off); n != tt.n || err != tt.err {
			f.Fatalf("read at %d: %d, %v, want %d, %v", tt.off, n, err, tt.n, tt.err)
		}
	}
	if _, err := x.WriteAt(p, -1); err == nil {
		f.Fatal("wrote before the beginning")
	}
	if _, err := x.ReadAt(p, -1); err == nil || err == io.EOF {
		f.Fatalf("read before the beginning: %v", err)
	}
	// The caller keeps what it wrote from.
	buf := []byte("mine")
	_, err = x.WriteAt(buf, 0)
	f.ok(err)
	copy(buf, "gone")
	f.has(d, "a", "mine\x00")
	f.ok(x.Sync())
	f.ok(x.Close())
}

// overlap: one file, many goroutines.
func overlap(f *fixture) {
	x, err := f.volume("v").Create("a")
	f.ok(err)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			for j := range 20 {
				at := int64(j*len(errs) + i)
				_, err := x.WriteAt([]byte{byte(i)}, at)
				p := make([]byte, 1)
				_, rerr := x.ReadAt(p, at)
				errs[i] = errors.Join(errs[i], err, rerr, x.Sync())
			}
		})
	}
	wg.Wait()
	f.ok(errors.Join(errs...))
	p := make([]byte, 20*len(errs))
	_, err = x.ReadAt(p, 0)
	f.ok(err)
	for i, b := range p {
		if int(b) != i%len(errs) {
			f.Fatalf("byte %d is %d", i, b)
		}
	}
	f.ok(x.Close())
}

func closed(f *fixture) {
	d := f.volume("v")
	x, err := d.Create("a")
	f.ok(err)
	y, err := d.Create("b")
	f.ok(err)
	f.ok(x.Close())
	f.is(x.Sync(), cachepool.ErrClosed)
	f.is(x.Forget(), cachepool.ErrClosed)
	_, err = x.WriteAt([]byte("x"), 0)
	f.is(err, cachepool.ErrClosed)
	f.is(x.Close(), cachepool.ErrClosed)
	f.ok(f.p.Close())
	f.is(f.p.Close(), cachepool.ErrClosed)
	_, err = y.WriteAt([]byte("x"), 0)
	f.is(err, cachepool.ErrClosed)
	f.is(y.Sync(), cachepool.ErrClosed)
	_ = y.Close() // or nobody can unmount what it is on
	_, err = d.Create("c")
	f.is(err, cachepool.ErrClosed)
	_, err = f.p.Volume("v")
	f.is(err, cachepool.ErrClosed)
	_, err = f.p.NewIncarnation()
	f.is(err, cachepool.ErrClosed)
	f.p = f.open()
}

func names(f *fixture) {
	d := f.volume("v")
	for _, n := range []string{"", ".", "..", ".a", "a/b", "/a", "a b", "a\x00", "ä", string(bytes.Repeat([]byte("x"), 129))} {
		_, err := d.Create(n)
		f.is(err, cachepool.ErrInvalid)
		_, err = d.Open(n)
		f.is(err, cachepool.ErrInvalid)
		f.is(d.Remove(n), cachepool.ErrInvalid)
		f.is(d.Rename(n, "a"), cachepool.ErrInvalid)
		f.is(d.Rename("a", n), cachepool.ErrInvalid)
		_, err = f.p.Volume(n)
		f.is(err, cachepool.ErrInvalid)
		f.is(f.p.RemoveVolume(n), cachepool.ErrInvalid)
		f.is(f.p.RenameVolume(n, "v"), cachepool.ErrInvalid)
		f.is(f.p.RenameVolume("v", n), cachepool.ErrInvalid)
	}
	f.write(d, "00000001-0a.seg_B", "x")
}

func room(f *fixture) {
	st := f.p.Room().Status()
	if st.Limit != Limit || st.Used != 0 || st.ReservedForDelete <= 0 {
		f.Fatalf("room of a new pool is %+v", st)
	}
	f.is(f.p.Room().Reserve(Limit), cachepool.ErrFull)
	f.write(f.volume("v"), "a", "12345")
	f.ok(f.volume("v").Sync())
	f.reopen()
	if st := f.p.Room().Status(); st.Used != 5 {
		f.Fatalf("after opening %d bytes are used, want 5", st.Used)
	}
}
