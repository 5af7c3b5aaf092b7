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
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// Router is a volume as this gateway's clients see it. It implements volume.Volume.
type Router struct {
	g    *Gateway
	id   volume.ID
	uuid string
	held heldLocks

	mu    sync.Mutex
	local *replicaOf // nil: no copy here, or not open yet
	holds map[volume.Handle]int
	fresh map[volume.Handle]freshAttr

	// An operation on locks enters; whoever registers is alone, so that what is registered is what was granted.
	locking gate
	reg     registered
}

func newRouter(g *Gateway, id volume.ID) *Router {
	return &Router{g: g, id: id, uuid: id.String(), holds: map[volume.Handle]int{}, fresh: map[volume.Handle]freshAttr{}}
}

// freshAttr are a file's attributes after a write that the home has not committed yet.
type freshAttr struct {
	attr  volume.Attr
	pos   log.Position
	epoch uint64 // of the write: in a later one, pos may be another record's
}

var _ volume.Volume = (*Router)(nil)

// target is what an operation runs on: the local engine as home, or the home by forward.Call.
type target interface {
	volume.Reader
	volume.Changer
	Forget(ctx context.Context, prefix string) error
	Locks(forward.Registration) forward.Locks
}

// localTarget is the target when this gateway is home.
type localTarget struct {
	*engine.Engine
	locks   *lockTable
	gateway string // whose operation it is
	changes bool   // of METHOD_REGISTER_LOCKS: the gateway's changes belong to registrations
	wrote   *log.Position
}

// Write implements volume.Changer, and notes where the record of the write ends.
func (t localTarget) Write(ctx context.Context, r volume.Request, h volume.Handle, off uint64, data []byte, stable bool) (volume.Written, error) {
	w, end, err := t.Engine.WriteAt(ctx, r, h, off, data, stable)
	*t.wrote = end
	return w, err
}

// Locks implements forward.Home.
func (t localTarget) Locks(reg forward.Registration) forward.Locks {
	return lockSession{t.locks, t.gateway, reg, t.changes}
}

// outcomeOf is what an operation on a target came to.
type outcomeOf struct {
	epoch   uint64
	applied log.Position // to be applied here before the client is answered
	remote  bool
}

// retryPause is the pause before the home is tried again when nothing has changed.
const retryPause = 50 * time.Millisecond

// run executes op at the home, wherever it is, and again until its outcome is known: op is repeatable. Of a volume that was deleted, every
// handle is ErrStale.
func (v *Router) run(ctx, expelled context.Context, repeatable bool, op func(ctx context.Context, t target) error) (outcomeOf, error) {
	unknown := false // it may have been executed
	for {
		changed := v.g.mirror.wait()
		out, err := v.attempt(ctx, expelled, op)
		unknown = unknown || errors.Is(err, volume.ErrUnknown)
		switch {
		case errors.Is(err, forward.ErrRegister):
			both, done := either(ctx, expelled)
			rerr := v.register(both)
			done()
			if rerr == nil {
				continue
			}
		case errors.Is(err, journal.ErrNotHome):
		case errors.Is(err, volume.ErrUnknown):
			if !repeatable || errors.Is(err, volume.ErrLate) {
				return out, err
			}
		case errors.Is(err, volume.ErrDelay):
		default:
			return out, err
		}
		if is, there := v.g.mirror.volume(v.uuid); !there || is.Deleted { // it was there when this Router was made
			return out, fmt.Errorf("%w: volume %s was deleted", volume.ErrStale, v.uuid)
		}
		timer := time.NewTimer(retryPause)
		select {
		case <-changed:
			timer.Stop()
			continue
		case <-timer.C:
			continue
		case <-ended(expelled):
			err = fmt.Errorf("the client may not use the volume any more: %w", err)
		case <-ctx.Done():
			err = fmt.Errorf("no home answers: %w: %w", ctx.Err(), err)
		}
		timer.Stop()
		if unknown {
			return out, fmt.Errorf("%w: %v", volume.ErrUnknown, err)
		}
		return out, fmt.Errorf("%w: %v", volume.ErrDelay, err)
	}
}

