// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// slowJournal lets no record in until free is closed.
type slowJournal struct {
	*memJournal
	waits chan struct{}
	free  chan struct{}
}

func (j *slowJournal) Append(ctx context.Context, rec *segment.Record) (segment.Position, error) {
	if rec.Slot != "" {
		select {
		case j.waits <- struct{}{}:
		default:
		}
		select {
		case <-j.free:
		case <-ctx.Done():
			return segment.Position{}, ctx.Err()
		}
	}
	return j.memJournal.Append(ctx, rec)
}

func request(seq uint32, yield context.Context) volume.Request {
	return volume.Request{ID: volume.OpID{Slot: "slot", Seq: seq}, Yield: yield}
}

// TestYield: a change that waits and has changed nothing ends with ErrDelay when it is to yield: in
// the journal, behind another change, and for room.
func TestYield(t *testing.T) {
	j := &slowJournal{waits: make(chan struct{}, 1), free: make(chan struct{})}
	h := newHostOver(t, nil, func(m *memJournal) journal.Journal {
		j.memJournal = m
		return j
	})
	f := newFile(t, h, volume.Root, "f")
	write := func(r volume.Request) chan error {
		done := make(chan error, 1)
		go func() { done <- second(h.Write(context.Background(), r, f, 0, []byte("data"), true)) }()
		return done
	}
	yield, end := context.WithCancel(t.Context())
	first := write(request(1, yield))
	<-j.waits
	behind := write(volume.Request{ID: volume.OpID{Slot: "other", Seq: 1}, Yield: yield})
	end()
	wantOutcome(t, "change that the journal holds back", <-first, volume.ErrDelay)
	wantOutcome(t, "change behind it", <-behind, volume.ErrDelay)
	close(j.free)
	before := records(h)
	for range 2 {
		if err := <-write(request(1, nil)); err != nil || records(h) != before+1 {
			t.Errorf("the change, asked for again: %v, %d records more", err, records(h)-before)
		}
	}
}

// TestNoYieldOnceAppended: a change that has a record waits for its commit although it is to yield.
// One that changes nothing, and a Commit, end.
func TestNoYieldOnceAppended(t *testing.T) {
	h := newHost(t, nil)
	f := newFile(t, h, volume.Root, "f")
	h.journal.holdCommits()
	yield, end := context.WithCancel(t.Context())
	changes, nothing, commit := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	before := records(h)
	mode := uint32(0o600)
	go func() {
		_, err := h.SetAttr(context.Background(), request(1, yield), f, volume.SetAttr{Mode: &mode})
		changes <- err
	}()
	waitFor(func() bool { return records(h) > before })
	end()
	go func() {
		r := volume.Request{ID: volume.OpID{Slot: "other", Seq: 1}, Yield: yield}
		_, err := h.Remove(context.Background(), r, f, "none")
		nothing <- err
	}()
	go func() {
		_, err := h.Commit(context.Background(), volume.Request{Yield: yield}, f)
		commit <- err
	}()
	wantOutcome(t, "change that would change nothing", <-nothing, volume.ErrDelay)
	wantOutcome(t, "commit", <-commit, volume.ErrDelay)
	select {
	case err := <-changes:
		t.Errorf("a change that has a record ends with %v", err)
	default:
	}
	h.journal.release()
	if err := <-changes; err != nil {
		t.Error(err)
	}
}

// TestYieldForRoom: a write that waits for room in the log ends with ErrDelay, not as if there were
// no room.
func TestYieldForRoom(t *testing.T) {
	j := &fullJournal{waits: make(chan struct{}, 1), room: make(chan error, 1)}
	h := newHostOver(t, nil, func(m *memJournal) journal.Journal {
		j.memJournal = m
		return j
	})
	f := newFile(t, h, volume.Root, "f")
	yield, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- second(h.Write(context.Background(), request(1, yield), f, 0, []byte("data"), true)) }()
	<-j.waits
	end()
	wantOutcome(t, "write that waits for room", <-done, volume.ErrDelay)
}
