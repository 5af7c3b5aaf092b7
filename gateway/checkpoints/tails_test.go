// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// pieces returns the names of the pieces that the store has.
func (y *year) pieces() (names []string) {
	y.Helper()
	y.must(y.store.List(y.Context(), y.copy.UUID+segment.PieceFolder, func(i store.Info) error {
		names = append(names, i.Name)
		return nil
	}))
	return names
}

// minutes lets time pass, with a change every ten seconds.
func (y *year) minutes(n int) {
	y.Helper()
	for range n * 6 {
		y.step++
		_, err := y.engine.Write(y.Context(), volume.Request{}, y.page, 0, []byte{byte(y.step)}, true)
		y.must(err)
		y.tick()
		y.keeper.tailAll(y.Context(), []Copy{y.copy})
	}
}

// ends waits until a segment has ended. The replica may see the time later than the test.
func (y *year) ends(when string, seq uint64) {
	y.Helper()
	y.until(when+" a segment ends", func() bool {
		if y.log.End().Seq > seq {
			return true
		}
		time.Sleep(time.Millisecond)
		y.tick()
		return false
	})
}

// TestPieces: what is committed is in the store in time, in pieces, and they go when the store has
// the whole segment, and not before.
func TestPieces(t *testing.T) {
	y := newYear(t, time.Minute, true)
	y.page = y.file("page")
	y.minutes(5)
	before := y.log.End()
	y.minutes(1)
	if got := y.stored(); got.Less(before) || before.Seq != 1 {
		t.Fatalf("the store has the log up to %s, and it ended at %s a minute ago", got, before)
	}

	// The store takes nothing: all is put later.
	n := len(y.pieces())
	y.store.SetFault(func(op, _ string) error {
		if op == "put" {
			return errors.New("no")
		}
		return nil
	})
	y.minutes(3)
	if len(y.pieces()) != n {
		t.Fatal("pieces are there that were refused")
	}
	y.store.SetFault(nil)
	before = y.log.End()
	y.minutes(1)
	if got := y.stored(); got.Less(before) {
		t.Fatalf("the store has the log up to %s, and it ended at %s", got, before)
	}

	// The segment ends, and is not in the store: its pieces stay, and those of the next one wait.
	y.store.SetFault(func(op, name string) error {
		if op == "put" && !strings.Contains(name, segment.PieceFolder) {
			return errors.New("no")
		}
		return nil
	})
	had := y.pieces()
	y.copy.Replica.Roll()
	y.until("the segment ends", func() bool { _, closed := y.log.Segment(1); return closed })
	y.minutes(3)
	if !slices.Equal(y.pieces(), had) {
		t.Fatalf("pieces %q, want %q", y.pieces(), had)
	}
	// Another process of the gateway goes on.
	y.keeper = y.newKeeper()
	aside := true
	y.copy.Aside = func() bool { return aside }
	y.store.SetFault(nil)
	y.until("the segment is in the store", func() bool { y.clock.Advance(time.Second); return y.copy.Replica.UploadQueue() == 0 })
	y.minutes(2)
	if now := y.pieces(); !slices.Equal(now[:len(had)], had) || len(now) == len(had) {
		t.Fatalf("pieces %q, want %q and more: a copy is kept aside", now, had)
	}
	aside = false
	y.minutes(1)
	for _, name := range y.pieces() {
		if slices.Contains(had, name) {
			t.Fatalf("%s is there, as is the segment", name)
		}
	}
	if got, end := y.stored(), y.log.End(); got.Seq != end.Seq {
		t.Fatalf("the store has the log up to %s, which ends at %s", got, end)
	}
}

// TestSmallSegmentsLast: a home ends a small segment when it is old, and not before.
func TestSmallSegmentsLast(t *testing.T) {
	y := newYear(t, time.Minute, true)
	y.page = y.file("page")
	y.minutes(30)
	if end := y.log.End(); end.Seq != 1 {
		t.Fatalf("after half an hour the log ends at %s", end)
	}
	y.minutes(10)
	y.ends("after 40 minutes", 1)
	// Where a copy puts no pieces, segments end in time.
	y = newYear(t, time.Minute, false)
	y.page = y.file("page")
	for range 10 {
		before := y.log.End().Seq
		y.minutes(1)
		y.ends("within a minute", before)
	}
	if len(y.pieces()) > 0 {
		t.Fatalf("there are %q", y.pieces())
	}
}

func TestSuperseded(t *testing.T) {
	salt := [32]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}
	s := log.SegmentInfo{Seq: 3, Salt: salt, Len: 500, Uploaded: true}
	p := segment.Piece{Seq: 3, Salt: [8]byte(salt[:8]), From: 100, To: 500}
	for what, x := range map[string]struct {
		p    segment.Piece
		s    log.SegmentInfo
		want bool
	}{
		"the store has the segment":           {p, s, true},
		"it was condemned and dropped":        {p, log.SegmentInfo{Seq: 3, Salt: salt, Len: 500, Dropped: true}, true},
		"the store does not have the segment": {p, log.SegmentInfo{Seq: 3, Salt: salt, Len: 500, Local: true}, false},
		"the segment ended before":            {p, log.SegmentInfo{Seq: 3, Salt: salt, Len: 499, Uploaded: true}, false},
		"another home began that segment":     {p, log.SegmentInfo{Seq: 3, Salt: [32]byte{1}, Len: 500, Uploaded: true}, false},
	} {
		if got := superseded(x.p, x.s); got != x.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}
