// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// TestSequenceThatDoesNotFit sends a tag that leaves no room for SEQUENCE's result. The
// slot must not be used, and the server must go on.
func TestSequenceThatDoesNotFit(t *testing.T) {
	small := testChannel
	small.MaxResponseSize, small.MaxResponseSizeCached = minChannel, 70
	for _, c := range []struct {
		name  string
		tag   int
		cache bool
		want  xdr.Status
	}{
		{"reply", maxTag, false, xdr.NFS4ERR_REP_TOO_BIG},
		{"cached reply", 16, true, xdr.NFS4ERR_REP_TOO_BIG_TO_CACHE},
		{"cached reply fits", 0, true, xdr.NFS4_OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			h := r.newHost("10.0.0.1", small)
			var e xdr.Encoder
			e.String(strings.Repeat("x", c.tag))
			e.Uint32(2)
			e.Uint32(1)
			op(xdr.OP_SEQUENCE, h.session, 1, 1, 0, c.cache)(&e)
			h.send(nfsCall(0), e.Bytes())
			b := h.receive()
			if b == nil {
				t.Fatal("no answer")
			}
			a := h.answer(b)
			if a.status != c.want {
				t.Fatalf("%v, want %v", a.status, c.want)
			}
			if err := a.wellFormed(); err != nil {
				t.Fatal(err)
			}
			if c.want != xdr.NFS4_OK {
				h.on(1, 1, false) // the sequence number was not used
			}
		})
	}
}

// TestReadsOfShortFiles reads an empty file many times in one request, a megabyte each.
// The reply is small, and it must not keep large buffers.
func TestReadsOfShortFiles(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.open("f", 3, 0)
	a, err := r.vol.Lookup(t.Context(), volume.Request{}, volume.Root, "f")
	if err != nil {
		t.Fatal(err)
	}
	var args xdr.Encoder
	const reads = 60
	for range reads {
		args.Stateid(xdr.StateidAnonymous)
		args.Uint64(0)
		args.Uint32(volume.MaxIO)
	}
	k := &call{s: r.srv, in: xdr.NewDecoder(args.Bytes()), out: &reply{Encoder: &xdr.Encoder{}}}
	k.cur = place{set: true, vol: r.vol, export: Export{ID: volID}, h: a.Handle}
	for range reads {
		if st := k.readFile(); st != xdr.NFS4_OK {
			t.Fatal(st)
		}
	}
	held := 0
	for _, b := range k.out.bufs {
		held += cap(b.B)
	}
	if held > 1<<20 {
		t.Fatalf("a reply of %d bytes holds %d", k.out.Len(), held)
	}
}

func TestMessageThatIsNoCall(t *testing.T) {
	r := newRig(t)
	p := r.connect("10.0.0.1")
	var e xdr.Encoder
	e.AcceptedHeader(7, xdr.SUCCESS)
	if err := xdr.WriteRecord(p.nc, &e); err != nil {
		t.Fatal(err)
	}
	if b := p.receive(); b != nil {
		t.Fatalf("a reply was answered with %x", b)
	}
}

// TestOpenByHandleChecksTheMode opens by handle, as Linux does for files that it has
// looked up before. The server must check permission to write.
func TestOpenByHandleChecksTheMode(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.uid = 5
	readonly := []any{xdr.OPEN4_CREATE, xdr.UNCHECKED4, xdr.NewBitmap(xdr.FATTR4_MODE), []byte{0, 0, 1, 0}}
	a := h.in(openOp("o", "f", 3, 0, readonly...), op(xdr.OP_GETFH))
	a.opened()
	fh := append([]byte(nil), a.ok(xdr.OP_GETFH).Opaque(xdr.NFS4_FHSIZE)...)
	put := op(xdr.OP_PUTFH, fh)
	byHandle := func(access int) xdr.Status {
		t.Helper()
		return h.call(put, op(xdr.OP_OPEN, 0, access, 0, uint64(0), "p", xdr.OPEN4_NOCREATE, xdr.CLAIM_FH)).ok(xdr.OP_PUTFH).
			result(xdr.OP_OPEN)
	}
	for access, want := range map[int]xdr.Status{1: xdr.NFS4_OK, 2: xdr.NFS4ERR_ACCESS, 3: xdr.NFS4ERR_ACCESS} {
		if st := byHandle(access); st != want {
			t.Errorf("access %d: %v, want %v", access, st, want)
		}
	}
	h.uid = 6
	if st := byHandle(1); st != xdr.NFS4ERR_ACCESS {
		t.Errorf("somebody else: %v", st)
	}
	// What was open before a restart may be reclaimed, whatever its mode says now.
	r.restart()
	h.reconnect()
	h.resession()
	h.uid = 5
	h.call(put, reclaimOp(3, 0)).ok(xdr.OP_PUTFH).opened()
}

