// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer"
	"github.com/weir-storage/weir/replica/protocol"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// replicaOf is one volume's copy at this gateway.
type replicaOf struct {
	uuid    string
	id      volume.ID
	log     *log.Log
	engine  *engine.Engine
	replica *replica.Replica // set before the protocol begins
	locks   *lockTable
	reaper  reaper
	logger  *slog.Logger
	users   *users
	// generation of the desired state that is in force.
	generation atomic.Uint64
}

// policyOf is what the volume's desired state asks of the protocol.
func policyOf(v federation.Volume) protocol.Policy {
	p := protocol.Policy{Want: 1, Sites: v.Sites, Continue: v.Spec.Durability.WhenDegraded == federation.WhenDegradedContinue}
	if v.Spec.Durability.Acknowledge == federation.AcknowledgeSites {
		p.Want = v.Spec.Durability.Sites
	}
	if len(v.Sites) > 0 {
		p.FirstHome = v.Sites[0]
	}
	return p
}

func maxLagOf(v federation.Volume) replica.MaxLag {
	return replica.MaxLag{Bytes: int64(v.Spec.Durability.MaxLag.Bytes), Time: time.Duration(v.Spec.Durability.MaxLag.Time)}
}

// openReplica opens the volume's copy on the pool. It takes part in the protocol when its replica is started.
func (g *Gateway) openReplica(ctx context.Context, v federation.Volume) (_ *replicaOf, err error) {
	ring, _, err := g.cfg.Registry.GetKeyring(ctx, v.UUID)
	if err != nil {
		return nil, fmt.Errorf("read the keyring of volume %s: %w", v.Name, err)
	}
	key, err := g.cfg.SiteKey.Unwrap(ring, g.cfg.Site)
	if err != nil {
		return nil, err
	}
	id, err := uuid.Parse(v.UUID)
	if err != nil {
		return nil, fmt.Errorf("volume %s: UUID %q: %w", v.Name, v.UUID, err)
	}
	dir, err := g.cfg.Pool.Volume(v.UUID)
	if err != nil {
		return nil, err
	}
	r := &replicaOf{uuid: v.UUID, id: volume.ID(id), users: newUsers(), logger: g.cfg.Logger.With("volume", v.Name)}
	r.generation.Store(v.Generation)
	r.locks = newLockTable(r, g)
	r.reaper.init()
	r.engine, err = engine.Open(engine.Config{
		ID: r.id, FS: g.cfg.FS, Dir: filepath.Join(dir.Path(), "meta"), DataKey: key, Now: g.cfg.Now, Clock: g.cfg.Timers, Rand: g.cfg.Rand,
		Logger: r.logger, Bytes: uint64(v.Spec.Size), Cache: g.cache, Pebble: g.pebble, MayBeHeld: r.reaper.mayBeHeld,
		Verifier: g.verifier,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	r.log, err = log.Open(log.Config{
		Dir: dir, Room: g.cfg.Pool.Room(), Volume: segment.VolumeID(id), DataKey: key, Sources: func() []log.Source { return g.sources(v.UUID) }, Rand: g.cfg.Rand,
		Now: g.cfg.Now, Logger: r.logger, KnownApplied: r.engine.Applied(),
	})
	if err != nil {
		return nil, err
	}
	if err := g.doubtful(ctx, r.log, v.UUID); err != nil {
		return nil, err
	}
	err = r.log.Replay(ctx, r.engine.Applied(), func(e log.Entry) error { return r.engine.Ingest([]journal.Entry{e}) })
	if err != nil {
		return nil, fmt.Errorf("replay the log of volume %s: %w", v.Name, err)
	}
	var uploads replica.Uploads
	if g.cfg.Store != nil {
		uploads = g.cfg.Store
	}
	r.replica = g.node.Open(replica.Config{
		Volume: v.UUID, Log: r.log, Machine: machine{r.engine, r.locks}, Policy: policyOf(v), DataKey: key, MaxLag: maxLagOf(v), Store: uploads,
		Aside: func(cut log.Position) { g.setAside(v.UUID, cut) }, Logger: r.logger,
	})
	r.engine.Attach(r.replica)
	return r, nil
}

// use keeps the copy open until done is called. It returns ctx, ended when the copy begins to close. ErrDelay: that has begun.
func (r *replicaOf) use(ctx context.Context) (_ context.Context, done func(), err error) {
	return r.users.begin(ctx)
}

// space is how much of the volume is used, by this copy.
func (r *replicaOf) space(ctx context.Context) (volume.Space, error) {
	ctx, done, err := r.use(ctx)
	if err != nil {
		return volume.Space{}, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return r.engine.Space(ctx)
}

// close ends what runs on the copy, waits for that, and closes it.
func (r *replicaOf) close() error {
	var err error
	r.users.end()
	if r.replica != nil {
		r.replica.Close()
	}
	r.users.wait()
	if r.engine != nil {
		err = r.engine.Close()
	}
	if r.log != nil {
		err = errors.Join(err, r.log.Close())
	}
	return err
}

// machine is the engine as a replica's machine, whose reign the table of locks shares.
type machine struct {
	*engine.Engine
	locks *lockTable
}

// Lead implements journal.Leader.
func (m machine) Lead(ctx context.Context, epoch uint64) error {
	if err := m.locks.begin(ctx, epoch); err != nil {
		return err
	}
	return m.Engine.Lead(ctx, epoch)
}

// Unlead implements journal.Leader.
func (m machine) Unlead() {
	m.Engine.Unlead()
	m.locks.end()
}

// sources are where sealed segments of a volume may be, nearest first.
func (g *Gateway) sources(id string) (out []log.Source) {
	if g.cfg.Store != nil {
		out = append(out, storeSource{g.cfg.Store, g.cfg.Site})
	}
	for _, m := range g.mirror.members() {
		if m.Gateway != g.cfg.Name {
			out = append(out, peer.Source{Gateway: m.Gateway, Volume: id, Client: g.peers.peerClient})
		}
	}
	return out
}

// storeSource reads sealed segments from this site's store.
type storeSource struct {
	store store.Store
	site  string
}

func (s storeSource) String() string { return "store of site " + s.site }

func (s storeSource) ReadSegment(ctx context.Context, name string, off int64, p []byte) error {
	return s.store.GetRange(ctx, name, off, p)
}
