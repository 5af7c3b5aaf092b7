// SPDX-License-Identifier: Apache-2.0

// Package inuse counts who uses what is to be closed.
package inuse

import (
	"context"
	"fmt"
	"sync"

	"github.com/weir-storage/weir/volume"
)

// Users counts the operations on something, which must end before that is closed. Make it with New.
type Users struct {
	ctx    context.Context // ends when no more may begin
	cancel context.CancelFunc

	mu   sync.Mutex
	work sync.WaitGroup // grows only with mu held and ctx alive
}

// New returns Users of something that is open.
func New() *Users {
	ctx, cancel := context.WithCancel(context.Background())
	return &Users{ctx: ctx, cancel: cancel}
}

// Begin counts an operation until done is called. Its context ends with ctx, or when End is called.
// It returns ErrDelay if End was called before.
func (u *Users) Begin(ctx context.Context) (_ context.Context, done func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ctx.Err() != nil {
		return ctx, nil, fmt.Errorf("%w: it is being closed", volume.ErrDelay)
	}
	u.work.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(u.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		u.work.Done()
	}, nil
}

// End refuses further operations, and ends the contexts of those under way.
func (u *Users) End() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cancel()
}

// Wait waits for the operations under way. Call End before.
func (u *Users) Wait() { u.work.Wait() }
