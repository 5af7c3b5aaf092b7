// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

func (k *call) xattrFile() xdr.Status {
	switch {
	case k.in.Err() != nil:
		return xdr.NFS4ERR_BADXDR
	case !k.cur.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case k.cur.pseudo:
		return xdr.NFS4ERR_NOTSUPP
	}
	return xdr.NFS4_OK
}

// getXattr implements GETXATTR, RFC 8276 section 8.4.2.
func (k *call) getXattr() xdr.Status {
	name := k.in.String(maxString)
	if st := k.xattrFile(); st != xdr.NFS4_OK {
		return st
	}
	v, err := k.cur.vol.GetXattr(k.ctx, k.read(), k.cur.h, name)
	if err != nil {
		return k.status(err)
	}
	k.out.Opaque(v)
	return xdr.NFS4_OK
}

// setXattr implements SETXATTR, RFC 8276 section 8.4.3.
func (k *call) setXattr() xdr.Status {
	how := k.in.Uint32()
	name := k.in.String(maxString)
	value := k.in.Opaque(maxRecord)
	if st := k.xattrFile(); st != xdr.NFS4_OK {
		return st
	}
	if how > xdr.SETXATTR4_REPLACE {
		return xdr.NFS4ERR_INVAL
	}
	if st := k.writable(k.cur); st != xdr.NFS4_OK {
		return st
	}
	mode := [...]volume.XattrMode{volume.XattrEither, volume.XattrCreate, volume.XattrReplace}[how]
	d, err := k.cur.vol.SetXattr(k.ctx, k.change(0), k.cur.h, name, value, mode)
	if err != nil {
		return k.status(err)
	}
	k.changeInfo(d)
	return xdr.NFS4_OK
}

// listXattrs implements LISTXATTRS, RFC 8276 section 8.4.4. A cookie is the
// number of names before it.
func (k *call) listXattrs() xdr.Status {
	cookie, maxCount := k.in.Uint64(), k.in.Uint32()
	if st := k.xattrFile(); st != xdr.NFS4_OK {
		return st
	}
	names, err := k.cur.vol.ListXattr(k.ctx, k.read(), k.cur.h)
	if err != nil {
		return k.status(err)
	}
	if cookie > uint64(len(names)) {
		return xdr.NFS4ERR_BAD_COOKIE
	}
	names = names[cookie:]
	// The cookie, the array's length and eof take 16 bytes.
	room := min(int(maxCount), k.limit-(k.out.Len()-k.base)) - 16
	n := 0
	for n < len(names) {
		if room -= 4 + (len(names[n])+3)&^3; room < 0 {
			break
		}
		n++
	}
	if n == 0 && len(names) > 0 {
		return xdr.NFS4ERR_TOOSMALL
	}
	k.out.Uint64(cookie + uint64(n))
	k.out.Uint32(uint32(n))
	for _, name := range names[:n] {
		k.out.String(name)
	}
	k.out.Bool(n == len(names))
	return xdr.NFS4_OK
}

// removeXattr implements REMOVEXATTR, RFC 8276 section 8.4.5.
func (k *call) removeXattr() xdr.Status {
	name := k.in.String(maxString)
	if st := k.xattrFile(); st != xdr.NFS4_OK {
		return st
	}
	if st := k.writable(k.cur); st != xdr.NFS4_OK {
		return st
	}
	d, err := k.cur.vol.RemoveXattr(k.ctx, k.change(0), k.cur.h, name)
	if err != nil {
		return k.status(err)
	}
	k.changeInfo(d)
	return xdr.NFS4_OK
}
