// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// host is a client with one session, and its connection.
type host struct {
	*peer
	r       *rig
	addr    string
	uid     uint32
	client  uint64
	session xdr.SessionID
	seq     [maxSlots]uint32
	flags   uint32 // of the last SEQUENCE
}

var testChannel = xdr.ChannelAttrs{MaxRequestSize: 1 << 21, MaxResponseSize: 1 << 21, MaxResponseSizeCached: 8192, MaxOperations: 16, MaxRequests: 64}

func (p *peer) exchangeID(uid uint32, owner string, verf byte) (client uint64, seq, flags uint32) {
	p.t.Helper()
	a := p.compound(uid, op(xdr.OP_EXCHANGE_ID, [8]byte{verf}, owner, 0, xdr.SP4_NONE, 0))
	a.ok(xdr.OP_EXCHANGE_ID)
	return a.Uint64(), a.Uint32(), a.Uint32()
}

func createSessionOp(client uint64, seq uint32, fore xdr.ChannelAttrs) arg {
	return op(xdr.OP_CREATE_SESSION, client, seq, xdr.CREATE_SESSION4_FLAG_PERSIST, fore, testChannel, 0, 0)
}

func (p *peer) createSession(uid uint32, client uint64, seq uint32, fore xdr.ChannelAttrs) xdr.SessionID {
	p.t.Helper()
	a := p.compound(uid, createSessionOp(client, seq, fore))
	a.ok(xdr.OP_CREATE_SESSION)
	id := a.SessionID()
	a.Uint32()
	if flags := a.Uint32(); flags != xdr.CREATE_SESSION4_FLAG_PERSIST {
		p.t.Fatalf("session has flags %#x, want a persistent one", flags)
	}
	return id
}

// host returns a client that has sent RECLAIM_COMPLETE.
func (r *rig) host(addr string) *host {
	r.t.Helper()
	h := r.newHost(addr, testChannel)
	h.call(op(xdr.OP_RECLAIM_COMPLETE, false)).ok(xdr.OP_RECLAIM_COMPLETE)
	return h
}

func (r *rig) newHost(addr string, fore xdr.ChannelAttrs) *host {
	r.t.Helper()
	h := &host{peer: r.connect(addr), r: r, addr: addr}
	id, seq, _ := h.exchangeID(0, "host "+addr, 1)
	h.client = id
	h.session = h.createSession(0, id, seq, fore)
	return h
}

// reconnect begins a new connection, after a restart or a drop.
func (h *host) reconnect() {
	_ = h.nc.Close()
	h.peer = h.r.connect(h.addr)
}

func (h *host) body(slot, seq uint32, cache bool, ops ...arg) []byte {
	return compoundBody(2, append([]arg{op(xdr.OP_SEQUENCE, h.session, seq, slot, uint32(0), cache)}, ops...)...)
}

// on sends a request on a slot, with a sequence number.
func (h *host) on(slot, seq uint32, cache bool, ops ...arg) *answer {
	h.t.Helper()
	h.send(nfsCall(h.uid), h.body(slot, seq, cache, ops...))
	return h.finish()
}

// finish reads an answer and its SEQUENCE.
func (h *host) finish() *answer {
	h.t.Helper()
	b := h.receive()
	if b == nil {
		h.t.Fatal("connection closed without an answer")
	}
	a := h.answer(b)
	a.ok(xdr.OP_SEQUENCE)
	a.SessionID()
	for range 4 {
		a.Uint32()
	}
	h.flags = a.Uint32()
	return a
}

// call sends a request on slot 0.
func (h *host) call(ops ...arg) *answer {
	h.t.Helper()
	h.seq[0]++
	return h.on(0, h.seq[0], false, ops...)
}

// in prefixes operations with those that go to the volume's root, and reads their results.
func (h *host) in(ops ...arg) *answer {
	h.t.Helper()
	a := h.call(append([]arg{op(xdr.OP_PUTROOTFH), op(xdr.OP_LOOKUP, "vol")}, ops...)...)
	a.ok(xdr.OP_PUTROOTFH).ok(xdr.OP_LOOKUP)
	return a
}

// toVol returns the operations that in sends, for requests that are repeated.
func toVol(ops ...arg) []arg {
	return append([]arg{op(xdr.OP_PUTFH, encodeHandle(place{export: Export{ID: volID}, h: volume.Root}))}, ops...)
}

