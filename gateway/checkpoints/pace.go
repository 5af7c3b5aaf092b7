// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"fmt"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/federation/upkeep"
)

// compaction is how the volume's owner wants live blocks to move.
func (k *Keeper) compaction(id string) upkeep.Compaction {
	if v := k.cfg.View.Volume(id); v != nil && v.Record != nil {
		return v.Record.Spec.Compaction
	}
	return upkeep.Compaction{}
}

// mayMove reports whether the home may make a pack now.
func (p *packing) mayMove(says upkeep.Compaction, now time.Time) bool {
	return says.Open(now) && (says.Rate == 0 || !now.Before(p.next))
}

// moved notes that a pack was made since began. What could have moved since the last round, and did
// not, moves in this one: rounds are rare.
func (p *packing) moved(says upkeep.Compaction, began time.Time, bytes uint64, round time.Duration) {
	if earliest := began.Add(-round); p.next.Before(earliest) {
		p.next = earliest
	}
	p.next = p.next.Add(says.Pace(int64(bytes)))
}

// alike returns an error if a pack is not the one that the home made.
func alike(b pack.Built, want engine.Pack) error {
	if b.Hash != want.Hash || b.Len != want.Len {
		return fmt.Errorf("pack %d is %x here, %d bytes, and %x at the home, %d bytes", want.Number, b.Hash, b.Len, want.Hash, want.Len)
	}
	return nil
}
