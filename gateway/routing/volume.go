// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"strings"

	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/volume"
)

// ID implements volume.Volume.
func (v *Router) ID() volume.ID { return v.id }

// Hold implements volume.Volume.
func (v *Router) Hold(h volume.Handle) error {
	l := v.Copy()
	if l != nil {
		if err := l.Hold(h, v.cfg.Reclaiming()); err != nil {
			return err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.local != nil && v.local != l {
		v.local.Engine.Retain(h)
	}
	v.holds[h]++
	return nil
}

// Release implements volume.Volume.
func (v *Router) Release(h volume.Handle) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.local != nil {
		v.local.Engine.Release(h)
	}
	if v.holds[h]--; v.holds[h] <= 0 {
		delete(v.holds, h)
	}
}

// mayHold reports whether clients of this gateway have h open, or may be about to reclaim it.
func (v *Router) mayHold(h volume.Handle) bool {
	if v.cfg.Reclaiming() {
		return true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.holds[h] > 0
}

// heldOf returns those of hs that clients of this gateway have open.
func (v *Router) heldOf(hs []volume.Handle) []volume.Handle {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []volume.Handle
	for _, h := range hs {
		if v.holds[h] > 0 {
			out = append(out, h)
		}
	}
	return out
}

// Forget implements volume.Volume.
func (v *Router) Forget(ctx context.Context, prefix string) error {
	return v.AtHome(ctx, volume.Request{}, true, func(ctx context.Context, t forward.Home) error { return t.Forget(ctx, prefix) })
}

// GetAttr implements volume.Reader.
func (v *Router) GetAttr(ctx context.Context, r volume.Request, h volume.Handle) (out volume.Attr, err error) {
	if a, ok := v.freshOf(h); ok {
		return a, nil
	}
	v.awaitFresh(ctx, h)
	reclaiming := v.cfg.Reclaiming() // if so, h may be valid without a name
	err = v.read(ctx, r, func(ctx context.Context, t volume.Reader) (err error) {
		if e, local := t.(holder); reclaiming && local && e.HoldElsewhere(h) == nil {
			defer e.Release(h)
		}
		out, err = t.GetAttr(ctx, r, h)
		return err
	})
	return out, err
}

// holder is an engine at this gateway. A Call is not a holder: its request says what is held.
type holder interface {
	HoldElsewhere(h volume.Handle) error
	Release(h volume.Handle)
}

// Lookup implements volume.Reader.
func (v *Router) Lookup(ctx context.Context, r volume.Request, dir volume.Handle, name string) (out volume.Attr, err error) {
	err = v.read(ctx, r, func(ctx context.Context, t volume.Reader) (err error) {
		out, err = t.Lookup(ctx, r, dir, name)
		return err
	})
	if err == nil && v.awaitFresh(ctx, out.Handle) {
		return v.Lookup(ctx, r, dir, name)
	}
	if l := v.here(); err == nil && l != nil && out.Snap == 0 {
		v.cfg.Prefetch().Found(l, dir, name, out)
	}
	return out, err
}

// ReadLink implements volume.Reader.
func (v *Router) ReadLink(ctx context.Context, r volume.Request, h volume.Handle) (out string, err error) {
	err = v.read(ctx, r, func(ctx context.Context, t volume.Reader) (err error) {
		out, err = t.ReadLink(ctx, r, h)
		return err
	})
	return out, err
}

// ReadDir implements volume.Reader.
func (v *Router) ReadDir(ctx context.Context, r volume.Request, dir volume.Handle, after uint64, limit int) (
	out []volume.Entry, eof bool, err error) {
	err = v.read(ctx, r, func(ctx context.Context, t volume.Reader) (err error) {
		out, eof, err = t.ReadDir(ctx, r, dir, after, limit)
		return err
	})
	waited := false
	for _, e := range out {
		waited = v.awaitFresh(ctx, e.Attr.Handle) || waited
	}
	if waited && ctx.Err() == nil {
		return v.ReadDir(ctx, r, dir, after, limit)
	}
	if l := v.here(); l != nil && dir.Snap == 0 {
		for _, e := range out {
			v.cfg.Prefetch().Found(l, dir, e.Name, e.Attr)
		}
	}
	return out, eof, err
}

// Read implements volume.Reader.
func (v *Router) Read(ctx context.Context, r volume.Request, h volume.Handle, off uint64, p []byte) (n int, eof bool, err error) {
	v.awaitFresh(ctx, h)
	if l := v.here(); l != nil && h.Snap == 0 {
		v.cfg.Prefetch().Reads(l, h)
	}
	err = v.read(ctx, r, func(ctx context.Context, t volume.Reader) (err error) {
		n, eof, err = t.Read(ctx, r, h, off, p)
		return err
	})
	return n, eof, err
}

// Seek implements volume.Reader.
func (v *Router) Seek(ctx context.Context, r volume.Request, h volume.Handle, off uint64, hole bool) (out uint64, err error) {
	v.awaitFresh(ctx, h)
	err = v.read(ctx, r, func(ctx context.Context, t volume.Reader) (err error) {
		out, err = t.Seek(ctx, r, h, off, hole)
		return err
	})
	return out, err
}

// GetXattr implements volume.Reader.
func (v *Router) GetXattr(ctx context.Context, r volume.Request, h volume.Handle, name string) (out []byte, err error) {
	err = v.read(ctx, r, func(ctx context.Context, t volume.Reader) (err error) {
		out, err = t.GetXattr(ctx, r, h, name)
		return err
	})
	return out, err
}

// ListXattr implements volume.Reader.
func (v *Router) ListXattr(ctx context.Context, r volume.Request, h volume.Handle) (out []string, err error) {
	err = v.read(ctx, r, func(ctx context.Context, t volume.Reader) (err error) {
		out, err = t.ListXattr(ctx, r, h)
		return err
	})
	return out, err
}

// Space implements volume.Reader.
func (v *Router) Space(ctx context.Context) (out volume.Space, err error) {
	err = v.read(ctx, volume.Request{}, func(ctx context.Context, t volume.Reader) (err error) {
		out, err = t.Space(ctx)
		return err
	})
	return out, err
}

// Create implements volume.Changer.
func (v *Router) Create(ctx context.Context, r volume.Request, dir volume.Handle, name string, args volume.CreateArgs) (
	out volume.Created, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t forward.Home) (err error) {
		out, err = t.Create(ctx, r, dir, name, args)
		return err
	})
	if l := v.here(); err == nil && l != nil { // it may have been there
		v.cfg.Prefetch().Found(l, dir, name, out.Attr)
	}
	return out, err
}

