// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"github.com/weir-storage/weir/gateway/nfs/state"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// What a session's fore channel is granted at most.
const (
	maxSlots      = 128
	maxOperations = 64
	overhead      = 64 << 10 // room around the data of a WRITE or READ
	maxRequest    = volume.MaxIO + overhead
	maxReply      = volume.MaxIO + overhead
	maxCached     = 2 << 10 // as of Linux's server
	minChannel    = 256     // a fore channel with smaller messages is refused
	minBack       = 64
)

const exchangeFlags = xdr.EXCHGID4_FLAG_SUPP_MOVED_REFER | xdr.EXCHGID4_FLAG_SUPP_MOVED_MIGR |
	xdr.EXCHGID4_FLAG_BIND_PRINC_STATEID | xdr.EXCHGID4_FLAG_MASK_PNFS | xdr.EXCHGID4_FLAG_UPD_CONFIRMED_REC_A

// exchangeID implements EXCHANGE_ID, RFC 8881 section 18.35.
func (k *call) exchangeID() xdr.Status {
	a := state.ExchangeArgs{Verifier: k.in.Verifier()}
	a.Owner = k.in.String(xdr.NFS4_OPAQUE_LIMIT)
	flags := k.in.Uint32()
	how := k.in.Uint32()
	switch how {
	case xdr.SP4_NONE:
	case xdr.SP4_MACH_CRED:
		k.in.Bitmap()
		k.in.Bitmap()
	case xdr.SP4_SSV:
		k.in.Bitmap()
		k.in.Bitmap()
		for range 2 { // algorithms, as object identifiers
			for range k.in.Count(64, 4) {
				k.in.Opaque(xdr.NFS4_OPAQUE_LIMIT)
			}
		}
		k.in.Uint32()
		k.in.Uint32()
	default:
		return xdr.NFS4ERR_BADXDR
	}
	for range k.in.Count(1, 20) { // implementation
		k.in.Opaque(xdr.NFS4_OPAQUE_LIMIT)
		k.in.Opaque(xdr.NFS4_OPAQUE_LIMIT)
		k.in.Time()
	}
	known := uint32(exchangeFlags)
	if k.minor >= 2 {
		known |= xdr.EXCHGID4_FLAG_SUPP_FENCE_OPS
	}
	switch {
	case k.in.Err() != nil:
		return xdr.NFS4ERR_BADXDR
	case flags&^known != 0, how == xdr.SP4_MACH_CRED: // that needs RPCSEC_GSS
		return xdr.NFS4ERR_INVAL
	case how == xdr.SP4_SSV:
		return xdr.NFS4ERR_ENCR_ALG_UNSUPP
	}
	a.Principal, a.Address = k.principal(), k.conn.name
	a.Certificate, a.Stranger = k.conn.certificate, k.stranger()
	a.Update = flags&xdr.EXCHGID4_FLAG_UPD_CONFIRMED_REC_A != 0
	r, st := k.s.table.ExchangeID(a)
	if st != xdr.NFS4_OK {
		return k.unlessStranger(st)
	}
	flags = xdr.EXCHGID4_FLAG_USE_NON_PNFS
	if r.Confirmed {
		flags |= xdr.EXCHGID4_FLAG_CONFIRMED_R
	}
	k.out.Uint64(r.ClientID)
	k.out.Uint32(r.Sequence)
	k.out.Uint32(flags)
	k.out.Uint32(xdr.SP4_NONE)
	k.out.Uint64(0) // so_minor_id
	k.out.String(k.s.cfg.ServerOwner)
	k.out.String(k.s.cfg.ServerScope)
	k.out.Uint32(0) // implementation
	return xdr.NFS4_OK
}

