// SPDX-License-Identifier: Apache-2.0

// Package scrub reads again what the copies of a gateway have on its pools, so that damage is found
// while another copy is whole (ADR 49). Each closed segment's file is hashed once in a period,
// which the volume's owner says, and healed if it is damaged, which needs no key. Where the key is
// known, its records and blocks are also opened: a home may have sent what has a good checksum and
// does not open.
//
// After the segments of a copy, its metadata are checked (package engine/fsck). Findings are
// logged. A home also sets right what the volume counts as used.
//
// What was found is reported to the registry (package gateway/report). Where a pass is, is noted
// nowhere. A gateway that starts begins anew, with a random segment of each copy, so that one that
// starts often comes to all of them.
package scrub

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/upkeep"
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
	Gateway string // this one
	View    *view.View
	Copies  *copies.Manager
	// Registry has what this gateway reported before.
	Registry interface {
		ListObserved(ctx context.Context, volume string) ([]federation.Observed, error)
	}
	Timers clockwork.Clock
	Rand   io.Reader
	Tell   func(result string) // it counts them
	Logger *slog.Logger
	// LookEvery is how often it is looked for something to do; zero: a minute.
	LookEvery time.Duration
}

// retryAfter is when the Scrubber tries again what could not be healed.
const retryAfter = time.Hour

// Scrubber reads one segment at a time, of one copy after the other.
type Scrubber struct {
	cfg    Config
	passes map[string]*pass // by UUID; used by Run only

	mu    sync.Mutex
	found map[string]upkeep.Scrubbed // by UUID; zero: nothing was known before
	news  map[string]bool            // of found; see News
}

// pass is the segments of a copy that are to be read in a period. One that is closed meanwhile
// comes in the next period.
type pass struct {
	copy  *copies.Copy
	begun time.Time
	left  []uint64
	due   bool      // it is not ended: when nothing is left, the metadata are to be checked
	bad   []uint64  // what could not be healed
	retry time.Time // of bad
	next  time.Time // when the next segment may be read
	// read counts segments and bytes. known says that damage of an earlier pass is not told any
	// more: all of it was read again.
	read  int
	bytes int64
	known bool
}

// New makes a Scrubber.
func New(cfg Config) *Scrubber {
	cfg.LookEvery = cmp.Or(cfg.LookEvery, time.Minute)
	return &Scrubber{cfg: cfg, passes: map[string]*pass{}, found: map[string]upkeep.Scrubbed{}, news: map[string]bool{}}
}

// Scrubbed returns what is known of a volume's copy here, from before this process started too once
// it was loaded; nil: it was not read again yet. Any goroutine may call it.
func (s *Scrubber) Scrubbed(id string) *upkeep.Scrubbed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if is := s.found[id]; is != (upkeep.Scrubbed{}) {
		return &is
	}
	return nil
}

// Load reads what this gateway reported of a volume's copy before it started, once. Any goroutine
// may call it.
func (s *Scrubber) Load(ctx context.Context, id string) error {
	s.mu.Lock()
	_, ok := s.found[id]
	s.mu.Unlock()
	if ok {
		return nil
	}
	all, err := s.cfg.Registry.ListObserved(ctx, id)
	if err != nil {
		return fmt.Errorf("read what was found in volume %s before: %w", id, err)
	}
	var was upkeep.Scrubbed
	for _, o := range all {
		if o.Gateway == s.cfg.Gateway && o.Scrub != nil {
			was = *o.Scrub
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.found[id]; !ok {
		s.found[id] = was
	}
	return nil
}

// News returns the volumes of which something else is known since it was called last.
func (s *Scrubber) News() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Collect(maps.Keys(s.news))
	clear(s.news)
	return out
}

// tell changes what is known of a volume's copy here.
func (s *Scrubber) tell(id string, change func(*upkeep.Scrubbed)) {
	var is upkeep.Scrubbed
	if was := s.Scrubbed(id); was != nil {
		is = *was
	}
	change(&is)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found[id], s.news[id] = is, true
}

// Run scrubs until ctx ends.
func (s *Scrubber) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if wait := s.round(ctx); wait > 0 {
			s.sleep(ctx, wait)
		}
	}
}

func (s *Scrubber) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-s.cfg.Timers.After(d):
	case <-ctx.Done():
	}
}

