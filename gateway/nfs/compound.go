// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"strconv"
	"sync/atomic"
	"unicode/utf8"

	"github.com/weir-storage/weir/gateway/nfs/state"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/track"
	"github.com/weir-storage/weir/volume"
)

// call is one COMPOUND that is being executed. It belongs to one goroutine.
type call struct {
	s     *Server
	conn  *conn
	ctx   context.Context // of the present operation; it ends with the server
	track track.Op
	doing atomic.Pointer[doing]
	sent  volume.Caller // who asks, as the client says
	minor uint32
	size  int // of the request in bytes
	count uint32
	index uint32 // of the present operation

	in  *xdr.Decoder
	out *reply

	use    *state.Use // nil without a session
	client *state.Client
	slot   string // OpID.Slot
	cache  bool   // sa_cachethis
	flags  xdr.Mark
	base   int // length of the RPC header
	limit  int // of the reply in bytes
	uncached,
	cachedLimit int

	cur, saved place
	guests     []*guestOf         // the volumes that it uses
	yield      context.Context    // volume.Request.Yield; nil without a session
	giveUp     context.CancelFunc // ends yield
	changing   bool               // a change was asked for: from then on, waiting is better than asking again

	bytes int    // of a file, that the present operation read or wrote
	name  string // that the present operation has as an argument

	refused volume.ID // the volume that the present operation could not enter
	busy    bool      // because that holds its share of the slots

	repeat []byte // the reply of a repeated request
	drop   bool   // do not answer
	deny   bool   // answer that the credential does not do here
	later  bool   // there is no memory for it: only SEQUENCE is executed (nfs-10)
}

// A place is a current or saved file handle with its stateid.
type place struct {
	set    bool
	pseudo bool          // the root that lists volumes
	vol    volume.Volume // nil for the root, and if only CLOSE may follow
	export Export
	guest  *guest // nil for the root
	h      volume.Handle
	id     xdr.Stateid
	hasID  bool
	// ending: the volume takes no requests on this connection. What the client has may be released,
	// so that others need not wait for it.
	ending bool
}

// at returns the place of another file of p's volume.
func (p place) at(h volume.Handle) place {
	return place{set: true, vol: p.vol, export: p.export, guest: p.guest, h: h}
}

// readOnly reports whether nobody may change what is there.
func (p place) readOnly() bool { return p.pseudo || p.export.ReadOnly || p.h.Snap != 0 }

func (p place) key() state.FileKey {
	if p.pseudo {
		return state.FileKey{Handle: volume.Root} // not the zero key, which means any file
	}
	return state.FileKey{Volume: p.export.ID, Handle: p.h}
}

// maxTag bounds a COMPOUND's tag, which the reply repeats.
const maxTag = 1024

// fingerprinted is how many bytes of a request its fingerprint covers.
const fingerprinted = 512

// compound executes a COMPOUND, RFC 8881 section 16.2.
func (c *conn) compound(xid uint32, caller volume.Caller, d *xdr.Decoder, r *reply, size int, later bool) (out outcome) {
	k := &call{s: c.s, conn: c, ctx: c.s.ctx, sent: caller, in: d, out: r, size: size, later: later, limit: maxReply}
	defer func() {
		if v := recover(); v != nil { // outside an operation: some of them may have been executed
			c.panicked("nfs request panicked", v)
			k.drop = true
			out = k.dropped()
		}
	}()
	tag := d.Opaque(maxTag)
	k.minor = d.Uint32()
	k.count = d.Uint32()
	if d.Err() != nil {
		r.AcceptedHeader(xid, xdr.GARBAGE_ARGS)
		return answered
	}
	r.AcceptedHeader(xid, xdr.SUCCESS)
	k.base = r.Len()
	statusAt := r.Mark()
	r.Uint32(0)
	r.Opaque(tag)
	countAt := r.Mark()
	r.Uint32(0)

	var st xdr.Status
	var done uint32
	switch {
	case k.minor != 1 && k.minor != 2:
		st = xdr.NFS4ERR_MINOR_VERS_MISMATCH
	case !utf8.Valid(tag):
		st = xdr.NFS4ERR_INVAL
	default:
		c.s.begin(k)
		st, done = k.traced()
	}
	if k.drop {
		return k.dropped()
	}
	k.end()
	if k.deny {
		// EXCHANGE_ID has no error for it. Linux takes this one for EACCES, and so does a mount.
		r.Reset()
		r.DeniedHeader(xid, xdr.AUTH_ERROR, xdr.AUTH_TOOWEAK, 0)
		return answered
	}
	if k.repeat != nil {
		c.s.repeats.Add(1)
		r.Reset()
		r.AcceptedHeader(xid, xdr.SUCCESS)
		r.Raw(k.repeat)
		return answered
	}
	r.PatchUint32(statusAt, uint32(st))
	r.PatchUint32(countAt, done)
	if k.use != nil {
		r.PatchUint32(k.flags, c.s.table.StatusFlags(k.client))
		kept, use := k.kept(), k.use
		k.use = nil
		use.Answer(kept)
	}
	return answered
}

