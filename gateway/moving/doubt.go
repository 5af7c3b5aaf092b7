// SPDX-License-Identifier: Apache-2.0

package moving

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/report"
)

// believe makes this gateway home with what is left of its log, which is in doubt. A person must
// accept the loss, and no other copy may have more. The takeover is a swap of the record that the
// decision was about: it fails if anything changed hands meanwhile.
func (m *Mover) believe(ctx context.Context, v federation.Volume, q *forwardpb.FailoverRequest) (*forwardpb.FailoverReply, error) {
	m.believing.Lock() // else a second call could note another identity when the first one is done
	defer m.believing.Unlock()
	if err := m.cfg.Registry.Trusted(); err != nil {
		return nil, refusal(v, "%v", err)
	}
	ctl, rev, err := m.cfg.Registry.GetControl(ctx, v.UUID)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "volume %s: read its control record: %v", v.Name, err)
	}
	left := m.cfg.Copies.Doubt(v.UUID)
	switch {
	case left.Why == nil:
		return nil, refusal(v, "its copy at gateway %s is not in doubt any more: look at `weir status %s`", m.cfg.Self.Gateway, v.Name)
	case left.End == (log.Position{}):
		return nil, refusal(v, "nothing is left of its copy at gateway %s: choose another", m.cfg.Self.Gateway)
	}
	unheard, err := m.nobodyWhole(ctx, v, ctl, left)
	if err != nil {
		return nil, err
	}
	if !q.GetAcceptLoss() {
		return nil, refusal(v, "%v. With --accept-loss it goes on with what is left; keep a copy of its folder on the pool before, "+
			"if somebody may want to look at it.%s", left.Why, alsoLost(unheard))
	}
	belief, err := m.cfg.Copies.Believe(v.UUID)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "volume %s: %v", v.Name, err)
	}
	self := m.cfg.Self
	self.Log = belief.String()
	if ctl.Home != self { // else an earlier call did it
		if err := m.said(v, ctl, q.GetWord()); err != nil {
			return nil, err
		}
		next := ctl.Clone()
		next.Epoch++
		next.Home, next.Members = self, []federation.Member{self}
		next.Begin(federation.EpochStart{Epoch: next.Epoch, Start: federation.Position(left.End), Forced: true,
			Word: q.GetWord()})
		m.cfg.Logger.Warn("a log in doubt is believed by a person's word", "volume", v.Name, "end", left.End, "why", left.Why)
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

// nobodyWhole returns an error if a copy elsewhere is whole, or may be, or has more than what is
// left here: a person who gives writes up would give these up too. It also returns the members that
// were not heard, because they are not alive.
func (m *Mover) nobodyWhole(ctx context.Context, v federation.Volume, ctl federation.Control, left copies.Left) (unheard []string,
	err error) {
	known := m.cfg.View.Members()
	for _, x := range ctl.Members {
		if !slices.ContainsFunc(known, func(g federation.Member) bool { return g.Gateway == x.Gateway }) {
			unheard = append(unheard, x.Gateway)
		}
	}
	for _, g := range known {
		member := ctl.CountsOn(g)
		if g.Gateway == m.cfg.Self.Gateway || !member && !slices.Contains(v.Sites, g.Site) {
			continue
		}
		said, err := m.ask(ctx, v.UUID, g.Gateway)
		alive := m.cfg.View.IsAlive(g.Gateway, g.Incarnation)
		open := err == nil && said.Problem == "" && said.Role != "" && said.Role != "None"
		more := left.Epoch < said.LogEpoch || left.Epoch == said.LogEpoch && left.End.Less(log.Position(said.End))
		const stop = "mend that, or stop that gateway to give up what it has"
		switch {
		case err != nil && alive:
			return nil, refusal(v, "%s at site %s may have a whole copy, and does not answer (%v): %s", g.Gateway, g.Site, err, stop)
		case err != nil && member:
			unheard = append(unheard, g.Gateway)
		case err != nil:
		case member && open:
			return nil, refusal(v, "member %s at site %s has a copy that is not in doubt: it goes on with that by itself; "+
				"see `weir status %s`", g.Gateway, g.Site, v.Name)
		case (open || said.Doubt) && more:
			return nil, refusal(v, "the copy of gateway %s at site %s has more: go on with that, by "+
				"`weir failover %s --to %s --accept-loss`", g.Gateway, g.Site, v.Name, g.Site)
		case !open && !said.Doubt && said.Problem != "":
			return nil, refusal(v, "gateway %s at site %s may have more, and its copy is closed (%s): %s", g.Gateway, g.Site,
				said.Problem, stop)
		}
	}
	return unheard, nil
}

// alsoLost names the members that were not heard.
func alsoLost(unheard []string) string {
	if len(unheard) == 0 {
		return ""
	}
	return fmt.Sprintf(" So is what only these members have, which are not alive: %s.", strings.Join(unheard, ", "))
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
