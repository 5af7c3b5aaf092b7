// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// renewEvery is well below the time of a lease, even with a gateway that does not answer for a
// while.
const renewEvery = 10 * time.Second

// Client is an NFS client of a site's gateway. It runs on the site's host. It caches nothing, so it
// reads what the gateway says. It renews its lease until the test ends.
func (s *Scene) Client(site string) *client.Client {
	s.T.Helper()
	at := s.Bed.Site(site)
	if err := s.Bed.Admit(s.Ctx, "v", site, at.Addr()); err != nil {
		s.T.Fatal(err)
	}
	options := client.Options{Owner: "host of " + site, DialContext: func(ctx context.Context, addr string) (net.Conn, error) {
		return at.DialContext(ctx, "tcp", addr)
	}}
	c, err := client.Dial(s.Ctx, at.NFSAddr(), options)
	for err != nil && strings.Contains(err.Error(), "refuses the credential") && s.Ctx.Err() == nil { // its admission has not arrived
		time.Sleep(20 * time.Millisecond)
		c, err = client.Dial(s.Ctx, at.NFSAddr(), options)
	}
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(c.Abandon)
	if err := c.ReclaimComplete(s.Ctx); err != nil {
		s.T.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.Ctx)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		for ctx.Err() == nil {
			_, _ = c.Renew(ctx) // what it does not do in time, the next request tells
			select {
			case <-time.After(renewEvery):
			case <-ctx.Done():
			}
		}
	}()
	s.T.Cleanup(func() {
		stop()
		<-renewed
	})
	return c
}

// Root is the volume's root for a client, once its admission has arrived.
func (s *Scene) Root(c *client.Client) client.FH {
	s.T.Helper()
	for {
		a, err := c.Mount(s.Ctx, "v")
		if err == nil {
			return a.FH
		}
		if !errors.Is(err, xdr.NFS4ERR_NOENT) || s.Ctx.Err() != nil {
			s.T.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
