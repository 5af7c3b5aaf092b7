// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// TestLockOutlivesALateRelease closes a file whose locks the volume cannot release yet. A
// lock that the same owner gets afterwards must not be released with them.
func TestLockOutlivesALateRelease(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	put := op(xdr.OP_PUTFH, fh)
	lock := func() xdr.Status {
		t.Helper()
		return h.call(put, lockOp(xdr.WRITE_LT, false, 0, 1, id, "l")).ok(xdr.OP_PUTFH).result(xdr.OP_LOCK)
	}
	if st := lock(); st != xdr.NFS4_OK {
		t.Fatal(st)
	}
	r.setBefore(func(op string, _ volume.Handle) error {
		if op == "unlock" {
			return volume.ErrDelay
		}
		return nil
	})
	h.call(put, op(xdr.OP_CLOSE, 0, id)).ok(xdr.OP_PUTFH).ok(xdr.OP_CLOSE)
	_, id = h.open("f", 3, 0)
	st := lock()
	r.setBefore(nil)
	deadline := time.Now().Add(hang)
	for r.count("unlock") < 2 || st == xdr.NFS4ERR_DELAY {
		if time.Now().After(deadline) {
			t.Fatalf("the lock is not given up; locking again: %v", st)
		}
		r.clock.advance(releaseRetry)
		if st == xdr.NFS4ERR_DELAY {
			st = lock()
		}
	}
	if st != xdr.NFS4_OK {
		t.Fatal(st)
	}
	r.stop() // waits for what runs in the background
	if locks(r) != 1 {
		t.Fatal("a lock that was granted is not held any more")
	}
	r.start()
}

func locks(r *rig) (n int) {
	for _, l := range r.vol.Locks() {
		n += len(l)
	}
	return n
}

// TestLockOfUnknownOutcomeIsGivenUp has a volume that grants a lock, and loses its answer.
// The client closes the file without a repeat, and the lock must be released.
func TestLockOfUnknownOutcomeIsGivenUp(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	put := op(xdr.OP_PUTFH, fh)
	owner := (&call{s: r.srv, client: r.srv.table.Session(h.session).Client}).lockOwner("l")
	inner := false
	r.setBefore(func(op string, f volume.Handle) error {
		if op != "setlock" || inner {
			return nil
		}
		inner = true
		if err := r.vol.SetLock(t.Context(), volume.Request{}, f, volume.Lock{Owner: owner, End: 9, Exclusive: true}, false); err != nil {
			t.Error(err)
		}
		return volume.ErrUnknown
	})
	h.send(nfsCall(0), h.body(3, 1, true, put, lockOp(xdr.WRITE_LT, false, 0, 10, id, "l")))
	if b := h.receive(); b != nil {
		t.Fatalf("answered %x", b)
	}
	h.reconnect()
	if locks(r) != 1 {
		t.Fatal("the test did not make a lock")
	}
	h.call(put, op(xdr.OP_CLOSE, 0, id)).ok(xdr.OP_PUTFH).ok(xdr.OP_CLOSE)
	if locks(r) != 0 {
		t.Fatal("a lock is left that nobody knows of")
	}
}

// TestOneLockOwnerTwoOpens closes one open. That must not release what the same
// lock-owner locked through another open.
func TestOneLockOwnerTwoOpens(t *testing.T) {
	r := newRig(t)
	h, other := r.host("10.0.0.1"), r.host("10.0.0.2")
	fh, id := h.open("f", 3, 0)
	_, otherID := other.open("f", 3, 0)
	second := h.in(openOp("p", "f", 3, 0, noCreate...)).opened()
	put := op(xdr.OP_PUTFH, fh)
	lockStateid(h.call(put, lockOp(xdr.WRITE_LT, false, 0, 10, id, "l")).ok(xdr.OP_PUTFH))
	lockStateid(h.call(put, lockOp(xdr.WRITE_LT, false, 20, 10, second, "l")).ok(xdr.OP_PUTFH))
	h.call(put, op(xdr.OP_CLOSE, 0, second)).ok(xdr.OP_PUTFH).ok(xdr.OP_CLOSE)
	lock := func(off uint64) xdr.Status {
		t.Helper()
		return other.call(put, lockOp(xdr.WRITE_LT, false, off, 1, otherID, "x")).ok(xdr.OP_PUTFH).result(xdr.OP_LOCK)
	}
	if st := lock(5); st != xdr.NFS4ERR_DENIED {
		t.Fatalf("a lock of the open that goes on: %v", st)
	}
	h.call(put, op(xdr.OP_CLOSE, 0, id)).ok(xdr.OP_PUTFH).ok(xdr.OP_CLOSE)
	for _, off := range []uint64{5, 25} {
		if st := lock(off); st != xdr.NFS4_OK {
			t.Fatalf("at %d, after both are closed: %v", off, st)
		}
	}
}

