// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"container/list"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
)

// rowCache keeps values of metadata keys that were read last, of all volumes of a process, up to a
// number of bytes. It is what a lookup costs when its inodes and names are known: less than a tenth
// of what Pebble takes.
type rowCache struct {
	seed   maphash.Seed
	shards [rowShards]rowShard
}

const (
	rowShards = 16
	// rowCost is about how many bytes a row takes besides its key and value.
	rowCost = 240
)

type rowShard struct {
	mu     sync.Mutex
	limit  int
	size   int
	rows   map[rowKey]*list.Element
	recent *list.List // of *row, most recent first
}

type rowKey struct {
	namespace uint64
	key       string
}

type row struct {
	key   rowKey
	value []byte
	since uint64 // the generation of the view that read it
}

func (r *row) size() int { return rowCost + len(r.key.key) + len(r.value) }

func newRowCache(bytes int64) *rowCache {
	c := &rowCache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i] = rowShard{limit: int(bytes / rowShards), rows: make(map[rowKey]*list.Element), recent: list.New()}
	}
	return c
}

func (c *rowCache) shard(key []byte) *rowShard {
	return &c.shards[maphash.Bytes(c.seed, key)%rowShards]
}

// remove takes a row out. The caller holds mu.
func (s *rowShard) remove(el *list.Element) {
	r := s.recent.Remove(el).(*row)
	delete(s.rows, r.key)
	s.size -= r.size()
}

// rows is what a rowCache has of one volume. A row is there only as long as nothing has been
// applied to its key since it was read. Each batch of the applier begins a generation.
type rows struct {
	cache      *rowCache
	namespace  atomic.Uint64
	generation atomic.Uint64
}

// keptTable reports whether rows of a table are kept: what a lookup and a change look at. Only
// records change these tables, so a home's overlay has what a batch changes of them.
func keptTable(t meta.Table) bool {
	return t == meta.Inodes || t == meta.Names || t == meta.Accountings || t == meta.Versions
}

// applied removes what a batch has changed. The applier calls it after the batch is in the store,
// and before it says so.
func (r *rows) applied(records [][]segment.Op, next func() uint64) {
	r.generation.Add(1) // what was read before is not kept any more
	for _, ops := range records {
		for _, op := range ops {
			if op.Kind == segment.DeleteRange {
				if rangeOfKept(op.Key, op.End) {
					r.namespace.Store(next())
				}
				continue
			}
			if !keptTable(meta.Table(op.Key[0])) {
				continue
			}
			s, key := r.cache.shard(op.Key), rowKey{r.namespace.Load(), string(op.Key)}
			s.mu.Lock()
			if el := s.rows[key]; el != nil {
				s.remove(el)
			}
			s.mu.Unlock()
		}
	}
}

// rangeOfKept reports whether a range may have keys of tables that are kept.
func rangeOfKept(lo, hi []byte) bool {
	for t := lo[0]; t <= hi[0]; t++ {
		if keptTable(meta.Table(t)) && (t < hi[0] || len(hi) > 1) {
			return true
		}
	}
	return false
}

// rowsOf is the rows that a view may use. It implements meta.Rows.
type rowsOf struct {
	*rows
	since uint64 // the generation in which the view began
	// live: the view reads what the store has at each call, and hides what is applied meanwhile.
	live bool
}

// view returns the rows for a view that begins now. The caller holds the engine's mu.
func (r *rows) view(live bool) *rowsOf { return &rowsOf{r, r.generation.Load(), live} }

// Get implements meta.Rows.
func (r *rowsOf) Get(key []byte) ([]byte, bool) {
	if !keptTable(meta.Table(key[0])) {
		return nil, false
	}
	namespace, s := r.namespace.Load(), r.cache.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	el := s.rows[rowKey{namespace, string(key)}]
	if el == nil {
		return nil, false
	}
	b := el.Value.(*row)
	if !r.live && b.since > r.since { // it was changed after the view began
		return nil, false
	}
	s.recent.MoveToFront(el)
	return b.value, true
}

// Put implements meta.Rows. It does nothing if a batch was applied since the view began.
func (r *rowsOf) Put(key, value []byte) {
	if !keptTable(meta.Table(key[0])) {
		return
	}
	namespace, s := r.namespace.Load(), r.cache.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.generation.Load() != r.since { // who applies locks the shard after that
		return
	}
	b := &row{rowKey{namespace, string(key)}, value, r.since}
	if s.rows[b.key] != nil || b.size() > s.limit {
		return
	}
	s.rows[b.key] = s.recent.PushFront(b)
	for s.size += b.size(); s.size > s.limit; {
		s.remove(s.recent.Back())
	}
}
