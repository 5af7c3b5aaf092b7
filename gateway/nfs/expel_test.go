// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// stopAt makes operations of a kind wait. came gets a value for each of them. Closing
// goOn lets all go on.
func (r *rig) stopAt(kind string) (came chan volume.Handle, goOn chan struct{}) {
	came, goOn = make(chan volume.Handle, 16), make(chan struct{})
	r.setBefore(func(op string, h volume.Handle) error {
		if op == kind {
			came <- h
			<-goOn
		}
		return nil
	})
	return came, goOn
}

// TestExpel checks what is true when Expel has returned: requests that were decoded
// before are refused or have ended, others get the locks, and the client is informed.
func TestExpel(t *testing.T) {
	r := newRig(t)
	h, other := r.host("10.0.0.1"), r.host("10.0.0.2")
	fh, id := h.open("f", 3, 0)
	_, otherID := other.open("f", 3, 0)
	put := op(xdr.OP_PUTFH, fh)
	lock := lockStateid(h.call(put, lockOp(xdr.WRITE_LT, false, 0, 10, id, "l")).ok(xdr.OP_PUTFH))

	came, goOn := r.stopAt("write")
	write := op(xdr.OP_WRITE, id, uint64(0), xdr.FILE_SYNC4, []byte("late"))
	h.seq[0]++
	h.send(nfsCall(0), h.body(0, h.seq[0], false, put, write, write))
	<-came
	r.refuse("10.0.0.1", true)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := r.srv.Expel(short, volID); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "still run") {
		t.Fatalf("while a write is under way: %v", err)
	}
	if locks(r) != 1 {
		t.Fatal("the locks were given up while a write is under way")
	}
	done := make(chan error, 1)
	go func() { done <- r.srv.Expel(context.Background(), volID) }()
	close(goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if locks(r) != 0 {
		t.Fatal("locks are held after Expel returned")
	}
	h.finish().ok(xdr.OP_PUTFH).ok(xdr.OP_WRITE).Uint32() // it was under way, and has ended
	if n := r.count("write"); n != 1 {
		t.Fatalf("%d writes, want that one", n)
	}
	h.call(put).want(xdr.OP_PUTFH, xdr.NFS4ERR_ACCESS)
	if h.flags != 0 { // Linux would treat all its locks as lost, also on other volumes
		t.Errorf("status flags %#x", h.flags)
	}
	h.call(op(xdr.OP_TEST_STATEID, 1, id)).ok(xdr.OP_TEST_STATEID).Uint32()
	var mask xdr.Bitmap
	mask.Set(xdr.FATTR4_SIZE)
	closing := op(xdr.OP_CLOSE, 0, id)
	h.call(put, op(xdr.OP_GETATTR, mask), closing).want(xdr.OP_PUTFH, xdr.NFS4ERR_ACCESS) // the Linux client tries this first
	h.call(put, closing).ok(xdr.OP_PUTFH).want(xdr.OP_CLOSE, xdr.NFS4ERR_ADMIN_REVOKED)
	for _, gone := range []xdr.Stateid{id, lock} {
		h.call(op(xdr.OP_FREE_STATEID, gone)).ok(xdr.OP_FREE_STATEID)
	}
	h.call(op(xdr.OP_FREE_STATEID, id)).want(xdr.OP_FREE_STATEID, xdr.NFS4ERR_BAD_STATEID)
	lockStateid(other.call(put, lockOp(xdr.WRITE_LT, false, 0, 10, otherID, "l")).ok(xdr.OP_PUTFH))
	for _, c := range r.srv.Clients() {
		if want := map[string]int{"10.0.0.2": 1}[c.Address]; c.Opens != want || c.Locks != want {
			t.Errorf("client %s has %d opens and %d locks, want %d", c.Address, c.Opens, c.Locks, want)
		}
	}
	if err := r.srv.Expel(t.Context(), volID); err != nil {
		t.Errorf("again: %v", err)
	}
	r.refuse("10.0.0.1", false)
	h.open("f", 3, 0) // the client may be admitted again
}

// TestExpelSecondOperation expels a client between two operations of one request. The
// second one must be refused.
func TestExpelSecondOperation(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		expelSecondOperation(t, func(r *rig) { r.refuse("10.0.0.1", true) }, xdr.NFS4ERR_ACCESS)
	})
	t.Run("deleted", func(t *testing.T) { expelSecondOperation(t, (*rig).remove, xdr.NFS4ERR_STALE) })
}

func expelSecondOperation(t *testing.T, end func(*rig), want xdr.Status) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	came, goOn := r.stopAt("getattr")
	h.seq[0]++
	var mask xdr.Bitmap
	mask.Set(xdr.FATTR4_SIZE)
	h.send(nfsCall(0), h.body(0, h.seq[0], false, op(xdr.OP_PUTFH, fh), op(xdr.OP_GETATTR, mask), op(xdr.OP_WRITE, id, uint64(0), xdr.FILE_SYNC4, []byte("late"))))
	<-came
	end(r)
	done := make(chan error, 1)
	go func() { done <- r.srv.Expel(context.Background(), volID) }()
	eventually(t, "the request is found", func() bool {
		r.srv.guests.mu.Lock()
		defer r.srv.guests.mu.Unlock()
		return len(r.srv.guests.leaving) == 1
	})
	close(goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := r.count("write"); n != 0 {
		t.Errorf("%d writes after the client was expelled", n)
	}
	if st := xdr.Status(h.finish().status); st != want {
		t.Errorf("the request ends with %v, want %v", st, want)
	}
}

