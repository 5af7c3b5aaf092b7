// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-storage/weir/cachepool/counted"
	"github.com/weir-storage/weir/cachepool/failstop"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/folders"
	"github.com/weir-storage/weir/gateway/inuse"
	"github.com/weir-storage/weir/gateway/settings"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica/outline"
	"github.com/weir-storage/weir/replica/peer"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/volume"
)

// outlineFolder has the metadata of an outline, in the volume's folder of the pool. A folder with a
// copy has none.
const outlineFolder = "outline-meta"

// Outline is what a gateway has of a volume that its clients use, at a site without a copy: names
// and attributes, and of the data what the read cache keeps (ADR 22).
type Outline struct {
	Local
	Follower *outline.Follower

	failed   atomic.Bool // it is to be closed, and opened again
	diverged atomic.Bool // and is of another log
}

// close ends the operations on the outline, waits for them, and closes it.
func (o *Outline) close() error {
	o.users.End()
	o.Cache.Detach()
	if o.Follower != nil {
		o.Follower.Close()
	}
	o.users.Wait()
	var err error
	if o.Engine != nil {
		err = o.Engine.Close()
	}
	err = errors.Join(err, o.Cache.Close())
	if o.Log != nil {
		err = errors.Join(err, o.Log.Close())
	}
	return err
}

// Outline returns a volume's outline; nil: none is open.
func (m *Manager) Outline(uuid string) *Outline {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.volumes[uuid]; s != nil {
		return s.outline
	}
	return nil
}

// Local returns what is open here of a volume, a copy or an outline; nil: neither.
func (m *Manager) Local(uuid string) *Local {
	if c := m.Copy(uuid); c != nil {
		return &c.Local
	}
	if o := m.Outline(uuid); o != nil {
		return &o.Local
	}
	return nil
}

// forgetAfter is how long an outline that no client of the site uses stays on the pool.
const forgetAfter = 24 * time.Hour

// follow brings a volume's outline in line with the registry, at a site that is not to have a copy
// and has none. It reports whether something must be tried again.
func (m *Manager) follow(ctx context.Context, s *managed, v federation.Volume) (again bool) {
	uses := m.cfg.View.MayRead(v.UUID, m.cfg.Self.Site)
	if s.outline != nil && (!uses || s.outline.failed.Load()) {
		failed := s.outline.failed.Load()
		_ = m.unfollow(v.UUID, s) // which logs it
		if failed {
			s.backoff.Failed(m.cfg.Now())
		}
	}
	switch {
	case !uses:
		m.forget(s, v)
		return false
	case s.outline == nil && s.backoff.Waits(m.cfg.Now()):
		return true
	}
	s.unused = time.Time{}
	if s.outline != nil {
		if s.outline.differs(v) {
			s.outline.Follower.SetStaleness(settings.Staleness(v))
			s.outline.tune(v, m.cfg.Pool)
		}
		return m.cfg.Keys.Renew(ctx, v, s.outline.keys, s.outline.Log.NewSalt)
	}
	if m.cfg.Keys.Awaited(v.UUID) {
		return false // reads go to the home meanwhile
	}
	o, err := m.openOutline(ctx, v)
	if errors.Is(err, errBeginning) {
		return false // its end wakes Run
	}
	if err != nil {
		s.backoff.Failed(m.cfg.Now())
		if ctx.Err() == nil {
			m.cfg.Logger.Warn("nothing of the volume is kept here yet; its home is asked for all of it", "volume", v.Name, "error", err)
		}
		return true
	}
	s.backoff.Opened(m.cfg.Now())
	m.setOutline(v.UUID, s, o)
	o.Follower.Start()
	return false
}

// setOutline is called by Run alone; others read.
func (m *Manager) setOutline(id string, s *managed, o *Outline) {
	m.mu.Lock()
	s.outline = o
	m.mu.Unlock()
	m.cfg.Follow(id, o)
}

// unfollow closes a volume's outline. If it is of another log, it is to begin anew.
func (m *Manager) unfollow(id string, s *managed) error {
	o := s.outline
	m.setOutline(id, s, nil)
	err := o.close()
	if err == nil && o.diverged.Load() {
		err = m.beginAnew(id)
	}
	if err != nil {
		m.cfg.Logger.Warn("outline of the volume did not close cleanly", "volume", id, "error", err)
	}
	return err
}