func TestSupplementaryGroups(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	mode, gid := uint32(0o060), uint32(7)
	_, err := r.vol.Create(t.Context(), volume.Request{}, volume.Root, "f",
		volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded, Attr: volume.SetAttr{Mode: &mode, GID: &gid}})
	if err != nil {
		t.Fatal(err)
	}
	open := func(seq uint32, groups ...uint32) xdr.Status {
		t.Helper()
		var cred xdr.Encoder
		cred.AuthSys(xdr.AuthSys{Machine: "m", UID: 5, GID: 5, Groups: groups})
		call := nfsCall(0)
		call.Cred.Body = cred.Bytes()
		h.send(call, h.body(9, seq, false, toVol(openOp("o", "f", 3, 0, noCreate...))...))
		return h.finish().ok(xdr.OP_PUTFH).result(xdr.OP_OPEN)
	}
	if st := open(1, 1, 2, 3); st != xdr.NFS4ERR_ACCESS {
		t.Errorf("not in the file's group: %v", st)
	}
	if st := open(2, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 7); st != xdr.NFS4_OK {
		t.Errorf("in the file's group, as the 16th: %v", st)
	}
}

// TestStateidOfAnotherFile uses an open on the pseudo root, which is a file of its own.
func TestStateidOfAnotherFile(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	_, id := h.open("f", 3, 0)
	h.call(op(xdr.OP_PUTROOTFH), op(xdr.OP_CLOSE, 0, id)).ok(xdr.OP_PUTROOTFH).want(xdr.OP_CLOSE, xdr.NFS4ERR_BAD_STATEID)
}

// TestClientsOfOneAddressAreBounded makes up client names. They must not take more
// memory.
func TestClientsOfOneAddressAreBounded(t *testing.T) {
	r := newRig(t)
	p := r.connect("10.0.0.1")
	var last xdr.Status
	for i := range 5000 {
		last = p.compound(0, op(xdr.OP_EXCHANGE_ID, [8]byte{}, fmt.Sprint("client ", i), 0, xdr.SP4_NONE, 0)).status
		if last != xdr.NFS4_OK {
			break
		}
	}
	if last != xdr.NFS4ERR_DELAY {
		t.Fatalf("%v after %d clients", last, len(r.srv.Clients()))
	}
	r.host("10.0.0.2") // other addresses are not affected
	r.clock.advance(11 * time.Second)
	r.srv.table.Sweep()
	r.host("10.0.0.1") // those that never made a session are gone
}

