// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

var nullCall = xdr.CallHeader{XID: 7, Program: xdr.NFS4_PROGRAM, Version: xdr.NFS_V4}

// TestMemoryForRequests: a client whose volume answers nothing takes no more than its share of the
// memory. What comes then is told to come again, its lease is renewed, and others are served.
func TestMemoryForRequests(t *testing.T) {
	r := newRig(t)
	r.stop()
	r.memory = 16 << 20 // 4 MiB for requests
	r.start()
	h, other := r.host("10.0.0.1"), r.host("10.0.0.2")
	fh, id := h.open("f", 3, 0)
	fh2, id2 := other.open("g", 3, 0)
	var hangs atomic.Bool
	hangs.Store(true)
	entered, release := make(chan struct{}), make(chan struct{})
	r.setBefore(func(op string, _ volume.Handle) error {
		if op == "write" && hangs.Load() {
			entered <- struct{}{}
			<-release
		}
		return nil
	})
	data := make([]byte, 1<<20)
	write := op(xdr.OP_WRITE, id, uint64(0), xdr.UNSTABLE4, data)
	for slot := uint32(1); slot <= 2; slot++ {
		h.send(nfsCall(0), h.body(slot, 1, false, op(xdr.OP_PUTFH, fh), write))
		<-entered
	}
	hangs.Store(false)
	got := make(chan *answer, 1)
	go func() {
		h.send(nfsCall(0), h.body(3, 1, false, op(xdr.OP_PUTFH, fh), write))
		got <- h.finish()
	}()
	var a *answer
	eventually(t, "the client is told to come again", func() bool {
		select {
		case a = <-got:
			return true
		default:
			r.clock.advance(50 * time.Millisecond)
			return false
		}
	})
	a.want(xdr.OP_PUTFH, xdr.NFS4ERR_DELAY)
	h.on(3, 2, false)
	if n := r.srv.Counters().Refused[Memory]; n != 1 {
		t.Errorf("%d are counted", n)
	}
	mine := op(xdr.OP_WRITE, id2, uint64(0), xdr.UNSTABLE4, data)
	other.call(op(xdr.OP_PUTFH, fh2), mine).ok(xdr.OP_PUTFH).ok(xdr.OP_WRITE)
	if u := r.srv.Room().Requests; u.Used > u.Limit || u.Used < 2<<20 {
		t.Errorf("%d of %d are used", u.Used, u.Limit)
	}
	close(release)
	for range 2 {
		h.finish().ok(xdr.OP_PUTFH).ok(xdr.OP_WRITE)
	}
	h.on(3, 3, false, op(xdr.OP_PUTFH, fh), write).ok(xdr.OP_PUTFH).ok(xdr.OP_WRITE)
	eventually(t, "all memory is given back", func() bool { return r.srv.Room().Requests.Used == 0 })
}

// TestRepeatWithoutMemory: a request that is being executed and comes again, when there is no
// memory for it, is told to come later, and does not wait.
func TestRepeatWithoutMemory(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	h.open("f", 3, 0)
	entered, release := make(chan struct{}), make(chan struct{})
	r.setBefore(func(op string, _ volume.Handle) error {
		if op == "remove" {
			entered <- struct{}{}
			<-release
		}
		return nil
	})
	body := h.body(3, 1, true, toVol(op(xdr.OP_REMOVE, "f"))...)
	h.send(nfsCall(0), body)
	<-entered
	all := r.srv.Room().Requests.Limit
	r.srv.requestRoom.Add(netip.MustParseAddr("10.0.0.9"), all)
	got := make(chan []byte, 1)
	go func() {
		h.send(nfsCall(0), body)
		got <- h.receive()
	}()
	var b []byte
	eventually(t, "the repeat is answered", func() bool {
		select {
		case b = <-got:
			return true
		default:
			r.clock.advance(50 * time.Millisecond)
			return false
		}
	})
	if a := h.answer(b); a.status != xdr.NFS4ERR_DELAY || a.count != 1 {
		t.Errorf("%v after %d results", a.status, a.count)
	}
	r.srv.requestRoom.Add(netip.MustParseAddr("10.0.0.9"), -all)
	close(release)
	h.finish()
	h.send(nfsCall(0), body)
	if a := h.finish(); a.status != xdr.NFS4_OK || r.count("remove") != 1 {
		t.Errorf("%v, executed %d times", a.status, r.count("remove"))
	}
}

