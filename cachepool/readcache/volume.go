// SPDX-License-Identifier: Apache-2.0

package readcache

import (
	"errors"
	"log/slog"
	"slices"
	"sort"
	"sync"

	"github.com/weir-storage/weir/cachepool"
)

// Volume is what is kept of one volume. A nil Volume keeps nothing.
type Volume struct {
	cache *Cache
	name  string
	dir   cachepool.Dir

	// Guarded by Cache.mu.
	share    Share
	closed   bool
	index    map[Segment]*index
	files    [queues][]*file // by queue, oldest first
	bytes    [queues]int64   // of files, by queue
	coming   int64           // reserved for blocks that are not in a file yet
	current  [queues]*file   // that take more blocks; nil: none
	count    Counters
	log      []aged // the log's files that can go, oldest first
	logBytes int64  // of log
	dirty    bool   // log is to be asked for again
	trimming bool   // trim runs
	pass     uint8  // of what is pinned
	lost     uint64 // see PinsLost

	work sync.WaitGroup // has trim

	source Segments // guarded by Cache.evicting, and changed with mu held too; nil: none
}

// aged is a segment's file, and since when it can go.
type aged struct {
	File
	since uint64 // as Cache.next
}

// index has the blocks of a segment that are kept, by offset.
type index struct {
	segment Segment
	blocks  []entry
}

// entry is a block. Its file is nil while the log itself has it: then the entry only counts uses.
type entry struct {
	file *file
	off  uint32
	len  uint32
	pos  uint32
	uses uint8 // since it came into its queue; at most maxUses
	pass uint8 // of Pin: the last one that wanted it
}

// maxUses bounds for how many rounds of the main queue a block stays without being used.
const maxUses = 3

// find returns the place of a block in x.
func (x *index) find(off uint32) (int, bool) {
	i := sort.Search(len(x.blocks), func(i int) bool { return x.blocks[i].off >= off })
	return i, i < len(x.blocks) && x.blocks[i].off == off
}

// segmentIndex returns the index of a segment, which it adds if there is none. The caller holds mu.
func (v *Volume) segmentIndex(s Segment) *index {
	x := v.index[s]
	if x == nil {
		x = &index{segment: s}
		v.index[s] = x
	}
	return x
}

// entry returns a block's entry, or nil. The caller holds mu, and keeps it while it uses the entry.
func (v *Volume) entry(s Segment, off uint32) *entry {
	if x := v.index[s]; x != nil {
		if i, ok := x.find(off); ok {
			return &x.blocks[i]
		}
	}
	return nil
}

// set puts e into the index of s, instead of what was at its offset. The caller holds mu.
func (v *Volume) set(s Segment, e entry) {
	x := v.segmentIndex(s)
	i, ok := x.find(e.off)
	if ok {
		v.cache.count1(&x.blocks[i], -1)
		x.blocks[i] = e
	} else {
		x.blocks = slices.Insert(x.blocks, i, e)
	}
	v.cache.count1(&e, 1)
}

// count1 counts an entry, or not any more. The caller holds mu.
func (c *Cache) count1(e *entry, by int) {
	if e.file == nil {
		c.uses += by
	} else {
		c.blocks += by
	}
}

// unset removes the block at off of s, if f has it. The caller holds mu.
func (v *Volume) unset(s Segment, off uint32, f *file) {
	x := v.index[s]
	if x == nil {
		return
	}
	if i, ok := x.find(off); ok && x.blocks[i].file == f {
		v.cache.count1(&x.blocks[i], -1)
		x.blocks = slices.Delete(x.blocks, i, i+1)
		if f != nil && f.queue == pinned && !f.gone {
			v.lost++
		}
	}
	if len(x.blocks) == 0 {
		delete(v.index, s)
	}
}

// adopt adds the blocks of a file of an earlier process to the indexes. The caller holds mu.
func (v *Volume) adopt(f *file) {
	for _, e := range f.entries {
		v.set(e.segment.segment, entry{file: f, off: e.off, len: e.len, pos: e.pos})
	}
}

// used returns how much is kept. The caller holds mu.
func (v *Volume) used() int64 {
	return v.bytes[small] + v.bytes[main] + v.bytes[pinned] + v.coming + v.segmentBytes()
}

// over returns by how much the volume would be over its limit with n bytes more. Some of the limit
// is left for the indexes of files. The caller holds mu.
func (v *Volume) over(n int64) int64 {
	if v.share.Limit == 0 || v.closed {
		return 0
	}
	return max(0, v.used()+n-(v.share.Limit-v.share.Limit/32))
}

func (v *Volume) segmentBytes() int64 { return v.logBytes }

// Place is where a block was.
type Place struct {
	file *file
	pos  uint32
}

