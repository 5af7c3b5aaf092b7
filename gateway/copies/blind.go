// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"slices"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/replica/protocol"
)

// isBlind reports whether this site's copy of a volume is to be blind: the owner says so, or it is
// to go, and has no key to be opened with.
func (m *Manager) isBlind(v federation.Volume) bool {
	return v.IsBlind(m.cfg.Self.Site) || !slices.Contains(v.Sites, m.cfg.Self.Site) && m.cfg.Keys.Awaited(v.UUID)
}

// turn hands over before a copy becomes blind, and reports whether it may be closed for that.
func (m *Manager) turn(c *Copy, v federation.Volume) bool {
	if c.Blind() || !v.IsBlind(m.cfg.Self.Site) || c.Replica.Status().Role == protocol.Follower {
		return true
	}
	m.cfg.Logger.Info("this copy is to be blind, and waits until it is not home any more", "volume", v.Name, "why", m.handOver(c, v))
	return false
}

// keys brings the data keys of a copy in line with the registry (copies-4, copies-7).
func (m *Manager) keys(ctx context.Context, c *Copy, v federation.Volume) (again bool) {
	if c.Blind() {
		return false
	}
	again = m.cfg.Keys.Share(ctx, v, func() bool { _, ok := c.Leading(); return ok })
	return m.cfg.Keys.Renew(ctx, v, c.keys, c.Log.NewSalt) || again
}
