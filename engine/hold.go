// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weir-storage/weir/engine/hold"
	"github.com/weir-storage/weir/track"
	"github.com/weir-storage/weir/volume"
)

// ErrHoldOver reports that changes are not held by a token any more, so that its snapshot was not
// taken and never will be. It wraps volume.ErrNotExist: nothing is wrong with the volume.
var ErrHoldOver = fmt.Errorf("changes were not held any more when the snapshot was to be taken: %w", volume.ErrNotExist)

// maxHold is how long changes are held at most.
const maxHold = 10 * time.Second

// holding is the engine's gate (package engine/hold). It is closed by who holds turn, and asked
// before a change in the turn. It opens at any time.
type holding struct {
	mu     sync.Mutex
	gate   hold.Gate
	opened chan struct{} // closed when the gate opens; nil: it was never closed
}

// open opens the gate, if the token has closed it; "": whoever has.
func (h *holding) open(now time.Time, token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.opened != nil && (token == "" || h.gate.By(now, token)) {
		h.gate.Open()
		close(h.opened)
		h.opened = nil
	}
}

// heldKey is the key of the token in the context of who takes the snapshot for which changes are
// held. Its changes are not.
type heldKey struct{}

// waits returns until when changes wait, and what is closed if they need not wait any longer; nil:
// they do not wait. The caller holds turn.
func (e *Engine) waits(ctx context.Context) (time.Duration, <-chan struct{}) {
	h, now := &e.holding, e.cfg.Clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	token, _ := ctx.Value(heldKey{}).(string)
	if h.opened == nil || !h.gate.Closed(now) || token != "" && h.gate.By(now, token) {
		return 0, nil
	}
	return h.gate.Until().Sub(now), h.opened
}

// enterTurn begins a critical section of a change, when none is held.
func (e *Engine) enterTurn(ctx context.Context) error {
	for {
		if err := e.lock(ctx); err != nil {
			return err
		}
		left, opened := e.waits(ctx)
		if opened == nil {
			return nil
		}
		e.unlock()
		if err := e.waitOpened(ctx, left, opened); err != nil {
			return err
		}
	}
}

// waitOpened waits until opened is closed or a time is over.
func (e *Engine) waitOpened(ctx context.Context, left time.Duration, opened <-chan struct{}) error {
	ctx, end := track.Begin(ctx, track.Held)
	defer end()
	timer := e.cfg.Clock.NewTimer(left)
	defer timer.Stop()
	select {
	case <-opened:
	case <-timer.Chan():
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// HoldChanges makes all changes of the volume wait that have not begun, for the time d, at most
// maxHold, or until TakeHeld or ReleaseChanges is called with the token. Reads go on. A token is
// used once, and is not empty. It fails with ErrNotHome; with ErrExist, if there is a snapshot of
// the name; with ErrDelay, if changes are held already or the volume is being rolled back; or if
// ctx ends.
func (e *Engine) HoldChanges(ctx context.Context, name, token string, d time.Duration) error {
	if err := e.lock(ctx); err != nil {
		return err
	}
	defer e.unlock()
	t, err := e.begin()
	if err != nil {
		return err
	}
	if err := e.notRolling(ctx); err != nil {
		return err
	}
	if err := t.newName(name); err != nil {
		return err
	}
	h, now := &e.holding, e.cfg.Clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.gate.Close(now, now.Add(min(d, maxHold)), token) {
		return fmt.Errorf("%w: changes are held for another snapshot", volume.ErrDelay)
	}
	if h.opened == nil { // else the time of the last one is over, and those who wait ask again
		h.opened = make(chan struct{})
	}
	return nil
}

// HoldsChanges reports whether changes are held by a token, and have been ever since HoldChanges.
func (e *Engine) HoldsChanges(token string) bool {
	h := &e.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gate.By(e.cfg.Clock.Now(), token)
}

// ReleaseChanges ends a hold, if there is one by the token.
func (e *Engine) ReleaseChanges(token string) { e.holding.open(e.cfg.Clock.Now(), token) }

// TakeHeld is TakeSnapshot of a volume whose changes are held by a token. What it takes has nothing
// that was executed after HoldChanges. It ends the hold. If that was over before, it returns
// ErrHoldOver and has taken nothing.
func (e *Engine) TakeHeld(ctx context.Context, name, token string) (volume.Snapshot, error) {
	if !e.HoldsChanges(token) { // else it would wait for the end of another hold
		return volume.Snapshot{}, ErrHoldOver
	}
	defer e.ReleaseChanges(token)
	return e.takeSnapshot(context.WithValue(ctx, heldKey{}, token), volume.Request{}, name, func() error {
		if !e.HoldsChanges(token) {
			return ErrHoldOver
		}
		return nil
	})
}
