// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/pki"
	"github.com/weir-storage/weir/pki/transport"
)

// Dialer dials gateways with mutual TLS.
func Dialer(creds *pki.Credentials) func(federation.Site, federation.Gateway) (*grpc.ClientConn, error) {
	return func(site federation.Site, g federation.Gateway) (*grpc.ClientConn, error) {
		want := pki.Expect{Organizations: []string{site.Organization}, Site: site.Name, Gateway: g.Name}
		return grpc.NewClient("passthrough:///"+g.Addr, grpc.WithTransportCredentials(transport.Client(creds, creds.Client(want))),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(8<<20)))
	}
}

// trusting dials gateways of other organizations too: before the first time it takes the charter
// that the registry has, which says who vouches for them.
func trusting(registry federation.Charters, creds *pki.Credentials) func(federation.Site, federation.Gateway) (*grpc.ClientConn, error) {
	dial := Dialer(creds)
	var once sync.Once
	var failed error
	return func(site federation.Site, g federation.Gateway) (*grpc.ClientConn, error) {
		once.Do(func() { failed = adopt(registry, creds) })
		if failed != nil {
			return nil, failed
		}
		return dial(site, g)
	}
}

// charterTime is how long a command waits for the registry's charter.
const charterTime = 10 * time.Second

func adopt(registry federation.Charters, creds *pki.Credentials) error {
	ctx, cancel := context.WithTimeout(context.Background(), charterTime)
	defer cancel()
	c, _, err := registry.GetCharter(ctx)
	if errors.Is(err, federation.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := creds.Adopt(c.Signed); err != nil {
		return fmt.Errorf("the registry's charter: %w: --ca is to name a file that has the founding authority's certificate", err)
	}
	return nil
}

// Refusal is why a gateway refused a call, or did not answer it. Text is the gateway's own, if any.
type Refusal struct {
	Code codes.Code
	Text string
}

func (r *Refusal) Error() string { return r.Text }

// Silent reports whether the gateway was not reached, or gave no answer in time. Then Text may
// differ from try to try: names, ports and timeouts are in it. Some calls are answered with these
// codes by gateways themselves.
func (r *Refusal) Silent() bool {
	return r.Code == codes.Unavailable || r.Code == codes.DeadlineExceeded || r.Code == codes.Canceled
}

// fromGateway turns the gRPC error of a call with ctx into a Refusal.
func fromGateway(ctx context.Context, g federation.Gateway, err error) error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.OK:
		return nil
	case codes.Unavailable:
		if _, why, ok := strings.Cut(s.Message(), "connection error: desc = "); ok {
			text := fmt.Sprintf("gateway %s at %s does not answer: %s", g.Name, g.Addr, strings.Trim(why, `"`))
			return &Refusal{s.Code(), text}
		}
	case codes.DeadlineExceeded:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // ours, not the gateway's
			return &Refusal{s.Code(), fmt.Sprintf("gateway %s at %s does not answer in time", g.Name, g.Addr)}
		}
	}
	return &Refusal{s.Code(), s.Message()}
}

// Call runs f with a connection to a gateway, for at most limit. A gateway's error becomes a
// Refusal.
func (c *Client) Call(ctx context.Context, limit time.Duration, site federation.Site, g federation.Gateway,
	f func(context.Context, forwardpb.ForwardClient) error) error {
	conn, err := c.Dial(site, g)
	if err != nil {
		return fmt.Errorf("gateway %s at %s: %w", g.Name, g.Addr, err)
	}
	defer func() { _ = conn.Close() }() // the answer has arrived
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return fromGateway(ctx, g, f(ctx, forwardpb.NewForwardClient(conn)))
}
