// SPDX-License-Identifier: Apache-2.0

package log

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
)

// TestDamageBelowTheWatermark: after a loss of power, each frame that was durable is damaged in
// turn. All that was carried by a later fsync is missed, and only the newest may be taken for torn.
func TestDamageBelowTheWatermark(t *testing.T) {
	for seed := range uint64(20) {
		for back := range 4 {
			s := newSetup(seed)
			s.size = 1 << 20
			l := s.mustOpen(t)
			_, err := l.BeginEpoch(1)
			must(t, err)
			ends := []Position{l.End()}
			for id := 1; id <= 4; id++ {
				ends = append(ends, appendSync(t, l, id))
			}
			s.disk.Crash()
			at := ends[len(ends)-1-back]
			s.disk.Damage(testDir, fileName(1), func(b []byte) []byte { b[at.Off-1] ^= 1; return b })
			l = s.mustOpen(t)
			doubt := l.Recovered().Doubt
			if back > 0 && (doubt == nil || !strings.Contains(doubt.Error(), "was durable up to")) {
				t.Fatalf("seed %d: the frame that ends at %v was durable and is damaged; doubt: %v", seed, at, doubt)
			}
			if doubt == nil {
				continue
			}
			if _, err = l.BeginEpoch(2); !errors.Is(err, ErrDoubt) {
				t.Fatalf("seed %d: the log goes on: %v", seed, err)
			}
		}
	}
}

