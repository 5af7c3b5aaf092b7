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

// TestSlowOperation: an operation that takes long is logged with volume, client, path and status.
func TestSlowOperation(t *testing.T) {
	r := newRig(t)
	r.slow = time.Second
	r.restart()
	h := r.host("10.0.0.1")
	mkdir := op(xdr.OP_CREATE, xdr.NF4DIR, "dir", xdr.Bitmap{}, "")
	h.call(toVol(mkdir)...)
	dir := h.call(append(toVol(op(xdr.OP_LOOKUP, "dir")), op(xdr.OP_GETFH))...)
	dir.ok(xdr.OP_PUTFH).ok(xdr.OP_LOOKUP)
	fh := dir.ok(xdr.OP_GETFH).Opaque(128)
	if strings.Contains(r.log.String(), "slow") {
		t.Fatal(r.log.String())
	}
	slow := func(what string) {
		r.setBefore(func(op string, _ volume.Handle) error {
			if op == what {
				r.clock.advance(1500 * time.Millisecond)
			}
			return nil
		})
	}
	slow("create")
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_CREATE, xdr.NF4DIR, "below", xdr.Bitmap{}, "")).ok(xdr.OP_PUTFH).ok(xdr.OP_CREATE)
	slow("getattr")
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_GETATTR, xdr.Bitmap{}))
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_LOOKUP, "nothing"))
	log := r.log.String()
	for _, want := range []string{
		`op=CREATE volume=vol client=10.0.0.1 path=/dir/below status=NFS4_OK bytes=0 took=1.5s`,
		`op=GETATTR volume=vol client=10.0.0.1 path=/dir status=NFS4_OK`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("%s\nis not in the log:\n%s", want, log)
		}
	}
	if n := strings.Count(log, "slow operation"); n != 2 {
		t.Errorf("%d lines:\n%s", n, log)
	}
	r.slow = 0
	r.restart()
	h2 := r.host("10.0.0.2")
	h2.call(toVol(op(xdr.OP_CREATE, xdr.NF4DIR, "more", xdr.Bitmap{}, ""))...)
	if n := strings.Count(r.log.String(), "slow operation"); n != 2 {
		t.Errorf("%d lines although nobody wants any:\n%s", n, r.log.String())
	}
}

func TestPaths(t *testing.T) {
	var p paths
	v, other := volume.ID{1}, volume.ID{2}
	at := func(n uint64) volume.Handle { return volume.Handle{Ino: n, Gen: 1} }
	p.found(v, volume.Root, "a", at(2))
	p.found(v, at(2), "b", at(3))
	p.found(other, volume.Root, "c", at(3))
	p.found(v, at(9), "file", at(10)) // of 9 nothing is known
	p.found(v, at(20), "loop", at(21))
	p.found(v, at(21), "loop", at(20))
	check := func() {
		t.Helper()
		for h, want := range map[volume.Handle]string{volume.Root: "/", at(2): "/a", at(3): "/a/b", at(5): "inode 5", at(10): "…/file"} {
			if got := p.path(v, h); got != want {
				t.Errorf("inode %d is %q, want %q", h.Ino, got, want)
			}
		}
		if got := p.path(other, at(3)); got != "/c" {
			t.Error(got)
		}
	}
	check()
	if got := p.path(v, at(20)); !strings.HasPrefix(got, "…/loop/loop") || len(got) > 10*maxDepth {
		t.Errorf("a path that comes back: %s", got)
	}
	for i := range 3 * maxPaths {
		p.found(v, volume.Root, fmt.Sprint(i), at(uint64(1000+i)))
		if i%(maxPaths/2) == 0 {
			check() // what is asked for stays
		}
	}
	if n := len(p.now) + len(p.old); n > 2*maxPaths {
		t.Errorf("%d names", n)
	}
	if got := p.path(v, at(1000)); got != "inode 1000" {
		t.Errorf("what was not asked for is still there: %s", got)
	}
	p.found(v, volume.Root, "renamed", at(2))
	if got := p.path(v, at(3)); got != "/renamed/b" {
		t.Error(got)
	}
}

// TestWaiting: requests that are not answered for long are counted, while they wait.
func TestWaiting(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.on(1, 1, false, toVol()...)
	held, enough := make(chan struct{}), make(chan struct{})
	r.setBefore(func(op string, _ volume.Handle) error {
		if op == "create" {
			close(held)
			<-enough
		}
		return nil
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.send(nfsCall(0), h.body(2, 1, false, toVol(op(xdr.OP_CREATE, xdr.NF4DIR, "d", xdr.Bitmap{}, ""))...))
		if h.receive() != nil {
			t.Error("an answer on a connection that ended")
		}
	}()
	<-held
	r.clock.advance(3 * time.Second)
	if n := r.srv.Waiting(5 * time.Second); len(n) != 0 {
		t.Errorf("%v wait for 3 s", n)
	}
	r.clock.advance(3 * time.Second)
	if n := r.srv.Waiting(5 * time.Second); len(n) != 1 || n["vol"] != 1 {
		t.Errorf("%v wait", n)
	}
	_ = h.nc.Close() // it goes on (nfs-5), and its client asks again and waits
	<-done
	eventually(t, "the connection has ended", func() bool { return r.srv.ClientCounts().Connections == 0 })
	if n := r.srv.Waiting(5 * time.Second); len(n) != 1 || n["vol"] != 1 {
		t.Errorf("%v wait after the connection ended", n)
	}
	close(enough)
	eventually(t, "the request has ended", func() bool { return len(r.srv.Waiting(0)) == 0 })
	if n := r.srv.Waiting(5 * time.Second); len(n) != 0 {
		t.Errorf("%v wait although they are answered", n)
	}
}

// TestRefusedVolumeIsObserved: of an operation that could not enter a volume, the observer is told
// which one it was.
func TestRefusedVolumeIsObserved(t *testing.T) {
	r := newRig(t)
	var got []Operation
	r.observe = func(o Operation) { got = append(got, o) }
	r.restart()
	h := r.host("10.0.0.1")
	fh := h.call(append(toVol(), op(xdr.OP_GETFH))...).ok(xdr.OP_PUTFH).ok(xdr.OP_GETFH).Opaque(128)
	got = nil
	r.mu.Lock()
	r.deleted = true
	r.mu.Unlock()
	h.call(op(xdr.OP_PUTFH, fh), op(xdr.OP_GETATTR, xdr.Bitmap{})).want(xdr.OP_PUTFH, xdr.NFS4ERR_STALE)
	last := got[len(got)-1]
	if last.Op != xdr.OP_PUTFH || last.Status != xdr.NFS4ERR_STALE || last.Refused != volID {
		t.Errorf("%+v", last)
	}
}