// TestExpelFromADeletedVolume checks that no stateids of a deleted volume are remembered:
// no client can use them any more.
func TestExpelFromADeletedVolume(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	put := op(xdr.OP_PUTFH, fh)
	lock := lockStateid(h.call(put, lockOp(xdr.WRITE_LT, false, 0, 10, id, "l")).ok(xdr.OP_PUTFH))
	r.remove()
	if err := r.srv.Expel(t.Context(), volID); err != nil {
		t.Fatal(err)
	}
	h.call(put, op(xdr.OP_CLOSE, 0, id)).want(xdr.OP_PUTFH, xdr.NFS4ERR_STALE)
	for _, gone := range []xdr.Stateid{id, lock} {
		h.call(op(xdr.OP_FREE_STATEID, gone)).want(xdr.OP_FREE_STATEID, xdr.NFS4ERR_BAD_STATEID)
	}
	if c := r.srv.Clients()[0]; c.Opens != 0 || c.Locks != 0 || locks(r) != 0 {
		t.Errorf("%+v, %d locks of the volume", c, locks(r))
	}
}

// TestExpelWhileOpening checks that an open which is granted late does not stay.
func TestExpelWhileOpening(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.open("f", 3, 0)
	came, goOn := r.stopAt("lookup")
	h.seq[0]++
	h.send(nfsCall(0), h.body(0, h.seq[0], false, op(xdr.OP_PUTFH, encodeHandle(place{export: Export{ID: volID}, h: volume.Root})), openOp("p", "f", 3, 0, noCreate...)))
	<-came
	r.refuse("10.0.0.1", true)
	done := make(chan error, 1)
	go func() { done <- r.srv.Expel(context.Background(), volID) }()
	close(goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, c := range r.srv.Clients() {
		if c.Opens != 0 {
			t.Errorf("client %s has %d opens", c.Address, c.Opens)
		}
	}
}

// TestExpelWaitsForLocks has a volume that cannot release locks yet. Expel must wait for
// them, also when it is called again.
func TestExpelWaitsForLocks(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	lockStateid(h.call(op(xdr.OP_PUTFH, fh), lockOp(xdr.WRITE_LT, false, 0, 10, id, "l")).ok(xdr.OP_PUTFH))
	r.setBefore(func(op string, _ volume.Handle) error {
		if op == "unlock" {
			return volume.ErrDelay
		}
		return nil
	})
	r.refuse("10.0.0.1", true)
	for range 2 {
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := r.srv.Expel(short, volID); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "locks") {
			t.Fatalf("while the volume holds the locks: %v", err)
		}
		cancel()
	}
	r.setBefore(nil)
	done := make(chan error, 1)
	go func() { done <- r.srv.Expel(context.Background(), volID) }()
	eventually(t, "the locks are given up", func() bool { r.clock.advance(releaseRetry); return locks(r) == 0 })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestGuestsAreForgotten checks that a refused client takes no memory.
func TestGuestsAreForgotten(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, _ := h.open("f", 3, 0)
	r.refuse("10.0.0.1", true)
	h.call(op(xdr.OP_PUTFH, fh)).want(xdr.OP_PUTFH, xdr.NFS4ERR_ACCESS)
	eventually(t, "nobody is remembered", func() bool {
		r.srv.guests.mu.Lock()
		defer r.srv.guests.mu.Unlock()
		return len(r.srv.guests.present)+len(r.srv.guests.leaving) == 0
	})
}

// TestCloseWithoutAdmission sends CLOSE from a client that is not admitted any more. The
// answer says what was revoked, and nothing is changed.
func TestCloseWithoutAdmission(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	put, closing := op(xdr.OP_PUTFH, fh), op(xdr.OP_CLOSE, 0, id)
	r.refuse("10.0.0.1", true)
	for _, o := range []arg{op(xdr.OP_WRITE, id, uint64(0), xdr.FILE_SYNC4, []byte("late")), op(xdr.OP_LOCKU, xdr.WRITE_LT, 0, id, uint64(0), uint64(1)), op(xdr.OP_GETFH)} {
		h.call(put, o).want(xdr.OP_PUTFH, xdr.NFS4ERR_ACCESS)
	}
	closed := func(want xdr.Status) {
		t.Helper()
		h.call(put, closing, op(xdr.OP_GETFH)).ok(xdr.OP_PUTFH).want(xdr.OP_CLOSE, want)
	}
	closed(xdr.NFS4ERR_ACCESS) // Expel will end it
	if err := r.srv.Expel(t.Context(), volID); err != nil {
		t.Fatal(err)
	}
	closed(xdr.NFS4ERR_ADMIN_REVOKED)
	h.call(op(xdr.OP_FREE_STATEID, id)).ok(xdr.OP_FREE_STATEID)
	closed(xdr.NFS4ERR_BAD_STATEID)
}
