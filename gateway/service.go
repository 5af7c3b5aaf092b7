// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/protocol"
	"github.com/weir-storage/weir/volume"
)

// service is what other gateways and operators call.
type service struct {
	forwardpb.UnimplementedForwardServer
	g *Gateway
}

func (g *Gateway) copyOf(id string) *replicaOf {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.volumes[id]; s != nil {
		return s.copy
	}
	return nil
}

// Call implements the service: it executes an operation if this gateway is home, for gateways whose site may use the volume.
func (s *service) Call(ctx context.Context, q *forwardpb.CallRequest) (*forwardpb.CallReply, error) {
	from, err := s.g.caller(ctx)
	if err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	c := s.g.copyOf(q.GetVolume())
	if c == nil {
		return forward.Refused(journal.ErrNotHome), nil
	}
	epoch, ok := c.replica.Leading()
	if !ok {
		return forward.Refused(journal.ErrNotHome), nil
	}
	lost, err := s.g.admitCall(ctx, from, q)
	if err != nil {
		return forward.Refused(err), nil
	}
	// An operation goes on when its caller is gone: its outcome is recorded, and the caller asks again.
	ctx, done, err := c.use(context.WithoutCancel(ctx))
	if err != nil {
		return forward.Refused(journal.ErrNotHome), nil
	}
	defer done()
	if forward.Changes(q.GetMethod()) {
		var leave func()
		if ctx, leave, err = (lockSession{c.locks, from, forward.RegistrationOf(q), false}).enter(ctx); err != nil {
			return forward.Refused(err), nil
		}
		defer leave()
	}
	for _, x := range []struct {
		held   bool
		handle *forwardpb.Handle
	}{{q.GetHeld(), q.GetHandle()}, {q.GetTargetHeld(), q.GetTarget()}} {
		if h := (volume.Handle{Ino: x.handle.GetIno(), Gen: x.handle.GetGen()}); x.held && c.engine.HoldElsewhere(h) == nil {
			defer c.engine.Release(h)
		}
	}
	wrote := new(log.Position)
	reply := forward.Dispatch(ctx, localTarget{c.engine, c.locks, from, q.GetRegistersChanges(), wrote}, q)
	if now, ok := c.replica.Leading(); q.GetMethod() == forwardpb.Method_METHOD_COMMIT && (!ok || now != epoch) {
		// It may have been executed in a later epoch: what the caller wrote in this one may be lost, and it must not take it for stable.
		return forward.Refused(journal.ErrNotHome), nil
	}
	if reply.GetOutcome() == 0 {
		reply.Lost = append(reply.Lost, lost...)
	}
	reply.Epoch = epoch
	pos := c.replica.Status().Commit
	if unstable := q.GetMethod() == forwardpb.Method_METHOD_WRITE && !q.GetFlag(); unstable {
		pos = *wrote // and no later: the attributes in the reply are those after this write
	}
	reply.Seq, reply.Off = pos.Seq, pos.Off
	return reply, nil
}

// admitCall refuses a call of a gateway whose clients may not use the volume, unless it ends what they did: a gateway that can not begin anything
// any more still has to have ended what it sent before. None of the locks that such a gateway registers is kept: they are taken out of q, and
// returned to be told of as lost.
func (g *Gateway) admitCall(ctx context.Context, from string, q *forwardpb.CallRequest) (lost []*forwardpb.HeldLock, err error) {
	registers, recovering := q.GetMethod() == forwardpb.Method_METHOD_REGISTER_LOCKS, q.GetFlag()
	switch {
	case g.uses(q.GetVolume(), from), q.GetMethod() == forwardpb.Method_METHOD_UNLOCK:
		return nil, nil
	case registers && (recovering || len(q.GetLocks()) == 0): // of who recovers, locks are ignored
		return nil, nil
	case registers:
		used, err := g.usedNow(ctx, q.GetVolume(), from)
		if err != nil {
			return nil, fmt.Errorf("%w: the registry is needed to tell whether gateway %s keeps its locks: %v", volume.ErrDelay, from, err)
		}
		if !used {
			lost, q.Locks = q.GetLocks(), nil
			return lost, nil
		}
	}
	return nil, fmt.Errorf("%w: as far as gateway %s has heard, the site of gateway %s has no copy of volume %s and no client that is admitted to it",
		volume.ErrDelay, g.cfg.Name, from, q.GetVolume())
}

