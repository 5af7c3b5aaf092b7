// SPDX-License-Identifier: Apache-2.0

package readcache

import (
	"iter"
	"maps"
	"slices"
)

// most bounds what moves to the main queue while room is made, beyond a file, in bytes; and what
// one round of trim removes, beyond a file of the log.
const most = 32 << 20

// MakeRoom frees about n bytes of the pool's room, for a volume's log, and returns how many. 0:
// nothing can go. What others freed while it waited for its turn counts.
func (c *Cache) MakeRoom(volume string, n int64) (freed int64) {
	c.mu.Lock()
	v, before := c.volumes[volume], c.freed
	c.mu.Unlock()
	c.evicting.Lock()
	defer c.evicting.Unlock()
	c.mu.Lock()
	freed = c.freed - before
	c.mu.Unlock()
	if freed >= n {
		return freed
	}
	return c.evict(n, wish{by: v})
}

// wish says for whom room is made, and from whom.
type wish struct {
	by   *Volume // its own Reserve does not protect it; nil: nobody's
	only bool    // from nobody else
}

// reserve takes room for n bytes of blocks of v. It makes room if it must, and leaves the slack to
// the logs.
func (c *Cache) reserve(v *Volume, n int64, blocks int) bool {
	c.refreshOne(v)
	if ok, _, _, never := c.tryReserve(v, n, blocks); ok || never {
		return ok
	}
	for range 8 {
		c.evicting.Lock()
		ok, w, lacks, _ := c.tryReserve(v, n, blocks) // others may have made room meanwhile
		freed := int64(1)
		if !ok {
			freed = c.evict(lacks, w)
		}
		c.evicting.Unlock()
		if ok || freed == 0 {
			return ok
		}
	}
	return false
}

// tryReserve takes the room if it is there. If not, it returns how much is to be freed; never: that
// is of no use.
func (c *Cache) tryReserve(v *Volume, n int64, blocks int) (ok bool, w wish, lacks int64, never bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	many, over := c.blocks+blocks-c.cfg.Blocks, v.over(n)
	r := c.cfg.Room.Status()
	short := r.Used + r.ReservedForDelete + c.cfg.Slack + n - r.Limit
	if v.closed || v.share.Limit > 0 && n > v.share.Limit/2 || blocks > c.cfg.Blocks/2 {
		return false, w, 0, true
	}
	if many <= 0 && over <= 0 && short <= 0 && c.cfg.Room.Reserve(n) == nil {
		v.coming += n
		return true, w, 0, false
	}
	if over > 0 {
		return false, wish{v, true}, over, false
	}
	return false, wish{by: v}, max(short, 1), false
}

// trim keeps a volume within its limit. Others that need room come between its rounds.
func (c *Cache) trim(v *Volume) {
	c.refreshOne(v)
	for {
		c.mu.Lock()
		over := v.over(0)
		if over == 0 {
			v.trimming = false
		}
		c.mu.Unlock()
		if over == 0 {
			return
		}
		c.evicting.Lock()
		freed := c.evict(min(over, most), wish{v, true})
		c.evicting.Unlock()
		if freed == 0 {
			c.mu.Lock()
			v.trimming = false
			c.mu.Unlock()
			return
		}
	}
}

// askAll asks the logs what can go, where that may have changed. The caller holds evicting.
func (c *Cache) askAll() {
	c.mu.Lock()
	all := c.all()
	c.mu.Unlock()
	for _, v := range all {
		c.ask(v)
	}
}

func (c *Cache) refreshOne(v *Volume) {
	c.mu.Lock()
	dirty := v.dirty
	c.mu.Unlock()
	if dirty {
		c.evicting.Lock()
		defer c.evicting.Unlock()
		c.ask(v)
	}
}

