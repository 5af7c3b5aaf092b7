// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// make makes a file.
func (h *host) make(name string) volume.Handle {
	h.Helper()
	c, err := h.Create(context.Background(), asRoot, volume.Root, name, volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
	if err != nil {
		h.Fatal(err)
	}
	return c.Attr.Handle
}

// take takes a snapshot.
func (h *host) take(name string) volume.Snapshot {
	h.Helper()
	s, err := h.TakeSnapshot(context.Background(), asRoot, name)
	if err != nil {
		h.Fatal(err)
	}
	return s
}

// clean runs Clean.
func (h *host) clean() {
	h.Helper()
	if _, err := h.Clean(context.Background()); err != nil {
		h.Fatal(err)
	}
}

// beginRollback makes the given number of records of a rollback, the first one included.
func (h *host) beginRollback(name string, records int) {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h.journal.appended = func() {
		if records--; records <= 0 {
			cancel()
		}
	}
	err := h.Rollback(ctx, asRoot, name, "before "+name)
	h.journal.appended = nil
	if err == nil {
		h.Fatal("the rollback is done")
	}
}

// lastFails is a journal without room for the record that ends a rollback.
type lastFails struct {
	*memJournal
	on bool
}

func (j *lastFails) Append(ctx context.Context, rec *segment.Record) (segment.Position, error) {
	v, err := versionsIn([][]segment.Op{rec.Ops})
	if err == nil && j.on && v != nil && v.Rolling == 0 {
		return segment.Position{}, journal.ErrFull
	}
	return j.memJournal.Append(ctx, rec)
}

// TestRollbackWhoseLastRecordFails: as long as the log does not say that a rollback is done, nobody
// changes anything. Else the next home would undo it.
func TestRollbackWhoseLastRecordFails(t *testing.T) {
	j := &lastFails{}
	h := newHostOver(t, nil, func(m *memJournal) journal.Journal {
		j.memJournal = m
		return j
	})
	h.make("before")
	h.take("one")
	h.make("after")
	j.on = true
	if err := h.Rollback(context.Background(), asRoot, "one", "before one"); err == nil {
		t.Fatal("the rollback is done")
	}
	j.on = false
	args := volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded}
	if _, err := h.Create(context.Background(), asRoot, volume.Root, "meanwhile", args); !errors.Is(err, volume.ErrDelay) {
		t.Errorf("a change before the rollback is done: %v", err)
	}
	h.clean()
	h.make("new")
	h.crash()
	h.clean()
	if _, err := h.Lookup(context.Background(), asRoot, volume.Root, "new"); err != nil {
		t.Errorf("what was acknowledged after the rollback: %v", err)
	}
}

// TestRollbackThatDoesNotBegin: nothing is refused because of a rollback without a record.
func TestRollbackThatDoesNotBegin(t *testing.T) {
	full := false
	h := newHostOver(t, nil, func(m *memJournal) journal.Journal { return &noRoom{m, &full} })
	h.take("one")
	full = true
	if err := h.Rollback(context.Background(), asRoot, "one", "before one"); !errors.Is(err, volume.ErrNoSpace) {
		t.Errorf("without room: %v", err)
	}
	full = false
	h.make("f")
}

// noRoom is a journal that has no room while full.
type noRoom struct {
	*memJournal
	full *bool
}

func (j *noRoom) Append(ctx context.Context, rec *segment.Record) (segment.Position, error) {
	if *j.full {
		return segment.Position{}, journal.ErrFull
	}
	return j.memJournal.Append(ctx, rec)
}

// TestLateLookDuringRollback: what was looked at in the middle of a rollback is shown to nobody,
// also if the rollback is done by then.
func TestLateLookDuringRollback(t *testing.T) {
	h := newHost(t, nil)
	h.take("one")
	h.make("f")
	h.beginRollback("one", 2)
	tree, err := h.look()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tree.view.Close() }()
	h.clean()
	if _, err := tree.inode(volume.Root); !errors.Is(err, volume.ErrDelay) {
		t.Errorf("the root in the middle of a rollback: %v", err)
	}
}

