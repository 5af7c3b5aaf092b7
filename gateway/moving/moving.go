// SPDX-License-Identifier: Apache-2.0

// Package moving moves the homes of volumes by a person's word: with the home's consent, or, when
// that is lost, without it.
package moving

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/signed"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/peers"
	"github.com/weir-storage/weir/gateway/report"
	"github.com/weir-storage/weir/replica/protocol"
)

// Config has what a Mover needs.
type Config struct {
	Self         protocol.Member // this gateway
	Organization string
	Promise      time.Duration
	View         *view.View
	Registry     federation.Registry
	Copies       *copies.Manager
	Peers        *peers.Peers
	Reporter     *report.Reporter
	Seal         *signed.Seal // checks the words of persons
	Now          func() time.Time
	Timers       clockwork.Clock
	Logger       *slog.Logger
}

// Mover makes this gateway, or another, the home of a volume. Its methods may be called at any
// time.
type Mover struct {
	cfg       Config
	believing sync.Mutex
}

// New returns a Mover.
func New(cfg Config) *Mover { return &Mover{cfg: cfg} }

// Failover makes a gateway the home of a volume. Call it at the gateway that is to become
// home, or at the home, which hands over. Errors are a gRPC status.
func (m *Mover) Failover(ctx context.Context, q *forwardpb.FailoverRequest) (*forwardpb.FailoverReply, error) {
	v, ok := m.cfg.View.Record(q.GetVolume())
	if !ok {
		return nil, status.Errorf(codes.NotFound, "volume %q: there is none with this UUID", q.GetVolume())
	}
	if err := m.mayMove(ctx, v); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	state, _ := m.cfg.Copies.State(q.GetVolume())
	c := state.Copy
	if c == nil && q.GetTo() == m.cfg.Self.Gateway {
		if m.cfg.Copies.Doubt(q.GetVolume()).Why != nil {
			return m.believe(ctx, v, q)
		}
	}
	if c == nil {
		return nil, status.Errorf(codes.FailedPrecondition,
			"volume %s: gateway %s has no copy of it that is open: choose a site that has one", v.Name, m.cfg.Self.Gateway)
	}
	st := c.Replica.Status()
	if st.Control == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s: it has no home yet: wait until its first site %v is up",
			v.Name, v.Sites)
	}
	home := st.Control.Home
	blind := m.blind(v, q.GetTo())
	if blind && m.cfg.View.IsAlive(home.Gateway, home.Incarnation) {
		return nil, status.Errorf(codes.FailedPrecondition,
			"volume %s: the copy of gateway %s is blind: it has no key and cannot be its home: choose a site whose copy has the key",
			v.Name, q.GetTo())
	}
	if q.GetTo() != m.cfg.Self.Gateway { // asked of the home: hand over
		if !m.reigns(ctx, c) {
			if ctl := c.Replica.Status().Control; ctl != nil && ctl.Home.Gateway == q.GetTo() {
				return &forwardpb.FailoverReply{Epoch: ctl.Epoch, Home: ctl.Home.Gateway}, nil // it was moved meanwhile
			}
			return nil, m.notHome(v, c)
		}
		epoch := c.Replica.Status().Epoch
		c.Replica.Move(q.GetTo())
		return m.await(ctx, v, q.GetTo(), epoch)
	}
	if home.Gateway == m.cfg.Self.Gateway {
		return &forwardpb.FailoverReply{Epoch: st.Epoch, Home: home.Gateway}, nil
	}
	if m.cfg.View.IsAlive(home.Gateway, home.Incarnation) && !m.inDoubt(ctx, v.UUID, home.Gateway) {
		return nil, status.Errorf(codes.FailedPrecondition,
			"volume %s: its home %s at site %s is alive: move it without loss with `weir failover %s --to %s`, without --accept-loss",
			v.Name, home.Gateway, home.Site, v.Name, m.cfg.Self.Site)
	}
	if st.Control.CountsOn(m.cfg.Self) {
		return m.await(ctx, v, m.cfg.Self.Gateway, st.Epoch) // it takes over by itself, without loss
	}
	unheard, err := m.nobodyWhole(ctx, v, *st.Control, copies.Left{End: st.End, Epoch: c.LogEpoch()})
	if err != nil {
		return nil, err
	}
	if !q.GetAcceptLoss() {
		return nil, status.Errorf(codes.FailedPrecondition,
			"volume %s: HomeLost: only home %s at site %s was waited for before a write was acknowledged, and it does not answer. %s "+
				"Bring %s back, or give up what it alone has with --accept-loss.%s", v.Name, home.Gateway, home.Site,
			m.cfg.Reporter.MaybeLost(ctx, c.UUID, home.Gateway), home.Gateway, alsoLost(unheard))
	}
	if err := m.said(v, *st.Control, q.GetWord()); err != nil {
		return nil, err
	}
	m.cfg.Logger.Warn("takeover by a person's word", "volume", v.Name, "lost home", home.Gateway, "from", c.Log.End())
	c.Replica.Force(st.Control.Epoch, st.Control.Change, q.GetWord())
	return m.await(ctx, v, m.cfg.Self.Gateway, st.Epoch)
}

