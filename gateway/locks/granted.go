// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"slices"

	"github.com/weir-storage/weir/volume"
)

// Bounds of what a history remembers.
const (
	maxFiles  = 1 << 14
	maxRanges = 128 // of one file
)

// history remembers which locks a home granted anew in a reign, also those that were released since
// (locks-2). Where it cannot remember everything, it remembers too much. The zero value remembers
// nothing. The table's lock guards it.
type history struct {
	serial uint64 // of the newest grant
	floor  uint64 // anything up to this may have been granted
	files  map[volume.Handle][]grant
}

// grant is a range that was locked.
type grant struct {
	gateway    string // "" is several
	serial     uint64
	start, end uint64
	exclusive  bool
}

// add records that l was granted.
func (p *history) add(h volume.Handle, l volume.Lock) {
	p.serial++
	r := grant{l.Owner.Gateway, p.serial, l.Start, l.End, l.Exclusive}
	ranges := slices.DeleteFunc(p.files[h], func(old grant) bool {
		return old.gateway == r.gateway && r.start <= old.start && old.end <= r.end && (r.exclusive || !old.exclusive)
	})
	if len(ranges) >= maxRanges {
		r.gateway, r.start, r.end, r.exclusive = "", 0, ^uint64(0), true
		ranges = nil
	}
	if p.files == nil || p.files[h] == nil && len(p.files) >= maxFiles {
		if p.files != nil {
			p.floor = p.serial
		}
		p.files = map[volume.Handle][]grant{}
	}
	p.files[h] = append(ranges, r)
}

// conflicts reports whether, after serial, a gateway other than l's may have been granted a lock
// that conflicts with l.
func (p *history) conflicts(serial uint64, h volume.Handle, l volume.Lock) bool {
	return serial < p.floor || slices.ContainsFunc(p.files[h], func(r grant) bool {
		return r.serial > serial && r.gateway != l.Owner.Gateway && r.start <= l.End && l.Start <= r.end && (r.exclusive || l.Exclusive)
	})
}
