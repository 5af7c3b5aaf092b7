// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/gateway/packsource"
)

// sweepPacks deletes packs from the site's store that were condemned, when it has what took their
// place, and those that were never committed.
func (k *Keeper) sweepPacks(ctx context.Context, c Copy, table *engine.Packs) error {
	p, now := k.packsOf(c.UUID), k.cfg.Timers.Now()
	of, err := packsource.VolumeOf(c.UUID)
	if err != nil || k.cfg.Store == nil || c.Aside() {
		return err
	}
	if len(table.All) == 0 && p.stored == nil {
		return nil
	}
	if err := k.list(ctx, c, p); err != nil {
		return err
	}
	known := map[pack.Hash]bool{}
	for _, is := range table.All {
		if is.Condemned == 0 {
			known[is.Hash] = true
		}
	}
	for _, is := range table.All {
		if _, there := p.stored[is.Hash]; !there || known[is.Hash] {
			delete(p.seen, is.Number)
			continue
		}
		since, ok := p.seen[is.Number]
		if !ok {
			p.seen[is.Number] = now
			continue
		}
		if !k.mayGo(c.UUID, is.Condemned, now.Sub(since)) {
			continue
		}
		if after, lives := table.Now(is.Number); lives {
			if has, err := k.holds(ctx, c, after); err != nil || !has {
				return err
			}
		}
		if err := k.cfg.Store.Delete(ctx, pack.Name(of, is.Hash)); err != nil {
			return err
		}
		delete(p.stored, is.Hash)
		delete(p.seen, is.Number)
	}
	return k.sweepLoose(ctx, c, p, table)
}

// loose is a pack in a site's store that the metadata do not name.
type loose struct {
	since  time.Time    // when that was seen
	number uint64       // of the checkpoint that was asked for last then
	end    log.Position // of the log then: it has the record of what this copy relies on
}

// sweepLoose deletes packs that were put, and never committed: a home died between the two, say. If
// one was committed after all, that is in a checkpoint that was asked for later. Whoever made such
// a one as the home did, and still does not know the pack, relied on it for nothing. Who commits it
// later has it, or makes it again (checkpoints-12).
func (k *Keeper) sweepLoose(ctx context.Context, c Copy, p *packing, table *engine.Packs) error {
	named := map[pack.Hash]bool{}
	for _, is := range table.All {
		named[is.Hash] = true
	}
	checkpoints, err := c.Engine.Checkpoints()
	if err != nil {
		return err
	}
	of, err := packsource.VolumeOf(c.UUID)
	if err != nil {
		return err
	}
	now := k.cfg.Timers.Now()
	p.waits = false
	for hash := range p.stored {
		was, seen := p.loose[hash]
		switch {
		case named[hash]:
			delete(p.loose, hash)
			continue
		case !seen:
			p.loose[hash] = loose{now, checkpoints.Asked.Number, c.Log.End()}
			continue
		case !k.mayGo(c.UUID, was.number+1, now.Sub(was.since)) || c.Engine.Applied().Less(was.end):
			p.waits = p.waits || was.number < k.of(c.UUID).alike
			continue
		}
		if err := k.cfg.Store.Delete(ctx, pack.Name(of, hash)); err != nil {
			return err
		}
		k.cfg.Logger.Info("a pack that was never committed is deleted", "volume", c.UUID, "bytes", p.stored[hash])
		delete(p.stored, hash)
		delete(p.loose, hash)
	}
	return nil
}