func openOp(owner, name string, access, deny int, how ...any) arg {
	args := append([]any{0, access, deny, uint64(0), owner}, how...)
	return op(xdr.OP_OPEN, append(args, xdr.CLAIM_NULL, name)...)
}

var (
	noCreate  = []any{xdr.OPEN4_NOCREATE}
	unchecked = []any{xdr.OPEN4_CREATE, xdr.UNCHECKED4, xdr.NewBitmap(xdr.FATTR4_MODE), []byte{0, 0, 1, 0o200}}
	guarded   = []any{xdr.OPEN4_CREATE, xdr.GUARDED4, xdr.NewBitmap(xdr.FATTR4_MODE), []byte{0, 0, 1, 0o200}}
)

// opened reads the result of an OPEN that succeeded.
func (a *answer) opened() xdr.Stateid {
	a.t.Helper()
	a.ok(xdr.OP_OPEN)
	id := a.Stateid()
	a.ChangeInfo()
	a.Uint32()
	a.Bitmap()
	if d := a.Uint32(); d != xdr.OPEN_DELEGATE_NONE {
		a.t.Fatalf("delegation type %d", d)
	}
	return id
}

// open creates or opens a file in the volume's root.
func (h *host) open(name string, access, deny int) (fh []byte, id xdr.Stateid) {
	h.t.Helper()
	a := h.in(openOp("o", name, access, deny, unchecked...), op(xdr.OP_GETFH))
	id = a.opened()
	a.ok(xdr.OP_GETFH)
	return append([]byte(nil), a.Opaque(xdr.NFS4_FHSIZE)...), id
}

func lockOp(kind int, reclaim bool, off, n uint64, open xdr.Stateid, owner string) arg {
	return op(xdr.OP_LOCK, kind, reclaim, off, n, true, 0, open, 0, uint64(0), owner)
}

func TestExchangeID(t *testing.T) {
	r := newRig(t)
	p := r.connect("10.0.0.1")
	a, _, flags := p.exchangeID(0, "x", 1)
	if flags&xdr.EXCHGID4_FLAG_CONFIRMED_R != 0 {
		t.Fatal("a new client is confirmed")
	}
	b, seq, _ := p.exchangeID(0, "x", 1)
	if a == b {
		t.Fatal("an unconfirmed record was kept")
	}
	p.compound(0, createSessionOp(a, seq, testChannel)).want(xdr.OP_CREATE_SESSION, xdr.NFS4ERR_STALE_CLIENTID)
	first := p.createSession(0, b, seq, testChannel)
	if again := p.createSession(0, b, seq, testChannel); again != first {
		t.Fatal("a repeated CREATE_SESSION made another session")
	}
	p.compound(0, createSessionOp(b, seq+5, testChannel)).want(xdr.OP_CREATE_SESSION, xdr.NFS4ERR_SEQ_MISORDERED)
	if c, s, f := p.exchangeID(0, "x", 1); c != b || s != seq+1 || f&xdr.EXCHGID4_FLAG_CONFIRMED_R == 0 {
		t.Fatalf("got %x %d %#x", c, s, f)
	}
	p.compound(9, op(xdr.OP_EXCHANGE_ID, [8]byte{1}, "x", 0, 0, 0)).want(xdr.OP_EXCHANGE_ID, xdr.NFS4ERR_CLID_INUSE)
	// The client restarts: its old session ends when the new incarnation is confirmed.
	c, seq, _ := p.exchangeID(0, "x", 2)
	p.createSession(0, c, seq, testChannel)
	p.compound(0, op(xdr.OP_SEQUENCE, first, 1, 0, 0, false)).want(xdr.OP_SEQUENCE, xdr.NFS4ERR_BADSESSION)
}

func TestSessionIsDurableBeforeItIsGranted(t *testing.T) {
	r := newRig(t)
	p := r.connect("10.0.0.1")
	id, seq, _ := p.exchangeID(0, "x", 1)
	r.store.Fail = volume.ErrIO
	p.compound(0, createSessionOp(id, seq, testChannel)).want(xdr.OP_CREATE_SESSION, xdr.NFS4ERR_DELAY)
	r.store.Fail = nil
	p.createSession(0, id, seq, testChannel)
}