// Get fills p with the sealed block of that length at off of s, or returns false. The caller
// verifies it, and calls Forget if it is not right.
func (v *Volume) Get(s Segment, off uint32, p []byte) (was Place, ok bool) {
	if v == nil {
		return Place{}, false
	}
	c := v.cache
	c.mu.Lock()
	e := v.entry(s, off)
	if e == nil || e.file == nil || int(e.len) != len(p) || v.closed {
		c.mu.Unlock()
		return Place{}, false
	}
	e.uses = min(e.uses+1, maxUses)
	f, pos := e.file, int64(e.pos)
	f.users++
	c.mu.Unlock()
	defer c.done(f)
	h, err := f.use()
	if err == nil {
		err = readFull(h, p, pos)
	}
	if err != nil {
		c.cfg.Logger.Warn("a block of the read cache cannot be read; another copy is", "path", f.path(), "error", err)
		v.forget(s, off, f)
		return Place{}, false
	}
	c.mu.Lock()
	v.count.cache(1, int64(len(p)))
	c.count.cache(1, int64(len(p)))
	c.mu.Unlock()
	return Place{f, uint32(pos)}, true
}

// Has reports whether Get would probably return the block.
func (v *Volume) Has(s Segment, b Block) bool {
	if v == nil {
		return false
	}
	v.cache.mu.Lock()
	defer v.cache.mu.Unlock()
	e := v.entry(s, b.Off)
	return e != nil && e.file != nil && e.len == b.Len
}

// Forget says that what Get returned was not the block. If another copy of the block is there by
// now, that stays.
func (v *Volume) Forget(s Segment, off uint32, was Place) {
	v.cache.cfg.Logger.Warn("a block of the read cache is damaged; another copy is read", "path", was.file.path(), "segment", s.Seq,
		"offset", off)
	v.cache.mu.Lock()
	defer v.cache.mu.Unlock()
	if e := v.entry(s, off); e != nil && e.file == was.file && e.pos == was.pos {
		v.unset(s, off, was.file)
	}
}

func (v *Volume) forget(s Segment, off uint32, f *file) {
	v.cache.mu.Lock()
	defer v.cache.mu.Unlock()
	v.unset(s, off, f)
}

// Used counts that a block was read from the log's own file. When that file goes, blocks that are
// used often stay.
func (v *Volume) Used(s Segment, b Block) {
	if v == nil {
		return
	}
	c := v.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if v.closed {
		return
	}
	v.count.log(1, int64(b.Len))
	c.count.log(1, int64(b.Len))
	switch e := v.entry(s, b.Off); {
	case e != nil:
		e.uses = min(e.uses+1, maxUses)
	case c.uses < c.cfg.Blocks/4:
		v.set(s, entry{off: b.Off, len: b.Len})
	}
}

// Missed counts blocks that were asked for and came from elsewhere.
func (v *Volume) Missed(blocks int, bytes int64) {
	if v == nil {
		return
	}
	v.cache.mu.Lock()
	defer v.cache.mu.Unlock()
	v.count.elsewhere(blocks, bytes)
	v.cache.count.elsewhere(blocks, bytes)
}

// Put keeps blocks of s, which were read from elsewhere and verified. sealed has each as it is in
// the segment. It may keep none. It returns how many bytes there is no room for.
func (v *Volume) Put(s Segment, blocks []Block, sealed [][]byte) (left int64) {
	if v == nil {
		return 0
	}
	c := v.cache
	var todo [2][]int
	var total [2]int64
	c.mu.Lock()
	for i, b := range blocks {
		if e := v.entry(s, b.Off); e != nil && e.file != nil || v.closed {
			continue
		}
		q := small
		if c.ghosts.take(ghostOf(v, s, b.Off)) {
			q = main
		}
		todo[q] = append(todo[q], i)
		total[q] += int64(b.Len)
	}
	c.mu.Unlock()
	for q, which := range todo {
		if len(which) == 0 {
			continue
		}
		var list []sealedBlock
		var size int64
		for k, i := range which {
			list = append(list, sealedBlock{Block: blocks[i], bytes: sealed[i]})
			size += int64(blocks[i].Len)
			if size < piece && k < len(which)-1 {
				continue
			}
			if c.reserve(v, size, len(list)) {
				v.write(queue(q), s, list)
			} else {
				left += size
			}
			list, size = nil, 0
		}
	}
	return left
}

// piece is about how many bytes are written at a time.
const piece = 1 << 20

// sealedBlock is a block to be written.
type sealedBlock struct {
	Block
	bytes []byte
	uses  uint8
	pass  uint8
	from  *file // that has it until then; nil: none
}

