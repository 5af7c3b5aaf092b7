// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"math"
	"strconv"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// The attributes that are supported, by how they can be used.
var (
	readableAttrs = xdr.NewBitmap(
		xdr.FATTR4_SUPPORTED_ATTRS, xdr.FATTR4_TYPE, xdr.FATTR4_FH_EXPIRE_TYPE, xdr.FATTR4_CHANGE, xdr.FATTR4_SIZE,
		xdr.FATTR4_LINK_SUPPORT, xdr.FATTR4_SYMLINK_SUPPORT, xdr.FATTR4_NAMED_ATTR, xdr.FATTR4_FSID,
		xdr.FATTR4_UNIQUE_HANDLES, xdr.FATTR4_LEASE_TIME, xdr.FATTR4_RDATTR_ERROR, xdr.FATTR4_ACLSUPPORT,
		xdr.FATTR4_CANSETTIME, xdr.FATTR4_CASE_INSENSITIVE, xdr.FATTR4_CASE_PRESERVING, xdr.FATTR4_CHOWN_RESTRICTED,
		xdr.FATTR4_FILEHANDLE, xdr.FATTR4_FILEID, xdr.FATTR4_FILES_AVAIL, xdr.FATTR4_FILES_FREE, xdr.FATTR4_FILES_TOTAL,
		xdr.FATTR4_HOMOGENEOUS, xdr.FATTR4_MAXFILESIZE, xdr.FATTR4_MAXLINK, xdr.FATTR4_MAXNAME, xdr.FATTR4_MAXREAD,
		xdr.FATTR4_MAXWRITE, xdr.FATTR4_MODE, xdr.FATTR4_NO_TRUNC, xdr.FATTR4_NUMLINKS, xdr.FATTR4_OWNER,
		xdr.FATTR4_OWNER_GROUP, xdr.FATTR4_RAWDEV, xdr.FATTR4_SPACE_AVAIL, xdr.FATTR4_SPACE_FREE,
		xdr.FATTR4_SPACE_TOTAL, xdr.FATTR4_SPACE_USED, xdr.FATTR4_TIME_ACCESS, xdr.FATTR4_TIME_CREATE,
		xdr.FATTR4_TIME_DELTA, xdr.FATTR4_TIME_METADATA, xdr.FATTR4_TIME_MODIFY, xdr.FATTR4_MOUNTED_ON_FILEID,
		xdr.FATTR4_SUPPATTR_EXCLCREAT, xdr.FATTR4_CHANGE_ATTR_TYPE, xdr.FATTR4_XATTR_SUPPORT)
	settableAttrs = xdr.NewBitmap(xdr.FATTR4_SIZE, xdr.FATTR4_MODE, xdr.FATTR4_OWNER, xdr.FATTR4_OWNER_GROUP,
		xdr.FATTR4_TIME_ACCESS_SET, xdr.FATTR4_TIME_MODIFY_SET)
	writeOnlyAttrs = xdr.NewBitmap(xdr.FATTR4_TIME_ACCESS_SET, xdr.FATTR4_TIME_MODIFY_SET)
	spaceAttrs     = xdr.NewBitmap(xdr.FATTR4_FILES_AVAIL, xdr.FATTR4_FILES_FREE, xdr.FATTR4_FILES_TOTAL,
		xdr.FATTR4_SPACE_AVAIL, xdr.FATTR4_SPACE_FREE, xdr.FATTR4_SPACE_TOTAL)
	// rdattrAttrs are the attributes of an entry whose others cannot be read.
	rdattrAttrs = xdr.NewBitmap(xdr.FATTR4_RDATTR_ERROR, xdr.FATTR4_MOUNTED_ON_FILEID)
)

// supportedAttrs returns the value of supported_attrs in a minor version.
func supportedAttrs(minor uint32) xdr.Bitmap {
	b := readableAttrs.Or(writeOnlyAttrs)
	if minor < 2 {
		b.Clear(xdr.FATTR4_CHANGE_ATTR_TYPE)
		b.Clear(xdr.FATTR4_XATTR_SUPPORT)
	}
	return b
}

// described is what attributes are encoded from.
type described struct {
	place
	attr      volume.Attr
	space     volume.Space
	minor     uint32
	lease     time.Duration
	mountedOn uint64
	rdattr    xdr.Status
	seen      *volume.Attr // attr, as the client's users see it; nil: not translated yet
}

