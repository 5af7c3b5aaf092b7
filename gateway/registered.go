// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/volume"
)

// registered is what the home was last told of this gateway's locks on one volume (rule 23). Changes and lock operations that are sent to
// a home belong to it, once the home has answered. When one of them was given up without an answer it does not count any more, so that the
// next one waits for another registration; when that is answered, what was given up does nothing any more, there or at a former home.
type registered struct {
	mu     sync.Mutex
	number uint64 // of the newest, whether it got there or not
	valid  bool   // the home has it, and no operation under it that was given up may still be under way to the home
	ready  bool   // it told of all locks
	epoch  uint64 // of the home
	beat   uint64 // this gateway's, see mirror.beat
}

// current returns the registration that operations belong to, if there is one.
func (v *Router) current() (forward.Registration, bool) {
	v.reg.mu.Lock()
	defer v.reg.mu.Unlock()
	return v.registrationOf(v.reg.number), v.reg.valid
}

func (v *Router) registrationOf(number uint64) forward.Registration {
	return forward.Registration{Incarnation: v.g.self.Incarnation, Number: v.g.cfg.Pool.Boot()<<32 + number}
}

// spoil ends a registration that the home does not have, or under which an operation may still be executed.
func (v *Router) spoil(reg forward.Registration) {
	v.reg.mu.Lock()
	defer v.reg.mu.Unlock()
	if v.registrationOf(v.reg.number) == reg {
		v.reg.valid = false
	}
}

// locks runs f, which is repeatable, on the home's locks, and then notes what came of it.
func (v *Router) locks(ctx context.Context, r volume.Request, f func(ctx context.Context, k forward.Locks) error, done func()) error {
	_, err := v.run(ctx, r.Revoked, true, func(ctx context.Context, t target) error {
		if err := v.locking.enter(ctx); err != nil {
			return fmt.Errorf("%w: wait for the registration of locks: %v", volume.ErrDelay, err)
		}
		defer v.locking.leave()
		reg, ok := v.current()
		if !ok {
			return forward.ErrRegister
		}
		err := f(ctx, t.Locks(reg))
		switch {
		case err == nil:
			done()
		case errors.Is(err, forward.ErrRegister), errors.Is(err, volume.ErrUnknown):
			v.spoil(reg)
		}
		return err
	})
	return err
}

// register tells the home which locks this gateway's clients hold, unless it knows.
func (v *Router) register(ctx context.Context) error {
	lost, err := v.registerAlone(ctx)
	for _, l := range lost {
		v.lockLost(l)
	}
	return err
}

