// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// OpenArgs say how to open a file.
type OpenArgs struct {
	Access uint32 // OPEN4_SHARE_ACCESS_…; 0 means BOTH
	Deny   uint32 // OPEN4_SHARE_DENY_…
	Owner  string // open-owner; empty means the client's Owner

	Create bool
	Mode   uint32 // UNCHECKED4, GUARDED4, EXCLUSIVE4 or EXCLUSIVE4_1
	Verf   [8]byte
	Attr   volume.SetAttr // unless EXCLUSIVE4
}

// File is an open file. It may be used from any goroutine.
type File struct {
	c     *Client
	args  OpenArgs
	fh    FH
	mu    sync.Mutex // guards what follows
	id    xdr.Stateid
	locks map[string]xdr.Stateid // by lock-owner
}

// latest makes a stateid that means its newest sequence number (RFC 8881 section 8.2.2).
func latest(id xdr.Stateid) xdr.Stateid { return xdr.Stateid{Other: id.Other} }

// openArgs appends the arguments of OPEN up to the claim.
func (c *Client) openArgs(e *xdr.Encoder, a OpenArgs) {
	e.Uint32(0) // seqid
	e.Uint32(a.Access)
	e.Uint32(a.Deny)
	e.Uint64(c.clientID)
	e.String(a.Owner)
	if !a.Create {
		e.Uint32(xdr.OPEN4_NOCREATE)
		return
	}
	e.Uint32(xdr.OPEN4_CREATE)
	e.Uint32(a.Mode)
	if a.Mode == xdr.EXCLUSIVE4 || a.Mode == xdr.EXCLUSIVE4_1 {
		e.Verifier(a.Verf)
	}
	if a.Mode != xdr.EXCLUSIVE4 {
		encodeSetAttr(e, a.Attr)
	}
}

// open sends OPEN at the handle that start leads to.
func (c *Client) open(ctx context.Context, start FH, a OpenArgs, claim func(*xdr.Encoder)) (*File, error) {
	if a.Access == 0 {
		a.Access = xdr.OPEN4_SHARE_ACCESS_BOTH
	}
	if a.Owner == "" {
		a.Owner = c.opts.Owner
	}
	f := &File{c: c, args: a, locks: make(map[string]xdr.Stateid)}
	p := NewCompound().Cache().PutFH(start).Add(xdr.OP_OPEN, func(e *xdr.Encoder) {
		c.openArgs(e, a)
		claim(e)
	}).GetFH().GetAttr(FileAttrs)
	err := c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		if err := f.decodeOpen(res); err != nil {
			return err
		}
		a, err := res.handleAndAttr()
		f.fh = a.FH
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) decodeOpen(res *Result) error {
	d, err := res.Next(xdr.OP_OPEN)
	if err != nil {
		return err
	}
	f.id = d.Stateid()
	d.ChangeInfo() // of the directory
	d.Uint32()     // flags
	d.Bitmap()
	switch d.Uint32() {
	case xdr.OPEN_DELEGATE_NONE:
	case xdr.OPEN_DELEGATE_NONE_EXT:
		if why := d.Uint32(); why == xdr.WND4_CONTENTION || why == xdr.WND4_RESOURCE {
			d.Bool()
		}
	default:
		return &Error{xdr.OP_OPEN, xdr.NFS4ERR_REJECT_DELEG} // none was wanted
	}
	return res.check(xdr.OP_OPEN)
}

// Open opens name in dir.
func (c *Client) Open(ctx context.Context, dir FH, name string, a OpenArgs) (*File, error) {
	return c.open(ctx, dir, a, func(e *xdr.Encoder) {
		e.Uint32(xdr.CLAIM_NULL)
		e.String(name)
	})
}

// OpenFH opens the file h.
func (c *Client) OpenFH(ctx context.Context, h FH, a OpenArgs) (*File, error) {
	return c.open(ctx, h, a, func(e *xdr.Encoder) { e.Uint32(xdr.CLAIM_FH) })
}