// TestRollerOfAnEarlierRollback: one rollback does not go on where another one was.
func TestRollerOfAnEarlierRollback(t *testing.T) {
	h := newHost(t, nil)
	h.make("a")
	h.take("one")
	h.make("b")
	h.take("two")
	h.make("c")
	h.beginRollback("two", 1)
	ctx := context.WithValue(context.Background(), rollingKey{}, true)
	slow := roller{}
	step := func() {
		_, err := change(ctx, h.Engine, volume.Request{}, place{op: "step"}, countResult, false, func(t *tx) (int, error) {
			return 0, slow.step(t)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for slow.later < len(laterTables) {
		step()
	}
	h.clean() // another one ends it
	h.beginRollback("one", 1)
	for !slow.done {
		step()
	}
	if got := look(t, withLocks(h.Engine), volume.Root); bytes.Contains([]byte(got), []byte("/b")) {
		t.Errorf("after the rollback to one the volume has\n%s", got)
	}
}

// TestLargeAttributesAndRollback: the records of a rollback, of a removal and of Reap fit into the
// log however large what they change is.
func TestLargeAttributesAndRollback(t *testing.T) {
	h := newHost(t, nil)
	ctx := context.Background()
	f := h.make("f")
	value := make([]byte, volume.MaxXattr)
	set := func(b byte) {
		t.Helper()
		for i := range 300 {
			value[0] = b
			if _, err := h.SetXattr(ctx, asRoot, f, fmt.Sprint("user.", i), value, volume.XattrEither); err != nil {
				t.Fatal(err)
			}
		}
	}
	set(1)
	h.take("one")
	set(2)
	if err := h.Rollback(ctx, asRoot, "one", "before one"); err != nil {
		t.Fatal(err)
	}
	if got, err := h.GetXattr(ctx, asRoot, f, "user.299"); err != nil || got[0] != 1 {
		t.Fatal(err)
	}
	h.take("two")
	if _, err := h.Remove(ctx, asRoot, volume.Root, "f"); err != nil {
		t.Fatal(err)
	}
	if got, err := h.GetXattr(ctx, asRoot, at(f, h.newestGen()), "user.299"); err != nil || got[0] != 1 {
		t.Fatal(err)
	}
	if err := h.Rollback(ctx, asRoot, "two", "before two"); err != nil {
		t.Fatal(err)
	}
	if got, err := h.GetXattr(ctx, asRoot, f, "user.299"); err != nil || got[0] != 1 {
		t.Fatal(err)
	}
	h.checkUsed()
}

// newestGen returns the generation of the newest snapshot.
func (h *host) newestGen() uint32 {
	h.Helper()
	v, err := read(context.Background(), h.Engine, place{}, (*tree).versionsOf)
	if err != nil {
		h.Fatal(err)
	}
	return v.Newest
}

// TestCutOfManyExtents: a file with very many extents can be cut while a snapshot shows them.
func TestCutOfManyExtents(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Tuning.BlockSize = MinBlock })
	ctx := context.Background()
	f := h.make("f")
	const extents = 230_000
	h.extents(f, extents)
	snap := h.take("one")
	size := uint64(MinBlock)
	if _, err := h.SetAttr(ctx, asRoot, f, volume.SetAttr{Size: &size}); err != nil {
		t.Errorf("truncate: %v", err)
	}
	h.checkUsed()
	seen := func(h2 volume.Handle) (n int) {
		for off := uint64(0); ; {
			refs, next, err := h.Blocks(ctx, h2, off, 10_000)
			if err != nil {
				t.Fatal(err)
			}
			if n += len(refs); next == 0 {
				return n
			}
			off = next
		}
	}
	if n := seen(at(f, snap.Snap)); n != extents {
		t.Errorf("the snapshot has %d extents", n)
	}
	if n := seen(f); n != 1 {
		t.Errorf("the file has %d extents", n)
	}
}

// extents gives a file that many extents, of which nothing is read.
func (h *host) extents(f volume.Handle, count int) {
	h.Helper()
	for done := 0; done < count; {
		at := place{op: "fill"}
		_, err := change(context.Background(), h.Engine, volume.Request{}, at, noResult, false, func(t *tx) (struct{}, error) {
			n, err := t.file(f)
			if err != nil {
				return struct{}{}, err
			}
			for range 5000 {
				if done == count {
					break
				}
				done++
				x := meta.Extent{Off: n.Size, Len: MinBlock, Raw: MinBlock,
					Ref: segment.BlockRef{Seq: 1, Off: uint64(1000 + 100*done), Len: 50, Counter: uint64(done)}}
				t.set(x.Encode(n.ContentID()))
				n.Size += MinBlock
				n.Used += MinBlock
			}
			t.changed(n)
			return struct{}{}, t.account(int64(n.Used)-int64(t.before(n)), 0)
		})
		if err != nil {
			h.Fatal(err)
		}
	}
}

// before returns how many bytes a file used before the change.
func (t *tx) before(n *meta.Inode) uint64 {
	value, _, _, err := t.view.Get(meta.InodeKey(n.Ino))
	if err != nil {
		panic(err)
	}
	was, err := meta.DecodeInode(meta.InodeKey(n.Ino), value)
	if err != nil {
		panic(err)
	}
	return was.Used
}

// TestCleanEndsWhileSnapshotsAreTaken: a volume that takes snapshots all the time is cleaned.
func TestCleanEndsWhileSnapshotsAreTaken(t *testing.T) {
	h := newHost(t, nil)
	f := h.make("f")
	h.extents(f, 3000)
	h.take("one")
	h.extents(f, 3000)
	zero := uint64(MinBlock)
	if _, err := h.SetAttr(context.Background(), asRoot, f, volume.SetAttr{Size: &zero}); err != nil {
		t.Fatal(err)
	}
	if err := h.DropSnapshot(context.Background(), asRoot, "one"); err != nil {
		t.Fatal(err)
	}
	taken := 0
	c, err := read(context.Background(), h.Engine, place{}, newCleaner)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; !c.done; i++ {
		if _, err := change(context.Background(), h.Engine, volume.Request{}, place{op: "clean"}, countResult, false, c.step); err != nil {
			t.Fatal(err)
		}
		if taken++; taken > 100 {
			t.Fatal("cleaning does not end")
		}
		h.take(fmt.Sprint("s", taken))
		if _, err := h.SetXattr(context.Background(), asRoot, f, "user.x", []byte{byte(taken)}, volume.XattrEither); err != nil {
			t.Fatal(err)
		}
	}
	v := withLocks(h.Engine)
	for i := 1; i < taken; i++ {
		root, err := v.Lookup(context.Background(), asRoot, at(volume.Root, volume.SnapshotDir), fmt.Sprint("s", i))
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.GetXattr(context.Background(), asRoot, at(f, root.Snap), "user.x")
		if want := []byte{byte(i - 1)}; i == 1 {
			if !errors.Is(err, volume.ErrNoXattr) {
				t.Errorf("s1: %v, %v", got, err)
			}
		} else if err != nil || !bytes.Equal(got, want) {
			t.Errorf("s%d: %v, %v", i, got, err)
		}
	}
}

// seconds is a volume that can be looked at as of any second.
type seconds struct {
	*host
	clock *clockwork.FakeClock
}

func newSeconds(t *testing.T, window time.Duration) *seconds {
	clock := clockwork.NewFakeClockAt(time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC))
	return &seconds{newHost(t, func(c *Config) {
		c.Now = clock.Now
		c.Tuning.Window = window
	}), clock}
}

