// SPDX-License-Identifier: Apache-2.0

package nfs

import "github.com/weir-storage/weir/gateway/nfs/xdr"

// closeFile implements CLOSE, RFC 8881 section 18.2.
func (k *call) closeFile() xdr.Status {
	k.in.Uint32() // seqid
	id, ist := k.stateid()
	switch {
	case k.in.Err() != nil:
		return xdr.NFS4ERR_BADXDR
	case !k.cur.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case ist != xdr.NFS4_OK:
		return ist
	}
	if !k.cur.pseudo && k.cur.vol == nil {
		// The client is not admitted (see enter). Expel revokes what is not revoked yet.
		if st := k.s.table.Test(k.client, id); st != xdr.NFS4_OK {
			return st
		}
		return xdr.NFS4ERR_ACCESS
	}
	ended, st := k.s.table.Close(k.client, id, k.cur.key())
	if st != xdr.NFS4_OK {
		return st
	}
	k.s.release(ended)
	k.cur.hasID = false
	k.out.Stateid(xdr.StateidInvalid)
	return xdr.NFS4_OK
}

// openDowngrade implements OPEN_DOWNGRADE, RFC 8881 section 18.18.
func (k *call) openDowngrade() xdr.Status {
	id, ist := k.stateid()
	k.in.Uint32() // seqid
	access, deny := k.in.Uint32(), k.in.Uint32()
	switch {
	case k.in.Err() != nil:
		return xdr.NFS4ERR_BADXDR
	case !k.cur.set:
		return xdr.NFS4ERR_NOFILEHANDLE
	case ist != xdr.NFS4_OK:
		return ist
	}
	access &^= xdr.OPEN4_SHARE_ACCESS_WANT_DELEG_MASK
	if access == 0 || access > xdr.OPEN4_SHARE_ACCESS_BOTH || deny > xdr.OPEN4_SHARE_DENY_BOTH {
		return xdr.NFS4ERR_INVAL
	}
	next, st := k.s.table.Downgrade(k.client, id, k.cur.key(), access, deny)
	if st != xdr.NFS4_OK {
		return st
	}
	k.setStateid(next)
	k.out.Stateid(next)
	return xdr.NFS4_OK
}
