// SPDX-License-Identifier: Apache-2.0

package track

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Slow logs operations that take long. Its methods may be called from many goroutines.
type Slow struct {
	After time.Duration // how long an operation takes that is logged; 0: none is
	Log   *slog.Logger
	Now   func() time.Time

	mu     sync.Mutex
	second time.Time // the lines of which are counted
	lines  int
	more   int // that were not logged
}

// slowLines bounds the lines of one second. When a volume has no home, all its clients wait.
const slowLines = 10

// Tell logs an operation that took long: what it was, the parts of op, and what else is known,
// which is asked only if there is a line. what is the message. s may be nil.
func (s *Slow) Tell(op *Op, what string, took time.Duration, more func() []slog.Attr) {
	if s == nil || s.After <= 0 || took < s.After {
		return
	}
	left, ok := s.line()
	if !ok {
		return
	}
	attrs := append(more(), slog.Duration("took", took.Round(10*time.Microsecond)),
		slog.Attr{Key: "waited", Value: slog.GroupValue(op.Parts()...)})
	if left > 0 {
		attrs = append(attrs, slog.Int("not_logged_before", left))
	}
	s.Log.LogAttrs(context.Background(), slog.LevelWarn, what, attrs...)
}

// line reports whether there may be another line now, and how many were left out before it.
func (s *Slow) line() (left int, ok bool) {
	now := s.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := now.Sub(s.second); d < 0 || d >= time.Second {
		s.second, s.lines = now, 0
	}
	if s.lines == slowLines {
		s.more++
		return 0, false
	}
	s.lines++
	left, s.more = s.more, 0
	return left, true
}
