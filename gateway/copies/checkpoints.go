// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/counted"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/settings"
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
			out = append(out, checkpoints.Copy{UUID: id, Engine: c.Engine, Log: c.Log, Replica: c.Replica, Keys: c.keys.Keys, Use: c.Use,
				Condemns: m.condemns(id), Tails: settings.TailsOf(id, m.cfg.View.Record, m.cfg.View.Format),
				Aside: func() bool { return len(m.Salvaged(id)) > 0 }})
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
var errBehind = errors.New("what comes after this copy's log was dropped while it was away: it begins anew with a checkpoint, " +
	"which the home tells of")

// BeginsAnew has a copy closed, and begin with a checkpoint. It does not wait.
func (m *Manager) BeginsAnew(id string, how *checkpoints.Anew, why error) {
	m.mu.Lock()
	m.anew[id] = how
	m.mu.Unlock()
	m.Reopen(id, why)
}

// errNobody: a copy that was to begin anew did not.
var errNobody = errors.New("no other gateway has the volume, or one is of an earlier release")

// errBeginning: what a copy or an outline begins with is on its way.
var errBeginning = errors.New("it begins with a checkpoint, which is being read")

// beginning is a copy or an outline that begins with a checkpoint. Nothing is open of it
// meanwhile, and its folder is left alone.
type beginning struct {
	done bool
	err  error // errBeginning, until it is done
	stop context.CancelFunc
}

// begins reports whether a copy or an outline begins with a checkpoint just now. With stop, it is
// to end soon.
func (m *Manager) begins(id string, stop bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.beginnings[id]
	if b != nil && stop {
		b.stop()
	}
	return b != nil && !b.done
}

// begin lets a copy, or an outline, begin with a checkpoint that has nothing. A copy may also be to
// begin anew. It does not wait for that: errBeginning, until it is done.
func (m *Manager) begin(ctx context.Context, v federation.Volume, dir cachepool.Dir, e engine.Config, l log.Config) error {
	m.mu.Lock()
	was, anew := m.beginnings[v.UUID], m.anew[v.UUID]
	if was != nil {
		defer m.mu.Unlock()
		if was.done {
			delete(m.beginnings, v.UUID)
		}
		return was.err
	}
	delete(m.anew, v.UUID)
	m.mu.Unlock()
	record := m.cfg.View.Volume(v.UUID)
	there, err := m.cfg.FS.List(e.Dir)
	if record == nil || record.Control == nil || m.cfg.View.Format(v.UUID) < engine.Format ||
		anew == nil && (err == nil && len(there) > 0 || l.Blind) || // a blind copy begins with its log, unless that is too short
		!checkpoints.Others(record.Control, m.cfg.Self.Gateway) && !anew.Alone() {
		anew.End(errNobody)
		return nil
	}
	e.Now, e.Rand, e.Pebble = m.cfg.Now, m.cfg.Rand, m.cfg.Pebble
	e.FS = counted.New(m.cfg.FS, m.cfg.Pool.Room(v.UUID).Count)
	b := checkpoints.Beginning{Volume: v.UUID, Gateway: m.cfg.Self.Gateway, Control: record.Control, Client: m.cfg.Peers.Segments,
		Disk: m.cfg.FS, Engine: e, Log: l}
	do := m.checkpoints.Begin
	if l.Blind {
		b.Anew, do = anew, m.cfg.Blind.Begin
	} else if filepath.Base(e.Dir) == outlineFolder {
		do = m.checkpoints.BeginOutline
	} else if anew != nil {
		b.Anew, b.Retire = anew, func() error { return m.retireMeta(dir) }
	}
	ctx, stop := context.WithCancel(ctx)
	is := &beginning{stop: stop, err: errBeginning}
	m.mu.Lock()
	m.beginnings[v.UUID] = is
	m.mu.Unlock()
	m.work.Go(func() {
		defer stop()
		err := do(ctx, b)
		anew.End(cmp.Or(err, errNobody)) // unless it was told before
		m.mu.Lock()
		is.done, is.err = true, err
		m.mu.Unlock()
		m.look()
	})
	return errBeginning
}

// Newest returns the newest checkpoint of a volume that is committed, as far as is known here.
func (m *Manager) Newest(ctx context.Context, id string) (*peerpb.CheckpointReply, error) {
	return m.checkpoints.Newest(ctx, id, m.keyed())
}

// Checkpoints is what makes the checkpoints of the copies here.
func (m *Manager) Checkpoints() *checkpoints.Keeper { return m.checkpoints }

// Objects sends an object of a checkpoint of a volume from this site's store.
func (m *Manager) Objects(ctx context.Context, id, name string, send func([]byte) error) error {
	return m.checkpoints.Send(ctx, id, name, send)
}
