// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/locks"
	"github.com/weir-storage/weir/volume"
)

// reaper remembers, at the home, which orphans no other gateway's clients have open. All gateways
// were asked.
type reaper struct {
	mu   sync.Mutex
	free map[volume.Handle]bool
}

func (r *reaper) init() { r.free = map[volume.Handle]bool{} }

// mayBeHeld is engine.Config.MayBeHeld. It returns true unless every gateway was asked.
func (r *reaper) mayBeHeld(h volume.Handle) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.free[h]
}

// asked records that of the orphans hs only held are open, and that nothing is known about others.
func (r *reaper) asked(hs, held []volume.Handle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.free)
	for _, h := range hs {
		r.free[h] = true
	}
	for _, h := range held {
		delete(r.free, h)
	}
}

// reapEvery is how often a home looks for files without a name that nobody has open any more.
const reapEvery = 5 * time.Second

// KeepReaping deletes files that have no name and that nobody has open, and what no snapshot shows
// any more, in volumes whose home is here. It returns when ctx ends.
func (m *Manager) KeepReaping(ctx context.Context) {
	t := m.cfg.Timers.NewTicker(reapEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.Chan():
		}
		for _, c := range m.Leading() {
			if c.Blind() {
				continue
			}
			if err := m.Reap(ctx, c); err != nil && ctx.Err() == nil {
				m.cfg.Logger.Debug("files without names are looked at later", "volume", c.UUID, "error", err)
			}
			if err := m.clean(ctx, c); err != nil && ctx.Err() == nil {
				m.cfg.Logger.Debug("what no snapshot shows is looked at later", "volume", c.UUID, "error", err)
			}
		}
	}
}

// Reap deletes the files without names of one volume that nobody has open (copies-5).
func (m *Manager) Reap(ctx context.Context, c *Copy) error {
	if m.cfg.Recovering() {
		return locks.ErrRecovering
	}
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = c.Engine.Reap(ctx, func(ctx context.Context, hs []volume.Handle) ([]volume.Handle, error) {
		held, err := m.heldElsewhere(ctx, c, hs)
		if err != nil {
			return nil, err
		}
		c.reaper.asked(hs, held)
		return held, nil
	})
	return err
}

// restAfter is how many times as long as clean took it rests: a large history costs little of a
// processor, however often something is dropped.
const restAfter = 20

// clean has the engine do what snapshots need.
func (m *Manager) clean(ctx context.Context, c *Copy) error {
	began := m.cfg.Timers.Now()
	if began.Before(c.rest) {
		return nil
	}
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = c.Engine.Clean(ctx)
	now := m.cfg.Timers.Now()
	c.rest = now.Add(restAfter * now.Sub(began))
	return err
}

// heldElsewhere asks every living gateway which of the orphans its clients have open. Each answers
// after it applied the removal of their names, so that nobody can open them by name afterwards.
func (m *Manager) heldElsewhere(ctx context.Context, c *Copy, hs []volume.Handle) ([]volume.Handle, error) {
	pos := c.Log.End()
	q := &forwardpb.HeldRequest{Volume: c.UUID, Seq: pos.Seq, Off: pos.Off}
	for _, h := range hs {
		q.Handles = append(q.Handles, &forwardpb.Handle{Ino: h.Ino, Gen: h.Gen})
	}
	living, synced := m.cfg.View.Living()
	if !synced {
		return nil, errors.New("the registry has not told yet which gateways live")
	}
	var held []volume.Handle
	for _, name := range living {
		if name == m.cfg.Self.Gateway {
			continue
		}
		client, err := m.cfg.Peers.Forward(name)
		if err != nil {
			return nil, err
		}
		reply, err := client.Held(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("ask gateway %s what it holds: %w", name, err)
		}
		for _, h := range reply.GetHandles() {
			held = append(held, volume.Handle{Ino: h.GetIno(), Gen: h.GetGen()})
		}
	}
	return held, nil
}
