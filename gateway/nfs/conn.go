// SPDX-License-Identifier: Apache-2.0

package nfs

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/state"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

const (
	// maxRecord bounds one request, with RPC header.
	maxRecord   = maxRequest + 4096
	readBuffer  = 8 << 10
	replyBuffer = 1 << 10
)

// conn is one TCP connection.
type conn struct {
	s    *Server
	nc   net.Conn
	addr netip.Addr
	name string // addr, as text
	// privileged: it comes from a port that only root may use.
	privileged bool
	// certificate names the one that the client showed: then it is one of TLS. Set before any
	// request is executed.
	certificate string

	// strange: no volume admitted the client when it connected. Server.mu guards it.
	strange bool
	cut     bool // it did not get on, and is closed; Server.mu guards it
	// session is the one that a request used last; nil: none did.
	session atomic.Pointer[state.Session]
	times   *times
	running atomic.Int64 // requests

	write   sync.Mutex
	out     io.Writer // what replies go to; guarded by write
	flush   func() error
	writing atomic.Pointer[time.Time] // since when a reply is being written; nil if none is
	once    sync.Once
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{s: s, nc: nc, out: nc, flush: func() error { return nil }, times: newTimes(s.cfg.Clock.Now())}
	if ap, err := netip.ParseAddrPort(nc.RemoteAddr().String()); err == nil {
		c.addr = ap.Addr().Unmap().WithZone("")
		c.privileged = ap.Port() != 0 && ap.Port() < 1024
	}
	c.name = c.addr.String()
	return c
}

func parseAddr(s string) (netip.Addr, error) { return netip.ParseAddr(s) }

func (c *conn) disconnect() {
	c.once.Do(func() { _ = c.nc.Close() }) // the client repeats requests without an answer
}

// serve reads requests until the connection ends. Each runs on a goroutine of its own,
// which may outlive the connection (nfs-5).
func (c *conn) serve() {
	defer func() {
		c.disconnect()
		c.s.left(c)
	}()
	r := bufio.NewReaderSize(&heard{c, c.nc}, readBuffer)
	for first := true; ; first = false {
		buf, size, takes, err := c.read(r)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				c.s.cfg.Log.Debug("nfs connection ends", "client", c.addr, "err", err)
			}
			return
		}
		xid, asks := uint32(0), false
		if first && c.s.cfg.StartTLS != nil {
			xid, asks = asksForTLS(buf.B)
		}
		if asks {
			c.s.requestRoom.Add(c.addr, -takes)
			buf.Free()
			secured, err := c.startTLS(xid, r)
			if err != nil {
				c.notSecured(err)
				return
			}
			defer func() { _ = secured.Close() }() // the client repeats requests without an answer
			r = bufio.NewReaderSize(&heard{c, secured}, readBuffer)
			continue
		}
		if takes == 0 {
			c.s.refusedFor[Memory].Add(1)
			c.handle(buf, size, true) // it waits for nothing
			buf.Free()
			continue
		}
		c.running.Add(1)
		c.s.work.Go(func() {
			defer func() {
				c.times.heard(c.s.cfg.Clock.Now())
				c.running.Add(-1)
			}()
			defer c.s.requestRoom.Add(c.addr, -takes)
			c.handle(buf, size, false)
			buf.Free()
		})
	}
}

// read reads one request. takes is what it takes of the memory for requests; 0: there is none, and
// buf has only the beginning.
func (c *conn) read(r *bufio.Reader) (buf *xdr.Buffer, size, takes int, err error) {
	if _, err := r.Peek(1); err != nil {
		return nil, 0, 0, err
	}
	c.times.begin(c.s.cfg.Clock.Now())
	// Of who is admitted to no volume and showed no session here, only the beginning is kept.
	strange := c.session.Load() == nil && c.s.admitted(c) != nil
	reserve := func(n int) bool {
		if n > takes && !c.wait(c.s.requestRoom, n-takes) {
			return false
		}
		takes = max(takes, n)
		return true
	}
	buf, size, err = xdr.ReadRecordWithin(r, maxRecord, func(n int) bool { return !strange && reserve(n) })
	c.times.end(c.s.cfg.Clock.Now())
	if whole := err == nil && len(buf.B) == size; !whole || !reserve(requestTakes) {
		c.s.requestRoom.Add(c.addr, -takes)
		takes = 0
	}
	return buf, size, takes, err
}

