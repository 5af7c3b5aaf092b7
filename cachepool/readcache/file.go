// SPDX-License-Identifier: Apache-2.0

package readcache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"sync"

	"github.com/weir-storage/weir/cachepool"
)

// file has blocks one after the other, then an index of them.
type file struct {
	v     *Volume
	id    uint64 // grows with time
	queue queue

	// Guarded by Cache.mu.
	size    int64 // bytes of the pool's room
	entries []held
	users   int  // goroutines that read or write it
	full    bool // it takes no more blocks
	indexed bool // it has its index, or that was tried
	// lacksIndex: there was no room for its index. Close tries again.
	lacksIndex bool
	failed     bool // it could not be written: its last user removes it
	gone       bool // it is not in the queue any more; its last user closes it

	mu     sync.Mutex // guards what follows; it is held during input and output
	handle cachepool.File
	made   bool // the file exists
	dead   bool // it was removed, and is not made any more
}

// held is a block in a file.
type held struct {
	segment *index
	off     uint32
	len     uint32
	pos     uint32 // in the file
}

func (f *file) name() string { return fmt.Sprintf("%016x%s", f.id, suffixes[f.queue]) }

func (f *file) path() string { return f.v.dir.Path() + "/" + f.name() }

// use returns the open file. The caller counts as a user.
func (f *file) use() (cachepool.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.handle != nil {
		return f.handle, nil
	}
	var err error
	switch {
	case f.made:
		f.handle, err = f.v.dir.Open(f.name())
	case f.dead:
		return nil, &fs.PathError{Op: "create", Path: f.path(), Err: fs.ErrNotExist}
	default:
		f.handle, err = f.v.dir.Create(f.name())
	}
	if err != nil {
		f.handle = nil
		return nil, err
	}
	f.made = true
	c := f.v.cache
	c.mu.Lock()
	c.open[f] = true
	c.mu.Unlock()
	return f.handle, nil
}

// closeIdle closes the handle, unless somebody uses the file.
func (f *file) closeIdle() {
	c := f.v.cache
	f.mu.Lock()
	defer f.mu.Unlock()
	c.mu.Lock()
	used := f.users > 0
	if !used {
		delete(c.open, f)
	}
	c.mu.Unlock()
	if !used && f.handle != nil {
		_ = f.handle.Close() // what is not written yet is not needed
		f.handle = nil
	}
}

// maxOpen is how many files stay open that nobody uses.
const maxOpen = 128

// done ends a use of f. The last user of a file that is full writes its index.
func (c *Cache) done(f *file) {
	c.mu.Lock()
	write := f.users == 1 && f.full && !f.indexed && !f.gone
	if write {
		f.indexed = true // nobody else is to try
	}
	c.mu.Unlock()
	if write {
		f.writeIndex()
	}
	var idle []*file
	c.mu.Lock()
	f.users--
	discard := f.failed && f.users == 0 && !f.gone
	if discard {
		f.users++
	}
	if f.users == 0 && f.gone {
		idle = append(idle, f)
	}
	for x := range c.open {
		if len(c.open)-len(idle) <= maxOpen {
			break
		}
		if x != f && x.users == 0 {
			idle = append(idle, x)
		}
	}
	c.mu.Unlock()
	for _, x := range idle {
		x.closeIdle()
	}
	if discard {
		c.discard(f)
		c.done(f)
	}
}

// discard removes a file, with what it has. The caller is a user of it.
func (c *Cache) discard(f *file) {
	v := f.v
	c.mu.Lock()
	if f.gone {
		c.mu.Unlock()
		return
	}
	v.takeOut(f)
	if f.queue == pinned {
		v.lost++
	}
	for _, h := range f.entries {
		v.unset(h.segment.segment, h.off, f)
	}
	size := f.size
	c.mu.Unlock()
	if f.remove() {
		c.cfg.Room.Release(size)
	}
}

// takeOut takes a file from its queue. The caller holds mu.
func (v *Volume) takeOut(f *file) {
	f.gone = true
	if v.current[f.queue] == f {
		v.current[f.queue] = nil
	}
	v.files[f.queue] = slices.DeleteFunc(v.files[f.queue], func(x *file) bool { return x == f })
	v.bytes[f.queue] -= f.size
}

// remove removes the file, if it was made, and reports whether it takes no room any more.
func (f *file) remove() bool {
	f.mu.Lock()
	made := f.made
	f.dead = true
	f.mu.Unlock()
	if !made {
		return true
	}
	err := f.v.dir.Remove(f.name())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.v.cache.cfg.Logger.Warn("a file of the read cache cannot be removed, and takes room", "path", f.path(), "error", err)
		return false
	}
	return true
}

