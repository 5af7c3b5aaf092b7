// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-storage/weir/federation"
)

// How often a home writes what it observes to the registry: at once, but at most every second, when something changed that people look for,
// every half minute when only figures did, and not at all when nothing did.
const (
	observeTick  = time.Second
	observeEvery = 30 * time.Second
)

// observed is what was last written of a volume; of the goroutine that observes.
type observed struct {
	written federation.Observed
	at      time.Time
}

// observing writes what homes here see, until ctx ends.
func (g *Gateway) observing(ctx context.Context) {
	t := time.NewTicker(observeTick)
	defer t.Stop()
	last := map[*replicaOf]*observed{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		leading := map[*replicaOf]bool{}
		down := false
		g.eachLeading(func(c *replicaOf) {
			leading[c] = true
			if last[c] == nil {
				last[c] = &observed{}
			}
			if down || ctx.Err() != nil {
				return
			}
			if err := g.observe(ctx, c, last[c]); err != nil && ctx.Err() == nil {
				down = errors.Is(err, federation.ErrUnavailable)
				g.cfg.Logger.Debug("observed state is not in the registry", "volume", c.uuid, "error", err)
			}
		})
		for c := range last {
			if !leading[c] {
				delete(last, c)
			}
		}
	}
}

// observe writes a home's view to the registry if it is time for that.
func (g *Gateway) observe(ctx context.Context, c *replicaOf, last *observed) error {
	v, ok := g.mirror.volume(c.uuid)
	if !ok {
		return nil
	}
	now := g.cfg.Now()
	o := g.observation(c, v)
	o.Used = last.written.Used
	switch {
	case notable(last.written, o):
	case now.Sub(last.at) < observeEvery, same(last.written, o):
		return nil
	}
	if space, err := c.space(ctx); err == nil {
		o.Used = federation.Bytes(space.TotalBytes - space.FreeBytes)
	}
	o.At = now
	if err := g.cfg.Registry.PutObserved(ctx, o); err != nil {
		return err
	}
	last.written, last.at = o, now
	return nil
}

// observation is what the home sees, but for the room that is used.
func (g *Gateway) observation(c *replicaOf, v federation.Volume) federation.Observed {
	s := VolumeStatus{Gateway: g.cfg.Name}
	c.describe(&s, v)
	o := federation.Observed{Volume: c.uuid, Gateway: g.cfg.Name, Generation: c.generation.Load(), Epoch: s.Epoch, Home: g.cfg.Name,
		Commit: s.Commit, Replicas: s.Replicas, Message: s.Trouble(s.silent(), wanted(v))}
	if on := g.served(c.uuid); o.Message == "" && on != nil {
		g.mu.Lock()
		if on.leaving != nil {
			o.Message = on.leaving.why
		}
		g.mu.Unlock()
	}
	return o
}

// notable tells whether something changed that is not to wait. A copy that has all that is committed falls a little behind with every
// write, and catches up: only the latter is told.
func notable(was, is federation.Observed) bool {
	if was.Epoch != is.Epoch || was.Home != is.Home || was.Generation != is.Generation || was.Message != is.Message || len(was.Replicas) != len(is.Replicas) {
		return true
	}
	for _, r := range is.Replicas {
		i := slices.IndexFunc(was.Replicas, func(w federation.ObservedReplica) bool { return w.Gateway == r.Gateway })
		if i < 0 || was.Replicas[i].State != r.State && (r.State != federation.ReplicaJoining || was.Replicas[i].State != federation.ReplicaFollower) {
			return true
		}
	}
	return false
}

// same tells whether two reports say the same.
func same(a, b federation.Observed) bool {
	return a.Commit == b.Commit && slices.Equal(a.Replicas, b.Replicas)
}
