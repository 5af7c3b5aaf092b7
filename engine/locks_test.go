// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/locktable"
)

// lockedEngine is an engine with locks. It implements the whole contract, for the contract's suite.
type lockedEngine struct {
	*Engine
	*lockTable
}

func withLocks(e *Engine) volume.Volume { return lockedEngine{e, &lockTable{engine: e}} }

// lockTable is the volume.Locker of an engine without other gateways. It keeps the locks of this
// process in memory and has no grace period.
type lockTable struct {
	engine *Engine
	mu     sync.Mutex
	table  locktable.Table
}

// SetLock implements volume.Locker.
func (l *lockTable) SetLock(ctx context.Context, _ volume.Request, h volume.Handle, lock volume.Lock, _ bool) error {
	return l.run(ctx, "setlock", h, lock, func() error { return l.table.Set(h, lock) })
}

// TestLock implements volume.Locker.
func (l *lockTable) TestLock(ctx context.Context, _ volume.Request, h volume.Handle, lock volume.Lock) error {
	return l.run(ctx, "testlock", h, lock, func() error { return l.table.Test(h, lock) })
}

// Unlock implements volume.Locker.
func (l *lockTable) Unlock(ctx context.Context, _ volume.Request, h volume.Handle, lock volume.Lock) error {
	return l.run(ctx, "unlock", h, lock, func() error {
		l.table.Unlock(h, lock)
		return nil
	})
}

// run calls f if the lock is valid and h is a regular file. It returns a *volume.LockConflict
// unchanged.
func (l *lockTable) run(ctx context.Context, op string, h volume.Handle, lock volume.Lock, f func() error) error {
	_, err := read(ctx, l.engine, place{op: op, ino: h.Ino}, func(t *tree) (struct{}, error) {
		if lock.Start > lock.End {
			return struct{}{}, volume.ErrInvalid
		}
		_, err := t.file(h)
		return struct{}{}, err
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err = f()
	var conflict *volume.LockConflict
	if errors.As(err, &conflict) {
		return conflict
	}
	return err
}
