// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// writable says whether the volume of p may be changed through this export. It also
// records that the client changes it, for Volume.Forget later.
func (k *call) writable(p place) xdr.Status {
	switch {
	case !p.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case p.readOnly():
		return xdr.NFS4ERR_ROFS
	}
	k.s.table.Changes(k.client, p.vol)
	return xdr.NFS4_OK
}

func (k *call) changeInfo(d volume.DirChange) {
	k.out.ChangeInfo(xdr.ChangeInfo{Atomic: true, Before: d.Before, After: d.After})
}

// create implements CREATE, RFC 8881 section 18.4, for everything but regular files.
func (k *call) create() xdr.Status {
	args := volume.CreateArgs{Mode: volume.Guarded}
	st := xdr.NFS4_OK
	switch k.in.Uint32() {
	case xdr.NF4DIR:
		args.Type = volume.Directory
	case xdr.NF4LNK:
		args.Type = volume.Symlink
		args.Target = k.in.String(maxString)
	case xdr.NF4BLK:
		args.Type = volume.Block
		args.Rdev = uint64(k.in.Uint32())<<32 | uint64(k.in.Uint32())
	case xdr.NF4CHR:
		args.Type = volume.Char
		args.Rdev = uint64(k.in.Uint32())<<32 | uint64(k.in.Uint32())
	case xdr.NF4SOCK:
		args.Type = volume.Socket
	case xdr.NF4FIFO:
		args.Type = volume.FIFO
	case xdr.NF4REG, xdr.NF4ATTRDIR, xdr.NF4NAMEDATTR:
		st = xdr.NFS4ERR_BADTYPE
	default:
		st = xdr.NFS4ERR_BADTYPE
	}
	name := k.in.String(maxString)
	set, mask, ast := k.decodeSetAttr()
	switch {
	case k.in.Err() != nil:
		return xdr.NFS4ERR_BADXDR
	case !k.cur.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case st != xdr.NFS4_OK:
		return st
	}
	if st := k.notDirectory(); st != xdr.NFS4_OK {
		return st
	}
	if st := checkName(name); st != xdr.NFS4_OK {
		return st
	}
	if ast != xdr.NFS4_OK {
		return ast
	}
	if st := k.writable(k.cur); st != xdr.NFS4_OK {
		return st
	}
	args.Attr = set
	if args.Attr.Size != nil {
		return xdr.NFS4ERR_INVAL
	}
	c, err := k.cur.vol.Create(k.ctx, k.change(0), k.cur.h, k.named(name), args)
	if err != nil {
		return k.dirStatus(err)
	}
	k.found(name, c.Attr.Handle)
	k.changeInfo(c.Dir)
	k.out.Bitmap(mask)
	return xdr.NFS4_OK
}

// remove implements REMOVE, RFC 8881 section 18.25.
func (k *call) remove() xdr.Status {
	name := k.in.String(maxString)
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	if !k.cur.set {
		return xdr.NFS4ERR_NOFILEHANDLE
	}
	if st := checkName(name); st != xdr.NFS4_OK {
		if kind := k.notDirectory(); kind != xdr.NFS4_OK {
			return kind
		}
		return st
	}
	if st := k.writable(k.cur); st != xdr.NFS4_OK {
		return st
	}
	d, err := k.cur.vol.Remove(k.ctx, k.change(0), k.cur.h, k.named(name))
	if err != nil {
		return k.dirStatus(err)
	}
	k.changeInfo(d)
	return xdr.NFS4_OK
}

// rename implements RENAME, RFC 8881 section 18.26, from the saved to the current
// directory.
func (k *call) rename() xdr.Status {
	from, to := k.in.String(maxString), k.in.String(maxString)
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	if st := k.pair(); st != xdr.NFS4_OK {
		return st
	}
	for _, name := range []string{from, to} {
		if st := checkName(name); st != xdr.NFS4_OK {
			return st
		}
	}
	if st := k.writable(k.cur); st != xdr.NFS4_OK {
		return st
	}
	src, dst, err := k.cur.vol.Rename(k.ctx, k.change(0), k.saved.h, from, k.cur.h, k.named(to))
	if err != nil {
		// Of the codes that RFC 8881 section 18.26 allows, those that an
		// application on a local file system would see.
		return k.status(err)
	}
	k.changeInfo(src)
	k.changeInfo(dst)
	return xdr.NFS4_OK
}

// pair says whether the saved and the current file handle are in one volume.
func (k *call) pair() xdr.Status {
	switch {
	case !k.cur.set || !k.saved.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case k.cur.pseudo != k.saved.pseudo, k.cur.export.ID != k.saved.export.ID:
		return xdr.NFS4ERR_XDEV
	}
	return xdr.NFS4_OK
}

// link implements LINK, RFC 8881 section 18.9: a name in the current directory for the
// saved file.
func (k *call) link() xdr.Status {
	name := k.in.String(maxString)
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	if st := k.pair(); st != xdr.NFS4_OK {
		return st
	}
	if st := checkName(name); st != xdr.NFS4_OK {
		return st
	}
	if st := k.writable(k.cur); st != xdr.NFS4_OK {
		return st
	}
	c, err := k.cur.vol.Link(k.ctx, k.change(0), k.saved.h, k.cur.h, k.named(name))
	if err != nil {
		return k.dirStatus(err)
	}
	k.changeInfo(c.Dir)
	return xdr.NFS4_OK
}

// readLink implements READLINK, RFC 8881 section 18.24.
func (k *call) readLink() xdr.Status {
	switch {
	case !k.cur.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case k.cur.pseudo:
		return xdr.NFS4ERR_WRONG_TYPE
	}
	target, err := k.cur.vol.ReadLink(k.ctx, k.read(), k.cur.h)
	if st := k.status(err); st != xdr.NFS4_OK {
		if st == xdr.NFS4ERR_INVAL {
			return xdr.NFS4ERR_WRONG_TYPE
		}
		return st
	}
	k.out.String(target)
	return xdr.NFS4_OK
}
