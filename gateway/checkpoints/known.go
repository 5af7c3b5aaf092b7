// SPDX-License-Identifier: Apache-2.0

package checkpoints

import "github.com/weir-storage/weir/engine"

// known is what sweep last read of what is condemned and packed in one copy's metadata. These
// tables have a row for each segment and pack that ever was, and a sweep goes round every few
// seconds while something waits for its grace: they are read again only if one of them changed.
type known struct {
	engine  *engine.Engine
	changes uint64 // what its SpaceTables was before it was read
	// condemned has segments, and at which checkpoint each was condemned. Those that are found to
	// be dropped are taken out.
	condemned map[uint64]uint64
	packs     engine.Packs
}

// know returns what a copy's metadata say of what is condemned and packed, durably so. Only
// sweepAll uses it.
func (k *Keeper) know(c Copy) (*known, error) {
	changes := c.Engine.SpaceTables()
	if was := k.known[c.UUID]; was != nil && was.engine == c.Engine && was.changes == changes {
		return was, nil
	} else if was == nil || was.engine != c.Engine {
		delete(k.seen, c.UUID) // they are of another engine
	}
	is := &known{engine: c.Engine, changes: changes}
	var err error
	if is.condemned, err = c.Engine.Condemned(); err != nil {
		return nil, err
	}
	// After the others: it says of each of them whether it moved.
	if is.packs, err = c.Engine.Packs(); err != nil {
		return nil, err
	}
	k.known[c.UUID] = is
	return is, nil
}