// is reports whether the volume had a name as of a time. ok is false if nothing is known of then.
func (s *seconds) is(name string, then time.Time) (is, ok bool) {
	s.Helper()
	v := withLocks(s.Engine)
	root, err := v.Lookup(context.Background(), asRoot, at(volume.Root, volume.SnapshotDir), fmt.Sprint("@", then.Unix()))
	if errors.Is(err, volume.ErrNotExist) {
		return false, false
	}
	if err != nil {
		s.Fatal(err)
	}
	_, err = v.Lookup(context.Background(), asRoot, root.Handle, name)
	if err != nil && !errors.Is(err, volume.ErrNotExist) {
		s.Fatal(err)
	}
	return err == nil, true
}

// TestSecondAfterADrop: that a named snapshot is dropped does not change what a second had.
func TestSecondAfterADrop(t *testing.T) {
	for _, kind := range []string{"snapshot", "rollback"} {
		s := newSeconds(t, time.Hour)
		s.make("a")
		s.take("old")
		s.clock.Advance(10 * time.Second)
		then := s.clock.Now()
		s.clock.Advance(10*time.Second + 500*time.Millisecond)
		name := "one"
		if kind == "snapshot" {
			s.take(name)
		} else {
			if err := s.Rollback(context.Background(), asRoot, "old", "before"); err != nil {
				t.Fatal(err)
			}
			all, err := s.Snapshots(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			name = all[0].Name
		}
		s.make("b")
		s.clock.Advance(time.Second)
		s.make("c")
		if err := s.DropSnapshot(context.Background(), asRoot, name); err != nil {
			t.Fatal(err)
		}
		if is, ok := s.is("b", then); is || !ok {
			t.Errorf("%s: before it was made b is there: %t, and is known: %t", kind, is, ok)
		}
	}
}

// TestSecondAfterTheFirstExpired: the first second that is known is not answered with what a later
// one had.
func TestSecondAfterTheFirstExpired(t *testing.T) {
	s := newSeconds(t, time.Minute)
	s.clock.Advance(time.Second)
	then := s.clock.Now()
	s.make("a")
	s.clock.Advance(30 * time.Second)
	s.make("b")
	s.clock.Advance(45 * time.Second)
	s.clean()
	if is, ok := s.is("a", then); is {
		t.Errorf("before it was made a is there, and is known: %t", ok)
	}
}

// TestSecondsOfAVolumeAtRest: a volume that nobody changes can be looked at as of each second of
// its window, and not as of one that is to come.
func TestSecondsOfAVolumeAtRest(t *testing.T) {
	s := newSeconds(t, time.Minute)
	s.make("a")
	for range 10 {
		s.clock.Advance(time.Minute)
		s.clean()
	}
	for age, want := range map[time.Duration]bool{0: true, 30 * time.Second: true, -time.Hour: false} {
		is, ok := s.is("a", s.clock.Now().Add(-age))
		if is != want || ok != want {
			t.Errorf("%v ago a is there: %t, and is known: %t", age, is, ok)
		}
	}
}

// TestSecondOfASlowClock: a clock that goes far back ends what is known of seconds.
func TestSecondOfASlowClock(t *testing.T) {
	now := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	h := newHost(t, func(c *Config) {
		c.Now = func() time.Time { return now }
		c.Tuning.Window = time.Hour
	})
	s := &seconds{host: h}
	h.make("x")
	now = now.Add(time.Hour)
	h.make("a")
	now = now.Add(-time.Hour / 2)
	h.make("b")
	now = now.Add(time.Minute)
	h.make("c")
	if is, ok := s.is("b", now.Add(-time.Second)); ok && !is {
		t.Error("after it was made b is not there")
	}
}

// TestMomentIsShownWhenCommitted: an unstable write that takes a moment waits for its commit. Who
// sees a moment must not see another one under its number later.
func TestMomentIsShownWhenCommitted(t *testing.T) {
	s := newSeconds(t, time.Hour)
	f := s.make("a")
	s.clock.Advance(time.Second)
	s.journal.holdCommits()
	waited := false
	s.journal.beforeWait = func() {
		waited = true
		s.journal.release()
	}
	if _, err := s.Write(context.Background(), asRoot, f, 0, []byte("x"), false); err != nil {
		t.Fatal(err)
	}
	if !waited {
		t.Error("the write with the moment is acknowledged before the moment is committed")
	}
	s.journal.release()
}
