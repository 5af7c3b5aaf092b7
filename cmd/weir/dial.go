// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/report"
	"github.com/weir-storage/weir/pki"
)

// statusTime is how long one gateway may take to tell its status.
const statusTime = 2 * time.Second

// dialer dials gateways with mutual TLS.
func dialer(creds *pki.Credentials) func(federation.Site, federation.Gateway) (*grpc.ClientConn, error) {
	return func(site federation.Site, g federation.Gateway) (*grpc.ClientConn, error) {
		want := pki.Expect{Organizations: []string{site.Organization}, Site: site.Name, Gateway: g.Name}
		return grpc.NewClient("passthrough:///"+g.Addr, grpc.WithTransportCredentials(credentials.NewTLS(creds.Client(want))),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(8<<20)))
	}
}

// refusal is what a gateway said no to, in its own words.
type refusal struct {
	code codes.Code
	text string
}

func (r *refusal) Error() string { return r.text }

// fromGateway strips gRPC's wrapping from what a call with ctx to a gateway met.
func fromGateway(ctx context.Context, g federation.Gateway, err error) error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.OK:
		return nil
	case codes.Unavailable:
		if _, why, ok := strings.Cut(s.Message(), "connection error: desc = "); ok {
			return &refusal{s.Code(), fmt.Sprintf("gateway %s at %s does not answer: %s", g.Name, g.Addr, strings.Trim(why, `"`))}
		}
	case codes.DeadlineExceeded:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // ours, not the gateway's
			return &refusal{s.Code(), fmt.Sprintf("gateway %s at %s does not answer in time", g.Name, g.Addr)}
		}
	}
	return &refusal{s.Code(), s.Message()}
}

// call runs f with a connection to a gateway, for at most limit.
func (c *client) call(ctx context.Context, limit time.Duration, site federation.Site, g federation.Gateway, f func(context.Context, forwardpb.ForwardClient) error) error {
	conn, err := c.dial(site, g)
	if err != nil {
		return fmt.Errorf("gateway %s at %s: %w", g.Name, g.Addr, err)
	}
	defer func() { _ = conn.Close() }() // the answer is here
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return fromGateway(ctx, g, f(ctx, forwardpb.NewForwardClient(conn)))
}

// answer is what a gateway told of its volumes, or why it did not.
type answer struct {
	volumes []report.VolumeStatus
	err     error
}

func (a answer) volume(uuid string) (report.VolumeStatus, bool) {
	for _, v := range a.volumes {
		if v.UUID == uuid {
			return v, true
		}
	}
	return report.VolumeStatus{}, false
}

// refused tells whether the gateway answered, but not to us.
func (a answer) refused() bool {
	var r *refusal
	return errors.As(a.err, &r) && r.code == codes.PermissionDenied
}

// ask asks all gateways at once for the status of one volume, or of all for "". Gateways that are not alive are asked
// too: one that is only cut from the registry goes on (rule 4).
func (c *client) ask(ctx context.Context, sites []federation.SiteStatus, uuid string) map[string]answer {
	var mu sync.Mutex
	out := map[string]answer{}
	var work sync.WaitGroup
	for _, s := range sites {
		for _, g := range s.Site.Gateways {
			work.Go(func() {
				var a answer
				a.err = c.call(ctx, statusTime, s.Site, g, func(ctx context.Context, f forwardpb.ForwardClient) error {
					r, err := f.Status(ctx, &forwardpb.StatusRequest{Volume: uuid})
					if err != nil {
						return err
					}
					return json.Unmarshal(r.GetJson(), &a.volumes)
				})
				mu.Lock()
				defer mu.Unlock()
				out[g.Name] = a
			})
		}
	}
	work.Wait()
	return out
}
