// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"bytes"
	"errors"
	"strconv"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// maxFattr bounds the encoded values of a fattr4.
const maxFattr = 16 << 10

// getAttr implements GETATTR, RFC 8881 section 18.7.
func (k *call) getAttr() xdr.Status {
	mask := k.in.Bitmap()
	switch {
	case k.in.Err() != nil:
		return xdr.NFS4ERR_BADXDR
	case !k.cur.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case !mask.And(writeOnlyAttrs).Empty():
		return xdr.NFS4ERR_INVAL
	}
	d, err := k.describe(k.cur, mask)
	if err != nil {
		return k.status(err)
	}
	k.attrs(d, mask)
	return xdr.NFS4_OK
}

// decodeSetAttr reads a fattr4 that sets attributes. mask lists what it sets. st says
// what is wrong with it.
func (k *call) decodeSetAttr() (set volume.SetAttr, mask xdr.Bitmap, st xdr.Status) {
	mask = k.in.Bitmap()
	raw := k.in.Opaque(maxFattr)
	if k.in.Err() != nil {
		return set, mask, xdr.NFS4ERR_BADXDR
	}
	switch {
	case mask.Extra, !mask.Without(supportedAttrs(k.minor)).Empty():
		return set, mask, xdr.NFS4ERR_ATTRNOTSUPP
	case !mask.Without(settableAttrs).Empty():
		return set, mask, xdr.NFS4ERR_INVAL
	}
	d := xdr.NewDecoder(raw)
	for n := range xdr.AttrLimit {
		if !mask.Has(n) {
			continue
		}
		switch n {
		case xdr.FATTR4_SIZE:
			v := d.Uint64()
			set.Size = &v
		case xdr.FATTR4_MODE:
			v := d.Uint32()
			set.Mode = &v
			if v > 0o7777 {
				st = xdr.NFS4ERR_INVAL
			}
		case xdr.FATTR4_OWNER, xdr.FATTR4_OWNER_GROUP:
			v, ok := parseOwner(d.String(xdr.NFS4_OPAQUE_LIMIT))
			if n == xdr.FATTR4_OWNER {
				set.UID = &v
			} else {
				set.GID = &v
			}
			if !ok {
				st = xdr.NFS4ERR_BADOWNER
			}
		case xdr.FATTR4_TIME_ACCESS_SET:
			set.Atime = decodeSetTime(d)
		case xdr.FATTR4_TIME_MODIFY_SET:
			set.Mtime = decodeSetTime(d)
		}
	}
	switch {
	case errors.Is(d.Err(), xdr.ErrBadTime):
		st = xdr.NFS4ERR_INVAL
	case d.Err() != nil, d.Len() != 0:
		st = xdr.NFS4ERR_BADXDR
	}
	if st == xdr.NFS4_OK {
		var err error
		if set, err = k.cur.export.IDs.Set(set); err != nil {
			st = k.status(err)
		}
	}
	return set, mask, st
}

// decodeSetTime reads a settime4; the zero time stands for the server's clock.
func decodeSetTime(d *xdr.Decoder) *time.Time {
	var t time.Time
	switch d.Uint32() {
	case xdr.SET_TO_SERVER_TIME4:
	case xdr.SET_TO_CLIENT_TIME4:
		t = d.Time()
	default:
		d.Fail(xdr.ErrTooLong)
	}
	return &t
}

// parseOwner reads a numeric owner (RFC 8881 section 5.9). It does not know names.
func parseOwner(s string) (uint32, bool) {
	if len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	v, err := strconv.ParseUint(s, 10, 32)
	return uint32(v), err == nil
}

// setAttr implements SETATTR, RFC 8881 section 18.30.
func (k *call) setAttr() xdr.Status {
	id, ist := k.stateid()
	set, mask, st := k.decodeSetAttr()
	switch {
	case k.in.Err() != nil:
		return xdr.NFS4ERR_BADXDR
	case !k.cur.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case st != xdr.NFS4_OK:
		return st
	}
	if st := k.writable(k.cur); st != xdr.NFS4_OK {
		return st
	}
	if set.Size != nil {
		if ist != xdr.NFS4_OK {
			return ist
		}
		if st := k.checkIO(id, xdr.OPEN4_SHARE_ACCESS_WRITE); st != xdr.NFS4_OK {
			return st
		}
	}
	if _, err := k.cur.vol.SetAttr(k.ctx, k.change(0), k.cur.h, set); err != nil {
		return k.status(err)
	}
	k.out.Bitmap(mask)
	return xdr.NFS4_OK
}

