// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/track"
	"github.com/weir-storage/weir/volume"
)

// retryAfter is how long an operation waits before it tries the home again while the view does not
// change.
const retryAfter = 50 * time.Millisecond

// atHome executes op at the home, wherever it is. It tries again while op was not executed and, if
// op is repeatable, while its outcome is not known (routing-2). It ends when ctx ends, when r is
// revoked, or, unless its outcome is not known, when r is to yield. It returns ErrStale if the
// volume was deleted.
func (v *Router) atHome(ctx context.Context, r volume.Request, repeatable bool, op func(ctx context.Context, h forward.Home) error) (
	result, error) {
	revoked, yield := r.Revoked, ended(r.Yield)
	unknown := false // it may have been executed
	for {
		changed := v.cfg.View.Changed()
		out, err := v.once(ctx, revoked, v.cfg.Forwarded, op)
		if unknown = unknown || errors.Is(err, volume.ErrUnknown); unknown {
			yield = nil
		}
		switch {
		case errors.Is(err, forward.ErrRegister):
			both, done := either(ctx, revoked)
			rerr := v.Locks.Register(both)
			done()
			if rerr == nil {
				continue
			}
		case errors.Is(err, journal.ErrNotHome):
		case errors.Is(err, volume.ErrUnknown):
			if !repeatable || errors.Is(err, volume.ErrLate) {
				return out, err
			}
		case errors.Is(err, volume.ErrDelay):
		default:
			return out, err
		}
		if is, there := v.cfg.View.Record(v.uuid); !there || is.Deleted { // it was there when this Router was made
			return out, fmt.Errorf("%w: volume %s was deleted", volume.ErrStale, v.uuid)
		}
		_, waited := track.Begin(ctx, track.NoHome)
		again := false
		select {
		case <-changed:
			again = true
		case <-v.cfg.Timers.After(retryAfter):
			again = true
		case <-yield:
			err = fmt.Errorf("no home answers, and what waits for it holds what others need: %w", err)
		case <-ended(revoked):
			err = fmt.Errorf("the client may not use the volume any more: %w", err)
		case <-ctx.Done():
			err = fmt.Errorf("no home answers: %w: %w", ctx.Err(), err)
		}
		waited()
		if again {
			continue
		}
		if unknown {
			return out, fmt.Errorf("%w: %v", volume.ErrUnknown, err)
		}
		return out, fmt.Errorf("%w: %v", volume.ErrDelay, err)
	}
}

// either returns a context that ends when ctx ends, when other ends, or when done is called. other
// may be nil. The caller must call done.
func either(ctx, other context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	if other == nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(other, cancel)
	return ctx, func() { stop(); cancel() }
}

// ended returns a channel that is closed when ctx ends. ctx may be nil.
func ended(ctx context.Context) <-chan struct{} {
	if ctx == nil {
		return nil
	}
	return ctx.Done()
}

// Once implements locks.Home: it executes op once at the present home. It does not count as an
// operation that the home was asked for: no client waits for it.
func (v *Router) Once(ctx context.Context, op func(ctx context.Context, h forward.Home) error) (epoch uint64, err error) {
	out, err := v.once(ctx, nil, nil, op)
	return out.epoch, err
}

// Epoch implements locks.Home.
func (v *Router) Epoch() uint64 {
	_, epoch := v.cfg.View.Home(v.uuid)
	if l := v.Copy(); l != nil {
		if e, ok := l.Leading(); ok {
			epoch = e
		}
	}
	return epoch
}

// once executes op once at the present home. op is cancelled when revoked ends, which may be nil.
// asked is told of it if the home is another gateway; nil: nobody is told.
func (v *Router) once(ctx, revoked context.Context, asked func(took time.Duration, err error),
	op func(ctx context.Context, h forward.Home) error) (result, error) {
	ctx, done := either(ctx, revoked)
	defer done()
	if l := v.Copy(); l != nil {
		if epoch, ok := l.Leading(); ok {
			ctx, done, err := l.Use(ctx)
			if err != nil {
				return result{epoch: epoch}, err
			}
			defer done()
			// When op has ended, its record in the log comes before all that others do later. If it
			// has none by then, it never will.
			return result{epoch: epoch}, op(ctx, l.Home(v.cfg.Gateway, true))
		}
	}
	home, epoch, over := v.cfg.View.Reign(v.uuid)
	if home == "" || home == v.cfg.Gateway {
		return result{epoch: epoch}, journal.ErrNotHome
	}
	client, err := v.cfg.Peers.Forward(home)
	if err != nil {
		return result{epoch: epoch}, fmt.Errorf("%w: %v", journal.ErrNotHome, err)
	}
	// A call to a former home may hang, so it ends when another epoch is known.
	ctx, end := either(ctx, over)
	defer end()
	call := &forward.Call{Client: client, Volume: v.uuid, Epoch: epoch, Held: v.mayHold}
	if reg, ok := v.Locks.Current(); ok {
		call.Registration = reg
	}
	began := v.cfg.Clock()
	asking, answered := track.Begin(ctx, track.Home)
	err = op(asking, call)
	answered()
	if asked != nil {
		asked(v.cfg.Clock()-began, err)
	}
	if call.Unanswered || errors.Is(err, forward.ErrRegister) {
		// The registration is void before the operation is sent again. So the first one does
		// nothing if it arrives later.
		v.Locks.Void(call.Registration)
	}
	v.tell(call.ReplyEpoch, call.Applied)
	v.tell(call.ReplyEpoch, call.Shown)
	out := result{epoch: call.ReplyEpoch, applied: call.Applied, remote: true}
	if out.epoch == 0 {
		out.epoch = epoch
	}
	return out, err
}

// AtHome executes op at the home, wherever it is. It tries again while op was not executed and, if
// op is repeatable, while its outcome is not known (routing-2). All methods that the local copy
// does not answer call it.
func (v *Router) AtHome(ctx context.Context, r volume.Request, repeatable bool, op func(ctx context.Context, h forward.Home) error) error {
	_, err := v.atHome(ctx, r, repeatable, op)
	return err
}

// underRegistration executes f, which is repeatable, on the home's locks. granted, which may be
// nil, is called when f has succeeded, before another registration can begin.
func (v *Router) underRegistration(ctx context.Context, r volume.Request, f func(ctx context.Context, k forward.Locks) error,
	granted func()) error {
	return v.AtHome(ctx, r, true, func(ctx context.Context, h forward.Home) error {
		return v.Locks.Under(ctx, func(reg forward.Registration) error {
			err := f(ctx, h.Locks(reg))
			if err == nil && granted != nil {
				granted()
			}
			return err
		})
	})
}

// lockLost revokes a lock of a client. Others got the lock while this gateway was believed to be
// gone, and the client must not go on as if it had it.
func (v *Router) lockLost(l forward.HeldLock) {
	owner, _ := asNamed(l.Lock.Owner)
	told := v.cfg.Revoke(v.id, l.Handle, owner)
	v.cfg.Logger.Error("lock of a client could not be kept: others got it while this gateway was taken to be gone",
		"volume", v.uuid, "inode", l.Handle.Ino, "from", l.Lock.Start, "to", l.Lock.End, "told", told)
}
