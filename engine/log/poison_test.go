// SPDX-License-Identifier: Apache-2.0

package log

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/engine/segment"
)

// poisoned makes a log whose disk fails once while it grows, and ends the process. The kernel still
// shows what did not reach the disk. It returns what was durable.
func poisoned(t *testing.T, seed uint64, fail func(*crashfs.Disk)) (s setup, durable []string, end Position) {
	t.Helper()
	s = newSetup(seed)
	l := s.mustOpen(t)
	_, err := l.BeginEpoch(1)
	must(t, err)
	appendSync(t, l, 1, 2, 4, 5)
	all, ends := lines(t, l, Position{}), []Position{}
	must(t, l.Replay(t.Context(), Position{}, func(e Entry) error { ends = append(ends, e.End); return nil }))
	told := make(chan struct{})
	l.OnDurable(func(_ Position, err error) {
		if err != nil {
			close(told)
		}
	})
	fail(s.disk)
	for id := 7; err == nil; id++ {
		var after Position
		before := l.End()
		if after, err = l.Append(rec(id)); err == nil {
			if after.Seq != before.Seq {
				all, ends = append(all, fmt.Sprintf("segment %d epoch 1", after.Seq)),
					append(ends, Position{Seq: after.Seq, Off: segment.HeaderSize})
			}
			all, ends = append(all, fmt.Sprint("record ", id)), append(ends, after)
			if id%5 == 0 {
				err = l.Wait(t.Context(), after)
			}
		}
		if id > 100 {
			t.Fatal("the disk does not fail")
		}
	}
	wantErr(t, err, ErrPoisoned)
	<-told
	end = l.Durable()
	for i := range ends {
		if ends[i].Compare(end) <= 0 {
			durable = append(durable, all[i])
		}
	}
	s.disk.Kill()
	_ = l.Close() // so that no goroutine is left
	return s, durable, end
}

var diskFaults = map[string]func(*crashfs.Disk){
	"first fsync":  func(d *crashfs.Disk) { d.FailSync(1) },
	"second fsync": func(d *crashfs.Disk) { d.FailSync(2) },
	"write":        func(d *crashfs.Disk) { d.FailWrite(3) },
	"folder":       func(d *crashfs.Disk) { d.Fail(crashfs.OpDirSync, 1, crashfs.ErrIO) },
}

// TestWhatAFailedSyncLeftIsCut: the next process may still read what a failed fsync did not bring
// to the disk. It must not count as durable. Otherwise a loss of power could remove it after it was
// acknowledged.
func TestWhatAFailedSyncLeftIsCut(t *testing.T) {
	seed := uint64(100)
	for name, fail := range diskFaults {
		for range 5 {
			seed++
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				s, want, end := poisoned(t, seed, fail)
				l := s.mustOpen(t)
				must(t, l.Recovered().Doubt)
				wantLines(t, l, want...)
				if l.End() != end || l.Durable() != end {
					t.Fatalf("the log ends at %v, durable %v, want %v", l.End(), l.Durable(), end)
				}
				_, err := l.BeginEpoch(2)
				must(t, err)
				appendSync(t, l, 200)
				want = lines(t, l, Position{})
				for range 2 { // the second time nothing is cut
					s.disk.Crash()
					l = s.mustOpen(t)
					must(t, l.Recovered().Doubt)
					wantLines(t, l, want...)
				}
			})
		}
	}
}

