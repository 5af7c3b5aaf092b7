// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/federation"
)

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
