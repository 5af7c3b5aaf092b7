// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// Session is one gateway's locks under one registration.
type Session struct {
	t       *Table
	gateway string
	reg     forward.Registration
	changes bool // as in registration
}

var _ forward.Locks = Session{}

// Session returns the locks of a gateway under a registration. changes is true if the gateway's
// changes belong to registrations too.
func (t *Table) Session(gateway string, reg forward.Registration, changes bool) Session {
	return Session{t, gateway, reg, changes}
}

// Register implements forward.Locks (locks-3).
func (s Session) Register(ctx context.Context, recovering bool, held []forward.HeldLock) (lost []forward.HeldLock, err error) {
	t := s.t
	t.mu.Lock()
	reg, err := s.renew()
	if err != nil {
		t.mu.Unlock()
		return nil, err
	}
	former := t.cancel(s.gateway) // none belongs to this registration, which is not answered yet
	t.mu.Unlock()
	if err := await(ctx, former); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.reign == 0:
		return nil, journal.ErrNotHome
	case t.registered[s.gateway] != reg || reg.newest != s.reg:
		return nil, s.late()
	}
	if reg.ready = !recovering; recovering {
		if reg.known {
			reg.base = t.granted.serial
		}
		return nil, nil
	}
	t.table.ReleaseGateway(s.gateway)
	for _, h := range held {
		if !s.keeps(reg, h) {
			lost = append(lost, h)
		}
	}
	// With losses, the gateway may miss this answer and register again: see isNewest.
	reg.known = reg.known || len(lost) == 0
	return lost, nil
}

// keeps puts a lock of the gateway into the table, and returns false if the lock is lost. The
// caller holds mu.
func (s Session) keeps(reg *registration, h forward.HeldLock) bool {
	t := s.t
	switch {
	case h.Lock.Owner.Gateway != s.gateway:
		return false
	case !reg.known && t.granted.conflicts(reg.base, h.Handle, h.Lock):
		return false
	}
	return t.freeing(func() error { return t.table.Set(h.Handle, h.Lock) }) == nil
}

// renew makes this registration its gateway's newest. The caller holds mu. If two incarnations use
// one name, the one in the registry counts: the other may be a process that everybody believes to
// be dead.
func (s Session) renew() (*registration, error) {
	t := s.t
	if t.reign == 0 {
		return nil, journal.ErrNotHome
	}
	if is, _, _ := t.cfg.View.Gateway(s.gateway); s.gateway != t.cfg.Gateway && is.Incarnation != s.reg.Incarnation {
		return nil, fmt.Errorf("%w: as far as home %s has heard, gateway %s has another pool than the one that asks",
			volume.ErrDelay, t.cfg.Gateway, s.gateway)
	}
	reg := t.registered[s.gateway]
	switch {
	case reg == nil:
		reg = &registration{base: t.complete[s.gateway]}
		t.registered[s.gateway] = reg
	case reg.newest.Incarnation == s.reg.Incarnation && reg.newest.Number >= s.reg.Number:
		return nil, s.late()
	}
	reg.newest, reg.changes = s.reg, s.changes
	return reg, nil
}

func (s Session) late() error {
	return fmt.Errorf("%w: gateway %s has registered again since", volume.ErrDelay, s.gateway)
}

// isNewest reports whether this is still the gateway's newest registration. The caller holds mu. An
// operation under it shows that the gateway has got the answer to that registration.
func (s Session) isNewest() bool {
	reg := s.t.registered[s.gateway]
	if reg == nil || reg.newest != s.reg {
		return false
	}
	reg.known = reg.known || reg.ready
	return true
}

// SetLock implements volume.Locker.
func (s Session) SetLock(ctx context.Context, r volume.Request, h volume.Handle, k volume.Lock, reclaim bool) error {
	t := s.t
	return s.onFile(ctx, r, h, k, true, func() error {
		if !s.isNewest() {
			return forward.ErrRegister
		}
		switch gone := t.gone(s.gateway); { // if it is gone, its locks would go to the next who asks
		case reclaim && gone:
			// Its heartbeat begins soon. Linux takes ErrGrace for the loss of the lock that it
			// reclaims (nfs4_reclaim_locks, seen in 6.1).
			return fmt.Errorf("%w: home %s has not heard the heartbeat of gateway %s again", volume.ErrDelay, t.cfg.Gateway, s.gateway)
		case !reclaim && (gone || t.grace()):
			return volume.ErrGrace
		}
		// Whether a client may reclaim is for its own gateway to say, which knows what it held. A
		// client may begin again to reclaim after its gateway thought that it was done. A conflict
		// is refused below.
		if reclaim && t.granted.conflicts(t.registered[s.gateway].base, h, k) {
			return fmt.Errorf("%w: others had it since", volume.ErrNoGrace)
		}
		err := t.freeing(func() error { return t.table.Set(h, k) })
		if err == nil && !reclaim { // the table has the locks of all living gateways: see grace
			t.granted.add(h, k)
		}
		return err
	})
}

// TestLock implements volume.Locker.
func (s Session) TestLock(ctx context.Context, r volume.Request, h volume.Handle, k volume.Lock) error {
	t := s.t
	return s.onFile(ctx, r, h, k, false, func() error {
		if t.grace() {
			return volume.ErrGrace
		}
		return t.freeing(func() error { return t.table.Test(h, k) })
	})
}

// Unlock implements volume.Locker.
func (s Session) Unlock(ctx context.Context, r volume.Request, h volume.Handle, k volume.Lock) error {
	t := s.t
	unlock := func() error {
		if !s.isNewest() {
			return forward.ErrRegister
		}
		t.table.Unlock(h, k)
		return nil
	}
	err := s.onFile(ctx, r, h, k, true, unlock)
	if errors.Is(err, volume.ErrStale) { // the client does not release it again
		t.mu.Lock()
		_ = unlock() // if it is not registered, there is nothing to unlock
		t.mu.Unlock()
	}
	return err
}

// onFile calls f, with mu held, for a lock of a file that exists. An error of f reveals the state
// of the volume, and so does any answer of an f that changes nothing. onFile returns these only if
// this gateway may serve.
func (s Session) onFile(ctx context.Context, r volume.Request, h volume.Handle, k volume.Lock, changes bool, f func() error) error {
	t := s.t
	if k.Start > k.End {
		return fmt.Errorf("lock from %d to %d: %w", k.Start, k.End, volume.ErrInvalid)
	}
	if k.Owner.Gateway != s.gateway {
		return fmt.Errorf("lock of gateway %q asked for by gateway %q: %w", k.Owner.Gateway, s.gateway, volume.ErrInvalid)
	}
	attr, err := t.cfg.Copy.GetAttr(ctx, r, h)
	switch {
	case err != nil:
		return err
	case attr.Type == volume.Directory:
		return volume.ErrIsDir
	case attr.Type != volume.Regular:
		return volume.ErrInvalid
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	reign := t.reign
	if reign == 0 {
		return journal.ErrNotHome
	}
	if err = f(); err == nil && changes {
		return nil // if another gateway is home by now, this lock is registered with it: see Registrar
	}
	// protocol-4: another gateway may have been home since the file was looked at.
	if serr := t.cfg.Copy.MayServe(); serr != nil {
		return fmt.Errorf("%w: %v", volume.ErrDelay, serr)
	}
	if epoch, ok := t.cfg.Copy.Leading(); !ok || epoch != reign {
		return journal.ErrNotHome
	}
	return err
}