// Held implements the service.
func (s *service) Held(ctx context.Context, q *forwardpb.HeldRequest) (*forwardpb.HeldReply, error) {
	if _, err := s.g.caller(ctx); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	s.g.mu.Lock()
	v := s.g.volumes[q.GetVolume()]
	s.g.mu.Unlock()
	if v == nil {
		return nil, status.Errorf(codes.Unavailable, "volume %s is not open here yet", q.GetVolume())
	}
	if s.g.recovering() {
		return nil, status.Error(codes.Unavailable, errRecovering.Error())
	}
	if c := v.router.copy(); c != nil {
		wait, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := c.engine.WaitApplied(wait, log.Position{Seq: q.GetSeq(), Off: q.GetOff()}); err != nil {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
	}
	var hs []volume.Handle
	for _, h := range q.GetHandles() {
		hs = append(hs, volume.Handle{Ino: h.GetIno(), Gen: h.GetGen()})
	}
	reply := new(forwardpb.HeldReply)
	for _, h := range v.router.heldOf(hs) {
		reply.Handles = append(reply.Handles, &forwardpb.Handle{Ino: h.Ino, Gen: h.Gen})
	}
	return reply, nil
}

// fetched reads a range of a sealed segment from this gateway's pool, or else from its site's store.
func (g *Gateway) fetched(ctx context.Context, id, name string, off int64, p []byte) error {
	c := g.copyOf(id)
	if c == nil {
		return fmt.Errorf("volume %s has no copy at gateway %s", id, g.cfg.Name)
	}
	ctx, done, err := c.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	for _, s := range c.log.Segments() {
		if s.Name == name && s.Local {
			if n, err := c.log.ReadSegmentFile(s.Seq, p, off); err == nil && n == len(p) {
				return nil
			}
		}
	}
	if g.cfg.Store == nil || !strings.HasPrefix(name, id+"/") {
		return fmt.Errorf("segment %s is not at gateway %s", name, g.cfg.Name)
	}
	return g.cfg.Store.GetRange(ctx, name, off, p)
}

// Status implements the service. Everybody with a certificate of the federation may ask.
func (s *service) Status(ctx context.Context, q *forwardpb.StatusRequest) (*forwardpb.StatusReply, error) {
	if _, err := s.g.identity(ctx); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	b, err := json.Marshal(s.g.status(q.GetVolume()))
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &forwardpb.StatusReply{Json: b}, nil
}

// Failover implements the service: called at the gateway that is to become home.
func (s *service) Failover(ctx context.Context, q *forwardpb.FailoverRequest) (*forwardpb.FailoverReply, error) {
	v, ok := s.g.mirror.volume(q.GetVolume())
	if !ok {
		return nil, status.Errorf(codes.NotFound, "volume %q: there is none with this UUID", q.GetVolume())
	}
	if err := s.g.mayMove(ctx, v); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	c := s.g.copyOf(q.GetVolume())
	if c == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s: gateway %s has no copy of it that is open: choose a site that has one", v.Name, s.g.cfg.Name)
	}
	st := c.replica.Status()
	if st.Control == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s: it has no home yet: wait until its first site %v is up", v.Name, v.Sites)
	}
	home := st.Control.Home
	if q.GetTo() != s.g.cfg.Name { // asked of the home: hand over
		if _, ok := c.replica.Leading(); !ok {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s: gateway %s is not its home, %s is: ask that one", v.Name, s.g.cfg.Name, home.Gateway)
		}
		c.replica.Move(q.GetTo())
		return s.await(ctx, c, v.Name, q.GetTo(), st.Epoch)
	}
	if home.Gateway == s.g.cfg.Name {
		return &forwardpb.FailoverReply{Epoch: st.Epoch, Home: home.Gateway}, nil
	}
	member := st.Control.IsMember(protocol.Member{Gateway: s.g.cfg.Name, Site: s.g.cfg.Site, Incarnation: s.g.cfg.Pool.Incarnation().String()})
	if s.g.isAlive(home) {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s: its home %s at site %s is alive: move it without loss with `weir failover %s --to %s`, without --accept-loss",
			v.Name, home.Gateway, home.Site, v.Name, s.g.cfg.Site)
	}
	if member {
		return s.await(ctx, c, v.Name, s.g.cfg.Name, st.Epoch) // it takes over by itself, without loss
	}
	if !q.GetAcceptLoss() {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s: HomeLost: only home %s at site %s was waited for before a write was acknowledged, and it does not answer. %s "+
			"Bring %s back, or give up what it alone has with --accept-loss.", v.Name, home.Gateway, home.Site, s.g.maybeLost(ctx, c, home.Gateway), home.Gateway)
	}
	s.g.cfg.Logger.Warn("takeover by a person's word", "volume", v.Name, "lost home", home.Gateway, "from", c.log.End())
	c.replica.Force()
	return s.await(ctx, c, v.Name, s.g.cfg.Name, st.Epoch)
}

// await waits until the volume is served by gateway to in an epoch after epoch.
func (s *service) await(ctx context.Context, c *replicaOf, name, to string, epoch uint64) (*forwardpb.FailoverReply, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*s.g.cfg.Promise)
	defer cancel()
	for {
		changed := s.g.mirror.wait()
		if home, e := s.g.mirror.home(c.uuid); home == to && e > epoch {
			return &forwardpb.FailoverReply{Epoch: e, Home: home}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, status.Errorf(codes.DeadlineExceeded, "volume %s: gateway %s did not become its home in time: look at `weir status %s`", name, to, name)
		}
	}
}
