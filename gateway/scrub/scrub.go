// SPDX-License-Identifier: Apache-2.0

// Package scrub reads again what the copies of a gateway have on its pools, so that damage is found
// while another copy is whole (ADR 49). Each closed segment's file is hashed once in a period and
// healed if it is damaged, which needs no key. Where the key is known, its records and blocks are
// also opened: a home may have sent what has a good checksum and does not open.
//
// After the segments of a copy, its metadata are checked (package engine/fsck). Findings are
// logged. A home also sets right what the volume counts as used.
//
// Nothing is noted on the pool. A gateway that starts begins anew, with a random segment of each
// copy, so that one that starts often comes to all of them.
package scrub

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/copies"
)

// What became of a segment.
const (
	Whole   = "whole"
	Healed  = "healed"
	Damaged = "damaged" // no copy is whole, or what has the right hash does not open
)

// Config has what a Scrubber needs.
type Config struct {
	View   *view.View
	Copies *copies.Manager
	Timers clockwork.Clock
	Rand   io.Reader
	Tell   func(result string) // it counts them
	Logger *slog.Logger
}

const (
	// period is how often each segment is read. One that is closed while the others are read comes
	// in the next period.
	period = 7 * 24 * time.Hour
	// rate is the most bytes a second that are read: 12 TB in a period.
	rate = 20 << 20
	// lookEvery is how often the Scrubber looks for something to do, and retryAfter when it tries
	// again what could not be healed.
	lookEvery  = time.Minute
	retryAfter = time.Hour
)

// Scrubber reads one segment at a time, of one copy after the other.
type Scrubber struct {
	cfg    Config
	passes map[string]*pass // by UUID; used by Run only
}

// pass is the segments of a copy that are to be read in a period.
type pass struct {
	copy  *copies.Copy
	begun time.Time
	left  []uint64
	due   bool      // the metadata are to be checked when nothing is left
	bad   []uint64  // what could not be healed
	retry time.Time // of bad
}

// New makes a Scrubber.
func New(cfg Config) *Scrubber { return &Scrubber{cfg: cfg, passes: map[string]*pass{}} }

// Run scrubs until ctx ends.
func (s *Scrubber) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if !s.round(ctx) {
			s.sleep(ctx, lookEvery)
		}
	}
}

func (s *Scrubber) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-s.cfg.Timers.After(d):
	case <-ctx.Done():
	}
}

// round reads one segment of each copy that has some left, and reports whether there was one.
func (s *Scrubber) round(ctx context.Context) (worked bool) {
	all, _ := s.cfg.View.Volumes()
	here := map[string]bool{}
	for _, v := range all {
		if v.Record == nil || ctx.Err() != nil {
			continue
		}
		state, _ := s.cfg.Copies.State(v.Record.UUID)
		if state.Copy == nil {
			continue
		}
		here[v.Record.UUID] = true
		p := s.passes[v.Record.UUID]
		if p == nil || p.copy != state.Copy {
			p = &pass{copy: state.Copy}
			s.passes[v.Record.UUID] = p
		}
		worked = s.next(ctx, v.Record.Name, p) || worked
	}
	for id := range s.passes {
		if !here[id] {
			delete(s.passes, id)
		}
	}
	return worked
}