// either returns a context that ends when ctx does or other, which may be nil, or when done is called, which must be.
func either(ctx, other context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	if other == nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(other, cancel)
	return ctx, func() { stop(); cancel() }
}

// ended is closed when ctx ends, which may be nil.
func ended(ctx context.Context) <-chan struct{} {
	if ctx == nil {
		return nil
	}
	return ctx.Done()
}

// try executes op once at whoever is home now.
func (v *Router) try(ctx context.Context, op func(ctx context.Context, t target) error) (outcomeOf, error) {
	return v.attempt(ctx, nil, op)
}

// attempt is try. op ends when expelled does, if that is not nil.
func (v *Router) attempt(ctx, expelled context.Context, op func(ctx context.Context, t target) error) (outcomeOf, error) {
	ctx, done := either(ctx, expelled)
	defer done()
	if l := v.copy(); l != nil {
		if epoch, ok := l.replica.Leading(); ok {
			ctx, done, err := l.use(ctx)
			if err != nil {
				return outcomeOf{epoch: epoch}, err
			}
			defer done()
			// When op has ended, what is in the log is before all that others do later; what is not never will be.
			return outcomeOf{epoch: epoch}, op(ctx, localTarget{l.engine, l.locks, v.g.cfg.Name, true, new(log.Position)})
		}
	}
	home, epoch, over := v.g.mirror.reign(v.uuid)
	if home == "" || home == v.g.cfg.Name {
		return outcomeOf{epoch: epoch}, journal.ErrNotHome
	}
	client, err := v.g.peers.forwardClient(home)
	if err != nil {
		return outcomeOf{epoch: epoch}, fmt.Errorf("%w: %v", journal.ErrNotHome, err)
	}
	// A call to a home that is no more may hang: it ends when another epoch is heard of.
	ctx, done = either(ctx, over)
	defer done()
	call := &forward.Call{Client: client, Volume: v.uuid, Epoch: epoch, Held: v.mayHold}
	if reg, ok := v.current(); ok {
		call.Registration = reg
	}
	err = op(ctx, call)
	if call.Unanswered || errors.Is(err, forward.ErrRegister) {
		v.spoil(call.Registration) // before it is sent again: then the first one does nothing any more when it arrives later
	}
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

// setCopy makes l the local copy, or says that there is none (nil). A copy is told of what is held before anybody asks it for anything.
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
	out, err := v.run(ctx, r.Revoked, r.ID != (volume.OpID{}), op)
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
	ctx, done, err := l.use(ctx)
	if err != nil {
		return false
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, v.g.cfg.Promise)
	defer cancel()
	return l.engine.WaitApplied(ctx, pos) == nil // if it does not come in time, the lease has ended and reads go to the home
}

// read runs an operation that changes nothing, on the local copy if it may serve, else at the home.
func (v *Router) read(ctx context.Context, r volume.Request, op func(ctx context.Context, t volume.Reader) error) error {
	if l := v.copy(); l != nil && l.replica.MayServe() == nil {
		both, done := either(ctx, r.Revoked) // the home may have to wait for its members until somebody brings them back
		err := l.read(both, op)
		done()
		if !errors.Is(err, volume.ErrDelay) {
			return err
		}
	}
	_, err := v.run(ctx, r.Revoked, true, func(ctx context.Context, t target) error { return op(ctx, t) })
	return err
}

// read runs op on the engine. ErrDelay: it closes, or may not serve.
func (r *replicaOf) read(ctx context.Context, op func(ctx context.Context, t volume.Reader) error) error {
	ctx, done, err := r.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	return op(ctx, r.engine)
}

// verifier is rule 24's.
func (g *Gateway) verifier(epoch uint64) volume.Verifier {
	h := sha256.Sum256(fmt.Appendf(nil, "weir verifier\n%s\n%s\n%d\n%d", g.cfg.Name, g.cfg.Pool.Incarnation(), g.cfg.Pool.Boot(), epoch))
	return volume.Verifier(h[:8])
}
