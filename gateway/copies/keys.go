// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
)

// keyDelay is how long the home waits with a new data key, so that others have it when they need it.
const keyDelay = time.Second

// dataKeys returns all data keys of a volume. A site that has not all of them opens nothing.
func (m *Manager) dataKeys(ctx context.Context, v federation.Volume) (map[uint32]segment.DataKey, error) {
	ring, _, err := m.cfg.Registry.GetKeyring(ctx, v.UUID)
	if err != nil {
		return nil, fmt.Errorf("read the keyring of volume %s: %w", v.Name, err)
	}
	all, err := m.cfg.SiteKey.UnwrapAll(ring, m.cfg.Self.Site)
	if err == nil && len(all) <= len(ring.Later) {
		err = fmt.Errorf("open the keyring of volume %s: %w", v.Name, ErrAwaitsKey)
	}
	return all, err
}

// renewKeys takes in data keys that came, and begins to seal with the newest. It reports whether it
// must be tried again.
func (m *Manager) renewKeys(ctx context.Context, c *Local, v federation.Volume) (again bool) {
	if m.cfg.View.Keys(v.UUID) > c.told && !m.awaitsKey(v.UUID) {
		all, err := m.dataKeys(ctx, v)
		if err != nil {
			m.cfg.Logger.Warn("a new data key cannot be read yet; trying again", "volume", v.Name, "error", err)
			return true
		}
		c.Keys.Add(all)
		c.told, c.keyDue = len(all), m.cfg.Now().Add(keyDelay)
	}
	newest := uint32(c.told) - 1
	if used, _ := c.Keys.Newest(); used >= newest {
		return false
	}
	if home, _ := m.cfg.View.Home(v.UUID); home == m.cfg.Self.Gateway && m.cfg.Now().Before(c.keyDue) {
		return true
	}
	if c.Keys.Use(newest) {
		c.Log.NewSalt() // the next record begins a segment
		m.cfg.Logger.Info("another data key is used from now on", "volume", v.Name, "number", newest)
	}
	return false
}

// rotate has another data key follow, if a site has the newest that is not to read what is written
// from now on (copies-7). It reports whether it must be tried again.
func (m *Manager) rotate(ctx context.Context, c *Copy, v federation.Volume) (again bool) {
	surplus, keep := m.cfg.View.Surplus(v)
	if home, _ := m.cfg.View.Home(v.UUID); !surplus || home != m.cfg.Self.Gateway || !m.cfg.Rotates() || keep[m.cfg.Self.Site] == nil {
		return false
	}
	if _, ok := c.Leading(); !ok {
		return true
	}
	err := func() error {
		ring, rev, err := m.cfg.Registry.GetKeyring(ctx, v.UUID)
		if err != nil {
			return fmt.Errorf("read the keyring: %w", err)
		}
		if len(ring.Later)+1 != m.cfg.View.Keys(v.UUID) {
			return federation.ErrConflict // it is not what was decided by
		}
		next, err := m.cfg.SiteKey.Rotate(ring, m.cfg.Self.Site, keep, m.cfg.Now(), m.cfg.Rand)
		if err != nil {
			return err
		}
		_, err = m.cfg.Registry.PutKeyring(ctx, rev, next)
		return err
	}()
	switch {
	case err == nil:
		m.cfg.Logger.Info("another data key follows: a site is not to read the volume any more", "volume", v.Name, "sites", len(keep))
	case ctx.Err() == nil && !errors.Is(err, federation.ErrConflict):
		m.cfg.Logger.Warn("the data key is not replaced yet, and a site that is to read no more has it; trying again", "volume", v.Name,
			"error", err)
	}
	return true
}

// ErrAwaitsKey reports that a copy cannot be opened yet. It opens when the keyring changes.
var ErrAwaitsKey = errors.New("waits for the volume's key: its home wraps it for this site")

// awaitsKey reports whether the volume's keyring, as last heard, has no key for this site.
func (m *Manager) awaitsKey(id string) bool {
	sites, known := m.cfg.View.Keyring(id)
	return known && !sites[m.cfg.Self.Site]
}

// shareKey wraps the data key of a volume whose home is here for sites that do not have it yet
// (copies-4). It reports whether it must be tried again. A site without a public key gets the data
// key when its public key is registered.
func (m *Manager) shareKey(ctx context.Context, c *Copy, v federation.Volume) (again bool) {
	missing := m.cfg.View.Keyless(v)
	if home, _ := m.cfg.View.Home(v.UUID); len(missing) == 0 || home != m.cfg.Self.Gateway {
		return false
	}
	if _, ok := c.Leading(); !ok {
		return true
	}
	err := func() error {
		ring, rev, err := m.cfg.Registry.GetKeyring(ctx, v.UUID)
		if err != nil {
			return fmt.Errorf("read the keyring: %w", err)
		}
		next, err := m.cfg.SiteKey.Extend(ring, m.cfg.Self.Site, missing)
		if err != nil {
			return err
		}
		_, err = m.cfg.Registry.PutKeyring(ctx, rev, next)
		return err
	}()
	switch {
	case err == nil:
		m.cfg.Logger.Info("data key is wrapped for sites that are new", "volume", v.Name, "sites", len(missing))
		return false
	case ctx.Err() == nil && !errors.Is(err, federation.ErrConflict):
		m.cfg.Logger.Warn("data key is not wrapped yet for sites that are new; trying again", "volume", v.Name, "error", err)
	}
	return true
}
