// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// newModel returns a reference volume in the state of a new host's volume.
func newModel() *memvol.Volume { return memvol.New(testID) }

// TestCrashAtEveryStep makes random changes. After each it examines what a crash would leave: the
// metadata as of a random moment of disk writing, and the log up to the commit, or a bit more. The
// recovered volume must equal the reference after exactly the changes that the log still has.
func TestCrashAtEveryStep(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 5))
	h := newHost(t, func(c *Config) { c.RootMode = 0o777 })
	model := newModel()
	// pictures[i] is the reference after i records.
	records := func() int { return len(h.journal.entries) }
	pictures := map[int]string{records(): picture(t, model)}
	for i := range 350 {
		s := randomStep(rng, i)
		before := records()
		got, want := s.do(t.Context(), h), s.do(t.Context(), model)
		if !sameOutcome(got, want) {
			t.Fatalf("step %d, %+v: %v, reference: %v", i, s.kind, got, want)
		}
		if records() > before+1 {
			t.Fatalf("step %d made %d records", i, records()-before)
		}
		if records() == before {
			continue
		}
		pictures[records()] = picture(t, model)
		if p := picture(t, h); p != pictures[records()] {
			t.Fatalf("step %d, kind %d:\n%.3000s\nreference:\n%.3000s", i, s.kind, p, pictures[records()])
		}
		if rng.IntN(10) == 0 {
			if err := h.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		// The crashed machine's log may have lost records whose outcome no client got. Here it
		// loses any number of the records that the metadata does not have either.
		disk := h.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng2(uint64(i))})
		crashed := openEngine(t, disk, h.journal, nil)
		entries, _ := h.journal.after(crashed.Applied())
		entries = entries[:rng.IntN(len(entries)+1)]
		n := records() - len(must(h.journal.after(crashed.Applied()))) + len(entries)
		if err := crashed.Ingest(entries); err != nil {
			t.Fatal(err)
		}
		if len(entries) > 0 {
			crashed.Committed(entries[len(entries)-1].End)
		}
		if n > 0 {
			if err := crashed.WaitApplied(context.Background(), crashed.lastEnd()); err != nil {
				t.Fatal(err)
			}
			if p := picture(t, crashed); p != pictures[n] {
				t.Fatalf("step %d: after a crash with %d of %d records:\n%.3000s\nreference:\n%.3000s", i, n, records(), p, pictures[n])
			}
		}
		if err := crashed.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(pictures) < 50 {
		t.Fatalf("only %d records were made", len(pictures))
	}
}

func rng2(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 17)) }

func must[A, B any](a A, _ B) A { return a }

func (e *Engine) lastEnd() segment.Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.end
}

// TestLostRole makes random changes while the role is lost again and again. The records whose
// outcome no client got are cut off, or not, at random. A change with an unknown outcome is
// repeated under the same name and must be executed exactly once. The volume must equal the
// reference in the end.
func TestLostRole(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	h := newHost(t, nil)
	model := newModel()
	unknown, cut := 0, 0
	for i := range 200 {
		s := randomStep(rng, i)
		want := s.do(t.Context(), model)
		var err error
		if rng.IntN(3) == 0 {
			// The role ends while the change waits for its commit, or just before.
			h.journal.holdCommits()
			result := make(chan error, 1)
			started := records(h)
			go func() { result <- s.do(context.Background(), h) }()
			waitFor(func() bool { return records(h) > started || len(result) > 0 })
			h.journal.setHome(false)
			h.Unlead()
			err = <-result
			keep := rng.IntN(2) == 0
			if keep {
				h.journal.release()
			} else {
				h.journal.truncate()
				cut++
			}
			h.journal.mu.Lock()
			end := h.journal.end()
			h.journal.hold = false
			h.journal.mu.Unlock()
			if derr := h.Drop(end); derr != nil {
				t.Fatal(derr)
			}
			h.lead()
			if sameOutcome(err, volume.ErrUnknown) || sameOutcome(err, volume.ErrDelay) {
				unknown++
				err = s.do(t.Context(), h)
			}
		} else {
			err = s.do(t.Context(), h)
		}
		if !sameOutcome(err, want) {
			t.Fatalf("step %d, kind %d: %v, reference: %v", i, s.kind, err, want)
		}
		if got, want := picture(t, h), picture(t, model); got != want {
			t.Fatalf("step %d, kind %d:\n%.3000s\nreference:\n%.3000s", i, s.kind, got, want)
		}
	}
	if unknown < 10 || cut < 10 {
		t.Fatalf("only %d unknown outcomes, %d cuts", unknown, cut)
	}
}

// waitFor waits until ready is true. A condition that never becomes true hangs the test.
func waitFor(ready func() bool) {
	for !ready() {
		runtime.Gosched()
	}
}

func records(h *host) int {
	h.journal.mu.Lock()
	defer h.journal.mu.Unlock()
	return len(h.journal.entries)
}
