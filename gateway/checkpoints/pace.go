// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"errors"
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

// reseals returns the number of the data key under which all that lives is to be; 0: its own, or
// this site or other copies of the volume can not have that.
func (k *Keeper) reseals(c Copy) uint32 {
	if !c.Condemns || k.cfg.Store == nil || !c.Engine.MayReseal() {
		return 0
	}
	if v := k.cfg.View.Volume(c.UUID); v != nil && v.Record != nil && v.Record.Spec.Encryption.Reseals() {
		number, _ := c.Keys.Newest()
		return number
	}
	return 0
}

// madePack notes that a pack was made of what was planned at the newest checkpoint.
func (k *Keeper) madePack(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.last[id]
	last.moved = true
	k.last[id] = last
}

// Between rounds of sealing anew in which no pack was made at all: an object is damaged, say.
const (
	resealFirst = time.Minute
	resealMost  = time.Hour
)

// resealing reports whether something is left to be sealed anew, and whether a checkpoint is due
// for that: there was no plan of this home with that key, its last round got on, or enough time
// passed.
func (k *Keeper) resealing(c Copy, now engine.Checkpoints) (left, due bool) {
	k.mu.Lock()
	last, underWay := k.last[c.UUID], k.plans[c.UUID] != nil
	k.mu.Unlock()
	newest := k.reseals(c)
	if left = newest > 0 && (now.Asked.Key < newest || last.clean < newest); !left || underWay {
		return left, false
	}
	wait := min(resealFirst<<min(last.idle, 10), resealMost)
	return true, now.Asked.Key < newest || last.tried != newest || last.moved || k.cfg.Timers.Since(last.at) >= wait
}

// askMost is the longest pause between checkpoints that are asked for while none can be made: the
// store is away, say. The first one takes resealFirst. Each costs a segment, and other copies make
// it.
const askMost = 10 * time.Minute

// notMade notes why a checkpoint could not be made, unless ctx ended, or a whole one can be made
// at once, as the one before can not be read.
func (k *Keeper) notMade(ctx context.Context, id string, why error) {
	if ctx.Err() != nil || errors.Is(why, engine.ErrBase) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.last[id]
	last.failed, last.at = last.failed+1, k.cfg.Timers.Now()
	k.last[id] = last
}

// mayAsk reports whether another checkpoint may be asked for after those that could not be made.
func (k *Keeper) mayAsk(last made) bool {
	return last.failed == 0 || k.cfg.Timers.Since(last.at) >= min(resealFirst<<min(last.failed-1, 10), askMost)
}

// asked notes that a checkpoint was asked for: until it is made, no other is due for the same.
func (k *Keeper) asked(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.last[id]
	last.at = k.cfg.Timers.Now()
	k.last[id] = last
}

// follows notes in is, what was planned after was, and when.
func (is *made) follows(was made, at time.Time) {
	if is.at = at; !was.moved && is.tried == was.tried && was.number > 0 {
		is.idle = was.idle + 1
	}
}

// moved notes that a pack was made since began.
func (p *packing) moved(says upkeep.Compaction, began time.Time, bytes uint64, round time.Duration) {
	p.next = says.Next(p.next, began, int64(bytes), round)
}
