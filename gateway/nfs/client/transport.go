// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// ErrClosed is returned after Close.
var ErrClosed = errors.New("nfs client is closed")

// maxReply bounds the replies that are read, in bytes.
const maxReply = 2 << 20

// transport sends RPC calls over one connection at a time. It sends them again after
// the connection was lost.
type transport struct {
	dial  func(ctx context.Context) (net.Conn, error)
	after func(time.Duration) <-chan time.Time

	dialing sync.Mutex // locked while a connection is made

	mu     sync.Mutex // guards what follows
	conn   *conn
	xid    uint32
	closed bool
	sent   uint64 // calls
	resent uint64 // calls that were sent again
}

// conn is one connection. Its reader passes replies to the calls that wait for them.
type conn struct {
	nc    net.Conn
	write sync.Mutex

	mu    sync.Mutex // guards what follows
	calls map[uint32]*call
	err   error         // why the connection ended
	ended chan struct{} // closed with err
}

// call is one RPC call until its reply came.
type call struct {
	xid   uint32
	msg   *xdr.Encoder
	reply chan *xdr.Buffer // has room for one
}

// begin gives a call its XID.
func (t *transport) begin() *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.xid++
	return &call{xid: t.xid, reply: make(chan *xdr.Buffer, 1)}
}

// roundTrip sends c until a reply came, and returns it. If ctx ends first, the
// error wraps ctx.Err() and the call may have been executed.
func (t *transport) roundTrip(ctx context.Context, c *call) (*xdr.Buffer, error) {
	for try := 0; ; try++ {
		nc, err := t.connection(ctx)
		if err != nil {
			return nil, err
		}
		t.count(try)
		nc.send(ctx, c)
		select {
		case buf := <-c.reply:
			return buf, nil
		case <-nc.ended:
			select { // the reply may have come before the end
			case buf := <-c.reply:
				return buf, nil
			default:
			}
		case <-ctx.Done():
			nc.forget(c)
			return nil, fmt.Errorf("nfs call: no reply yet: %w", ctx.Err())
		}
	}
}

func (t *transport) count(try int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if try == 0 {
		t.sent++
	} else {
		t.resent++
	}
}

// connection returns the connection, making one if there is none, until ctx ends.
func (t *transport) connection(ctx context.Context) (*conn, error) {
	if nc, err := t.current(); nc != nil || err != nil {
		return nc, err
	}
	t.dialing.Lock()
	defer t.dialing.Unlock()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if nc, err := t.current(); nc != nil || err != nil {
			return nc, err
		}
		raw, err := t.dial(ctx)
		if err == nil {
			return t.adopt(raw)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to nfs server: %w (last attempt: %w)", ctx.Err(), err)
		case <-t.after(wait):
		}
	}
}

// current returns the connection if it is alive.
func (t *transport) current() (*conn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrClosed
	}
	if t.conn == nil || t.conn.dead() {
		return nil, nil
	}
	return t.conn, nil
}

func (t *transport) adopt(raw net.Conn) (*conn, error) {
	nc := &conn{nc: raw, calls: make(map[uint32]*call), ended: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errors.Join(ErrClosed, raw.Close())
	}
	t.conn = nc
	go nc.read()
	return nc, nil
}

// disconnect ends the present connection, if there is one.
func (t *transport) disconnect(why error) {
	t.mu.Lock()
	nc := t.conn
	t.mu.Unlock()
	if nc != nil {
		nc.end(why)
	}
}

func (t *transport) shutdown() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.disconnect(ErrClosed)
}

// send registers c and writes it. A failure ends the connection, and so does the
// end of ctx during the write, because the memory of c is the caller's.
func (nc *conn) send(ctx context.Context, c *call) {
	nc.mu.Lock()
	nc.calls[c.xid] = c
	nc.mu.Unlock()
	nc.write.Lock()
	stop := context.AfterFunc(ctx, func() { nc.end(ctx.Err()) })
	err := xdr.WriteRecord(nc.nc, c.msg)
	stop()
	nc.write.Unlock()
	if err != nil {
		nc.end(err)
	}
}

// forget stops waiting for the reply to c.
func (nc *conn) forget(c *call) {
	nc.mu.Lock()
	delete(nc.calls, c.xid)
	nc.mu.Unlock()
}

// read passes replies to their calls until the connection ends.
func (nc *conn) read() {
	r := bufio.NewReaderSize(nc.nc, 64<<10)
	for {
		buf, err := xdr.ReadRecord(r, maxReply)
		if err != nil {
			nc.end(err)
			return
		}
		d := xdr.NewDecoder(buf.B)
		xid := d.Uint32()
		nc.mu.Lock()
		c := nc.calls[xid]
		delete(nc.calls, xid)
		nc.mu.Unlock()
		if c == nil { // nobody waits any more
			buf.Free()
			continue
		}
		c.reply <- buf
	}
}

func (nc *conn) end(err error) {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	if nc.err == nil {
		nc.err = err
		close(nc.ended)
		_ = nc.nc.Close() // whatever was not answered is sent again
	}
}

func (nc *conn) dead() bool {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	return nc.err != nil
}
