// SPDX-License-Identifier: Apache-2.0

package operatorcmd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// api is an API server that is away at times. Each pause is a step of time.
type api struct {
	mu    sync.Mutex
	steps int
	away  func(step int) bool
}

func (a *api) pause(ctx context.Context, _ time.Duration) bool {
	a.mu.Lock()
	a.steps++
	a.mu.Unlock()
	return ctx.Err() == nil
}

func (a *api) answers(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away(a.steps) {
		return errors.New("connection refused")
	}
	return nil
}

// TestOperatorsFollowEachOther: an operator begins anew when the API server was away, or when it
// lost its lease. It does not for a moment's silence, and ends for other errors.
func TestOperatorsFollowEachOther(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	t.Run("away", func(t *testing.T) {
		a := &api{away: func(step int) bool { return step == 3 || step > 10 && step < 20 }}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		var began atomic.Int32
		var at int
		err := lasting{await: func(context.Context) error { return nil }, answers: a.answers, pause: a.pause, log: log,
			operate: func(ctx context.Context) error {
				if began.Add(1) == 2 {
					a.mu.Lock()
					at = a.steps
					a.mu.Unlock()
					end()
				}
				<-ctx.Done()
				return nil
			}}.run(ctx)
		if err != nil || began.Load() != 2 || at < 20 || at > 24 {
			t.Errorf("%d operators, the second began in step %d: %v", began.Load(), at, err)
		}
	})
	for _, c := range []struct {
		name   string
		err    error
		away   bool
		begins int32
	}{
		{"lease", errors.New(lostLease), false, 2},
		{"away at its end", errors.New("caches are not filled"), true, 2},
		{"another error", errors.New("no rights"), false, 1},
		{"none", nil, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var began atomic.Int32
			last := errors.New("the last")
			err := lasting{await: func(context.Context) error {
				if began.Load() == c.begins {
					return last
				}
				return nil
			}, answers: func(context.Context) error {
				if c.away {
					return errors.New("away")
				}
				return nil
			}, pause: func(ctx context.Context, _ time.Duration) bool { return ctx.Err() == nil }, log: log,
				operate: func(context.Context) error { began.Add(1); return c.err }}.run(t.Context())
			want := c.err
			if c.begins == 2 {
				// The second one ends like the first, then await says it is enough.
				want = last
			}
			if began.Load() != c.begins || !errors.Is(err, want) {
				t.Errorf("%d operators: %v", began.Load(), err)
			}
		})
	}
}
