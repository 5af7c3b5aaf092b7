// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/volume"
)

// Registry is the part of the registry that Routers read with a quorum.
type Registry interface {
	GetControl(ctx context.Context, volume string) (federation.Control, federation.Revision, error)
	GetVolume(ctx context.Context, uuid string) (federation.Volume, federation.Revision, error)
	ListAdmissions(ctx context.Context, site string) ([]federation.Admission, error)
}

// Routers has one gateway's Routers, one for each volume of the registry. Its methods may be called
// from many goroutines.
type Routers struct {
	cfg Config

	mu  sync.Mutex
	all map[string]*Router // by UUID
}

// New returns Routers for no volume.
func New(cfg Config) *Routers { return &Routers{cfg: cfg, all: map[string]*Router{}} }

// Serve makes the Router of a volume, unless there is one. It returns false if the UUID does not
// parse.
func (t *Routers) Serve(v federation.Volume) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[v.UUID] == nil {
		id, err := uuid.Parse(v.UUID)
		if err != nil {
			t.cfg.Logger.Error("volume's UUID cannot be read", "volume", v.Name, "uuid", v.UUID, "error", err)
			return false
		}
		t.all[v.UUID] = newRouter(&t.cfg, volume.ID(id))
	}
	return true
}

// Attach gives a volume's Router its local copy, or takes it away (nil).
func (t *Routers) Attach(uuid string, c *copies.Copy) {
	if v := t.Get(uuid); v != nil {
		v.setCopy(c)
	}
}

// Follow gives a volume's Router its outline, or takes it away (nil).
func (t *Routers) Follow(uuid string, o *copies.Outline) {
	if v := t.Get(uuid); v != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.outline = o
	}
}

// Drop ends the Router of a volume that was deleted.
func (t *Routers) Drop(uuid string) {
	t.mu.Lock()
	v := t.all[uuid]
	delete(t.all, uuid)
	t.mu.Unlock()
	if v != nil {
		v.setCopy(nil)
	}
}

// Get returns a volume's Router; nil: there is none, or not yet.
func (t *Routers) Get(uuid string) *Router {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[uuid]
}

// How often locks are registered with new homes in the background, and for how long one try lasts.
const (
	registerEvery  = time.Second
	registerWithin = 2 * time.Second
)

// KeepRegistered registers the locks of this gateway's clients with homes that are new, until ctx
// ends. before is called before each round.
func (t *Routers) KeepRegistered(ctx context.Context, before func()) {
	tick := t.cfg.Timers.NewTicker(registerEvery)
	defer tick.Stop()
	for {
		changed := t.cfg.View.Changed()
		before()
		t.mu.Lock()
		all := make([]*Router, 0, len(t.all))
		for _, v := range t.all {
			all = append(all, v)
		}
		t.mu.Unlock()
		for _, v := range all {
			call, cancel := context.WithTimeout(ctx, registerWithin)
			if err := v.Locks.RegisterIfDue(call); err != nil {
				t.cfg.Logger.Debug("locks are not registered with the home yet", "volume", v.uuid, "error", err)
			}
			cancel()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.Chan():
		}
	}
}

// usesNow reports whether a gateway's clients may use a volume, as read from the registry. A
// gateway may have locks under an admission that the view here does not have yet.
func (t *Routers) usesNow(ctx context.Context, id, gateway string) (bool, error) {
	_, site, _ := t.cfg.View.Gateway(gateway)
	v, _, err := t.cfg.Registry.GetVolume(ctx, id)
	if err != nil || slices.Contains(v.Sites, site.Name) && !v.IsBlind(site.Name) {
		return true, err
	}
	if v.IsBlind(site.Name) {
		return false, nil
	}
	granted := site.Organization == v.Owner || slices.ContainsFunc(v.Grants, func(g federation.Grant) bool { return g.Site == site.Name })
	all, err := t.cfg.Registry.ListAdmissions(ctx, site.Name)
	return slices.ContainsFunc(all, func(a federation.Admission) bool { return a.Volume == id && (granted || a.Node == "") }), err
}