// dropped ends the call without an answer.
func (k *call) dropped() outcome {
	k.end()
	if use := k.use; use != nil {
		k.use = nil
		use.Abandon()
	}
	k.s.dropped.Add(1)
	return closeConnection
}

// end ends what lasts as long as the operations. It may be called more than once.
func (k *call) end() {
	k.s.end(k)
	k.leave()
}

// smallReply is the size up to which a slot keeps a reply although the client did not
// ask for that (sa_cachethis).
const smallReply = 1 << 10

// kept returns the reply that the slot keeps for repeats, without the RPC header, or
// nil.
func (k *call) kept() []byte {
	n := k.out.Len() - k.base
	if !k.cache && n > smallReply {
		return nil
	}
	b := make([]byte, 0, n)
	skip := k.base
	for _, p := range k.out.Buffers() {
		drop := min(skip, len(p))
		skip -= drop
		b = append(b, p[drop:]...)
	}
	return b
}

// run executes the operations until one fails. It returns the status of the last one
// and the number of results.
func (k *call) run() (st xdr.Status, done uint32) {
	for k.index = 0; k.index < k.count; k.index++ {
		op := xdr.Op(k.in.Uint32())
		if k.in.Err() != nil {
			return xdr.NFS4ERR_BADXDR, done
		}
		st = k.observed(op)
		if k.drop || k.repeat != nil {
			return st, done
		}
		done++
		k.s.operations.Add(1)
		if st != xdr.NFS4_OK {
			k.s.errors.Add(1)
			return st, done
		}
	}
	return xdr.NFS4_OK, done
}

// next returns the operation after the present one, whose arguments must be decoded,
// or 0 if there is none.
func (k *call) next() xdr.Op {
	if rest := k.in.Rest(); k.index+1 < k.count && len(rest) >= 4 {
		return xdr.Op(binary.BigEndian.Uint32(rest))
	}
	return 0
}

// step executes one operation and appends its result.
func (k *call) step(op xdr.Op) xdr.Status {
	e := entry(op, k.minor)
	if e.illegal {
		op = xdr.OP_ILLEGAL
	}
	start := k.out.Mark()
	before := k.out.Len()
	k.out.Uint32(uint32(op))
	statusAt := k.out.Mark()
	k.out.Uint32(0)
	body := k.out.Mark()

	st, expelled := k.position(op), k.expelled()
	switch {
	case st != xdr.NFS4_OK:
	case k.later && op != xdr.OP_SEQUENCE:
		st = xdr.NFS4ERR_DELAY
	case e.illegal:
		st = xdr.NFS4ERR_OP_ILLEGAL
	case e.run == nil:
		st = xdr.NFS4ERR_NOTSUPP
	case expelled != nil:
		st = k.status(expelled)
	case k.cur.ending && !ends(op):
		st = xdr.NFS4ERR_ACCESS
	case e.changes && before-k.base+smallResult > k.limit:
		st = k.tooBig() // before anything is changed
	default:
		run := k.guarded
		if sessionless(op) {
			run = k.alone
		}
		st = run(op, e.run)
		if k.in.Err() != nil {
			st = xdr.NFS4ERR_BADXDR
		}
	}
	if k.drop || k.repeat != nil {
		return st
	}
	if st != xdr.NFS4_OK && st != xdr.NFS4ERR_DENIED {
		k.out.Truncate(body)
		if op == xdr.OP_SETATTR {
			k.out.Bitmap(xdr.Bitmap{}) // its result always has a body
		}
	}
	if k.out.Len()-k.base > k.limit && !e.changes {
		k.out.Truncate(start)
		k.out.Uint32(uint32(op))
		k.out.Uint32(0)
		st = k.tooBig()
	}
	k.out.PatchUint32(statusAt, uint32(st))
	return st
}

// ends reports whether an operation releases what the client has, or goes to another file.
func ends(op xdr.Op) bool {
	switch op {
	case xdr.OP_CLOSE, xdr.OP_LOCKU, xdr.OP_PUTFH, xdr.OP_PUTROOTFH, xdr.OP_RESTOREFH:
		return true
	}
	return false
}

