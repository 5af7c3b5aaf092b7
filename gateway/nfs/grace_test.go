// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume/memvol"
)

func reclaimOp(access, deny int) arg {
	return op(xdr.OP_OPEN, 0, access, deny, uint64(0), "o", xdr.OPEN4_NOCREATE, xdr.CLAIM_PREVIOUS, xdr.OPEN_DELEGATE_NONE)
}

func lockStateid(a *answer) xdr.Stateid {
	a.t.Helper()
	a.ok(xdr.OP_LOCK)
	return a.Stateid()
}

// resession does what Linux does when it must reclaim: it confirms its client id and
// makes a further session.
func (h *host) resession() {
	h.t.Helper()
	id, seq, flags := h.exchangeID(0, "host "+h.addr, 1)
	if id != h.client || flags&xdr.EXCHGID4_FLAG_CONFIRMED_R == 0 {
		h.t.Fatalf("client id %x, flags %#x", id, flags)
	}
	h.session = h.createSession(0, id, seq, testChannel)
	h.seq = [maxSlots]uint32{}
}

func TestReclaim(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	idle := r.host("10.0.0.2")
	fh, id := h.open("f", 3, 0)
	lock := lockStateid(h.call(op(xdr.OP_PUTFH, fh), lockOp(xdr.WRITE_LT, false, 0, 10, id, "l")).ok(xdr.OP_PUTFH))
	r.restart()
	h.reconnect()
	idle.reconnect()
	if !r.srv.InGrace() {
		t.Fatal("no grace after a restart with state")
	}

	// Stateids from before the restart have to wait. They are not reported as lost.
	write := func(id xdr.Stateid) arg { return op(xdr.OP_WRITE, id, uint64(0), xdr.FILE_SYNC4, []byte("x")) }
	h.call(op(xdr.OP_PUTFH, fh), write(lock)).ok(xdr.OP_PUTFH).want(xdr.OP_WRITE, xdr.NFS4ERR_DELAY)
	if h.flags != xdr.SEQ4_STATUS_RESTART_RECLAIM_NEEDED {
		t.Fatalf("status flags %#x", h.flags)
	}
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_CLOSE, 0, id)).ok(xdr.OP_PUTFH).want(xdr.OP_CLOSE, xdr.NFS4ERR_DELAY)
	h.in(openOp("o2", "f", 1, 0, noCreate...)).want(xdr.OP_OPEN, xdr.NFS4ERR_GRACE)
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_READ, xdr.StateidAnonymous, uint64(0), 1)).ok(xdr.OP_PUTFH).want(xdr.OP_READ, xdr.NFS4ERR_GRACE)
	// A client that had no state has nothing to reclaim, and waits as well.
	idle.in(openOp("o", "f", 1, 0, noCreate...)).want(xdr.OP_OPEN, xdr.NFS4ERR_GRACE)
	if idle.flags != 0 {
		t.Fatalf("status flags %#x", idle.flags)
	}
	idle.call(op(xdr.OP_PUTFH, fh), reclaimOp(1, 0)).ok(xdr.OP_PUTFH).want(xdr.OP_OPEN, xdr.NFS4ERR_NO_GRACE)

	h.resession()
	id = h.call(op(xdr.OP_PUTFH, fh), reclaimOp(3, 0)).ok(xdr.OP_PUTFH).opened()
	// Only the lock that others had meanwhile is lost. After NFS4ERR_NO_GRACE, Linux would
	// treat everything as lost that it has not reclaimed yet.
	r.vol.SetGrace(memvol.GraceOver)
	h.call(op(xdr.OP_PUTFH, fh), lockOp(xdr.WRITE_LT, true, 0, 10, id, "l")).ok(xdr.OP_PUTFH).want(xdr.OP_LOCK, xdr.NFS4ERR_RECLAIM_CONFLICT)
	r.vol.SetGrace(memvol.GraceNone)
	a := h.call(op(xdr.OP_PUTFH, fh), lockOp(xdr.WRITE_LT, true, 0, 10, id, "l"))
	lock = lockStateid(a.ok(xdr.OP_PUTFH))
	h.call(op(xdr.OP_PUTFH, fh), write(lock)).ok(xdr.OP_PUTFH).ok(xdr.OP_WRITE)
	h.call(op(xdr.OP_RECLAIM_COMPLETE, false)).ok(xdr.OP_RECLAIM_COMPLETE)
	if r.srv.InGrace() {
		t.Fatal("grace goes on although everybody has reclaimed")
	}
	h.call(op(xdr.OP_RECLAIM_COMPLETE, false)).want(xdr.OP_RECLAIM_COMPLETE, xdr.NFS4ERR_COMPLETE_ALREADY)
	if h.flags != 0 {
		t.Fatalf("status flags %#x", h.flags)
	}
	// A second round of reclaims, because of a late reply, succeeds (nfs-8).
	id = h.call(op(xdr.OP_PUTFH, fh), reclaimOp(3, 0)).ok(xdr.OP_PUTFH).opened()
	h.call(op(xdr.OP_PUTFH, fh), reclaimOp(3, 3)).ok(xdr.OP_PUTFH).want(xdr.OP_OPEN, xdr.NFS4ERR_NO_GRACE)
	// The volume may still wait for another gateway. The answer to a new lock is then
	// NFS4ERR_GRACE, and to a reclaim NFS4ERR_DELAY.
	again := func() *answer {
		return h.call(op(xdr.OP_PUTFH, fh), lockOp(xdr.WRITE_LT, true, 0, 10, id, "l")).ok(xdr.OP_PUTFH)
	}
	r.vol.SetGrace(memvol.GraceOn)
	again().want(xdr.OP_LOCK, xdr.NFS4ERR_DELAY)
	h.call(op(xdr.OP_PUTFH, fh), lockOp(xdr.WRITE_LT, false, 20, 10, id, "l")).ok(xdr.OP_PUTFH).want(xdr.OP_LOCK, xdr.NFS4ERR_GRACE)
	r.vol.SetGrace(memvol.GraceNone)
	again().ok(xdr.OP_LOCK)
	// The lock excludes other clients.
	_, other := idle.open("f", 3, 0)
	idle.call(op(xdr.OP_PUTFH, fh), lockOp(xdr.READ_LT, false, 9, 1, other, "l")).ok(xdr.OP_PUTFH).want(xdr.OP_LOCK, xdr.NFS4ERR_DENIED)
}

