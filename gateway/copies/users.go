// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"fmt"
	"sync"

	"github.com/weir-storage/weir/volume"
)

// users counts the operations on a copy, which must end before the copy is closed. Make it with
// newUsers.
type users struct {
	ctx    context.Context // ends when no more may begin
	cancel context.CancelFunc

	mu   sync.Mutex
	work sync.WaitGroup // grows only with mu held and ctx alive
}

func newUsers() *users {
	ctx, cancel := context.WithCancel(context.Background())
	return &users{ctx: ctx, cancel: cancel}
}

// begin counts an operation until done is called. Its context ends with ctx, or when end is called.
// It returns ErrDelay if end was called before.
func (u *users) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ctx.Err() != nil {
		return ctx, nil, fmt.Errorf("%w: the copy is being closed", volume.ErrDelay)
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

// end refuses further operations, and ends the contexts of those under way.
func (u *users) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cancel()
}

// wait waits for the operations under way. Call end before.
func (u *users) wait() { u.work.Wait() }