// same compares a fattr4 with the current file's attributes, for VERIFY and NVERIFY. It
// returns NFS4ERR_SAME, NFS4ERR_NOT_SAME or another error.
func (k *call) same() xdr.Status {
	mask := k.in.Bitmap()
	wanted := k.in.Opaque(maxFattr)
	switch {
	case k.in.Err() != nil:
		return xdr.NFS4ERR_BADXDR
	case !k.cur.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case mask.Has(xdr.FATTR4_RDATTR_ERROR), !mask.And(writeOnlyAttrs).Empty():
		return xdr.NFS4ERR_INVAL
	case mask.Extra, !mask.Without(supportedAttrs(k.minor)).Empty():
		return xdr.NFS4ERR_ATTRNOTSUPP
	}
	d, err := k.describe(k.cur, mask)
	if err != nil {
		return k.status(err)
	}
	var e xdr.Encoder
	for n := range xdr.AttrLimit {
		if mask.Has(n) {
			d.encode(&e, n)
		}
	}
	if bytes.Equal(e.Bytes(), wanted) {
		return xdr.NFS4ERR_SAME
	}
	return xdr.NFS4ERR_NOT_SAME
}

// verify implements VERIFY, RFC 8881 section 18.31.
func (k *call) verify() xdr.Status {
	st := k.same()
	if st == xdr.NFS4ERR_SAME {
		return xdr.NFS4_OK
	}
	return st
}

// nverify implements NVERIFY, RFC 8881 section 18.15.
func (k *call) nverify() xdr.Status {
	st := k.same()
	if st == xdr.NFS4ERR_NOT_SAME {
		return xdr.NFS4_OK
	}
	return st
}

// access implements ACCESS, RFC 8881 section 18.1, with the bits of RFC 8276.
func (k *call) access() xdr.Status {
	want := k.in.Uint32()
	switch {
	case k.in.Err() != nil:
		return xdr.NFS4ERR_BADXDR
	case !k.cur.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	}
	known := uint32(xdr.ACCESS4_READ | xdr.ACCESS4_LOOKUP | xdr.ACCESS4_MODIFY |
		xdr.ACCESS4_EXTEND | xdr.ACCESS4_DELETE | xdr.ACCESS4_EXECUTE)
	if k.minor >= 2 {
		known |= xdr.ACCESS4_XAREAD | xdr.ACCESS4_XAWRITE | xdr.ACCESS4_XALIST
	}
	d, err := k.describe(k.cur, xdr.Bitmap{})
	if err != nil {
		return k.status(err)
	}
	supported := want & known
	dir := d.attr.Type == volume.Directory
	if dir {
		supported &^= xdr.ACCESS4_EXECUTE
	} else {
		supported &^= xdr.ACCESS4_LOOKUP | xdr.ACCESS4_DELETE
	}
	k.out.Uint32(supported)
	k.out.Uint32(granted(d.attr, k.caller(), k.cur.readOnly()) & supported)
	return xdr.NFS4_OK
}

// granted returns the bits of ACCESS that c has on a file.
func granted(a volume.Attr, c volume.Caller, readOnly bool) (bits uint32) {
	if volume.Permits(a, c, volume.Read) {
		bits |= xdr.ACCESS4_READ
	}
	if volume.Permits(a, c, volume.Exec) {
		bits |= xdr.ACCESS4_LOOKUP | xdr.ACCESS4_EXECUTE
	}
	special := a.Type != volume.Regular && a.Type != volume.Directory
	if volume.Permits(a, c, volume.Write) && (!readOnly || special) {
		bits |= xdr.ACCESS4_MODIFY | xdr.ACCESS4_EXTEND
		if a.Type == volume.Directory {
			bits |= xdr.ACCESS4_DELETE
		}
	}
	if volume.CheckXattr(a, c, false) == nil {
		bits |= xdr.ACCESS4_XAREAD | xdr.ACCESS4_XALIST
	}
	if !readOnly && volume.CheckXattr(a, c, true) == nil {
		bits |= xdr.ACCESS4_XAWRITE
	}
	return bits
}
