// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"time"

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
