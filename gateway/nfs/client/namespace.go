// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"strings"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// Root returns the handle of the server's root, which lists the volumes.
func (c *Client) Root(ctx context.Context) (h FH, err error) {
	err = c.call(ctx, NewCompound().PutRootFH().GetFH(), func(res *Result) error {
		if err := res.skip(xdr.OP_PUTROOTFH); err != nil {
			return err
		}
		h, err = res.fh()
		return err
	})
	return h, err
}

// Mount looks path up from the server's root. Empty components are ignored, so
// that "/" is the root; symbolic links are not followed.
func (c *Client) Mount(ctx context.Context, path string) (a Attr, err error) {
	return c.found(ctx, NewCompound().PutRootFH(), path)
}

// Walk is Mount from the directory dir.
func (c *Client) Walk(ctx context.Context, dir FH, path string) (Attr, error) {
	return c.found(ctx, NewCompound().PutFH(dir), path)
}

// Lookup finds name in dir.
func (c *Client) Lookup(ctx context.Context, dir FH, name string) (Attr, error) {
	return c.object(ctx, NewCompound().PutFH(dir).Lookup(name))
}

// Parent finds the directory above dir.
func (c *Client) Parent(ctx context.Context, dir FH) (Attr, error) {
	return c.object(ctx, NewCompound().PutFH(dir).LookupParent())
}

func (c *Client) found(ctx context.Context, p *Compound, path string) (Attr, error) {
	for name := range strings.SplitSeq(path, "/") {
		if name != "" {
			p.Lookup(name)
		}
	}
	return c.object(ctx, p)
}

// object sends operations without results, and returns what they lead to.
func (c *Client) object(ctx context.Context, p *Compound) (a Attr, err error) {
	path := p.names()
	err = c.call(ctx, p.GetFH().GetAttr(FileAttrs), func(res *Result) error {
		if err := res.skip(path...); err != nil {
			return err
		}
		a, err = res.handleAndAttr()
		return err
	})
	return a, err
}

func (r *Result) handleAndAttr() (Attr, error) {
	h, err := r.fh()
	if err != nil {
		return Attr{}, err
	}
	a, err := r.attr()
	a.FH = h
	return a, err
}

// Create makes anything but a regular file, which Open makes. It uses args.Type,
// Target, Rdev and Attr.
func (c *Client) Create(ctx context.Context, dir FH, name string, args volume.CreateArgs) (a Attr, change xdr.ChangeInfo, err error) {
	p := NewCompound().Cache().PutFH(dir).Add(xdr.OP_CREATE, func(e *xdr.Encoder) {
		for nfs, typ := range types {
			if typ == args.Type {
				e.Uint32(nfs)
			}
		}
		switch args.Type {
		case volume.Symlink:
			e.String(args.Target)
		case volume.Block, volume.Char:
			e.Uint64(args.Rdev)
		}
		e.String(name)
		encodeSetAttr(e, args.Attr)
	}).GetFH().GetAttr(FileAttrs)
	err = c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		if change, err = res.change(xdr.OP_CREATE); err != nil {
			return err
		}
		res.d.Bitmap()
		a, err = res.handleAndAttr()
		return err
	})
	return a, change, err
}

// Mkdir makes a directory.
func (c *Client) Mkdir(ctx context.Context, dir FH, name string, mode uint32) (Attr, error) {
	a, _, err := c.Create(ctx, dir, name, volume.CreateArgs{Type: volume.Directory, Attr: volume.SetAttr{Mode: &mode}})
	return a, err
}

// Symlink makes a symbolic link.
func (c *Client) Symlink(ctx context.Context, dir FH, name, target string) (Attr, error) {
	a, _, err := c.Create(ctx, dir, name, volume.CreateArgs{Type: volume.Symlink, Target: target})
	return a, err
}

