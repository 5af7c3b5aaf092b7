// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/node/nodepb"
	"github.com/weir-storage/weir/replica/protocol"
	"github.com/weir-storage/weir/volume"
)

// usageWithin is how long Usage waits for a home.
const usageWithin = 2 * time.Second

// Trouble says why a volume is not well by its home's word; empty when it is. silent are members that do not answer.
func (s VolumeStatus) Trouble(silent []string, wanted int) string {
	switch {
	case len(silent) > 0:
		return fmt.Sprintf("%s does not answer: writes wait until it does, or until the home goes on without it, as the volume's durability says", strings.Join(silent, ", "))
	case s.Stalled:
		return fmt.Sprintf("%d of %d members: writes wait until another copy is one", len(s.Members), wanted)
	case s.Waiting != "":
		return "writes wait: " + s.Waiting
	case len(s.Members) < wanted:
		return fmt.Sprintf("%d of %d members: writes go on, on fewer copies than wanted", len(s.Members), wanted)
	case !s.Serving:
		return "reads wait: the home has not heard from a member lately"
	}
	return ""
}

// silent are the members that the home does not hear.
func (s VolumeStatus) silent() (out []string) {
	for _, r := range s.Replicas {
		if r.State == federation.ReplicaLost && slices.Contains(s.Members, r.Gateway) {
			out = append(out, r.Gateway)
		}
	}
	return out
}

// wanted is how many members the volume's policy asks for.
func wanted(v federation.Volume) int { return policyOf(v).Want }

// routerID is a volume's UUID as NFS has it; zero for what is none.
func routerID(text string) volume.ID {
	id, _ := uuid.Parse(text) // uuid.Nil, which no volume has
	return volume.ID(id)
}

// Usage implements the service.
func (n *nodes) Usage(ctx context.Context, q *nodepb.UsageRequest) (*nodepb.UsageReply, error) {
	if err := n.mayCall(ctx); err != nil {
		return nil, err
	}
	v, ok := n.g.mirror.volume(q.GetVolume())
	if !ok || v.Deleted {
		return nil, status.Errorf(codes.NotFound, "volume %q: there is none with this UUID, or it is deleted", q.GetVolume())
	}
	reply := &nodepb.UsageReply{CapacityBytes: uint64(v.Spec.Size)}
	ctx, cancel := context.WithTimeout(ctx, usageWithin)
	defer cancel()
	if s := n.g.served(v.UUID); s != nil {
		if space, err := s.router.Space(ctx); err == nil {
			reply.Known, reply.CapacityBytes, reply.Inodes = true, space.TotalBytes, space.TotalInodes
			reply.UsedBytes, reply.UsedInodes = space.TotalBytes-space.FreeBytes, space.TotalInodes-space.FreeInodes
		}
	}
	home, err := n.g.homeStatus(ctx, v)
	switch {
	case err != nil:
		reply.Message = err.Error()
	default:
		reply.Message = home.Trouble(home.silent(), wanted(v))
	}
	reply.Healthy = reply.Message == ""
	return reply, nil
}

// homeStatus is the volume's status by its home's word, or why there is none.
func (g *Gateway) homeStatus(ctx context.Context, v federation.Volume) (s VolumeStatus, err error) {
	home, _ := g.mirror.home(v.UUID)
	var all []VolumeStatus
	switch home {
	case "":
		return s, errors.New("it has no home yet")
	case g.cfg.Name:
		all = g.status(v.UUID)
	default:
		client, err := g.peers.forwardClient(home)
		if err != nil {
			return s, err
		}
		reply, err := client.Status(ctx, &forwardpb.StatusRequest{Volume: v.UUID})
		if err != nil {
			g.cfg.Logger.Debug("home does not answer", "volume", v.Name, "home", home, "error", err)
			return s, fmt.Errorf("home %s does not answer", home)
		}
		if err := json.Unmarshal(reply.GetJson(), &all); err != nil {
			return s, fmt.Errorf("home %s gives an answer that can not be read: %w", home, err)
		}
	}
	switch {
	case len(all) != 1:
		return s, fmt.Errorf("home %s does not know it yet", home)
	case all[0].Problem != "":
		return s, fmt.Errorf("home %s can not open it: %s", home, all[0].Problem)
	case all[0].Role != protocol.Home.String():
		return s, fmt.Errorf("%s begins a new epoch", home)
	}
	return all[0], nil
}

// served returns what is served of a volume here, or nil.
func (g *Gateway) served(id string) *served {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.volumes[id]
}

// rootTries is how often the root's group is set while its outcome is not known.
const rootTries = 5

// giveRoot makes the root directory writable for a group, and what is made in it the group's, wherever the home is.
func (g *Gateway) giveRoot(ctx context.Context, id string, group uint32) error {
	const bits = 0o2770
	s := g.served(id)
	if s == nil {
		return errors.New("the volume is not open here")
	}
	var err error
	for range rootTries {
		var a volume.Attr
		if a, err = s.router.GetAttr(ctx, volume.Request{}, volume.Root); err != nil {
			return err
		}
		mode := a.Mode | bits
		if a.GID == group && a.Mode == mode {
			return nil
		}
		// Setting it twice does no harm, so it needs no OpID.
		if _, err = s.router.SetAttr(ctx, volume.Request{}, volume.Root, volume.SetAttr{GID: &group, Mode: &mode}); err != nil && !errors.Is(err, volume.ErrUnknown) {
			return err
		}
	}
	if err == nil {
		err = errors.New("it changes all the time")
	}
	return err
}
