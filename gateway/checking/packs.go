// SPDX-License-Identifier: Apache-2.0

package checking

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/mending"
	"github.com/weir-storage/weir/store"
)

const adviceBringPack = "bring back a copy or store that has the pack; with --data, files that need what it lost are listed"

// badPack is a pack that the site's store has damaged, or lacks.
type badPack struct {
	number   uint64
	name     string
	what     error // what is wrong
	why      error // it could not be replaced
	replaced bool
}

// packs looks at each pack that counts, in the site's store. With Data it reads all of it.
func (c *checker) packs(ctx context.Context) error {
	if c.Engine == nil || c.Store == nil {
		return nil
	}
	table, err := c.Engine.Packs()
	if err != nil {
		return fmt.Errorf("read what there is of packs: %w", err)
	}
	// A pack that nothing was dropped for yet may be on its way.
	needed := map[uint64]bool{}
	for seq, n := range table.Moved {
		s, ok := c.Log.Segment(seq)
		if is, lives := table.Now(n); lives && (!ok || s.Dropped) {
			needed[is.Number] = true
		}
	}
	var bad []*badPack
	for i, is := range table.All {
		c.tell(Progress{Step: "packs", Done: uint64(i), Total: uint64(len(table.All))})
		if is.Condemned != 0 {
			continue
		}
		name := pack.Name(segment.VolumeID(c.Engine.ID()), is.Hash)
		what := c.pack(ctx, name, is)
		if errors.Is(what, store.ErrUnavailable) || errors.Is(what, store.ErrAccess) || ctx.Err() != nil {
			return errors.Join(fmt.Errorf("read pack %s in the store: %w", name, what), ctx.Err())
		}
		if errors.Is(what, store.ErrNotExist) && !needed[is.Number] {
			continue
		}
		if c.report.Packs++; what != nil {
			bad = append(bad, &badPack{number: is.Number, name: name, what: what})
		}
	}
	if len(bad) == 0 {
		return nil
	}
	if table, err = c.Engine.Packs(); err != nil {
		return fmt.Errorf("read what there is of packs: %w", err)
	}
	for _, is := range bad {
		if table.All[is.number-1].Condemned == 0 { // else it went meanwhile
			c.badPacks = append(c.badPacks, is)
		}
	}
	return nil
}

// pack returns what is wrong with a pack in the store, or why that is not known.
func (c *checker) pack(ctx context.Context, name string, is engine.Pack) error {
	i, err := c.Store.Stat(ctx, name)
	switch {
	case err != nil:
		return err
	case uint64(i.Size) != is.Len:
		return fmt.Errorf("it has %d bytes, and should have %d", i.Size, is.Len)
	case !c.Data:
		return nil
	}
	c.report.Bytes += is.Len
	damage, err := mending.Pack(ctx, c.Store, segment.VolumeID(c.Engine.ID()), is)
	return errors.Join(damage, err)
}

// repairPacks has packs replaced (checking-6). An error ends the check.
func (c *checker) repairPacks(ctx context.Context) error {
	for i, is := range c.badPacks {
		c.tell(Progress{Step: "repair packs", Done: uint64(i), Total: uint64(len(c.badPacks))})
		if c.HealPack == nil {
			is.why = errors.New("a gateway that has the copy open replaces it: start it, and check there")
			continue
		}
		if is.why = c.HealPack(ctx, is.number); ctx.Err() != nil {
			return ctx.Err()
		}
		is.replaced = is.why == nil
	}
	return nil
}

// tellPacks notes what is wrong with packs, and what became of it.
func (c *checker) tellPacks() {
	for _, is := range c.badPacks {
		d := Damage{Where: Store, Kind: KindPack, Detail: "pack " + is.name + ": " + is.what.Error(), Advice: adviceRepair,
			Repaired: is.replaced}
		switch {
		case is.replaced:
			d.Advice = ""
		case is.why != nil:
			d.Detail += fmt.Sprintf(": not replaced: %v", is.why)
			d.Advice = adviceBringPack
		}
		c.report.add(d)
	}
}
