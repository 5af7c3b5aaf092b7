// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// retryAfter is how long an operation waits before it tries the home again when nothing has
// changed.
const retryAfter = 50 * time.Millisecond

// atHome executes op at the home, wherever it is, and again until its outcome is known (routing-2):
// op is repeatable. It ends when ctx does, or revoked, which may be nil. Every handle of a volume
// that was deleted is ErrStale.
func (v *Router) atHome(ctx, revoked context.Context, repeatable bool, op func(ctx context.Context, h forward.Home) error) (result, error) {
	unknown := false // it may have been executed
	for {
		changed := v.cfg.View.Changed()
		out, err := v.once(ctx, revoked, op)
		unknown = unknown || errors.Is(err, volume.ErrUnknown)
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
		select {
		case <-changed:
			continue
		case <-v.cfg.Timers.After(retryAfter):
			continue
		case <-ended(revoked):
			err = fmt.Errorf("the client may not use the volume any more: %w", err)
		case <-ctx.Done():
			err = fmt.Errorf("no home answers: %w: %w", ctx.Err(), err)
		}
		if unknown {
			return out, fmt.Errorf("%w: %v", volume.ErrUnknown, err)
		}
		return out, fmt.Errorf("%w: %v", volume.ErrDelay, err)
	}
}

// either returns a context that ends when ctx does or other, which may be nil, or when done is
// called, which must be.
func either(ctx, other context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	if other == nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(other, cancel)
	return ctx, func() { stop(); cancel() }
}

// ended is closed when ctx ends, which may be nil.
func ended(ctx context.Context) <-chan struct{} {
	if ctx == nil {
		return nil
	}
	return ctx.Done()
}

// Once implements locks.Home: it executes op once at whoever is home now.
func (v *Router) Once(ctx context.Context, op func(ctx context.Context, h forward.Home) error) (epoch uint64, err error) {
	out, err := v.once(ctx, nil, op)
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

// once executes op at whoever is home now. op is cancelled when revoked ends, which may be nil.
func (v *Router) once(ctx, revoked context.Context, op func(ctx context.Context, h forward.Home) error) (result, error) {
	ctx, done := either(ctx, revoked)
	defer done()
	if l := v.Copy(); l != nil {
		if epoch, ok := l.Leading(); ok {
			ctx, done, err := l.Use(ctx)
			if err != nil {
				return result{epoch: epoch}, err
			}
			defer done()
			// When op has ended, what is in the log is before all that others do later; what is not
			// never will be.
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
	// A call to a home that is no more may hang: it ends when another epoch is heard of.
	ctx, end := either(ctx, over)
	defer end()
	call := &forward.Call{Client: client, Volume: v.uuid, Epoch: epoch, Held: v.mayHold}
	if reg, ok := v.Locks.Current(); ok {
		call.Registration = reg
	}
	err = op(ctx, call)
	if call.Unanswered || errors.Is(err, forward.ErrRegister) {
		// Before it is sent again: then the first one does nothing any more when it arrives later.
		v.Locks.Void(call.Registration)
	}
	out := result{epoch: call.ReplyEpoch, applied: call.Applied, remote: true}
	if out.epoch == 0 {
		out.epoch = epoch
	}
	return out, err
}

// AtHome executes op at the home, wherever it is, and again until its outcome is known, if op is
// repeatable (routing-2). All methods that the local copy does not answer end here.
func (v *Router) AtHome(ctx context.Context, r volume.Request, repeatable bool, op func(ctx context.Context, h forward.Home) error) error {
	_, err := v.atHome(ctx, r.Revoked, repeatable, op)
	return err
}

// underRegistration executes f, which is repeatable, on the home's locks. granted, which may be
// nil, is called when f has succeeded, before another registration can begin.
func (v *Router) underRegistration(ctx context.Context, r volume.Request, f func(ctx context.Context, k forward.Locks) error, granted func()) error {
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

// lockLost takes a lock from its client. Others got the lock while this gateway was taken to be
// gone: the client must not go on as if it held it.
func (v *Router) lockLost(l forward.HeldLock) {
	owner, _ := asNamed(l.Lock.Owner)
	told := v.cfg.Revoke(v.id, l.Handle, owner)
	v.cfg.Logger.Error("lock of a client could not be kept: others got it while this gateway was taken to be gone",
		"volume", v.uuid, "inode", l.Handle.Ino, "from", l.Lock.Start, "to", l.Lock.End, "told", told)
}
