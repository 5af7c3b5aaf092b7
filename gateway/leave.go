// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
)

// leaving is a copy at a site that the volume's desired state does not have any more.
//
// A home hands over first. A member waits until the home has put another in its place, if one is wanted. The copy is closed and deleted
// only when, read with a quorum, the site is not to have a copy, the control record does not name this gateway, and
// the home has reported, in its present epoch and with the desired state in force, that each site that is to have a copy has all that
// is committed. What the site's store has of the volume stays there.
type leaving struct {
	why   string // it is still here
	next  time.Time
	pause time.Duration
}

// Pauses between looks at a copy that is to leave.
const (
	leaveFirst = 2 * time.Second
	leaveMost  = time.Minute
)

// leave does the next step to give up a copy, and tells whether the copy is closed and deleted.
func (g *Gateway) leave(ctx context.Context, s *served, v federation.Volume) (gone bool) {
	now := g.cfg.Now()
	if s.leaving == nil {
		g.setLeaving(s, &leaving{pause: leaveFirst})
		g.cfg.Logger.Info("this site is not to have a copy of the volume any more", "volume", v.Name)
	} else if now.Before(s.leaving.next) {
		return false
	}
	var err error
	if _, leading := s.copy.replica.Leading(); leading {
		err = g.handOver(s.copy, v)
		s.leaving.pause = max(s.leaving.pause, 3*g.cfg.Promise) // by then it has moved or not
	} else if err = g.unneeded(ctx, v); err == nil {
		err = g.dropCopy(ctx, s, v)
	}
	if err == nil || ctx.Err() != nil {
		return err == nil
	}
	why := fmt.Sprintf("this site is not to have a copy any more; it stays for now: %v", err)
	g.mu.Lock()
	s.leaving.why = why
	g.mu.Unlock()
	g.cfg.Logger.Debug("copy is not given up yet", "volume", v.Name, "why", err)
	s.leaving.next, s.leaving.pause = now.Add(s.leaving.pause), min(2*s.leaving.pause, leaveMost)
	return false
}

// handOver moves the home to the best copy that is to stay. It always returns why the copy is still here.
func (g *Gateway) handOver(c *replicaOf, v federation.Volume) error {
	copies := c.replica.Lag()
	for _, state := range []federation.ReplicaState{federation.ReplicaMember, federation.ReplicaFollower} {
		for _, site := range v.Sites {
			i := slices.IndexFunc(copies, func(r federation.ObservedReplica) bool { return r.Site == site && r.State == state })
			if i >= 0 {
				c.replica.Move(copies[i].Gateway)
				return fmt.Errorf("it is home, and hands over to %s", copies[i].Gateway)
			}
		}
	}
	return fmt.Errorf("it is home, and no copy at %s has all that it has", strings.Join(v.Sites, ", "))
}

// unneeded returns nil if this gateway's copy may be deleted, else why not.
func (g *Gateway) unneeded(ctx context.Context, v federation.Volume) error {
	if g.mirror.isMember(v.UUID, g.self) {
		return errors.New("it is a member until another has taken its place")
	}
	v, _, err := g.cfg.Registry.GetVolume(ctx, v.UUID)
	if err != nil {
		return err
	}
	if slices.Contains(v.Sites, g.cfg.Site) {
		return errors.New("the site is to have a copy again")
	}
	ctl, err := g.notMember(ctx, v)
	if err != nil {
		return err
	}
	reports, err := g.cfg.Registry.ListObserved(ctx, v.UUID)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(reports, func(o federation.Observed) bool { return o.Gateway == ctl.Home.Gateway })
	switch {
	case i < 0 || reports[i].Epoch != ctl.Epoch:
		return fmt.Errorf("home %s has not reported yet which copies there are", ctl.Home.Gateway)
	case reports[i].Generation < v.Generation:
		return fmt.Errorf("home %s has not taken up the change yet", ctl.Home.Gateway)
	}
	for _, site := range v.Sites {
		whole := slices.ContainsFunc(reports[i].Replicas, func(r federation.ObservedReplica) bool {
			return r.Site == site && (r.State == federation.ReplicaHome || r.State == federation.ReplicaMember || r.State == federation.ReplicaFollower)
		})
		if !whole {
			return fmt.Errorf("site %s has not everything yet, as home %s reports", site, ctl.Home.Gateway)
		}
	}
	return nil
}

// notMember returns the control record if it does not count on this gateway's copy.
func (g *Gateway) notMember(ctx context.Context, v federation.Volume) (federation.Control, error) {
	ctl, _, err := g.cfg.Registry.GetControl(ctx, v.UUID)
	if err == nil && slices.ContainsFunc(ctl.Members, func(m federation.Member) bool { return m.Gateway == g.cfg.Name }) {
		err = errors.New("it is a member until another has taken its place")
	}
	return ctl, err
}

// dropCopy closes the copy, and deletes it if nobody came to count on it meanwhile.
func (g *Gateway) dropCopy(ctx context.Context, s *served, v federation.Volume) error {
	s.router.setCopy(nil)
	err := s.copy.close()
	g.mu.Lock()
	s.copy = nil
	g.mu.Unlock()
	if err == nil {
		_, err = g.notMember(ctx, v) // it is closed: it acknowledges nothing from here on
	}
	if err == nil {
		err = g.cfg.Pool.RemoveVolume(v.UUID)
	}
	if err != nil {
		g.cfg.Logger.Warn("copy is not deleted yet; it opens again", "volume", v.Name, "error", err)
		return err
	}
	g.setLeaving(s, nil)
	delete(g.kept, v.UUID)
	g.cfg.Logger.Info("copy is deleted: this site is not to have one any more", "volume", v.Name)
	return nil
}

// setLeaving is called by manage alone; others read.
func (g *Gateway) setLeaving(s *served, l *leaving) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.leaving = l
}

// keeps tells whether this gateway is to have the volume's copy open: its site is to have one, or the pool still has it.
func (g *Gateway) keeps(v federation.Volume) bool {
	return slices.Contains(v.Sites, g.cfg.Site) || g.kept[v.UUID]
}