// TestNobodyReplacesAClient has other hosts claim to be a host that was restarted.
func TestNobodyReplacesAClient(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	reads := func(who string) {
		t.Helper()
		if st := h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_READ, id, uint64(0), 1)).ok(xdr.OP_PUTFH).result(xdr.OP_READ); st != xdr.NFS4_OK {
			t.Errorf("after %s: %v", who, st)
		}
	}
	again := op(xdr.OP_EXCHANGE_ID, [8]byte{99}, "host 10.0.0.1", 0, xdr.SP4_NONE, 0)
	p := r.connect("10.0.0.9")
	a := p.compound(0, again).ok(xdr.OP_EXCHANGE_ID)
	if other := a.Uint64(); other == h.client {
		t.Error("a neighbour got the client's id")
	} else {
		p.createSession(0, other, a.Uint32(), testChannel)
	}
	reads("a neighbour who has the same name")
	// The id is in the answer to whoever meets the client's lock.
	p.compound(0, createSessionOp(h.client, 2, testChannel)).want(xdr.OP_CREATE_SESSION, xdr.NFS4ERR_STALE_CLIENTID)
	p.compound(0, op(xdr.OP_DESTROY_CLIENTID, h.client)).want(xdr.OP_DESTROY_CLIENTID, xdr.NFS4ERR_STALE_CLIENTID)
	h.compound(7, createSessionOp(h.client, 2, testChannel)).want(xdr.OP_CREATE_SESSION, xdr.NFS4ERR_CLID_INUSE)
	h.compound(7, again).want(xdr.OP_EXCHANGE_ID, xdr.NFS4ERR_CLID_INUSE)
	h.compound(7, op(xdr.OP_EXCHANGE_ID, [8]byte{1}, "host 10.0.0.1", int(xdr.EXCHGID4_FLAG_UPD_CONFIRMED_REC_A), xdr.SP4_NONE, 0)).
		want(xdr.OP_EXCHANGE_ID, xdr.NFS4ERR_PERM)
	reads("another user of its own host")
	// Its own host may, since it was restarted.
	c, seq, _ := r.connect("10.0.0.1").exchangeID(0, "host 10.0.0.1", 99)
	h.createSession(0, c, seq, testChannel)
	h.compound(0, op(xdr.OP_SEQUENCE, h.session, 1, 1, 0, false)).want(xdr.OP_SEQUENCE, xdr.NFS4ERR_BADSESSION)
}

// TestClientWithAnotherCertificate: who has an address, but not the certificate that the client
// there showed, replaces it only when its lease is over. With its verifier it is the same client.
func TestClientWithAnotherCertificate(t *testing.T) {
	r := newRig(t)
	r.stop()
	shows := "node"
	r.startTLS = func(_ context.Context, raw net.Conn) (net.Conn, string, error) { return raw, shows, nil }
	r.start()
	secured := func(certificate string) *peer {
		shows = certificate
		p := r.connect("10.0.0.1")
		p.send(probe(), nil)
		p.receive()
		return p
	}
	node := secured("node")
	id, seq, _ := node.exchangeID(0, "x", 1)
	session := node.createSession(0, id, seq, testChannel)
	others := map[string]*peer{"none": r.connect("10.0.0.1"), "another": secured("other")}
	for what, p := range others {
		p.compound(0, op(xdr.OP_EXCHANGE_ID, [8]byte{2}, "x", 0, xdr.SP4_NONE, 0)).want(xdr.OP_EXCHANGE_ID, xdr.NFS4ERR_CLID_INUSE)
		if got, _, _ := p.exchangeID(0, "x", 1); got != id {
			t.Errorf("certificate: %s: with the client's verifier it is another client", what)
		}
	}
	r.restart() // the record has it, too
	node = secured("node")
	p := r.connect("10.0.0.1")
	p.compound(0, op(xdr.OP_EXCHANGE_ID, [8]byte{2}, "x", 0, xdr.SP4_NONE, 0)).want(xdr.OP_EXCHANGE_ID, xdr.NFS4ERR_CLID_INUSE)
	node.compound(0, op(xdr.OP_SEQUENCE, session, 1, 0, 0, false)).ok(xdr.OP_SEQUENCE)
	r.clock.advance(11 * time.Second)
	p.compound(0, op(xdr.OP_EXCHANGE_ID, [8]byte{2}, "x", 0, xdr.SP4_NONE, 0)).ok(xdr.OP_EXCHANGE_ID)
}

// TestClientAtAnotherAddress: a host that was restarted at another address comes back at once. What
// it had at the former one lasts as long as its lease.
func TestClientAtAnotherAddress(t *testing.T) {
	r := newRig(t)
	old := r.host("10.0.0.1")
	fh, id := old.open("f", 3, 0)
	old.call(op(xdr.OP_PUTFH, fh), lockOp(xdr.WRITE_LT, false, 0, 10, id, "l")).ok(xdr.OP_PUTFH).ok(xdr.OP_LOCK)
	h := &host{peer: r.connect("10.0.0.2"), r: r, addr: "10.0.0.2"}
	var seq uint32
	h.client, seq, _ = h.exchangeID(0, "host 10.0.0.1", 2)
	h.session = h.createSession(0, h.client, seq, testChannel)
	h.call(op(xdr.OP_RECLAIM_COMPLETE, false)).ok(xdr.OP_RECLAIM_COMPLETE)
	_, id = h.open("f", 3, 0)
	lock := func() xdr.Status {
		return h.call(op(xdr.OP_PUTFH, fh), lockOp(xdr.WRITE_LT, false, 0, 10, id, "l")).ok(xdr.OP_PUTFH).result(xdr.OP_LOCK)
	}
	if st := lock(); st != xdr.NFS4ERR_DENIED {
		t.Errorf("while the lease lasts: %v", st)
	}
	r.clock.advance(6 * time.Second)
	h.call()
	r.clock.advance(6 * time.Second)
	r.srv.table.Sweep()
	eventually(t, "the lock is free", func() bool { return lock() == xdr.NFS4_OK })
}

