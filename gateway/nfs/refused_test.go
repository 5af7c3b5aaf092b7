// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// TestRefusalsAreCounted: each reason for which something is refused is counted by itself.
func TestRefusalsAreCounted(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	want := [Reasons]uint64{}
	check := func(what string, reason Reason) {
		t.Helper()
		want[reason]++
		if got := r.srv.Counters().Refused; got != want {
			t.Fatalf("after %s: %v, want %v", what, got, want)
		}
	}
	handle := func(id volume.ID) arg {
		return op(xdr.OP_PUTFH, encodeHandle(place{export: Export{ID: id}, h: volume.Root}))
	}
	h.call(op(xdr.OP_PUTROOTFH), op(xdr.OP_LOOKUP, "other"))
	check("a name that is not there", Unknown)
	h.call(handle(volume.ID{7})).want(xdr.OP_PUTFH, xdr.NFS4ERR_STALE)
	check("a volume that is not served", NotServed)
	r.refuse("10.0.0.1", true)
	h.call(op(xdr.OP_PUTROOTFH), op(xdr.OP_LOOKUP, "vol"))
	check("the name of a volume that does not admit the client", NotAdmitted)
	h.call(handle(volID)).want(xdr.OP_PUTFH, xdr.NFS4ERR_ACCESS)
	check("the handle of such a volume", NotAdmitted)
	r.remove()
	h.call(handle(volID)).want(xdr.OP_PUTFH, xdr.NFS4ERR_STALE)
	check("a volume that was deleted", Unknown)
	none := nfsCall(0)
	none.Cred = xdr.OpaqueAuth{}
	if got, _ := h.rpc(none, compoundBody(2)); !got.Denied {
		t.Errorf("without a credential: %+v", got)
	}
	check("no credential", Credential)
	for range maxConns {
		r.connect("10.0.0.2")
	}
	if r.connect("10.0.0.2").receive() != nil {
		t.Error("a connection above the limit is answered")
	}
	check("a connection above the limit", Connections)
}

// TestSlotsAreCounted: a request that is refused because its volume holds its share is counted, and
// told apart from one whose volume has no home.
func TestSlotsAreCounted(t *testing.T) {
	r := newRig(t)
	var busy int
	r.observe = func(o Operation) {
		if o.Busy {
			busy++
		}
	}
	r.restart()
	fore := testChannel
	fore.MaxRequests = 2
	h := r.newHost("10.0.0.1", fore)
	h.call(op(xdr.OP_RECLAIM_COMPLETE, false)).ok(xdr.OP_RECLAIM_COMPLETE)
	came, goOn := r.stopAt("getattr")
	var mask xdr.Bitmap
	mask.Set(xdr.FATTR4_SIZE)
	get := toVol(op(xdr.OP_GETATTR, mask))
	h.send(nfsCall(0), h.body(1, 1, false, get...))
	<-came
	r.clock.advance(2e9) // none ended for long
	if n := r.srv.ClientCounts(); n.Slots != 2 || n.SlotsUsed != 1 {
		t.Errorf("%+v", n)
	}
	asked := make(chan struct{})
	go func() { // a refusal takes its time
		for {
			select {
			case <-asked:
				return
			case <-time.After(time.Millisecond):
				r.clock.advance(100 * time.Millisecond)
			}
		}
	}()
	h.call(get...).want(xdr.OP_PUTFH, xdr.NFS4ERR_DELAY)
	close(asked)
	if n := r.srv.Counters().Refused[Slots]; n != 1 || busy != 1 {
		t.Errorf("%d are counted, and %d told", n, busy)
	}
	close(goOn)
	h.finish().ok(xdr.OP_PUTFH).ok(xdr.OP_GETATTR)
}