// beginAnew deletes an outline that nobody has open, but for what the read cache has: of another
// log, that is found nowhere, and goes by use.
func (m *Manager) beginAnew(id string) error {
	dir, err := m.cfg.Pool.Volume(id)
	if err != nil {
		return err
	}
	if isCopy, _, err := folders.Content(m.cfg.FS, dir.Path()); err != nil || isCopy {
		return errors.Join(err, fmt.Errorf("folder %s has a copy (%t): it stays as it is", dir.Path(), isCopy))
	}
	err = counted.New(m.cfg.FS, m.cfg.Pool.Room(id).Count).RemoveAll(filepath.Join(dir.Path(), outlineFolder))
	return errors.Join(err, log.RemoveOutline(dir))
}

// dropOutline deletes an outline that nobody has open, and what the read cache has of the volume.
func (m *Manager) dropOutline(id string) error {
	there, err := m.cfg.Pool.ListVolumes()
	if err != nil {
		return err
	}
	if slices.Contains(there, id) {
		if err := m.beginAnew(id); err != nil {
			return err
		}
		if err := m.cfg.Pool.Remove(id); err != nil {
			return err
		}
	}
	delete(m.outlined, id)
	return nil
}

// forget deletes what was kept of a volume that no client of this site has used for long.
func (m *Manager) forget(s *managed, v federation.Volume) {
	now := m.cfg.Now()
	switch {
	case !m.outlined[v.UUID]:
	case s.unused.IsZero():
		s.unused = now
	case now.Sub(s.unused) >= forgetAfter:
		if err := m.dropOutline(v.UUID); err != nil {
			m.cfg.Logger.Warn("what is kept of a volume that nobody uses here stays for now", "volume", v.Name, "error", err)
		}
	}
}

// forgetDeleted deletes what is kept of volumes that were deleted, and that this site has no copy
// of.
func (m *Manager) forgetDeleted() {
	for id := range m.outlined {
		v, ok := m.cfg.View.Record(id)
		if !ok || !v.Deleted || m.Outline(id) != nil || m.isBetween(id) || m.cfg.Registry.Trusted() != nil {
			continue
		}
		if err := m.dropOutline(id); err != nil {
			m.cfg.Logger.Warn("what is kept of a deleted volume stays for now", "volume", v.Name, "error", err)
		}
	}
}

// openOutline opens a volume's outline on the pool. One that does not fit together begins anew.
func (m *Manager) openOutline(ctx context.Context, v federation.Volume) (*Outline, error) {
	dir, err := m.cfg.Pool.Volume(v.UUID)
	if err != nil {
		return nil, err
	}
	if isCopy, _, err := folders.Content(m.cfg.FS, dir.Path()); err != nil || isCopy {
		m.kept[v.UUID] = m.kept[v.UUID] || isCopy // one that was begun, and could not be opened: it leaves as any other
		return nil, errors.Join(err, fmt.Errorf("folder %s has a copy (%t)", dir.Path(), isCopy))
	}
	m.outlined[v.UUID] = true // before anything of it is there
	if why := m.cfg.Pool.Rewound(v.UUID); why != nil {
		if err := m.beginAnew(v.UUID); err != nil {
			return nil, err
		}
		if err := m.cfg.Pool.Settled(v.UUID, why); err != nil {
			return nil, err
		}
	}
	o, err := m.openThatOutline(ctx, v)
	if !errors.Is(err, log.ErrDiverged) {
		return o, err
	}
	m.cfg.Logger.Warn("what was kept of the volume here begins anew", "volume", v.Name, "error", err)
	if err := m.beginAnew(v.UUID); err != nil {
		return nil, err
	}
	return m.openThatOutline(ctx, v)
}

