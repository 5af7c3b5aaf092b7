// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/gateway/caching"
	"github.com/weir-storage/weir/gateway/checking"
	"github.com/weir-storage/weir/gateway/clocks"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/keys"
	"github.com/weir-storage/weir/gateway/moving"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/gateway/space"
)

// service implements the calls of other gateways and of operators.
type service struct {
	unserved
	routing.Server
	*space.Counter
	*caching.Caching
	*checking.Checks
	*clocks.Watch
	*keys.Keeper
	*moving.Mover
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
