// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// Attr are a file's attributes. Of the embedded Handle only Ino is known.
type Attr struct {
	volume.Attr
	FH        FH // if it was asked for
	FSID      [2]uint64
	MountedOn uint64
	Space     volume.Space // if it was asked for
	Mask      xdr.Bitmap   // what the server returned
	Err       xdr.Status   // rdattr_error
}

// Attributes to ask for.
var (
	// FileAttrs are those of every file.
	FileAttrs = xdr.NewBitmap(xdr.FATTR4_TYPE, xdr.FATTR4_CHANGE, xdr.FATTR4_SIZE, xdr.FATTR4_FSID,
		xdr.FATTR4_FILEID, xdr.FATTR4_MODE, xdr.FATTR4_NUMLINKS, xdr.FATTR4_OWNER, xdr.FATTR4_OWNER_GROUP,
		xdr.FATTR4_RAWDEV, xdr.FATTR4_SPACE_USED, xdr.FATTR4_TIME_ACCESS, xdr.FATTR4_TIME_CREATE,
		xdr.FATTR4_TIME_METADATA, xdr.FATTR4_TIME_MODIFY, xdr.FATTR4_MOUNTED_ON_FILEID)
	// EntryAttrs are those that ReadDir asks for.
	EntryAttrs = FileAttrs.Or(xdr.NewBitmap(xdr.FATTR4_FILEHANDLE, xdr.FATTR4_RDATTR_ERROR))
	// SpaceAttrs are those of the whole file system.
	SpaceAttrs = xdr.NewBitmap(xdr.FATTR4_FILES_FREE, xdr.FATTR4_FILES_TOTAL, xdr.FATTR4_SPACE_FREE, xdr.FATTR4_SPACE_TOTAL)
)

var types = map[uint32]volume.Type{
	xdr.NF4REG: volume.Regular, xdr.NF4DIR: volume.Directory, xdr.NF4BLK: volume.Block, xdr.NF4CHR: volume.Char,
	xdr.NF4LNK: volume.Symlink, xdr.NF4SOCK: volume.Socket, xdr.NF4FIFO: volume.FIFO,
}

// decodeAttr reads a fattr4 with attributes of FileAttrs, EntryAttrs and SpaceAttrs.
func decodeAttr(outer *xdr.Decoder) (Attr, error) {
	a := Attr{Mask: outer.Bitmap()}
	d := xdr.NewDecoder(outer.Opaque(maxReply))
	for n := range xdr.AttrLimit {
		if a.Mask.Has(n) {
			a.decode(d, n)
		}
	}
	if err := outer.Err(); err != nil {
		d.Fail(err)
	}
	if err := d.Err(); err != nil {
		return Attr{}, fmt.Errorf("nfs reply: attributes: %w", err)
	}
	if d.Len() != 0 {
		return Attr{}, fmt.Errorf("nfs reply: attributes: %d bytes too many", d.Len())
	}
	return a, nil
}

func (a *Attr) decode(d *xdr.Decoder, n uint32) {
	switch n {
	case xdr.FATTR4_TYPE:
		a.Type = types[d.Uint32()]
	case xdr.FATTR4_CHANGE:
		a.Change = d.Uint64()
	case xdr.FATTR4_SIZE:
		a.Size = d.Uint64()
	case xdr.FATTR4_FSID:
		a.FSID = [2]uint64{d.Uint64(), d.Uint64()}
	case xdr.FATTR4_RDATTR_ERROR:
		a.Err = xdr.Status(d.Uint32())
	case xdr.FATTR4_FILEHANDLE:
		a.FH = FH(d.String(xdr.NFS4_FHSIZE))
	case xdr.FATTR4_FILEID:
		a.Ino = d.Uint64()
	case xdr.FATTR4_MODE:
		a.Mode = d.Uint32()
	case xdr.FATTR4_NUMLINKS:
		a.Nlink = d.Uint32()
	case xdr.FATTR4_OWNER:
		a.UID = owner(d)
	case xdr.FATTR4_OWNER_GROUP:
		a.GID = owner(d)
	case xdr.FATTR4_RAWDEV:
		a.Rdev = d.Uint64()
	case xdr.FATTR4_SPACE_USED:
		a.Used = d.Uint64()
	case xdr.FATTR4_TIME_ACCESS:
		a.Atime = d.Time()
	case xdr.FATTR4_TIME_CREATE:
		a.Btime = d.Time()
	case xdr.FATTR4_TIME_METADATA:
		a.Ctime = d.Time()
	case xdr.FATTR4_TIME_MODIFY:
		a.Mtime = d.Time()
	case xdr.FATTR4_MOUNTED_ON_FILEID:
		a.MountedOn = d.Uint64()
	case xdr.FATTR4_FILES_FREE:
		a.Space.FreeInodes = d.Uint64()
	case xdr.FATTR4_FILES_TOTAL:
		a.Space.TotalInodes = d.Uint64()
	case xdr.FATTR4_SPACE_FREE:
		a.Space.FreeBytes = d.Uint64()
	case xdr.FATTR4_SPACE_TOTAL:
		a.Space.TotalBytes = d.Uint64()
	default:
		d.Fail(fmt.Errorf("attribute %d was not asked for", n))
	}
}

