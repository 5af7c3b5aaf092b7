// SPDX-License-Identifier: Apache-2.0

package moving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/report"
)

// believe makes this gateway home with what is left of its log, which is in doubt. A person must
// accept the loss, and no other copy may have more. The takeover is a swap of the record that the
// decision was about: it fails if anything changed hands meanwhile.
func (m *Mover) believe(ctx context.Context, v federation.Volume, acceptLoss bool) (*forwardpb.FailoverReply, error) {
	if err := m.cfg.Registry.Trusted(); err != nil {
		return nil, refusal(v, "%v", err)
	}
	ctl, rev, err := m.cfg.Registry.GetControl(ctx, v.UUID)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "volume %s: read its control record: %v", v.Name, err)
	}
	end, why := m.cfg.Copies.Doubt(v.UUID)
	if why == nil {
		return nil, refusal(v, "its copy at gateway %s is not in doubt any more: look at `weir status %s`", m.cfg.Self.Gateway, v.Name)
	}
	if err := m.nobodyWhole(ctx, v, ctl, end); err != nil {
		return nil, err
	}
	if !acceptLoss {
		return nil, refusal(v, "%v. With --accept-loss it goes on with what is left; keep a copy of its folder on the pool before, "+
			"if somebody may want to look at it", why)
	}
	belief, err := m.cfg.Copies.Believe(v.UUID)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "volume %s: %v", v.Name, err)
	}
	self := m.cfg.Self
	self.Log = belief.String()
	if ctl.Home != self { // else an earlier call did it
		next := ctl.Clone()
		next.Epoch++
		next.Home, next.Members = self, []federation.Member{self}
		next.Begin(federation.EpochStart{Epoch: next.Epoch, Start: federation.Position(end), Forced: true})
		m.cfg.Logger.Warn("a log in doubt is believed by a person's word", "volume", v.Name, "end", end, "why", why)
		switch _, err := m.cfg.Registry.SwapControl(ctx, v.UUID, rev, next); {
		case errors.Is(err, federation.ErrConflict):
			return nil, refusal(v, "something changed hands meanwhile: look at `weir status %s`", v.Name)
		case err != nil:
			return nil, status.Errorf(codes.Unavailable, "volume %s: the registry did not say that it was done, ask again: %v", v.Name, err)
		}
		ctl = next
	}
	return m.await(ctx, v, self.Gateway, ctl.Epoch) // its own epoch comes after the forced one
}

// nobodyWhole returns an error if a copy elsewhere is whole, or may be, or has more than one that
// ends at end: a person who gives writes up would give these up too.
func (m *Mover) nobodyWhole(ctx context.Context, v federation.Volume, ctl federation.Control, end log.Position) error {
	for _, g := range m.cfg.View.Members() {
		member := ctl.CountsOn(g)
		if g.Gateway == m.cfg.Self.Gateway || !member && !slices.Contains(v.Sites, g.Site) {
			continue
		}
		said, err := m.ask(ctx, v.UUID, g.Gateway)
		switch open := err == nil && said.Role != "" && said.Role != "None"; {
		case err != nil && member && m.cfg.View.IsAlive(g.Gateway, g.Incarnation):
			return refusal(v, "member %s at site %s may have a whole copy, and does not answer: %v", g.Gateway, g.Site, err)
		case err != nil || said.Doubt:
		case member:
			return refusal(v, "member %s at site %s has a copy that is not in doubt: it goes on with that by itself; see `weir status %s`",
				g.Gateway, g.Site, v.Name)
		case open && end.Less(log.Position(said.End)):
			return refusal(v, "the copy of gateway %s at site %s has more: go on with that, by `weir failover %s --to %s --accept-loss`",
				g.Gateway, g.Site, v.Name, g.Site)
		}
	}
	return nil
}

// refusal is an error that says why a volume does not change hands.
func refusal(v federation.Volume, format string, a ...any) error {
	return status.Errorf(codes.FailedPrecondition, "volume %s: %s", v.Name, fmt.Sprintf(format, a...))
}

// inDoubt reports whether a gateway says that its log of a volume lost something, so that it does
// not open it.
func (m *Mover) inDoubt(ctx context.Context, volume, gateway string) bool {
	said, err := m.ask(ctx, volume, gateway)
	return err == nil && said.Doubt
}

// ask returns what a gateway says of a volume.
func (m *Mover) ask(ctx context.Context, volume, gateway string) (said report.VolumeStatus, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Promise)
	defer cancel()
	client, err := m.cfg.Peers.Forward(gateway)
	if err != nil {
		return said, err
	}
	reply, err := client.Status(ctx, &forwardpb.StatusRequest{Volume: volume})
	if err != nil {
		return said, err
	}
	var all []report.VolumeStatus
	if err := json.Unmarshal(reply.GetJson(), &all); err != nil {
		return said, fmt.Errorf("read what gateway %s says: %w", gateway, err)
	}
	if len(all) != 1 {
		return said, fmt.Errorf("gateway %s does not know volume %s", gateway, volume)
	}
	return all[0], nil
}
