// SPDX-License-Identifier: Apache-2.0

package gatekeeper

import (
	"context"
	"errors"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/gatekeeper/relay"
	"github.com/weir-storage/weir/pki"
)

type leaseServer struct {
	pb.UnimplementedLeaseServer
	g *Gatekeeper
}

// longestLease is in seconds: no heartbeat means anything for longer.
const longestLease = 3600

// LeaseGrant gives a gateway a lease for its heartbeat. etcd chooses its number.
func (s *leaseServer) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if id := who(ctx); id.Part != pki.PartGateway {
		return nil, s.g.refuse(id, "LeaseGrant", "lease", "only gateways have heartbeats")
	}
	if r.GetID() != 0 || r.GetTTL() <= 0 || r.GetTTL() > longestLease {
		return nil, malformed("a lease has no number of the asker's, and lasts 1 to 3600 s")
	}
	return s.g.lease.LeaseGrant(ctx, r)
}

// owns refuses a lease that has keys, and not the asker's heartbeat among them. A lease that is not
// there is for etcd to answer about.
func (g *Gatekeeper) owns(ctx context.Context, method string, lease int64) error {
	id := who(ctx)
	if id.Part != pki.PartGateway {
		return g.refuse(id, method, "lease", "only gateways have heartbeats")
	}
	is, err := g.lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: lease, Keys: true})
	if errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	mine := g.prefix + join(federation.KindAlive, id.Gateway)
	if len(is.GetKeys()) > 0 && !slices.ContainsFunc(is.GetKeys(), func(k []byte) bool { return string(k) == mine }) {
		return g.refuse(id, method, "lease", "it is another gateway's")
	}
	return nil
}

// LeaseRevoke ends the asker's lease.
func (s *leaseServer) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	if err := s.g.owns(ctx, "LeaseRevoke", r.GetID()); err != nil {
		return nil, err
	}
	return s.g.lease.LeaseRevoke(ctx, r)
}

// LeaseKeepAlive keeps the asker's leases.
func (s *leaseServer) LeaseKeepAlive(in pb.Lease_LeaseKeepAliveServer) error {
	ctx, cancel := context.WithCancel(in.Context())
	defer cancel()
	out, err := s.g.lease.LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	known := map[int64]bool{}
	return relay.Run(ctx, cancel, s.g.safely, func() error {
		r, err := in.Recv()
		if err != nil {
			return err
		}
		if !known[r.GetID()] {
			if err := s.g.owns(ctx, "LeaseKeepAlive", r.GetID()); err != nil {
				return err
			}
			known[r.GetID()] = true
		}
		return out.Send(r)
	}, func() error {
		r, err := out.Recv()
		if err != nil {
			return err
		}
		return in.Send(r)
	})
}

type watchServer struct {
	pb.UnimplementedWatchServer
	g *Gatekeeper
}

// Watch shows changes of the federation's records.
func (s *watchServer) Watch(in pb.Watch_WatchServer) error {
	ctx, cancel := context.WithCancel(in.Context())
	defer cancel()
	out, err := s.g.watch.Watch(ctx)
	if err != nil {
		return err
	}
	watches := s.g.shown.Watches(s.g.viewer(ctx))
	return relay.Run(ctx, cancel, s.g.safely, func() error {
		r, err := in.Recv()
		if err != nil {
			return err
		}
		if c := r.GetCreateRequest(); c != nil {
			if err := watches.Begin(c); err != nil {
				return err
			}
			if _, ok := s.g.span(c.GetKey(), c.GetRangeEnd()); !ok {
				return s.g.refuse(who(ctx), "Watch", "foreign", "key %q is not of this federation", c.GetKey())
			}
		}
		return out.Send(r)
	}, func() error {
		r, err := out.Recv()
		if err != nil {
			return err
		}
		all, err := watches.Show(ctx, r)
		for i := 0; i < len(all) && err == nil; i++ {
			err = in.Send(all[i])
		}
		return err
	})
}

type upkeepServer struct {
	pb.UnimplementedMaintenanceServer
	g *Gatekeeper
}

// Snapshot copies the whole of etcd. admit has seen that an administrator asks.
func (s *upkeepServer) Snapshot(r *pb.SnapshotRequest, in pb.Maintenance_SnapshotServer) error {
	ctx := in.Context()
	s.g.audit(who(ctx), "Snapshot", nil)
	out, err := s.g.upkeep.Snapshot(ctx, r)
	if err != nil {
		return err
	}
	return relay.All(out.Recv, in.Send)
}
