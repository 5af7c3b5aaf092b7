// SPDX-License-Identifier: Apache-2.0

package log

import (
	"sort"
	"sync/atomic"

	"github.com/weir-storage/weir/engine/segment"
)

// tail keeps the newest frames in memory, so that streaming them to members does not read the file
// again. The bytes of a chunk never change once they are published. Readers use them outside the
// lock while the writer fills the space behind.
type tail struct {
	chunks []*chunk
	size   int64 // capacity of all chunks
	max    int64
}

// chunk is consecutive frames of one segment.
type chunk struct {
	start Position // of the first frame
	buf   []byte
	ends  []uint32 // ends of frames, in buf

	// Of a chunk with one large frame, and no others: the memory is used again after its last
	// use. uses counts the tail, the hasher, and what writes the file. What somebody has read
	// from memory is not used again: lent, which mu guards, and which nobody sets once the tail
	// has given up the chunk.
	own  bool
	lent bool
	uses atomic.Int32
}

// done is called by each that uses the chunk, once.
func (c *chunk) done() {
	if c.own && c.uses.Add(-1) == 0 && !c.lent {
		segment.Reuse(c.buf)
	}
}

const (
	minChunk = 16 << 10
	maxChunk = 1 << 20
	ownChunk = 256 << 10
)

func (t *tail) reset() { t.chunks, t.size = nil, 0 }

// space returns a chunk with room for n bytes at pos. The caller writes the frame behind its buf,
// and add then publishes it. The caller holds writer. What space reads changes under writer and mu
// only.
func (t *tail) space(pos Position, n int) *chunk {
	want := minChunk
	if k := len(t.chunks); k > 0 && !t.chunks[k-1].own {
		c := t.chunks[k-1]
		if c.start.Seq == pos.Seq && c.start.Off+uint64(len(c.buf)) == pos.Off && cap(c.buf)-len(c.buf) >= n {
			return c
		}
		want = min(2*cap(c.buf), maxChunk)
	}
	return &chunk{start: pos, buf: make([]byte, 0, max(want, n))}
}

// place is space for a record of n bytes. A large one whose blocks are sealed already stays in the
// memory where they are: its chunk has no buf before.
func (t *tail) place(pos Position, n int, sealed bool) *chunk {
	if sealed && n >= ownChunk {
		c := &chunk{start: pos, own: true}
		c.uses.Store(3)
		return c
	}
	return t.space(pos, n)
}

// add publishes a frame that was appended to c. The caller holds mu.
func (t *tail) add(c *chunk, buf []byte) {
	if k := len(t.chunks); k == 0 || t.chunks[k-1] != c {
		t.chunks = append(t.chunks, c)
		t.size += int64(cap(buf))
	}
	c.buf = buf
	c.ends = append(c.ends, uint32(len(buf)))
	for t.size > t.max && len(t.chunks) > 1 {
		t.size -= int64(cap(t.chunks[0].buf))
		t.chunks[0].done()
		t.chunks[0] = nil
		t.chunks = t.chunks[1:]
	}
}

// get returns whole frames from pos on: at least one, and more up to limit bytes if they lie in the
// same chunk. It returns nil if pos is not the start of a frame in the tail. The caller holds mu,
// and may use the bytes after it released mu.
func (t *tail) get(pos Position, limit int) []byte {
	i := sort.Search(len(t.chunks), func(i int) bool { return pos.Less(t.chunks[i].start) }) - 1
	if i < 0 {
		return nil
	}
	c := t.chunks[i]
	if c.start.Seq != pos.Seq || pos.Off-c.start.Off >= uint64(len(c.buf)) {
		return nil
	}
	off := uint32(pos.Off - c.start.Off)
	first := sort.Search(len(c.ends), func(i int) bool { return c.ends[i] > off })
	if off != 0 && (first == 0 || c.ends[first-1] != off) {
		return nil
	}
	last := sort.Search(len(c.ends), func(i int) bool { return int64(c.ends[i])-int64(off) > int64(limit) }) - 1
	last = max(first, last)
	c.lent = true
	return c.buf[off:c.ends[last]:c.ends[last]]
}
