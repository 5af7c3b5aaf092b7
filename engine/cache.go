// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"container/list"
	"sync"

	"github.com/weir-storage/weir/engine/segment"
)

// BlockCache keeps the plaintext of the blocks that were read last, up to a number of bytes. All
// volumes of a process share one cache. Its methods may be called from any goroutine.
type BlockCache struct {
	limit int64

	mu     sync.Mutex
	size   int64
	hits   uint64
	misses uint64
	last   uint64 // the newest namespace
	blocks map[cacheKey]*list.Element
	recent *list.List // of *cached, most recent first
}

// cacheKey names a block. After a takeover cut the log, a position may name another block. So the
// volume begins a new namespace then.
type cacheKey struct {
	namespace uint64
	ref       segment.BlockRef
}

type cached struct {
	key  cacheKey
	data []byte
}

// NewBlockCache returns an empty cache for up to the given number of bytes of blocks.
func NewBlockCache(bytes int64) *BlockCache {
	return &BlockCache{limit: bytes, blocks: make(map[cacheKey]*list.Element), recent: list.New()}
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

// get returns a block, or nil. The caller must not change the block.
func (c *BlockCache) get(namespace uint64, ref segment.BlockRef) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.blocks[cacheKey{namespace, ref}]
	if el == nil {
		c.misses++
		return nil
	}
	c.hits++
	c.recent.MoveToFront(el)
	return el.Value.(*cached).data
}

// put keeps data. Nobody may change data afterwards.
func (c *BlockCache) put(namespace uint64, ref segment.BlockRef, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := cacheKey{namespace, ref}
	if int64(len(data)) > c.limit || c.blocks[key] != nil {
		return
	}
	c.blocks[key] = c.recent.PushFront(&cached{key, data})
	c.size += int64(len(data))
	for c.size > c.limit {
		oldest := c.recent.Remove(c.recent.Back()).(*cached)
		delete(c.blocks, oldest.key)
		c.size -= int64(len(oldest.data))
	}
}
