// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"

	"github.com/weir-storage/weir/engine/fsck"
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