func TestRepeatedReclaimCompleteOfOldHasNoEffect(t *testing.T) {
	r := newRig(t)
	h := r.newHost("10.0.0.1", testChannel)
	done := op(xdr.OP_RECLAIM_COMPLETE, false)
	h.on(4, 1, true, done).ok(xdr.OP_RECLAIM_COMPLETE)
	fh, _ := h.open("f", 3, 0)
	r.restart()
	h.reconnect()
	h.on(4, 1, true, done).ok(xdr.OP_RECLAIM_COMPLETE) // the restart lost its answer
	if h.flags != xdr.SEQ4_STATUS_RESTART_RECLAIM_NEEDED || !r.srv.InGrace() {
		t.Fatalf("status flags %#x, grace %v", h.flags, r.srv.InGrace())
	}
	h.call(op(xdr.OP_PUTFH, fh), reclaimOp(3, 0)).ok(xdr.OP_PUTFH).opened()
	h.on(4, 2, true, done).ok(xdr.OP_RECLAIM_COMPLETE)
	if r.srv.InGrace() {
		t.Fatal("grace goes on")
	}
}

func TestGraceEndsByTime(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, _ := h.open("f", 3, 0)
	r.restart()
	r.clock.advance(11 * time.Second)
	r.srv.table.Sweep()
	if r.srv.InGrace() {
		t.Fatal("grace goes on for longer than a lease")
	}
	h.reconnect()
	h.call(op(xdr.OP_PUTFH, fh), reclaimOp(3, 0)).ok(xdr.OP_PUTFH).want(xdr.OP_OPEN, xdr.NFS4ERR_NO_GRACE)
	// The loss of its state is durable: after the next restart, no client may reclaim.
	r.restart()
	h.reconnect()
	if r.srv.InGrace() {
		t.Fatal("a client that lost its state may reclaim it")
	}
	h.call(op(xdr.OP_PUTFH, fh), reclaimOp(3, 0)).ok(xdr.OP_PUTFH).want(xdr.OP_OPEN, xdr.NFS4ERR_NO_GRACE)
}

