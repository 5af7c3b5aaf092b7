// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"container/list"
	"sort"
	"sync"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
)

// runCache keeps which extents the runs of files have that were read last, of all volumes of a
// process, up to a number of bytes. The rules are those of rowCache: a run has what was applied to
// it last, and is removed with each change.
type runCache struct {
	mu     sync.Mutex
	limit  int
	size   int
	files  map[runsOf]map[uint64]*list.Element // by number of the run
	recent *list.List                          // of *runRow, most recent first
}

// runsOf names a content of a volume.
type runsOf struct{ namespace, content uint64 }

type runRow struct {
	of      runsOf
	number  uint64        // of the run in the content
	extents []meta.Extent // nobody changes them
	since   uint64        // the generation of the view that read it
}

const (
	// runCost is about how many bytes a run takes besides its extents.
	runCost = 256
	// extentCost is how many bytes an extent takes.
	extentCost = 56
	// runExtents is the most extents of a run that is kept. Each read looks through them.
	runExtents = 64
	// nextExtents is about how many extents are read besides those that are asked for. They lie
	// behind them, and cost a fraction of what they cost later.
	nextExtents = 16
	// nextRuns is in how many runs those may lie.
	nextRuns = 16
)

func (r *runRow) size() int { return runCost + extentCost*len(r.extents) }

func newRunCache(bytes int) runCache {
	return runCache{limit: bytes, files: make(map[runsOf]map[uint64]*list.Element), recent: list.New()}
}

// remove takes a run out. The caller holds mu.
func (c *runCache) remove(el *list.Element) {
	r := c.recent.Remove(el).(*runRow)
	c.size -= r.size()
	runs := c.files[r.of]
	if delete(runs, r.number); len(runs) == 0 {
		delete(c.files, r.of)
	}
}

// changed removes what an operation on a volume's keys may have changed.
func (c *runCache) changed(namespace uint64, op segment.Op) {
	if op.Kind != segment.DeleteRange {
		if meta.Table(op.Key[0]) != meta.Extents {
			return
		}
		content, off := meta.ExtentAt(op.Key)
		c.mu.Lock()
		defer c.mu.Unlock()
		if el := c.files[runsOf{namespace, content}][off/run]; el != nil {
			c.remove(el)
		}
		return
	}
	lo, hi, ok := meta.ContentsIn(op.Key, op.End)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if lo == hi {
		for _, el := range c.files[runsOf{namespace, lo}] {
			c.remove(el)
		}
		return
	}
	for of, runs := range c.files {
		if of.namespace == namespace && lo <= of.content && of.content <= hi {
			for _, el := range runs {
				c.remove(el)
			}
		}
	}
}

// run returns the extents of a run that the view finds in the store, if they are known. The caller
// does not change them.
func (r *rowsOf) run(content, number uint64) ([]meta.Extent, bool) {
	c := &r.cache.runs
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.files[runsOf{r.namespace.Load(), content}][number]
	if el == nil {
		return nil, false
	}
	b := el.Value.(*runRow)
	if !r.live && b.since > r.since { // it was changed after the view began
		return nil, false
	}
	c.recent.MoveToFront(el)
	return b.extents, true
}

// putRun tells which extents the store has in a run, in the view. It keeps extents, and does
// nothing if a batch was applied since the view began.
func (r *rowsOf) putRun(content, number uint64, extents []meta.Extent) {
	b := &runRow{of: runsOf{r.namespace.Load(), content}, number: number, extents: extents, since: r.since}
	c := &r.cache.runs
	c.mu.Lock()
	defer c.mu.Unlock()
	// Who applies makes a generation first, and locks this after it.
	if r.generation.Load() != r.since || len(extents) > runExtents || b.size() > c.limit || c.files[b.of][number] != nil {
		return
	}
	if c.files[b.of] == nil {
		c.files[b.of] = make(map[uint64]*list.Element)
	}
	c.files[b.of][number] = c.recent.PushFront(b)
	for c.size += b.size(); c.size > c.limit; {
		c.remove(c.recent.Back())
	}
}

// extentsOf returns the extents of a content that share a byte with [off, end), in order. If the
// range is small, it looks among the runs that are known first.
func (t *tree) extentsOf(content, off, end uint64) (found []meta.Extent, err error) {
	if t.rows != nil && t.past == nil && end-off <= run {
		for at := off - off%run; at < end; at += run {
			some, ok := t.runOf(content, at)
			if !ok {
				found = nil
				break
			}
			// Those that end at or before off come first, then those that are asked for.
			some = some[sort.Search(len(some), func(i int) bool { return some[i].End() > off }):]
			some = some[:sort.Search(len(some), func(i int) bool { return some[i].Off >= end })]
			if end <= at+run && found == nil {
				return some, nil
			}
			if found = append(found, some...); end <= at+run {
				return found, nil
			}
		}
	}
	for x, err := range t.extents(content, off, end) {
		if err != nil {
			return nil, err
		}
		found = append(found, x)
	}
	return found, nil
}

// pending reports whether the overlay may decide what extents there are in the run that begins at
// byte at.
func (t *tree) pending(content, at uint64) bool {
	return t.over != nil && t.over.Touches(meta.ExtentRange(content, at, at+run))
}

// runOf returns the extents of the run that begins at byte at. false: extents has to look, which
// also finds out what is wrong.
func (t *tree) runOf(content, at uint64) ([]meta.Extent, bool) {
	if t.pending(content, at) {
		return nil, false
	}
	if some, ok := t.rows.run(content, at/run); ok {
		return some, true
	}
	end := at + nextRuns*run
	end -= end % (nextRuns * run) // so that readers of one place do not read the same twice
	var first, some []meta.Extent
	now, n := at, 0 // now is where the run of some begins
	keep := func() {
		if now == at {
			first = some
		}
		if now == at || !t.pending(content, now) {
			t.rows.putRun(content, now/run, some)
		}
		some, now = nil, now+run
	}
	for x, err := range t.extents(content, at, end) {
		if err != nil {
			return first, now > at
		}
		for now+run <= x.Off {
			keep()
		}
		if n >= nextExtents && now > at {
			return first, true
		}
		some = append(some, x)
		n++
	}
	for now < end {
		keep()
	}
	return first, true
}