// write writes blocks of a segment into files of a queue. Their room is reserved; write gives back
// what it does not use.
func (v *Volume) write(q queue, s Segment, list []sealedBlock) {
	c := v.cache
	for len(list) > 0 {
		c.mu.Lock()
		f := v.current[q]
		if v.closed {
			for _, b := range list {
				v.coming -= int64(b.Len)
				c.cfg.Room.Release(int64(b.Len))
			}
			c.mu.Unlock()
			return
		}
		if f == nil {
			f = &file{v: v, id: c.next, queue: q}
			c.next++
			v.files[q] = append(v.files[q], f)
			v.current[q] = f
		}
		start, most := f.size, c.cfg.FileSize
		if v.share.Limit > 0 {
			most = min(most, v.share.Limit/16)
		}
		n, size := 0, int64(0)
		for n < len(list) && (n == 0 || start+size < most) {
			size += int64(list[n].Len)
			n++
		}
		f.size += size
		v.bytes[q] += size
		v.coming -= size
		f.users++
		if f.size >= most {
			f.full = true
			v.current[q] = nil
		}
		c.mu.Unlock()

		buf := make([]byte, 0, size)
		for _, b := range list[:n] {
			buf = append(buf, b.bytes...)
		}
		h, err := f.use()
		if err == nil {
			_, err = h.WriteAt(buf, start)
		}
		v.publish(f, s, list[:n], start, err)
		c.done(f)
		list = list[n:]
	}
}

// publish makes what was written known, or not if that failed.
func (v *Volume) publish(f *file, s Segment, list []sealedBlock, start int64, err error) {
	c := v.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !f.gone { // else its turn to go came before it was made
		c.cfg.Logger.Warn("blocks are not kept in the read cache", "path", f.path(), "error", err)
		f.full, f.indexed, f.failed = true, true, true
		v.lost++
		if v.current[f.queue] == f {
			v.current[f.queue] = nil
		}
	}
	for _, b := range list {
		e := v.entry(s, b.Off)
		switch {
		case b.from != nil && (e == nil || e.file != b.from): // it was forgotten meanwhile
		case err != nil || f.gone:
			v.unset(s, b.Off, b.from)
		case b.from == nil && e != nil && e.file != nil && (f.queue != pinned || e.file.queue == pinned): // another was faster
		default:
			v.set(s, entry{file: f, off: b.Off, len: b.Len, pos: uint32(start), uses: b.uses, pass: b.pass})
			f.entries = append(f.entries, held{v.segmentIndex(s), b.Off, b.Len, uint32(start)})
		}
		start += int64(b.Len)
	}
}

// SetShare changes what the volume may keep.
func (v *Volume) SetShare(share Share) {
	if v == nil {
		return
	}
	v.cache.mu.Lock()
	v.share = share
	v.cache.mu.Unlock()
	v.trimSoon()
}

// trimSoon has the volume brought within its limit. That may take long, and nobody waits for it.
func (v *Volume) trimSoon() {
	v.cache.mu.Lock()
	defer v.cache.mu.Unlock()
	if v.share.Limit > 0 && !v.trimming && !v.closed {
		v.trimming = true
		v.work.Go(func() { v.cache.trim(v) })
	}
}

// Attach says which files the volume's log has.
func (v *Volume) Attach(s Segments) {
	if v == nil {
		return
	}
	v.cache.evicting.Lock()
	v.cache.mu.Lock()
	v.source, v.dirty = s, true
	v.cache.mu.Unlock()
	v.cache.evicting.Unlock()
	v.trimSoon()
}

// Detach ends that. When it returns, nothing of Segments is called any more.
func (v *Volume) Detach() {
	if v == nil {
		return
	}
	v.cache.evicting.Lock()
	defer v.cache.evicting.Unlock()
	v.cache.mu.Lock()
	defer v.cache.mu.Unlock()
	v.source, v.log, v.logBytes = nil, nil, 0
}

// Close ends the use of the volume's files, after Detach. What is kept can be opened again.
func (v *Volume) Close() error {
	if v == nil {
		return nil
	}
	c := v.cache
	c.mu.Lock()
	v.closed = true // which ends trim
	c.mu.Unlock()
	v.work.Wait()
	c.evicting.Lock()
	defer c.evicting.Unlock()
	c.mu.Lock()
	var all []*file
	for q := range v.files {
		v.current[q] = nil
		all = append(all, v.files[q]...)
	}
	for _, f := range all {
		f.full = true
		f.indexed = f.indexed && !f.lacksIndex
		f.users++
	}
	c.mu.Unlock()
	for _, f := range all {
		c.done(f)
		f.closeIdle()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var busy []error
	for _, f := range all {
		if f.users > 0 {
			busy = append(busy, errors.New("a file is still read: "+f.path()))
		}
	}
	for _, x := range v.index {
		for i := range x.blocks {
			c.count1(&x.blocks[i], -1)
		}
	}
	delete(c.volumes, v.name)
	left := &closed{dir: v.dir}
	for q := range v.files {
		for _, f := range v.files[q] {
			left.files = append(left.files, closedFileOf(f.name(), f.id, f.queue, f.size))
			left.bytes += f.size
		}
	}
	slices.SortFunc(left.files, closedFile.compare)
	if len(left.files) > 0 {
		c.closed[v.name] = left
	}
	c.cfg.Logger.Debug("the read cache of a volume is closed", slog.String("volume", v.name), slog.Int("files", len(all)))
	return errors.Join(busy...)
}
