// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/volume"
)

// manage opens volumes as they appear, changes their policy, and closes them when they go.
func (g *Gateway) manage(ctx context.Context) {
	for ctx.Err() == nil {
		changed := g.mirror.wait()
		again := g.reconcile(ctx)
		var retry <-chan time.Time
		if again {
			retry = time.After(2 * time.Second)
		}
		select {
		case <-changed:
		case <-retry:
		case id := <-g.aside:
			g.reopenAside(id)
		case <-ctx.Done():
		}
	}
}

// reconcile brings what is open in line with what the registry wants, and tells whether something must be tried again.
func (g *Gateway) reconcile(ctx context.Context) (again bool) {
	synced, all := g.mirror.allVolumes()
	for _, v := range all {
		g.servedOf(v)
	}
	if synced {
		select {
		case <-g.ready:
		default:
			close(g.ready)
			g.cfg.Health.set(func() { g.cfg.Health.heard = true })
		}
	}
	for _, v := range all {
		s := g.servedOf(v)
		if s != nil && g.keeps(v) {
			again = g.bring(ctx, s, v) || again
		}
	}
	g.closeGone()
	return again
}

// bring brings one volume's copy in line, and tells whether something must be tried again.
func (g *Gateway) bring(ctx context.Context, s *served, v federation.Volume) (again bool) {
	if s.copy == nil && !g.openCopy(ctx, s, v) {
		return !errors.Is(s.problem, errAwaitsKey)
	}
	if s.copy.generation.Load() != v.Generation {
		s.copy.replica.SetPolicy(policyOf(v), maxLagOf(v))
		s.copy.engine.SetRoom(uint64(v.Spec.Size), 1<<32)
		s.copy.generation.Store(v.Generation)
	}
	if !slices.Contains(v.Sites, g.cfg.Site) {
		if g.leave(ctx, s, v) {
			return false
		}
		if s.copy != nil {
			g.shareKey(ctx, s.copy, v) // who is to have a copy instead needs it
		}
		return true
	}
	if s.leaving != nil {
		g.setLeaving(s, nil)
	}
	return g.shareKey(ctx, s.copy, v)
}

// openCopy opens the copy of a volume that has none open, and tells whether it did.
func (g *Gateway) openCopy(ctx context.Context, s *served, v federation.Volume) bool {
	if s.doubted && g.mirror.isMember(v.UUID, g.self) {
		return false
	}
	if g.awaitsKey(v.UUID) {
		g.mu.Lock()
		s.problem = errAwaitsKey
		g.mu.Unlock()
		return false
	}
	c, err := g.openReplica(ctx, v)
	var doubt *doubtError
	if s.doubted = errors.As(err, &doubt) && doubt.member; doubt != nil && !doubt.member {
		g.cfg.Logger.Error("the copy of the volume on this pool is not its old self: it is kept aside and made anew", "volume", v.Name, "error", err)
		err = errors.Join(err, g.renew(v.UUID, "doubt"))
	}
	if err == nil {
		s.router.setCopy(c) // before anybody can ask the copy what is held
	}
	g.mu.Lock()
	s.problem = err
	if err == nil {
		s.copy = c
	}
	g.mu.Unlock()
	if err == nil || doubt != nil {
		g.kept[v.UUID] = true
	}
	if err != nil {
		if ctx.Err() == nil {
			g.cfg.Logger.Error("volume is not open here yet; trying again", "volume", v.Name, "error", err)
		}
		return false
	}
	c.replica.Start()
	return true
}

// servedOf returns what is served of a volume, beginning to serve it if that is new.
func (g *Gateway) servedOf(v federation.Volume) *served {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.volumes[v.UUID]
	if s == nil {
		id, err := uuid.Parse(v.UUID)
		if err != nil {
			g.cfg.Logger.Error("volume's UUID can not be read", "volume", v.Name, "uuid", v.UUID, "error", err)
			return nil
		}
		s = &served{router: newRouter(g, volume.ID(id))}
		g.volumes[v.UUID] = s
	}
	return s
}

// closeGone closes volumes that are deleted. Their data stays on the pool until they are purged.
func (g *Gateway) closeGone() {
	g.mu.Lock()
	var gone []*served
	for id, s := range g.volumes {
		if v, ok := g.mirror.volume(id); !ok || v.Deleted {
			gone = append(gone, s)
			delete(g.volumes, id)
		}
	}
	g.mu.Unlock()
	for _, s := range gone {
		s.router.setCopy(nil)
		if s.copy != nil {
			if err := s.copy.close(); err != nil {
				g.cfg.Logger.Warn("volume did not close cleanly", "volume", s.copy.uuid, "error", err)
			}
		}
	}
}

// setAside is called when a volume's log here holds what a forced takeover left out.
func (g *Gateway) setAside(id string, _ log.Position) {
	select {
	case g.aside <- id:
	default: // it is called again with the next greeting
	}
}