// next reads the next segment of a copy; false: there is none now.
func (s *Scrubber) next(ctx context.Context, name string, p *pass) bool {
	ctx, done, err := p.copy.Use(ctx)
	if err != nil {
		return false // it closes
	}
	defer done()
	now := s.cfg.Timers.Now()
	if p.begun.IsZero() || len(p.left) == 0 && now.Sub(p.begun) >= period {
		p.left = segments(p.copy.Log)
		if p.begun.IsZero() {
			s.rotate(p.left)
		}
		p.begun, p.bad, p.due = now, nil, !p.copy.Blind()
	}
	seq, ok := p.take(now)
	if !ok {
		if p.due {
			p.due = false
			s.check(ctx, name, p.copy)
		}
		return false
	}
	info, ok := p.copy.Log.Segment(seq)
	if !ok || !info.Local {
		return true // it was cut off or evicted
	}
	result, err := scrub(ctx, p.copy.Log, p.copy.Blind(), seq)
	switch {
	case ctx.Err() != nil:
		return true
	case result == "":
		s.cfg.Logger.Warn("a segment could not be read again", "volume", name, "segment", seq, "error", err)
		return true
	case result == Damaged:
		if len(p.bad) == 0 {
			p.retry = now.Add(retryAfter)
		}
		p.bad = append(p.bad, seq)
		s.cfg.Logger.Error("a segment is damaged and no copy in reach is whole: bring back a copy or store that has it",
			"volume", name, "segment", seq, "error", err)
	case result == Healed:
		s.cfg.Logger.Warn("a segment was damaged, and is healed from another copy", "volume", name, "segment", seq)
	}
	s.cfg.Tell(result)
	s.sleep(ctx, time.Duration(info.Len)*time.Second/rate)
	return true
}

// take returns the next segment to be read; false: there is none now.
func (p *pass) take(now time.Time) (seq uint64, ok bool) {
	if len(p.bad) > 0 && !now.Before(p.retry) {
		p.left, p.bad = append(p.bad, p.left...), nil
	}
	if len(p.left) == 0 {
		return 0, false
	}
	seq, p.left = p.left[0], p.left[1:]
	return seq, true
}

// segments are those whose files are here, oldest first.
func segments(l *log.Log) (out []uint64) {
	for _, info := range l.Segments() {
		if info.Local {
			out = append(out, info.Seq)
		}
	}
	return out
}

// rotate has a pass begin anywhere.
func (s *Scrubber) rotate(seqs []uint64) {
	var b [8]byte
	if _, err := io.ReadFull(s.cfg.Rand, b[:]); err != nil || len(seqs) == 0 {
		return // it begins with the oldest
	}
	at := int(binary.BigEndian.Uint64(b[:]) % uint64(len(seqs)))
	slices.Reverse(seqs[:at])
	slices.Reverse(seqs[at:])
	slices.Reverse(seqs)
}

// scrub reads one segment. An empty result with an error says nothing of it.
func scrub(ctx context.Context, l *log.Log, blind bool, seq uint64) (result string, err error) {
	healed, err := l.Scrub(ctx, seq)
	switch {
	case errors.Is(err, log.ErrUnreadable):
		return Damaged, err
	case errors.Is(err, log.ErrNotClosed):
		return "", nil // it was cut off
	case err != nil:
		return "", err
	}
	if !blind {
		if err := open(ctx, l, seq); err != nil {
			if errors.Is(err, segment.ErrCorrupt) || errors.Is(err, log.ErrUnreadable) {
				return Damaged, err
			}
			return "", err
		}
	}
	if healed {
		return Healed, nil
	}
	return Whole, nil
}

// errBeyond ends the reading of a segment.
var errBeyond = errors.New("beyond the segment")

// atOnce is how many blocks are opened at a time.
const atOnce = 16

// open opens the records and blocks of a segment. Segments under keys that are not known here are
// left out.
func open(ctx context.Context, l *log.Log, seq uint64) error {
	var refs []segment.BlockRef
	err := l.Replay(ctx, log.Position{Seq: seq}, func(e log.Entry) error {
		if e.End.Seq != seq {
			return errBeyond
		}
		if e.Record == nil {
			return nil
		}
		for i := range e.Record.Blocks {
			if refs = append(refs, e.Record.Blocks[i].Ref); len(refs) < atOnce {
				continue
			}
			if _, err := l.ReadBlocks(ctx, refs); err != nil {
				return err
			}
			refs = refs[:0]
		}
		return nil
	})
	// Who reads on to the next one may find that it was dropped.
	if err == nil || errors.Is(err, errBeyond) || errors.Is(err, log.ErrDropped) {
		err = nil
		if len(refs) > 0 {
			_, err = l.ReadBlocks(ctx, refs)
		}
	}
	if errors.Is(err, log.ErrNoKey) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open segment %d: %w", seq, err)
	}
	return nil
}
