// SPDX-License-Identifier: Apache-2.0

// Package reaping deletes what nobody can see any more, in volumes whose home is on this gateway:
// files without a name that nobody has open, and what no snapshot shows.
//
// # Rules
//
//   - copies-5: The home deletes no file without a name while a living gateway cannot report what
//     its clients have open: it does not answer, or its clients still reclaim (protocol-23).
package reaping

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/locks"
	"github.com/weir-storage/weir/volume"
)

// Held remembers, at the home, which orphans no other gateway's clients have open. All gateways
// were asked. Any goroutine may call its methods.
type Held struct {
	mu   sync.Mutex
	free map[volume.Handle]bool
}

// NewHeld returns what knows of no orphan.
func NewHeld() *Held { return &Held{free: map[volume.Handle]bool{}} }

// MayBe is engine.Config.MayBeHeld. It returns true unless every gateway was asked.
func (r *Held) MayBe(h volume.Handle) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.free[h]
}

// asked records that of the orphans hs only held are open, and that nothing is known about others.
func (r *Held) asked(hs, held []volume.Handle) {
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

// Copy is a copy with a key whose volume's home is here.
type Copy struct {
	UUID   string
	Engine *engine.Engine
	Log    *log.Log
	Held   *Held
	Use    func(ctx context.Context) (_ context.Context, done func(), err error)
}

// Config is what a Keeper needs.
type Config struct {
	Gateway    string // this one
	View       *view.View
	Forward    func(gateway string) (forwardpb.ForwardClient, error)
	Recovering func() bool // clients of this gateway still reclaim what they held
	Timers     clockwork.Clock
	Logger     *slog.Logger
}

// Keeper does the work of this package.
type Keeper struct {
	cfg  Config
	rest map[string]time.Time // until then clean has nothing to do, by UUID; only Run uses it
}

// New returns a Keeper.
func New(cfg Config) *Keeper { return &Keeper{cfg: cfg, rest: map[string]time.Time{}} }

// every is how often a home looks for files without a name that nobody has open any more.
const every = 5 * time.Second

// Run does it for the copies that leading returns, now and then, until ctx ends.
func (k *Keeper) Run(ctx context.Context, leading func() []Copy) {
	t := k.cfg.Timers.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.Chan():
		}
		here := map[string]bool{}
		for _, c := range leading() {
			here[c.UUID] = true
			if err := k.Reap(ctx, c); err != nil && ctx.Err() == nil {
				k.cfg.Logger.Debug("files without names are looked at later", "volume", c.UUID, "error", err)
			}
			if err := k.clean(ctx, c); err != nil && ctx.Err() == nil {
				k.cfg.Logger.Debug("what no snapshot shows is looked at later", "volume", c.UUID, "error", err)
			}
		}
		for id := range k.rest {
			if !here[id] {
				delete(k.rest, id)
			}
		}
	}
}

// Reap deletes the files without names of one volume that nobody has open (copies-5).
func (k *Keeper) Reap(ctx context.Context, c Copy) error {
	if k.cfg.Recovering() {
		return locks.ErrRecovering
	}
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = c.Engine.Reap(ctx, func(ctx context.Context, hs []volume.Handle) ([]volume.Handle, error) {
		held, err := k.heldElsewhere(ctx, c, hs)
		if err != nil {
			return nil, err
		}
		c.Held.asked(hs, held)
		return held, nil
	})
	return err
}

// restAfter is how many times as long as clean took it rests: a large history costs little of a
// processor, however often something is dropped.
const restAfter = 20

// clean has the engine do what snapshots need.
func (k *Keeper) clean(ctx context.Context, c Copy) error {
	began := k.cfg.Timers.Now()
	if began.Before(k.rest[c.UUID]) {
		return nil
	}
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = c.Engine.Clean(ctx)
	now := k.cfg.Timers.Now()
	k.rest[c.UUID] = now.Add(restAfter * now.Sub(began))
	return err
}

// heldElsewhere asks every living gateway which of the orphans its clients have open. Each answers
// after it applied the removal of their names, so that nobody can open them by name afterwards.
func (k *Keeper) heldElsewhere(ctx context.Context, c Copy, hs []volume.Handle) ([]volume.Handle, error) {
	pos := c.Log.End()
	q := &forwardpb.HeldRequest{Volume: c.UUID, Seq: pos.Seq, Off: pos.Off}
	for _, h := range hs {
		q.Handles = append(q.Handles, &forwardpb.Handle{Ino: h.Ino, Gen: h.Gen})
	}
	living, synced := k.cfg.View.Living()
	if !synced {
		return nil, errors.New("the registry has not told yet which gateways live")
	}
	var held []volume.Handle
	for _, name := range living {
		if name == k.cfg.Gateway {
			continue
		}
		client, err := k.cfg.Forward(name)
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