// Reclaim opens f again after the server restarted, in its grace period. Locks
// are reclaimed by LockArgs.Reclaim. A client reclaims in a session that was made
// after the restart, as Linux does (ExchangeID, NewSession, the reclaims,
// ReclaimComplete): in one from before, the server cannot tell a RECLAIM_COMPLETE
// from the repeat of an earlier one.
func (f *File) Reclaim(ctx context.Context) error {
	a := f.args
	a.Create = false
	again, err := f.c.open(ctx, f.fh, a, func(e *xdr.Encoder) {
		e.Uint32(xdr.CLAIM_PREVIOUS)
		e.Uint32(xdr.OPEN_DELEGATE_NONE)
	})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.id = again.id
	clear(f.locks)
	return nil
}

// FH returns the file's handle.
func (f *File) FH() FH { return f.fh }

// Stateid returns the open's newest stateid.
func (f *File) Stateid() xdr.Stateid {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id
}

// stateid returns the stateid for input and output.
func (f *File) stateid() xdr.Stateid { return latest(f.Stateid()) }

// ReadAt reads into p from off. eof says that the end of the file was reached.
func (f *File) ReadAt(ctx context.Context, p []byte, off uint64) (n int, eof bool, err error) {
	return f.c.Read(ctx, f.fh, f.stateid(), p, off)
}

// WriteAt writes data at off. how is xdr.UNSTABLE4, DATA_SYNC4 or FILE_SYNC4.
func (f *File) WriteAt(ctx context.Context, data []byte, off uint64, how uint32) (Wrote, error) {
	return f.c.Write(ctx, f.fh, f.stateid(), data, off, how)
}

// Commit makes all data that was written so far stable.
func (f *File) Commit(ctx context.Context) (volume.Verifier, error) { return f.c.Commit(ctx, f.fh) }

// GetAttr returns the file's attributes.
func (f *File) GetAttr(ctx context.Context) (Attr, error) { return f.c.GetAttr(ctx, f.fh) }

// SetAttr changes attributes with the open's stateid.
func (f *File) SetAttr(ctx context.Context, set volume.SetAttr) (Attr, error) {
	return f.c.setAttr(ctx, f.fh, f.stateid(), set)
}

// Seek returns the next data (or hole) at or after off. eof says that there is no
// more data, or that the hole is the end of the file. Minor version 2.
func (f *File) Seek(ctx context.Context, off uint64, hole bool) (at uint64, eof bool, err error) {
	return f.c.Seek(ctx, f.fh, f.stateid(), off, hole)
}

// Deallocate makes n bytes at off a hole. Minor version 2.
func (f *File) Deallocate(ctx context.Context, off, n uint64) error {
	return f.c.Deallocate(ctx, f.fh, f.stateid(), off, n)
}

// Downgrade reduces the access and deny of the open-owner's opens of the file. What
// remains must be that of some of them, else NFS4ERR_INVAL (RFC 8881 section 18.18).
func (f *File) Downgrade(ctx context.Context, access, deny uint32) error {
	id := f.stateid()
	p := NewCompound().Cache().PutFH(f.fh).Add(xdr.OP_OPEN_DOWNGRADE, func(e *xdr.Encoder) {
		e.Stateid(id)
		e.Uint32(0)
		e.Uint32(access)
		e.Uint32(deny)
	})
	return f.c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		d, err := res.Next(xdr.OP_OPEN_DOWNGRADE)
		if err != nil {
			return err
		}
		id = d.Stateid()
		if err := res.check(xdr.OP_OPEN_DOWNGRADE); err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.id, f.args.Access, f.args.Deny = id, access, deny
		return nil
	})
}

// Close ends the open and its locks.
func (f *File) Close(ctx context.Context) error {
	id := f.stateid()
	p := NewCompound().Cache().PutFH(f.fh).Add(xdr.OP_CLOSE, func(e *xdr.Encoder) {
		e.Uint32(0)
		e.Stateid(id)
	})
	return f.c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		d, err := res.Next(xdr.OP_CLOSE)
		if err != nil {
			return err
		}
		d.Stateid()
		return res.check(xdr.OP_CLOSE)
	})
}
