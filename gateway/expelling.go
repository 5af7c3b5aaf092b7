// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"sync"
	"time"
)

// expelWithin is after how long expelling looks again whether there is anything to wait for.
const expelWithin = 10 * time.Second

// expelling ends what clients hold of volumes of which the registry says that they may not use them any more, so that others get their locks.
// Of a volume that was deleted, nobody holds anything. Revoke, by which a node is detached, does the same and can be waited for.
func (g *Gateway) expelling(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	for ctx.Err() == nil {
		changed := g.mirror.wait()
		for _, id := range g.mirror.beginExpelling() {
			work.Go(func() {
				g.expel(ctx, id)
				g.mirror.endExpelling(id)
			})
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// expel returns when clients who may not use a volume, nobody if it was deleted, have nothing of it any more.
func (g *Gateway) expel(ctx context.Context, id string) {
	for told := false; ctx.Err() == nil; told = true {
		within, cancel := context.WithTimeout(ctx, expelWithin)
		err := g.nfs.Expel(within, routerID(id))
		cancel()
		if err == nil {
			return
		}
		if !told && ctx.Err() == nil {
			g.cfg.Logger.Warn("clients that may not use a volume any more still hold something of it", "err", err)
		}
	}
}

// beginExpelling returns the volumes that were deleted, or of which somebody's admission or attachment at this site has ended, since it returned them
// last; none twice before endExpelling.
func (m *mirror) beginExpelling() (volumes []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &m.admissions
	for id := range a.ended {
		if !a.expelling[id] {
			a.expelling[id] = true
			delete(a.ended, id)
			volumes = append(volumes, id)
		}
	}
	return volumes
}

// endExpelling has beginExpelling return a volume again, if somebody's leave has ended meanwhile.
func (m *mirror) endExpelling(volume string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &m.admissions
	delete(a.expelling, volume)
	if a.ended[volume] {
		close(m.changed)
		m.changed = make(chan struct{})
	}
}
