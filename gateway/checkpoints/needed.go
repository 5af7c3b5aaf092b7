// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/objects"
	"github.com/weir-storage/weir/gateway/packsource"
)

// Condition is how a volume's checkpoints and what is condemned are here, as far as was looked.
type Condition struct {
	// Differs is the number of the newest checkpoint, if it is not what the home made of the same
	// state; 0: it is, or nothing was compared yet.
	Differs uint64
	// Alike is the newest checkpoint that this copy made as another gateway did, which was home;
	// zero: none is known.
	Alike checkpoint.Hash
	// Led is the number of the newest checkpoint that this gateway made as home.
	Led       uint64
	Condemned uint64 // bytes of segments that are condemned, and not dropped yet
	// Fetched counts packs that this copy could not make, and got from another gateway.
	Fetched int
	Packs   uint64 // bytes of packs in the site's store, as far as was looked
	// Planned counts packs that this home is to make yet.
	Planned int
}

// Condition returns how a volume is; zero for one that has no copy here.
func (k *Keeper) Condition(id string) Condition {
	k.mu.Lock()
	defer k.mu.Unlock()
	planned := 0
	if p := k.plans[id]; p != nil {
		planned = len(p.packs)
	}
	last := k.last[id]
	return Condition{Differs: last.differs, Alike: last.hashes[last.agreed], Led: last.led, Condemned: k.condemned[id],
		Fetched: k.fetched[id], Packs: k.packBytes[id], Planned: planned}
}

// Needed says which objects of checkpoints the site's store has for a reason.
type Needed struct {
	Names map[string]bool // objects of the two newest that are committed, and of later ones
	// Making: a checkpoint is being made, or objects of earlier ones are being removed. The store
	// may have chunks that no manifest lists yet.
	Making bool
}

// Needed returns which objects of a volume's checkpoints are needed, of those that have their
// manifest in the site's store. now is what the volume's metadata say, and manifests are the names
// of all manifests in the store. It reads these. One that can not be read is not in the result, nor
// is what only that lists; there are few others, and each of them is in memory for a moment.
func (k *Keeper) Needed(ctx context.Context, id string, now engine.Made, keys *segment.Keys, manifests []string) (Needed, error) {
	h := Needed{Names: map[string]bool{}, Making: !k.making.TryLock()}
	if !h.Making {
		k.making.Unlock()
	}
	if k.cfg.Store == nil {
		return h, nil
	}
	volume, err := packsource.VolumeOf(id)
	if err != nil {
		return h, err
	}
	type found struct {
		at    segment.Position
		names []string
	}
	var all []found
	from := objects.Set{Store: k.cfg.Store}
	for _, name := range manifests {
		hash, err := checkpoint.ManifestHash(name)
		if err != nil {
			continue
		}
		m, err := checkpoint.Open(ctx, volume, hash, keys.Get, from)
		if ctx.Err() != nil {
			return h, fmt.Errorf("read manifests of checkpoints: %w", ctx.Err())
		}
		if err == nil {
			all = append(all, found{m.At, m.Names()})
		}
	}
	slices.SortFunc(all, func(a, b found) int {
		switch {
		case b.at.Less(a.at):
			return -1
		case a.at.Less(b.at):
			return 1
		}
		return 0
	})
	committed, last := 0, segment.Position{}
	for _, f := range all {
		if !now.At.Less(f.at) && f.at != last {
			committed++
			last = f.at
		}
		if committed > 2 {
			break
		}
		for _, name := range f.names {
			h.Names[name] = true
		}
	}
	return h, nil
}
