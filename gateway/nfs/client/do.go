// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// Do sends a COMPOUND in the session, SEQUENCE first, and returns the server's
// answer. Result.Next returns the failure of an operation. An error of Do means that
// there is no answer, or that SEQUENCE failed (xdr.NFS4ERR_BADSESSION: the session is
// lost). If ctx ends, the request may still be executed. A compound without Cache may
// be executed more than once if its reply is lost.
func (c *Client) Do(ctx context.Context, p *Compound) (*Result, error) {
	s := c.session.Load()
	free, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		call := c.message(p, &sequence{session: s.id, seq: free.seq + 1, slot: free.no, highest: s.fore.MaxRequests - 1})
		buf, err := c.t.roundTrip(ctx, call)
		if err != nil {
			c.finish(s, free, call)
			return nil, err
		}
		res, err := readResult(buf)
		if err == nil {
			err = res.sequence()
		}
		if errors.Is(err, xdr.NFS4ERR_RETRY_UNCACHED_REP) && !p.cache {
			free.seq++ // it was executed, and the reply was not to be kept
			continue
		}
		if err != nil {
			if errors.Is(err, xdr.NFS4ERR_DELAY) && !c.opts.NoWait { // the sequence number was not used
				select {
				case <-c.opts.After(wait):
					continue
				case <-ctx.Done():
				}
			}
			s.put(free)
			return nil, err
		}
		free.seq++
		s.put(free)
		return res, nil
	}
}

// finish waits for the reply to a call in the place of its caller, which does not
// wait any longer. Until then the slot stays in use (client-1).
func (c *Client) finish(s *session, free *slot, call *call) {
	own := xdr.NewEncoder(nil)
	own.Raw(call.msg.Bytes()) // a copy, if it refers to the caller's memory
	call.msg = own
	go func() {
		buf, err := c.t.roundTrip(context.Background(), call)
		if err != nil {
			return // the client was closed
		}
		res, err := readResult(buf)
		if err == nil {
			err = res.sequence()
		}
		if err == nil || errors.Is(err, xdr.NFS4ERR_RETRY_UNCACHED_REP) {
			free.seq++
		}
		buf.Free()
		s.put(free)
	}()
}

// DoSlot is Do with a slot and sequence number of the caller's choice, for tests
// of the server: the client's own slots do not know about it, and SEQUENCE's
// failure is found by Result.Next like any other's.
func (c *Client) DoSlot(ctx context.Context, slot, seq uint32, p *Compound) (*Result, error) {
	s := c.session.Load()
	return c.once(ctx, c.message(p, &sequence{session: s.id, seq: seq, slot: slot, highest: s.fore.MaxRequests - 1}))
}

// DoBare sends a COMPOUND as it is, without SEQUENCE.
func (c *Client) DoBare(ctx context.Context, p *Compound) (*Result, error) {
	return c.once(ctx, c.message(p, nil))
}

func (c *Client) once(ctx context.Context, call *call) (*Result, error) {
	buf, err := c.t.roundTrip(ctx, call)
	if err != nil {
		return nil, err
	}
	return readResult(buf)
}

// call sends p, and calls read with the answer after SEQUENCE. After NFS4ERR_DELAY
// and NFS4ERR_GRACE it asks again (client-3).
func (c *Client) call(ctx context.Context, p *Compound, read func(*Result) error) error {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		res, err := c.Do(ctx, p)
		if err != nil {
			return err
		}
		err = read(res)
		res.Free()
		again := errors.Is(err, xdr.NFS4ERR_DELAY) || errors.Is(err, xdr.NFS4ERR_GRACE)
		if !again || c.opts.NoWait {
			return err
		}
		select {
		case <-c.opts.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
	}
}

// void sends operations whose results have no body.
func (c *Client) void(ctx context.Context, p *Compound) error {
	return c.call(ctx, p, func(res *Result) error { return res.skip(p.names()...) })
}