// handle executes one request and sends its answer, if there is one. of says how long the request
// is. If there is no memory for it, it is only told to come again (rule nfs-10).
func (c *conn) handle(buf *xdr.Buffer, of int, later bool) {
	c.s.requests.Add(1)
	out := xdr.NewBuffer(replyBuffer)
	r := reply{Encoder: xdr.NewEncoder(out.B)}
	defer func() {
		if v := recover(); v != nil {
			c.panicked("nfs request panicked", v)
			c.disconnect() // what was written of the answer may be half of it
		}
		c.s.replyRoom.Add(c.addr, -r.takes)
	}()
	switch c.dispatch(xdr.NewDecoder(buf.B), &r, of, later) {
	case answered:
		if err := c.answer(&r); err != nil {
			c.disconnect()
		}
	case closeConnection:
		c.disconnect()
	}
	r.free()
	out.Free()
}

func (c *conn) answer(r *reply) error {
	c.write.Lock()
	defer c.write.Unlock()
	now := c.s.cfg.Clock.Now()
	c.writing.Store(&now)
	defer c.writing.Store(nil)
	if err := xdr.WriteRecord(c.out, r.Encoder); err != nil {
		return err
	}
	return c.flush()
}

// panicked counts a panic, and logs the stack of the function that deferred the caller.
func (c *conn) panicked(what string, v any, attrs ...any) {
	c.s.panics.Add(1)
	c.s.cfg.Log.Error(what, append(attrs, "client", c.addr, "panic", v, "stack", string(debug.Stack()))...)
}

// reply is an answer with the buffers to which it refers.
type reply struct {
	*xdr.Encoder
	bufs  []*xdr.Buffer
	takes int // of the memory for replies
}

func (r *reply) free() {
	for _, b := range r.bufs {
		b.Free()
	}
	r.bufs = nil
}

type outcome uint8

const (
	answered outcome = iota
	closeConnection
)

// dispatch handles the RPC layer, RFC 5531 section 9.
func (c *conn) dispatch(d *xdr.Decoder, r *reply, size int, later bool) outcome {
	h := d.CallHeader()
	switch {
	case d.Err() != nil && d.Offset() < 8, errors.Is(d.Err(), xdr.ErrNotCall):
		return closeConnection // not a call: there is nothing to answer
	case h.RPCVersion != xdr.RPC_VERSION:
		r.DeniedHeader(h.XID, xdr.RPC_MISMATCH, xdr.RPC_VERSION, xdr.RPC_VERSION)
		return answered
	case d.Err() != nil:
		r.DeniedHeader(h.XID, xdr.AUTH_ERROR, xdr.AUTH_BADCRED, 0)
		return answered
	case h.Program != xdr.NFS4_PROGRAM:
		r.AcceptedHeader(h.XID, xdr.PROG_UNAVAIL)
		return answered
	case h.Version != xdr.NFS_V4:
		r.AcceptedHeader(h.XID, xdr.PROG_MISMATCH)
		r.Uint32(xdr.NFS_V4)
		r.Uint32(xdr.NFS_V4)
		return answered
	case h.Procedure == xdr.NFSPROC4_NULL:
		r.AcceptedHeader(h.XID, xdr.SUCCESS)
		return answered
	case h.Procedure != xdr.NFSPROC4_CMPND:
		r.AcceptedHeader(h.XID, xdr.PROC_UNAVAIL)
		return answered
	}
	cred, auth := credential(h.Cred)
	if auth != 0 {
		c.s.refusedFor[Credential].Add(1)
		r.DeniedHeader(h.XID, xdr.AUTH_ERROR, auth, 0)
		return answered
	}
	return c.compound(h.XID, cred, d, r, size, later)
}

// credential reads an AUTH_SYS credential. If it is refused, auth is the auth_stat
// that says why.
func credential(a xdr.OpaqueAuth) (caller volume.Caller, auth uint32) {
	switch a.Flavor {
	case xdr.AUTH_SYS:
	case xdr.AUTH_NONE:
		return caller, xdr.AUTH_TOOWEAK
	default:
		return caller, xdr.AUTH_REJECTEDCRED
	}
	d := xdr.NewDecoder(a.Body)
	sys := d.AuthSys()
	if d.Err() != nil || d.Len() != 0 {
		return caller, xdr.AUTH_BADCRED
	}
	return volume.Caller{UID: sys.UID, GID: sys.GID, Groups: sys.Groups}, 0
}
