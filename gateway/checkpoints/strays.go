// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/store"
)

// strays are segments in the site's store that a copy does not drop, since they were condemned
// before it began with a checkpoint. The copy that was here before put them there.
type strays struct {
	engine *engine.Engine   // of the copy when its store was listed
	left   map[uint64]stray // by sequence number
}

// stray is one of them.
type stray struct {
	name   string
	since  time.Time    // when it was seen
	number uint64       // of the checkpoint that was asked for last then
	end    log.Position // of the log then
}

// sweepStrays deletes segments from the site's store that the copy's log has as dropped. It looks
// for them once in each copy that is opened. They wait as those do that were condemned: the copy
// made a checkpoint that was asked for later, as the home did, and the store has the packs that
// they moved into (checkpoints-5). Others of that number, with another hash, stay: they may be of a
// past that a person left out.
func (k *Keeper) sweepStrays(ctx context.Context, c Copy, table *engine.Packs) error {
	if k.cfg.Store == nil {
		return nil
	}
	is, now := k.strays[c.UUID], k.cfg.Timers.Now()
	if is == nil || is.engine != c.Engine {
		var err error
		if is, err = k.findStrays(ctx, c); err != nil {
			return err
		}
		k.strays[c.UUID] = is
	}
	var due []uint64
	for seq, s := range is.left {
		if k.mayGo(c.UUID, s.number+1, now.Sub(s.since)) && !c.Engine.Applied().Less(s.end) {
			due = append(due, seq)
		}
	}
	due, err := k.movable(ctx, c, table, due)
	if err != nil {
		return err
	}
	for _, seq := range due {
		if err := k.cfg.Store.Delete(ctx, is.left[seq].name); err != nil {
			return err
		}
		k.cfg.Logger.Info("a segment that was dropped before this copy began is deleted from the store", "volume", c.UUID,
			"segment", seq)
		delete(is.left, seq)
	}
	return nil
}

func (k *Keeper) findStrays(ctx context.Context, c Copy) (*strays, error) {
	checkpoints, err := c.Engine.Checkpoints()
	if err != nil {
		return nil, err
	}
	found := stray{since: k.cfg.Timers.Now(), number: checkpoints.Asked.Number, end: c.Log.End()}
	is := &strays{c.Engine, map[uint64]stray{}}
	// Names of segments begin with 16 digits. The first is 0 for the first 10^18 of them.
	return is, k.cfg.Store.List(ctx, c.UUID+"/0", func(i store.Info) error {
		_, seq, _, err := segment.ParseName(i.Name)
		if s, ok := c.Log.Segment(seq); err == nil && ok && s.Dropped && s.Name == i.Name {
			found.name = i.Name
			is.left[seq] = found
		}
		return nil
	})
}

// straysLeft reports whether segments wait to be deleted that a checkpoint lets go by now, or if
// the store is to be looked at yet.
func (k *Keeper) straysLeft(c Copy) bool {
	is := k.strays[c.UUID]
	if k.cfg.Store == nil || c.Aside() || k.Shared(c.UUID) {
		return false
	}
	if is == nil || is.engine != c.Engine {
		return true
	}
	alike := k.of(c.UUID).alike
	for _, s := range is.left {
		if s.number < alike {
			return true
		}
	}
	return false
}