// Link implements volume.Changer.
func (v *Router) Link(ctx context.Context, r volume.Request, h, dir volume.Handle, name string) (out volume.Created, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t forward.Home) (err error) {
		out, err = t.Link(ctx, r, h, dir, name)
		return err
	})
	return out, err
}

// Remove implements volume.Changer.
func (v *Router) Remove(ctx context.Context, r volume.Request, dir volume.Handle, name string) (out volume.DirChange, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t forward.Home) (err error) {
		out, err = t.Remove(ctx, r, dir, name)
		return err
	})
	return out, err
}

// Rename implements volume.Changer.
func (v *Router) Rename(ctx context.Context, r volume.Request, from volume.Handle, name string, to volume.Handle, newName string) (
	src, dst volume.DirChange, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t forward.Home) (err error) {
		src, dst, err = t.Rename(ctx, r, from, name, to, newName)
		return err
	})
	return src, dst, err
}

// SetAttr implements volume.Changer.
func (v *Router) SetAttr(ctx context.Context, r volume.Request, h volume.Handle, set volume.SetAttr) (out volume.Attr, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t forward.Home) (err error) {
		out, err = t.SetAttr(ctx, r, h, set)
		return err
	})
	return out, err
}

// Write implements volume.Changer.
func (v *Router) Write(ctx context.Context, r volume.Request, h volume.Handle, off uint64, data []byte, stable bool) (
	out volume.Written, err error) {
	op := func(ctx context.Context, t forward.Home) (err error) {
		out, _, err = t.WriteAt(ctx, r, h, off, data, stable)
		return err
	}
	var did result
	if stable {
		did, err = v.change(ctx, r, op)
	} else if did, err = v.atHome(ctx, r, r.ID != (volume.OpID{}), op); err == nil && did.remote {
		v.wrote(h, freshAttr{out.Attr, did.applied, did.epoch})
	}
	out.Verifier = v.cfg.Verifier(did.epoch)
	return out, err
}

