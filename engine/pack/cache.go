// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"container/list"
	"sync"

	"github.com/weir-storage/weir/engine/segment"
)

// Cache keeps the indexes of packs that were used last, of any number of volumes. With blocks of 64
// KiB an index takes some 6 KiB, with blocks of 4 KiB some 100. Any number of goroutines may call
// its methods.
type Cache struct {
	mu    sync.Mutex
	most  int // bytes of memory
	bytes int
	order *list.List // of *Pack, the one used last in front
	packs map[string]*list.Element
}

// NewCache returns a cache that takes at most so many bytes of memory. It keeps no index that is
// larger.
func NewCache(most int) *Cache {
	return &Cache{most: most, order: list.New(), packs: map[string]*list.Element{}}
}

// Open is the function Open, if the cache does not have the index. Two calls at once for one pack
// may both read. No lock is held while read runs.
func (c *Cache) Open(volume segment.VolumeID, hash Hash, length uint64, read Read) (*Pack, error) {
	name := Name(volume, hash)
	if p := c.get(name); p != nil {
		return p, nil
	}
	p, err := Open(volume, hash, length, read)
	if err == nil {
		c.put(p)
	}
	return p, err
}

// get returns an index that the cache has, or nil.
func (c *Cache) get(name string) *Pack {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.packs[name]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*Pack)
}

func (c *Cache) put(p *Pack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.packs[p.name] != nil || p.memory() > c.most {
		return
	}
	c.packs[p.name] = c.order.PushFront(p)
	c.bytes += p.memory()
	for c.bytes > c.most {
		last := c.order.Back()
		old := c.order.Remove(last).(*Pack)
		delete(c.packs, old.name)
		c.bytes -= old.memory()
	}
}
