// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/volume"
)

// ID implements volume.Volume.
func (v *Router) ID() volume.ID { return v.id }

// Hold implements volume.Volume.
func (v *Router) Hold(h volume.Handle) error {
	l := v.copy()
	if l != nil {
		if err := l.hold(h, v.g.reclaiming.Load()); err != nil {
			return err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.local != nil && v.local != l {
		v.local.engine.Retain(h)
	}
	v.holds[h]++
	return nil
}

// hold is Hold at the local copy. A home knows what is committed: a file is gone when its removal is, and until then nobody can tell. A copy
// that can not tell that h is gone takes the word of the operation that led here: one that trails, as after a restart, or has something to apply
// to h. If h is gone, whoever uses it is told. Of reclaimed opens, h may be without a name already.
func (r *replicaOf) hold(h volume.Handle, reclaiming bool) error {
	_, done, err := r.use(context.Background())
	if err != nil {
		return nil // the Router holds it at the next copy
	}
	defer done()
	reign, led := r.replica.Leading()
	may := r.replica.MayServe()        // asked first: what was acknowledged until now is in the log
	pending := r.engine.Touched(h.Ino) // and what is applied after this, Hold may have missed
	if reclaiming {
		err = r.engine.HoldElsewhere(h)
	} else {
		err = r.engine.Hold(h)
	}
	if !errors.Is(err, volume.ErrStale) {
		return err
	}
	now, leads := r.replica.Leading()
	switch {
	case led != leads || led && reign != now: // what Hold saw may be of the former reign, and taken back
		return fmt.Errorf("hold inode %d: the volume has got another home meanwhile: %w", h.Ino, volume.ErrDelay)
	case leads && r.engine.Uncommitted(h.Ino): // its removal may be taken back
		return fmt.Errorf("hold inode %d: the change of it is not committed yet: %w", h.Ino, volume.ErrDelay)
	case leads:
		return err
	}
	if pending == (log.Position{}) {
		pending = r.engine.Touched(h.Ino) // or h was removed just now
	}
	if pending != (log.Position{}) || may != nil {
		r.engine.Retain(h)
		return nil
	}
	return err
}

// Release implements volume.Volume.
func (v *Router) Release(h volume.Handle) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.local != nil {
		v.local.engine.Release(h)
	}
	if v.holds[h]--; v.holds[h] <= 0 {
		delete(v.holds, h)
	}
}

// mayHold tells whether clients of this gateway have h open, or may be about to reclaim that.
func (v *Router) mayHold(h volume.Handle) bool {
	if v.g.reclaiming.Load() {
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
	_, err := v.run(ctx, nil, true, func(ctx context.Context, t target) error { return t.Forget(ctx, prefix) })
	return err
}

// GetAttr implements volume.Reader.
func (v *Router) GetAttr(ctx context.Context, r volume.Request, h volume.Handle) (out volume.Attr, err error) {
	if a, ok := v.freshOf(h); ok {
		return a, nil
	}
	v.awaitFresh(ctx, h)
	reclaiming := v.g.reclaiming.Load() // then h may be good for who asks without a name
	err = v.read(ctx, r, func(ctx context.Context, t volume.Reader) (err error) {
		if e, ok := engineOf(t); reclaiming && ok && e.HoldElsewhere(h) == nil {
			defer e.Release(h)
		}
		out, err = t.GetAttr(ctx, r, h)
		return err
	})
	return out, err
}

// engineOf returns the local engine if t is that.
func engineOf(t volume.Reader) (*engine.Engine, bool) {
	switch t := t.(type) {
	case *engine.Engine:
		return t, true
	case localTarget:
		return t.Engine, true
	}
	return nil, false
}

// freshOf returns the attributes after this gateway's own newest write to h, while that write is the newest change of h that the local
// copy has or knows to be coming: then waiting for its commit would tell nothing else.
func (v *Router) freshOf(h volume.Handle) (volume.Attr, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f, ok := v.fresh[h]
	if !ok || v.local == nil || v.stale(h, f) {
		return volume.Attr{}, false
	}
	// In this order: the local copy has what others did before it may serve.
	if v.local.replica.MayServe() != nil || f.pos.Less(v.local.engine.Touched(h.Ino)) {
		return volume.Attr{}, false
	}
	return f.attr, true
}

// stale forgets f if the local copy has that write, or a later epoch began: then it has the write or it is lost. mu is held.
func (v *Router) stale(h volume.Handle, f freshAttr) bool {
	if v.local.engine.Applied().Less(f.pos) {
		_, epoch := v.g.mirror.home(v.uuid)
		if own, leads := v.local.replica.Leading(); leads {
			epoch = max(epoch, own)
		}
		if epoch <= f.epoch {
			return false
		}
	}
	delete(v.fresh, h)
	return true
}

// awaitFresh waits until the local copy has this gateway's own newest write to h, and tells whether it had to: clients read what
// they wrote, committed or not.
func (v *Router) awaitFresh(ctx context.Context, h volume.Handle) (waited bool) {
	v.mu.Lock()
	f, ok := v.fresh[h]
	if ok && v.local != nil && v.stale(h, f) {
		ok = false
	}
	v.mu.Unlock()
	if !ok {
		return false
	}
	return v.catchUp(ctx, f.pos)
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
func (v *Router) ReadDir(ctx context.Context, r volume.Request, dir volume.Handle, after uint64, limit int) (out []volume.Entry, eof bool, err error) {
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
	return out, eof, err
}

// Read implements volume.Reader.
func (v *Router) Read(ctx context.Context, r volume.Request, h volume.Handle, off uint64, p []byte) (n int, eof bool, err error) {
	v.awaitFresh(ctx, h)
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
func (v *Router) Create(ctx context.Context, r volume.Request, dir volume.Handle, name string, args volume.CreateArgs) (out volume.Created, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t target) (err error) {
		out, err = t.Create(ctx, r, dir, name, args)
		return err
	})
	return out, err
}

// Link implements volume.Changer.
func (v *Router) Link(ctx context.Context, r volume.Request, h, dir volume.Handle, name string) (out volume.Created, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t target) (err error) {
		out, err = t.Link(ctx, r, h, dir, name)
		return err
	})
	return out, err
}

