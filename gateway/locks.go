// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/locktable"
)

// lockTable arbitrates a volume's byte-range locks while this gateway is its home (rule 23). It begins empty with each reign; until
// every gateway that lives has registered what its clients hold, it grants only what is reclaimed. What a gateway holds whose heartbeat has
// ended goes to who asks for it; when that gateway registers again, it is told, also of what others have given up again.
//
// It also knows which changes other gateways have under way here. None is executed that does not belong to its gateway's newest registration
// of this reign, and none of an older one runs any more when a registration is answered.
type lockTable struct {
	r *replicaOf
	g *Gateway

	mu         sync.Mutex
	reign      uint64 // epoch; 0 while not home
	table      locktable.Table
	registered map[string]*registration // by gateway
	given      given
	complete   map[string]uint64 // given.serial when the locks of a gateway that is gone were let go, by gateway; 0: not in this reign
	underWay   map[*changeUnderWay]struct{}
}

// registration is what a gateway said in this reign.
type registration struct {
	newest  forward.Registration
	ready   bool   // its clients have what they held
	known   bool   // table has what it held, also what its former process did, and it knows what of that is lost
	base    uint64 // given.serial when table last had all that it held, before it was known: what others had since, it has lost
	changes bool   // they belong to registrations too
}

func newLockTable(r *replicaOf, g *Gateway) *lockTable {
	return &lockTable{r: r, g: g, underWay: map[*changeUnderWay]struct{}{}}
}

// begin begins a reign. It waits for changes that were let in during a former one, which must not be executed in this: their gateway may count
// on that they have ended with it. An error is ctx's.
func (l *lockTable) begin(ctx context.Context, epoch uint64) error {
	if err := awaitEnd(ctx, l.end()); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reign, l.table, l.registered = epoch, locktable.Table{}, map[string]*registration{}
	l.given, l.complete = given{}, map[string]uint64{}
	return nil
}

// end ends the reign and returns what is still under way.
func (l *lockTable) end() []*changeUnderWay {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reign, l.given = 0, given{} // which may be large
	return l.endChanges("")
}

// grace tells whether locks may exist that are not in the table; l.mu is held.
func (l *lockTable) grace() bool {
	living, synced := l.g.mirror.living()
	if !synced {
		return true // it is not known who lives
	}
	for _, gateway := range append(living, l.g.cfg.Name) { // which lives, though its heartbeat may be late
		if reg := l.registered[gateway]; l.g.uses(l.r.uuid, gateway) && (reg == nil || !reg.ready && !reg.known) {
			return true
		}
	}
	return false
}

// gone tells whether others may have what a gateway's clients hold, because its heartbeat has ended.
func (l *lockTable) gone(gateway string) bool {
	return gateway != l.g.cfg.Name && l.g.mirror.gone(gateway)
}

// freeing runs f, and again without the locks of gateways that are gone if those are what it conflicts with; l.mu is held.
func (l *lockTable) freeing(f func() error) error {
	for {
		err := f()
		var conflict *volume.LockConflict
		if !errors.As(err, &conflict) || !l.gone(conflict.Held.Owner.Gateway) {
			return err
		}
		gone := conflict.Held.Owner.Gateway
		l.table.ReleaseGateway(gone)
		if reg := l.registered[gone]; reg != nil && reg.known { // else table did not have everything
			l.complete[gone] = l.given.serial
		}
		delete(l.registered, gone) // it has to ask what it still has
	}
}

// lockSession is one gateway's locks under one registration.
type lockSession struct {
	*lockTable
	gateway string
	reg     forward.Registration
	changes bool // what Register says of them
}

var _ forward.Locks = lockSession{}

// Register implements forward.Locks. When it returns, nothing of the gateway's former registrations runs here any more.
func (s lockSession) Register(ctx context.Context, recovering bool, held []forward.HeldLock) (lost []forward.HeldLock, err error) {
	l := s.lockTable
	l.mu.Lock()
	reg, err := s.renew()
	if err != nil {
		l.mu.Unlock()
		return nil, err
	}
	former := l.endChanges(s.gateway) // none is of this registration: it is not answered
	l.mu.Unlock()
	if err := awaitEnd(ctx, former); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.reign == 0:
		return nil, journal.ErrNotHome
	case l.registered[s.gateway] != reg || reg.newest != s.reg:
		return nil, s.isLate()
	}
	if reg.ready = !recovering; recovering {
		if reg.known {
			reg.base = l.given.serial
		}
		return nil, nil
	}
	l.table.ReleaseGateway(s.gateway)
	for _, h := range held {
		if h.Lock.Owner.Gateway != s.gateway || !reg.known && l.given.since(reg.base, h.Handle, h.Lock) || l.freeing(func() error { return l.table.Set(h.Handle, h.Lock) }) != nil {
			lost = append(lost, h)
		}
	}
	reg.known = reg.known || len(lost) == 0 // else it may not hear this answer, and ask again: see isNewest
	return lost, nil
}

// renew makes this registration its gateway's newest; mu is held. Of two incarnations that go by one name, the one that the registry has is the
// gateway: another may be a process that everybody takes to be dead.
func (s lockSession) renew() (*registration, error) {
	if s.reign == 0 {
		return nil, journal.ErrNotHome
	}
	if is, _, _ := s.g.mirror.gateway(s.gateway); s.gateway != s.g.cfg.Name && is.Incarnation != s.reg.Incarnation {
		return nil, fmt.Errorf("%w: as far as home %s has heard, gateway %s has another pool than the one that asks", volume.ErrDelay, s.g.cfg.Name, s.gateway)
	}
	reg := s.registered[s.gateway]
	switch {
	case reg == nil:
		reg = &registration{base: s.complete[s.gateway]}
		s.registered[s.gateway] = reg
	case reg.newest.Incarnation == s.reg.Incarnation && reg.newest.Number >= s.reg.Number:
		return nil, s.isLate()
	}
	reg.newest, reg.changes = s.reg, s.changes
	return reg, nil
}

