// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// GetXattr returns a user attribute. Names are without the "user." of Linux.
func (c *Client) GetXattr(ctx context.Context, h FH, name string) (value []byte, err error) {
	p := NewCompound().PutFH(h).Add(xdr.OP_GETXATTR, func(e *xdr.Encoder) { e.String(name) })
	err = c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		d, err := res.Next(xdr.OP_GETXATTR)
		if err != nil {
			return err
		}
		value = append([]byte{}, d.Opaque(maxReply)...)
		return res.check(xdr.OP_GETXATTR)
	})
	return value, err
}

// SetXattr sets a user attribute; how is xdr.SETXATTR4_EITHER, CREATE or REPLACE.
func (c *Client) SetXattr(ctx context.Context, h FH, name string, value []byte, how uint32) (change xdr.ChangeInfo, err error) {
	p := NewCompound().Cache().PutFH(h).Add(xdr.OP_SETXATTR, func(e *xdr.Encoder) {
		e.Uint32(how)
		e.String(name)
		e.OpaqueRef(value)
	})
	err = c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		change, err = res.change(xdr.OP_SETXATTR)
		return err
	})
	return change, err
}

// RemoveXattr removes a user attribute.
func (c *Client) RemoveXattr(ctx context.Context, h FH, name string) (change xdr.ChangeInfo, err error) {
	p := NewCompound().Cache().PutFH(h).Add(xdr.OP_REMOVEXATTR, func(e *xdr.Encoder) { e.String(name) })
	err = c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		change, err = res.change(xdr.OP_REMOVEXATTR)
		return err
	})
	return change, err
}

// ListXattrs returns the names of all user attributes.
func (c *Client) ListXattrs(ctx context.Context, h FH) ([]string, error) {
	var all []string
	for cookie, eof := uint64(0), false; !eof; {
		p := NewCompound().PutFH(h).Add(xdr.OP_LISTXATTRS, func(e *xdr.Encoder) {
			e.Uint64(cookie)
			e.Uint32(32 << 10)
		})
		err := c.call(ctx, p, func(res *Result) error {
			if err := res.skip(xdr.OP_PUTFH); err != nil {
				return err
			}
			d, err := res.Next(xdr.OP_LISTXATTRS)
			if err != nil {
				return err
			}
			cookie = d.Uint64()
			for range d.Count(1<<16, 4) {
				all = append(all, d.String(xdr.NFS4_OPAQUE_LIMIT))
			}
			eof = d.Bool()
			return res.check(xdr.OP_LISTXATTRS)
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
