// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"hash/crc32"
	"runtime"
	"sync"
)

// ahead is the blocks of one record, sealed before the record has its place.
type ahead struct {
	sealer *Sealer
	first  uint64 // counter of the first block; the one after the blocks' is for the record's meta
	blocks int
	frame  []byte // room for what lies before the blocks, then the sealed blocks
	crc    uint32 // of the sealed blocks
	used   bool   // a record was sealed with the counters; only Seal changes and reads it
}

// aheadMost is how many counters of a segment Ahead takes at most. The rest is for Seal: blocks
// that are sealed ahead need not become part of a record.
const aheadMost = 1 << (counterBits - 1)

const (
	// aheadLeast is how many sealed bytes are worth it: less is sealed in a few microseconds.
	aheadLeast = 16 << 10
	// metaRoom is about how many bytes a record's meta takes for each block.
	metaRoom = 256
)

// Ahead seals the blocks of one record, which are packed, and which nobody changes until the record
// is sealed. Seal then uses what Ahead made, if the record has all these blocks in this order, and
// no others. If not, as when another segment has begun, Seal seals them again under other counters.
// Ahead may do nothing.
func (s *Sealer) Ahead(blocks []Block) {
	if len(blocks) == 0 || s.dead.Load() || s.counter.Load()-firstCounter(&s.header) > aheadMost {
		return
	}
	size := 0
	for i := range blocks {
		if n := blocks[i].packed(); n < 2 || n > MaxBlock+1 {
			return // Prepare says what is wrong
		}
		size += blocks[i].packed() + TagSize
	}
	if size < aheadLeast {
		return
	}
	a := &ahead{sealer: s, blocks: len(blocks), first: s.take(len(blocks) + 1)}
	plain := framePrefix + 4*len(blocks)
	a.frame, a.crc = s.sealBlocks(newFrame(plain, plain+size+metaRoom*(len(blocks)+4)), blocks, a.first)
	for i := range blocks {
		blocks[i].ahead, blocks[i].index = a, i
	}
}

// claim returns what Ahead made of the blocks under this Sealer; nil: nothing that fits. It returns
// it once: its counters are used then.
func (s *Sealer) claim(blocks []Block) *ahead {
	if len(blocks) == 0 {
		return nil
	}
	a, size := blocks[0].ahead, 0
	for i := range blocks {
		if blocks[i].ahead != a || blocks[i].index != i {
			return nil
		}
		size += blocks[i].packed() + TagSize
	}
	if a == nil || a.sealer != s || a.used || a.blocks != len(blocks) || len(a.frame) != framePrefix+4*len(blocks)+size {
		return nil
	}
	a.used = true
	return a
}

// sealBlocks appends the sealed blocks to dst, under counters from first on, and returns their
// checksum. It uses several processors if there are many.
func (s *Sealer) sealBlocks(dst []byte, blocks []Block, first uint64) (_ []byte, crc uint32) {
	start, size := len(dst), 0
	ends := make([]int, len(blocks))
	for i := range blocks {
		size += blocks[i].packed() + TagSize
		ends[i] = size
	}
	if cap(dst)-start < size {
		dst = append(make([]byte, 0, start+size), dst...)
	}
	dst = dst[:start+size]
	crcs := make([]uint32, len(blocks))
	inParallel(len(blocks), size, func(i int) {
		sc := scratches.Get().(*scratch)
		defer scratches.Put(sc)
		c, n := first+uint64(i), blocks[i].packed()+TagSize
		at, pack := dst[start+ends[i]-n:start+ends[i]-n:start+ends[i]], blocks[i].Pack
		if blocks[i].asIs {
			pack = append(append(at, codecRaw), blocks[i].Raw...) // and is sealed in place
		}
		sealed := s.aead.Seal(at, sc.setNonce(c), pack, s.blockAAD(sc, c))
		if size >= aheadLeast {
			crcs[i] = crc32.Checksum(sealed, castagnoli) // while it is in the cache
		}
	})
	if size < aheadLeast {
		return dst, crc32.Checksum(dst[start:], castagnoli)
	}
	for i := range blocks {
		crc = joinCRC(crc, crcs[i], blocks[i].packed()+TagSize)
	}
	return dst, crc
}

// share is about how many bytes one processor seals or packs, if there is another one.
const share = 128 << 10

// inParallel calls f for each i below n, on as many processors as that is worth for size bytes.
func inParallel(n, size int, f func(i int)) {
	workers := min(n, size/share, runtime.GOMAXPROCS(0))
	if workers < 2 {
		for i := range n {
			f(i)
		}
		return
	}
	var all sync.WaitGroup
	for w := range workers {
		work := func() {
			for i := w * n / workers; i < (w+1)*n/workers; i++ {
				f(i)
			}
		}
		if w == workers-1 {
			work()
		} else {
			all.Go(work)
		}
	}
	all.Wait()
}

// packs has memory for the packed blocks of a record of a megabyte.
var packs = sync.Pool{New: func() any { b := make([]byte, 1<<20+16*packRoom); return &b }}

// packsLeast is how many bytes of blocks are packed into memory that is used again.
const packsLeast = 256 << 10

// PackAll is Pack for the blocks of one record, which have Raw: it sets their Pack and Size. Blocks
// that are kept as they are get no Pack: they are copied only once, to where they are sealed. So
// Raw must not change until the record is sealed. The caller calls release when nobody uses a Pack
// any more, or never.
func PackAll(blocks []Block, how Compression) (release func()) {
	size := 0
	places := make([]int, len(blocks))
	for i := range blocks {
		places[i] = size + i*packRoom
		size += len(blocks[i].Raw)
	}
	room := size + len(blocks)*packRoom
	var taken *[]byte
	memory := sync.OnceValue(func() []byte {
		if size < packsLeast {
			return nil
		}
		taken = packs.Get().(*[]byte)
		if len(*taken) < room {
			*taken = make([]byte, room)
		}
		return *taken
	})
	inParallel(len(blocks), size, func(i int) {
		b := &blocks[i]
		b.Size = len(b.Raw)
		if b.asIs = staysAsIs(b.Raw, how); b.asIs {
			return
		}
		var to []byte
		if all := memory(); all != nil {
			to = all[places[i] : places[i] : places[i]+len(b.Raw)+packRoom]
		}
		b.Pack = compress(to, b.Raw, how)
	})
	return func() {
		if taken != nil {
			packs.Put(taken)
		}
	}
}

const (
	// frameLarge is how many bytes the memory of a large frame has: enough for a record of a
	// megabyte.
	frameLarge = 1<<20 + 48<<10
	// frameLeast is how many bytes of such memory a frame must need to get it.
	frameLeast = 768 << 10
)

// frames has memory of large frames, to be used again. Fresh memory of a megabyte takes about as
// long as sealing it: the kernel and the runtime both fill it with zeros.
var frames sync.Pool

// newFrame returns memory of n bytes, of which it may have anything, with room for size bytes.
func newFrame(n, size int) []byte {
	if size < frameLeast || size > frameLarge {
		return make([]byte, n, size)
	}
	if b, ok := frames.Get().(*[frameLarge]byte); ok {
		return b[:n]
	}
	return make([]byte, n, frameLarge)
}

// Reuse gives back the memory of a frame that Seal returned for a nil dst. Nobody may use it any
// more, nor what lies in it.
func Reuse(frame []byte) {
	if cap(frame) == frameLarge {
		frames.Put((*[frameLarge]byte)(frame[:frameLarge]))
	}
}
