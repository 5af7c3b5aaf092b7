// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// rowCache keeps values of metadata keys that were read last, of all volumes of a process, up to a
// number of bytes. It is what a lookup costs when its inodes and names are known: less than a tenth
// of what Pebble takes.
type rowCache struct {
	seed   maphash.Seed
	shards [rowShards]rowShard
	runs   runCache
}

const (
	rowShards = 16
	// rowCost is about how many bytes a row takes besides its key and value.
	rowCost = 160
	// inodeCost and handleCost are about how many bytes a decoded inode and handle take.
	inodeCost  = 320
	handleCost = 48
)

type rowShard struct {
	mu    sync.Mutex
	limit int
	size  int
	rows  map[uint64]*row // by hash: two keys that share one push each other out
	// order is a ring of all rows, and order.next the one that came last. What was used since it
	// came to the end of the ring begins anew: to move it each time takes longer than to find it.
	order row
}

type row struct {
	namespace  uint64
	key        string
	hash       uint64
	value      []byte
	since      uint64 // the generation of the view that read it, or of the batch that has it
	prev, next *row
	used       bool
	// decoded is value as inode and target have decoded it: a *meta.Inode or *volume.Handle, which
	// nobody changes; nil: nobody has asked.
	decoded any
}

func (r *row) size() int {
	n := rowCost + len(r.key) + len(r.value)
	switch r.decoded.(type) {
	case nil:
	case *volume.Handle:
		n += handleCost
	default:
		n += inodeCost
	}
	return n
}

func newRowCache(bytes int64) *rowCache {
	c := &rowCache{seed: maphash.MakeSeed(), runs: newRunCache(int(bytes / 2))}
	for i := range c.shards {
		s := &c.shards[i]
		s.limit, s.rows = int(bytes/rowShards), make(map[uint64]*row)
		s.order.prev, s.order.next = &s.order, &s.order
	}
	return c
}

// shard returns where a row is, if it is there.
func (c *rowCache) shard(namespace uint64, key []byte) (s *rowShard, hash uint64) {
	hash = maphash.Bytes(c.seed, key) + namespace*0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	return &c.shards[hash%rowShards], hash
}

// find returns a row; nil: there is none. The caller holds mu.
func (s *rowShard) find(hash, namespace uint64, key []byte) *row {
	if r := s.rows[hash]; r != nil && r.namespace == namespace && r.key == string(key) {
		return r
	}
	return nil
}

// remove takes a row out. The caller holds mu.
func (s *rowShard) remove(r *row) {
	r.unlink()
	delete(s.rows, r.hash)
	s.size -= r.size()
}

func (r *row) unlink() { r.prev.next, r.next.prev = r.next, r.prev }

// link puts a row, which is not in the ring, at its beginning.
func (s *rowShard) link(r *row) {
	r.prev, r.next = &s.order, s.order.next
	r.prev.next, r.next.prev = r, r
}

// add puts a row in, unless it is too large. The caller holds mu, and s has no row of its key.
func (s *rowShard) add(r *row) {
	if r.size() > s.limit {
		return
	}
	if other := s.rows[r.hash]; other != nil {
		s.remove(other)
	}
	s.rows[r.hash], r.used = r, true // else it would go before all that was used since
	s.link(r)
	s.size += r.size()
	s.shrink()
}

// shrink removes what was not used for long while there is too much. The caller holds mu.
func (s *rowShard) shrink() {
	for s.size > s.limit {
		r := s.order.prev
		if !r.used {
			s.remove(r)
			continue
		}
		r.used = false
		r.unlink()
		s.link(r)
	}
}

// rows is what a rowCache has of one volume. A row has what was applied to its key last: it is
// replaced or removed with each change. Each batch of the applier begins a generation.
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

// applied replaces or removes what a batch has changed, and adds what it has made. ok: the batch is
// in the store. The applier calls it after that, and before it says so.
func (r *rows) applied(records [][]segment.Op, ok bool, next func() uint64) {
	since := r.generation.Add(1) // what was read before is not kept any more
	for _, ops := range records {
		for _, op := range ops {
			r.cache.runs.changed(r.namespace.Load(), op)
			if op.Kind == segment.DeleteRange {
				if rangeOfKept(op.Key, op.End) {
					r.namespace.Store(next())
				}
				continue
			}
			if !keptTable(meta.Table(op.Key[0])) {
				continue
			}
			namespace := r.namespace.Load()
			s, hash := r.cache.shard(namespace, op.Key)
			s.mu.Lock()
			if was := s.find(hash, namespace, op.Key); was != nil {
				s.remove(was)
			}
			if ok && op.Kind == segment.Set {
				s.add(&row{namespace: namespace, key: string(op.Key), hash: hash, value: bytes.Clone(op.Value), since: since})
			}
			s.mu.Unlock()
		}
	}
}

// inode returns an inode that the rows have, unless over decides what it is; nil: none. The caller
// holds the engine's mu, and does not change the inode.
func (r *rows) inode(over *meta.Overlay, ino uint64) *meta.Inode {
	var buf [16]byte
	n, _ := r.get(over, meta.AppendInodeKey(buf[:0], ino)).(*meta.Inode)
	return n
}

// target returns what an entry names that the rows have, as inode does.
func (r *rows) target(over *meta.Overlay, dir uint64, name string) (h volume.Handle, ok bool) {
	var buf [288]byte
	t, ok := r.get(over, meta.AppendNameKey(buf[:0], dir, name)).(*volume.Handle)
	if ok {
		h = *t
	}
	return h, ok
}

// get returns a row as it is decoded; nil: there is none, it does not decode, or over decides what
// it is.
func (r *rows) get(over *meta.Overlay, key []byte) any {
	if over.Has(key) {
		return nil
	}
	namespace := r.namespace.Load()
	s, hash := r.cache.shard(namespace, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.find(hash, namespace, key)
	if b == nil {
		return nil
	}
	b.used = true
	if b.decoded == nil {
		before := b.size()
		if b.decoded = decoded(key, b.value); b.decoded != nil {
			s.size += b.size() - before
			s.shrink()
		}
	}
	return b.decoded
}

// decoded is what a row's value says; nil: who reads it finds out what is wrong.
func decoded(key, value []byte) any {
	switch meta.Table(key[0]) {
	case meta.Inodes:
		if n, err := meta.DecodeInode(key, value); err == nil {
			return n
		}
	case meta.Names:
		if d, err := meta.DecodeName(key, value, ""); err == nil {
			return &d.Handle
		}
	}
	return nil
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
	namespace := r.namespace.Load()
	s, hash := r.cache.shard(namespace, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.find(hash, namespace, key)
	if b == nil {
		return nil, false
	}
	if !r.live && b.since > r.since { // it was changed after the view began
		return nil, false
	}
	b.used = true
	return b.value, true
}

// Put implements meta.Rows. It does nothing if a batch was applied since the view began.
func (r *rowsOf) Put(key, value []byte) {
	if !keptTable(meta.Table(key[0])) {
		return
	}
	namespace := r.namespace.Load()
	s, hash := r.cache.shard(namespace, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.generation.Load() != r.since { // who applies locks the shard after that
		return
	}
	if s.find(hash, namespace, key) == nil {
		s.add(&row{namespace: namespace, key: string(key), hash: hash, value: value, since: r.since})
	}
}
