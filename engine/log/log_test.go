// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/engine/segment"
)

func textLogger(b *bytes.Buffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func TestAppendAndReplay(t *testing.T) {
	s := newSetup(1)
	s.size = 1 << 20
	l := s.mustOpen(t)
	if l.End() != (Position{}) || l.Recovered() != (Recovered{}) {
		t.Fatal(l.End(), l.Recovered())
	}
	_, err := l.Append(rec(1))
	wantErr(t, err, ErrNoEpoch)
	wantErr(t, l.Roll(), ErrNoEpoch)
	_, _, err = l.Read(t.Context(), Position{}, 100)
	wantErr(t, err, io.EOF)

	start, err := l.BeginEpoch(5)
	must(t, err)
	if start != (Position{}) {
		t.Fatal(start)
	}
	end := appendSync(t, l, 1, 2, 3)
	if l.End() != end || l.Durable() != end {
		t.Fatal(l.End(), l.Durable(), end)
	}
	must(t, l.Roll())
	must(t, l.Roll()) // nothing to close
	appendSync(t, l, 4)
	second, err := l.BeginEpoch(9)
	must(t, err)
	_, err = l.BeginEpoch(9)
	wantErr(t, err, ErrStaleEpoch)
	want := []string{"segment 1 epoch 5", "record 1", "record 2", "record 3", "segment 2 epoch 5", "record 4", "segment 3 epoch 9"}
	wantLines(t, l, want...)
	if e := l.Epochs(); len(e) != 2 || e[0].Epoch != 5 || e[0].Start != (Position{}) || e[1].Epoch != 9 || e[1].Start != second ||
		e[0].Salt == e[1].Salt {
		t.Fatal(e)
	}
	if segs := l.Segments(); len(segs) != 2 || segs[0].Len != end.Off || segs[1].Prev.Hash != segs[0].Hash || !segs[0].Local {
		t.Fatalf("%+v", segs)
	}
	must(t, l.Close())
	wantErr(t, l.Roll(), ErrClosed)
	must(t, l.Close())

	l = s.restart(t)
	wantLines(t, l, want...)
	if l.Recovered() != (Recovered{End: l.End()}) || l.Durable() != l.End() {
		t.Fatalf("%+v", l.Recovered())
	}
	if e := l.Epochs(); len(e) != 2 || e[1].Epoch != 9 || e[1].Start != second {
		t.Fatal(e)
	}
	// protocol-16: after a restart nothing is sealed before a new epoch and salt.
	_, err = l.Append(rec(5))
	wantErr(t, err, ErrNoEpoch)
	_, err = l.BeginEpoch(9)
	wantErr(t, err, ErrStaleEpoch)
	_, err = l.BeginEpoch(10)
	must(t, err)
	appendSync(t, l, 5)
	wantLines(t, l, append(want, "segment 4 epoch 10", "record 5")...)
}

func TestReadSizes(t *testing.T) {
	s := newSetup(2)
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	for id := range 40 {
		_, err := l.Append(rec(id))
		must(t, err)
	}
	want := allFrames(t, l, 1<<30)
	check := func(l *Log) {
		t.Helper()
		for _, max := range []int{0, 1, 200, 700, 5000} {
			if got := allFrames(t, l, max); !bytes.Equal(got, want) {
				t.Fatalf("max %d: %d bytes, want %d", max, len(got), len(want))
			}
		}
	}
	check(l) // from memory
	must(t, l.Wait(t.Context(), l.End()))
	l.trim()
	check(l) // from files
	check(s.restart(t))
	_, _, err = l.Read(t.Context(), Position{Seq: 99}, 1)
	wantErr(t, err, ErrGap)
	l = s.restart(t)
	_, _, err = l.Read(t.Context(), Position{Seq: 1, Off: 130}, 1) // not the start of a frame
	wantErr(t, err, segment.ErrCorrupt)
	first := l.Segments()[0]
	a, _, err := l.Read(t.Context(), Position{Seq: 1, Off: first.Len}, 1)
	must(t, err)
	b, _, err := l.Read(t.Context(), Position{Seq: 2}, 1)
	must(t, err)
	if !bytes.Equal(a, b) || len(a) != segment.HeaderSize {
		t.Fatal("the end of a segment and the start of the next are one position")
	}
}

func TestTailKeepsTheNewest(t *testing.T) {
	s := newSetup(3)
	s.size = 1 << 20
	l := s.mustOpen(t)
	l.tail.max = 40 << 10
	_, err := l.BeginEpoch(1)
	must(t, err)
	for id := range 500 {
		_, err := l.Append(rec(id))
		must(t, err)
	}
	if l.tail.size > 100<<10 || len(l.tail.chunks) == 0 || l.tail.chunks[0].start.Off == 0 {
		t.Fatalf("%d bytes in %d chunks", l.tail.size, len(l.tail.chunks))
	}
	if got := len(lines(t, l, Position{})); got != 501 {
		t.Fatal(got)
	}
}

func TestPoison(t *testing.T) {
	for name, fail := range map[string]func(*crashfs.Disk){
		"fsync": func(d *crashfs.Disk) { d.FailSync(1) },
		"write": func(d *crashfs.Disk) { d.FailWrite(1) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(4)
			l := s.mustOpen(t)
			_, err := l.BeginEpoch(1)
			must(t, err)
			end := appendSync(t, l, 1)
			told := make(chan error, 10)
			l.OnDurable(func(p Position, err error) {
				if p.Compare(end) > 0 {
					t.Errorf("durable at %v", p)
				}
				told <- err
			})
			fail(s.disk)
			after, err := l.Append(rec(2))
			if err == nil {
				err = l.Wait(t.Context(), after)
			}
			wantErr(t, err, ErrPoisoned)
			wantErr(t, err, crashfs.ErrIO)
			said := <-told
			if said == nil {
				said = <-told // what came first was of the fsync before
			}
			wantErr(t, said, ErrPoisoned)
			if l.Durable() != end {
				t.Fatal(l.Durable())
			}
			_, err = l.Append(rec(3))
			wantErr(t, err, ErrPoisoned)
			_, err = l.BeginEpoch(2)
			wantErr(t, err, ErrPoisoned)
			wantErr(t, l.Truncate(Position{}), ErrPoisoned)
			wantErr(t, l.Roll(), ErrPoisoned)
			wantErr(t, l.MarkStored(nameOf(t, l, 1)), ErrPoisoned)
			wantErr(t, l.Wait(t.Context(), end), ErrPoisoned)
			_, err = l.Ingest(end, nil)
			wantErr(t, err, ErrPoisoned)
			_, _, err = l.Read(t.Context(), Position{}, 1)
			wantErr(t, err, ErrPoisoned)
			_, err = readBlock(t.Context(), l, segment.BlockRef{Seq: 1})
			wantErr(t, err, ErrPoisoned)
			wantErr(t, l.Close(), ErrPoisoned)
			select {
			case err := <-told:
				t.Fatalf("told twice: %v", err)
			default:
			}
		})
	}
}

