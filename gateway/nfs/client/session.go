// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// session is the fore channel of one session.
type session struct {
	id    xdr.SessionID
	flags uint32
	fore  xdr.ChannelAttrs

	tokens chan struct{} // one for each free slot
	mu     sync.Mutex    // guards what follows
	free   []*slot       // the last one is used next, so that few slots are used
}

// take waits for a free slot.
func (s *session) take(ctx context.Context) (*slot, error) {
	select {
	case <-s.tokens:
	case <-ctx.Done():
		return nil, fmt.Errorf("nfs call: no free slot: %w", ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return last, nil
}

// put makes a slot free.
func (s *session) put(free *slot) {
	s.mu.Lock()
	s.free = append(s.free, free)
	s.mu.Unlock()
	s.tokens <- struct{}{}
}

// slot is used by one request at a time.
type slot struct {
	no  uint32
	seq uint32 // of the last request
}

// channel is what the client asks for in both directions.
const (
	askRequest = 1<<20 + 64<<10
	askCached  = 64 << 10
	askOps     = 64
)

// ExchangeID sends EXCHANGE_ID: it makes the client id, or confirms it.
func (c *Client) ExchangeID(ctx context.Context) error {
	res, err := c.DoBare(ctx, NewCompound().Add(xdr.OP_EXCHANGE_ID, func(e *xdr.Encoder) {
		e.Verifier(c.opts.Verifier)
		e.String(c.opts.Owner)
		e.Uint32(0)
		e.Uint32(xdr.SP4_NONE)
		e.Uint32(0) // implementation
	}))
	if err != nil {
		return err
	}
	defer res.Free()
	d, err := res.Next(xdr.OP_EXCHANGE_ID)
	if err != nil {
		return err
	}
	c.clientID, c.createNo = d.Uint64(), d.Uint32()
	flags := d.Uint32()
	if how := d.Uint32(); how != xdr.SP4_NONE && d.Err() == nil {
		return fmt.Errorf("exchange id: server chose state protection %d, SP4_NONE was asked for", how)
	}
	d.Uint64() // so_minor_id
	c.server = ServerInfo{
		Owner: d.String(xdr.NFS4_OPAQUE_LIMIT), Scope: d.String(xdr.NFS4_OPAQUE_LIMIT),
		Confirmed: flags&xdr.EXCHGID4_FLAG_CONFIRMED_R != 0,
	}
	return res.check(xdr.OP_EXCHANGE_ID)
}

// NewSession makes a session and uses it from then on. Requests under way go on in the
// former session. It must not be called concurrently with itself or ExchangeID.
func (c *Client) NewSession(ctx context.Context) error {
	flags := c.opts.Flags
	if flags == 0 {
		flags = xdr.CREATE_SESSION4_FLAG_PERSIST
	}
	channel := xdr.ChannelAttrs{
		MaxRequestSize: askRequest, MaxResponseSize: askRequest, MaxResponseSizeCached: askCached,
		MaxOperations: askOps, MaxRequests: c.opts.Slots,
	}
	res, err := c.DoBare(ctx, NewCompound().Add(xdr.OP_CREATE_SESSION, func(e *xdr.Encoder) {
		e.Uint64(c.clientID)
		e.Uint32(c.createNo)
		e.Uint32(flags)
		e.ChannelAttrs(channel)
		e.ChannelAttrs(xdr.ChannelAttrs{MaxRequestSize: 4096, MaxResponseSize: 4096, MaxOperations: 2, MaxRequests: 1})
		e.Uint32(0x40000000) // callback program
		e.Uint32(1)          // one kind of credential
		e.Uint32(xdr.AUTH_NONE)
	}))
	if err != nil {
		return err
	}
	defer res.Free()
	d, err := res.Next(xdr.OP_CREATE_SESSION)
	if err != nil {
		return err
	}
	s := &session{id: d.SessionID()}
	d.Uint32() // sequence
	s.flags = d.Uint32()
	s.fore = d.ChannelAttrs()
	d.ChannelAttrs()
	if err := res.check(xdr.OP_CREATE_SESSION); err != nil {
		return err
	}
	if s.fore.MaxRequests == 0 || s.fore.MaxRequests > 1<<16 {
		return fmt.Errorf("create session: server grants %d slots", s.fore.MaxRequests)
	}
	c.createNo++
	s.tokens = make(chan struct{}, s.fore.MaxRequests)
	for no := s.fore.MaxRequests; no > 0; no-- {
		s.put(&slot{no: no - 1})
	}
	c.session.Store(s)
	return nil
}

// Persistent reports whether the server keeps the session over restarts.
func (c *Client) Persistent() bool {
	return c.session.Load().flags&xdr.CREATE_SESSION4_FLAG_PERSIST != 0
}

// Channel returns what the server granted to the session.
func (c *Client) Channel() xdr.ChannelAttrs { return c.session.Load().fore }

// Renew renews the lease and returns the server's status flags (SEQ4_STATUS_…).
func (c *Client) Renew(ctx context.Context) (flags uint32, err error) {
	res, err := c.Do(ctx, NewCompound())
	if err != nil {
		return 0, err
	}
	defer res.Free()
	return res.Flags, nil
}

// ReclaimComplete sends RECLAIM_COMPLETE: nothing more will be reclaimed.
func (c *Client) ReclaimComplete(ctx context.Context) error {
	return c.void(ctx, NewCompound().Add(xdr.OP_RECLAIM_COMPLETE, func(e *xdr.Encoder) { e.Bool(false) }))
}

// LeaseTime asks the server for the time after which it drops a silent client.
func (c *Client) LeaseTime(ctx context.Context) (time.Duration, error) {
	var lease time.Duration
	err := c.call(ctx, NewCompound().PutRootFH().GetAttr(xdr.NewBitmap(xdr.FATTR4_LEASE_TIME)), func(res *Result) error {
		if err := res.skip(xdr.OP_PUTROOTFH); err != nil {
			return err
		}
		d, err := res.Next(xdr.OP_GETATTR)
		if err != nil {
			return err
		}
		d.Bitmap()
		d.Uint32()
		lease = time.Duration(d.Uint32()) * time.Second
		return res.check(xdr.OP_GETATTR)
	})
	return lease, err
}
