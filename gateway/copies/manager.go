// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/cachepool/failstop"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/backoff"
	"github.com/weir-storage/weir/gateway/belief"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/folders"
	"github.com/weir-storage/weir/gateway/keys"
	"github.com/weir-storage/weir/gateway/peers"
	"github.com/weir-storage/weir/gateway/pools"
	"github.com/weir-storage/weir/gateway/reaping"
	"github.com/weir-storage/weir/gateway/settings"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/protocol"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// ManagerConfig has what a Manager needs.
type ManagerConfig struct {
	Self     protocol.Member // this gateway, with the incarnation of its pool
	Promise  time.Duration
	View     *view.View
	Registry federation.Registry
	Peers    *peers.Peers
	Node     *replica.Node
	Pool     *pools.Pools
	FS       vfs.FS      // that the pools' directories are on
	Store    store.Store // of this site; nil: it has none
	// Lent returns stores of other organizations that may have segments of a volume.
	Lent   func(uuid string) []log.Source
	Keys   *keys.Keeper
	Blind  Blind
	Cache  *engine.BlockCache
	Pebble *pebble.Cache
	Now    func() time.Time
	Timers clockwork.Clock
	Agreed func(ctx context.Context) (time.Time, error) // that of a clocks.Watch
	// Clock is a monotonic clock that counts suspend.
	Clock       func() time.Duration
	Heartbeat   time.Duration // between questions to a home whose log is followed
	Rand        io.Reader
	Logger      *slog.Logger
	Verifier    func(epoch uint64) volume.Verifier // engine.Config's
	Recovering  func() bool                        // clients of this gateway still reclaim what they held
	Synced      func(took time.Duration)           // log.Config's
	Checkpoints checkpoints.Due                    // when they are made; zero: as usual
	// Serve is called with every volume of the registry, before anything else is done with it. It
	// reports whether the volume can be served.
	Serve func(v federation.Volume) bool
	// Attach gives a volume's copy to the volume's Router, or takes it away (nil).
	Attach func(uuid string, c *Copy)
	// Follow gives a volume's outline to the volume's Router, or takes it away (nil).
	Follow func(uuid string, o *Outline)
	// Gone is called when a volume is deleted. It is not served any more.
	Gone func(uuid string)
	// Heard is called once, when Serve was called for every volume of the registry.
	Heard func()
}

// Manager has all copies of one gateway.
type Manager struct {
	cfg   ManagerConfig
	aside chan string     // volumes whose copy is to be set aside
	wake  chan struct{}   // reopen has something
	kept  map[string]bool // volumes with a copy on the pool, open or not; used by Run only
	heard bool            // used by Run only
	// outlined are the volumes with an outline on the pool, open or not; used by Run only.
	outlined map[string]bool

	unnoted map[string]error // why logs were given up of whose pools that could not be noted, see key; used by Run only

	folders     *folders.Folders
	checkpoints *checkpoints.Keeper
	reaping     *reaping.Keeper
	unshed      chan struct{} // KeepPurging is to shed what is left

	mu         sync.Mutex
	volumes    map[string]*managed          // by UUID
	round      bool                         // Run is in reconcile, and may open a copy for long
	beginnings map[string]*beginning        // by UUID
	work       sync.WaitGroup               // of beginnings
	anew       map[string]*checkpoints.Anew // copies that are to begin anew when they are opened
	reopen     map[string]error             // why a volume's copy is to be closed and opened again
	between    map[string]func()            // what is to be done before it is opened, with mu not held
}

// managed is the state of one volume at this gateway. Run changes it, with mu held where others
// read.
type managed struct {
	copy    *Copy               // nil: there is none, or it could not be opened yet
	problem error               // why not
	between bool                // it is closed until its folder has moved
	replay  federation.Progress // of its log, while it is opened
	doubted bool                // the log is in doubt, and the control record counts on it; used by Run only
	epoch   uint64              // in which it was found to be; used by Run only
	leaving *leaving            // not nil: the site is not to have the copy any more
	outline *Outline            // nil: none is open
	unused  time.Time           // since when no client of the site uses the outline; used by Run only
	backoff backoff.Backoff     // of opening it again after it failed
}

// State is the state of one volume at this gateway.
type State struct {
	Copy    *Copy  // nil: no copy is open
	Problem error  // why none is open, if one should be
	Leaving string // why a copy is still here that is not to be
}

