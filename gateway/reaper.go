// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/volume"
)

// reaper remembers, for the home, which orphans every other gateway was asked about and does not hold.
type reaper struct {
	mu    sync.Mutex
	clear map[volume.Handle]bool
}

func (r *reaper) init() { r.clear = map[volume.Handle]bool{} }

// mayBeHeld is the engine's question; unless everybody was asked, the answer is yes.
func (r *reaper) mayBeHeld(h volume.Handle) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.clear[h]
}

// reapEvery is how often a home looks for files without a name that nobody has open any more.
const reapEvery = 5 * time.Second

// errRecovering: clients may still reclaim what is not known to be held.
var errRecovering = errors.New("clients of this gateway reclaim what they held before it restarted")

// reap deletes what nobody holds of one volume.
func (g *Gateway) reap(ctx context.Context, r *replicaOf) error {
	if g.recovering() {
		return errRecovering
	}
	ctx, done, err := r.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = r.engine.Reap(ctx, func(ctx context.Context, hs []volume.Handle) ([]volume.Handle, error) {
		held, err := g.heldElsewhere(ctx, r, hs)
		if err != nil {
			return nil, err
		}
		r.reaper.mu.Lock()
		defer r.reaper.mu.Unlock()
		clear(r.reaper.clear)
		for _, h := range hs {
			r.reaper.clear[h] = true
		}
		for _, h := range held {
			delete(r.reaper.clear, h)
		}
		return held, nil
	})
	return err
}

// heldElsewhere asks every gateway that lives which of the orphans its clients have open. Each answers after it applied the removal of
// their names, so that nobody can open them by name afterwards.
func (g *Gateway) heldElsewhere(ctx context.Context, r *replicaOf, hs []volume.Handle) ([]volume.Handle, error) {
	pos := r.log.End()
	q := &forwardpb.HeldRequest{Volume: r.uuid, Seq: pos.Seq, Off: pos.Off}
	for _, h := range hs {
		q.Handles = append(q.Handles, &forwardpb.Handle{Ino: h.Ino, Gen: h.Gen})
	}
	living, synced := g.mirror.living()
	if !synced {
		return nil, errors.New("the registry has not told yet which gateways live")
	}
	var held []volume.Handle
	for _, name := range living {
		if name == g.cfg.Name {
			continue
		}
		c, err := g.peers.forwardClient(name)
		if err != nil {
			return nil, err
		}
		reply, err := c.Held(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("ask gateway %s what it holds: %w", name, err)
		}
		for _, h := range reply.GetHandles() {
			held = append(held, volume.Handle{Ino: h.GetIno(), Gen: h.GetGen()})
		}
	}
	return held, nil
}
