// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// revokeRig is a host with two locks of two owners on a file.
func revokeRig(t *testing.T) (r *rig, h *host, fh []byte, open, lost, kept xdr.Stateid) {
	r = newRig(t)
	h = r.host("10.0.0.1")
	fh, open = h.open("f", 3, 0)
	put := op(xdr.OP_PUTFH, fh)
	lost = lockStateid(h.call(put, lockOp(xdr.WRITE_LT, false, 0, 10, open, "lost")).ok(xdr.OP_PUTFH))
	kept = lockStateid(h.call(put, lockOp(xdr.WRITE_LT, false, 20, 10, open, "kept")).ok(xdr.OP_PUTFH))
	return r, h, fh, open, lost, kept
}

// revoke tells the server that the volume lost the locks of owner.
func (r *rig) revoke(h *host, fh []byte, owner string) bool {
	id, handle, _ := decodeHandle(fh)
	name := (&call{s: r.srv, client: r.srv.table.Session(h.session).Client}).lockOwner(owner)
	return r.srv.RevokeLocks(id, handle, name)
}

// eventually waits for something that happens in the background.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hang); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("does not happen: ", what)
		}
	}
}

func TestRevokeLocks(t *testing.T) {
	r, h, fh, open, lost, kept := revokeRig(t)
	put := op(xdr.OP_PUTFH, fh)
	if r.revoke(h, fh, "nobody") {
		t.Fatal("what nobody holds was revoked")
	}
	if !r.revoke(h, fh, "lost") {
		t.Fatal("not revoked")
	}
	eventually(t, "what is left of the owner's locks is given up", func() bool { return locks(r) == 1 })
	if r.revoke(h, fh, "lost") {
		t.Fatal("revoked twice")
	}
	// Only uses of the stateid inform the client. A flag would make Linux treat all its
	// locks as lost.
	h.call()
	if h.flags != 0 {
		t.Fatalf("status flags %#x", h.flags)
	}
	write := func(id xdr.Stateid) xdr.Status {
		t.Helper()
		return h.call(put, op(xdr.OP_WRITE, id, uint64(0), xdr.FILE_SYNC4, []byte("x"))).ok(xdr.OP_PUTFH).result(xdr.OP_WRITE)
	}
	for i, c := range []struct{ got, want xdr.Status }{
		{write(lost), xdr.NFS4ERR_ADMIN_REVOKED}, {write(kept), xdr.NFS4_OK}, {write(open), xdr.NFS4_OK},
		{h.call(put, op(xdr.OP_LOCKU, xdr.WRITE_LT, 0, lost, uint64(0), uint64(1))).ok(xdr.OP_PUTFH).result(xdr.OP_LOCKU), xdr.NFS4ERR_ADMIN_REVOKED},
	} {
		if c.got != c.want {
			t.Errorf("case %d: %v, want %v", i, c.got, c.want)
		}
	}
	// Linux recovers so: it tests all stateids, and frees the revoked ones.
	a := h.call(op(xdr.OP_TEST_STATEID, 3, lost, kept, open)).ok(xdr.OP_TEST_STATEID)
	if n, l, k, o := a.Uint32(), xdr.Status(a.Uint32()), xdr.Status(a.Uint32()), xdr.Status(a.Uint32()); n != 3 || l != xdr.NFS4ERR_ADMIN_REVOKED || k != xdr.NFS4_OK || o != xdr.NFS4_OK {
		t.Fatal(n, l, k, o)
	}
	h.call(op(xdr.OP_FREE_STATEID, lost)).ok(xdr.OP_FREE_STATEID)
	if h.call(); h.flags != 0 {
		t.Fatalf("status flags %#x", h.flags)
	}
	if st := write(lost); st != xdr.NFS4ERR_BAD_STATEID {
		t.Fatal(st)
	}
	lockStateid(h.call(put, lockOp(xdr.WRITE_LT, false, 0, 10, open, "lost")).ok(xdr.OP_PUTFH))
	for _, c := range r.srv.Clients() {
		if c.Locks != 2 {
			t.Fatalf("%+v", c)
		}
	}
}

// TestCloseAcknowledgesRevokedLocks closes a file with revoked locks. The client then has
// no reason to free the stateids, and the server must not remember them for ever.
func TestCloseAcknowledgesRevokedLocks(t *testing.T) {
	r, h, fh, open, lost, _ := revokeRig(t)
	r.revoke(h, fh, "lost")
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_CLOSE, 0, open)).ok(xdr.OP_PUTFH).ok(xdr.OP_CLOSE)
	h.call(op(xdr.OP_FREE_STATEID, lost)).want(xdr.OP_FREE_STATEID, xdr.NFS4ERR_BAD_STATEID)
	eventually(t, "all locks are given up", func() bool { return locks(r) == 0 })
}

// TestRevokedLockIsNotGrantedAgainTooEarly checks that the release of revoked locks does
// not take a new lock of the same owner with it.
func TestRevokedLockIsNotGrantedAgainTooEarly(t *testing.T) {
	r, h, fh, open, _, _ := revokeRig(t)
	r.setBefore(func(op string, _ volume.Handle) error {
		if op == "unlock" {
			return volume.ErrDelay
		}
		return nil
	})
	r.revoke(h, fh, "lost")
	lock := func() xdr.Status {
		t.Helper()
		return h.call(op(xdr.OP_PUTFH, fh), lockOp(xdr.WRITE_LT, false, 0, 10, open, "lost")).ok(xdr.OP_PUTFH).result(xdr.OP_LOCK)
	}
	if st := lock(); st != xdr.NFS4ERR_DELAY {
		t.Fatal(st)
	}
	r.setBefore(nil)
	eventually(t, "the lock is granted", func() bool { r.clock.advance(releaseRetry); return lock() == xdr.NFS4_OK })
	r.stop()
	if locks(r) != 2 {
		t.Fatalf("%d locks are held, want 2", locks(r))
	}
	r.start()
}

// TestRevokeWhileLocking revokes an owner's locks while it asks for another one.
func TestRevokeWhileLocking(t *testing.T) {
	r, h, fh, _, lost, _ := revokeRig(t)
	entered, release := make(chan struct{}), make(chan struct{})
	r.setBefore(func(op string, _ volume.Handle) error {
		if op == "setlock" {
			entered <- struct{}{}
			<-release
		}
		return nil
	})
	put := op(xdr.OP_PUTFH, fh)
	h.seq[0]++
	h.send(nfsCall(0), h.body(0, h.seq[0], false, put, op(xdr.OP_LOCK, xdr.WRITE_LT, false, uint64(50), uint64(1), false, lost, 0)))
	<-entered
	r.revoke(h, fh, "lost")
	close(release)
	h.finish().ok(xdr.OP_PUTFH).want(xdr.OP_LOCK, xdr.NFS4ERR_ADMIN_REVOKED)
	eventually(t, "only what was not revoked is held", func() bool { return locks(r) == 1 })
}

// TestExpiredAfterRevoked checks that only an expired lease sets a status flag.
func TestExpiredAfterRevoked(t *testing.T) {
	r, h, fh, _, _, _ := revokeRig(t)
	r.revoke(h, fh, "lost")
	r.clock.advance(11 * time.Second)
	r.srv.table.Sweep()
	if h.call(); h.flags&xdr.SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED == 0 {
		t.Fatalf("status flags %#x", h.flags)
	}
}