// TestLockRanges tries the limits of byte ranges, RFC 8881 section 18.10.3.
func TestLockRanges(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	const last = ^uint64(0)
	for i, c := range []struct {
		off, n uint64
		want   xdr.Status
	}{
		{0, 0, xdr.NFS4ERR_INVAL}, {last, 0, xdr.NFS4ERR_INVAL}, {0, last, xdr.NFS4_OK}, {last, last, xdr.NFS4_OK},
		{1, last - 1, xdr.NFS4_OK}, {2, last - 1, xdr.NFS4ERR_INVAL}, {last, 1, xdr.NFS4ERR_INVAL}, {last - 1, 1, xdr.NFS4_OK},
		{0, last - 1, xdr.NFS4_OK}, {1 << 63, 1 << 63, xdr.NFS4ERR_INVAL}, {1 << 63, 1<<63 - 1, xdr.NFS4_OK},
	} {
		a := h.call(op(xdr.OP_PUTFH, fh), lockOp(xdr.WRITE_LT, false, c.off, c.n, id, fmt.Sprint("l", i))).ok(xdr.OP_PUTFH)
		st := a.result(xdr.OP_LOCK)
		if st != c.want {
			t.Errorf("offset %d, length %d: %v, want %v", c.off, c.n, st, c.want)
		}
		if st != xdr.NFS4_OK {
			continue
		}
		lock := a.Stateid()
		h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_LOCKU, xdr.WRITE_LT, 0, lock, c.off, c.n)).ok(xdr.OP_PUTFH).ok(xdr.OP_LOCKU)
		if locks(r) != 0 {
			t.Errorf("offset %d, length %d: not given up by the same range", c.off, c.n)
		}
	}
}

// TestConflictWithoutHolder has a volume that returns ErrLocked without the lock.
func TestConflictWithoutHolder(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	r.setBefore(func(op string, _ volume.Handle) error {
		if op == "setlock" || op == "testlock" {
			return volume.ErrLocked
		}
		return nil
	})
	for _, o := range []arg{lockOp(xdr.WRITE_LT, false, 0, 10, id, "l"), op(xdr.OP_LOCKT, xdr.READ_LT, uint64(0), uint64(1), uint64(0), "x")} {
		a := h.call(op(xdr.OP_PUTFH, fh), o)
		if a.status != xdr.NFS4ERR_DENIED {
			t.Fatal(a.status)
		}
		a.ok(xdr.OP_PUTFH)
		a.count -= 2
		if err := a.wellFormed(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeniedFitsTheChannel has a lock-owner with a long name, and another client whose
// channel is too small for it.
func TestDeniedFitsTheChannel(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	small := testChannel
	small.MaxResponseSize, small.MaxResponseSizeCached = 400, 400
	tiny := r.newHost("10.0.0.2", small)
	tiny.call(op(xdr.OP_RECLAIM_COMPLETE, false))
	fh, id := h.open("f", 3, 0)
	_, tinyID := tiny.open("f", 3, 0)
	put := op(xdr.OP_PUTFH, fh)
	lockStateid(h.call(put, lockOp(xdr.WRITE_LT, false, 0, 10, id, strings.Repeat("l", 1024))).ok(xdr.OP_PUTFH))
	a := tiny.call(put, lockOp(xdr.WRITE_LT, false, 0, 10, tinyID, "x"))
	if n := len(a.raw) - 24; a.status != xdr.NFS4ERR_DENIED || n > 400 {
		t.Fatalf("%v in %d bytes", a.status, n)
	}
}

func TestShareReservations(t *testing.T) {
	const (
		rd, wr = xdr.OPEN4_SHARE_ACCESS_READ, xdr.OPEN4_SHARE_ACCESS_WRITE
		dr, dw = xdr.OPEN4_SHARE_DENY_READ, xdr.OPEN4_SHARE_DENY_WRITE
	)
	type share struct{ access, deny int }
	for i, c := range []struct {
		opened []share // by one owner
		to     share
		want   xdr.Status
	}{
		{[]share{{rd, 0}}, share{rd, 0}, xdr.NFS4_OK},
		{[]share{{rd | wr, 0}}, share{rd, 0}, xdr.NFS4ERR_INVAL}, // was never opened with that
		{[]share{{rd, 0}, {rd | wr, dw}}, share{rd, 0}, xdr.NFS4_OK},
		{[]share{{rd, 0}, {rd | wr, dw}}, share{rd | wr, 0}, xdr.NFS4ERR_INVAL},
		{[]share{{rd, 0}, {wr, dw}}, share{rd | wr, dw}, xdr.NFS4_OK},
		{[]share{{rd, dr}, {wr, dw}}, share{rd, dr | dw}, xdr.NFS4ERR_INVAL},
		{[]share{{rd, 0}}, share{rd | wr, 0}, xdr.NFS4ERR_INVAL}, // that would be an upgrade
		{[]share{{rd, 0}}, share{0, 0}, xdr.NFS4ERR_INVAL},
		{[]share{{rd, 0}}, share{rd, 4}, xdr.NFS4ERR_INVAL},
	} {
		r := newRig(t)
		h := r.host("10.0.0.1")
		var fh []byte
		var id xdr.Stateid
		for _, s := range c.opened {
			fh, id = h.open("f", s.access, s.deny)
		}
		a := h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_OPEN_DOWNGRADE, id, 0, c.to.access, c.to.deny)).ok(xdr.OP_PUTFH)
		if st := a.result(xdr.OP_OPEN_DOWNGRADE); st != c.want {
			t.Errorf("case %d: %v, want %v", i, st, c.want)
			continue
		}
		// The rest of the share reservation denies other opens.
		deny := 0
		for _, s := range c.opened {
			deny |= s.deny
		}
		if c.want == xdr.NFS4_OK {
			deny = c.to.deny
		}
		other := r.host("10.0.0.2")
		for _, access := range []int{rd, wr} {
			want := xdr.NFS4_OK
			if deny&access != 0 {
				want = xdr.NFS4ERR_SHARE_DENIED
			}
			other.in(openOp("o", "f", access, 0, noCreate...)).want(xdr.OP_OPEN, want)
		}
	}
}