func TestRestartInGrace(t *testing.T) {
	r := newRig(t)
	h, late := r.host("10.0.0.1"), r.host("10.0.0.2")
	fh, _ := h.open("f", 3, 0)
	late.open("g", 3, 0)
	r.restart()
	h.reconnect()
	h.resession()
	h.call(op(xdr.OP_PUTFH, fh), reclaimOp(3, 0)).ok(xdr.OP_PUTFH).opened()
	h.call(op(xdr.OP_RECLAIM_COMPLETE, false)).ok(xdr.OP_RECLAIM_COMPLETE)
	if !r.srv.InGrace() {
		t.Fatal("grace ended before the other client reclaimed")
	}
	r.restart()
	h.reconnect()
	h.resession()
	h.call(op(xdr.OP_PUTFH, fh), reclaimOp(3, 0)).ok(xdr.OP_PUTFH).opened()
}

func TestLeaseExpires(t *testing.T) {
	r := newRig(t)
	silent, h := r.host("10.0.0.1"), r.host("10.0.0.2")
	fh, id := silent.open("f", 3, 0)
	lockStateid(silent.call(op(xdr.OP_PUTFH, fh), lockOp(xdr.WRITE_LT, false, 0, 10, id, "l")).ok(xdr.OP_PUTFH))
	_, other := h.open("f", 3, 0)
	want := func(st xdr.Status) {
		t.Helper()
		h.call(op(xdr.OP_PUTFH, fh), lockOp(xdr.WRITE_LT, false, 0, 1, other, "l")).ok(xdr.OP_PUTFH).want(xdr.OP_LOCK, st)
	}
	want(xdr.NFS4ERR_DENIED)
	r.clock.advance(6 * time.Second)
	h.call()
	r.clock.advance(6 * time.Second)
	r.srv.table.Sweep()
	// Locks are released in the background.
	for deadline := time.Now().Add(hang); r.count("unlock") == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the lock of an expired client is not given up")
		}
	}
	want(xdr.NFS4_OK)
	silent.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_READ, id, uint64(0), 1)).ok(xdr.OP_PUTFH).want(xdr.OP_READ, xdr.NFS4ERR_EXPIRED)
	if silent.flags != xdr.SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED {
		t.Fatalf("status flags %#x", silent.flags)
	}
	a := silent.call(op(xdr.OP_TEST_STATEID, 1, id))
	a.ok(xdr.OP_TEST_STATEID)
	if n, st := a.Uint32(), xdr.Status(a.Uint32()); n != 1 || st != xdr.NFS4ERR_EXPIRED {
		t.Fatal(n, st)
	}
	// Linux replaces its client id twice, and goes on without RECLAIM_COMPLETE.
	for verf := range byte(2) {
		id, seq, _ := silent.exchangeID(0, "host 10.0.0.1", 100+verf)
		silent.client, silent.session = id, silent.createSession(0, id, seq, testChannel)
		silent.seq = [maxSlots]uint32{}
	}
	silent.open("f", 3, 0)
	if silent.flags != 0 {
		t.Fatalf("status flags %#x", silent.flags)
	}
	silent.call(op(xdr.OP_RECLAIM_COMPLETE, false)).ok(xdr.OP_RECLAIM_COMPLETE)
	for _, c := range r.srv.Clients() {
		if c.ID == silent.client && (c.Opens != 1 || c.Locks != 0) {
			t.Fatalf("%+v", c)
		}
	}
}

func TestExpiryIsDurable(t *testing.T) {
	r := newRig(t)
	silent := r.host("10.0.0.1")
	fh, _ := silent.open("f", 3, 0)
	r.clock.advance(11 * time.Second)
	r.srv.table.Sweep()
	// Another client may have the lock now, so a restart must not let it be reclaimed.
	r.restart()
	silent.reconnect()
	silent.call(op(xdr.OP_PUTFH, fh), reclaimOp(3, 0)).ok(xdr.OP_PUTFH).want(xdr.OP_OPEN, xdr.NFS4ERR_NO_GRACE)
}

func TestIdleClientIsNotWaitedFor(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_CLOSE, 0, id)).ok(xdr.OP_PUTFH).ok(xdr.OP_CLOSE)
	r.srv.table.Sweep()
	for range 3 {
		r.clock.advance(6 * time.Second)
		h.call()
		r.srv.table.Sweep()
	}
	r.restart()
	if r.srv.InGrace() {
		t.Fatal("grace for a client that closed everything long ago")
	}
	h.reconnect()
	h.open("f", 3, 0)
	r.restart()
	if !r.srv.InGrace() {
		t.Fatal("no grace for a client that opened a file after being idle")
	}
}
