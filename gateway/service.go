// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/routing"
)

// service implements the calls of other gateways and of operators.
type service struct {
	forwardpb.UnimplementedForwardServer
	routing.Server
	g *Gateway
}

// Call implements forwardpb.ForwardServer.
func (s *service) Call(ctx context.Context, q *forwardpb.CallRequest) (*forwardpb.CallReply, error) {
	return s.Server.Call(ctx, q)
}

// Held implements forwardpb.ForwardServer.
func (s *service) Held(ctx context.Context, q *forwardpb.HeldRequest) (*forwardpb.HeldReply, error) {
	return s.Server.Held(ctx, q)
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

// Failover implements the service: called at the gateway that is to become home.
func (s *service) Failover(ctx context.Context, q *forwardpb.FailoverRequest) (*forwardpb.FailoverReply, error) {
	v, ok := s.g.view.Record(q.GetVolume())
	if !ok {
		return nil, status.Errorf(codes.NotFound, "volume %q: there is none with this UUID", q.GetVolume())
	}
	if err := s.g.mayMove(ctx, v); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	c := s.g.copies.Copy(q.GetVolume())
	if c == nil && q.GetTo() == s.g.cfg.Name && s.g.copies.Doubt(q.GetVolume()) != nil {
		return s.believe(ctx, v, q.GetAcceptLoss())
	}
	if c == nil {
		return nil, status.Errorf(codes.FailedPrecondition,
			"volume %s: gateway %s has no copy of it that is open: choose a site that has one", v.Name, s.g.cfg.Name)
	}
	st := c.Replica.Status()
	if st.Control == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s: it has no home yet: wait until its first site %v is up",
			v.Name, v.Sites)
	}
	home := st.Control.Home
	if q.GetTo() != s.g.cfg.Name { // asked of the home: hand over
		if _, ok := c.Leading(); !ok {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s: gateway %s is not its home, %s is: ask that one",
				v.Name, s.g.cfg.Name, home.Gateway)
		}
		c.Replica.Move(q.GetTo())
		return s.await(ctx, c, v.Name, q.GetTo(), st.Epoch)
	}
	if home.Gateway == s.g.cfg.Name {
		return &forwardpb.FailoverReply{Epoch: st.Epoch, Home: home.Gateway}, nil
	}
	if s.g.view.IsAlive(home.Gateway, home.Incarnation) && !s.inDoubt(ctx, v.UUID, home.Gateway) {
		return nil, status.Errorf(codes.FailedPrecondition,
			"volume %s: its home %s at site %s is alive: move it without loss with `weir failover %s --to %s`, without --accept-loss",
			v.Name, home.Gateway, home.Site, v.Name, s.g.cfg.Site)
	}
	if st.Control.CountsOn(s.g.self) {
		return s.await(ctx, c, v.Name, s.g.cfg.Name, st.Epoch) // it takes over by itself, without loss
	}
	if !q.GetAcceptLoss() {
		return nil, status.Errorf(codes.FailedPrecondition,
			"volume %s: HomeLost: only home %s at site %s was waited for before a write was acknowledged, and it does not answer. %s "+
				"Bring %s back, or give up what it alone has with --accept-loss.", v.Name, home.Gateway, home.Site,
			s.g.reporter.MaybeLost(ctx, c.UUID, home.Gateway), home.Gateway)
	}
	s.g.cfg.Logger.Warn("takeover by a person's word", "volume", v.Name, "lost home", home.Gateway, "from", c.Log.End())
	c.Replica.Force()
	return s.await(ctx, c, v.Name, s.g.cfg.Name, st.Epoch)
}

// await waits until the volume is served by gateway to in an epoch after epoch.
func (s *service) await(ctx context.Context, c *copies.Copy, name, to string, epoch uint64) (*forwardpb.FailoverReply, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*s.g.cfg.Promise)
	defer cancel()
	for {
		changed := s.g.view.Changed()
		if home, e := s.g.view.Home(c.UUID); home == to && e > epoch {
			return &forwardpb.FailoverReply{Epoch: e, Home: home}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, status.Errorf(codes.DeadlineExceeded,
				"volume %s: gateway %s did not become its home in time: look at `weir status %s`", name, to, name)
		}
	}
}

// mayMove checks that the caller is of the volume's owner or of this gateway's own organization.
func (g *Gateway) mayMove(ctx context.Context, v federation.Volume) error {
	id, err := g.peers.Identity(ctx)
	if err == nil && id.Organization != g.cfg.Organization && id.Organization != v.Owner {
		err = fmt.Errorf("certificate is of organization %q; gateway %s moves volume %s for its owner %q and for "+
			"organization %q: use a certificate of one of them",
			id.Organization, g.cfg.Name, v.Name, v.Owner, g.cfg.Organization)
	}
	return err
}