// ReadLink returns a symbolic link's target.
func (c *Client) ReadLink(ctx context.Context, h FH) (target string, err error) {
	err = c.call(ctx, NewCompound().PutFH(h).Add(xdr.OP_READLINK, nil), func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		d, err := res.Next(xdr.OP_READLINK)
		if err != nil {
			return err
		}
		target = d.String(maxReply)
		return res.check(xdr.OP_READLINK)
	})
	return target, err
}

// Remove removes a name, which may be an empty directory's.
func (c *Client) Remove(ctx context.Context, dir FH, name string) (change xdr.ChangeInfo, err error) {
	err = c.call(ctx, NewCompound().Cache().PutFH(dir).Remove(name), func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		change, err = res.change(xdr.OP_REMOVE)
		return err
	})
	return change, err
}

// Rename moves a name.
func (c *Client) Rename(ctx context.Context, from FH, name string, to FH, newName string) (src, dst xdr.ChangeInfo, err error) {
	p := NewCompound().Cache().PutFH(from).SaveFH().PutFH(to).Rename(name, newName)
	err = c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH, xdr.OP_SAVEFH, xdr.OP_PUTFH); err != nil {
			return err
		}
		if src, err = res.change(xdr.OP_RENAME); err != nil {
			return err
		}
		dst = res.d.ChangeInfo()
		return res.check(xdr.OP_RENAME)
	})
	return src, dst, err
}

// Link makes a further name for the file h, and returns its attributes then.
func (c *Client) Link(ctx context.Context, h, dir FH, name string) (a Attr, change xdr.ChangeInfo, err error) {
	p := NewCompound().Cache().PutFH(h).SaveFH().PutFH(dir).Link(name).RestoreFH().GetAttr(FileAttrs)
	err = c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH, xdr.OP_SAVEFH, xdr.OP_PUTFH); err != nil {
			return err
		}
		if change, err = res.change(xdr.OP_LINK); err != nil {
			return err
		}
		if err := res.skip(xdr.OP_RESTOREFH); err != nil {
			return err
		}
		a, err = res.attr()
		return err
	})
	a.FH = h
	return a, change, err
}

// Entry is one name in a directory, with EntryAttrs.
type Entry struct {
	Name   string
	Cookie uint64
	Attr   Attr
}

// Page is a part of a directory, and where the next one begins.
type Page struct {
	Entries  []Entry
	Verifier [8]byte
	EOF      bool
}

// ReadDir returns entries after a cookie, 0 for the first; verf is that of the
// page before. The reply has at most limit bytes.
func (c *Client) ReadDir(ctx context.Context, dir FH, after uint64, verf [8]byte, limit uint32) (page Page, err error) {
	p := NewCompound().PutFH(dir).Add(xdr.OP_READDIR, func(e *xdr.Encoder) {
		e.Uint64(after)
		e.Verifier(verf)
		e.Uint32(limit)
		e.Uint32(limit)
		e.Bitmap(EntryAttrs)
	})
	err = c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		d, err := res.Next(xdr.OP_READDIR)
		if err != nil {
			return err
		}
		page = Page{Verifier: d.Verifier()}
		for d.Bool() {
			e := Entry{Cookie: d.Uint64(), Name: d.String(xdr.NFS4_OPAQUE_LIMIT)}
			if e.Attr, err = decodeAttr(d); err != nil {
				return err
			}
			page.Entries = append(page.Entries, e)
		}
		page.EOF = d.Bool()
		return res.check(xdr.OP_READDIR)
	})
	return page, err
}

// List returns all entries of dir.
func (c *Client) List(ctx context.Context, dir FH) ([]Entry, error) {
	var all []Entry
	var page Page
	for after := uint64(0); ; after = all[len(all)-1].Cookie {
		var err error
		if page, err = c.ReadDir(ctx, dir, after, page.Verifier, 64<<10); err != nil {
			return nil, err
		}
		all = append(all, page.Entries...)
		if page.EOF || len(page.Entries) == 0 {
			return all, nil
		}
	}
}