// createSession implements CREATE_SESSION, RFC 8881 section 18.36.
func (k *call) createSession() xdr.Status {
	a := state.CreateArgs{ClientID: k.in.Uint64(), Sequence: k.in.Uint32()}
	flags := k.in.Uint32()
	fore, back := k.in.ChannelAttrs(), k.in.ChannelAttrs()
	k.in.Uint32() // callback program
	for range k.in.Count(16, 4) {
		switch k.in.Uint32() { // callback_sec_parms4
		case xdr.AUTH_NONE:
		case xdr.AUTH_SYS:
			k.in.AuthSys()
		case xdr.RPCSEC_GSS:
			k.in.Uint32()
			k.in.Opaque(xdr.NFS4_OPAQUE_LIMIT)
			k.in.Opaque(xdr.NFS4_OPAQUE_LIMIT)
		default:
			return xdr.NFS4ERR_BADXDR
		}
	}
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	const known = xdr.CREATE_SESSION4_FLAG_PERSIST | xdr.CREATE_SESSION4_FLAG_CONN_BACK_CHAN | xdr.CREATE_SESSION4_FLAG_CONN_RDMA
	switch {
	case flags&^known != 0:
		a.Invalid = xdr.NFS4ERR_INVAL
	case fore.MaxRequestSize < minChannel, fore.MaxResponseSize < minChannel,
		back.MaxRequestSize < minBack, back.MaxResponseSize < minBack:
		a.Invalid = xdr.NFS4ERR_TOOSMALL
	case fore.MaxRequests == 0, fore.MaxOperations == 0:
		a.Invalid = xdr.NFS4ERR_INVAL
	}
	a.Principal, a.Address, a.Stranger = k.principal(), k.conn.name, k.stranger()
	a.Flags = flags & (xdr.CREATE_SESSION4_FLAG_PERSIST | xdr.CREATE_SESSION4_FLAG_CONN_BACK_CHAN)
	a.Fore = xdr.ChannelAttrs{
		MaxRequestSize:        min(fore.MaxRequestSize, maxRequest),
		MaxResponseSize:       min(fore.MaxResponseSize, maxReply),
		MaxResponseSizeCached: min(fore.MaxResponseSizeCached, fore.MaxResponseSize, maxCached),
		MaxOperations:         min(fore.MaxOperations, maxOperations),
		MaxRequests:           min(fore.MaxRequests, maxSlots),
	}
	back.HeaderPadSize = 0
	a.Back = back
	r, st := k.s.table.CreateSession(a)
	if st != xdr.NFS4_OK {
		return k.unlessStranger(st)
	}
	k.out.SessionID(r.Session)
	k.out.Uint32(r.Sequence)
	k.out.Uint32(r.Flags)
	k.out.ChannelAttrs(r.Fore)
	k.out.ChannelAttrs(r.Back)
	return xdr.NFS4_OK
}

// destroySession implements DESTROY_SESSION, RFC 8881 section 18.37.
func (k *call) destroySession() xdr.Status {
	id := k.in.SessionID()
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	if k.use != nil && k.use.Session.ID == id && k.index != k.count-1 {
		return xdr.NFS4ERR_NOT_ONLY_OP
	}
	return k.s.table.DestroySession(id)
}

// destroyClientID implements DESTROY_CLIENTID, RFC 8881 section 18.50.
func (k *call) destroyClientID() xdr.Status {
	id := k.in.Uint64()
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	if k.client != nil && k.client.ID == id {
		return xdr.NFS4ERR_CLIENTID_BUSY
	}
	return k.s.table.DestroyClient(id, k.conn.name)
}

// bindConnToSession implements BIND_CONN_TO_SESSION, RFC 8881 section 18.34. A
// connection needs no binding here, as without state protection SEQUENCE binds it.
func (k *call) bindConnToSession() xdr.Status {
	id := k.in.SessionID()
	dir := k.in.Uint32()
	k.in.Bool() // RDMA, which is not offered
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	s := k.s.table.Session(id)
	if s == nil {
		return xdr.NFS4ERR_BADSESSION
	}
	k.conn.session.Store(s)
	backchannel := s.Flags&xdr.CREATE_SESSION4_FLAG_CONN_BACK_CHAN != 0
	granted := uint32(xdr.CDFS4_FORE)
	switch dir {
	case xdr.CDFC4_FORE:
	case xdr.CDFC4_BACK:
		granted = xdr.CDFS4_BACK
	case xdr.CDFC4_FORE_OR_BOTH, xdr.CDFC4_BACK_OR_BOTH:
		if backchannel || dir == xdr.CDFC4_BACK_OR_BOTH {
			granted = xdr.CDFS4_BOTH
		}
	default:
		return xdr.NFS4ERR_INVAL
	}
	k.out.SessionID(id)
	k.out.Uint32(granted)
	k.out.Bool(false)
	return xdr.NFS4_OK
}

// backchannelCtl implements BACKCHANNEL_CTL, RFC 8881 section 18.33. Nothing is
// ever sent on the backchannel, so there is nothing to remember.
func (k *call) backchannelCtl() xdr.Status {
	k.in.Uint32()
	for range k.in.Count(16, 4) {
		switch k.in.Uint32() {
		case xdr.AUTH_NONE:
		case xdr.AUTH_SYS:
			k.in.AuthSys()
		default:
			return xdr.NFS4ERR_INVAL
		}
	}
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	return xdr.NFS4_OK
}

// reclaimComplete implements RECLAIM_COMPLETE, RFC 8881 section 18.51.
func (k *call) reclaimComplete() xdr.Status {
	oneFS := k.in.Bool()
	if k.in.Err() != nil {
		return xdr.NFS4ERR_BADXDR
	}
	if oneFS {
		if !k.cur.set {
			return xdr.NFS4ERR_NOFILEHANDLE
		}
		return xdr.NFS4_OK // no file system moves between servers
	}
	return k.s.table.ReclaimComplete(k.client, k.use.Unknown)
}