func TestSlotRules(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	seq := func(n, slot uint32) arg { return op(xdr.OP_SEQUENCE, h.session, n, slot, uint32(0), false) }
	cases := []struct {
		name string
		ops  []arg
		want xdr.Status
	}{
		{"skipped", []arg{seq(3, 1)}, xdr.NFS4ERR_SEQ_MISORDERED},
		{"zero on a fresh slot", []arg{seq(0, 1)}, xdr.NFS4ERR_SEQ_MISORDERED},
		{"no such slot", []arg{seq(1, 64)}, xdr.NFS4ERR_BADSLOT},
		{"high slot", []arg{op(xdr.OP_SEQUENCE, h.session, 1, 1, 64, false)}, xdr.NFS4ERR_BAD_HIGH_SLOT},
		{"other session", []arg{op(xdr.OP_SEQUENCE, xdr.SessionID{1}, 1, 1, 0, false)}, xdr.NFS4ERR_BADSESSION},
		{"too many operations", append([]arg{seq(1, 1)}, make([]arg, 16)...), xdr.NFS4ERR_TOO_MANY_OPS},
		{"no session", []arg{op(xdr.OP_PUTROOTFH)}, xdr.NFS4ERR_OP_NOT_IN_SESSION},
		{"not alone", []arg{op(xdr.OP_DESTROY_CLIENTID, uint64(1)), op(xdr.OP_PUTROOTFH)}, xdr.NFS4ERR_NOT_ONLY_OP},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for i, o := range c.ops {
				if o == nil {
					c.ops[i] = op(xdr.OP_PUTROOTFH)
				}
			}
			if a := h.compound(0, c.ops...); a.status != c.want || a.count != 1 {
				t.Fatalf("%v after %d results, want %v after 1", a.status, a.count, c.want)
			}
		})
	}
	h.on(1, 1, false) // none of these moved the slot
	h.call(op(xdr.OP_PUTROOTFH), op(xdr.OP_SEQUENCE, h.session, 1, 1, 0, false)).ok(xdr.OP_PUTROOTFH).want(xdr.OP_SEQUENCE, xdr.NFS4ERR_SEQUENCE_POS)
}

func TestLimits(t *testing.T) {
	r := newRig(t)
	small := testChannel
	small.MaxRequestSize, small.MaxResponseSize, small.MaxResponseSizeCached = 600, 600, 400
	h := r.newHost("10.0.0.1", small)
	h.call(op(xdr.OP_RECLAIM_COMPLETE, false))
	h.compound(0, op(xdr.OP_SEQUENCE, h.session, 5, 0, 0, false), op(xdr.OP_LOOKUP, string(make([]byte, 600)))).
		want(xdr.OP_SEQUENCE, xdr.NFS4ERR_REQ_TOO_BIG)
	fh, id := h.open("f", 3, 0)
	write := op(xdr.OP_WRITE, id, uint64(0), xdr.FILE_SYNC4, make([]byte, 400))
	h.call(op(xdr.OP_PUTFH, fh), write).ok(xdr.OP_PUTFH).ok(xdr.OP_WRITE)
	h.seq[0]++
	a := h.on(0, h.seq[0], true, op(xdr.OP_PUTFH, fh), op(xdr.OP_READ, id, uint64(0), 400))
	a.ok(xdr.OP_PUTFH).want(xdr.OP_READ, xdr.NFS4ERR_REP_TOO_BIG_TO_CACHE)
	all := op(xdr.OP_GETATTR, readableAttrs)
	a = h.call(op(xdr.OP_PUTFH, fh), all, all, all)
	if a.status != xdr.NFS4ERR_REP_TOO_BIG {
		t.Fatal(a.status)
	}
}

func TestDestroy(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	_, id := h.open("f", 3, 0)
	_ = id
	h.compound(0, op(xdr.OP_DESTROY_CLIENTID, h.client)).want(xdr.OP_DESTROY_CLIENTID, xdr.NFS4ERR_CLIENTID_BUSY)
	h.compound(0, op(xdr.OP_DESTROY_SESSION, h.session)).ok(xdr.OP_DESTROY_SESSION)
	h.compound(0, op(xdr.OP_DESTROY_CLIENTID, h.client)).want(xdr.OP_DESTROY_CLIENTID, xdr.NFS4ERR_CLIENTID_BUSY)
	r.clock.advance(time.Hour) // the server forgets a client after that
	r.srv.table.Sweep()
	h.compound(0, op(xdr.OP_DESTROY_CLIENTID, h.client)).want(xdr.OP_DESTROY_CLIENTID, xdr.NFS4ERR_STALE_CLIENTID)
	if n := len(r.srv.Clients()); n != 0 {
		t.Fatalf("%d clients are left", n)
	}
}