// owner reads a numeric owner.
func owner(d *xdr.Decoder) uint32 {
	s := d.String(xdr.NFS4_OPAQUE_LIMIT)
	v, err := strconv.ParseUint(s, 10, 32)
	if err != nil && d.Err() == nil {
		d.Fail(fmt.Errorf("owner %q is not a number", s))
	}
	return uint32(v)
}

// encodeSetAttr appends the fattr4 that sets set.
func encodeSetAttr(e *xdr.Encoder, set volume.SetAttr) {
	var mask xdr.Bitmap
	var v xdr.Encoder
	if set.Size != nil {
		mask.Set(xdr.FATTR4_SIZE)
		v.Uint64(*set.Size)
	}
	if set.Mode != nil {
		mask.Set(xdr.FATTR4_MODE)
		v.Uint32(*set.Mode)
	}
	for _, o := range []struct {
		attr uint32
		id   *uint32
	}{{xdr.FATTR4_OWNER, set.UID}, {xdr.FATTR4_OWNER_GROUP, set.GID}} {
		if o.id != nil {
			mask.Set(o.attr)
			v.String(strconv.FormatUint(uint64(*o.id), 10))
		}
	}
	for _, t := range []struct {
		attr uint32
		time *time.Time
	}{{xdr.FATTR4_TIME_ACCESS_SET, set.Atime}, {xdr.FATTR4_TIME_MODIFY_SET, set.Mtime}} {
		switch {
		case t.time == nil:
			continue
		case t.time.IsZero():
			v.Uint32(xdr.SET_TO_SERVER_TIME4)
		default:
			v.Uint32(xdr.SET_TO_CLIENT_TIME4)
			v.Time(*t.time)
		}
		mask.Set(t.attr)
	}
	e.Bitmap(mask)
	e.Opaque(v.Bytes())
}

// GetAttr returns FileAttrs of h.
func (c *Client) GetAttr(ctx context.Context, h FH) (Attr, error) {
	return c.getAttr(ctx, h, FileAttrs)
}

// Space returns the size and use of the file system that h is in.
func (c *Client) Space(ctx context.Context, h FH) (volume.Space, error) {
	a, err := c.getAttr(ctx, h, SpaceAttrs)
	return a.Space, err
}

func (c *Client) getAttr(ctx context.Context, h FH, mask xdr.Bitmap) (a Attr, err error) {
	err = c.call(ctx, NewCompound().PutFH(h).GetAttr(mask), func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		a, err = res.attr()
		return err
	})
	a.FH = h
	return a, err
}

// SetAttr changes attributes of h and returns the new ones. Setting the size
// uses the anonymous stateid; File.SetAttr uses the open's.
func (c *Client) SetAttr(ctx context.Context, h FH, set volume.SetAttr) (Attr, error) {
	return c.setAttr(ctx, h, xdr.StateidAnonymous, set)
}

func (c *Client) setAttr(ctx context.Context, h FH, id xdr.Stateid, set volume.SetAttr) (a Attr, err error) {
	p := NewCompound().PutFH(h).Add(xdr.OP_SETATTR, func(e *xdr.Encoder) {
		e.Stateid(id)
		encodeSetAttr(e, set)
	}).GetAttr(FileAttrs)
	err = c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		d, err := res.Next(xdr.OP_SETATTR)
		if err != nil {
			return err
		}
		d.Bitmap()
		a, err = res.attr()
		return err
	})
	a.FH = h
	return a, err
}

// Access asks which of the ACCESS4_… bits in want the server grants; supported
// are those that it knows.
func (c *Client) Access(ctx context.Context, h FH, want uint32) (supported, granted uint32, err error) {
	p := NewCompound().PutFH(h).Add(xdr.OP_ACCESS, func(e *xdr.Encoder) { e.Uint32(want) })
	err = c.call(ctx, p, func(res *Result) error {
		if err := res.skip(xdr.OP_PUTFH); err != nil {
			return err
		}
		d, err := res.Next(xdr.OP_ACCESS)
		if err != nil {
			return err
		}
		supported, granted = d.Uint32(), d.Uint32()
		return res.check(xdr.OP_ACCESS)
	})
	return supported, granted, err
}