// describe reads what is needed for the attributes in mask of p.
func (k *call) describe(p place, mask xdr.Bitmap) (described, error) {
	if p.pseudo {
		return k.describeRoot(p), nil
	}
	a, err := p.vol.GetAttr(k.ctx, k.read(), p.h)
	if err != nil {
		return described{}, err
	}
	return k.describeAttr(p, a, mask)
}

// describeAttr is describe for attributes that were read already.
func (k *call) describeAttr(p place, a volume.Attr, mask xdr.Bitmap) (described, error) {
	d := described{place: p, attr: a, minor: k.minor, lease: k.s.cfg.Lease, mountedOn: fileid(a.Handle)}
	d.h = a.Handle
	switch {
	case a.Handle == volume.Root:
		d.mountedOn = mountFileid(p.export.ID)
	case p.h.Snap == volume.SnapshotDir && a.Snap != p.h.Snap: // an entry of a directory of snapshots
		d.mountedOn = snapshotFileid | uint64(a.Snap)
	}
	if mask.And(spaceAttrs).Empty() {
		return d, nil
	}
	var err error
	d.space, err = p.vol.Space(k.untilRevoked())
	return d, err
}

// describeRoot describes the pseudo root, which nobody can change.
func (k *call) describeRoot(p place) described {
	list := k.s.cfg.Exports.Exports(k.conn.addr)
	return described{
		place: p, minor: k.minor, lease: k.s.cfg.Lease, mountedOn: rootFileid,
		attr: volume.Attr{
			Handle: volume.Root, Type: volume.Directory, Mode: 0o555, Nlink: uint32(2 + len(list)),
			Change: rootChange(list), Atime: k.s.started, Mtime: k.s.started, Ctime: k.s.started, Btime: k.s.started,
		},
	}
}

// attrs appends a fattr4 with those attributes of mask that are supported.
func (k *call) attrs(d described, mask xdr.Bitmap) {
	mask = mask.And(supportedAttrs(d.minor)).Without(writeOnlyAttrs)
	k.out.Bitmap(mask)
	at := k.out.Mark()
	k.out.Uint32(0)
	from := k.out.Len()
	for n := range xdr.AttrLimit {
		if mask.Has(n) {
			d.encode(k.out.Encoder, n)
		}
	}
	k.out.PatchUint32(at, uint32(k.out.Len()-from))
}

var fileTypes = map[volume.Type]uint32{
	volume.Regular: xdr.NF4REG, volume.Directory: xdr.NF4DIR, volume.Symlink: xdr.NF4LNK, volume.Block: xdr.NF4BLK,
	volume.Char: xdr.NF4CHR, volume.FIFO: xdr.NF4FIFO, volume.Socket: xdr.NF4SOCK,
}

// shown are the attributes as the client's users see them.
func (d *described) shown() *volume.Attr {
	if d.export.IDs == nil {
		return &d.attr
	}
	if d.seen == nil {
		a := d.export.IDs.Shown(d.attr)
		d.seen = &a
	}
	return d.seen
}

