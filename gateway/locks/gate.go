// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"sync"
)

// gate admits many goroutines, or one alone. It is a sync.RWMutex whose waits end with a context. A
// goroutine that waits to be alone goes first, so that a steady stream of others cannot keep it
// out.
type gate struct {
	mu      sync.Mutex
	inside  int
	alone   bool
	waiting int           // number of goroutines that wait to be alone
	changed chan struct{} // closed and replaced when somebody leaves; nil: nobody waits
}

// enter waits until nobody is alone inside or waits to be. It returns nil, or the error of ctx.
func (g *gate) enter(ctx context.Context) error {
	return g.wait(ctx, func() bool {
		if g.alone || g.waiting > 0 {
			return false
		}
		g.inside++
		return true
	})
}

// leave ends one enter.
func (g *gate) leave() { g.update(func() { g.inside-- }) }

// enterAlone waits until nobody is inside. It returns nil, or the error of ctx.
func (g *gate) enterAlone(ctx context.Context) error {
	g.update(func() { g.waiting++ })
	defer g.update(func() { g.waiting-- })
	return g.wait(ctx, func() bool {
		if g.alone || g.inside > 0 {
			return false
		}
		g.alone = true
		return true
	})
}

// leaveAlone ends one enterAlone.
func (g *gate) leaveAlone() { g.update(func() { g.alone = false }) }

// update changes the gate and wakes those who wait.
func (g *gate) update(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// wait returns when pass, which is called with mu held, is true.
func (g *gate) wait(ctx context.Context, pass func() bool) error {
	for {
		g.mu.Lock()
		if pass() {
			g.mu.Unlock()
			return nil
		}
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