// NewManager returns a Manager of the copies on the pool. None is open before Run.
func NewManager(cfg ManagerConfig) (*Manager, error) {
	there, err := cfg.Pool.ListVolumes()
	if err != nil {
		return nil, err
	}
	m := &Manager{cfg: cfg, volumes: map[string]*managed{}, kept: map[string]bool{}, outlined: map[string]bool{},
		aside: make(chan string, 16), wake: make(chan struct{}, 1),
		reopen: map[string]error{}, anew: map[string]*checkpoints.Anew{}, beginnings: map[string]*beginning{},
		between: map[string]func(){}, unnoted: map[string]error{}, unshed: make(chan struct{}, 1),
		checkpoints: checkpoints.New(checkpoints.Config{Gateway: cfg.Self.Gateway, Site: cfg.Self.Site, View: cfg.View,
			Client: cfg.Peers.Segments, Store: cfg.Store, Timers: cfg.Timers, Logger: cfg.Logger, Due: cfg.Checkpoints}),
		reaping: reaping.New(reaping.Config{Gateway: cfg.Self.Gateway, View: cfg.View, Forward: cfg.Peers.Forward,
			Recovering: cfg.Recovering, Timers: cfg.Timers, Logger: cfg.Logger}),
		folders: folders.New(folders.Config{Pool: cfg.Pool, FS: cfg.FS, Store: cfg.Store, Now: cfg.Now, Logger: cfg.Logger})}
	for _, id := range there {
		dir, err := cfg.Pool.Volume(id)
		isCopy, isOutline := true, false
		if err == nil {
			isCopy, isOutline, err = folders.Content(cfg.FS, dir.Path())
		}
		if isOutline {
			m.outlined[id] = true
		} else if isCopy || err != nil {
			m.kept[id] = true
		}
		if err == nil {
			err = cfg.Pool.Of(id).Reads.Leave(id, dir)
		}
		if err != nil {
			cfg.Logger.Warn("what is kept of a volume to be read stays until its copy is open", "folder", id, "error", err)
		}
	}
	return m, nil
}

// Copy returns a volume's copy that has the key; nil: none is open.
func (m *Manager) Copy(uuid string) *Copy {
	if c := m.opened(uuid); c != nil && !c.Blind() {
		return c
	}
	return nil
}

// opened returns a volume's copy, blind or not; nil: none is open.
func (m *Manager) opened(uuid string) *Copy {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.volumes[uuid]; s != nil {
		return s.copy
	}
	return nil
}

// State returns the state of a volume; false: Run has not come to it yet, and opens no other.
func (m *Manager) State(uuid string) (State, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.cfg.View.Record(uuid); ok && m.late(v) {
		return State{Problem: errTurn}, true
	}
	s := m.volumes[uuid]
	if s == nil {
		return State{}, false
	}
	out := State{Copy: s.copy, Problem: s.problem}
	if s.leaving != nil {
		out.Leaving = s.leaving.why
	}
	return out, true
}

// retryAfter is how long Run waits before it tries again what failed.
const retryAfter = 2 * time.Second

// Run opens, changes and closes copies as the registry asks, until ctx ends. It closes nothing at
// its end: see Close.
func (m *Manager) Run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := m.cfg.View.Changed()
		var retry <-chan time.Time
		if m.reconcile(ctx) {
			retry = m.cfg.Timers.After(retryAfter)
		}
		select {
		case <-changed:
		case <-retry:
		case <-m.cfg.Keys.Look():
		case id := <-m.aside:
			m.reopenAside(id)
		case <-m.wake:
			m.closeEnded()
			m.doBetween()
		case <-ctx.Done():
		}
	}
}

// Close closes all copies. Call it after Run has ended.
func (m *Manager) Close() error {
	m.work.Wait()
	m.mu.Lock()
	open, outlines := map[string]*Copy{}, map[string]*managed{}
	for id, s := range m.volumes {
		if s.outline != nil {
			outlines[id] = s
		}
		if s.copy != nil {
			open[id] = s.copy
			s.copy = nil
		}
	}
	m.mu.Unlock()
	for id, s := range outlines {
		_ = m.unfollow(id, s) // which logs it
	}
	for id := range open {
		m.cfg.Attach(id, nil)
	}
	var err error
	for _, c := range open {
		err = errors.Join(err, c.close())
	}
	return err
}

