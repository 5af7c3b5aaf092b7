// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/fair"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// Bounds on connections.
const (
	maxConns       = 64   // of one address
	maxAllConns    = 2048 // each takes some 30 KiB
	maxStrangeEach = 4    // of an address that no volume admits
	maxStrangers   = 64   // of all such addresses
)

// defaultMemory is Config.Memory of a Config without it. It suits a gateway with 512 MiB.
const defaultMemory = 128 << 20

const (
	// requestTakes is the least that a request takes of memory: its goroutine, its buffers, and
	// the reply that its slot keeps.
	requestTakes = 16 << 10
	// smallResults is what an operation may answer without memory of the room for replies.
	smallResults = 16 << 10
)

// hurryAfter is how long a request waits for memory before others of its session that wait for
// their volume are asked to give up.
const hurryAfter = time.Second

// wait takes n bytes of a room for the client's requests or replies. It waits for them for an
// eighth of a lease, while renewals behind it are not read. It returns false if there are none
// then.
func (c *conn) wait(room *fair.Room[netip.Addr], n int) bool {
	clock := c.s.cfg.Clock
	var hurry, late <-chan time.Time
	for {
		ok, freed := room.Take(c.addr, n)
		if ok {
			return true
		}
		if late == nil {
			hurry, late = clock.After(hurryAfter), clock.After(c.s.cfg.Lease/8)
		}
		select {
		case <-freed:
		case <-hurry:
			if s := c.session.Load(); s != nil {
				s.Shares.GiveUp(clock.Now())
			}
			hurry = nil
		case <-late:
			return false
		case <-c.s.ctx.Done():
			return false
		}
	}
}

// roomFor takes memory for n bytes more of the reply. It returns false if the client has to ask
// again. Who has some already does not wait for more: others may wait for what it has.
func (k *call) roomFor(n int) bool {
	if n <= smallResults || k.conn == nil {
		return true
	}
	ok, _ := k.s.replyRoom.Take(k.conn.addr, n)
	if !ok && k.out.takes == 0 {
		ok = k.conn.wait(k.s.replyRoom, n)
	}
	if !ok {
		k.s.refusedFor[Memory].Add(1)
		return false
	}
	k.out.takes += n
	return true
}

// times says how a connection gets on, as nanoseconds since it began. Its methods may be called
// from many goroutines.
type times struct {
	accepted time.Time
	last     atomic.Int64 // when something was read, or a request ended
	began    atomic.Int64 // when the request began that is being read; -1: none is
}

func newTimes(now time.Time) *times {
	t := &times{accepted: now}
	t.began.Store(-1)
	return t
}

func (t *times) heard(now time.Time) { t.last.Store(int64(now.Sub(t.accepted))) }
func (t *times) begin(now time.Time) { t.began.Store(int64(now.Sub(t.accepted))) }
func (t *times) end(now time.Time)   { t.began.Store(-1); t.heard(now) }

// since returns for how long nothing was heard, and, if one is being read, for how long a request
// has been.
func (t *times) since(now time.Time) (silent, reading time.Duration, isReading bool) {
	at := now.Sub(t.accepted)
	began := t.began.Load()
	return at - time.Duration(t.last.Load()), at - time.Duration(began), began >= 0
}

// heard is what a connection reads, and notes when.
type heard struct {
	c *conn
	r io.Reader
}

// Read implements io.Reader.
func (h *heard) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if n > 0 {
		h.c.times.heard(h.c.s.cfg.Clock.Now())
	}
	return n, err
}

// recordLeases is how many leases a request may take to come in.
const recordLeases = 4

// idleLeases is how many leases a connection may say nothing on which no client with a lease is.
const idleLeases = 2

// stuck tells why a connection is to be closed: "" for one that gets on. A connection of a client
// with a lease may be silent: it renews on another one of its session.
func (c *conn) stuck(now time.Time) string {
	lease, writing := c.s.cfg.Lease, c.writing.Load()
	silent, took, reading := c.times.since(now)
	switch {
	case writing != nil && now.Sub(*writing) > lease:
		return "the client does not read its replies"
	case reading && (silent > lease/2 || took > recordLeases*lease):
		return "half of a request came, and no more"
	case !reading && c.running.Load() == 0 && silent > idleLeases*lease && !c.live():
		return "no client with a lease used it"
	}
	return ""
}

// live tells whether a client with a lease uses the connection.
func (c *conn) live() bool {
	s := c.session.Load()
	return s != nil && c.s.table.Live(s)
}

// maxSetups is how many requests of one address may make or end clients and sessions at a time.
// Each may write a record, one after the other, and those of others wait for that.
const maxSetups = 4

// alone runs an operation that makes or ends clients or sessions, if few of the address run.
func (k *call) alone(op xdr.Op, run func(*call) xdr.Status) xdr.Status {
	if !k.s.setups.enter(k.conn.addr) {
		k.s.refusedFor[Setup].Add(1)
		return xdr.NFS4ERR_DELAY
	}
	defer k.s.setups.leave(k.conn.addr)
	return k.guarded(op, run)
}

// setups counts such operations.
type setups struct {
	mu sync.Mutex
	of map[netip.Addr]int
}

func (s *setups) enter(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[a] >= maxSetups {
		return false
	}
	if s.of == nil {
		s.of = map[netip.Addr]int{}
	}
	s.of[a]++
	return true
}

func (s *setups) leave(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[a]--; s.of[a] == 0 {
		delete(s.of, a)
	}
}

// roomForConn counts a connection, or returns the bound that it would exceed. mu is held.
func (s *Server) roomForConn(c *conn) (limit int, ok bool) {
	switch {
	case c.strange && s.addresses[c.addr] >= maxStrangeEach:
		return maxStrangeEach, false
	case c.strange && s.strangers >= maxStrangers:
		return maxStrangers, false
	case s.addresses[c.addr] >= maxConns:
		return maxConns, false
	}
	if ok, _ := s.connRoom.Take(c.addr, 1); !ok {
		return maxAllConns, false
	}
	s.addresses[c.addr]++
	if c.strange {
		s.strangers++
	}
	return 0, true
}

// leftConn ends roomForConn. mu is held.
func (s *Server) leftConn(c *conn) {
	s.connRoom.Add(c.addr, -1)
	if s.addresses[c.addr]--; s.addresses[c.addr] == 0 {
		delete(s.addresses, c.addr)
	}
	if c.strange {
		s.strangers--
	}
}

// Room is how much of the memory for clients is used, by what for.
type Room struct{ Requests, Replies, States, Sessions fair.Use }

// Room returns how much memory clients take, in bytes, and may take.
func (s *Server) Room() Room {
	r := Room{Requests: s.requestRoom.Use(), Replies: s.replyRoom.Use()}
	r.States, r.Sessions = s.table.Room()
	return r
}
