// SPDX-License-Identifier: Apache-2.0

package blind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/mending"
	"github.com/weir-storage/weir/gateway/packsource"
	"github.com/weir-storage/weir/store"
)

// keep has the site's store get the newest checkpoint and the packs, notes them, and then gets the
// rest of the past.
func (k *Keeper) keep(ctx context.Context, c *copies.Copy, now *looked) error {
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return err
	}
	defer done()
	lacks := c.Log.AbsentBytes() > 0
	p, err := k.told(ctx, c.UUID)
	if err != nil || p == nil {
		if lacks {
			return err
		}
		return nil // no checkpoint is committed yet, say
	}
	dir, err := k.cfg.Dir(c.UUID)
	if err != nil {
		return err
	}
	was, err := noted(dir)
	if err != nil {
		return err
	}
	switch commit := c.Replica.Status().Commit; {
	case k.cfg.Store == nil && lacks:
		return errNoStore
	case k.cfg.Store == nil:
		return nil
	case commit.Less(p.At):
		return fmt.Errorf("the checkpoint is at %s, and up to %s is known to be committed here", p.At, commit)
	case p.Number < was.Newest.Number:
		return fmt.Errorf("the home tells of checkpoint %d, and number %d is noted here", p.Number, was.Newest.Number)
	}
	if err := p.same(c.Log); err != nil {
		return err
	}
	if p.at != was.Newest || lacks {
		if err := k.gather(ctx, c, dir, p, was, now); err != nil {
			return err
		}
	}
	return k.fill(ctx, c, p)
}

// gather gets the objects of a checkpoint, and all packs, and notes them (blind-2).
func (k *Keeper) gather(ctx context.Context, c *copies.Copy, dir cachepool.Dir, p *past, was note, now *looked) error {
	names, err := k.objects(ctx, c.UUID, p.Hash, now)
	if err != nil {
		return err
	}
	for _, is := range p.Packs {
		if err := k.pack(ctx, c, is, now); err != nil {
			return err
		}
	}
	if p.at == was.Newest && slices.Equal(p.Packs, was.Packs) {
		return nil
	}
	next := note{Newest: p.at, Former: was.Former, Packs: p.Packs}
	if p.at != was.Newest {
		next.Former = was.Newest
	}
	if err := next.write(dir); err != nil {
		return err
	}
	k.cfg.Logger.Info("a copy without a key keeps a checkpoint", "volume", c.UUID, "number", p.Number, "at", p.At, "objects", len(names),
		"packs", len(p.Packs))
	return k.sweep(ctx, c, names, next.Former, now)
}

// objects has the site's store get all objects of a checkpoint, and returns their names. The
// manifest is put last: one that is there has its chunks.
func (k *Keeper) objects(ctx context.Context, id string, hash checkpoint.Hash, now *looked) ([]string, error) {
	of, err := packsource.VolumeOf(id)
	if err != nil {
		return nil, err
	}
	all := k.copies.Checkpoints().Objects(id)
	manifest := checkpoint.ManifestName(of, hash)
	b, err := all.Get(ctx, manifest)
	if err != nil {
		return nil, err
	}
	names, err := checkpoint.Check(manifest, b)
	if err != nil {
		return nil, err
	}
	names = append(names, manifest)
	for _, name := range names {
		if now.whole[name] {
			continue
		}
		b, err := all.Get(ctx, name) // which replaces what the store has damaged
		has := false
		if err == nil {
			has, err = all.Has(ctx, name)
		}
		if err == nil && !has {
			err = all.Put(ctx, name, b)
		}
		if err != nil {
			return nil, err
		}
		now.whole[name] = true
	}
	return names, nil
}

// pack has the site's store get a pack that counts, and verifies it.
func (k *Keeper) pack(ctx context.Context, c *copies.Copy, is packed, now *looked) error {
	of, err := packsource.VolumeOf(c.UUID)
	if err != nil {
		return err
	}
	name := pack.Name(of, is.Hash)
	if now.whole[name] {
		return nil
	}
	damage, err := mending.Pack(ctx, k.cfg.Store, of, engine.Pack{Hash: is.Hash, Len: is.Length})
	if err != nil {
		return err // the store is away, say
	}
	if damage == nil {
		now.whole[name] = true
		return nil
	}
	f, err := c.Log.FetchPack(ctx, is.Hash, is.Length)
	if err != nil {
		return err
	}
	body := io.NewSectionReader(f, 0, int64(is.Length))
	if errors.Is(damage, store.ErrNotExist) {
		err = k.cfg.Store.Put(ctx, name, int64(is.Length), body)
	} else { // it is whole on the pool now
		err = store.Replace(ctx, k.cfg.Store, name, int64(is.Length), body)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		now.whole[name] = true
	}
	return err
}

// fill drops what the home has dropped and this copy lacks (blind-3), and gets the rest.
func (k *Keeper) fill(ctx context.Context, c *copies.Copy, p *past) error {
	if c.Log.AbsentBytes() == 0 {
		return nil
	}
	there := map[string]int64{}
	if err := k.cfg.Store.List(ctx, c.UUID+"/", func(i store.Info) error {
		there[i.Name] = i.Size
		return nil
	}); err != nil {
		return err
	}
	var gone []uint64
	for _, s := range c.Log.Absent(0, len(p.Segments)) {
		if size, has := there[s.Name]; s.Seq <= p.At.Seq && p.Segments[s.Seq-1].Dropped && !(has && uint64(size) == s.Len) {
			gone = append(gone, s.Seq)
		}
	}
	if len(gone) > 0 {
		if err := c.Replica.Drop(gone...); err != nil {
			return err
		}
	}
	return c.Replica.FetchPast(ctx, func(name string, size uint64) bool {
		n, ok := there[name]
		return ok && uint64(n) == size
	})
}

// sweep removes objects from the site's store that neither the newest checkpoint has nor the one
// before (blind-4).
func (k *Keeper) sweep(ctx context.Context, c *copies.Copy, newest []string, former at, now *looked) error {
	if len(k.copies.Salvaged(c.UUID)) > 0 || k.copies.Checkpoints().Shared(c.UUID) {
		return nil
	}
	keep := map[string]bool{}
	for _, name := range newest {
		keep[name] = true
	}
	if former.Number > 0 {
		of, err := packsource.VolumeOf(c.UUID)
		if err != nil {
			return err
		}
		manifest := checkpoint.ManifestName(of, former.Hash)
		b, err := checkpoints.Objects(k.cfg.Store, c.UUID).Get(ctx, manifest)
		if err != nil {
			return nil // its chunks are not known: nothing goes before the next one is noted
		}
		chunks, err := checkpoint.Check(manifest, b)
		if err != nil {
			return err
		}
		for _, name := range append(chunks, manifest) {
			keep[name] = true
		}
	}
	var old []string
	for _, folder := range []string{"/c/", "/m/"} {
		if err := k.cfg.Store.List(ctx, c.UUID+folder, func(i store.Info) error {
			if !keep[i.Name] {
				old = append(old, i.Name)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	// Manifests first: one whose chunks go must not be found.
	slices.SortFunc(old, func(a, b string) int { return -strings.Compare(a, b) })
	for _, name := range old {
		delete(now.whole, name)
		if err := k.cfg.Store.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
