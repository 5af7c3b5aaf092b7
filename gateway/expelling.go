// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"time"
)

// expelWithin is how long expelling waits for one volume before it looks after the others.
const expelWithin = 10 * time.Second

// expelling ends what clients hold of volumes of which the registry says that they may not use them any more, so that others get their locks.
// Revoke, by which a node is detached, does the same and can be waited for.
func (g *Gateway) expelling(ctx context.Context) {
	for ctx.Err() == nil {
		changed := g.mirror.wait()
		var retry <-chan time.Time
		for _, id := range g.mirror.takeEnded() {
			within, cancel := context.WithTimeout(ctx, expelWithin)
			err := g.nfs.Expel(within, routerID(id))
			cancel()
			if err != nil && ctx.Err() == nil {
				g.cfg.Logger.Warn("clients that may not use a volume any more still hold something of it", "err", err)
				g.mirror.endAgain(id)
				retry = time.After(retryPause)
			}
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
		}
	}
}

// takeEnded returns the volumes of which somebody's admission or attachment at this site has ended since it was called last.
func (m *mirror) takeEnded() (volumes []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.admissions.ended {
		volumes = append(volumes, id)
	}
	clear(m.admissions.ended)
	return volumes
}

// endAgain has takeEnded return a volume again.
func (m *mirror) endAgain(volume string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.admissions.ended[volume] = true
}