// TestMemoryForReplies: a READ for which there is no memory has to come again.
func TestMemoryForReplies(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	read := func(n int) []arg { return []arg{op(xdr.OP_PUTFH, fh), op(xdr.OP_READ, id, uint64(0), n)} }
	all := r.srv.Room().Replies.Limit
	r.srv.replyRoom.Add(netip.MustParseAddr("10.0.0.9"), all)
	h.call(read(4096)...).ok(xdr.OP_PUTFH).ok(xdr.OP_READ)
	got := make(chan *answer, 1)
	go func() { got <- h.call(read(1 << 20)...) }()
	var a *answer
	eventually(t, "the client is told to come again", func() bool {
		select {
		case a = <-got:
			return true
		default:
			r.clock.advance(50 * time.Millisecond)
			return false
		}
	})
	a.ok(xdr.OP_PUTFH).want(xdr.OP_READ, xdr.NFS4ERR_DELAY)
	r.srv.replyRoom.Add(netip.MustParseAddr("10.0.0.9"), -all)
	h.call(read(1 << 20)...).ok(xdr.OP_PUTFH).ok(xdr.OP_READ)
	eventually(t, "all memory is given back", func() bool { return r.srv.Room().Replies.Used == 0 })
}

// TestIdleConnections: connections are closed that say nothing, or half of a request. Those of a
// client with a lease stay, which may renew on another one.
func TestIdleConnections(t *testing.T) {
	r := newRig(t)
	all := func(ok func(c *conn) bool) bool {
		r.srv.mu.Lock()
		defer r.srv.mu.Unlock()
		for c := range r.srv.conns {
			if !ok(c) {
				return false
			}
		}
		return true
	}
	look := func(what string, d time.Duration, want int) {
		t.Helper()
		eventually(t, "requests end", func() bool { return all(func(c *conn) bool { return c.running.Load() == 0 }) })
		r.clock.advance(d)
		r.srv.closeStuck()
		eventually(t, what, func() bool { return openConns(r.srv) == want })
	}
	r.connect("10.0.0.1")
	look("who has not spoken yet stays", 15*time.Second, 1)
	look("who says nothing goes", 6*time.Second, 0)

	p := r.connect("10.0.0.1")
	part := func(b ...byte) {
		t.Helper()
		if _, err := p.nc.Write(b); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is heard", func() bool {
			return all(func(c *conn) bool { return c.times.began.Load() != nil && c.times.last.Load().Equal(r.clock.Now()) })
		})
	}
	mark := binary.BigEndian.AppendUint32(nil, 1<<31|1000)
	part(append(mark, 0)...)
	look("half of a request is waited for", 4*time.Second, 1)
	look("half of a request, and no more", 2*time.Second, 0)

	p = r.connect("10.0.0.1")
	part(mark...)
	for range 9 {
		part(0)
		look("what comes slowly comes", 4*time.Second, 1)
	}
	part(0)
	look("what comes too slowly does not", 4*time.Second+time.Millisecond, 0)

	h := r.host("10.0.0.1")
	second := &host{peer: r.connect("10.0.0.1"), r: r, session: h.session}
	second.on(1, 1, false)
	for range 10 {
		h.call()
		look("a client with a lease keeps its connections", 9*time.Second, 2)
	}
	second.on(1, 2, false)
	look("a client without a lease does not, later", 19*time.Second, 2)
	look("a client without a lease does not", 2*time.Second, 0)
	if n := r.srv.Counters().Refused[Idle]; n != 5 {
		t.Errorf("%d are counted, want 5", n)
	}
}

// TestConnectionsOfStrangers: who is admitted to no volume has few connections and small requests.
func TestConnectionsOfStrangers(t *testing.T) {
	r := newRig(t)
	r.refuse("10.0.0.9", true)
	var last *peer
	for range maxStrangeEach {
		last = r.connect("10.0.0.9")
		last.rpc(nullCall, nil)
	}
	if r.connect("10.0.0.9").receive() != nil || r.srv.Counters().Refused[Connections] != 1 {
		t.Error("a stranger has more connections")
	}
	r.connect("10.0.0.1").rpc(nullCall, make([]byte, 100<<10))
	mark := binary.BigEndian.AppendUint32(nil, 1<<31|(maxStrange+1))
	if _, err := last.nc.Write(mark); err != nil {
		t.Fatal(err)
	}
	if last.receive() != nil {
		t.Error("a stranger is heard out")
	}
	eventually(t, "its connection is gone", func() bool { return openConns(r.srv) == maxStrangeEach })
	r.connect("10.0.0.9").rpc(nullCall, nil)
	// Who was admitted meanwhile, and came, is no stranger.
	r.refuse("10.0.0.9", false)
	h := r.host("10.0.0.9")
	_ = h
	r.srv.closeStuck()
	r.srv.mu.Lock()
	defer r.srv.mu.Unlock()
	if r.srv.strangers != maxStrangeEach {
		t.Errorf("%d strangers", r.srv.strangers)
	}
}
