// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/identity"
	"github.com/weir-storage/weir/gateway/locks"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/track"
	"github.com/weir-storage/weir/volume"
)

// Server executes what other gateways send to the homes that are here.
type Server struct {
	Routers *Routers
	Copies  *copies.Manager
}

// Call implements forwardpb.ForwardServer: it executes an operation if this gateway is home, for
// gateways whose site may use the volume.
func (s *Server) Call(ctx context.Context, q *forwardpb.CallRequest) (*forwardpb.CallReply, error) {
	from, err := s.Routers.cfg.Peers.Caller(ctx)
	if err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	c := s.Copies.Copy(q.GetVolume())
	if c == nil {
		return forward.Refused(journal.ErrNotHome), nil
	}
	epoch, ok := c.Leading()
	if !ok {
		return forward.Refused(journal.ErrNotHome), nil
	}
	lost, err := s.admit(ctx, from, q)
	if err != nil {
		return forward.Refused(err), nil
	}
	if err := s.bound(from, q); err != nil {
		return forward.Refused(err), nil
	}
	// An operation goes on when its caller is gone: its outcome is recorded, and the caller sends
	// it again.
	ctx, done, err := c.Use(context.WithoutCancel(ctx))
	if err != nil {
		return forward.Refused(journal.ErrNotHome), nil
	}
	defer done()
	if forward.Changes(q.GetMethod()) {
		var leave func()
		if ctx, leave, err = c.Locks.Session(from, forward.RegistrationOf(q), false).Enter(ctx); err != nil {
			return forward.Refused(err), nil
		}
		defer leave()
	}
	defer holdForCaller(c, q)()
	reply := s.execute(ctx, c, from, q)
	if now, ok := c.Leading(); q.GetMethod() == forwardpb.Method_METHOD_COMMIT && (!ok || now != epoch) {
		// The operation may have been executed in a later epoch. What the caller wrote in this one
		// may be lost, and must not count as stable.
		return forward.Refused(journal.ErrNotHome), nil
	}
	if reply.GetOutcome() == 0 {
		reply.Lost = append(reply.Lost, lost...)
	}
	reply.Epoch = epoch
	if unstable := q.GetMethod() == forwardpb.Method_METHOD_WRITE && !q.GetFlag(); !unstable {
		pos := c.Replica.Status().Commit
		reply.Seq, reply.Off = pos.Seq, pos.Off
	}
	end := c.Log.End()
	reply.ShownSeq, reply.ShownOff = end.Seq, end.Off
	return reply, nil
}

// yieldAfter is how long an operation of another gateway waits here while it has changed nothing
// and the volume lacks members or room. Then its gateway asks again, unless its client would rather
// have the slot that it holds. One that only waits for its turn keeps that.
const yieldAfter = 15 * time.Second

// yields returns the context that ends when an operation that has changed nothing is to end. The
// caller must call done.
func (s *Server) yields(ctx context.Context, c *copies.Copy) (yield context.Context, done func()) {
	yield, cancel := context.WithCancel(ctx)
	go func() {
		for {
			select {
			case <-s.Routers.cfg.Timers.After(yieldAfter):
				if c.Replica.Status().Stalled || c.Replica.Waiting() != "" || c.MayServe() != nil {
					cancel()
					return
				}
			case <-yield.Done():
				return
			}
		}
	}()
	return yield, cancel
}

// execute executes an operation of another gateway at the home, and logs it if it takes long.
func (s *Server) execute(ctx context.Context, c *copies.Copy, from string, q *forwardpb.CallRequest) *forwardpb.CallReply {
	slow := s.Routers.cfg.Slow
	yield, done := s.yields(ctx, c)
	defer done()
	if slow == nil {
		return forward.Dispatch(ctx, yield, c.Home(from, q.GetRegistersChanges()), q)
	}
	op := &track.Op{Now: slow.Now, Tracer: s.Routers.cfg.Tracer}
	began := slow.Now()
	reply := forward.Dispatch(track.With(ctx, op), yield, c.Home(from, q.GetRegistersChanges()), q)
	slow.Tell(op, "slow operation of another gateway", slow.Now().Sub(began), func() []slog.Attr {
		name := q.GetVolume()
		if r, ok := s.Routers.cfg.View.Record(name); ok {
			name = r.Name
		}
		return []slog.Attr{slog.String("op", strings.TrimPrefix(q.GetMethod().String(), "METHOD_")), slog.String("volume", name),
			slog.String("from", from), slog.Uint64("inode", q.GetHandle().GetIno())}
	})
	return reply
}

// holdForCaller holds the files that the caller's clients have open, which may have no name any
// more, until release is called.
func holdForCaller(c *copies.Copy, q *forwardpb.CallRequest) (release func()) {
	var held []volume.Handle
	for _, x := range []struct {
		held   bool
		handle *forwardpb.Handle
	}{{q.GetHeld(), q.GetHandle()}, {q.GetTargetHeld(), q.GetTarget()}} {
		if h := (volume.Handle{Ino: x.handle.GetIno(), Gen: x.handle.GetGen()}); x.held && c.Engine.HoldElsewhere(h) == nil {
			held = append(held, h)
		}
	}
	return func() {
		for _, h := range held {
			c.Engine.Release(h)
		}
	}
}

