// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// kernelCalls makes kernel calls that may hang, and waits for each a limited time (csi-6). limit
// and after must be set. Any number of goroutines may use it.
type kernelCalls struct {
	limit time.Duration
	after func(time.Duration) <-chan time.Time

	mu      sync.Mutex
	pending map[string]*pendingMount // by path
}

// pendingMount is a mount from its begin until the kernel returns from it. It stays after the RPC
// that began it gave up: its thread is still in the kernel.
type pendingMount struct{ what string }

// errHangs is wrapped by the error of a call that was given up.
var errHangs = errors.New("the kernel does not return from it")

// mount calls f, which mounts something at path, and waits for it. It refuses while an earlier
// mount at the path hangs: in the end both would succeed, and one would cover the other.
func (k *kernelCalls) mount(ctx context.Context, path, what string, f func() error) error {
	k.mu.Lock()
	if p := k.pending[path]; p != nil {
		k.mu.Unlock()
		return status.Errorf(codes.Aborted, "an earlier call is not over: %s: the gateway may be away; ask again", p.what)
	}
	p := &pendingMount{what}
	if k.pending == nil {
		k.pending = make(map[string]*pendingMount)
	}
	k.pending[path] = p
	k.mu.Unlock()
	return k.await(ctx, what, func() error {
		defer func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.pending[path] == p {
				delete(k.pending, path)
			}
		}()
		return f()
	})
}

// hangs reports whether a mount at path hangs.
func (k *kernelCalls) hangs(path string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pending[path] != nil
}

// forget lets the next mount at path begin although an earlier one hangs. That one can only fail,
// because its directory is gone.
func (k *kernelCalls) forget(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pending, path)
}

// await calls f in a goroutine and waits until it returns, the limit is over, or ctx is done. In
// the last two cases f goes on alone.
func (k *kernelCalls) await(ctx context.Context, what string, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s: %w: %w", what, errHangs, ctx.Err())
	case <-k.after(k.limit):
		return fmt.Errorf("%s: %w in %v", what, errHangs, k.limit)
	}
}