// guarded runs an operation. If it panics, only this operation fails: the process serves other
// clients and volumes.
func (k *call) guarded(op xdr.Op, run func(*call) xdr.Status) (st xdr.Status) {
	defer func() {
		if v := recover(); v != nil {
			k.panicked(op, v)
			st = xdr.NFS4ERR_SERVERFAULT
		}
	}()
	return run(k)
}

// panicked counts a panic, and logs the stack of the function that deferred the caller.
func (k *call) panicked(op xdr.Op, v any) {
	k.conn.panicked("nfs operation panicked", v, "op", uint32(op))
}

// smallResult bounds the result of an operation that changes something, in bytes.
const smallResult = 128

func (k *call) tooBig() xdr.Status {
	if k.cache && k.cachedLimit < k.uncached {
		return xdr.NFS4ERR_REP_TOO_BIG_TO_CACHE
	}
	return xdr.NFS4ERR_REP_TOO_BIG
}

// position says whether op may be at its place in the COMPOUND (RFC 8881 section 2.10.5
// and the operations' own sections).
func (k *call) position(op xdr.Op) xdr.Status {
	switch {
	case op == xdr.OP_SEQUENCE && k.index > 0:
		return xdr.NFS4ERR_SEQUENCE_POS
	case op == xdr.OP_SEQUENCE, op == xdr.OP_ILLEGAL && k.index == 0:
		return xdr.NFS4_OK
	case k.index == 0 && sessionless(op) && k.count > 1:
		return xdr.NFS4ERR_NOT_ONLY_OP
	case k.index == 0 && !sessionless(op):
		return xdr.NFS4ERR_OP_NOT_IN_SESSION
	case k.index > 0 && op == xdr.OP_BIND_CONN_TO_SESSION:
		return xdr.NFS4ERR_NOT_ONLY_OP
	}
	return xdr.NFS4_OK
}

func sessionless(op xdr.Op) bool {
	switch op {
	case xdr.OP_EXCHANGE_ID, xdr.OP_CREATE_SESSION, xdr.OP_DESTROY_SESSION,
		xdr.OP_BIND_CONN_TO_SESSION, xdr.OP_DESTROY_CLIENTID:
		return true
	}
	return false
}

// fingerprint differs between different requests that wrongly have the same sequence
// number (RFC 8881 section 2.10.6.1.3.1). It covers the caller and the operations after
// SEQUENCE.
func (k *call) fingerprint() uint64 {
	var h maphash.Hash
	h.SetSeed(k.s.seed)
	rest := k.in.Rest()
	maphash.WriteComparable(&h, k.sent.UID)
	maphash.WriteComparable(&h, k.size-k.in.Offset())
	_, _ = h.Write(rest[:min(len(rest), fingerprinted)]) // never fails
	return h.Sum64()
}

// caller is who asks, to the current file's volume.
func (k *call) caller() volume.Caller { return k.cur.export.IDs.Caller(k.sent) }

// read returns the volume.Request of an operation that changes nothing.
func (k *call) read() volume.Request {
	r := volume.Request{Caller: k.caller(), Revoked: k.revoked()}
	if !k.changing {
		r.Yield = k.yield
	}
	return r
}

// change returns the volume.Request of the operation's change. part numbers the changes
// of an operation that makes several (nfs-2).
func (k *call) change(part uint32) volume.Request {
	r := k.read()
	r.ID = volume.OpID{Slot: k.slot, Seq: k.use.Seq, Index: k.index | part<<16}
	k.changing = true
	return r
}

// status returns the answer to an error of a volume. If the outcome is not known, there
// is no answer, and it makes the server close the connection (nfs-2).
func (k *call) status(err error) xdr.Status {
	st, known := statusOf(err)
	switch {
	case known:
	case errors.Is(err, volume.ErrUnknown), k.s.ctx.Err() != nil && errors.Is(err, context.Canceled):
		k.drop = true
	default:
		k.s.cfg.Log.Error("nfs operation failed", "client", k.conn.addr, "err", err)
	}
	if st == xdr.NFS4ERR_IO {
		k.s.cfg.Log.Error("nfs operation failed", "client", k.conn.addr, "volume", k.cur.export.ID, "err", err)
	}
	return st
}

// principal names the sender of the request.
func (k *call) principal() string { return "sys:" + strconv.FormatUint(uint64(k.sent.UID), 10) }