func (v *Router) registerAlone(ctx context.Context) (lost []forward.HeldLock, err error) {
	if err := v.locking.enterAlone(ctx); err != nil {
		return nil, err
	}
	defer v.locking.leaveAlone()
	if !v.mustRegister() {
		return nil, nil
	}
	recovering, beat := v.g.recovering(), v.g.mirror.beat(v.g.cfg.Name)
	v.reg.mu.Lock()
	v.reg.number++
	v.reg.valid = false
	reg := v.registrationOf(v.reg.number)
	v.reg.mu.Unlock()
	held := v.held.all()
	out, err := v.try(ctx, func(ctx context.Context, t target) (err error) {
		lost, err = t.Locks(reg).Register(ctx, recovering, held)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, l := range lost {
		v.held.released(l.Handle, l.Lock)
	}
	v.reg.mu.Lock()
	defer v.reg.mu.Unlock()
	v.reg.valid, v.reg.ready, v.reg.epoch, v.reg.beat = true, !recovering, out.epoch, beat
	return lost, nil
}

// fenceAsks is how often fence asks the registry who is home, if it hears nothing of that. What it was told stays good for what was sent before
// it began, so asking again only finds a home that it would hear of later.
const fenceAsks = time.Second

// fence returns when nothing can change the volume any more that this gateway sent to a home and that nobody here waits for: what a former
// process sent, and what was given up. The home has ended it and refuses it, or it belongs to a reign that is over, in which nothing is
// committed any more. It also waits until the home has let go of locks that the gateway's clients do not hold any more: after a restart it
// does so when they have reclaimed theirs. The error is what is missing when ctx ends.
func (v *Router) fence(ctx context.Context) error {
	var why error // it is not so yet
	var ctl federation.Control
	var asked time.Duration // when, in the reign of heard
	var heard uint64
	for first := true; ; first = false {
		changed := v.g.mirror.wait()
		var err error
		if _, epoch := v.g.mirror.home(v.uuid); first || epoch != heard || v.g.cfg.Clock()-asked >= fenceAsks {
			ctl, _, err = v.g.cfg.Registry.GetControl(ctx, v.uuid) // with a quorum: no former process knew of a later epoch
			heard, asked = epoch, v.g.cfg.Clock()
		}
		switch {
		case errors.Is(err, federation.ErrNotFound): // it never had a home
			return nil
		case err != nil && ctx.Err() != nil && why != nil:
			return why
		case err != nil:
			return fmt.Errorf("the registry is needed for this: %w", err)
		case ctl.Home.Gateway == v.g.cfg.Name, v.registeredIn(ctl.Epoch):
			return nil
		case v.g.recovering():
			why = errRecovering
		default:
			if err = v.register(ctx); err == nil {
				err = errors.New("it has not answered in this epoch")
			}
			why = fmt.Errorf("home %s has to end what this gateway sent it before: %w", ctl.Home.Gateway, err)
		}
		if v.registeredIn(ctl.Epoch) {
			return nil
		}
		timer := time.NewTimer(retryPause)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return why
		}
		timer.Stop()
	}
}

// registeredIn tells whether the home of epoch, or of a later one, knows all locks of this gateway's clients, and nothing was given up since.
func (v *Router) registeredIn(epoch uint64) bool {
	v.reg.mu.Lock()
	defer v.reg.mu.Unlock()
	return v.reg.valid && v.reg.ready && v.reg.epoch >= epoch
}

// mustRegister tells whether there is a home that is to be told of this gateway's locks: it is new, or does not have them all, or may have
// given them to others while it took this gateway to be gone.
func (v *Router) mustRegister() bool {
	_, epoch := v.g.mirror.home(v.uuid)
	if l := v.copy(); l != nil {
		if e, ok := l.replica.Leading(); ok {
			epoch = e
		}
	}
	v.reg.mu.Lock()
	defer v.reg.mu.Unlock()
	return !v.reg.valid || v.reg.epoch < epoch || !v.reg.ready && !v.g.recovering() || v.reg.beat != v.g.mirror.beat(v.g.cfg.Name)
}

// registerSoon registers in the background with a home that is to be told.
func (v *Router) registerSoon(ctx context.Context) {
	if _, epoch := v.g.mirror.home(v.uuid); epoch == 0 || !v.g.mirror.mayUse(v.uuid, v.g.cfg.Site) || !v.mustRegister() {
		return
	}
	if err := v.register(ctx); err != nil {
		v.g.cfg.Logger.Debug("locks are not registered with the home yet", "volume", v.uuid, "error", err)
	}
}

// lockKeeping registers the locks of this gateway's clients with homes that are new.
func (g *Gateway) lockKeeping(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		changed := g.mirror.wait()
		g.mu.Lock()
		var all []*Router
		for _, s := range g.volumes {
			all = append(all, s.router)
		}
		g.mu.Unlock()
		g.reclaiming.Store(g.recovering())
		for _, v := range all {
			call, cancel := context.WithTimeout(ctx, 2*time.Second)
			v.registerSoon(call)
			cancel()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-t.C:
		}
	}
}

// recovering tells whether clients of this gateway still reclaim what they held before it restarted.
func (g *Gateway) recovering() bool { return g.nfs.InGrace() }

// uses tells whether a gateway's clients may use a volume.
func (g *Gateway) uses(id, gateway string) bool {
	_, site, ok := g.mirror.gateway(gateway)
	return ok && g.mirror.mayUse(id, site.Name)
}

// usedNow is uses, asked of the registry: a gateway may hold locks under an admission that is not heard of here yet.
func (g *Gateway) usedNow(ctx context.Context, id, gateway string) (bool, error) {
	_, site, _ := g.mirror.gateway(gateway)
	v, _, err := g.cfg.Registry.GetVolume(ctx, id)
	if err != nil || slices.Contains(v.Sites, site.Name) {
		return true, err
	}
	all, err := g.cfg.Registry.ListAdmissions(ctx, site.Name)
	return slices.ContainsFunc(all, func(a federation.Admission) bool { return a.Volume == id }), err
}

// lockLost takes a lock from its client that others got while this gateway was taken to be gone: it must not go on as if it held it.
func (v *Router) lockLost(l forward.HeldLock) {
	owner, _ := asNamed(l.Lock.Owner)
	told := v.g.nfs.RevokeLocks(v.id, l.Handle, owner)
	v.g.cfg.Logger.Error("lock of a client could not be kept: others got it while this gateway was taken to be gone",
		"volume", v.uuid, "inode", l.Handle.Ino, "from", l.Lock.Start, "to", l.Lock.End, "told", told)
}
