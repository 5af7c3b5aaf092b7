// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"slices"

	"github.com/weir-storage/weir/volume"
)

// What a given remembers at most.
const (
	maxGivenFiles  = 1 << 14
	maxGivenRanges = 128 // of one file
)

// given remembers which locks a home has newly granted in a reign, also those that were given up since. A gateway whose locks were not in the home's
// table for a while asks for them again: what others had meanwhile its clients have lost, although nobody stands against them any more, for
// they must not go on with what they read under it (RFC 8881 section 8.4.2.1). Where it cannot remember everything, it remembers too much.
// The zero value remembers nothing.
type given struct {
	serial uint64 // of the newest
	floor  uint64 // everything up to this may have been granted
	files  map[volume.Handle][]givenRange
}

type givenRange struct {
	gateway    string // "" is several
	serial     uint64
	start, end uint64
	exclusive  bool
}

// add notes that l was granted.
func (g *given) add(h volume.Handle, l volume.Lock) {
	g.serial++
	r := givenRange{l.Owner.Gateway, g.serial, l.Start, l.End, l.Exclusive}
	ranges := slices.DeleteFunc(g.files[h], func(old givenRange) bool {
		return old.gateway == r.gateway && r.start <= old.start && old.end <= r.end && (r.exclusive || !old.exclusive)
	})
	if len(ranges) >= maxGivenRanges {
		r.gateway, r.start, r.end, r.exclusive = "", 0, ^uint64(0), true
		ranges = nil
	}
	if g.files == nil || g.files[h] == nil && len(g.files) >= maxGivenFiles {
		if g.files != nil {
			g.floor = g.serial
		}
		g.files = map[volume.Handle][]givenRange{}
	}
	g.files[h] = append(ranges, r)
}

// since tells whether a gateway other than l's may have been granted, after serial, what stands against l.
func (g *given) since(serial uint64, h volume.Handle, l volume.Lock) bool {
	return serial < g.floor || slices.ContainsFunc(g.files[h], func(r givenRange) bool {
		return r.serial > serial && r.gateway != l.Owner.Gateway && r.start <= l.End && l.Start <= r.end && (r.exclusive || l.Exclusive)
	})
}