func (m *Manager) openThatOutline(ctx context.Context, v federation.Volume) (_ *Outline, err error) {
	held, err := m.cfg.Keys.Open(ctx, v)
	if err != nil {
		return nil, err
	}
	id, dir, err := m.placed(v)
	if err != nil {
		return nil, err
	}
	key, _ := held.Get(0)
	o := &Outline{Local: Local{UUID: v.UUID, users: inuse.New(), kept: v.Spec.Cache, keys: held}}
	o.generation.Store(v.Generation)
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	logger := m.cfg.Logger.With("volume", v.Name)
	failed := func(why error) {
		o.failed.Store(true)
		m.Reopen(v.UUID, why)
	}
	diverged := func(why error) {
		logger.Warn("what is kept of the volume here begins anew", "error", why)
		o.diverged.Store(true)
		failed(why)
	}
	config := engine.Config{ID: volume.ID(id), Dir: filepath.Join(dir.Path(), outlineFolder), DataKey: key, Logger: logger,
		Failed: failed}
	if err := m.begin(ctx, v, dir, config, log.Config{Dir: dir, Volume: segment.VolumeID(id), Keys: held.Keys,
		Logger: logger}); err != nil {
		return nil, err
	}
	o.Engine, err = m.openEngine(&o.Local, v, config)
	if err != nil && !failstop.OfTheMoment(err) {
		return nil, fmt.Errorf("%w: %w", log.ErrDiverged, err)
	}
	if err != nil {
		return nil, err
	}
	m.cfg.Pool.Tune(v.UUID, settings.Below(v))
	o.Cache, err = m.cfg.Pool.Of(v.UUID).Reads.Open(v.UUID, dir, settings.Share(v))
	if err != nil {
		logger.Warn("nothing that is read is kept on the pool", "error", err)
	}
	o.Log, err = log.OpenOutline(log.Config{Dir: dir, Room: m.cfg.Pool.Room(v.UUID), Volume: segment.VolumeID(id), DataKey: key,
		Keys: held.Keys, Cache: o.Cache, Sources: func() []log.Source { return m.copiesOf(v.UUID) }, Rand: m.cfg.Rand, Now: m.cfg.Now,
		Logger: logger, KnownApplied: o.Engine.Applied(), Moved: o.Engine.Moved})
	if err != nil {
		return nil, err
	}
	o.Follower = outline.Follow(outline.Config{Volume: v.UUID, Log: o.Log, Machine: o.Engine, Staleness: settings.Staleness(v),
		Home: func() (peerpb.OutlinesClient, uint64, context.Context, error) {
			home, epoch, over := m.cfg.View.Reign(v.UUID)
			if home == "" || home == m.cfg.Self.Gateway {
				return nil, 0, nil, journal.ErrNotHome
			}
			client, err := m.cfg.Peers.Outlines(home)
			return client, epoch, over, err
		},
		Changed: m.cfg.View.Changed, Heartbeat: m.cfg.Heartbeat, Clock: m.cfg.Clock, Timers: m.cfg.Timers, Diverged: diverged,
		Logger: logger})
	o.Engine.Attach(o.Follower)
	return o, nil
}

// copiesOf returns where the blocks of a volume can be read that this site has no copy of: the
// gateways of the sites that have one, the home first.
func (m *Manager) copiesOf(id string) (out []log.Source) {
	v, _ := m.cfg.View.Record(id)
	home, _ := m.cfg.View.Home(id)
	var more []log.Source
	for _, g := range m.cfg.View.Members() {
		source := peer.Source{Gateway: g.Gateway, Volume: id, Client: m.cfg.Peers.Segments}
		switch {
		case g.Gateway == home:
			out = append(out, source)
		case g.Gateway != m.cfg.Self.Gateway && slices.Contains(v.Sites, g.Site):
			more = append(more, source)
		}
	}
	return append(out, more...)
}

// Home opens a volume for those that follow its log, while its copy is open here.
func (m *Manager) Home(ctx context.Context, id string) (context.Context, outline.Home, error) {
	c := m.Copy(id)
	if c == nil {
		return ctx, outline.Home{}, journal.ErrNotHome
	}
	ctx, done, err := c.Use(ctx)
	return ctx, outline.Home{Log: c.Log, Replica: c.Replica, Done: done}, err
}

// Jumped reports that time may have passed which the clock did not count. It does not wait.
func (m *Manager) Jumped() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.volumes {
		if s.outline != nil {
			s.outline.Follower.Jumped()
		}
	}
}