func (s lockSession) isLate() error {
	return fmt.Errorf("%w: gateway %s has registered again since", volume.ErrDelay, s.gateway)
}

// SetLock implements volume.Locker.
func (s lockSession) SetLock(ctx context.Context, r volume.Request, h volume.Handle, k volume.Lock, reclaim bool) error {
	return s.run(ctx, r, h, k, true, func() error {
		if !s.isNewest() {
			return forward.ErrRegister
		}
		switch gone := s.gone(s.gateway); { // then who asks next would get what is granted now
		case reclaim && gone: // its heartbeat begins soon; ErrGrace Linux takes for the loss of the lock that it reclaims (nfs4_reclaim_locks, seen in 6.1)
			return fmt.Errorf("%w: home %s has not heard the heartbeat of gateway %s again", volume.ErrDelay, s.g.cfg.Name, s.gateway)
		case !reclaim && (gone || s.grace()):
			return volume.ErrGrace
		}
		// Whether a client may reclaim is for its own gateway to say, which knows what it held (rule 23); a client may
		// begin again to reclaim after its gateway thought that it was done. A conflict is refused below.
		if reclaim && s.given.since(s.registered[s.gateway].base, h, k) {
			return fmt.Errorf("%w: others had it since", volume.ErrNoGrace)
		}
		err := s.freeing(func() error { return s.table.Set(h, k) })
		if err == nil && !reclaim { // nobody lives then whose locks the table does not have: see grace
			s.given.add(h, k)
		}
		return err
	})
}

// TestLock implements volume.Locker.
func (s lockSession) TestLock(ctx context.Context, r volume.Request, h volume.Handle, k volume.Lock) error {
	return s.run(ctx, r, h, k, false, func() error {
		if s.grace() {
			return volume.ErrGrace
		}
		return s.freeing(func() error { return s.table.Test(h, k) })
	})
}

// Unlock implements volume.Locker.
func (s lockSession) Unlock(ctx context.Context, r volume.Request, h volume.Handle, k volume.Lock) error {
	unlock := func() error {
		if !s.isNewest() {
			return forward.ErrRegister
		}
		s.table.Unlock(h, k)
		return nil
	}
	err := s.run(ctx, r, h, k, true, unlock)
	if errors.Is(err, volume.ErrStale) { // nobody comes back for it
		s.mu.Lock()
		_ = unlock() // if it is not registered, there is nothing to unlock
		s.mu.Unlock()
	}
	return err
}

// isNewest tells whether the gateway has not registered anew since; mu is held. If so, it has heard the answer to that registration.
func (s lockSession) isNewest() bool {
	reg := s.registered[s.gateway]
	if reg == nil || reg.newest != s.reg {
		return false
	}
	reg.known = reg.known || reg.ready
	return true
}

// run runs f, with mu held, on a lock of a file that is there. What f refuses, or only tells, has changed nothing: it is told if this gateway
// may serve.
func (s lockSession) run(ctx context.Context, r volume.Request, h volume.Handle, k volume.Lock, changes bool, f func() error) error {
	if k.Start > k.End {
		return fmt.Errorf("lock from %d to %d: %w", k.Start, k.End, volume.ErrInvalid)
	}
	if k.Owner.Gateway != s.gateway {
		return fmt.Errorf("lock of gateway %q asked for by gateway %q: %w", k.Owner.Gateway, s.gateway, volume.ErrInvalid)
	}
	attr, err := s.r.engine.GetAttr(ctx, r, h)
	switch {
	case err != nil:
		return err
	case attr.Type == volume.Directory:
		return volume.ErrIsDir
	case attr.Type != volume.Regular:
		return volume.ErrInvalid
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	reign := s.reign
	if reign == 0 {
		return journal.ErrNotHome
	}
	if err = f(); err == nil && changes {
		return nil // if others are home by now, the gateway has yet to register with them: see locking
	}
	// Rule 4: others may have been home since the file was looked at.
	if merr := s.r.replica.MayServe(); merr != nil {
		return fmt.Errorf("%w: %v", volume.ErrDelay, merr)
	}
	if epoch, ok := s.r.replica.Leading(); !ok || epoch != reign {
		return journal.ErrNotHome
	}
	return err
}

// heldLocks are the locks of this gateway's own clients on one volume, to be registered with each new home. The Router is their one writer.
type heldLocks struct {
	mu    sync.Mutex
	table locktable.Table
}

// granted notes what the home has granted. What stands against it here, the home has let go.
func (k *heldLocks) granted(h volume.Handle, l volume.Lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var conflict *volume.LockConflict
	for errors.As(k.table.Set(h, l), &conflict) {
		k.table.Unlock(h, conflict.Held)
	}
}

func (k *heldLocks) released(h volume.Handle, l volume.Lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.table.Unlock(h, l)
}

func (k *heldLocks) all() []forward.HeldLock {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []forward.HeldLock
	for h, l := range k.table.All() {
		out = append(out, forward.HeldLock{Handle: h, Lock: l})
	}
	return out
}
