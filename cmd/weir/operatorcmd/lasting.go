// SPDX-License-Identifier: Apache-2.0

package operatorcmd

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"
)

// lasting runs one operator after the other in the same process, when the API server was away. An
// operator that lost its lease has to end. One that waits to lead, or waits for news, would hear of
// the API server's return only a minute later: the waits of client-go's reflectors grow while it is
// away. And a process that ends is started again with growing delays.
type lasting struct {
	await   func(ctx context.Context) error // until the API server answers
	answers func(ctx context.Context) error // nil: it answers now
	operate func(ctx context.Context) error // one operator, until ctx ends
	pause   func(ctx context.Context, d time.Duration) bool
	log     *slog.Logger
}

const (
	lookEvery = 2 * time.Second // at whether the API server answers
	awayFor   = 6 * time.Second // it did not answer for so long: it was away
)

// errBack ends an operator, because the API server was away.
var errBack = errors.New("the API server was away")

// lostLease is the text of controller-runtime's error, which has no name.
const lostLease = "leader election lost"

// run runs operators until ctx ends, or until one fails for another reason than that the API server
// is away.
func (l lasting) run(ctx context.Context) error {
	for {
		if err := l.await(ctx); err != nil {
			return err
		}
		turn, end := context.WithCancelCause(ctx)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			if l.returns(turn) {
				end(errBack)
			}
		}()
		err := l.operate(turn)
		back := errors.Is(context.Cause(turn), errBack)
		end(nil)
		<-watched
		switch {
		case ctx.Err() != nil:
			return nil
		case back:
			l.log.Info("the API server answers again: the operator begins anew")
		case err != nil && (strings.Contains(err.Error(), lostLease) || l.answers(ctx) != nil):
			l.log.Warn("the operator ends, and begins anew when the API server answers", "error", err)
		default:
			return err
		}
		if !l.pause(ctx, lookEvery) {
			return nil
		}
	}
}

// returns waits until the API server answers again after it was away. It returns false when ctx
// ends before.
func (l lasting) returns(ctx context.Context) bool {
	away := time.Duration(0)
	for l.pause(ctx, lookEvery) {
		switch err := l.answers(ctx); {
		case err != nil:
			away += lookEvery
		case away >= awayFor:
			return ctx.Err() == nil
		default:
			away = 0
		}
	}
	return false
}
