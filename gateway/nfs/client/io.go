// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// Wrote is the outcome of a write.
type Wrote struct {
	Count     int    // bytes written, at least one unless data is empty
	Committed uint32 // UNSTABLE4, DATA_SYNC4 or FILE_SYNC4
	Verifier  volume.Verifier
}

// Read reads into p from off with any stateid. The server may return fewer bytes
// than asked for before the end of the file.
func (c *Client) Read(ctx context.Context, h FH, id xdr.Stateid, p []byte, off uint64) (n int, eof bool, err error) {
	err = c.call(ctx, NewCompound().PutFH(h).Read(id, off, uint32(len(p))), func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		d, err := res.Next(xdr.OP_READ)
		if err != nil {
			return err
		}
		eof = d.Bool()
		n = copy(p, d.Opaque(len(p)))
		return res.check(xdr.OP_READ)
	})
	return n, eof, err
}

// Write writes data at off with any stateid.
func (c *Client) Write(ctx context.Context, h FH, id xdr.Stateid, data []byte, off uint64, how uint32) (w Wrote, err error) {
	err = c.call(ctx, NewCompound().PutFH(h).Write(id, off, data, how), func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		d, err := res.Next(xdr.OP_WRITE)
		if err != nil {
			return err
		}
		w = Wrote{Count: int(d.Uint32()), Committed: d.Uint32(), Verifier: d.Verifier()}
		if err := res.check(xdr.OP_WRITE); err != nil {
			return err
		}
		if w.Count > len(data) || w.Count == 0 && len(data) > 0 || w.Committed < how {
			return fmt.Errorf("nfs write: server wrote %d of %d bytes with stability %d, %d was asked for", w.Count, len(data), w.Committed, how)
		}
		return nil
	})
	return w, err
}

// Commit makes all data that was written to h so far stable.
func (c *Client) Commit(ctx context.Context, h FH) (verf volume.Verifier, err error) {
	p := NewCompound().PutFH(h).Add(xdr.OP_COMMIT, func(e *xdr.Encoder) {
		e.Uint64(0)
		e.Uint32(0)
	})
	err = c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		d, err := res.Next(xdr.OP_COMMIT)
		if err != nil {
			return err
		}
		verf = d.Verifier()
		return res.check(xdr.OP_COMMIT)
	})
	return verf, err
}

// Seek is File.Seek with any stateid.
func (c *Client) Seek(ctx context.Context, h FH, id xdr.Stateid, off uint64, hole bool) (at uint64, eof bool, err error) {
	p := NewCompound().PutFH(h).Add(xdr.OP_SEEK, func(e *xdr.Encoder) {
		e.Stateid(id)
		e.Uint64(off)
		if hole {
			e.Uint32(xdr.NFS4_CONTENT_HOLE)
		} else {
			e.Uint32(xdr.NFS4_CONTENT_DATA)
		}
	})
	err = c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		d, err := res.Next(xdr.OP_SEEK)
		if err != nil {
			return err
		}
		eof, at = d.Bool(), d.Uint64()
		return res.check(xdr.OP_SEEK)
	})
	return at, eof, err
}

// Deallocate is File.Deallocate with any stateid.
func (c *Client) Deallocate(ctx context.Context, h FH, id xdr.Stateid, off, n uint64) error {
	return c.void(ctx, NewCompound().PutFH(h).Add(xdr.OP_DEALLOCATE, func(e *xdr.Encoder) {
		e.Stateid(id)
		e.Uint64(off)
		e.Uint64(n)
	}))
}