func TestRoom(t *testing.T) {
	s := setup{disk: newDisk(5, 64<<10), size: 8 << 10}
	store := newSource("store")
	s.sources = []Source{store}
	l, pool, err := s.open()
	must(t, err)
	_, err = l.BeginEpoch(1)
	must(t, err)
	big := func() *segment.Record {
		r := rec(1)
		for range 40 {
			r.Blocks = append(r.Blocks, segment.Block{Raw: blockOf(1)})
		}
		r.Result = make([]byte, 20<<10)
		return r
	}
	n := 0
	for ; ; n++ {
		if _, err = l.Append(big()); err != nil {
			break
		}
	}
	wantErr(t, err, cachepool.ErrFull)
	if n == 0 {
		t.Fatal("nothing fitted")
	}
	end := l.End()
	for id := 2; err == nil || id == 2; id++ { // small ones fit in what is left, but not in the reserve
		_, err = l.Append(rec(id))
	}
	wantErr(t, err, cachepool.ErrFull)
	_, err = l.Append(removal(2))
	must(t, err)
	must(t, l.Roll())
	for seq := range l.End().Seq - 1 {
		must(t, store.upload(l, seq+1))
		must(t, l.Evict(seq+1))
	}
	_, err = l.Append(big())
	must(t, err)
	must(t, l.Truncate(end))
	if used := pool.Room().Status().Used; used < 0 || used > int64(end.Off)+2*segment.HeaderSize {
		t.Fatalf("%d used", used)
	}
	must(t, l.Truncate(Position{}))
	if used := pool.Room().Status().Used; used != 0 {
		t.Fatalf("%d used by an empty log", used)
	}
}

func TestSaltNeverTwice(t *testing.T) {
	s := newSetup(6)
	s.rand = bytes.NewReader(bytes.Repeat([]byte{3}, 16+2*32))
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	_, err = l.BeginEpoch(2)
	if err == nil || !strings.Contains(err.Error(), "protocol-16") {
		t.Fatal(err)
	}
	wantLines(t, l, "segment 1 epoch 1")
}

// gate is a directory in which fsync of a new segment's file waits.
type gate struct {
	cachepool.Dir
	entered, open chan struct{}
}

type gateFile struct {
	cachepool.File
	g *gate
}

func (g *gate) Create(name string) (cachepool.File, error) {
	f, err := g.Dir.Create(name)
	if _, ok := parseFileName(name); !ok {
		return f, err
	}
	return &gateFile{f, g}, err
}

func (f *gateFile) Sync() error {
	f.g.entered <- struct{}{}
	<-f.g.open
	return f.File.Sync()
}

