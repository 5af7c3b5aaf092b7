// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/volume"
)

// Check checks the metadata as they are at the applied position, and what cfg says besides. Its
// View and Next are set here. Changes go on meanwhile, and are not looked at. The volume must not
// be closed before it has returned.
func (e *Engine) Check(ctx context.Context, cfg fsck.Config) (report *fsck.Report, err error) {
	view := e.store.Snapshot(nil)
	defer func() { err = errors.Join(err, view.Close()) }()
	cfg.View = view
	if cfg.Next, err = e.nextNumber(ctx); err != nil {
		return nil, err
	}
	return fsck.Check(ctx, cfg)
}

// nextNumber returns the number that the home's next record gets; 0: another gateway is home.
func (e *Engine) nextNumber(ctx context.Context) (uint64, error) {
	if err := e.lock(ctx); err != nil {
		return 0, err
	}
	defer e.unlock()
	epoch, err := e.verifiedEpoch()
	if err != nil {
		return 0, nil
	}
	return epoch<<40 | (e.counter + 1), nil
}

// recountTime is how long Recount waits for commits, before and after the count.
const recountTime = time.Minute

// Recount is Check at the home, which then sets right what the volume counts as used, by a record.
// It does so only if all else is well: what a damaged volume has, nobody knows for certain. The
// report says what was counted before, and what should be. Changes go on meanwhile, and
// count in both. journal.ErrNotHome: another gateway is home, or became home meanwhile.
func (e *Engine) Recount(ctx context.Context, cfg fsck.Config) (*fsck.Report, error) {
	p := place{op: "recount"}
	short, end := context.WithTimeout(ctx, recountTime)
	epoch, rolled, err := e.countFrom(short)
	end()
	if err != nil {
		return nil, e.wrap(p, err)
	}
	report, err := e.Check(ctx, cfg)
	if err != nil {
		return report, e.wrap(p, err)
	}
	was, is := report.Stored, report.Recount
	if was == is || report.Rolling {
		return report, nil
	}
	if why := certain(report); why != nil {
		return report, e.wrap(p, why)
	}
	short, end = context.WithTimeout(ctx, recountTime)
	defer end()
	_, err = change(short, e, volume.Request{}, p, noResult, false, func(t *tx) (struct{}, error) {
		if t.epoch != epoch || e.rolledBack != rolled {
			return struct{}{}, fmt.Errorf("the volume got another home or was rolled back meanwhile: count again: %w", volume.ErrDelay)
		}
		now, err := t.using()
		if err != nil {
			return struct{}{}, err
		}
		// What changed since the count was added to what was stored.
		now.Bytes += is.Bytes - was.Bytes
		now.Inodes += is.Inodes - was.Inodes
		if now.Counted && was.Counted {
			now.Held += is.Held - was.Held
		}
		t.used = &now
		return struct{}{}, nil
	})
	return report, err
}

// countFrom has all that this home changed until now applied. It returns the epoch, and how often
// the volume was rolled back before.
func (e *Engine) countFrom(ctx context.Context) (epoch, rolled uint64, err error) {
	if err := e.lock(ctx); err != nil {
		return 0, 0, err
	}
	epoch, err = e.verifiedEpoch()
	rolled = e.rolledBack
	e.unlock()
	if err != nil {
		return 0, 0, err
	}
	e.mu.Lock()
	end := e.end
	e.mu.Unlock()
	if err := e.waitCommitted(ctx, end); err != nil {
		return 0, 0, err
	}
	return epoch, rolled, e.WaitApplied(ctx, end)
}

// certain returns why a count is not to be believed.
func certain(report *fsck.Report) error {
	if !report.Complete || !report.Counted {
		return errors.New("not everything could be counted")
	}
	for _, f := range report.Findings {
		if f.Kind != fsck.Quota && f.Kind != fsck.Leftover {
			return fmt.Errorf("the volume is damaged, so what it has is not certain: %s %s: %s", f.Kind, f.Path, f.Detail)
		}
	}
	if report.More > 0 {
		return fmt.Errorf("the check found %d more than it lists", report.More)
	}
	return nil
}
