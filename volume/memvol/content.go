// SPDX-License-Identifier: Apache-2.0

package memvol

import (
	"slices"
	"sort"
)

const pageSize = 4096

type page [pageSize]byte

// span is recorded data, [start, end).
type span struct{ start, end uint64 }

// content is the data of a file: its bytes in pages, and which of them were
// recorded. Bytes outside the spans are zero in every page. Spans are ordered,
// not empty, and do not touch.
type content struct {
	pages map[uint64]*page // by offset / pageSize
	spans []span
}

// write puts data at off and returns how many more bytes are recorded now.
func (c *content) write(off uint64, data []byte) uint64 {
	if c.pages == nil {
		c.pages = make(map[uint64]*page)
	}
	end := off + uint64(len(data))
	grown := uint64(len(data)) - c.recorded(off, end)
	for at := off; at < end; {
		p := c.pages[at/pageSize]
		if p == nil {
			p = new(page)
			c.pages[at/pageSize] = p
		}
		at += uint64(copy(p[at%pageSize:], data[at-off:]))
	}
	i, j := c.overlap(off, end, true)
	merged := span{off, end}
	if i < j {
		merged.start = min(off, c.spans[i].start)
		merged.end = max(end, c.spans[j-1].end)
	}
	c.spans = slices.Replace(c.spans, i, j, merged)
	return grown
}

// punch makes [off, end) a hole and returns how many recorded bytes it removed.
func (c *content) punch(off, end uint64) uint64 {
	i, j := c.overlap(off, end, false)
	var rest []span
	var removed uint64
	for _, s := range c.spans[i:j] {
		from, to := max(s.start, off), min(s.end, end)
		removed += to - from
		c.zero(from, to)
		if s.start < from {
			rest = append(rest, span{s.start, from})
		}
		if to < s.end {
			rest = append(rest, span{to, s.end})
		}
	}
	c.spans = slices.Replace(c.spans, i, j, rest...)
	return removed
}

// zero zeroes the bytes [from, to) and drops pages that are all within.
func (c *content) zero(from, to uint64) {
	for at := from; at < to; {
		next := min(to, (at/pageSize+1)*pageSize)
		if next-at == pageSize {
			delete(c.pages, at/pageSize)
		} else if p := c.pages[at/pageSize]; p != nil {
			begin := at % pageSize
			clear(p[begin : begin+next-at])
		}
		at = next
	}
}

// read fills p from off. Holes are zeros.
func (c *content) read(off uint64, p []byte) {
	for done := 0; done < len(p); {
		at := off + uint64(done)
		n := min(len(p)-done, int(pageSize-at%pageSize))
		if src := c.pages[at/pageSize]; src != nil {
			copy(p[done:done+n], src[at%pageSize:])
		} else {
			clear(p[done : done+n])
		}
		done += n
	}
}

// recorded returns how many bytes of [off, end) are data.
func (c *content) recorded(off, end uint64) uint64 {
	var n uint64
	i, j := c.overlap(off, end, false)
	for _, s := range c.spans[i:j] {
		n += min(s.end, end) - max(s.start, off)
	}
	return n
}

// nextData returns the first recorded byte at or after off.
func (c *content) nextData(off uint64) (uint64, bool) {
	i := sort.Search(len(c.spans), func(i int) bool { return c.spans[i].end > off })
	if i == len(c.spans) {
		return 0, false
	}
	return max(off, c.spans[i].start), true
}

// nextHole returns the first byte at or after off that is not recorded.
func (c *content) nextHole(off uint64) uint64 {
	i := sort.Search(len(c.spans), func(i int) bool { return c.spans[i].end > off })
	if i == len(c.spans) || c.spans[i].start > off {
		return off
	}
	return c.spans[i].end
}

// overlap returns the range of indices of the spans that share a byte with
// [off, end) or, if touch, that touch it.
func (c *content) overlap(off, end uint64, touch bool) (i, j int) {
	i = sort.Search(len(c.spans), func(i int) bool {
		return c.spans[i].end > off || touch && c.spans[i].end == off
	})
	j = sort.Search(len(c.spans), func(i int) bool {
		return c.spans[i].start > end || !touch && c.spans[i].start == end
	})
	return i, max(i, j)
}
