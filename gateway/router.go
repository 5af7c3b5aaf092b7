// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/volume"
)

// Router is a volume as this gateway's clients see it. It implements volume.Volume.
type Router struct {
	g    *Gateway
	id   volume.ID
	uuid string
	held heldLocks

	mu         sync.Mutex
	local      *replicaOf // nil: no copy here, or not open yet
	registered uint64     // epoch in which the home knows this gateway's locks; guarded by registering while it is written
	holds      map[volume.Handle]int
	fresh      map[volume.Handle]freshAttr

	registering sync.Mutex
}

// freshAttr are a file's attributes after a write that the home has not committed yet.
type freshAttr struct {
	attr volume.Attr
	pos  log.Position
}

var _ volume.Volume = (*Router)(nil)

// target is what an operation runs on: the local engine as home, or the home by forward.Call.
type target interface {
	volume.Reader
	volume.Changer
	volume.Locker
	Forget(ctx context.Context, prefix string) error
	Register(ctx context.Context, gateway string, recovering bool, locks []forward.HeldLock) error
}

// local is the target when this gateway is home.
type localTarget struct {
	*engine.Engine
	locks *lockTable
}

func (t localTarget) Register(ctx context.Context, gateway string, recovering bool, locks []forward.HeldLock) error {
	return t.locks.Register(ctx, gateway, recovering, locks)
}

// outcomeOf is what an operation on a target came to.
type outcomeOf struct {
	epoch   uint64
	applied log.Position // to be applied here before the client is answered
	remote  bool
}

// retryPause is the pause before the home is tried again when nothing has changed.
const retryPause = 50 * time.Millisecond

// run executes op at the home, wherever it is, and again until its outcome is known: op is repeatable.
func (v *Router) run(ctx context.Context, repeatable bool, op func(ctx context.Context, t target) error) (outcomeOf, error) {
	for {
		changed := v.g.mirror.wait()
		out, err := v.try(ctx, op)
		switch {
		case errors.Is(err, forward.ErrRegister):
			if err := v.registerAnew(ctx, out.epoch); err == nil {
				continue
			}
		case errors.Is(err, forward.ErrNotHome), errors.Is(err, engine.ErrNotHome):
		case errors.Is(err, volume.ErrUnknown):
			if !repeatable || errors.Is(err, volume.ErrLate) {
				return out, err
			}
		case errors.Is(err, volume.ErrDelay):
		default:
			return out, err
		}
		timer := time.NewTimer(retryPause)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if errors.Is(err, volume.ErrUnknown) {
				return out, err
			}
			return out, fmt.Errorf("%w: no home answers: %v", volume.ErrDelay, ctx.Err())
		}
		timer.Stop()
	}
}

// try executes op once at whoever is home now.
func (v *Router) try(ctx context.Context, op func(ctx context.Context, t target) error) (outcomeOf, error) {
	if l := v.copy(); l != nil {
		if epoch, ok := l.replica.Leading(); ok {
			err := op(ctx, localTarget{l.engine, l.locks})
			return outcomeOf{epoch: epoch}, err
		}
	}
	home, epoch := v.g.mirror.home(v.uuid)
	if home == "" || home == v.g.cfg.Name {
		return outcomeOf{epoch: epoch}, forward.ErrNotHome
	}
	client, err := v.g.peers.forwardClient(home)
	if err != nil {
		return outcomeOf{epoch: epoch}, fmt.Errorf("%w: %v", forward.ErrNotHome, err)
	}
	// A call to a home that is no more may hang: it ends when another epoch is heard of.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := v.g.whenDeposed(ctx, v.uuid, epoch, cancel)
	defer stop()
	call := &forward.Call{Client: client, Volume: v.uuid, Epoch: epoch, Held: v.isHeld}
	err = op(ctx, call)
	out := outcomeOf{epoch: call.ReplyEpoch, applied: call.Applied, remote: true}
	if out.epoch == 0 {
		out.epoch = epoch
	}
	return out, err
}

func (v *Router) copy() *replicaOf {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.local
}

func (v *Router) setCopy(l *replicaOf) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.local = l
	if l != nil {
		for h, n := range v.holds {
			for range n {
				l.engine.Retain(h)
			}
		}
	}
}

// change runs an operation that changes the volume and waits until what it did is applied here (rule 25).
func (v *Router) change(ctx context.Context, r volume.Request, op func(ctx context.Context, t target) error) (outcomeOf, error) {
	out, err := v.run(ctx, r.ID != (volume.OpID{}), op)
	if out.remote && out.applied != (log.Position{}) {
		v.catchUp(ctx, out.applied)
	}
	return out, err
}

// catchUp waits until the local copy has applied pos, and tells whether it has. A copy that may not serve reads need not: the home is asked
// instead.
func (v *Router) catchUp(ctx context.Context, pos log.Position) bool {
	l := v.copy()
	if l == nil || l.replica.MayServe() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, v.g.cfg.Promise)
	defer cancel()
	return l.engine.WaitApplied(ctx, pos) == nil // if it does not come in time, the lease has ended and reads go to the home
}

// read runs an operation that changes nothing, on the local copy if it may serve, else at the home.
func (v *Router) read(ctx context.Context, op func(ctx context.Context, t volume.Reader) error) error {
	if l := v.copy(); l != nil && l.replica.MayServe() == nil {
		err := op(ctx, l.engine)
		if !errors.Is(err, volume.ErrDelay) {
			return err
		}
	}
	_, err := v.run(ctx, true, func(ctx context.Context, t target) error { return op(ctx, t) })
	return err
}

// verifier is rule 24's.
func (g *Gateway) verifier(epoch uint64) volume.Verifier {
	h := sha256.Sum256(fmt.Appendf(nil, "weir verifier\n%s\n%s\n%d\n%d", g.cfg.Name, g.cfg.Pool.Incarnation(), g.cfg.Pool.Boot(), epoch))
	return volume.Verifier(h[:8])
}

// registerAnew registers with a home that says that it does not know this gateway.
func (v *Router) registerAnew(ctx context.Context, epoch uint64) error {
	v.registering.Lock()
	v.registered = 0
	v.registering.Unlock()
	return v.register(ctx, epoch)
}

// register tells the home in epoch which locks this gateway's clients hold.
func (v *Router) register(ctx context.Context, epoch uint64) error {
	v.registering.Lock()
	defer v.registering.Unlock()
	if v.registered == epoch && !v.g.recovering() {
		return nil
	}
	recovering := v.g.recovering()
	out, err := v.try(ctx, func(ctx context.Context, t target) error {
		return t.Register(ctx, v.g.cfg.Name, recovering, v.held.all())
	})
	if err != nil {
		return err
	}
	if !recovering {
		v.registered = out.epoch
	}
	return nil
}

// registerSoon registers in the background with a home that is new to this gateway.
func (v *Router) registerSoon(ctx context.Context) {
	_, epoch := v.g.mirror.home(v.uuid)
	if l := v.copy(); l != nil {
		if e, ok := l.replica.Leading(); ok {
			epoch = e
		}
	}
	if epoch == 0 {
		return
	}
	if err := v.register(ctx, epoch); err != nil {
		v.g.cfg.Logger.Debug("locks are not registered with the home yet", "volume", v.uuid, "epoch", epoch, "error", err)
	}
}
