// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/gateway/mending"
	"github.com/weir-storage/weir/gateway/packsource"
)

// Suspect returns what is to be told of each pack of a volume that could not be read as it should
// be, by its name. If the site's store has it damaged, it is replaced (checkpoints-14). Without a
// store it is nil.
func (k *Keeper) Suspect(id string) func(name string) {
	if k.cfg.Store == nil {
		return nil
	}
	return func(name string) { k.suspects.Tell(id, name) }
}

// examine looks at one of the packs that are suspected, of those that count: after a store was away
// for a while, they may be all that were read meanwhile.
func (k *Keeper) examine(ctx context.Context, c Copy, p *packing, table *engine.Packs) error {
	for _, hash := range k.suspects.Of(c.UUID) {
		i := slices.IndexFunc(table.All, func(is engine.Pack) bool { return is.Hash == hash && is.Condemned == 0 })
		if i >= 0 {
			if err := k.verify(ctx, c, p, table.All[i]); err != nil {
				return err // it is looked at in a later round
			}
			k.suspects.Seen(c.UUID, hash)
			return nil
		}
		k.suspects.Seen(c.UUID, hash)
	}
	return nil
}

// verify reads a pack in the site's store, and notes whether it is to be replaced. An error says
// nothing of the pack.
func (k *Keeper) verify(ctx context.Context, c Copy, p *packing, is engine.Pack) error {
	of, err := packsource.VolumeOf(c.UUID)
	if err != nil {
		return err
	}
	damage, err := mending.Pack(ctx, k.cfg.Store, of, is)
	if err != nil {
		return err
	}
	if p.bad[is.Hash] = damage != nil; damage != nil {
		k.cfg.Logger.Error("a pack is damaged in this site's store, or missing, and is replaced", "volume", c.UUID, "pack", is.Number,
			"error", damage)
	}
	return nil
}

// HealPack replaces a pack that counts, if the site's store has it damaged, or lacks it
// (checkpoints-14).
func (k *Keeper) HealPack(ctx context.Context, c Copy, number uint64) error {
	p := k.packsOf(c.UUID)
	p.work.Lock()
	defer p.work.Unlock()
	table, err := c.Engine.Packs()
	if err != nil {
		return err
	}
	if number == 0 || number > uint64(len(table.All)) || k.cfg.Store == nil {
		return fmt.Errorf("volume %s has no pack %d, or the site has no store", c.UUID, number)
	}
	is := table.All[number-1]
	if is.Condemned != 0 {
		return nil // nobody needs it any more
	}
	if err := k.verify(ctx, c, p, is); err != nil || !p.bad[is.Hash] {
		return err
	}
	if err = k.get(ctx, c, is, &table); err != nil {
		p.wanted++ // sweeps go on until it can be replaced
	}
	return err
}
