// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/locktable"
)

// lockTable arbitrates a volume's byte-range locks while this gateway is its home (rule 23). It begins empty with each reign; until
// every gateway that lives has registered what its clients hold, it grants only what is reclaimed.
type lockTable struct {
	r *replicaOf
	g *Gateway

	mu         sync.Mutex
	reign      uint64 // epoch; 0 while not home
	table      locktable.Table
	registered map[string]*registration
}

// registration is what a gateway said in this reign.
type registration struct {
	ready bool // its clients have what they held
	known bool // it was ready once: table has what its former process held
}

func newLockTable(r *replicaOf, g *Gateway) *lockTable { return &lockTable{r: r, g: g} }

func (l *lockTable) begin(epoch uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reign, l.table, l.registered = epoch, locktable.Table{}, map[string]*registration{}
}

func (l *lockTable) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reign = 0
}

// Register takes in everything that a gateway's clients hold.
func (l *lockTable) Register(_ context.Context, gateway string, recovering bool, locks []forward.HeldLock) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reign == 0 {
		return forward.ErrNotHome
	}
	reg := l.registered[gateway]
	if reg == nil {
		reg = &registration{}
		l.registered[gateway] = reg
	}
	reg.ready = !recovering
	if recovering {
		return nil
	}
	reg.known = true
	l.table.ReleaseGateway(gateway)
	var lost error
	for _, h := range locks {
		if err := l.table.Set(h.Handle, h.Lock); err != nil && lost == nil {
			lost = fmt.Errorf("lock of gateway %s can not be kept: %w", gateway, err)
		}
	}
	return lost
}

// grace tells whether locks may exist that are not in the table; l.mu is held.
func (l *lockTable) grace() bool {
	for _, gateway := range l.g.mirror.living() {
		if reg := l.registered[gateway]; reg == nil || !reg.ready && !reg.known {
			return true
		}
	}
	return false
}

// SetLock implements volume.Locker.
func (l *lockTable) SetLock(ctx context.Context, r volume.Request, h volume.Handle, k volume.Lock, reclaim bool) error {
	return l.run(ctx, r, h, k, func() error {
		reg := l.registered[k.Owner.Gateway]
		if reg == nil {
			return forward.ErrRegister
		}
		if !reclaim && l.grace() {
			return volume.ErrGrace
		}
		// Whether a client may reclaim is for its own gateway to say, which knows what it held (rule 23); a client may
		// begin again to reclaim after its gateway thought that it was done. A conflict is refused below.
		return l.table.Set(h, k)
	})
}

// TestLock implements volume.Locker.
func (l *lockTable) TestLock(ctx context.Context, r volume.Request, h volume.Handle, k volume.Lock) error {
	return l.run(ctx, r, h, k, func() error {
		if l.grace() {
			return volume.ErrGrace
		}
		return l.table.Test(h, k)
	})
}

// Unlock implements volume.Locker.
func (l *lockTable) Unlock(ctx context.Context, r volume.Request, h volume.Handle, k volume.Lock) error {
	return l.run(ctx, r, h, k, func() error {
		l.table.Unlock(h, k)
		return nil
	})
}

func (l *lockTable) run(ctx context.Context, r volume.Request, h volume.Handle, k volume.Lock, f func() error) error {
	if k.Start > k.End {
		return fmt.Errorf("lock from %d to %d: %w", k.Start, k.End, volume.ErrInvalid)
	}
	attr, err := l.r.engine.GetAttr(ctx, r, h)
	switch {
	case err != nil:
		return err
	case attr.Type == volume.Directory:
		return volume.ErrIsDir
	case attr.Type != volume.Regular:
		return volume.ErrInvalid
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reign == 0 {
		return forward.ErrNotHome
	}
	return f()
}

// heldLocks are the locks of this gateway's own clients on one volume, to be registered with each new home. The Router is their one writer.
type heldLocks struct {
	mu    sync.Mutex
	table locktable.Table
}

func (k *heldLocks) granted(h volume.Handle, l volume.Lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = k.table.Set(h, l) // the home has granted it: nothing here can conflict but what the home has let go
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
	return slices.Clip(out)
}
