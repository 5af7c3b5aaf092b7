// SPDX-License-Identifier: Apache-2.0

package caching

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/gateway/forward/forwardpb"
)

// Cache implements forwardpb.ForwardServer's method. Its errors are those of Config.Own, too.
func (c *Caching) Cache(ctx context.Context, _ *forwardpb.CacheRequest) (*forwardpb.CacheReply, error) {
	if err := c.cfg.Own(ctx); err != nil {
		return nil, err
	}
	b, err := json.Marshal(c.Status())
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &forwardpb.CacheReply{Json: b}, nil
}

// warmTell is how often Warm tells how far it is, at most.
const warmTell = 250 * time.Millisecond

// Warm is forwardpb.ForwardServer's method. Its errors are those of Config.Own, too.
func (c *Caching) Warm(q *forwardpb.WarmRequest, to forwardpb.Forward_WarmServer) error {
	if err := c.cfg.Own(to.Context()); err != nil {
		return err
	}
	var last time.Time
	return c.Bring(to.Context(), q.GetVolume(), q.GetPath(), func(p *forwardpb.WarmProgress) error {
		if now := c.cfg.Now(); p.GetDone() || now.Sub(last) >= warmTell || now.Before(last) {
			last = now
			return to.Send(p)
		}
		return nil
	})
}
