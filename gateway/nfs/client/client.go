// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// Options are the options of Dial. Owner is required.
type Options struct {
	Owner    string  // co_ownerid: names this client to the server, for ever
	Verifier [8]byte // of the client's incarnation; a new one ends the state of the former
	Minor    uint32  // 1 or 2; 0 means 2
	Caller   Cred    // the user of the requests; Client.As changes it
	Machine  string  // in the AUTH_SYS credential; Owner if empty
	Slots    uint32  // concurrent requests asked for; 0 means 32
	Flags    uint32  // of CREATE_SESSION; 0 asks for a persistent session
	NoWait   bool    // return NFS4ERR_DELAY and NFS4ERR_GRACE instead of asking again

	// TLS: each connection asks for TLS first (RFC 9289). nil: none does.
	TLS *tls.Config
	// DialContext connects to addr; nil means TCP.
	DialContext func(ctx context.Context, addr string) (net.Conn, error)
	// After is the clock for the time between two attempts; nil means time.After.
	After func(time.Duration) <-chan time.Time
}

// Cred is the user of an AUTH_SYS credential, with at most 16 groups.
type Cred = volume.Caller

// Client is an NFSv4 client with one session. It may be used from any goroutine.
type Client struct {
	*core
	cred xdr.AuthSys
}

// core is what the views that As makes of a Client share.
type core struct {
	opts     Options
	t        *transport
	clientID uint64
	createNo uint32 // csa_sequence of the next CREATE_SESSION
	session  atomic.Pointer[session]
	server   ServerInfo
}

// ServerInfo describes the server, from its answer to EXCHANGE_ID.
type ServerInfo struct {
	Owner     string // so_major_id
	Scope     string
	Confirmed bool // it knew this client already
}

// Stats counts RPC calls.
type Stats struct {
	Sent   uint64
	Resent uint64 // sent again after a connection was lost
}

// Dial connects to the server at addr, and makes a client id and a session. It
// does not send RECLAIM_COMPLETE, without which the server opens no file for a
// new client: the caller does, after it has reclaimed what it had.
func Dial(ctx context.Context, addr string, opts Options) (*Client, error) {
	if opts.Owner == "" {
		return nil, errors.New("dial nfs server: Options.Owner is empty: give the client a name of its own")
	}
	if opts.Minor == 0 {
		opts.Minor = 2
	}
	if opts.Slots == 0 {
		opts.Slots = 32
	}
	if opts.Machine == "" {
		opts.Machine = opts.Owner[:min(len(opts.Owner), 255)]
	}
	if opts.After == nil {
		opts.After = time.After
	}
	if opts.DialContext == nil {
		opts.DialContext = func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	c := &Client{core: &core{opts: opts}}
	c.t = &transport{after: opts.After, dial: func(ctx context.Context) (net.Conn, error) {
		raw, err := opts.DialContext(ctx, addr)
		if err != nil || opts.TLS == nil {
			return raw, err
		}
		return startTLS(ctx, raw, opts.TLS)
	}}
	c = c.As(opts.Caller)
	err := c.ExchangeID(ctx)
	if err == nil {
		err = c.NewSession(ctx)
	}
	if err != nil {
		c.t.shutdown()
		return nil, fmt.Errorf("dial nfs server %s: %w", addr, err)
	}
	return c, nil
}

// As returns a view of c whose requests are made on behalf of caller.
func (c *Client) As(caller Cred) *Client {
	return &Client{core: c.core, cred: xdr.AuthSys{
		Machine: c.opts.Machine, UID: caller.UID, GID: caller.GID, Groups: caller.Groups,
	}}
}

// ID returns the client id that the server assigned.
func (c *Client) ID() uint64 { return c.clientID }

// SessionID returns the id of the present session.
func (c *Client) SessionID() xdr.SessionID { return c.session.Load().id }

// Server returns the server's description of itself.
func (c *Client) Server() ServerInfo { return c.server }

// Stats returns how many calls were sent.
func (c *Client) Stats() Stats {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	return Stats{Sent: c.t.sent, Resent: c.t.resent}
}

// Disconnect ends the present connection. The client makes another one when it
// has something to send, and repeats the requests that were not answered.
func (c *Client) Disconnect() { c.t.disconnect(errors.New("disconnected")) }

// Abandon ends the client without telling the server, as a crash does.
func (c *Client) Abandon() { c.t.shutdown() }

// Close destroys the session and the client id, and disconnects. It closes the client
// in any case; an error is the server's. xdr.NFS4ERR_CLIENTID_BUSY means that there
// are open files or further sessions, which then last until the lease ends.
func (c *Client) Close(ctx context.Context) error {
	defer c.t.shutdown()
	id := c.SessionID()
	if err := c.bare(ctx, xdr.OP_DESTROY_SESSION, func(e *xdr.Encoder) { e.SessionID(id) }); err != nil {
		return fmt.Errorf("close nfs client: %w", err)
	}
	if err := c.bare(ctx, xdr.OP_DESTROY_CLIENTID, func(e *xdr.Encoder) { e.Uint64(c.clientID) }); err != nil {
		return fmt.Errorf("close nfs client: %w", err)
	}
	return nil
}

// bare sends one operation without a session, whose result has no body.
func (c *Client) bare(ctx context.Context, op xdr.Op, args func(*xdr.Encoder)) error {
	res, err := c.DoBare(ctx, NewCompound().Add(op, args))
	if err != nil {
		return err
	}
	defer res.Free()
	_, err = res.Next(op)
	return err
}