// errTurn: copies are opened one after the other, and one may replay for long.
var errTurn = errors.New("it waits until other copies are open")

// reconcile brings all copies in line with the registry, and reports whether something must be
// tried again.
func (m *Manager) reconcile(ctx context.Context) (again bool) {
	m.inRound(true)
	defer m.inRound(false)
	all, synced := m.cfg.View.Volumes()
	var records []federation.Volume
	for _, v := range all {
		if r := v.Record; r != nil && !r.Deleted && m.cfg.Serve(*r) {
			records = append(records, m.cfg.View.Here(*r))
			m.manage(r.UUID)
		}
	}
	if synced && !m.heard {
		m.heard = true
		m.cfg.Heard()
	}
	wanted := func(v federation.Volume) bool { return slices.Contains(v.Sites, m.cfg.Self.Site) || m.kept[v.UUID] }
	m.mu.Lock()
	for _, v := range records {
		if s := m.volumes[v.UUID]; s.copy == nil && s.problem == nil && wanted(v) {
			s.problem = errTurn
		}
	}
	m.mu.Unlock()
	for _, v := range records {
		s := m.manage(v.UUID)
		if m.isBetween(v.UUID) || m.begins(v.UUID, !wanted(v) && !m.cfg.View.MayRead(v.UUID, m.cfg.Self.Site)) {
			continue // who moves it, or begins it, wakes Run
		}
		if wanted(v) {
			again = m.bring(ctx, s, v) || again
			continue
		}
		m.mu.Lock()
		s.problem = nil // no copy should be open here any more
		m.mu.Unlock()
		again = m.follow(ctx, s, v) || again
	}
	m.closeGone()
	m.forgetDeleted()
	return again
}

// inRound notes whether Run is in reconcile.
func (m *Manager) inRound(is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.round = is
}

// late reports whether the registry told that this site has a copy of a volume when a round of Run
// had begun: Run will open the copy in the next one. The caller holds mu.
func (m *Manager) late(v federation.Volume) bool {
	s := m.volumes[v.UUID]
	return m.round && !v.Deleted && slices.Contains(v.Sites, m.cfg.Self.Site) &&
		(s == nil || s.copy == nil && s.problem == nil && s.leaving == nil)
}

// manage returns the state of a volume, which it adds if there is none.
func (m *Manager) manage(id string) *managed {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.volumes[id]
	if s == nil {
		s = new(managed)
		m.volumes[id] = s
	}
	return s
}

// bring brings one volume's copy in line with the registry, and reports whether something must be
// tried again.
func (m *Manager) bring(ctx context.Context, s *managed, v federation.Volume) (again bool) {
	if m.outlined[v.UUID] { // the site is to have a copy now
		err := m.cfg.Registry.Trusted() // one that went back does not know what the site is to have
		if err == nil && s.outline != nil {
			_ = m.unfollow(v.UUID, s) // which logs it
		}
		if err == nil {
			err = m.dropOutline(v.UUID)
		}
		if err != nil {
			m.cfg.Logger.Warn("the copy of the volume waits for what was kept of it before", "volume", v.Name, "error", err)
			return true
		}
	}
	if s.copy != nil && m.turns(s.copy, v) {
		if err := m.detach(v.UUID, s); err != nil {
			m.cfg.Logger.Warn("copy did not close cleanly", "volume", v.Name, "error", err)
		}
	}
	if s.copy == nil && (s.backoff.Waits(m.cfg.Now()) || !m.openCopy(ctx, s, v)) {
		return !errors.Is(s.problem, keys.ErrAwaited)
	}
	if s.copy.differs(v) {
		s.copy.Replica.SetPolicy(settings.PolicyOf(v, m.cfg.View.Sites()), settings.MaxLag(v))
		s.copy.Replica.SetStaleness(settings.Staleness(v))
		s.copy.tune(v, m.cfg.Pool)
	}
	if !slices.Contains(v.Sites, m.cfg.Self.Site) {
		if m.leave(ctx, s, v) {
			return m.follow(ctx, s, v)
		}
		if s.copy != nil {
			m.keys(ctx, s.copy, v) // the site that is to have a copy instead needs the key
		}
		return true
	}
	if why := m.staysKeyed(s.copy, v); why != nil {
		m.setLeaving(s, &leaving{why: why.Error(), after: leaveFirst})
		m.keys(ctx, s.copy, v) // a site that is to have the key instead needs it
		return true
	}
	if s.leaving != nil {
		m.setLeaving(s, nil)
	}
	return m.keys(ctx, s.copy, v)
}

