// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/volume"
)

// ErrRecovering reports that clients of this gateway still reclaim what they held before it
// restarted, so that their locks are not all known.
var ErrRecovering = errors.New("clients of this gateway reclaim what they held before it restarted")

// Home is the volume's home, at this gateway or another.
type Home interface {
	// Once executes op once at whoever is home now, and returns the epoch of that home.
	Once(ctx context.Context, op func(ctx context.Context, h forward.Home) error) (epoch uint64, err error)
	// Epoch returns the newest epoch of the volume that this gateway knows of; 0: none.
	Epoch() uint64
}

// RegistrarConfig has what a Registrar needs.
type RegistrarConfig struct {
	Volume      string // UUID
	Gateway     string // this one
	Site        string
	Incarnation string // of the gateway's pool
	Boot        uint64 // grows with each start of the process
	View        *view.View
	Registry    interface {
		GetControl(ctx context.Context, volume string) (federation.Control, federation.Revision, error)
	}
	Clock      func() time.Duration // monotonic, counts suspend
	Timers     clockwork.Clock
	Home       Home
	Recovering func() bool                 // clients still reclaim
	Lost       func(lost forward.HeldLock) // informs the client of a lock that others got
}

// Registrar has the locks of this gateway's clients on one volume, and the newest registration of
// them with the home. Changes and lock operations that are sent to a home belong to that
// registration. When one of them gets no answer, the registration is void, and the next one waits
// for another registration. Once that is answered, the unanswered operation does nothing any more,
// at this home or a former one.
type Registrar struct {
	cfg  RegistrarConfig
	held heldLocks
	gate gate // entered to change locks, entered alone to register (locks-5)

	mu     sync.Mutex
	number uint64 // of the newest registration, even if the home did not get it
	valid  bool   // the home has it, and nothing that got no answer belongs to it
	ready  bool   // it had all locks
	epoch  uint64 // of the home
	beats  uint64 // this gateway's, see view.View.Beats
}

// NewRegistrar returns a registrar without locks. It registers when it is first needed.
func NewRegistrar(cfg RegistrarConfig) *Registrar { return &Registrar{cfg: cfg} }

// Current returns the registration that operations belong to; false: there is none.
func (k *Registrar) Current() (forward.Registration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.registration(k.number), k.valid
}

func (k *Registrar) registration(number uint64) forward.Registration {
	return forward.Registration{Incarnation: k.cfg.Incarnation, Number: k.cfg.Boot<<32 + number}
}

// Void ends a registration that the home does not have, or under which an operation may still be
// executed.
func (k *Registrar) Void(reg forward.Registration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.registration(k.number) == reg {
		k.valid = false
	}
}

// Under calls f, which changes locks at the home, with the current registration. ErrRegister: there
// is none, Register comes first. If the outcome of f is not known, the registration is void.
func (k *Registrar) Under(ctx context.Context, f func(reg forward.Registration) error) error {
	if err := k.gate.enter(ctx); err != nil {
		return fmt.Errorf("%w: wait for the registration of locks: %v", volume.ErrDelay, err)
	}
	defer k.gate.leave()
	reg, ok := k.Current()
	if !ok {
		return forward.ErrRegister
	}
	err := f(reg)
	if errors.Is(err, forward.ErrRegister) || errors.Is(err, volume.ErrUnknown) {
		k.Void(reg)
	}
	return err
}

// Held returns the locks of this gateway's clients.
func (k *Registrar) Held() []forward.HeldLock { return k.held.all() }

// Granted records a lock that the home has granted. It is called inside Under.
func (k *Registrar) Granted(h volume.Handle, l volume.Lock) { k.held.set(h, l) }

// Released records that a client released a lock, before the home is asked to release it (locks-6).
func (k *Registrar) Released(h volume.Handle, l volume.Lock) { k.held.unset(h, l) }

// Register registers the locks of this gateway's clients with the home, unless the home has them.
func (k *Registrar) Register(ctx context.Context) error {
	lost, err := k.registerAlone(ctx)
	for _, l := range lost {
		k.cfg.Lost(l)
	}
	return err
}

