// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
)

// leaving is the state of a copy at a site that is not in the volume's desired state any more
// (copies-3).
//
// A home hands over first. A member waits until the home has put another in its place, if one is
// wanted. The home's report must be of its present epoch and of the desired state in force.
type leaving struct {
	why   string // why the copy is still here
	next  time.Time
	after time.Duration // wait from the next look to the one after
}

// How long to wait before the next look at a copy that is to leave.
const (
	leaveFirst = 2 * time.Second
	leaveMost  = time.Minute
)

// leave does the next step towards deleting a copy, and reports whether the copy is closed and
// deleted.
func (m *Manager) leave(ctx context.Context, s *managed, v federation.Volume) (gone bool) {
	now := m.cfg.Now()
	if s.leaving == nil {
		m.setLeaving(s, &leaving{after: leaveFirst})
		m.cfg.Logger.Info("this site is not to have a copy of the volume any more", "volume", v.Name)
	} else if now.Before(s.leaving.next) {
		return false
	}
	var err error
	if _, leading := s.copy.Leading(); leading {
		err = m.handOver(s.copy, v)
		s.leaving.after = max(s.leaving.after, 3*m.cfg.Promise) // by then it has moved or not
	} else if err = m.unneeded(ctx, v); err == nil {
		err = m.dropCopy(ctx, s, v)
	}
	if err == nil || ctx.Err() != nil {
		return err == nil
	}
	why := fmt.Sprintf("this site is not to have a copy any more; it stays for now: %v", err)
	m.mu.Lock()
	s.leaving.why = why
	m.mu.Unlock()
	m.cfg.Logger.Debug("copy is not given up yet", "volume", v.Name, "why", err)
	s.leaving.next, s.leaving.after = now.Add(s.leaving.after), min(2*s.leaving.after, leaveMost)
	return false
}

// handOver moves the home to the best copy that is to stay. It always returns an error: why this
// copy is still here.
func (m *Manager) handOver(c *Copy, v federation.Volume) error {
	copies := c.Replica.Lag()
	for _, state := range []federation.ReplicaState{federation.ReplicaMember, federation.ReplicaFollower} {
		for _, site := range v.Sites {
			if v.IsBlind(site) {
				continue
			}
			i := slices.IndexFunc(copies, func(r federation.ObservedReplica) bool { return r.Site == site && r.State == state })
			if i >= 0 {
				c.Replica.Move(copies[i].Gateway)
				return fmt.Errorf("it is home, and hands over to %s", copies[i].Gateway)
			}
		}
	}
	return fmt.Errorf("it is home, and no copy at %s has all that it has", strings.Join(v.Sites, ", "))
}

// unneeded returns nil if this gateway's copy may be deleted, else why not.
func (m *Manager) unneeded(ctx context.Context, v federation.Volume) error {
	if m.cfg.View.CountsOn(v.UUID, m.cfg.Self) {
		return errors.New("it is a member until another has taken its place")
	}
	v, _, err := m.cfg.Registry.GetVolume(ctx, v.UUID)
	if err != nil {
		return err
	}
	if slices.Contains(v.Sites, m.cfg.Self.Site) {
		return errors.New("the site is to have a copy again")
	}
	ctl, err := m.notMember(ctx, v)
	if err != nil {
		return err
	}
	reports, err := m.cfg.Registry.ListObserved(ctx, v.UUID)
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
			return r.Site == site && (r.State == federation.ReplicaHome || r.State == federation.ReplicaMember ||
				r.State == federation.ReplicaFollower)
		})
		if !whole {
			return fmt.Errorf("site %s has not everything yet, as home %s reports", site, ctl.Home.Gateway)
		}
	}
	return nil
}

// notMember returns the control record if it does not count on this gateway's copy. A registry that
// went back cannot say so, whatever it answers.
func (m *Manager) notMember(ctx context.Context, v federation.Volume) (federation.Control, error) {
	ctl, _, err := m.cfg.Registry.GetControl(ctx, v.UUID)
	if err == nil {
		err = m.cfg.Registry.Trusted() // after the answer, which may be the one that shows it
	}
	if err == nil && slices.ContainsFunc(ctl.Members, func(x federation.Member) bool { return x.Gateway == m.cfg.Self.Gateway }) {
		err = errors.New("it is a member until another has taken its place")
	}
	return ctl, err
}

// dropCopy closes the copy, and deletes it unless the control record has come to count on it
// meanwhile.
func (m *Manager) dropCopy(ctx context.Context, s *managed, v federation.Volume) error {
	err := m.detach(v.UUID, s)
	if err == nil {
		_, err = m.notMember(ctx, v) // now it is closed, so it acknowledges nothing any more
	}
	if err == nil {
		err = m.remove(s, v)
	}
	if err != nil {
		m.cfg.Logger.Warn("copy is not deleted yet; it opens again", "volume", v.Name, "error", err)
	}
	return err
}

// remove deletes a copy that is closed.
func (m *Manager) remove(s *managed, v federation.Volume) error {
	if err := m.cfg.Pool.Remove(v.UUID); err != nil {
		return err
	}
	m.setLeaving(s, nil)
	delete(m.kept, v.UUID)
	m.cfg.Logger.Info("copy is deleted: this site is not to have one any more", "volume", v.Name)
	return nil
}

// lends returns why this site gives a volume no room: it has no copy of it yet, and lends nothing
// to its owner, whatever the volume's record says.
func (m *Manager) lends(v federation.Volume) error {
	_, site, known := m.cfg.View.Gateway(m.cfg.Self.Gateway)
	if m.kept[v.UUID] || !known || m.cfg.View.Takes(site, v, m.cfg.Now(), m.keeps) || m.cfg.View.CountsOn(v.UUID, m.cfg.Self) {
		return nil
	}
	return fmt.Errorf("volume %s belongs to %s, to whom site %s lends no room: agree on some, or name it in lends of the gateway's "+
		"configuration", v.Name, v.Owner, site.Name)
}

func (m *Manager) keeps(id string) bool { return m.kept[id] }

// setLeaving is called by Run alone; others read.
func (m *Manager) setLeaving(s *managed, l *leaving) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.leaving = l
}
