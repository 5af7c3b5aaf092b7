// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/volume"
)

// plan plans what is to go, and notes what nothing uses.
func (k *Keeper) plan(ctx context.Context, cut *engine.Cut, is *made) (*plan, *remnants, error) {
	uses, err := cut.Uses(ctx)
	if err != nil {
		return nil, nil, err
	}
	var packs []engine.PackPlan
	var again *remnants
	if k.cfg.Store != nil {
		if packs, err = cut.Plan(ctx, uses, k.cfg.Due.Pack); err != nil {
			return nil, nil, err
		}
		left, err := cut.Remnants(ctx, uses, k.cfg.Due.Rewrite)
		if err != nil {
			return nil, nil, err
		}
		if len(left) > 0 {
			again = &remnants{left}
		}
	}
	if is.unused = uses.Unused; len(packs)+len(uses.Empty)+len(uses.Emptied) == 0 {
		return nil, again, nil
	}
	return &plan{is.number, uses, packs}, again, nil
}

// remnants are what is left of blocks that are mostly dead, which the home is to write again.
type remnants struct{ left []engine.Remnant }

// rewriteFor is how long a volume's remnants are written again before others have their turn.
const rewriteFor = 10 * time.Second

// rewrite has the home write again what was left of blocks at its newest checkpoint
// (checkpoints-13), one record after the other. When it can not, it leaves the rest to the next
// checkpoint.
func (k *Keeper) rewrite(ctx context.Context, c Copy) error {
	k.mu.Lock()
	was := k.remnants[c.UUID]
	k.mu.Unlock()
	if was == nil {
		return nil
	}
	ctx, cancel := clockwork.WithTimeout(ctx, k.cfg.Timers, rewriteFor)
	defer cancel()
	now, bytes := was, 0
	defer func() {
		if bytes > 0 {
			k.cfg.Logger.Info("blocks that were mostly dead are written again", "volume", c.UUID, "bytes", bytes)
		}
	}()
	for len(now.left) > 0 {
		if _, leads := c.Replica.Leading(); !leads || !c.Condemns {
			k.left(c.UUID, now, nil)
			return nil
		}
		rest, n, err := c.Engine.Rewrite(ctx, now.left)
		switch {
		case ctx.Err() != nil:
			return nil // the same comes again
		case errors.Is(err, volume.ErrDelay), errors.Is(err, volume.ErrNoSpace), errors.Is(err, volume.ErrUnknown):
			k.left(c.UUID, now, nil)
			return fmt.Errorf("write again what is left of blocks: %w", err)
		case err != nil: // the others may be read
			k.cfg.Logger.Error("what is left of some blocks is not written again", "volume", c.UUID, "error", err)
		}
		bytes += n
		k.mu.Lock()
		k.rewritten[c.UUID] += uint64(n)
		k.mu.Unlock()
		next := &remnants{rest}
		if !k.left(c.UUID, now, next) {
			return nil // there is a newer checkpoint
		}
		now = next
	}
	k.left(c.UUID, now, nil)
	return nil
}

// left replaces what is to be written again, unless there is something else: false.
func (k *Keeper) left(id string, was, is *remnants) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.remnants[id] != was {
		return false
	}
	if k.remnants[id] = is; is == nil {
		delete(k.remnants, id)
	}
	return true
}
