// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/counted"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/replica/peer/peerpb"
)

// KeepCheckpoints makes the checkpoints of the copies here, and fetches what those lack that began
// with one. It returns when ctx ends.
func (m *Manager) KeepCheckpoints(ctx context.Context) { m.checkpoints.Run(ctx, m.keyed) }

// keyed returns the open copies that have the key.
func (m *Manager) keyed() (out []checkpoints.Copy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, s := range m.volumes {
		if c := s.copy; c != nil && !c.Blind() {
			out = append(out, checkpoints.Copy{UUID: id, Engine: c.Engine, Log: c.Log, Replica: c.Replica, Keys: c.keys.Keys,
				Use: c.Use, Condemns: m.condemns(id), Aside: func() bool { return len(m.Salvaged(id)) > 0 }})
		}
	}
	return out
}

// condemns reports whether a volume's segments may be condemned. A blind copy reads no records, and
// a store that is lent is emptied by agreement only.
func (m *Manager) condemns(id string) bool {
	v, ok := m.cfg.View.Record(id)
	return ok && len(v.Blind)+len(v.Stores) == 0
}

// errBehind: the copy begins anew with a checkpoint.
var errBehind = errors.New("what comes after this copy's log was dropped while it was away: it begins anew with a checkpoint")

// beginsAnew has a copy closed, and begin with a checkpoint. It does not wait.
func (m *Manager) beginsAnew(id string) {
	m.mu.Lock()
	m.anew[id] = true
	m.mu.Unlock()
	m.Reopen(id, errBehind)
}

// begin lets a copy, or an outline, begin with a checkpoint that has nothing. A copy may also be to
// begin anew.
func (m *Manager) begin(ctx context.Context, v federation.Volume, dir cachepool.Dir, e engine.Config, l log.Config) error {
	record := m.cfg.View.Volume(v.UUID)
	if record == nil || record.Control == nil || m.cfg.View.Format(v.UUID) < engine.Format {
		return nil
	}
	e.Now, e.Rand, e.Pebble = m.cfg.Now, m.cfg.Rand, m.cfg.Pebble
	e.FS = counted.New(m.cfg.FS, m.cfg.Pool.Room(v.UUID).Count)
	b := checkpoints.Beginning{Volume: v.UUID, Gateway: m.cfg.Self.Gateway, Control: record.Control, Client: m.cfg.Peers.Segments,
		Disk: m.cfg.FS, Engine: e, Log: l}
	if filepath.Base(e.Dir) == outlineFolder {
		return m.checkpoints.BeginOutline(ctx, b)
	}
	m.mu.Lock()
	if m.anew[v.UUID] {
		b.Retire = func() error { return m.retireMeta(dir) }
	}
	delete(m.anew, v.UUID)
	m.mu.Unlock()
	return m.checkpoints.Begin(ctx, b)
}

// Newest returns the newest checkpoint of a volume that is committed, as far as is known here.
func (m *Manager) Newest(ctx context.Context, id string) (*peerpb.CheckpointReply, error) {
	return m.checkpoints.Newest(ctx, id, m.keyed())
}

// Differs is Keeper.Differs.
func (m *Manager) Differs(id string) uint64 { return m.checkpoints.Differs(id) }

// Objects sends an object of a checkpoint of a volume from this site's store.
func (m *Manager) Objects(ctx context.Context, id, name string, send func([]byte) error) error {
	return m.checkpoints.Send(ctx, id, name, send)
}