// said checks that a person of the volume's owner says that this gateway takes over by force, in
// place of that control record. The registry and all other gateways check it too.
func (m *Mover) said(v federation.Volume, ctl federation.Control, word string) error {
	is := signed.Takeover{Volume: v.UUID, Gateway: m.cfg.Self.Gateway, Epoch: ctl.Epoch, Change: ctl.Change}
	if err := m.cfg.Seal.Allowed(word, is, v.Owner, m.cfg.Now()); err != nil {
		return status.Errorf(codes.PermissionDenied, "volume %s: gateway %s does not take over by force: %v", v.Name, is.Gateway, err)
	}
	return nil
}

// reigns reports whether this gateway is a volume's home. One that is so by the control record, but
// does not execute changes yet, is waited for: it has just become home, or was just started.
func (m *Mover) reigns(ctx context.Context, c *copies.Copy) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*m.cfg.Promise)
	defer cancel()
	for {
		_, moved := c.Replica.Committed() // before the look at its role
		if _, ok := c.Replica.Reigns(); ok {
			return true
		}
		if ctl := c.Replica.Status().Control; ctl == nil || ctl.Home.Gateway != m.cfg.Self.Gateway {
			// Whoever asks may know from the registry what this gateway does not know yet.
			if said, _, err := m.cfg.Registry.GetControl(ctx, c.UUID); err != nil || said.Home.Gateway != m.cfg.Self.Gateway {
				return false
			}
		}
		select {
		case <-moved:
		case <-m.cfg.Timers.After(reignsAgain):
		case <-ctx.Done():
			return false
		}
	}
}

// notHome is the refusal of a gateway that is not home, or cannot be it now.
func (m *Mover) notHome(v federation.Volume, c *copies.Copy) error {
	ctl := c.Replica.Status().Control
	if ctl == nil || ctl.Home.Gateway == m.cfg.Self.Gateway {
		return status.Errorf(codes.Unavailable, "volume %s: gateway %s is its home but does not serve it yet: look at `weir status %s`, "+
			"and ask again", v.Name, m.cfg.Self.Gateway, v.Name)
	}
	return status.Errorf(codes.FailedPrecondition, "volume %s: gateway %s is not its home, %s is: ask that one",
		v.Name, m.cfg.Self.Gateway, ctl.Home.Gateway)
}

// reignsAgain is how often reigns looks, whatever is told.
const reignsAgain = 200 * time.Millisecond

// blind reports whether a gateway's copy of a volume is blind: it can only hand on.
func (m *Mover) blind(v federation.Volume, gateway string) bool {
	_, site, ok := m.cfg.View.Gateway(gateway)
	return ok && v.IsBlind(site.Name)
}

// await waits until the volume is served by gateway to in an epoch after epoch, or was taken over
// by it, if its copy is blind.
func (m *Mover) await(ctx context.Context, v federation.Volume, to string, epoch uint64) (*forwardpb.FailoverReply, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*m.cfg.Promise)
	defer cancel()
	for {
		changed := m.cfg.View.Changed()
		home, e := m.cfg.View.Home(v.UUID)
		if e > epoch && (home == to || m.blind(v, to)) { // a blind copy hands on, perhaps before this is seen
			return &forwardpb.FailoverReply{Epoch: e, Home: home}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, status.Errorf(codes.DeadlineExceeded,
				"volume %s: gateway %s did not become its home in time: look at `weir status %s`", v.Name, to, v.Name)
		}
	}
}

// mayMove checks that the caller is of the volume's owner or of this gateway's own organization.
func (m *Mover) mayMove(ctx context.Context, v federation.Volume) error {
	id, err := m.cfg.Peers.Identity(ctx)
	if err == nil && id.Organization != m.cfg.Organization && id.Organization != v.Owner {
		err = fmt.Errorf("certificate is of organization %q; gateway %s moves volume %s for its owner %q and for "+
			"organization %q: use a certificate of one of them",
			id.Organization, m.cfg.Self.Gateway, v.Name, v.Owner, m.cfg.Organization)
	}
	return err
}
