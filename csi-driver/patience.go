// SPDX-License-Identifier: Apache-2.0

package csidriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// patience runs kernel calls that may hang, each for a limited time: rule 6. The zero value is not ready.
type patience struct {
	limit time.Duration
	after func(time.Duration) <-chan time.Time

	mu   sync.Mutex
	hung map[string]*hanging // by path
}

// hanging is a mount that was given up, and whose thread is still in the kernel.
type hanging struct{ what string }

// errHangs is wrapped by the errors of calls that were given up.
var errHangs = errors.New("the kernel does not return from it")

// mount runs f, which mounts something at path. It is refused while an earlier one hangs there: both would succeed in the end, one above the other.
func (p *patience) mount(ctx context.Context, path, what string, f func() error) error {
	p.mu.Lock()
	if h := p.hung[path]; h != nil {
		p.mu.Unlock()
		return status.Errorf(codes.Aborted, "an earlier call is not over: %s: the gateway may be away; ask again", h.what)
	}
	h := &hanging{what}
	if p.hung == nil {
		p.hung = make(map[string]*hanging)
	}
	p.hung[path] = h
	p.mu.Unlock()
	return p.run(ctx, what, func() error {
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.hung[path] == h {
				delete(p.hung, path)
			}
		}()
		return f()
	})
}

// hangs tells whether a mount at path hangs.
func (p *patience) hangs(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hung[path] != nil
}

// forget is called when a mount that hangs can only fail, because its directory is gone.
func (p *patience) forget(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.hung, path)
}

// run waits for f until the limit, or the caller, is over; f then goes on alone.
func (p *patience) run(ctx context.Context, what string, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s: %w: %w", what, errHangs, ctx.Err())
	case <-p.after(p.limit):
		return fmt.Errorf("%s: %w in %v", what, errHangs, p.limit)
	}
}