// admit refuses a call of a gateway whose clients may not use the volume, unless the call ends
// earlier work (routing-4). Such a gateway cannot begin anything, but must be able to end what it
// sent before. None of the locks that it registers is kept: they are removed from q, and returned
// as lost.
func (s *Server) admit(ctx context.Context, from string, q *forwardpb.CallRequest) (lost []*forwardpb.HeldLock, err error) {
	registers, recovering := q.GetMethod() == forwardpb.Method_METHOD_REGISTER_LOCKS, q.GetFlag()
	_, site, _ := s.Routers.cfg.View.Gateway(from)
	switch {
	case q.GetMethod() == forwardpb.Method_METHOD_UNLOCK:
		return nil, nil
	case !locks.Uses(s.Routers.cfg.View, q.GetVolume(), from) && locks.Reads(s.Routers.cfg.View, q.GetVolume(), from) &&
		forward.Reads(q.GetMethod()):
		return nil, nil // it makes another volume of this one
	case !locks.Uses(s.Routers.cfg.View, q.GetVolume(), from):
	case q.GetMethod() == forwardpb.Method_METHOD_FORGET:
		return nil, nil
	case forward.Changes(q.GetMethod()) && s.Routers.cfg.View.Allowed(q.GetVolume(), site.Name) != federation.ReadWrite:
		return nil, fmt.Errorf("%w: its owner lets site %s read it, and no more", volume.ErrReadOnly, site.Name)
	default:
		return nil, nil
	}
	switch {
	case registers && (recovering || len(q.GetLocks()) == 0): // a recovering gateway's locks are ignored
		return nil, nil
	case registers:
		used, err := s.Routers.usesNow(ctx, q.GetVolume(), from)
		if err != nil {
			return nil, fmt.Errorf("%w: the registry is needed to tell whether gateway %s keeps its locks: %v", volume.ErrDelay, from, err)
		}
		if !used {
			lost, q.Locks = q.GetLocks(), nil
			return lost, nil
		}
	}
	return nil, fmt.Errorf(
		"%w: as far as gateway %s has heard, the site of gateway %s has no copy of volume %s and no client that is admitted to it",
		volume.ErrDelay, s.Routers.cfg.Gateway, from, q.GetVolume())
}

// bound makes the user on whose behalf another organization's gateway asks one that its clients can
// be, as identity-2 says. What ends earlier work asks on behalf of no user.
func (s *Server) bound(from string, q *forwardpb.CallRequest) error {
	_, site, _ := s.Routers.cfg.View.Gateway(from)
	said, known := s.Routers.cfg.View.Foreign(q.GetVolume(), site.Name)
	switch q.GetMethod() {
	case forwardpb.Method_METHOD_UNLOCK, forwardpb.Method_METHOD_FORGET, forwardpb.Method_METHOD_REGISTER_LOCKS:
		return nil
	}
	if !known {
		return fmt.Errorf("%w: gateway %s does not know, now, whose gateway %s or volume %s is", volume.ErrDelay,
			s.Routers.cfg.Gateway, from, q.GetVolume())
	}
	if m := identity.New(said); m != nil {
		c := m.Bound(forward.CallerOf(q))
		q.Caller = &forwardpb.Caller{Uid: c.UID, Gid: c.GID, Groups: c.Groups, Mask: c.Mask}
	}
	return nil
}

// heldWithin is how long Held waits until the local copy has what the home has.
const heldWithin = 5 * time.Second

// Held implements forwardpb.ForwardServer: it returns which of a home's orphans this gateway's
// clients have open.
func (s *Server) Held(ctx context.Context, q *forwardpb.HeldRequest) (*forwardpb.HeldReply, error) {
	if _, err := s.Routers.cfg.Peers.Caller(ctx); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	v := s.Routers.Get(q.GetVolume())
	if v == nil {
		return nil, status.Errorf(codes.Unavailable, "volume %s is not open here yet", q.GetVolume())
	}
	if s.Routers.cfg.Recovering() {
		return nil, status.Error(codes.Unavailable, locks.ErrRecovering.Error())
	}
	if c := v.Copy(); c != nil {
		wait, cancel := context.WithTimeout(ctx, heldWithin)
		defer cancel()
		if err := c.Engine.WaitApplied(wait, journal.Position{Seq: q.GetSeq(), Off: q.GetOff()}); err != nil {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
	}
	// An outline that has not applied the removal of their names shows no state before that any
	// more.
	v.tell(v.Epoch(), journal.Position{Seq: q.GetSeq(), Off: q.GetOff()})
	var hs []volume.Handle
	for _, h := range q.GetHandles() {
		hs = append(hs, volume.Handle{Ino: h.GetIno(), Gen: h.GetGen()})
	}
	reply := new(forwardpb.HeldReply)
	for _, h := range v.heldOf(hs) {
		reply.Handles = append(reply.Handles, &forwardpb.Handle{Ino: h.Ino, Gen: h.Gen})
	}
	return reply, nil
}
