// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"log/slog"
	"sync"
)

// repairs are the segments whose files reads found damaged. They are healed one at a time. Each is
// tried once until the log is opened again: a disk that damages them all is not written to for
// ever. The zero value is ready.
type repairs struct {
	mu    sync.Mutex
	tried map[uint64]bool
	queue []uint64
	end   context.CancelFunc // of the goroutine that heals; nil: there is none
	over  bool
	work  sync.WaitGroup
}

// repair has a segment's file healed in the background. It does not block.
func (l *Log) repair(seq uint64) {
	if !l.cfg.HealsReads {
		return
	}
	r := &l.repairs
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.tried[seq] {
		return
	}
	if r.tried == nil {
		r.tried = map[uint64]bool{}
	}
	r.tried[seq] = true
	r.queue = append(r.queue, seq)
	if r.end != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.end = cancel
	r.work.Go(func() {
		defer cancel()
		for {
			seq, ok := r.next()
			if !ok {
				return
			}
			if err := l.Heal(ctx, seq); err != nil {
				l.cfg.Logger.LogAttrs(ctx, slog.LevelError, "a segment's file that a read found damaged is not healed",
					slog.Uint64("segment", seq), slog.String("path", l.path(seq)), slog.Any("error", err))
			}
		}
	})
}

// next takes a segment from the queue; false: the goroutine is to end.
func (r *repairs) next() (seq uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 || r.over {
		r.end = nil
		return 0, false
	}
	seq, r.queue = r.queue[0], r.queue[1:]
	return seq, true
}

// stop ends the goroutine and waits for it.
func (r *repairs) stop() {
	r.mu.Lock()
	r.over = true
	if r.end != nil {
		r.end()
	}
	r.mu.Unlock()
	r.work.Wait()
}
