// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/replica/protocol"
)

// Blind keeps checkpoints for copies without a key: gateway/blind.
type Blind interface {
	// Begin lets a copy's log begin with one, as checkpoints.Keeper's does for those with a key.
	Begin(ctx context.Context, b checkpoints.Beginning) error
	// Noted returns what a copy without a key noted in its folder, and Forget removes it.
	Noted(dir cachepool.Dir) (checkpoint.Hash, error)
	Forget(dir cachepool.Dir) error
}

// isBlind reports whether this site's copy of a volume, which is not open, is to be blind: the
// owner says so; or there is no key to open it with, and it is to go, or was blind before. A home
// opens with the key, and hands over, before it becomes blind.
func (m *Manager) isBlind(v federation.Volume) bool {
	if m.cfg.Keys.Awaited(v.UUID) {
		return v.IsBlind(m.cfg.Self.Site) || m.kept[v.UUID] && (!slices.Contains(v.Sites, m.cfg.Self.Site) || !m.hasMeta(v.UUID))
	}
	home, _ := m.cfg.View.Home(v.UUID)
	return v.IsBlind(m.cfg.Self.Site) && (home != m.cfg.Self.Gateway || !m.hasMeta(v.UUID))
}

// hasMeta reports whether a copy has metadata on the pool, as none has that is blind.
func (m *Manager) hasMeta(id string) bool {
	dir, err := m.cfg.Pool.Volume(id)
	if err != nil {
		return true // not known
	}
	_, err = m.cfg.FS.Stat(filepath.Join(dir.Path(), metaFolder))
	return !errors.Is(err, fs.ErrNotExist)
}

// turns reports whether an open copy is to be opened anew, because it becomes blind, or gets the
// key that it did not have. One that is not to be blind any more stays so until the key is there.
func (m *Manager) turns(c *Copy, v federation.Volume) bool {
	switch {
	case !slices.Contains(v.Sites, m.cfg.Self.Site):
		return false // it leaves as it is
	case c.Blind():
		return !v.IsBlind(m.cfg.Self.Site) && !m.cfg.Keys.Awaited(v.UUID)
	}
	return m.isBlind(v) && c.Replica.Status().Role == protocol.Follower
}

// staysKeyed says why a copy that is to be blind still has the key: it is home, and hands over
// before. nil: it is as it is to be.
func (m *Manager) staysKeyed(c *Copy, v federation.Volume) error {
	if c.Blind() || !v.IsBlind(m.cfg.Self.Site) {
		return nil
	}
	return fmt.Errorf("this copy is to be blind, and still has the key: %w", m.handOver(c, v))
}

// keys brings the data keys of a copy in line with the registry (copies-4, copies-7).
func (m *Manager) keys(ctx context.Context, c *Copy, v federation.Volume) (again bool) {
	if c.Blind() {
		return false
	}
	again = m.cfg.Keys.Share(ctx, v, func() bool { _, ok := c.Leading(); return ok })
	return m.cfg.Keys.Renew(ctx, v, c.keys, c.Log.NewSalt) || again
}