// TestWriteFailsDuringASync: an fsync that runs while a write fails may still succeed. What it
// brought to the disk, and the watermark then says, is not missing.
func TestWriteFailsDuringASync(t *testing.T) {
	for seed := range uint64(10) {
		for name, end := range map[string]func(*crashfs.Disk){"kill": (*crashfs.Disk).Kill, "crash": (*crashfs.Disk).Crash} {
			s := newSetup(200 + seed)
			s.size = 1 << 20
			g := &gate{entered: make(chan struct{}, 100), open: make(chan struct{}, 100)}
			s.wrap = func(d cachepool.Dir) cachepool.Dir { g.Dir = d; return g }
			l := s.mustOpen(t)
			g.open <- struct{}{} // the header's
			_, err := l.BeginEpoch(1)
			must(t, err)
			<-g.entered
			begun := l.End()
			synced, err := l.Append(rec(1))
			must(t, err)
			l.Sync(synced)
			<-g.entered
			s.disk.FailWrite(1)
			_, err = l.Append(rec(2))
			wantErr(t, err, ErrPoisoned)
			g.open <- struct{}{}
			wantErr(t, l.Close(), ErrPoisoned) // after the fsync
			if l.Durable() != begun {
				t.Fatalf("durable up to %v was told, want %v", l.Durable(), begun)
			}
			end(s.disk)
			s.wrap = nil
			l = s.mustOpen(t)
			if doubt := l.Recovered().Doubt; doubt != nil {
				t.Fatalf("seed %d, %s: %v", seed, name, doubt)
			}
			if name == "kill" {
				wantLines(t, l, "segment 1 epoch 1", "record 1")
			}
		}
	}
}

// TestCrashWhileCutting loses power at each step of opening a log that was poisoned.
func TestCrashWhileCutting(t *testing.T) {
	for name, fail := range diskFaults {
		for step := 1; ; step++ {
			s, want, end := poisoned(t, uint64(step), fail)
			_, err := s.disk.Open()
			must(t, err)
			s.disk.Kill()
			l, crashed := crashOpening(t, s, step)
			must(t, l.Recovered().Doubt)
			if l.End() != end {
				t.Fatalf("%s, step %d: the log ends at %v, want %v", name, step, l.End(), end)
			}
			wantLines(t, l, want...)
			if !crashed {
				break
			}
		}
	}
}

// crashOpening opens a log and loses power at a step of that. If it did lose power, it opens the
// log again.
func crashOpening(t *testing.T, s setup, step int) (l *Log, crashed bool) {
	t.Helper()
	armed := s
	armed.wrap = func(d cachepool.Dir) cachepool.Dir {
		s.disk.CrashAt(step)
		return d
	}
	l, _, err := armed.open()
	if err == nil {
		return l, false
	}
	if !s.disk.Crashed() || !errors.Is(err, crashfs.ErrCrashed) && !errors.Is(err, ErrPoisoned) {
		t.Fatal(err)
	}
	return s.mustOpen(t), true
}

// TestNoteIsNotTrustedBlindly: a note that does not verify, or that names no end of a frame, is a
// doubt.
func TestNoteIsNotTrustedBlindly(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"flipped": func(b []byte) []byte { b[20] ^= 1; return b },
		"short":   func(b []byte) []byte { return b[:10] },
		"other": func(b []byte) []byte {
			s := newSetup(1)
			pool, err := s.disk.Open()
			must(t, err)
			dir, err := pool.Volume(testDir)
			must(t, err)
			must(t, writePoison(dir, Position{Seq: 1, Off: segment.HeaderSize + 5}))
			f, err := dir.Open(poisonName)
			must(t, err)
			must(t, readFull(f, b, 0))
			return b
		},
	} {
		s, _, end := poisoned(t, 7, diskFaults["first fsync"])
		s.disk.Damage(testDir, poisonName, damage)
		l := s.mustOpen(t)
		if l.Recovered().Doubt == nil {
			t.Errorf("%s: no doubt", name)
		}
		_, err := l.BeginEpoch(2)
		wantErr(t, err, ErrDoubt)
		must(t, l.Truncate(Position{Seq: 1, Off: segment.HeaderSize}))
		l = s.restart(t)
		must(t, l.Recovered().Doubt)
		if l.End().Compare(end) >= 0 {
			t.Errorf("%s: ends at %v", name, l.End())
		}
	}
}
