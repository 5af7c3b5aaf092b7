// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/gateway/checking"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/gateway/space"
)

// service implements the calls of other gateways and of operators.
type service struct {
	unserved
	routing.Server
	*space.Counter
	*checking.Checks
	g *Gateway
}

// unserved answers what nothing else of a service does: its methods lie a level below theirs.
type unserved struct {
	forwardpb.UnimplementedForwardServer
}

// Status implements the service. Everybody with a certificate of the federation may ask.
func (s *service) Status(ctx context.Context, q *forwardpb.StatusRequest) (*forwardpb.StatusReply, error) {
	if _, err := s.g.peers.Identity(ctx); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	b, err := json.Marshal(s.g.reporter.Status(q.GetVolume()))
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &forwardpb.StatusReply{Json: b}, nil
}

// Cache implements the service, for the gateway's own organization.
func (s *service) Cache(ctx context.Context, q *forwardpb.CacheRequest) (*forwardpb.CacheReply, error) {
	return s.g.caching.Cache(ctx, q)
}

// Warm implements the service, for the gateway's own organization.
func (s *service) Warm(q *forwardpb.WarmRequest, to forwardpb.Forward_WarmServer) error {
	return s.g.caching.WarmAll(q, to)
}

// Failover implements the service: called at the gateway that is to become home.
func (s *service) Failover(ctx context.Context, q *forwardpb.FailoverRequest) (*forwardpb.FailoverReply, error) {
	return s.g.mover.Failover(ctx, q)
}