// TestStrangersCostNothing: who is admitted to no volume is refused before anything is written or
// remembered. Who lost its admission may use what it has, and make no more.
func TestStrangersCostNothing(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.open("f", 3, 0)
	writes := r.store.Writes()
	r.refuse("10.0.0.9", true)
	p := r.connect("10.0.0.9")
	exchange := func(name string, verf byte) []byte {
		return compoundBody(2, op(xdr.OP_EXCHANGE_ID, [8]byte{verf}, name, 0, xdr.SP4_NONE, 0))
	}
	for i := range 100 {
		got, _ := p.rpc(nfsCall(0), exchange(fmt.Sprint("x", i), 0))
		if !got.Denied || got.AuthStat != xdr.AUTH_TOOWEAK {
			t.Fatalf("a stranger: %+v", got)
		}
	}
	if n := len(r.srv.Clients()); n != 1 || r.store.Writes() != writes {
		t.Errorf("%d clients, and %d writes for strangers", n, r.store.Writes()-writes)
	}
	if n := r.srv.Counters().Refused[Stranger]; n != 100 {
		t.Errorf("%d are counted", n)
	}
	if l := r.log.String(); !strings.Contains(l, "10.0.0.9") || !strings.Contains(l, "weir volume admit VOLUME") ||
		strings.Count(l, "10.0.0.9") > 5 {
		t.Errorf("log: %s", l)
	}
	r.refuse("10.0.0.1", true)
	h.call()
	if id, _, _ := h.exchangeID(0, "host 10.0.0.1", 1); id != h.client {
		t.Error("a client that was expelled is another one")
	}
	if got, _ := h.rpc(nfsCall(0), exchange("host 10.0.0.1", 2)); !got.Denied {
		t.Errorf("it begins anew: %+v", got)
	}
	if got, _ := h.rpc(nfsCall(0), compoundBody(2, createSessionOp(h.client, 2, testChannel))); !got.Denied {
		t.Errorf("it makes another session: %+v", got)
	}
	// A volume that wants another kind of connection admits nobody on this one.
	r.says(Export{Certified: true})
	p = r.connect("10.0.0.3")
	if got, _ := p.rpc(nfsCall(0), exchange("y", 1)); !got.Denied || r.srv.Counters().Refused[Certificate] != 1 {
		t.Errorf("without a certificate: %+v", got)
	}
	if r.store.Writes() != writes {
		t.Errorf("%d writes", r.store.Writes()-writes)
	}
}

// TestUnsettledClientIsNoStranger: after a restart a gateway does not know yet who is admitted.
// Clients of before must get their state back then, and not an error.
func TestUnsettledClientIsNoStranger(t *testing.T) {
	r := newRig(t)
	r.refuse("10.0.0.9", true)
	r.unsettled.Store(true)
	p := r.connect("10.0.0.9")
	got, _ := p.rpc(nfsCall(0), compoundBody(2, op(xdr.OP_EXCHANGE_ID, [8]byte{}, "x", 0, xdr.SP4_NONE, 0)))
	if got.Denied {
		t.Fatalf("%+v", got)
	}
	r.unsettled.Store(false)
	got, _ = r.connect("10.0.0.9").rpc(nfsCall(0), compoundBody(2, op(xdr.OP_EXCHANGE_ID, [8]byte{}, "y", 0, xdr.SP4_NONE, 0)))
	if !got.Denied {
		t.Fatalf("a stranger: %+v", got)
	}
}