// TestWatermarkIsKept: SyncWatermark keeps what no later fsync carries.
func TestWatermarkIsKept(t *testing.T) {
	for seed := range uint64(20) {
		s := newSetup(seed)
		l := s.mustOpen(t)
		_, err := l.BeginEpoch(1)
		must(t, err)
		end := appendSync(t, l, 1, 2)
		l.NoteCommitted(Position{Seq: 99})
		must(t, l.SyncWatermark())
		s.disk.Crash()
		l = s.mustOpen(t)
		if got := l.Recovered().Committed; got != end {
			t.Fatalf("seed %d: committed %v, want %v, which is durable", seed, got, end)
		}
		s.disk.Kill()
		s.disk.Damage(testDir, fileName(end.Seq), func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
		l = s.mustOpen(t)
		if l.Recovered().Doubt == nil {
			t.Fatalf("seed %d: the newest frame was durable and is damaged", seed)
		}
		must(t, l.Truncate(l.End()))
		if l = s.restart(t); l.Recovered().Doubt != nil || !l.Recovered().Committed.Less(end) {
			t.Fatalf("seed %d: after Truncate: %+v", seed, l.Recovered())
		}
	}
}

// TestKillKeepsTheWatermark: the end of a process loses nothing of it.
func TestKillKeepsTheWatermark(t *testing.T) {
	s := newSetup(1)
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	end := appendSync(t, l, 1)
	s.disk.Kill()
	s.disk.Damage(testDir, fileName(end.Seq), func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
	if l = s.mustOpen(t); l.Recovered().Doubt == nil {
		t.Fatal("what was told to be durable is damaged")
	}
}

// TestDisown: a log that was told that it lost something is in doubt for good.
func TestDisown(t *testing.T) {
	s := newSetup(1)
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	appendSync(t, l, 1, 2)
	must(t, l.Disown(errors.New("b knows more")))
	_, err = l.Append(rec(3))
	wantErr(t, err, ErrDoubt)
	for range 2 {
		s.disk.Crash()
		l = s.mustOpen(t)
		if doubt := l.Recovered().Doubt; doubt == nil || !strings.Contains(doubt.Error(), "another copy knows") {
			t.Fatalf("opened again, its doubt is %v", doubt)
		}
	}
}

// TestBelieve: a person gives up what a log has lost. It goes on with what is left, as another log,
// also after a crash at any moment. Of a log of which nothing is left there is nothing to believe.
func TestBelieve(t *testing.T) {
	crashed := false
	for seed := range uint64(20) {
		s := newSetup(seed)
		l := s.mustOpen(t)
		_, err := l.BeginEpoch(1)
		must(t, err)
		end := appendSync(t, l, 1)
		appendSync(t, l, 2)
		was := l.Identity()
		s.disk.Kill()
		s.disk.Damage(testDir, fileName(end.Seq), func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
		s.known = l.End()
		if l = s.mustOpen(t); l.Recovered().Doubt == nil {
			t.Fatal("no doubt")
		}
		s.disk.Kill()
		s.believe = Belief{cachepool.ID{7}, end}
		if seed > 0 { // it crashes while it is believed
			s.wrap = func(d cachepool.Dir) cachepool.Dir { s.disk.CrashAt(int(seed)); return d }
			_, _, err := s.open()
			s.wrap = nil
			if crashed = crashed || s.disk.Crashed(); err == nil {
				s.disk.Crash()
			}
		}
		l = s.mustOpen(t)
		if l.End() != end || l.Recovered().Committed != end && l.Recovered().Committed != (Position{}) {
			t.Fatalf("seed %d: it ends at %v, want %v: %+v", seed, l.End(), end, l.Recovered())
		}
		if got := l.Identity(); got == was || got != (cachepool.ID{7}).String() {
			t.Fatalf("seed %d: it is log %s, and was %s", seed, got, was)
		}
		s.believe, s.known = Belief{}, end
		l = s.restart(t)
		must(t, l.Recovered().Doubt)
		_, err = l.BeginEpoch(2)
		must(t, err)
		appendSync(t, l, 3)
	}
	if !crashed {
		t.Fatal("it never crashed")
	}
	s := newSetup(1)
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	appendSync(t, l, 1)
	s.disk.Kill()
	s.disk.Damage(testDir, fileName(1), func(b []byte) []byte { b[9] ^= 1; return b })
	for _, knew := range []Position{{}, {Seq: 1, Off: 1}} { // nothing is left, or less than was known
		s.believe = Belief{cachepool.ID{7}, knew}
		if l = s.mustOpen(t); l.Recovered().Doubt == nil || l.End() != (Position{}) {
			t.Fatalf("nothing is left: %+v", l.Recovered())
		}
		s.disk.Kill()
	}
	l = s.mustOpen(t)
	_, err = l.BeginEpoch(2)
	wantErr(t, err, ErrDoubt)
}

// TestFailedSyncWithoutANote: the disk goes away, so an fsync fails, and nothing can be noted. The
// next process must not believe what the kernel still has in memory: it is on no disk.
func TestFailedSyncWithoutANote(t *testing.T) {
	lost := 0
	for seed := range uint64(40) {
		s := newSetup(seed)
		l := s.mustOpen(t)
		_, err := l.BeginEpoch(1)
		must(t, err)
		end := appendSync(t, l, 1, 2)
		_, err = l.Append(rec(4))
		must(t, err)
		s.disk.FailSync(1)
		s.disk.FailSync(2)
		s.disk.Fail(crashfs.OpCreate, 1, crashfs.ErrIO) // the note
		wantErr(t, l.Wait(t.Context(), l.End()), ErrPoisoned)
		s.disk.Kill()
		_ = l.Close() // so that no goroutine is left
		l = s.mustOpen(t)
		if l.Recovered().Doubt != nil || l.End().Less(end) {
			t.Fatalf("seed %d: it ends at %v, %v was durable; doubt %v", seed, l.End(), end, l.Recovered().Doubt)
		}
		if l.End() == end {
			lost++
		}
		want := lines(t, l, Position{})
		s.disk.Crash()
		l = s.mustOpen(t)
		must(t, l.Recovered().Doubt)
		wantLines(t, l, want...)
	}
	if lost == 0 || lost == 40 {
		t.Fatalf("the record was lost in %d of 40", lost)
	}
}

// TestIdentity: a log keeps its identity, and another log has another one.
func TestIdentity(t *testing.T) {
	seen := map[string]bool{}
	for range 3 {
		s := newSetup(1)
		l := s.mustOpen(t)
		id := l.Identity()
		if len(id) != 32 || seen[id] {
			t.Fatalf("identity %q after %v", id, seen)
		}
		seen[id] = true
		_, err := l.BeginEpoch(1)
		must(t, err)
		appendSync(t, l, 1)
		must(t, l.Truncate(Position{}))
		s.disk.Crash()
		if l = s.mustOpen(t); l.Identity() != id {
			t.Fatalf("identity %q, was %q", l.Identity(), id)
		}
	}
}

// TestMarkIsWholeAfterATear: whatever part of the newest slot a crash leaves, the other one counts.
func TestMarkIsWholeAfterATear(t *testing.T) {
	for seed := range uint64(100) {
		s := newSetup(seed)
		l := s.mustOpen(t)
		_, err := l.BeginEpoch(1)
		must(t, err)
		for id := range 3 {
			appendSync(t, l, 3*id, 3*id+1)
		}
		s.disk.Crash()
		l = s.mustOpen(t)
		if doubt := l.Recovered().Doubt; doubt != nil {
			t.Fatal(fmt.Errorf("seed %d: %w", seed, doubt))
		}
	}
}

// TestMarkIsWholeAfterAKillAndATear: a process that was killed leaves a slot that is not durable.
// The next process does not write the other one before that slot is, or a loss of power could take
// both.
func TestMarkIsWholeAfterAKillAndATear(t *testing.T) {
	for seed := range uint64(100) {
		s := newSetup(seed)
		s.size = 1 << 20
		l := s.mustOpen(t)
		_, err := l.BeginEpoch(1)
		must(t, err)
		end := appendSync(t, l, 1, 2)
		l = s.restart(t)
		_, err = l.BeginEpoch(2)
		must(t, err)
		s.disk.Crash()
		pool, err := s.disk.Open()
		must(t, err)
		dir, err := pool.Volume(testDir)
		must(t, err)
		if w, err := openWatermark(dir); err != nil || w.durable.Less(end) {
			t.Fatalf("seed %d: the watermark says %+v, %v; %v was told", seed, w, err, end)
		}
	}
}
