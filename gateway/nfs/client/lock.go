// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// LockArgs describe a byte-range lock. Length ^uint64(0) means to the end.
type LockArgs struct {
	Owner     string // lock-owner
	Offset    uint64
	Length    uint64
	Exclusive bool
	Reclaim   bool // Lock only: the client had it before the server restarted
}

func (l LockArgs) kind() uint32 {
	if l.Exclusive {
		return xdr.WRITE_LT
	}
	return xdr.READ_LT
}

// Denied is a conflicting lock of another owner. It wraps xdr.NFS4ERR_DENIED.
type Denied struct {
	Offset, Length uint64
	Exclusive      bool
	ClientID       uint64
	Owner          string
}

func (e *Denied) Error() string {
	return fmt.Sprintf("nfs lock: %s: %q of client %x holds %d bytes at %d", xdr.NFS4ERR_DENIED, e.Owner, e.ClientID, e.Length, e.Offset)
}

// Unwrap returns xdr.NFS4ERR_DENIED.
func (e *Denied) Unwrap() error { return xdr.NFS4ERR_DENIED }

// denied reads LOCK4denied if err says that there is one.
func denied(d *xdr.Decoder, err error) error {
	if !errors.Is(err, xdr.NFS4ERR_DENIED) {
		return err
	}
	held := &Denied{Offset: d.Uint64(), Length: d.Uint64(), Exclusive: d.Uint32() == xdr.WRITE_LT, ClientID: d.Uint64()}
	held.Owner = d.String(xdr.NFS4_OPAQUE_LIMIT)
	if d.Err() != nil {
		return fmt.Errorf("nfs reply: denied lock: %w", d.Err())
	}
	return held
}

// Lock takes a lock, or returns a *Denied at once. An owner's first lock must be
// granted before another one of it is asked for.
func (f *File) Lock(ctx context.Context, l LockArgs) error {
	f.mu.Lock()
	open := latest(f.id)
	held, known := f.locks[l.Owner]
	f.mu.Unlock()
	p := NewCompound().Cache().PutFH(f.fh).Add(xdr.OP_LOCK, func(e *xdr.Encoder) {
		e.Uint32(l.kind())
		e.Bool(l.Reclaim)
		e.Uint64(l.Offset)
		e.Uint64(l.Length)
		e.Bool(!known)
		if known {
			e.Stateid(latest(held))
			e.Uint32(0)
			return
		}
		e.Uint32(0)
		e.Stateid(open)
		e.Uint32(0)
		e.Uint64(f.c.clientID)
		e.String(l.Owner)
	})
	return f.c.call(ctx, p, func(res *Result) error { return f.locked(res, xdr.OP_LOCK, l.Owner) })
}

// Unlock releases what l.Owner has locked of the range. It is no error if that is
// nothing.
func (f *File) Unlock(ctx context.Context, l LockArgs) error {
	f.mu.Lock()
	held, known := f.locks[l.Owner]
	f.mu.Unlock()
	if !known {
		return nil
	}
	p := NewCompound().Cache().PutFH(f.fh).Add(xdr.OP_LOCKU, func(e *xdr.Encoder) {
		e.Uint32(l.kind())
		e.Uint32(0)
		e.Stateid(latest(held))
		e.Uint64(l.Offset)
		e.Uint64(l.Length)
	})
	return f.c.call(ctx, p, func(res *Result) error { return f.locked(res, xdr.OP_LOCKU, l.Owner) })
}

// locked reads the stateid that LOCK or LOCKU returns.
func (f *File) locked(res *Result, op xdr.Op, owner string) error {
	if err := res.skip(xdr.OP_PUTFH); err != nil {
		return err
	}
	d, err := res.Next(op)
	if err != nil {
		return denied(d, err)
	}
	id := d.Stateid()
	if err := res.check(op); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locks[owner] = id
	return nil
}

// LockStateid returns the stateid of the owner's locks, if it has any.
func (f *File) LockStateid(owner string) (xdr.Stateid, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, ok := f.locks[owner]
	return id, ok
}

// TestLock returns nil if l could be taken now, or a *Denied.
func (f *File) TestLock(ctx context.Context, l LockArgs) error {
	p := NewCompound().PutFH(f.fh).Add(xdr.OP_LOCKT, func(e *xdr.Encoder) {
		e.Uint32(l.kind())
		e.Uint64(l.Offset)
		e.Uint64(l.Length)
		e.Uint64(f.c.clientID)
		e.String(l.Owner)
	})
	return f.c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		d, err := res.Next(xdr.OP_LOCKT)
		return denied(d, err)
	})
}