// ask asks a log what can go, if that may have changed. The caller holds evicting.
func (c *Cache) ask(v *Volume) {
	c.mu.Lock()
	source := v.source
	if !v.dirty || source == nil || v.closed {
		c.mu.Unlock()
		return
	}
	v.dirty = false
	c.mu.Unlock()
	files, settled := source.Evictable()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !settled {
		v.dirty = true
	}
	since := make(map[Segment]uint64, len(v.log))
	for _, f := range v.log {
		since[f.Segment] = f.since
	}
	v.log, v.logBytes = make([]aged, 0, len(files)), 0
	for _, f := range files {
		at, known := since[f.Segment]
		if !known {
			at = c.next
			c.next++
		}
		v.log = append(v.log, aged{f, at})
		v.logBytes += f.Len
	}
}

// victim is what goes next.
type victim struct {
	v    *Volume
	file *file   // of v; nil: the oldest of v's log
	left *closed // not nil: the oldest file of a folder that nobody has open
	at   uint64
	size int64
}

// oldest returns the oldest of a volume in a queue; false: there is none. The caller holds mu.
func (v *Volume) oldest(q queue, stuck map[*Volume]bool) (victim, bool) {
	var out victim
	if len(v.files[q]) > 0 {
		f := v.files[q][0]
		out = victim{v: v, file: f, at: f.id, size: f.size}
	}
	if q == small && len(v.log) > 0 && !stuck[v] && (out.v == nil || v.log[0].since < out.at) {
		out = victim{v: v, at: v.log[0].since, size: v.log[0].Len}
	}
	return out, out.v != nil
}

// pick returns what goes next. First it is what no Reserve protects, then what is the wisher's own.
// The caller holds mu. stuck are volumes whose logs could not remove a file.
func (c *Cache) pick(w wish, stuck map[*Volume]bool) (victim, bool) {
	x, ok := victim{}, false
	if !w.only {
		x, ok = c.pickFrom(maps.Values(c.volumes), stuck, true)
	}
	if !ok && w.by != nil {
		x, ok = c.pickFrom(slices.Values([]*Volume{w.by}), stuck, false)
	}
	switch {
	case ok:
	case !w.only:
		x, ok = newestPinned(maps.Values(c.volumes), c.most())
	case w.by.share.Limit > 0:
		x, ok = newestPinned(slices.Values([]*Volume{w.by}), w.by.share.Limit-w.by.share.Limit/32)
	}
	return x, ok
}

func (c *Cache) pickFrom(volumes iter.Seq[*Volume], stuck map[*Volume]bool, protect bool) (victim, bool) {
	var bytes [pinned]int64
	var best [pinned]victim
	kept := c.keptShare()
	for v := range volumes {
		for q := range best {
			x, ok := v.oldest(queue(q), stuck)
			if !ok || protect && v.protects(x, kept(v)) {
				continue
			}
			bytes[q] += v.bytes[q]
			if queue(q) == small && !stuck[v] {
				bytes[q] += v.segmentBytes()
			}
			if best[q].v == nil || x.at < best[q].at {
				best[q] = x
			}
		}
	}
	if protect {
		for _, x := range c.closed {
			bytes[small] += x.bytes
			if f := x.files[0]; best[small].v == nil && best[small].left == nil || f.id < best[small].at {
				best[small] = victim{left: x, at: f.id, size: f.size}
			}
		}
	}
	there := func(x victim) bool { return x.v != nil || x.left != nil }
	q := main
	if there(best[small]) && (!there(best[main]) || 9*bytes[small] > bytes[main]) {
		q = small
	}
	return best[q], there(best[q])
}

// protects reports whether others may not push x out of v, of which so much is kept for it. A
// segment of the log is large, so it goes as long as there is more than that: otherwise the least
// share would keep it. The caller holds mu.
func (v *Volume) protects(x victim, kept int64) bool {
	if kept == 0 {
		return false
	}
	if x.file == nil {
		return v.used() <= kept
	}
	return v.used()-x.size < kept
}