func (k *Registrar) registerAlone(ctx context.Context) (lost []forward.HeldLock, err error) {
	if err := k.gate.enterAlone(ctx); err != nil {
		return nil, err
	}
	defer k.gate.leaveAlone()
	if !k.due() {
		return nil, nil
	}
	recovering, beats := k.cfg.Recovering(), k.cfg.View.Beats(k.cfg.Gateway)
	k.mu.Lock()
	k.number++
	k.valid = false
	reg := k.registration(k.number)
	k.mu.Unlock()
	held := k.Held()
	epoch, err := k.cfg.Home.Once(ctx, func(ctx context.Context, h forward.Home) (err error) {
		lost, err = h.Locks(reg).Register(ctx, recovering, held)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, l := range lost {
		k.held.unset(l.Handle, l.Lock)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.valid, k.ready, k.epoch, k.beats = true, !recovering, epoch, beats
	return lost, nil
}

// due reports whether there is a home with which this gateway has to register: it is new, or does
// not have all locks, or may have granted them to others while it believed this gateway to be gone.
func (k *Registrar) due() bool {
	epoch := k.cfg.Home.Epoch()
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.valid || k.epoch < epoch || !k.ready && !k.cfg.Recovering() || k.beats != k.cfg.View.Beats(k.cfg.Gateway)
}

// RegisterIfDue registers with the home if that is due and this site may use the volume.
func (k *Registrar) RegisterIfDue(ctx context.Context) error {
	_, epoch := k.cfg.View.Home(k.cfg.Volume)
	if epoch == 0 || !k.cfg.View.MayUse(k.cfg.Volume, k.cfg.Site) || !k.due() {
		return nil
	}
	return k.Register(ctx)
}

// coveredIn reports whether the home of epoch, or of a later one, has all locks of this gateway's
// clients, and every operation since was answered.
func (k *Registrar) coveredIn(epoch uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.valid && k.ready && k.epoch >= epoch
}

// How often Fence looks at the view again, and asks the registry for an epoch that the view may not
// have yet. The registry's first answer covers what was sent before Fence began. Asking again only
// finds a newer home sooner than the view does.
const (
	fenceLooks = 50 * time.Millisecond
	fenceAsks  = time.Second
)

// Fence returns when two kinds of operations cannot change the volume any more: those that a former
// process of this gateway sent to a home, and those that this process sent and gave up. The home
// has ended and refuses them, or they belong to a reign that is over, in which nothing is committed
// any more. Fence also waits until the home has released the locks that the gateway's clients do
// not have any more; after a restart that is when they have reclaimed theirs. If ctx ends before,
// the error says what is missing.
func (k *Registrar) Fence(ctx context.Context) error {
	var why error // why Fence cannot return yet
	var ctl federation.Control
	var asked time.Duration // when, in the reign of heard
	var heard uint64
	for first := true; ; first = false {
		changed := k.cfg.View.Changed()
		var err error
		if _, epoch := k.cfg.View.Home(k.cfg.Volume); first || epoch != heard || k.cfg.Clock()-asked >= fenceAsks {
			ctl, _, err = k.cfg.Registry.GetControl(ctx, k.cfg.Volume) // with a quorum: no former process knew of a later epoch
			heard, asked = epoch, k.cfg.Clock()
		}
		switch {
		case errors.Is(err, federation.ErrNotFound): // the volume never had a home
			return nil
		case err != nil && ctx.Err() != nil && why != nil:
			return why
		case err != nil:
			return fmt.Errorf("the registry is needed for this: %w", err)
		case ctl.Home.Gateway == k.cfg.Gateway, k.coveredIn(ctl.Epoch):
			return nil
		case k.cfg.Recovering():
			why = ErrRecovering
		default:
			if err = k.Register(ctx); err == nil {
				err = errors.New("it has not answered in this epoch")
			}
			why = fmt.Errorf("home %s has to end what this gateway sent it before: %w", ctl.Home.Gateway, err)
		}
		if k.coveredIn(ctl.Epoch) {
			return nil
		}
		select {
		case <-changed:
		case <-k.cfg.Timers.After(fenceLooks):
		case <-ctx.Done():
			return why
		}
	}
}
