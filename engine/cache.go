// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"container/list"
	"sync"

	"github.com/weir-storage/weir/engine/segment"
)

// BlockCache keeps the plaintext of the blocks that were read last, up to a number of bytes. All
// volumes of a process share one cache, each up to a limit of its own. Its methods may be called
// from any goroutine.
type BlockCache struct {
	limit int64

	mu     sync.Mutex
	size   int64
	hits   uint64
	misses uint64
	last   uint64 // the newest namespace
	blocks map[cacheKey]*list.Element
	recent *list.List // of *cached, most recent first

	rows *rowCache
}

// cacheKey names a block. After a takeover cut the log, a position may name another block. So the
// volume begins a new namespace then.
type cacheKey struct {
	namespace uint64
	ref       segment.BlockRef
}

// cached is a block, which those who read it now share with the cache. Its memory is used again
// when it is neither in the cache nor read by anybody.
type cached struct {
	key   cacheKey
	data  []byte // nobody changes it
	share *cacheShare
	own   *list.Element // in share.recent
	users int           // who got it and did not say done yet; guarded by the cache's mutex
	out   bool          // it is not in the cache (any more); guarded by the cache's mutex
}

// cacheShare is what a cache has of one volume. The cache's mutex guards it.
type cacheShare struct {
	limit  int64 // 0: none but the cache's
	size   int64
	recent *list.List // of *list.Element of BlockCache.recent, most recent first
}

// NewBlockCache returns an empty cache for up to the given number of bytes of blocks. Metadata that
// were read last take up to three sixteenths of that in addition.
func NewBlockCache(bytes int64) *BlockCache {
	return &BlockCache{limit: bytes, blocks: make(map[cacheKey]*list.Element), recent: list.New(), rows: newRowCache(bytes / 8)}
}

// CacheStatus is a BlockCache at one moment.
type CacheStatus struct {
	Bytes, Limit int64
	Hits, Misses uint64 // blocks asked for, since the start
}

// Status returns how full the cache is, and how often it had what was asked for.
func (c *BlockCache) Status() CacheStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return CacheStatus{Bytes: c.size, Limit: c.limit, Hits: c.hits, Misses: c.misses}
}

// namespace returns a number that it never returned before.
func (c *BlockCache) namespace() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return c.last
}

// open returns the share of a volume that is opened.
func (c *BlockCache) open() *cacheShare { return &cacheShare{recent: list.New()} }

// setLimit changes how many bytes a volume may have in the cache; 0: as many as there are.
func (c *BlockCache) setLimit(s *cacheShare, limit int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.limit = limit
	c.shrink(s)
}

// shrink takes out what a volume has beyond its limit, what was used longest ago first. The caller
// holds mu.
func (c *BlockCache) shrink(s *cacheShare) {
	for s.limit > 0 && s.size > s.limit {
		c.remove(s.recent.Back().Value.(*list.Element))
	}
}

// remove takes a block out. The caller holds mu.
func (c *BlockCache) remove(el *list.Element) {
	b := c.recent.Remove(el).(*cached)
	b.share.recent.Remove(b.own)
	delete(c.blocks, b.key)
	c.size -= int64(len(b.data))
	b.share.size -= int64(len(b.data))
	b.out = true
	b.recycle()
}

// recycle gives a block's memory back if nobody has it any more. The caller holds the cache's mu.
func (b *cached) recycle() {
	if b.out && b.users == 0 {
		segment.Recycle(b.data)
		b.data = nil // a mistake is found out
	}
}

// get returns a block, or nil. The caller says done when it has read it.
func (c *BlockCache) get(namespace uint64, ref segment.BlockRef) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.blocks[cacheKey{namespace, ref}]
	if el == nil {
		c.misses++
		return nil
	}
	c.hits++
	c.recent.MoveToFront(el)
	b := el.Value.(*cached)
	b.share.recent.MoveToFront(b.own)
	b.users++
	return b
}

// has reports whether a block is there. It does not count as use.
func (c *BlockCache) has(namespace uint64, ref segment.BlockRef) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blocks[cacheKey{namespace, ref}] != nil
}

// put keeps data of a volume, if there is room for it. The caller gives data away, and says done so
// many times when it has read the result.
func (c *BlockCache) put(s *cacheShare, namespace uint64, ref segment.BlockRef, data []byte, users int) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, size := cacheKey{namespace, ref}, int64(len(data))
	b := &cached{key: key, data: data, share: s, users: users}
	if size > c.limit || s.limit > 0 && size > s.limit || c.blocks[key] != nil {
		b.out = true
		return b
	}
	el := c.recent.PushFront(b)
	b.own = s.recent.PushFront(el)
	c.blocks[key] = el
	c.size += size
	s.size += size
	c.shrink(s)
	for c.size > c.limit {
		c.remove(c.recent.Back())
	}
	return b
}

// done ends the use of blocks that get and put returned, once for each time. nil stands for none.
func (c *BlockCache) done(blocks ...*cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range blocks {
		if b != nil {
			b.users--
			b.recycle()
		}
	}
}
