// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// model is what a log may contain after a crash.
type model struct {
	entries []modelEntry // in order; the last may be incomplete
	sure    int          // entries that were reported durable
	source  *source
	nextID  int
	epoch   uint64
}

type modelEntry struct {
	line string
	pos  Position // zero until the append has returned
}

func (m *model) settle(l *Log) {
	end, durable := l.End(), l.Durable()
	m.entries[len(m.entries)-1].pos = end
	m.mark(durable)
}

// mark notes that the log reported it is durable up to p.
func (m *model) mark(p Position) {
	for i, e := range m.entries {
		if e.pos != (Position{}) && e.pos.Compare(p) <= 0 && i+1 > m.sure {
			m.sure = i + 1
		}
	}
}

// add notes what may become part of the log, before the operation is tried.
func (m *model) add(line string) { m.entries = append(m.entries, modelEntry{line: line}) }

// step does one random operation and returns the log's error.
func (m *model) step(l *Log, r *rand.Rand) error {
	switch n := r.IntN(100); {
	case n < 55:
		m.nextID++
		id := m.nextID
		last := l.last()
		m.add(fmt.Sprintf("record %d", id))
		if _, err := l.Append(rec(id)); err != nil {
			// The append may have rolled the segment first.
			m.entries = slices.Insert(m.entries, len(m.entries)-1,
				modelEntry{line: fmt.Sprintf("maybe segment %d epoch %d", last.header.Seq+1, m.epoch)})
			return err
		}
		if end := l.End(); end.Seq != last.header.Seq {
			h := modelEntry{line: fmt.Sprintf("segment %d epoch %d", end.Seq, m.epoch), pos: Position{Seq: end.Seq, Off: 128}}
			m.entries = slices.Insert(m.entries, len(m.entries)-1, h)
		}
		m.settle(l)
	case n < 75:
		p := l.End()
		if err := l.Wait(context.Background(), p); err != nil {
			return err
		}
		m.mark(p)
	case n < 80:
		if l.last().len == 128 {
			return nil
		}
		m.add(fmt.Sprintf("segment %d epoch %d", l.last().header.Seq+1, m.epoch))
		if err := l.Roll(); err != nil {
			return err
		}
		m.settle(l)
	case n < 85:
		return m.begin(l)
	case n < 90:
		var pos []Position
		for _, e := range m.entries {
			if s, ok := l.find(e.pos.Seq); ok && s.local {
				pos = append(pos, e.pos)
			}
		}
		if len(pos) == 0 {
			return nil
		}
		to := pos[r.IntN(len(pos))]
		keep := slices.IndexFunc(m.entries, func(e modelEntry) bool { return e.pos == to }) + 1
		m.sure = min(m.sure, keep)
		if err := l.Truncate(to); err != nil {
			return err
		}
		m.entries = m.entries[:keep]
		m.sure = keep
		return m.begin(l)
	case n < 95:
		for _, s := range l.Segments() {
			if !s.Uploaded && s.Local {
				if err := m.source.upload(l, s.Seq); err != nil {
					return err
				}
			}
		}
	default:
		for _, s := range l.Segments() {
			if s.Uploaded && r.IntN(2) == 0 {
				do := l.Evict
				if !s.Local {
					do = func(seqs ...uint64) error { return l.Heal(context.Background(), seqs[0]) }
				}
				if err := do(s.Seq); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (m *model) begin(l *Log) error {
	m.epoch++
	seq := l.End().Seq + 1
	m.add(fmt.Sprintf("segment %d epoch %d", seq, m.epoch))
	if _, err := l.BeginEpoch(m.epoch); err != nil {
		return err
	}
	m.settle(l)
	return nil
}

// check compares a recovered log with the model, and then sets the model to the log's content.
func (m *model) check(t *testing.T, l *Log, what string) {
	t.Helper()
	if r := l.Recovered(); r.Doubt != nil {
		t.Fatalf("%s: doubt: %v", what, r.Doubt)
	}
	got := lines(t, l, Position{})
	i := 0
	var kept []modelEntry
	sure := 0
	for n, e := range m.entries {
		want, maybe := strings.CutPrefix(e.line, "maybe ")
		if i < len(got) && got[i] == want {
			kept = append(kept, modelEntry{line: want})
			i++
		} else if !maybe && i < len(got) {
			t.Fatalf("%s: entry %d is %q, want %q", what, i, got[i], want)
		}
		if n < m.sure {
			sure = max(sure, len(kept))
			if len(kept) != n+1 {
				t.Fatalf("%s: %q was durable and is gone; the log ends after %d entries", what, want, len(got))
			}
		}
	}
	if i != len(got) {
		t.Fatalf("%s: %d entries too many, from %q", what, len(got)-i, got[i])
	}
	// What Open accepted is durable, and the positions are known again.
	n := 0
	must(t, l.Replay(t.Context(), Position{}, func(e Entry) error {
		kept[n].pos = e.End
		n++
		return nil
	}))
	m.entries, m.sure = kept, len(kept)
}

// TestCrashAtEveryStep runs a random script. At each change of the disk in turn it cuts the power,
// or ends the process. The recovered log must be a prefix that has all that was reported durable.
// The script goes on from there (protocol-8).
func TestCrashAtEveryStep(t *testing.T) {
	scripts, rounds := uint64(8), 3
	for script := range scripts {
		for at := 1; ; at++ {
			s := setup{disk: newZeroedDisk(script*1000+uint64(at), 1<<30, int64(script%4)*600), size: 1500}
			m := &model{source: newSource("store")}
			s.sources = []Source{m.source}
			r := rand.New(rand.NewPCG(script, 0))
			what := fmt.Sprintf("script %d, crash at step %d", script, at)
			crashed := false
			for round := range rounds {
				l, _, err := s.open()
				if err == nil {
					m.check(t, l, what)
				}
				if round == 0 {
					s.disk.CrashAt(at)
				} else if round+1 < rounds {
					// The recovery and what follows may crash too.
					s.disk.CrashAt(1 + r.IntN(30))
				}
				if err == nil {
					err = m.begin(l)
				}
				for range 40 {
					if err != nil {
						break
					}
					err = m.step(l, r)
				}
				if err != nil && !s.disk.Crashed() {
					t.Fatalf("%s: %v", what, err)
				}
				if round == 0 {
					crashed = err != nil
				}
				if !s.disk.Crashed() {
					if round%2 == 0 {
						s.disk.Crash()
					} else {
						s.disk.Kill()
					}
				}
			}
			l, _, err := s.open()
			must(t, err)
			m.check(t, l, what)
			must(t, l.Close())
			if !crashed {
				break // the script has fewer steps
			}
		}
	}
}

// TestCrashInRecovery cuts the power while Open repairs.
func TestCrashInRecovery(t *testing.T) {
	for seed := range uint64(40) {
		for at := 1; at < 12; at++ {
			s := setup{disk: newZeroedDisk(seed, 1<<30, int64(seed%2)*900), size: 1500}
			m := &model{source: newSource("store")}
			s.sources = []Source{m.source}
			l := s.mustOpen(t)
			r := rand.New(rand.NewPCG(seed, 7))
			must(t, m.begin(l))
			for range 30 {
				must(t, m.step(l, r))
			}
			s.disk.Crash()
			pool, err := s.disk.Open()
			must(t, err)
			s.disk.CrashAt(at)
			dir, err := pool.Volume(testDir)
			must(t, err)
			_, err = Open(Config{Dir: dir, Room: pool.Room(), Volume: testVolume, DataKey: testKey,
				Sources: func() []Source { return s.sources }, Rand: salts})
			if err == nil {
				s.disk.Kill()
			}
			m.check(t, s.mustOpen(t), fmt.Sprintf("seed %d, crash at step %d of Open", seed, at))
		}
	}
}
