// SPDX-License-Identifier: Apache-2.0

package readcache

import "hash/maphash"

// ghosts remembers blocks that went from the small queue: between half of its bound and all of it.
// The zero value is ready. Cache.mu guards it.
type ghosts struct {
	now, before map[uint64]struct{} // hashes
}

// maxGhosts bounds one of the two sets.
const maxGhosts = 128 << 10

var seed = maphash.MakeSeed()

func ghostOf(v *Volume, s Segment, off uint32) uint64 {
	return maphash.Comparable(seed, struct {
		v   *Volume
		s   Segment
		off uint32
	}{v, s, off})
}

func (g *ghosts) add(ghost uint64) {
	if g.now == nil || len(g.now) >= maxGhosts {
		g.before, g.now = g.now, map[uint64]struct{}{}
	}
	g.now[ghost] = struct{}{}
}

// take reports whether a block went not long ago, and forgets that.
func (g *ghosts) take(ghost uint64) bool {
	_, now := g.now[ghost]
	_, before := g.before[ghost]
	delete(g.now, ghost)
	delete(g.before, ghost)
	return now || before
}
