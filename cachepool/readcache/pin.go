// SPDX-License-Identifier: Apache-2.0

package readcache

import (
	"context"
	"iter"
	"slices"
)

// What is pinned is wanted by passes over all of it, one after the other. In each, who pins asks
// Keep for every block, gives Pin those that are not there, and ends it with EndPass.

// BeginPass begins a pass, and returns its number.
func (v *Volume) BeginPass() (pass uint8) {
	if v == nil {
		return 0
	}
	v.cache.mu.Lock()
	defer v.cache.mu.Unlock()
	if v.pass++; v.pass == 0 { // blocks of an earlier process have none
		v.pass = 1
	}
	return v.pass
}

// Keep reports whether a block is pinned, which it stays then.
func (v *Volume) Keep(s Segment, b Block, pass uint8) bool {
	if v == nil {
		return false
	}
	v.cache.mu.Lock()
	defer v.cache.mu.Unlock()
	e := v.entry(s, b.Off)
	if e == nil || e.file == nil || e.file.queue != pinned || e.len != b.Len {
		return false
	}
	e.pass = pass
	return true
}

// Pin keeps blocks of a segment until no pass wants them any more. sealed has each as it is in the
// segment, verified. It returns how many bytes there is no room for.
func (v *Volume) Pin(s Segment, blocks []Block, sealed [][]byte, pass uint8) (left int64) {
	if v == nil {
		for _, b := range blocks {
			left += int64(b.Len)
		}
		return left
	}
	var list []sealedBlock
	var size int64
	for i, b := range blocks {
		list = append(list, sealedBlock{Block: b, bytes: sealed[i], pass: pass})
		size += int64(b.Len)
	}
	if v.MayPin(size, len(list)) && v.cache.reserve(v, size, len(list)) {
		v.write(pinned, s, list)
		v.cache.mu.Lock()
		defer v.cache.mu.Unlock()
		for _, b := range blocks { // what could not be written is not there
			if e := v.entry(s, b.Off); e == nil || e.file == nil || e.file.queue != pinned {
				left += int64(b.Len)
			}
		}
		return left
	}
	return size
}

// MayPin reports whether so many bytes more may be pinned, in so many blocks, within the volume's
// limit. Together with the reserves of other volumes they leave a quarter to all else.
func (v *Volume) MayPin(n int64, blocks int) bool {
	if v == nil {
		return false
	}
	c := v.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if limit := v.share.Limit; limit > 0 && (v.bytes[pinned]+n > limit-limit/32 || n > limit/2) {
		return false
	}
	for _, o := range c.volumes {
		if n += o.bytes[pinned]; o != v {
			n += max(0, o.share.Reserve-o.bytes[pinned])
		}
		for _, f := range o.files[pinned] {
			blocks += len(f.entries)
		}
	}
	most := c.most()
	return n <= min(most, most/3*4-c.cfg.Slack) && blocks <= c.cfg.Blocks/4*3
}

// PinsLost counts what happened to what is pinned that a pass may have to mend. It is another
// number after a pass that was not complete.
func (v *Volume) PinsLost() uint64 {
	if v == nil {
		return 0
	}
	v.cache.mu.Lock()
	defer v.cache.mu.Unlock()
	return v.lost
}

// EndPass ends a pass that has asked for all that is wanted: what it did not want is not pinned any
// more. A file of which half or more is not wanted goes, and what is wanted of it is pinned again.
// If ctx ends before, the next pass goes on.
func (v *Volume) EndPass(ctx context.Context, pass uint8) {
	if v == nil {
		return
	}
	c := v.cache
	c.mu.Lock()
	all := slices.Clone(v.files[pinned])
	c.mu.Unlock()
	for _, f := range all {
		if ctx.Err() != nil {
			c.mu.Lock()
			v.lost++
			c.mu.Unlock()
			return
		}
		if !v.wants(f, pass) {
			c.evicting.Lock()
			c.unpin(f, pass)
			c.evicting.Unlock()
		}
	}
}

// wants reports whether more than half of a file is wanted, or somebody uses it just now.
func (v *Volume) wants(f *file, pass uint8) bool {
	v.cache.mu.Lock()
	defer v.cache.mu.Unlock()
	var wanted int64
	for _, h := range f.entries {
		if e := v.entry(h.segment.segment, h.off); e != nil && e.file == f && e.pass == pass {
			wanted += int64(e.len)
		}
	}
	if wanted <= f.size/2 && f.users > 0 {
		v.lost++ // the next pass looks at it
		return true
	}
	return wanted > f.size/2
}

// unpin removes a file of what is pinned. Blocks that the pass wants go to another one. The caller
// holds evicting.
func (c *Cache) unpin(f *file, pass uint8) {
	v := f.v
	c.mu.Lock()
	if f.gone || v.closed {
		c.mu.Unlock()
		return
	}
	f.users++
	v.takeOut(f)
	size := f.size
	var stay []usedBlock
	for _, h := range f.entries {
		s := h.segment.segment
		e := v.entry(s, h.off)
		if e == nil || e.file != f {
			continue
		}
		if e.pass != pass {
			v.unset(s, h.off, f)
			continue
		}
		stay = append(stay, usedBlock{s, sealedBlock{Block: Block{h.off, h.len}, pass: pass, from: f}, int64(h.pos)})
	}
	promised := sizeOf(stay)
	v.coming += promised
	c.mu.Unlock()
	defer c.done(f)
	stay = c.readAll(v, stay, f.read)
	if f.remove() {
		c.cfg.Room.Release(size)
	}
	if moved := c.moveTo(pinned, v, stay, promised); moved < promised {
		c.mu.Lock()
		v.lost++
		c.mu.Unlock()
	}
}

// newestPinned returns the newest file of what is pinned of volumes, if that is more than most. The
// caller holds mu.
func newestPinned(volumes iter.Seq[*Volume], most int64) (out victim, ok bool) {
	var bytes int64
	for v := range volumes {
		bytes += v.bytes[pinned]
		for _, f := range v.files[pinned] {
			if out.v == nil || f.id > out.at {
				out = victim{v: v, file: f, at: f.id, size: f.size}
			}
		}
	}
	return out, out.v != nil && bytes > most
}

// most returns how much reserves, and what is pinned, may take: three quarters of what logs and
// metadata leave of the room. The caller holds mu.
func (c *Cache) most() int64 {
	var kept int64
	for _, v := range c.volumes {
		kept += v.used()
	}
	for _, x := range c.closed {
		kept += x.bytes
	}
	r := c.cfg.Room.Status()
	return max(0, r.Limit-r.ReservedForDelete-max(0, r.Used-kept)) / 4 * 3
}
