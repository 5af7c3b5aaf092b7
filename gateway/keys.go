// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/federation"
)

// errAwaitsKey says that a copy can not be opened yet. It opens when the keyring changes.
var errAwaitsKey = errors.New("waits for the volume's key: its home wraps it for this site")

// awaitsKey tells whether the volume's keyring, as last heard, is without this site.
func (g *Gateway) awaitsKey(id string) bool {
	sites, known := g.mirror.keyring(id)
	return known && !sites[g.cfg.Site]
}

// shareKey wraps the data key of a volume whose home is here for its sites that have none (rule 17), and tells whether it must be tried
// again. A site without a public key gets it when that is registered.
func (g *Gateway) shareKey(ctx context.Context, c *replicaOf, v federation.Volume) (again bool) {
	missing := g.mirror.keyless(v)
	if home, _ := g.mirror.home(v.UUID); len(missing) == 0 || home != g.cfg.Name {
		return false
	}
	if _, ok := c.replica.Leading(); !ok {
		return true
	}
	err := func() error {
		ring, rev, err := g.cfg.Registry.GetKeyring(ctx, v.UUID)
		if err != nil {
			return fmt.Errorf("read the keyring: %w", err)
		}
		next, err := g.cfg.SiteKey.Extend(ring, g.cfg.Site, missing)
		if err != nil {
			return err
		}
		_, err = g.cfg.Registry.PutKeyring(ctx, rev, next)
		return err
	}()
	switch {
	case err == nil:
		g.cfg.Logger.Info("data key is wrapped for sites that are new", "volume", v.Name, "sites", len(missing))
		return false
	case ctx.Err() == nil && !errors.Is(err, federation.ErrConflict):
		g.cfg.Logger.Warn("data key is not wrapped yet for sites that are new; trying again", "volume", v.Name, "error", err)
	}
	return true
}

// wrapped takes in for which sites a volume's data key is wrapped; m.mu is held.
func (m *mirror) wrapped(e federation.Event) {
	if e.Keyring == nil {
		delete(m.keyrings, e.Name)
		return
	}
	sites := map[string]bool{}
	for s, w := range e.Keyring.Wrapped {
		sites[s] = len(w) > 0
	}
	m.keyrings[e.Name] = sites
}

// keyring returns for which sites a volume's data key is wrapped, as last heard; false: there is no keyring.
func (m *mirror) keyring(volume string) (sites map[string]bool, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sites, known = m.keyrings[volume] // replaced, never changed
	return sites, known
}

// keyless are the public keys of those of a volume's sites for which its data key is not wrapped.
func (m *mirror) keyless(v federation.Volume) (out map[string][]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	have, known := m.keyrings[v.UUID]
	for _, s := range v.Sites {
		if public := m.sites[s].WrapKey; known && !have[s] && len(public) > 0 {
			if out == nil {
				out = map[string][]byte{}
			}
			out[s] = public
		}
	}
	return out
}
