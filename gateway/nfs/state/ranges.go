// SPDX-License-Identifier: Apache-2.0

package state

// ranges are the byte ranges that one owner has locked. They are disjoint and in no
// order. End is inclusive.
type ranges []heldRange

type heldRange struct {
	start, end uint64
	exclusive  bool
}

// remove removes [start, end].
func (r *ranges) remove(start, end uint64) {
	var out ranges
	for _, h := range *r {
		if h.end < start || h.start > end {
			out = append(out, h)
			continue
		}
		if h.start < start {
			out = append(out, heldRange{h.start, start - 1, h.exclusive})
		}
		if h.end > end {
			out = append(out, heldRange{end + 1, h.end, h.exclusive})
		}
	}
	*r = out
}

// set locks [start, end] in that way, and merges it with neighbours.
func (r *ranges) set(start, end uint64, exclusive bool) {
	r.remove(start, end)
	out := (*r)[:0]
	for _, h := range *r {
		switch {
		case h.exclusive == exclusive && h.end != ^uint64(0) && h.end+1 == start:
			start = h.start
		case h.exclusive == exclusive && end != ^uint64(0) && end+1 == h.start:
			end = h.end
		default:
			out = append(out, h)
		}
	}
	*r = append(out, heldRange{start, end, exclusive})
}

// covers tells whether one range of that kind covers all of [start, end].
func (r ranges) covers(start, end uint64, exclusive bool) bool {
	for _, h := range r {
		if h.start <= start && end <= h.end && h.exclusive == exclusive {
			return true
		}
	}
	return false
}