// The end of a file, in big-endian numbers: the segments, the blocks, and a trailer.
const (
	segmentSize = 8 + 32
	blockSize   = 4 * 4
	trailerSize = 4 + 4 + 8 // length and CRC-32C of what is before it, and magic
)

var (
	magic      = []byte("WEIRRC\x01\n")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// writeIndex writes the index. A file without one is of no use after a restart, so an error is only
// logged. The caller is the only user.
func (f *file) writeIndex() {
	c := f.v.cache
	c.mu.Lock()
	b, end := f.encode(), f.size
	c.mu.Unlock()
	err := c.cfg.Room.Reserve(int64(len(b)))
	reserved := err == nil
	if reserved {
		c.mu.Lock()
		f.size += int64(len(b))
		if !f.gone {
			f.v.bytes[f.queue] += int64(len(b))
		} else {
			c.cfg.Room.Release(int64(len(b))) // whoever removed it did not count them
		}
		c.mu.Unlock()
		var h cachepool.File
		if h, err = f.use(); err == nil {
			_, err = h.WriteAt(b, end)
		}
	}
	if err != nil {
		c.cfg.Logger.Info("a file of the read cache gets no index now", "path", f.path(), "why", err)
		c.mu.Lock()
		defer c.mu.Unlock()
		f.failed = f.failed || reserved
		f.lacksIndex = !reserved
	}
}

// encode returns the index. The caller holds Cache.mu.
func (f *file) encode() []byte {
	numbers := map[*index]uint32{}
	var segments, blocks []byte
	for _, e := range f.entries {
		n, ok := numbers[e.segment]
		if !ok {
			n = uint32(len(numbers))
			numbers[e.segment] = n
			segments = binary.BigEndian.AppendUint64(segments, e.segment.segment.Seq)
			segments = append(segments, e.segment.segment.Hash[:]...)
		}
		for _, x := range []uint32{n, e.off, e.len, e.pos} {
			blocks = binary.BigEndian.AppendUint32(blocks, x)
		}
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(len(numbers)))
	b = append(append(b, segments...), blocks...)
	trailer := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
	trailer = binary.BigEndian.AppendUint32(trailer, crc32.Checksum(b, castagnoli))
	return append(append(b, trailer...), magic...)
}

// load reads the index of a file of an earlier process. Nobody else has the file.
func (f *file) load() (err error) {
	h, err := f.v.dir.Open(f.name())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if f.size < trailerSize {
		return errIndex
	}
	trailer := make([]byte, trailerSize)
	if err := readFull(h, trailer, f.size-trailerSize); err != nil {
		return err
	}
	n := int64(binary.BigEndian.Uint32(trailer))
	if !bytes.Equal(trailer[8:], magic) || n < 4 || n > f.size-trailerSize {
		return errIndex
	}
	b := make([]byte, n)
	end := f.size - trailerSize - n
	if err := readFull(h, b, end); err != nil {
		return err
	}
	if crc32.Checksum(b, castagnoli) != binary.BigEndian.Uint32(trailer[4:]) {
		return fmt.Errorf("%w that has its checksum", errIndex)
	}
	return f.decode(b, end)
}

// decode reads an index. The blocks end before end.
func (f *file) decode(b []byte, end int64) error {
	n := int64(binary.BigEndian.Uint32(b))
	b = b[4:]
	if n*segmentSize > int64(len(b)) || (int64(len(b))-n*segmentSize)%blockSize != 0 {
		return fmt.Errorf("%w of the right length", errIndex)
	}
	segments := make([]*index, n)
	for i := range segments {
		s := Segment{Seq: binary.BigEndian.Uint64(b)}
		copy(s.Hash[:], b[8:])
		segments[i] = f.v.segmentIndex(s)
		b = b[segmentSize:]
	}
	for p := range slices.Chunk(b, blockSize) {
		i := binary.BigEndian.Uint32(p)
		e := held{off: binary.BigEndian.Uint32(p[4:]), len: binary.BigEndian.Uint32(p[8:]), pos: binary.BigEndian.Uint32(p[12:])}
		if int64(i) >= n || int64(e.pos)+int64(e.len) > end {
			return fmt.Errorf("%w that makes sense", errIndex)
		}
		e.segment = segments[i]
		f.entries = append(f.entries, e)
	}
	return nil
}

// read fills p from off, or fails. The caller counts as a user.
func (f *file) read(p []byte, off int64) error {
	h, err := f.use()
	if err != nil {
		return err
	}
	return readFull(h, p, off)
}

// readFull fills p from off, or fails.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}
