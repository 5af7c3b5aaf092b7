// SPDX-License-Identifier: Apache-2.0

package memvol

import (
	"context"
	"errors"
	"iter"
	"maps"

	"github.com/weir-storage/weir/volume"
)

// Grace says how SetLock treats reclaims.
type Grace uint8

// The states of a volume's lock registry.
const (
	GraceNone Grace = iota // reclaims are granted like other locks: the home never lost any
	GraceOn                // only reclaims are granted: ErrGrace for others
	GraceOver              // reclaims are refused: ErrNoGrace
)

// SetGrace sets how SetLock treats reclaims from now on.
func (v *Volume) SetGrace(g Grace) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.grace = g
}

// SetLock implements volume.Locker.
func (v *Volume) SetLock(_ context.Context, _ volume.Request, h volume.Handle, l volume.Lock, reclaim bool) error {
	return v.lock("setlock", h, l, func() error {
		if v.grace == GraceOn && !reclaim {
			return volume.ErrGrace
		}
		if v.grace == GraceOver && reclaim {
			return volume.ErrNoGrace
		}
		return v.locks.Set(h, l)
	})
}

// TestLock implements volume.Locker.
func (v *Volume) TestLock(_ context.Context, _ volume.Request, h volume.Handle, l volume.Lock) error {
	return v.lock("testlock", h, l, func() error { return v.locks.Test(h, l) })
}

// Unlock implements volume.Locker.
func (v *Volume) Unlock(_ context.Context, _ volume.Request, h volume.Handle, l volume.Lock) error {
	return v.lock("unlock", h, l, func() error {
		v.locks.Unlock(h, l)
		return nil
	})
}

// ReleaseGateway drops all locks that gateway registered, as a home does when
// the gateway's promise has ended.
func (v *Volume) ReleaseGateway(gateway string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.locks.ReleaseGateway(gateway)
}

// Locks returns all locks as they are now.
func (v *Volume) Locks() iter.Seq2[volume.Handle, []volume.Lock] {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := make(map[volume.Handle][]volume.Lock)
	for h, l := range v.locks.All() {
		all[h] = append(all[h], l)
	}
	return maps.All(all)
}

// lock runs f for a valid lock on a regular file. A *volume.LockConflict is
// returned as it is.
func (v *Volume) lock(op string, h volume.Handle, l volume.Lock, f func() error) error {
	p := place{op: op, h: h}
	_, err := read(v, p, func() (struct{}, error) {
		if l.Start > l.End {
			return struct{}{}, volume.ErrInvalid
		}
		if _, err := v.file(h); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, f()
	})
	var conflict *volume.LockConflict
	if errors.As(err, &conflict) {
		return conflict
	}
	return err
}
