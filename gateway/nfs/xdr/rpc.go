// SPDX-License-Identifier: Apache-2.0

package xdr

import "errors"

// ErrNotCall says that a message is no RPC call.
var ErrNotCall = errors.New("rpc: message is not a call")

// errNotReply says that a message is no RPC reply.
var errNotReply = errors.New("rpc: message is not a reply")

// Constants of ONC RPC, RFC 5531 section 9.
const (
	RPC_CALL  = 0
	RPC_REPLY = 1

	RPC_VERSION = 2

	MSG_ACCEPTED = 0
	MSG_DENIED   = 1

	SUCCESS       = 0
	PROG_UNAVAIL  = 1
	PROG_MISMATCH = 2
	PROC_UNAVAIL  = 3
	GARBAGE_ARGS  = 4
	SYSTEM_ERR    = 5

	RPC_MISMATCH = 0
	AUTH_ERROR   = 1

	AUTH_BADCRED      = 1
	AUTH_REJECTEDCRED = 2
	AUTH_TOOWEAK      = 5

	AUTH_NONE  = 0
	AUTH_SYS   = 1
	RPCSEC_GSS = 6
	AUTH_TLS   = 7 // RFC 9289 section 4.1
)

// StartTLS is the body of the verifier with which a server agrees to TLS, RFC 9289 section 4.1.
const StartTLS = "STARTTLS"

// The NFS program, RFC 8881 section 1.
const (
	NFS4_PROGRAM   = 100003
	NFS_V4         = 4
	NFSPROC4_NULL  = 0
	NFSPROC4_CMPND = 1
)

// maxAuth is the limit of a credential's or verifier's body, RFC 5531 section 8.2.
const maxAuth = 400

// OpaqueAuth is a credential or verifier. Body aliases the message.
type OpaqueAuth struct {
	Flavor uint32
	Body   []byte
}

// CallHeader is the head of an RPC call.
type CallHeader struct {
	XID        uint32
	RPCVersion uint32
	Program    uint32
	Version    uint32
	Procedure  uint32
	Cred, Verf OpaqueAuth
}

// CallHeader reads the head of a call; a message that is no call is an error.
// If RPCVersion is not 2, nothing after it is read.
func (d *Decoder) CallHeader() CallHeader {
	h := CallHeader{XID: d.Uint32()}
	if d.Uint32() != RPC_CALL {
		d.Fail(ErrNotCall)
		return h
	}
	if h.RPCVersion = d.Uint32(); h.RPCVersion != RPC_VERSION {
		return h
	}
	h.Program, h.Version, h.Procedure = d.Uint32(), d.Uint32(), d.Uint32()
	h.Cred = OpaqueAuth{d.Uint32(), d.Opaque(maxAuth)}
	h.Verf = OpaqueAuth{d.Uint32(), d.Opaque(maxAuth)}
	return h
}

// CallHeader appends the head of a call.
func (e *Encoder) CallHeader(h CallHeader) {
	for _, v := range []uint32{h.XID, RPC_CALL, RPC_VERSION, h.Program, h.Version, h.Procedure} {
		e.Uint32(v)
	}
	e.Uint32(h.Cred.Flavor)
	e.Opaque(h.Cred.Body)
	e.Uint32(h.Verf.Flavor)
	e.Opaque(h.Verf.Body)
}

// AuthSys is the body of an AUTH_SYS credential, RFC 5531 appendix A.
type AuthSys struct {
	Stamp   uint32
	Machine string
	UID     uint32
	GID     uint32
	Groups  []uint32 // at most 16
}

// AuthSys reads the body of an AUTH_SYS credential.
func (d *Decoder) AuthSys() AuthSys {
	a := AuthSys{Stamp: d.Uint32(), Machine: d.String(255), UID: d.Uint32(), GID: d.Uint32()}
	n := d.Count(16, 4)
	if n > 0 {
		a.Groups = make([]uint32, n)
	}
	for i := range a.Groups {
		a.Groups[i] = d.Uint32()
	}
	return a
}

// AuthSys appends the body of an AUTH_SYS credential.
func (e *Encoder) AuthSys(a AuthSys) {
	e.Uint32(a.Stamp)
	e.String(a.Machine)
	e.Uint32(a.UID)
	e.Uint32(a.GID)
	e.Uint32(uint32(len(a.Groups)))
	for _, g := range a.Groups {
		e.Uint32(g)
	}
}

// AcceptedHeader appends the head of an accepted reply with an AUTH_NONE verifier.
func (e *Encoder) AcceptedHeader(xid, stat uint32) {
	for _, v := range []uint32{xid, RPC_REPLY, MSG_ACCEPTED, AUTH_NONE, 0, stat} {
		e.Uint32(v)
	}
}

// StartTLSHeader appends the whole reply to a probe for TLS: the verifier says StartTLS.
func (e *Encoder) StartTLSHeader(xid uint32) {
	for _, v := range []uint32{xid, RPC_REPLY, MSG_ACCEPTED, AUTH_NONE} {
		e.Uint32(v)
	}
	e.String(StartTLS)
	e.Uint32(SUCCESS)
}

// DeniedHeader appends a denied reply: RPC_MISMATCH with versions low and high,
// or AUTH_ERROR with the reason in low.
func (e *Encoder) DeniedHeader(xid, stat, low, high uint32) {
	for _, v := range []uint32{xid, RPC_REPLY, MSG_DENIED, stat, low} {
		e.Uint32(v)
	}
	if stat == RPC_MISMATCH {
		e.Uint32(high)
	}
}

// ReplyHeader is the head of an RPC reply.
type ReplyHeader struct {
	XID      uint32
	Denied   bool
	Stat     uint32 // accept_stat or reject_stat
	AuthStat uint32 // if Denied with AUTH_ERROR
	Low      uint32 // versions, of a mismatch
	High     uint32
}

// ReplyHeader reads the head of a reply, up to the results.
func (d *Decoder) ReplyHeader() ReplyHeader {
	h := ReplyHeader{XID: d.Uint32()}
	if d.Uint32() != RPC_REPLY {
		d.Fail(errNotReply)
		return h
	}
	if h.Denied = d.Uint32() == MSG_DENIED; h.Denied {
		if h.Stat = d.Uint32(); h.Stat == AUTH_ERROR {
			h.AuthStat = d.Uint32()
		} else {
			h.Low, h.High = d.Uint32(), d.Uint32()
		}
		return h
	}
	d.Uint32()
	d.Opaque(maxAuth)
	if h.Stat = d.Uint32(); h.Stat == PROG_MISMATCH {
		h.Low, h.High = d.Uint32(), d.Uint32()
	}
	return h
}
