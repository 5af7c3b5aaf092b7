// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"fmt"

	"github.com/weir-storage/weir/engine"
)

// commits notes that this gateway commits a checkpoint as home: nobody else vouches for it.
func (k *Keeper) commits(id string, number uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.last[id]
	if last.mine == nil {
		last.mine = map[uint64]bool{}
	}
	last.mine[number], last.led = true, max(last.led, number)
	k.last[id] = last
}

// Hold has what is known of a copy stay known while that is closed, until Release.
func (k *Keeper) Hold(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[id] = true
}

// Release ends Hold. remade: the metadata are others now, and nothing is known of them.
func (k *Keeper) Release(id string, remade bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, id)
	if last, ok := k.last[id]; remade {
		delete(k.last, id)
	} else if ok {
		last.engine = nil
		k.last[id] = last
	}
}

// renew forgets what is known of a copy that was closed and opened again, but for Hold: the other
// engine may have other metadata, and what was alike is not.
func (k *Keeper) renew(c Copy) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last, ok := k.last[c.UUID]
	switch {
	case !ok || last.engine == c.Engine:
	case last.engine == nil || k.held[c.UUID]:
		last.engine = c.Engine
		k.last[c.UUID] = last
	default:
		delete(k.last, c.UUID)
		delete(k.plans, c.UUID)
	}
}

// compare tells if what was made here is not what the home committed (checkpoints-1).
func (k *Keeper) compare(c Copy, now engine.Checkpoints) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.last[c.UUID]
	number := now.Made.Number
	hash, ok := last.hashes[number]
	if !ok {
		return
	}
	was := last.differs
	last.differs = 0
	if hash != now.Made.Hash {
		last.differs = number
	} else if last.alike = number; !last.mine[number] {
		last.agreed = number
	}
	k.last[c.UUID] = last
	if last.differs != 0 && was != last.differs {
		k.cfg.Logger.Error("this copy's metadata are not those of the home: one of the two is damaged; nothing is dropped here",
			"volume", c.UUID, "checkpoint", number, "at", now.Made.At, "here", fmt.Sprintf("%x", hash),
			"home", fmt.Sprintf("%x", now.Made.Hash))
	}
}
