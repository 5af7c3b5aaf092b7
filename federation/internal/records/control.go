// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/federation"
)

// GetControl implements federation.ControlStore.
func (r *Registry) GetControl(ctx context.Context, volume string) (federation.Control, federation.Revision, error) {
	c, rev, err := r.control(ctx, "get", volume)
	if err == nil && rev == 0 {
		err = notFound("get", "control", volume)
	}
	return c, rev, err
}

// control reads the record, revision 0 when there is none.
func (r *Registry) control(ctx context.Context, op, volume string) (federation.Control, federation.Revision, error) {
	var c federation.Control
	if err := checkNames("volume", volume); err != nil {
		return c, 0, err
	}
	rev, err := r.one(ctx, op, "control", volume, key(federation.KindControl, volume), &c)
	return c, rev, err
}

// SwapControl implements federation.ControlStore.
func (r *Registry) SwapControl(ctx context.Context, volume string, prev federation.Revision, next federation.Control) (federation.Revision,
	error) {
	next = next.Clone()
	if next.Volume != volume {
		return 0, &federation.Error{Op: "swap", Kind: "control", Name: volume, Err: federation.ErrInvalid,
			Detail: "the record is of volume " + next.Volume + ": give the same volume twice"}
	}
	known := r.known(volume) // before the record is read: it may be made meanwhile
	old, rev, err := r.control(ctx, "swap", volume)
	if err != nil {
		return 0, unsent(volume, err)
	}
	refused := unsent(volume, r.refused(ctx, known, volume, rev))
	if refused != nil && (r.kv.archive() == nil || rev == 0) {
		return 0, refused
	}
	if rev != prev {
		return 0, conflict("swap", "control", volume)
	}
	from := &old
	if rev == 0 {
		from = nil
	}
	if err := federation.CheckSwap(from, next); err != nil {
		return 0, err
	}
	next.Succeed(from)
	if refused != nil {
		return r.swapTestimony(ctx, old, next, refused)
	}
	k := key(federation.KindControl, volume)
	var asked federation.Asked
	if r.guard != nil {
		asked = r.guard.Ask()
	}
	conds := []Condition{{Key: k, Revision: prev}}
	if prev == 0 {
		conds = append(conds, Condition{Key: key(federation.KindPurged, volume)}) // a uuid is never used again
	}
	rev, err = r.put(ctx, "swap", "control", volume, k, conds, next)
	if err == nil && r.guard != nil {
		if err := r.guard.Observe(asked, asked.Head, next); err != nil {
			// It was applied, but this gateway could not write that down: it must not go on from
			// it.
			return rev, &federation.Error{Op: "swap", Kind: "control", Name: volume, Err: federation.ErrUnknown, Detail: err.Error()}
		}
	}
	return rev, err
}

// unsent is an error of a swap that has not been sent. If time ran out, that is no reason to doubt
// the outcome.
func unsent(volume string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &federation.Error{Op: "swap", Kind: "control", Name: volume, Err: fmt.Errorf("%w: %w", federation.ErrUnavailable, err),
			Detail: "the record could not be read, so nothing was sent"}
	}
	return err
}

// refused asks the guard. A record that was seen and is gone, and whose volume was not purged, is
// one that a restored backup does not have yet: a uuid is never used twice.
func (r *Registry) refused(ctx context.Context, known federation.Asked, volume string, rev federation.Revision) error {
	if r.guard == nil {
		return nil
	}
	if err := r.guard.Err(); err != nil || rev != 0 {
		return err
	}
	var p federation.Purge
	switch at, err := r.one(ctx, "read", "purge", volume, key(federation.KindPurged, volume), &p); {
	case err != nil:
		return err
	case at != 0:
		return errors.Join(notFound("swap", "control", volume), r.guard.Forget(volume))
	}
	return r.guard.Observe(known, r.guard.Ask().Head, federation.Control{Volume: volume})
}

// known is what the guard knows before a volume's record is read.
func (r *Registry) known(volume string) (a federation.Asked) {
	if r.guard != nil {
		a = r.guard.Ask(volume)
	}
	return a
}

// DeleteControl implements federation.ControlStore.
func (r *Registry) DeleteControl(ctx context.Context, volume string, prev federation.Revision) error {
	known := r.known(volume)
	_, rev, err := r.control(ctx, "delete", volume)
	if err != nil {
		return err
	}
	if prev == 0 || rev != prev {
		return conflict("delete", "control", volume)
	}
	if err := r.refused(ctx, known, volume, rev); err != nil {
		return err
	}
	k := key(federation.KindControl, volume)
	_, err = r.commit(ctx, "delete", "control", volume, []Condition{{Key: k, Revision: prev}}, Write{Key: k, Delete: true})
	if err == nil && r.guard != nil {
		return r.guard.Forget(volume)
	}
	return err
}