// Commit implements volume.Changer.
func (v *Router) Commit(ctx context.Context, r volume.Request, h volume.Handle) (volume.Verifier, error) {
	var verifier volume.Verifier
	did, err := v.change(ctx, r, func(ctx context.Context, t forward.Home) (err error) {
		verifier, err = t.Commit(ctx, r, h)
		return err
	})
	if did.remote {
		verifier = v.cfg.Verifier(did.epoch)
	}
	return verifier, err
}

// Punch implements volume.Changer.
func (v *Router) Punch(ctx context.Context, r volume.Request, h volume.Handle, off, n uint64) (out volume.Attr, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t forward.Home) (err error) {
		out, err = t.Punch(ctx, r, h, off, n)
		return err
	})
	return out, err
}

// SetXattr implements volume.Changer.
func (v *Router) SetXattr(ctx context.Context, r volume.Request, h volume.Handle, name string, value []byte, mode volume.XattrMode) (
	out volume.DirChange, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t forward.Home) (err error) {
		out, err = t.SetXattr(ctx, r, h, name, value, mode)
		return err
	})
	return out, err
}

// RemoveXattr implements volume.Changer.
func (v *Router) RemoveXattr(ctx context.Context, r volume.Request, h volume.Handle, name string) (out volume.DirChange, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t forward.Home) (err error) {
		out, err = t.RemoveXattr(ctx, r, h, name)
		return err
	})
	return out, err
}

// SetLock implements volume.Locker. It is always repeatable: to set a lock again that one has does
// no harm.
func (v *Router) SetLock(ctx context.Context, r volume.Request, h volume.Handle, l volume.Lock, reclaim bool) error {
	l = v.registeredAs(l)
	err := v.underRegistration(ctx, r, func(ctx context.Context, k forward.Locks) error { return k.SetLock(ctx, r, h, l, reclaim) },
		func() { v.Locks.Granted(h, l) })
	return asAsked(err)
}

// TestLock implements volume.Locker.
func (v *Router) TestLock(ctx context.Context, r volume.Request, h volume.Handle, l volume.Lock) error {
	l = v.registeredAs(l)
	err := v.AtHome(ctx, r, true, func(ctx context.Context, t forward.Home) error {
		return t.Locks(forward.Registration{}).TestLock(ctx, r, h, l)
	})
	return asAsked(err)
}

// Unlock implements volume.Locker.
func (v *Router) Unlock(ctx context.Context, r volume.Request, h volume.Handle, l volume.Lock) error {
	l = v.registeredAs(l)
	// Before the home is asked: a home that released the lock and is lost before it answers may
	// have granted it to others (locks-6).
	v.Locks.Released(h, l)
	return v.underRegistration(ctx, r, func(ctx context.Context, k forward.Locks) error { return k.Unlock(ctx, r, h, l) }, nil)
}

// ownerSeparator joins a client's name and a lock-owner into the owner that the home sees. The
// home's lock-owners have this gateway's name in place of the client's.
const ownerSeparator = "\x00"

func (v *Router) registeredAs(l volume.Lock) volume.Lock {
	l.Owner = volume.LockOwner{Gateway: v.cfg.Gateway, Owner: l.Owner.Gateway + ownerSeparator + l.Owner.Owner}
	return l
}

// asNamed undoes registeredAs. ok is false for an owner that registeredAs did not make.
func asNamed(o volume.LockOwner) (_ volume.LockOwner, ok bool) {
	gateway, owner, ok := strings.Cut(o.Owner, ownerSeparator)
	return volume.LockOwner{Gateway: gateway, Owner: owner}, ok
}

// asAsked gives the owner of a conflicting lock the names that its own client uses.
func asAsked(err error) error {
	var held *volume.LockConflict
	if !errors.As(err, &held) {
		return err
	}
	out := *held
	if owner, ok := asNamed(held.Held.Owner); ok {
		out.Held.Owner = owner
	}
	return &out
}
