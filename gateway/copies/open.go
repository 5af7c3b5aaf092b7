// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/counted"
	"github.com/weir-storage/weir/cachepool/failstop"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/belief"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/inuse"
	"github.com/weir-storage/weir/gateway/keys"
	"github.com/weir-storage/weir/gateway/locks"
	"github.com/weir-storage/weir/gateway/mending"
	"github.com/weir-storage/weir/gateway/reaping"
	"github.com/weir-storage/weir/gateway/settings"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer"
	"github.com/weir-storage/weir/volume"
)

// metaFolder has a volume's metadata, in the volume's folder of the pool.
const metaFolder = "meta"

// open opens a volume's copy on the pool: the engine, whose metadata say how far the log must
// reach; the log, which the engine replays; and the replica, which is the engine's journal. The
// copy takes part in the protocol when its replica is started. A blind copy has no engine.
func (m *Manager) open(ctx context.Context, v federation.Volume) (_ *Copy, err error) {
	held := new(keys.Held)
	var key segment.DataKey
	blind := m.isBlind(v)
	if !blind {
		if held, err = m.cfg.Keys.Open(ctx, v); err != nil {
			return nil, err
		}
		key, _ = held.Get(0)
	}
	id, dir, err := m.placed(v)
	if err != nil {
		return nil, err
	}
	err = m.dropOld(dir, v.UUID)
	if err == nil && blind { // what it had with the key
		err = m.retireMeta(dir)
		if err == nil {
			err = m.dropOld(dir, v.UUID)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("remove former metadata of volume %s: %w", v.Name, err)
	}
	believed, err := m.belief(ctx, dir, v.UUID)
	if err != nil {
		return nil, err
	}
	lost := m.cfg.Pool.Rewound(v.UUID)
	logger := m.cfg.Logger.With("volume", v.Name)
	c := &Copy{Local: Local{UUID: v.UUID, users: inuse.New(), kept: v.Spec.Cache, keys: held}}
	c.generation.Store(v.Generation)
	m.cfg.Pool.Tune(v.UUID, settings.Below(v))
	logConfig := log.Config{
		Dir: dir, Room: m.cfg.Pool.Room(v.UUID), Volume: segment.VolumeID(id), DataKey: key, Keys: held.Keys,
		Sources: func() []log.Source { return m.sources(v.UUID) }, HealsReads: true, Rand: m.cfg.Rand, Blind: blind,
		Now: m.cfg.Now, Logger: logger, Synced: m.cfg.Synced, Lost: lost, Believe: believed,
	}
	config := engine.Config{ID: volume.ID(id), Dir: filepath.Join(dir.Path(), metaFolder), DataKey: key, Logger: logger,
		Failed: func(why error) { m.Reopen(v.UUID, why) }}
	if !blind {
		c.Locks = locks.NewTable(locks.Config{Volume: v.UUID, Gateway: m.cfg.Self.Gateway, View: m.cfg.View, Copy: c})
		c.held = reaping.NewHeld()
		config.MayBeHeld = c.held.MayBe
	}
	if lost == nil && believed.Identity.IsZero() {
		if err := m.begin(ctx, v, dir, config, logConfig); err != nil {
			return nil, err
		}
	}
	if !blind {
		c.Engine, err = m.openEngine(&c.Local, v, config)
		if err == nil {
			logConfig.KnownApplied, logConfig.Moved, logConfig.BadPack = c.Engine.Applied(), c.Engine.Moved, m.checkpoints.Suspect(v.UUID)
		}
	}
	if lost != nil && err != nil && !failstop.OfTheMoment(err) {
		return nil, fmt.Errorf("%w: %w: %w", errAhead, lost, err) // they went back while they were open
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	c.Cache, err = m.cfg.Pool.Of(v.UUID).Reads.Open(v.UUID, dir, settings.Share(v))
	if err != nil {
		logger.Warn("nothing that is read is kept on the pool", "error", err)
	}
	logConfig.Cache = c.Cache
	if c.Log, err = log.Open(logConfig); err != nil {
		return nil, err
	}
	if err := m.doubtful(ctx, c.Log, v.UUID, believed); err != nil {
		return nil, err
	}
	if c.Log.End().Less(logConfig.KnownApplied) {
		return nil, errAhead // the log was in doubt, and is believed
	}
	if at := logConfig.KnownApplied; !blind && (at.Less(c.Log.Base()) || len(c.Log.Absent(at.Seq, 1)) > 0) {
		own, err := m.cfg.Blind.Noted(dir) // it had no key before
		m.BeginsAnew(v.UUID, &checkpoints.Anew{Own: own}, errBehind)
		return nil, errors.Join(errBehind, err)
	}
	if !blind {
		c.Engine.KnowSegments(checkpoints.ClosedOf(c.Log))
		told := m.tellReplay(c)
		err = c.Engine.Replay(ctx, c.Log, c.Log.Recovered().Committed)
		told()
		if err != nil {
			return nil, fmt.Errorf("replay the log of volume %s: %w", v.Name, err)
		}
		if err := m.cfg.Blind.Forget(dir); err != nil {
			return nil, err
		}
	}
	if !believed.Identity.IsZero() {
		logger.Warn("the log goes on with what was left of it, by a person's word", "end", c.Log.End(), "was", c.Log.Recovered().Doubt)
		if err := m.cfg.Pool.Settled(v.UUID, lost); err != nil {
			return nil, err
		}
		if err := belief.Forget(dir); err != nil {
			return nil, err
		}
	}
	var to replica.Uploads
	if m.cfg.Store != nil {
		to = mending.NewUploads(m.cfg.Store, c.Log)
	}
	cfg := replica.Config{
		Volume: v.UUID, Log: c.Log, Machine: machine{c.Engine, c.Locks}, Blind: blind, Policy: settings.PolicyOf(v, m.cfg.View.Sites()),
		DataKey: key,
		Keys:    held.Keys,
		WantKey: func() {
			m.cfg.Keys.Want(v, held, func() (context.Context, func(), error) { return c.Use(context.Background()) })
		},
		MaxLag:    settings.MaxLag(v),
		Tails:     settings.TailsOf(v.UUID, m.cfg.View.Record, m.cfg.View.Format),
		Staleness: settings.Staleness(v),
		Store:     to, Aside: func(log.Position) { m.SetAside(v.UUID) }, Logger: logger,
		Anew: func() { m.BeginsAnew(v.UUID, &checkpoints.Anew{Behind: true}, errBehind) },
		Ended: func(why error) {
			if e := (*replica.UnnotedError)(nil); errors.As(why, &e) {
				c.unnoted.Store(e)
			}
			m.Reopen(v.UUID, why)
		},
	}
	if blind {
		cfg.Machine, cfg.WantKey = nil, nil
	}
	c.Replica = m.cfg.Node.Open(cfg)
	if !blind {
		c.Engine.Attach(c.Replica)
	}
	c.Cache.Attach(c.Replica)
	return c, nil
}

// placed returns a volume's identity, and its folder on the pool.
func (m *Manager) placed(v federation.Volume) (id uuid.UUID, dir cachepool.Dir, err error) {
	if id, err = uuid.Parse(v.UUID); err != nil {
		return id, nil, fmt.Errorf("volume %s: UUID %q: %w", v.Name, v.UUID, err)
	}
	dir, err = m.cfg.Pool.Volume(v.UUID)
	return id, dir, err
}

// openEngine opens the metadata of c in cfg.Dir, and counts in the pool's room what they take.
func (m *Manager) openEngine(c *Local, v federation.Volume, cfg engine.Config) (*engine.Engine, error) {
	there, err := counted.Size(m.cfg.FS, cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("measure the metadata of volume %s: %w", v.Name, err)
	}
	c.meta.Store(there) // which the pool's room counts since it was opened
	room := m.cfg.Pool.Room(v.UUID)
	cfg.FS = counted.New(m.cfg.FS, func(n int64) {
		room.Count(n)
		c.meta.Add(n)
	})
	cfg.Now, cfg.Clock, cfg.Rand, cfg.Bytes, cfg.Tuning = m.cfg.Now, m.cfg.Timers, m.cfg.Rand, uint64(v.Spec.Size), settings.Tuning(v)
	cfg.Cache, cfg.Pebble, cfg.Verifier = m.cfg.Cache, m.cfg.Pebble, m.cfg.Verifier
	cfg.Agreed, cfg.Level = m.cfg.Agreed, func() uint32 { return m.cfg.View.Format(v.UUID) }
	return engine.Open(cfg)
}

// machine is the engine as a replica's machine. It also begins and ends the reigns of the table of
// locks.
type machine struct {
	*engine.Engine
	locks *locks.Table
}

var _ journal.Machine = machine{}

// Lead implements journal.Leader.
func (m machine) Lead(ctx context.Context, epoch uint64) error {
	if err := m.locks.Begin(ctx, epoch); err != nil {
		return err
	}
	return m.Engine.Lead(ctx, epoch)
}

// Unlead implements journal.Leader.
func (m machine) Unlead() {
	m.Engine.Unlead()
	m.locks.End()
}

// sources returns the places where sealed segments of a volume may be, nearest first.
func (m *Manager) sources(id string) (out []log.Source) {
	if m.cfg.Store != nil {
		out = append(out, replica.StoreSource{Store: m.cfg.Store, Site: m.cfg.Self.Site})
	}
	for _, g := range m.cfg.View.Members() {
		if g.Gateway != m.cfg.Self.Gateway {
			out = append(out, peer.Source{Gateway: g.Gateway, Volume: id, Client: m.cfg.Peers.Segments})
		}
	}
	return append(out, m.cfg.Lent(id)...)
}

// May reports whether another gateway may have segments of a volume: its site uses it, or counts as
// a member still.
func (m *Manager) May(id, gateway string) bool {
	_, site, ok := m.cfg.View.Gateway(gateway)
	if !ok {
		return false
	}
	e := m.cfg.View.Volume(id)
	return m.cfg.View.MayRead(id, site.Name) || e != nil && e.IsAt(site.Name)
}

// Fetch reads a range of a sealed segment from this gateway's pool, or else from its site's store.
func (m *Manager) Fetch(ctx context.Context, id, name string, off int64, p []byte) error {
	c := m.opened(id)
	if c == nil {
		return fmt.Errorf("volume %s has no copy at gateway %s", id, m.cfg.Self.Gateway)
	}
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return err
	}
	defer done()
	if s, ok := c.Log.Find(name); ok {
		if n, err := c.Log.ReadSegmentFile(s.Seq, p, off); s.Local && err == nil && n == len(p) {
			return nil
		}
		name = s.Name
	}
	if m.cfg.Store == nil || !strings.HasPrefix(name, id+"/") {
		return fmt.Errorf("segment %s is not at gateway %s", name, m.cfg.Self.Gateway)
	}
	return m.cfg.Store.GetRange(ctx, name, off, p)
}
