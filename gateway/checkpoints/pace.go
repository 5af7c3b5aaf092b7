// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/federation/upkeep"
)

// compaction is how the volume's owner wants live blocks to move.
func (k *Keeper) compaction(id string) upkeep.Compaction {
	if v := k.cfg.View.Volume(id); v != nil && v.Record != nil {
		return v.Record.Spec.Compaction
	}
	return upkeep.Compaction{}
}

// reseals returns the number of the data key under which all that lives is to be; 0: its own.
func (k *Keeper) reseals(c Copy) uint32 {
	if v := k.cfg.View.Volume(c.UUID); v != nil && v.Record != nil && v.Record.Spec.Encryption.Reseals() {
		number, _ := c.Keys.Newest()
		return number
	}
	return 0
}

// resealed notes that a pack was made, with which something was sealed anew.
func (k *Keeper) resealed(id string, is engine.PackPlan) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.last[id]
	last.resealed = last.resealed || is.Reseals
	k.last[id] = last
}

// resealing reports whether a checkpoint is due for what is to be sealed anew: a key followed, the
// home is another one, or the last round got on. So it ends, also if something can not be moved.
func (k *Keeper) resealing(c Copy, now engine.Checkpoints) bool {
	k.mu.Lock()
	last, underWay := k.last[c.UUID], k.plans[c.UUID] != nil
	k.mu.Unlock()
	newest := k.reseals(c)
	return newest > 0 && c.Condemns && !underWay && (now.Asked.Key < newest || !last.mine[last.number] || last.resealed)
}

// moved notes that a pack was made since began.
func (p *packing) moved(says upkeep.Compaction, began time.Time, bytes uint64, round time.Duration) {
	p.next = says.Next(p.next, began, int64(bytes), round)
}
