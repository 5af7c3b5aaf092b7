// SPDX-License-Identifier: Apache-2.0

package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/engine/segment"
)

var (
	testVolume = segment.VolumeID{0xaa, 1}
	testKey    = segment.DataKey{7, 7}
)

const testDir = "v"

func newDisk(seed uint64, limit int64) *crashfs.Disk {
	return newZeroedDisk(seed, limit, 0)
}

// newZeroedDisk is newDisk for a log that writes so many zeros ahead.
func newZeroedDisk(seed uint64, limit, zeros int64) *crashfs.Disk {
	return crashfs.NewDisk(crashfs.Config{Gateway: "gw", Limit: limit, Ahead: zeros, Rand: rand.New(rand.NewPCG(seed, 1))})
}

// source is a store in memory.
type source struct {
	mu      sync.Mutex
	label   string
	objects map[string][]byte
	reads   int
}

func newSource(label string) *source { return &source{label: label, objects: map[string][]byte{}} }

func (s *source) String() string { return s.label }

func (s *source) ReadSegment(_ context.Context, name string, off int64, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	b, ok := s.objects[name]
	if !ok {
		return fmt.Errorf("no object %s", name)
	}
	return readFull(bytes.NewReader(b), p, off)
}

// upload copies a closed segment into the store, as package replica does.
func (s *source) upload(l *Log, seq uint64) error {
	closed, err := l.closedSegment(seq)
	if err != nil {
		return err
	}
	b := make([]byte, closed.len)
	if _, err := l.ReadSegmentFile(seq, b, 0); err != nil {
		return err
	}
	if h, err := rehash(bytes.NewReader(b), closed.len); err != nil || h != closed.hash {
		return fmt.Errorf("segment %d is not what its name says: %v", seq, err)
	}
	s.mu.Lock()
	s.objects[closed.name()] = b
	s.mu.Unlock()
	return l.MarkStored(closed.name())
}

// damage changes one byte of each object.
func (s *source) damage(at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.objects {
		b[at%len(b)] ^= 1
	}
}

type setup struct {
	disk    *crashfs.Disk
	sources []Source
	size    int64
	rand    io.Reader
	known   Position
	believe Belief
	logger  *bytes.Buffer
	wrap    func(cachepool.Dir) cachepool.Dir
	keys    *segment.Keys
	blind   bool
}

var salts = rand.NewChaCha8([32]byte{99})

// open opens the pool, as a process that starts does, and the log on it.
func (s setup) open() (*Log, cachepool.Pool, error) {
	pool, err := s.disk.Open()
	if err != nil {
		return nil, nil, err
	}
	dir, err := pool.Volume(testDir)
	if err != nil {
		return nil, nil, err
	}
	if s.wrap != nil {
		dir = s.wrap(dir)
	}
	cfg := Config{
		Dir: dir, Room: pool.Room(), Volume: testVolume, DataKey: testKey, Sources: func() []Source { return s.sources }, Rand: s.rand,
		SegmentSize: s.size, SyncBytes: 1 << 40, KnownApplied: s.known, Believe: s.believe, Now: time.Now,
		Keys: s.keys,
	}
	if cfg.Rand == nil {
		cfg.Rand = salts
	}
	if s.blind {
		cfg.Blind, cfg.DataKey = true, segment.DataKey{}
	}
	if s.logger != nil {
		cfg.Logger = textLogger(s.logger)
	}
	l, err := Open(cfg)
	return l, pool, err
}

func (s setup) mustOpen(t testing.TB) *Log {
	t.Helper()
	l, _, err := s.open()
	must(t, err)
	return l
}

func newSetup(seed uint64) setup { return setup{disk: newDisk(seed, 1<<30), size: 2000} }

// restart ends the process without a crash, and starts another one.
func (s setup) restart(t testing.TB) *Log {
	t.Helper()
	s.disk.Kill()
	return s.mustOpen(t)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// rec makes a record that can be recognised by its id.
func rec(id int) *segment.Record {
	r := &segment.Record{Time: int64(id), Slot: "s", Ops: []segment.Op{{Kind: segment.Set, Key: fmt.Appendf(nil, "key %d", id)}}}
	if id%3 == 0 {
		r.Blocks = []segment.Block{{Raw: blockOf(id)}, {Raw: blockOf(id + 1)}}
		r.Ops = append(r.Ops, segment.Op{Kind: segment.SetBlock, Key: []byte("e"), Block: 1})
	}
	return r
}

func blockOf(id int) []byte {
	if id%2 == 0 {
		return bytes.Repeat([]byte{byte(id), 'x'}, 200) // compresses
	}
	b := make([]byte, 150)
	_, _ = rand.NewChaCha8([32]byte{byte(id), byte(id >> 8)}).Read(b) // never fails
	return b
}

func appendSync(t testing.TB, l *Log, ids ...int) Position {
	t.Helper()
	var end Position
	for _, id := range ids {
		var err error
		end, err = l.Append(rec(id))
		must(t, err)
	}
	must(t, l.Wait(t.Context(), end))
	return end
}

// line describes an entry. lines describes a log.
func line(e Entry) string {
	if e.Header != nil {
		return fmt.Sprintf("segment %d epoch %d", e.Header.Seq, e.Header.Epoch)
	}
	return fmt.Sprintf("record %d", e.Record.Time)
}

func lines(t testing.TB, l *Log, from Position) []string {
	t.Helper()
	var out []string
	pos := from
	must(t, l.Replay(t.Context(), from, func(e Entry) error {
		if !pos.Less(e.End) {
			t.Fatalf("entry ends at %v after %v", e.End, pos)
		}
		pos = e.End
		out = append(out, line(e))
		if e.Record != nil {
			for i, b := range e.Record.Blocks {
				raw, err := readBlock(t.Context(), l, b.Ref)
				if err != nil || !bytes.Equal(raw, blockOf(int(e.Record.Time)+i)) {
					t.Fatalf("record %d block %d: %v", e.Record.Time, i, err)
				}
			}
		}
		return nil
	}))
	if len(out) > 0 && pos != l.End() {
		t.Fatalf("replay ended at %v, the log at %v", pos, l.End())
	}
	return out
}

func wantLines(t testing.TB, l *Log, want ...string) {
	t.Helper()
	if got := lines(t, l, Position{}); !slices.Equal(got, want) {
		t.Fatalf("log has\n %s\nwant\n %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// allFrames reads a whole log, max bytes at a time.
func allFrames(t testing.TB, l *Log, max int) []byte {
	t.Helper()
	var out []byte
	var pos Position
	for {
		b, next, err := l.Read(t.Context(), pos, max)
		if err == io.EOF {
			return out
		}
		must(t, err)
		if len(b) == 0 || !pos.Less(next) {
			t.Fatalf("read %d bytes from %v to %v", len(b), pos, next)
		}
		out, pos = append(out, b...), next
	}
}

// readBlock reads one block.
func readBlock(ctx context.Context, l *Log, ref segment.BlockRef) ([]byte, error) {
	raws, err := l.ReadBlocks(ctx, []segment.BlockRef{ref})
	if err != nil {
		return nil, err
	}
	return raws[0], nil
}

// trim lets go of the frames that are kept in memory, so that reads go to the copies.
func (l *Log) trim() {
	l.writer.Lock()
	defer l.writer.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail.reset()
}

// nameOf is the name of a segment as it is now, closed or not.
func nameOf(t testing.TB, l *Log, seq uint64) string {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.find(seq)
	if !ok {
		t.Fatalf("there is no segment %d", seq)
	}
	return s.name()
}
