// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/state/statetest"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// hang guards tests against waiting for ever.
const hang = 30 * time.Second

// rig is a server over an in-memory volume that can be restarted.
type rig struct {
	t     *testing.T
	vol   *memvol.Volume
	srv   *Server
	store statetest.Store
	clock fakeClock
	boot  uint64
	log   lockedBuffer

	unsettled atomic.Bool // see Exports

	memory  int
	slow    time.Duration
	observe func(Operation)
	// startTLS is Config.StartTLS.
	startTLS func(context.Context, net.Conn) (net.Conn, string, error)

	mu      sync.Mutex
	before  func(op string, h volume.Handle) error
	ops     map[string]int // calls of the volume
	refused map[netip.Addr]bool
	ro      bool
	deleted bool
	export  Export // IDs and Privileged of the volume
}

var volID = volume.ID{1, 2, 3, 15: 9}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, ops: map[string]int{}, refused: map[netip.Addr]bool{}}
	r.clock.now = time.Unix(1e9, 0)
	r.vol = memvol.New(volID, memvol.WithBefore(func(op string, h volume.Handle) error {
		r.mu.Lock()
		r.ops[op]++
		f := r.before
		r.mu.Unlock()
		if f != nil {
			return f(op, h)
		}
		return nil
	}))
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *rig) start() {
	r.boot++
	srv, err := New(Config{
		Gateway: "g1", ServerOwner: "owner", ServerScope: "scope", Boot: r.boot, Lease: 10 * time.Second,
		Exports: r, State: &r.store, Clock: &r.clock, Rand: rand.Reader, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Memory: r.memory, Slow: r.slow, Observe: r.observe, StartTLS: r.startTLS,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.srv = srv
}

func (r *rig) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	if err := r.srv.Shutdown(ctx); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) restart() {
	r.stop()
	r.start()
}

func (r *rig) setBefore(f func(op string, h volume.Handle) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = f
}

func (r *rig) count(op string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ops[op]
}

func (r *rig) Exports(client netip.Addr) []Export {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused[client] {
		return nil
	}
	return []Export{r.exported()}
}

// Unsettled implements Exports.
func (r *rig) Unsettled(netip.Addr) bool { return r.unsettled.Load() }

func (r *rig) Named(name string) error {
	if name == "vol" {
		return ErrNotAdmitted
	}
	return ErrDeleted
}

func (r *rig) Open(client netip.Addr, id volume.ID) (volume.Volume, Export, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case id != volID:
		return nil, Export{}, ErrNoVolume
	case r.deleted:
		return nil, Export{}, ErrDeleted
	case r.refused[client]:
		return nil, Export{}, ErrNotAdmitted
	}
	return r.vol, r.exported(), nil
}

// exported is the volume as clients see it. The caller holds mu.
func (r *rig) exported() Export {
	x := r.export
	x.Name, x.ID, x.ReadOnly = "vol", volID, r.ro
	return x
}

// says changes who clients are.
func (r *rig) says(x Export) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.export = x
}

// remove deletes the volume.
func (r *rig) remove() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deleted = true
}

func (r *rig) refuse(client string, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[netip.MustParseAddr(client)] = refused
}

type fakeClock struct {
	mu     sync.Mutex
	now    time.Time
	timers []timer
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.timers = slices.DeleteFunc(c.timers, func(t timer) bool {
		if c.now.Before(t.at) {
			return false
		}
		t.ch <- c.now
		return true
	})
}

// After returns a channel that receives when advance has moved the clock by d.
func (c *fakeClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	c.timers = append(c.timers, timer{c.now.Add(d), ch})
	return ch
}

