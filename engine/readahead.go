// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"

	"github.com/weir-storage/weir/engine/meta"
)

// Read-ahead fetches the blocks that follow into the cache when a client reads a file in order.
const (
	aheadReaders = 256 // files whose readers are watched
	aheadFetches = 4   // fetches at one time
)

// readahead watches reads and fetches ahead of those that are in order. A goroutine exists only
// while it fetches.
type readahead struct {
	ctx    context.Context
	cancel context.CancelFunc
	busy   chan struct{}
	wg     sync.WaitGroup

	mu      sync.Mutex
	readers map[uint64]*reader // by content
}

// reader records where the last reads of a file ended.
type reader struct {
	next    uint64 // the offset that continues the last read
	fetched uint64 // end of what was fetched
	busy    bool
}

func (a *readahead) init() {
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.busy = make(chan struct{}, aheadFetches)
	a.readers = make(map[uint64]*reader)
}

// stop ends all fetches and waits for them.
func (a *readahead) stop() {
	a.cancel()
	a.wg.Wait()
}

// note records a read of [off, end) of a content of a file of the given size. It may begin to fetch
// what follows.
func (a *readahead) note(e *Engine, t *tree, content, off, end, size uint64) {
	a.mu.Lock()
	r := a.readers[content]
	if r == nil || r.next != off {
		if len(a.readers) >= aheadReaders {
			clear(a.readers)
		}
		a.readers[content] = &reader{next: end, fetched: end}
		a.mu.Unlock()
		return
	}
	r.next = end
	tuned := e.tuned.Load()
	window := uint64(tuned.ReadAhead)
	if tuned.Memory > 0 { // what does not fit would be fetched in vain
		window = min(window, uint64(tuned.Memory)/2)
	}
	from, to := max(end, r.fetched), min(end+window, size)
	start := !r.busy && a.ctx.Err() == nil && to > from && (to-from >= window/2 || to == size)
	if start {
		select {
		case a.busy <- struct{}{}:
			r.busy, r.fetched = true, to
			a.wg.Add(1)
		default:
			start = false
		}
	}
	a.mu.Unlock()
	if !start {
		return
	}
	var extents []meta.Extent
	for x, err := range t.extents(content, from, to) {
		if err != nil {
			break // the reader that comes there will get the error
		}
		if !e.cache.has(t.cacheGen, x.Ref) {
			extents = append(extents, x)
		}
	}
	gen := t.cacheGen
	go func() {
		defer a.wg.Done()
		if len(extents) > 0 {
			// The error is not lost: the reader will meet it again.
			blocks, _ := e.blocks(a.ctx, gen, extents, nil)
			e.cache.done(blocks...)
		}
		a.mu.Lock()
		r.busy = false
		a.mu.Unlock()
		<-a.busy
	}()
}