// openCopy opens the copy of a volume that has none open, and reports whether it did.
func (m *Manager) openCopy(ctx context.Context, s *managed, v federation.Volume) bool {
	// A copy that ended because its log is in doubt is not opened before a home goes on without it.
	_, epoch := m.cfg.View.Home(v.UUID)
	if s.doubted && s.epoch == epoch && m.cfg.View.CountsOn(v.UUID, m.cfg.Self) {
		return false
	}
	if err := m.lends(v); err != nil {
		m.mu.Lock()
		s.problem = err
		m.mu.Unlock()
		return false
	}
	if m.cfg.Keys.Awaited(v.UUID) && !m.isBlind(v) {
		m.mu.Lock()
		s.problem = keys.ErrAwaited
		m.mu.Unlock()
		return false
	}
	c, err := m.openBelieved(ctx, v)
	var doubt *belief.DoubtError
	if errors.Is(err, failstop.ErrUnderWay) {
		s.backoff.Failed(m.cfg.Now())
	}
	s.doubted, s.epoch = errors.As(err, &doubt) && doubt.Member && !doubt.Unnoted, epoch
	if doubt != nil && !doubt.Member && m.mayRenew(&err) {
		m.cfg.Logger.Error("the copy of the volume on this pool is not its old self: it is kept aside and made anew",
			"volume", v.Name, "error", err)
		err = errors.Join(err, m.renew(v.UUID, "doubt"))
	}
	if err == nil && !c.Blind() {
		m.cfg.Attach(v.UUID, c) // before anybody can ask the copy what its clients have open
	}
	m.mu.Lock()
	s.problem = err
	if err == nil {
		s.copy = c
		s.backoff.Opened(m.cfg.Now())
	}
	m.mu.Unlock()
	if err == nil || doubt != nil {
		m.kept[v.UUID] = true
	}
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, errBeginning) {
			m.cfg.Logger.Error("volume is not open here yet; trying again", "volume", v.Name, "error", err)
		}
		return false
	}
	c.Replica.Start()
	return true
}

// mayRenew reports whether a log may begin anew. If not, it joins the reason to err: a registry
// that went back does not know who is a member.
func (m *Manager) mayRenew(err *error) bool {
	why := m.cfg.Registry.Trusted()
	*err = errors.Join(*err, why)
	return why == nil
}

// detach takes a volume's copy from its Router, and closes it.
func (m *Manager) detach(id string, s *managed) error {
	m.cfg.Attach(id, nil)
	err := s.copy.close()
	if e := s.copy.unnoted.Load(); e != nil {
		m.unnoted[key(id, s.copy.Log)] = e
	}
	m.mu.Lock()
	s.copy = nil
	m.mu.Unlock()
	return err
}

// closeGone closes the copies of deleted volumes. What the site's store does not have stays on the
// pool until they are purged: nobody evicts segments of a copy that is closed.
func (m *Manager) closeGone() {
	m.mu.Lock()
	gone := map[string]*managed{}
	for id, s := range m.volumes {
		if v, ok := m.cfg.View.Record(id); !s.between && (!ok || v.Deleted) {
			gone[id] = s
		}
	}
	m.mu.Unlock()
	for id := range gone {
		if m.begins(id, true) {
			delete(gone, id) // its end wakes Run
		}
	}
	for id, s := range gone {
		m.cfg.Gone(id)
		if s.outline != nil {
			_ = m.unfollow(id, s) // which logs it
		}
		if s.copy != nil {
			if freed := s.copy.Replica.Shed(); freed > 0 {
				m.cfg.Logger.Info("a deleted volume makes room on the pool", "volume", id, "bytes", freed)
			}
			if err := m.detach(id, s); err != nil {
				m.cfg.Logger.Warn("volume did not close cleanly", "volume", id, "error", err)
			}
			dir, err := m.cfg.Pool.Volume(id)
			if err == nil {
				err = m.cfg.Pool.Of(id).Reads.Drop(id, dir)
			}
			if err != nil {
				m.cfg.Logger.Warn("what is kept of a deleted volume to be read stays for now", "volume", id, "error", err)
			}
		}
		m.mu.Lock()
		delete(m.volumes, id) // from now on its folder may go: see wipe
		m.mu.Unlock()
	}
}