// round reads one segment of each copy of which one may be read now. It returns how long to wait
// for the next one.
func (s *Scrubber) round(ctx context.Context) time.Duration {
	wait := s.cfg.LookEvery
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
		if s.next(ctx, v.Record, p) {
			wait = min(wait, max(0, p.next.Sub(s.cfg.Timers.Now())))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.passes {
		if !here[id] {
			delete(s.passes, id)
			delete(s.found, id)
		}
	}
	return wait
}

// begin begins a pass over these segments if one is due. It reports whether it did.
func (p *pass) begin(now time.Time, every time.Duration, segments func() []uint64) bool {
	if !p.begun.IsZero() && (len(p.left) > 0 || p.due || now.Sub(p.begun) < every) {
		return false
	}
	p.left = segments()
	p.bad = slices.DeleteFunc(p.bad, func(seq uint64) bool { return !slices.Contains(p.left, seq) })
	p.begun, p.due, p.read, p.bytes = now, true, 0, 0
	return true
}

// next reads the next segment of a copy, if it may be read now; false: there is none left.
func (s *Scrubber) next(ctx context.Context, v *federation.Volume, p *pass) bool {
	ctx, done, err := p.copy.Use(ctx)
	if err != nil {
		return false // it closes
	}
	defer done()
	if err := s.Load(ctx, v.UUID); err != nil {
		return false // the next look tries it again
	}
	now, says, name := s.cfg.Timers.Now(), v.Spec.Scrub, v.Name
	if first := p.begun.IsZero(); p.begin(now, says.Period(), func() []uint64 { return segments(p.copy.Log) }) && first {
		s.rotate(p.left)
	}
	if now.Before(p.next) {
		return true
	}
	seq, ok := p.take(now)
	if !ok {
		if p.due {
			s.end(ctx, v, p)
		}
		return false
	}
	info, ok := p.copy.Log.Segment(seq)
	if !ok || !info.Local {
		s.note(v, p, now, seq, 0, "")
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
		s.cfg.Logger.Error("a segment is damaged and no copy in reach is whole: bring back a copy or store that has it",
			"volume", name, "segment", seq, "error", err)
	case result == Healed:
		s.cfg.Logger.Warn("a segment was damaged, and is healed from another copy", "volume", name, "segment", seq)
	}
	s.cfg.Tell(result)
	s.note(v, p, now, seq, int64(info.Len), result)
	// All volumes together are read no faster than one by default, or than the fastest one.
	s.sleep(ctx, min(upkeep.Scrub{}.Pace(int64(info.Len)), says.Pace(int64(info.Len))))
	return true
}

// note notes what became of a segment that was read now; "": it is not here any more.
func (s *Scrubber) note(v *federation.Volume, p *pass, now time.Time, seq uint64, bytes int64, result string) {
	if !p.was(now, v.Spec.Scrub, seq, bytes, result) {
		return
	}
	s.tell(v.UUID, func(is *upkeep.Scrubbed) {
		if result == Healed {
			is.Healed++
		}
		if p.known || len(p.bad) > is.Damaged {
			is.Damaged = len(p.bad)
		}
	})
}

// was is note for the pass. It reports whether there is news.
func (p *pass) was(now time.Time, says upkeep.Scrub, seq uint64, bytes int64, result string) bool {
	bad := len(p.bad)
	switch {
	case result != Damaged:
		p.bad = slices.DeleteFunc(p.bad, func(b uint64) bool { return b == seq })
	case !slices.Contains(p.bad, seq):
		p.bad = append(p.bad, seq)
	}
	if bad == 0 && len(p.bad) > 0 {
		p.retry = now.Add(retryAfter)
	}
	if result != "" {
		p.read, p.bytes, p.next = p.read+1, p.bytes+bytes, now.Add(says.Pace(bytes))
	}
	return result == Healed || bad != len(p.bad)
}

// end ends a pass, and checks the metadata.
func (s *Scrubber) end(ctx context.Context, v *federation.Volume, p *pass) {
	findings := 0
	if !p.copy.Blind() {
		n, complete := s.check(ctx, v, p.copy)
		if findings = n; !complete {
			if was := s.Scrubbed(v.UUID); was != nil {
				findings = max(n, was.Findings)
			}
		}
	}
	if ctx.Err() != nil {
		return // it closes; the next pass comes to the end
	}
	p.due, p.known = false, true
	s.tell(v.UUID, func(is *upkeep.Scrubbed) {
		is.Ended, is.Segments, is.Bytes = s.cfg.Timers.Now().UTC().Truncate(time.Second), p.read, federation.Bytes(p.bytes)
		is.Damaged, is.Findings = len(p.bad), findings
	})
}

// take returns the next segment to be read; false: there is none now.
func (p *pass) take(now time.Time) (seq uint64, ok bool) {
	if len(p.bad) > 0 && !now.Before(p.retry) {
		again := slices.DeleteFunc(slices.Clone(p.bad), func(seq uint64) bool { return slices.Contains(p.left, seq) })
		p.left, p.retry = append(again, p.left...), now.Add(retryAfter)
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