func TestGroupCommit(t *testing.T) {
	s := newSetup(7)
	s.size = 1 << 20
	g := &gate{entered: make(chan struct{}, 100), open: make(chan struct{}, 100)}
	s.wrap = func(d cachepool.Dir) cachepool.Dir { g.Dir = d; return g }
	l := s.mustOpen(t)
	g.open <- struct{}{} // the header's
	_, err := l.BeginEpoch(1)
	must(t, err)
	<-g.entered
	first, err := l.Append(rec(1))
	must(t, err)
	done := make(chan error, 20)
	wait := func(p Position) { go func() { done <- l.Wait(context.Background(), p) }() }
	wait(first)
	<-g.entered // the first fsync runs; all later requests share the next one
	for id := range 10 {
		p, err := l.Append(rec(id))
		must(t, err)
		l.Sync(p)
		wait(p)
	}
	g.open <- struct{}{}
	must(t, <-done)
	<-g.entered
	if d := l.Durable(); d != first {
		t.Fatalf("durable %v while the second fsync runs, want %v", d, first)
	}
	g.open <- struct{}{}
	for range 10 {
		must(t, <-done)
	}
	if len(g.entered) != 0 || l.Durable() != l.End() {
		t.Fatal("more fsyncs than two")
	}
	// The syncer ends when there is nothing to do.
	l.syncers.Wait()
}

func TestOnDurableInOrder(t *testing.T) {
	s := newSetup(8)
	l := s.mustOpen(t)
	var last Position
	got := make(chan Position, 1000)
	l.OnDurable(func(p Position, err error) {
		if err != nil || p.Less(last) {
			t.Errorf("%v after %v: %v", p, last, err)
		}
		last = p
		got <- p
	})
	_, err := l.BeginEpoch(1)
	must(t, err)
	for id := range 50 {
		_, err := l.Append(rec(id))
		must(t, err)
		l.Sync(l.End())
	}
	for p := range got {
		if p == l.End() {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, l.Wait(ctx, Position{Seq: 99}), ErrGap)
}

func TestSyncBytes(t *testing.T) {
	s := newSetup(9)
	l := s.mustOpen(t)
	l.cfg.SyncBytes = 100
	_, err := l.BeginEpoch(1)
	must(t, err)
	end, err := l.Append(rec(3))
	must(t, err)
	for l.Durable() != end { // nobody asked for it
		l.mu.Lock()
		ch := l.changed
		done := l.durable == end
		l.mu.Unlock()
		if !done {
			<-ch
		}
	}
}

func TestConfig(t *testing.T) {
	good := func() Config {
		pool, err := newDisk(1, 1<<20).Open()
		must(t, err)
		dir, err := pool.Volume("v")
		must(t, err)
		return Config{Dir: dir, Room: pool.Room(), Volume: testVolume, DataKey: testKey, Rand: salts}
	}
	for name, spoil := range map[string]func(*Config){
		"dir": func(c *Config) { c.Dir = nil }, "room": func(c *Config) { c.Room = nil }, "rand": func(c *Config) { c.Rand = nil },
		"volume": func(c *Config) { c.Volume = segment.VolumeID{} }, "key": func(c *Config) { c.DataKey = segment.DataKey{} },
		"small": func(c *Config) { c.SegmentSize = 10 }, "large": func(c *Config) { c.SegmentSize = 1 << 30 },
	} {
		c := good()
		spoil(&c)
		if _, err := Open(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	l, err := Open(good())
	must(t, err)
	must(t, l.Close())
	if err := errors.Join(l.Close()); err != nil {
		t.Fatal(err)
	}
}

// viewer is a Viewer.
type viewer func(r *segment.Record, end Position)

func (v viewer) Show(r *segment.Record, end Position) { v(r, end) }

// TestShowComesFirst: no reader sees a record before it is shown, and whoever then reads its blocks
// finds them. A record that is refused is not shown.
func TestShowComesFirst(t *testing.T) {
	s := newSetup(1)
	l := s.mustOpen(t)
	defer func() { must(t, l.Close()) }()
	l.ShowTo(viewer(func(*segment.Record, Position) { t.Error("showed a record that was refused") }))
	_, err := l.Append(rec(1))
	wantErr(t, err, ErrNoEpoch)
	_, err = l.BeginEpoch(1)
	must(t, err)
	for range 50 { // over several segments
		r := &segment.Record{Blocks: []segment.Block{{Raw: []byte("block")}},
			Ops: []segment.Op{{Kind: segment.SetBlock, Key: []byte("key")}}}
		shown, read := Position{}, make(chan error, 1)
		l.ShowTo(viewer(func(got *segment.Record, end Position) {
			if shown = end; got != r {
				t.Error("showed another record")
			}
			if l.mu.TryLock() {
				l.mu.Unlock()
				t.Errorf("the record that ends at %v can be read before it is shown, or when it is shown not yet", end)
			}
			go func() {
				b, err := l.ReadBlocks(context.Background(), []segment.BlockRef{r.Blocks[0].Ref})
				if err == nil && string(b[0]) != "block" {
					err = fmt.Errorf("read %q", b)
				}
				read <- err
			}()
		}))
		end, err := l.Append(r)
		must(t, err)
		must(t, <-read)
		if shown != end || l.End() != end {
			t.Fatalf("showed %v, appended %v, the log ends at %v", shown, end, l.End())
		}
	}
	if l.End().Seq < 2 {
		t.Error("all in one segment")
	}
}