func TestConnectionsOfOneAddressAreBounded(t *testing.T) {
	r := newRig(t)
	refused := false
	for range 1000 {
		p := r.connect("10.0.0.1")
		var e xdr.Encoder
		e.CallHeader(nullCall)
		if xdr.WriteRecord(p.nc, &e) != nil || p.receive() == nil {
			refused = true
			break
		}
	}
	if !refused {
		t.Fatal("a thousand connections of one client are served")
	}
	r.connect("10.0.0.2").rpc(nullCall, nil)
	if l := r.log.String(); !strings.Contains(l, "10.0.0.1") {
		t.Fatalf("log: %s", l)
	}
}

// TestPartOfAReply breaks the connection in the middle of a reply.
func TestPartOfAReply(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.open("f", 3, 0)
	request := h.body(3, 1, true, toVol(op(xdr.OP_REMOVE, "f"))...)
	h.send(nfsCall(0), request)
	if n, err := h.nc.Read(make([]byte, 10)); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	h.reconnect()
	h.send(nfsCall(0), request)
	if a := h.answer(h.receive()); a.status != xdr.NFS4_OK || r.count("remove") != 1 {
		t.Fatalf("%v, executed %d times", a.status, r.count("remove"))
	}
}

// TestShutdownWhileAnOperationHangs checks that Shutdown reports what still runs, and
// ends the rest.
func TestShutdownWhileAnOperationHangs(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	entered, release := make(chan struct{}), make(chan struct{})
	r.setBefore(func(op string, _ volume.Handle) error {
		if op == "remove" {
			entered <- struct{}{}
			<-release
		}
		return nil
	})
	h.send(nfsCall(0), h.body(3, 1, true, toVol(op(xdr.OP_REMOVE, "f"))...))
	<-entered
	ctx := t.Context()
	done := make(chan error)
	go func() { done <- r.srv.Shutdown(ctx) }()
	if b := h.receive(); b != nil {
		t.Fatalf("answered %x", b)
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.start()
}

// TestClientThatDoesNotRead sends a request and never reads the reply.
func TestClientThatDoesNotRead(t *testing.T) {
	r := newRig(t)
	p := r.connect("10.0.0.1") // its pipe has no room for anything
	p.send(xdr.CallHeader{XID: 7, Program: xdr.NFS4_PROGRAM, Version: xdr.NFS_V4}, nil)
	eventually(t, "the reply is being written", func() bool {
		r.srv.mu.Lock()
		defer r.srv.mu.Unlock()
		for c := range r.srv.conns {
			if c.writing.Load() != nil {
				return true
			}
		}
		return false
	})
	r.clock.advance(6 * time.Second)
	r.srv.closeStuck()
	if n := openConns(r.srv); n != 1 {
		t.Fatalf("%d connections before a lease has passed", n)
	}
	r.clock.advance(6 * time.Second)
	r.srv.closeStuck()
	eventually(t, "the connection is closed", func() bool { return openConns(r.srv) == 0 })
}

func openConns(s *Server) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// TestPauseOfTheServerIsNotSilenceOfItsClients moves the clock as if the server's
// process had been stopped for longer than a lease. What its clients sent meanwhile
// would wait to be read, so no lease may expire.
func TestPauseOfTheServerIsNotSilenceOfItsClients(t *testing.T) {
	r := newRig(t)
	h, silent := r.host("10.0.0.1"), r.host("10.0.0.2")
	h.open("f", 3, 0)
	silent.open("g", 3, 0)
	pass := func(d time.Duration) {
		t.Helper()
		eventually(t, "the server waits for its next sweep", r.clock.waited)
		r.clock.advance(d)
		eventually(t, "the server has swept", r.clock.waited)
	}
	pass(11 * time.Second)
	h.call()
	pass(1250 * time.Millisecond)
	for _, c := range r.srv.Clients() {
		if want := map[uint64]int{h.client: 1, silent.client: 0}[c.ID]; c.Opens != want {
			t.Errorf("client at %s has %d opens, want %d", c.Address, c.Opens, want)
		}
	}
}

// waited tells whether a goroutine waits for the clock.
func (c *fakeClock) waited() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers) > 0
}
