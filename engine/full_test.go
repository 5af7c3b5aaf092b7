// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// TestWriteOverManyExtents: a write may replace very many small extents. Its record must stay
// small. No home could ever append a record that is too large for the log.
func TestWriteOverManyExtents(t *testing.T) {
	h := newHost(t, nil)
	f := newFile(t, h, volume.Root, "f")
	want := make([]byte, maxPoints+100)
	for i := range want {
		want[i] = byte(i)
		if _, err := h.Write(t.Context(), asRoot, f, uint64(i), want[i:i+1], false); err != nil {
			t.Fatal(err)
		}
	}
	const from, n = 5, maxPoints + 50
	for i := range n {
		want[from+i] = 'x'
	}
	if _, err := h.Write(t.Context(), asRoot, f, from, want[from:from+n], true); err != nil {
		t.Fatal(err)
	}
	h.journal.mu.Lock()
	ops := len(h.journal.entries[len(h.journal.entries)-1].Record.Ops)
	h.journal.mu.Unlock()
	if ops > 10 {
		t.Errorf("the record has %d operations", ops)
	}
	check := func() {
		t.Helper()
		p := make([]byte, len(want)+10)
		k, eof, err := h.Read(t.Context(), asRoot, f, 0, p)
		if err != nil || !eof || string(p[:k]) != string(want) {
			t.Errorf("%d bytes differ, %v", k, err)
		}
		if a, err := h.GetAttr(t.Context(), asRoot, f); err != nil || a.Used != uint64(len(want)) {
			t.Errorf("uses %d bytes, %v", a.Used, err)
		}
	}
	check()
	h.crash()
	check()
}

// TestFullPoolTakesRemovals fills a small pool, first with data and then with names, until it
// accepts neither. Removing still works (protocol-15). So does the beginning of an epoch, without
// which no gateway could become home.
func TestFullPoolTakesRemovals(t *testing.T) {
	const limit = 1 << 20
	disk := crashfs.NewDisk(crashfs.Config{Gateway: "gateway", Limit: limit, Rand: mathrand.New(mathrand.NewPCG(5, 6))})
	pool, err := disk.Open()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := pool.Volume(testID.String())
	if err != nil {
		t.Fatal(err)
	}
	l, err := log.Open(log.Config{Dir: dir, Room: pool.Room(), Volume: segment.VolumeID(testID), DataKey: testKey,
		Rand: rand.Reader, Now: time.Now, Logger: slog.New(slog.DiscardHandler), SegmentSize: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.BeginEpoch(1); err != nil {
		t.Fatal(err)
	}
	e := openEngine(t, vfs.NewMem(), logJournal{l}, nil)
	l.ShowTo(e)
	defer func() {
		if err := errors.Join(e.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	}()
	l.OnDurable(func(pos segment.Position, err error) {
		if err == nil {
			e.Committed(pos)
		}
	})
	if err := e.Lead(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	f := newFile(t, e, volume.Root, "data")
	for off := uint64(0); ; off += 1000 {
		p := make([]byte, 1000)
		_, _ = rand.Read(p)
		if _, err = e.Write(t.Context(), asRoot, f, off, p, false); err != nil {
			break
		}
	}
	wantOutcome(t, "write to a full pool", err, volume.ErrNoSpace)
	names := 0
	for ; names < 10000; names++ {
		args := volume.CreateArgs{Type: volume.FIFO, Mode: volume.Guarded}
		if _, err = e.Create(t.Context(), asRoot, volume.Root, fmt.Sprint("f", names), args); err != nil {
			break
		}
	}
	wantOutcome(t, "create in a full pool", err, volume.ErrNoSpace)
	if _, err := e.Remove(t.Context(), asRoot, volume.Root, "data"); err != nil {
		t.Errorf("remove from a full pool: %v", err)
	}
	for i := range min(names, 5) {
		if _, err := e.Remove(t.Context(), asRoot, volume.Root, fmt.Sprint("f", i)); err != nil {
			t.Errorf("remove from a full pool: %v", err)
		}
	}
	if s, err := e.Space(t.Context()); err != nil || s.FreeBytes != s.TotalBytes {
		t.Errorf("space %+v, %v", s, err)
	}
	e.Unlead()
	if _, err := l.BeginEpoch(2); err != nil {
		t.Errorf("begin an epoch on a full pool: %v", err)
	}
}

// fullJournal has room for removals only, until room has a value. Its Append does not wait for
// room.
type fullJournal struct {
	*memJournal
	waits chan struct{}
	room  chan error
}

func (j *fullJournal) Append(ctx context.Context, rec *segment.Record) (segment.Position, error) {
	if len(rec.Blocks) > 0 && len(j.room) == 0 {
		return segment.Position{}, journal.ErrFull
	}
	return j.memJournal.Append(ctx, rec)
}

func (j *fullJournal) WaitRoom(ctx context.Context) error {
	j.waits <- struct{}{}
	select {
	case err := <-j.room:
		j.room <- err
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestWaitForRoomHoldsNobodyUp: while a write waits for room in the log, removals get through.
func TestWaitForRoomHoldsNobodyUp(t *testing.T) {
	for _, give := range []error{nil, errors.New("no use")} {
		j := &fullJournal{waits: make(chan struct{}, 1), room: make(chan error, 1)}
		h := newHostOver(t, nil, func(m *memJournal) journal.Journal {
			j.memJournal = m
			return j
		})
		f := newFile(t, h, volume.Root, "f")
		newFile(t, h, volume.Root, "g")
		r := volume.Request{ID: volume.OpID{Slot: "slot", Seq: 1}}
		write := func(ctx context.Context) error { return second(h.Write(ctx, r, f, 0, []byte("data"), true)) }
		result := make(chan error, 1)
		go func() { result <- write(context.Background()) }()
		<-j.waits
		// This hangs if the waiting write blocks it.
		if _, err := h.Remove(t.Context(), asRoot, volume.Root, "g"); err != nil {
			t.Fatal(err)
		}
		j.room <- give
		if give != nil {
			wantOutcome(t, "write that never finds room", <-result, volume.ErrNoSpace)
			continue
		}
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		before := records(h)
		if err := write(t.Context()); err != nil || records(h) != before {
			t.Errorf("repeat of the write: %v, %d records more", err, records(h)-before)
		}
	}
}
