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

// waiting counts the timers that were not stopped.
func (c *fakeClock) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

// enough lets a request wait in vain for memory. before is how many timers there were before it
// came.
func (r *rig) enough(before int) {
	r.t.Helper()
	eventually(r.t, "it waits for memory", func() bool { return r.clock.waiting() == before+2 })
	r.clock.advance(10 * time.Second / 8)
}

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
	timers := r.clock.waiting()
	got := make(chan *answer, 1)
	go func() {
		h.send(nfsCall(0), h.body(3, 1, false, op(xdr.OP_PUTFH, fh), write))
		got <- h.finish()
	}()
	r.enough(timers)
	a := <-got
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
	timers := r.clock.waiting()
	got := make(chan []byte, 1)
	go func() {
		h.send(nfsCall(0), body)
		got <- h.receive()
	}()
	r.enough(timers)
	b := <-got
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
	timers := r.clock.waiting()
	got := make(chan *answer, 1)
	go func() { got <- h.call(read(1 << 20)...) }()
	r.enough(timers)
	a := <-got
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
			return all(func(c *conn) bool {
				silent, _, reading := c.times.since(r.clock.Now())
				return reading && silent == 0
			})
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

// TestExpelledClientConnectsAgain: a client that no volume admits any more hears so also if it
// connects again and sends much.
func TestExpelledClientConnectsAgain(t *testing.T) {
	r := newRig(t)
	h := r.host("10.0.0.1")
	fh, id := h.open("f", 3, 0)
	r.refuse("10.0.0.1", true)
	h.reconnect()
	write := []arg{op(xdr.OP_PUTFH, fh), op(xdr.OP_WRITE, id, uint64(0), xdr.FILE_SYNC4, make([]byte, 1<<20))}
	h.call(write...).want(xdr.OP_PUTFH, xdr.NFS4ERR_DELAY)
	h.call(write...).want(xdr.OP_PUTFH, xdr.NFS4ERR_ACCESS)
}

// TestSetups: who makes clients and sessions all the time does not hold up others for long.
func TestSetups(t *testing.T) {
	r := newRig(t)
	h, p := r.host("10.0.0.1"), r.connect("10.0.0.2")
	for range maxSetups {
		r.srv.setups.enter(netip.MustParseAddr("10.0.0.1"))
	}
	h.compound(0, createSessionOp(h.client, 2, testChannel)).want(xdr.OP_CREATE_SESSION, xdr.NFS4ERR_DELAY)
	h.call()
	id, seq, _ := p.exchangeID(0, "x", 1)
	p.createSession(0, id, seq, testChannel)
	r.srv.setups.leave(netip.MustParseAddr("10.0.0.1"))
	h.createSession(0, h.client, 2, testChannel)
	if n := r.srv.Counters().Refused[Setup]; n != 1 {
		t.Errorf("%d are counted", n)
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
	if n := r.srv.Counters().Refused[Memory]; n != 0 {
		t.Errorf("%d requests got no memory", n)
	}
	last.rpc(nullCall, make([]byte, 100<<10))
	if n := r.srv.Counters().Refused[Memory]; n != 1 {
		t.Error("what a stranger sends takes memory")
	}
	_ = last.nc.Close()
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