// encode appends the value of attribute n.
func (d *described) encode(e *xdr.Encoder, n uint32) {
	a := d.shown()
	switch n {
	case xdr.FATTR4_SUPPORTED_ATTRS:
		e.Bitmap(supportedAttrs(d.minor))
	case xdr.FATTR4_SUPPATTR_EXCLCREAT:
		e.Bitmap(settableAttrs)
	case xdr.FATTR4_TYPE:
		e.Uint32(fileTypes[a.Type])
	case xdr.FATTR4_FH_EXPIRE_TYPE:
		e.Uint32(xdr.FH4_PERSISTENT)
	case xdr.FATTR4_CHANGE:
		e.Uint64(a.Change)
	case xdr.FATTR4_SIZE:
		e.Uint64(a.Size)
	case xdr.FATTR4_SPACE_USED:
		e.Uint64(a.Used)
	case xdr.FATTR4_LINK_SUPPORT, xdr.FATTR4_SYMLINK_SUPPORT, xdr.FATTR4_UNIQUE_HANDLES, xdr.FATTR4_CANSETTIME,
		xdr.FATTR4_CASE_PRESERVING, xdr.FATTR4_CHOWN_RESTRICTED, xdr.FATTR4_HOMOGENEOUS, xdr.FATTR4_NO_TRUNC:
		e.Bool(true)
	case xdr.FATTR4_NAMED_ATTR, xdr.FATTR4_CASE_INSENSITIVE:
		e.Bool(false)
	case xdr.FATTR4_XATTR_SUPPORT:
		e.Bool(!d.pseudo)
	case xdr.FATTR4_FSID:
		id := d.fsid()
		e.Uint64(id[0])
		e.Uint64(id[1])
	case xdr.FATTR4_LEASE_TIME:
		e.Uint32(uint32((d.lease + time.Second - 1) / time.Second))
	case xdr.FATTR4_RDATTR_ERROR:
		e.Uint32(uint32(d.rdattr))
	case xdr.FATTR4_ACLSUPPORT:
		e.Uint32(0)
	case xdr.FATTR4_FILEHANDLE:
		e.Opaque(encodeHandle(d.place))
	case xdr.FATTR4_FILEID:
		e.Uint64(fileid(a.Handle))
	case xdr.FATTR4_MOUNTED_ON_FILEID:
		e.Uint64(d.mountedOn)
	case xdr.FATTR4_FILES_AVAIL, xdr.FATTR4_FILES_FREE:
		e.Uint64(d.space.FreeInodes)
	case xdr.FATTR4_FILES_TOTAL:
		e.Uint64(d.space.TotalInodes)
	case xdr.FATTR4_SPACE_AVAIL, xdr.FATTR4_SPACE_FREE:
		e.Uint64(d.space.FreeBytes)
	case xdr.FATTR4_SPACE_TOTAL:
		e.Uint64(d.space.TotalBytes)
	case xdr.FATTR4_MAXFILESIZE:
		e.Uint64(min(volume.MaxSize, math.MaxInt64))
	case xdr.FATTR4_MAXLINK:
		e.Uint32(volume.MaxLinks)
	case xdr.FATTR4_MAXNAME:
		e.Uint32(volume.MaxName)
	case xdr.FATTR4_MAXREAD, xdr.FATTR4_MAXWRITE:
		e.Uint64(volume.MaxIO)
	case xdr.FATTR4_MODE:
		e.Uint32(a.Mode)
	case xdr.FATTR4_NUMLINKS:
		e.Uint32(a.Nlink)
	case xdr.FATTR4_OWNER:
		e.String(strconv.FormatUint(uint64(a.UID), 10))
	case xdr.FATTR4_OWNER_GROUP:
		e.String(strconv.FormatUint(uint64(a.GID), 10))
	case xdr.FATTR4_RAWDEV:
		e.Uint64(a.Rdev) // specdata4 is major, minor
	case xdr.FATTR4_TIME_ACCESS:
		e.Time(a.Atime)
	case xdr.FATTR4_TIME_CREATE:
		e.Time(a.Btime)
	case xdr.FATTR4_TIME_DELTA:
		e.Int64(0)
		e.Uint32(1)
	case xdr.FATTR4_TIME_METADATA:
		e.Time(a.Ctime)
	case xdr.FATTR4_TIME_MODIFY:
		e.Time(a.Mtime)
	case xdr.FATTR4_CHANGE_ATTR_TYPE:
		if d.pseudo {
			e.Uint32(xdr.NFS4_CHANGE_TYPE_IS_UNDEFINED)
		} else {
			e.Uint32(xdr.NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR)
		}
	}
}

// No inode of a volume has these bits in its number.
const (
	snapshotsFileid = 1 << 63 // of a directory of snapshots
	snapshotFileid  = 1 << 62 // of a snapshot in such a directory
)

// fileid is a file's number within its fsid. A directory and the directory of its snapshots are of
// one fsid.
func fileid(h volume.Handle) uint64 {
	if h.Snap == volume.SnapshotDir {
		return h.Ino | snapshotsFileid
	}
	return h.Ino
}

// fsid is (0, 0) for the pseudo root, and else made from the volume's id and the snapshot
// (protocol-20): a file and what it was in a snapshot have the same fileid, and programs must not
// take them for one file.
func (d *described) fsid() (id [2]uint64) {
	if !d.pseudo {
		for i, b := range d.export.ID {
			id[i/8] = id[i/8]<<8 | uint64(b)
		}
		if d.h.Snap != volume.SnapshotDir {
			id[1] ^= uint64(d.h.Snap) * 0x9e3779b97f4a7c15 // odd: no two snapshots give one number
		}
	}
	return id
}
