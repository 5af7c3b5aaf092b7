// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"container/list"
	"sync"
)

// Cache keeps the indexes of packs that were used last, of any number of volumes. With blocks of 64
// KiB an index takes some 6 KiB, with blocks of 4 KiB some 100. Any number of goroutines may call
// its methods.
type Cache struct {
	mu    sync.Mutex
	most  int // bytes of memory
	bytes int
	order *list.List // of cached, the one used last in front
	packs map[cacheKey]*list.Element
}

// cacheKey names a pack: its hash is of its volume too.
type cacheKey struct {
	hash   Hash
	length uint64
}

type cached struct {
	key  cacheKey
	pack *Pack
}

// NewCache returns a cache that takes at most so many bytes of memory. It keeps no index that is
// larger.
func NewCache(most int) *Cache {
	return &Cache{most: most, order: list.New(), packs: map[cacheKey]*list.Element{}}
}

// Decode returns the index of the pack of that hash and length. If the cache does not have it, head
// returns what the pack begins with, as Pack.Head does. Two calls at once for one pack may both ask
// head. No lock is held meanwhile. Errors are those of head, and ObjectErrors.
func (c *Cache) Decode(hash Hash, length uint64, head func() ([]byte, error)) (*Pack, error) {
	key := cacheKey{hash, length}
	if p := c.get(key); p != nil {
		return p, nil
	}
	b, err := head()
	if err != nil {
		return nil, err
	}
	p, err := decodeWhole(hash, length, b)
	if err == nil {
		c.put(key, p)
	}
	return p, err
}

// get returns an index that the cache has, or nil.
func (c *Cache) get(key cacheKey) *Pack {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.packs[key]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(cached).pack
}

func (c *Cache) put(key cacheKey, p *Pack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.packs[key] != nil || p.memory() > c.most {
		return
	}
	c.packs[key] = c.order.PushFront(cached{key, p})
	c.bytes += p.memory()
	for c.bytes > c.most {
		last := c.order.Back()
		old := c.order.Remove(last).(cached)
		delete(c.packs, old.key)
		c.bytes -= old.pack.memory()
	}
}