type timer struct {
	at time.Time
	ch chan time.Time
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// pipeConn is an in-process connection with an address.
type pipeConn struct {
	net.Conn
	addr string
}

func (c pipeConn) RemoteAddr() net.Addr { return pipeAddr(c.addr) }

type pipeAddr string

func (a pipeAddr) Network() string { return "pipe" }
func (a pipeAddr) String() string  { return string(a) }

// peer is the client's end of a connection.
type peer struct {
	t  *testing.T
	nc net.Conn
}

func (r *rig) connect(addr string) *peer { return r.connectFrom(addr + ":700") }

func (r *rig) connectFrom(from string) *peer {
	client, server := net.Pipe()
	r.srv.serveConn(pipeConn{server, from})
	r.t.Cleanup(func() { _ = client.Close() })
	return &peer{r.t, client}
}

func authSys(uid uint32) xdr.OpaqueAuth {
	var e xdr.Encoder
	e.AuthSys(xdr.AuthSys{Machine: "m", UID: uid, GID: uid})
	return xdr.OpaqueAuth{Flavor: xdr.AUTH_SYS, Body: e.Bytes()}
}

// send writes one call.
func (p *peer) send(h xdr.CallHeader, body []byte) {
	var e xdr.Encoder
	e.CallHeader(h)
	e.Raw(body)
	if err := p.nc.SetDeadline(time.Now().Add(hang)); err != nil {
		p.t.Fatal(err)
	}
	if err := xdr.WriteRecord(p.nc, &e); err != nil {
		p.t.Fatal(err)
	}
}

// receive reads one reply; nil if the connection was closed instead.
func (p *peer) receive() []byte {
	b, err := xdr.ReadRecord(p.nc, maxRecord)
	if err != nil {
		return nil
	}
	return b.B
}

func (p *peer) rpc(h xdr.CallHeader, body []byte) (xdr.ReplyHeader, *xdr.Decoder) {
	p.t.Helper()
	p.send(h, body)
	b := p.receive()
	if b == nil {
		p.t.Fatal("connection closed without an answer")
	}
	d := xdr.NewDecoder(b)
	return d.ReplyHeader(), d
}

func nfsCall(uid uint32) xdr.CallHeader {
	return xdr.CallHeader{XID: 7, Program: xdr.NFS4_PROGRAM, Version: xdr.NFS_V4, Procedure: xdr.NFSPROC4_CMPND, Cred: authSys(uid)}
}

// arg is one encoded operation.
type arg func(*xdr.Encoder)

func op(o xdr.Op, args ...any) arg {
	return func(e *xdr.Encoder) {
		e.Uint32(uint32(o))
		for _, a := range args {
			switch a := a.(type) {
			case int:
				e.Uint32(uint32(a))
			case uint32:
				e.Uint32(a)
			case uint64:
				e.Uint64(a)
			case bool:
				e.Bool(a)
			case string:
				e.String(a)
			case []byte:
				e.Opaque(a)
			case xdr.Stateid:
				e.Stateid(a)
			case xdr.Bitmap:
				e.Bitmap(a)
			case xdr.SessionID:
				e.SessionID(a)
			case [8]byte:
				e.Verifier(a)
			case xdr.ChannelAttrs:
				e.ChannelAttrs(a)
			default:
				panic("rig: cannot encode this type")
			}
		}
	}
}

func compoundBody(minor uint32, ops ...arg) []byte {
	var e xdr.Encoder
	e.String("")
	e.Uint32(minor)
	e.Uint32(uint32(len(ops)))
	for _, o := range ops {
		o(&e)
	}
	return e.Bytes()
}

// answer is a COMPOUND's reply. Its decoder is at the first result that was not read.
type answer struct {
	*xdr.Decoder
	t      *testing.T
	status xdr.Status
	count  uint32
	raw    []byte
}

func (p *peer) answer(b []byte) *answer {
	p.t.Helper()
	d := xdr.NewDecoder(b)
	if h := d.ReplyHeader(); h.Denied || h.Stat != xdr.SUCCESS {
		p.t.Fatalf("rpc reply %+v", h)
	}
	a := &answer{Decoder: d, t: p.t, raw: b, status: xdr.Status(d.Uint32())}
	d.String(1024)
	a.count = d.Uint32()
	return a
}

func (p *peer) compound(uid uint32, ops ...arg) *answer {
	p.t.Helper()
	p.send(nfsCall(uid), compoundBody(2, ops...))
	b := p.receive()
	if b == nil {
		p.t.Fatal("connection closed without an answer")
	}
	return p.answer(b)
}

// result reads the head of the next result, which must be of o.
func (a *answer) result(o xdr.Op) xdr.Status {
	a.t.Helper()
	if got := xdr.Op(a.Uint32()); got != o {
		a.t.Fatalf("result is of %v, want %v", got, o)
	}
	return xdr.Status(a.Uint32())
}

// ok reads the head of the next result, which must be of o and NFS4_OK.
func (a *answer) ok(o xdr.Op) *answer {
	a.t.Helper()
	a.want(o, xdr.NFS4_OK)
	return a
}

func (a *answer) want(o xdr.Op, st xdr.Status) {
	a.t.Helper()
	if got := a.result(o); got != st {
		a.t.Fatalf("%v: %v, want %v", o, got, st)
	}
}