// Remove implements volume.Changer.
func (v *Router) Remove(ctx context.Context, r volume.Request, dir volume.Handle, name string) (out volume.DirChange, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t target) (err error) {
		out, err = t.Remove(ctx, r, dir, name)
		return err
	})
	return out, err
}

// Rename implements volume.Changer.
func (v *Router) Rename(ctx context.Context, r volume.Request, from volume.Handle, name string, to volume.Handle, newName string) (src, dst volume.DirChange, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t target) (err error) {
		src, dst, err = t.Rename(ctx, r, from, name, to, newName)
		return err
	})
	return src, dst, err
}

// SetAttr implements volume.Changer.
func (v *Router) SetAttr(ctx context.Context, r volume.Request, h volume.Handle, set volume.SetAttr) (out volume.Attr, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t target) (err error) {
		out, err = t.SetAttr(ctx, r, h, set)
		return err
	})
	return out, err
}

// Write implements volume.Changer.
func (v *Router) Write(ctx context.Context, r volume.Request, h volume.Handle, off uint64, data []byte, stable bool) (out volume.Written, err error) {
	op := func(ctx context.Context, t target) (err error) {
		out, err = t.Write(ctx, r, h, off, data, stable)
		return err
	}
	var did outcomeOf
	if stable {
		did, err = v.change(ctx, r, op)
	} else if did, err = v.run(ctx, r.Revoked, r.ID != (volume.OpID{}), op); err == nil && did.remote {
		v.wrote(h, freshAttr{out.Attr, did.applied, did.epoch})
	}
	out.Verifier = v.g.verifier(did.epoch)
	return out, err
}