// keptShare returns how much of a volume others cannot push out: what is pinned and the rest of its
// Reserve, or less of that if it is too much for the room. The caller holds mu.
func (c *Cache) keptShare() func(v *Volume) int64 {
	var all int64
	most := c.most()
	rest := func(v *Volume) int64 { return max(0, v.share.Reserve-v.bytes[pinned]) }
	for _, v := range c.volumes {
		all += rest(v)
		most -= v.bytes[pinned]
	}
	most = max(0, most)
	return func(v *Volume) int64 {
		if all <= most {
			return v.bytes[pinned] + rest(v)
		}
		return v.bytes[pinned] + int64(float64(rest(v))/float64(all)*float64(most))
	}
}

// evict frees about n bytes. The caller holds evicting. What moves to the main queue meanwhile is
// bounded, so that it ends soon.
func (c *Cache) evict(n int64, w wish) (freed int64) {
	c.askAll()
	stuck := map[*Volume]bool{}
	keep := min(n, most) + c.cfg.FileSize
	for freed < n {
		c.mu.Lock()
		x, ok := c.pick(w, stuck)
		c.mu.Unlock()
		if !ok {
			break
		}
		var got, moved int64
		switch {
		case x.left != nil:
			got = c.dropClosed(x.left)
		case x.file != nil:
			got, moved = c.dropFile(x.file, keep)
		default:
			if got, moved = c.dropSegment(x.v, keep); got == 0 {
				stuck[x.v] = true
			}
		}
		freed += got - moved
		keep -= moved
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freed += max(0, freed)
	return freed
}

// dropClosed removes the oldest file of a folder that nobody has open. The caller holds evicting.
func (c *Cache) dropClosed(x *closed) (freed int64) {
	c.mu.Lock()
	f := x.files[0]
	x.files = x.files[1:]
	x.bytes -= f.size
	if len(x.files) == 0 {
		maps.DeleteFunc(c.closed, func(_ string, y *closed) bool { return y == x })
	}
	c.mu.Unlock()
	if err := x.dir.Remove(f.name); err != nil {
		c.cfg.Logger.Warn("a file of the read cache cannot be removed, and takes room",
			"path", x.dir.Path()+"/"+f.name, "error", err)
		return 0
	}
	c.cfg.Room.Release(f.size)
	return f.size
}

// usedBlock is a block that goes to the main queue.
type usedBlock struct {
	segment Segment
	sealedBlock
	pos int64 // in what goes
}

// dropFile removes a file. Blocks that are used often move to the main queue, up to keep bytes. It
// returns how many bytes went, and how many moved. The caller holds evicting.
func (c *Cache) dropFile(f *file, keep int64) (freed, moved int64) {
	v := f.v
	c.mu.Lock()
	if f.gone { // it could not be written, and was removed just now
		c.mu.Unlock()
		return 0, 0
	}
	f.users++
	v.takeOut(f)
	freed = f.size
	if f.queue == pinned {
		v.lost++
	}
	var stay []usedBlock
	for _, h := range f.entries {
		s := h.segment.segment
		e := v.entry(s, h.off)
		if e == nil || e.file != f {
			continue
		}
		if e.uses == 0 || f.queue == pinned || int64(e.len) > keep {
			v.unset(s, h.off, f)
			if f.queue == small {
				c.ghosts.add(ghostOf(v, s, h.off))
			}
			continue
		}
		keep -= int64(e.len)
		uses := e.uses - 1
		if f.queue == small {
			uses = 0
		}
		stay = append(stay, usedBlock{s, sealedBlock{Block: Block{h.off, h.len}, uses: uses, from: f}, int64(h.pos)})
	}
	promised := sizeOf(stay)
	v.coming += promised // nobody else takes their part of the limit
	c.mu.Unlock()
	defer c.done(f)
	stay = c.readAll(v, stay, f.read)
	if !f.remove() {
		freed = 0
	}
	c.cfg.Room.Release(freed)
	return freed, c.move(v, stay, promised)
}

func sizeOf(list []usedBlock) (n int64) {
	for _, b := range list {
		n += int64(b.Len)
	}
	return n
}

// dropSegment has a log remove its oldest file that can go. Blocks that are used often move to the
// main queue. The caller holds evicting.
func (c *Cache) dropSegment(v *Volume, keep int64) (freed, moved int64) {
	c.mu.Lock()
	if len(v.log) == 0 || v.source == nil {
		c.mu.Unlock()
		return 0, 0
	}
	f, source := v.log[0], v.source
	var stay []usedBlock
	if x := v.index[f.Segment]; x != nil {
		for _, e := range x.blocks {
			if e.file == nil && e.uses > 0 && int64(e.len) <= keep {
				keep -= int64(e.len)
				stay = append(stay, usedBlock{f.Segment, sealedBlock{Block: Block{e.off, e.len}}, int64(e.off)})
			}
		}
	}
	c.mu.Unlock()
	freed = source.Evict(f.Seq, func() {
		stay = c.readAll(v, stay, func(p []byte, off int64) error { return readFull(segmentReader{source, f.Seq}, p, off) })
	})
	c.mu.Lock()
	if freed == 0 {
		v.dirty = true // it may not be the log's any more
		c.mu.Unlock()
		return 0, 0
	}
	v.log, v.logBytes = v.log[1:], v.logBytes-f.Len
	if x := v.index[f.Segment]; x != nil {
		x.blocks = slices.DeleteFunc(x.blocks, func(e entry) bool {
			if e.file == nil {
				c.count1(&e, -1)
			}
			return e.file == nil
		})
		if len(x.blocks) == 0 {
			delete(v.index, f.Segment)
		}
	}
	promised := sizeOf(stay)
	v.coming += promised
	c.mu.Unlock()
	return freed, c.move(v, stay, promised)
}

type segmentReader struct {
	Segments
	seq uint64
}

func (r segmentReader) ReadAt(p []byte, off int64) (int, error) {
	return r.ReadSegmentFile(r.seq, p, off)
}

// readAll reads blocks from what goes, and returns those that it could read. The others are
// forgotten.
func (c *Cache) readAll(v *Volume, list []usedBlock, read func(p []byte, off int64) error) []usedBlock {
	var errs []error
	out := list[:0]
	for _, b := range list {
		b.bytes = make([]byte, b.Len)
		if err := read(b.bytes, b.pos); err != nil {
			errs = append(errs, err)
			v.forget(b.segment, b.Off, b.from)
			continue
		}
		out = append(out, b)
	}
	if len(errs) > 0 {
		c.cfg.Logger.Warn("blocks of the read cache cannot be read, and go", "volume", v.name, "blocks", len(errs),
			"error", errs[0])
	}
	return out
}

// move writes blocks into the main queue, see moveTo.
func (c *Cache) move(v *Volume, list []usedBlock, promised int64) (moved int64) {
	moved = c.moveTo(main, v, list, promised)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved += moved
	return moved
}

// moveTo writes blocks into a queue, and returns how many bytes. There is room, unless logs took
// it: what the blocks were in is gone. So many bytes count as coming already.
func (c *Cache) moveTo(q queue, v *Volume, list []usedBlock, promised int64) (moved int64) {
	for len(list) > 0 {
		var part []sealedBlock
		var size int64
		s := list[0].segment
		for len(list) > 0 && list[0].segment == s {
			part = append(part, list[0].sealedBlock)
			size += int64(list[0].Len)
			list = list[1:]
		}
		if c.cfg.Room.Reserve(size) != nil {
			for _, b := range part {
				v.forget(s, b.Off, b.from)
			}
			continue
		}
		v.write(q, s, part)
		moved += size
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v.coming -= promised - moved
	return moved
}