// maxFresh is how many files are remembered before those are forgotten whose writes are applied here.
const maxFresh = 256

// wrote remembers what GetAttr can say before the write is committed.
func (v *Router) wrote(h volume.Handle, w freshAttr) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f, ok := v.fresh[h]; !ok || f.epoch < w.epoch || f.epoch == w.epoch && f.pos.Less(w.pos) {
		v.fresh[h] = w
	}
	switch {
	case len(v.fresh) <= maxFresh:
	case v.local == nil:
		clear(v.fresh) // the home answers, which shows what is not committed
	default:
		for h, f := range v.fresh {
			v.stale(h, f)
		}
	}
}

// Commit implements volume.Changer.
func (v *Router) Commit(ctx context.Context, r volume.Request, h volume.Handle) (volume.Verifier, error) {
	var verifier volume.Verifier
	did, err := v.change(ctx, r, func(ctx context.Context, t target) (err error) {
		verifier, err = t.Commit(ctx, r, h)
		return err
	})
	if did.remote {
		verifier = v.g.verifier(did.epoch)
	}
	return verifier, err
}

// Punch implements volume.Changer.
func (v *Router) Punch(ctx context.Context, r volume.Request, h volume.Handle, off, n uint64) (out volume.Attr, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t target) (err error) {
		out, err = t.Punch(ctx, r, h, off, n)
		return err
	})
	return out, err
}

// SetXattr implements volume.Changer.
func (v *Router) SetXattr(ctx context.Context, r volume.Request, h volume.Handle, name string, value []byte, mode volume.XattrMode) (out volume.DirChange, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t target) (err error) {
		out, err = t.SetXattr(ctx, r, h, name, value, mode)
		return err
	})
	return out, err
}

// RemoveXattr implements volume.Changer.
func (v *Router) RemoveXattr(ctx context.Context, r volume.Request, h volume.Handle, name string) (out volume.DirChange, err error) {
	_, err = v.change(ctx, r, func(ctx context.Context, t target) (err error) {
		out, err = t.RemoveXattr(ctx, r, h, name)
		return err
	})
	return out, err
}

// SetLock implements volume.Locker. Asking again for a lock that one holds is harmless, so it is always repeatable.
func (v *Router) SetLock(ctx context.Context, r volume.Request, h volume.Handle, l volume.Lock, reclaim bool) error {
	l = v.registeredAs(l)
	err := v.locks(ctx, r, func(ctx context.Context, k forward.Locks) error { return k.SetLock(ctx, r, h, l, reclaim) }, func() { v.held.granted(h, l) })
	return asAsked(err)
}

// TestLock implements volume.Locker.
func (v *Router) TestLock(ctx context.Context, r volume.Request, h volume.Handle, l volume.Lock) error {
	l = v.registeredAs(l)
	_, err := v.run(ctx, r.Revoked, true, func(ctx context.Context, t target) error {
		return t.Locks(forward.Registration{}).TestLock(ctx, r, h, l)
	})
	return asAsked(err)
}

// Unlock implements volume.Locker.
func (v *Router) Unlock(ctx context.Context, r volume.Request, h volume.Handle, l volume.Lock) error {
	l = v.registeredAs(l)
	v.held.released(h, l) // not when it is answered: a home that has let go, and is lost before it says so, may have given it to others
	return v.locks(ctx, r, func(ctx context.Context, k forward.Locks) error { return k.Unlock(ctx, r, h, l) }, func() {})
}

// At the home, a lock's owner is this gateway, whatever name its client goes by here.
const ownerSeparator = "\x00"

func (v *Router) registeredAs(l volume.Lock) volume.Lock {
	l.Owner = volume.LockOwner{Gateway: v.g.cfg.Name, Owner: l.Owner.Gateway + ownerSeparator + l.Owner.Owner}
	return l
}

// asNamed is a lock's owner as its own client names it; ok is false for what registeredAs did not make.
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
