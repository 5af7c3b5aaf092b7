// SPDX-License-Identifier: Apache-2.0

package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/readcache"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/track"
)

// fromAnywhere is fromCopies for blocks of s, which are the refs of some: they may have moved into
// a pack. Where the segment is gone, the pack is asked first, else last.
func (l *Log) fromAnywhere(ctx context.Context, s *seg, refs []segment.BlockRef, some []int,
	try func(read readFunc, local bool) error) error {
	if l.cfg.Moved == nil {
		return l.fromCopies(ctx, s, refs[some[0]].Off, true, try)
	}
	first := s.dropped || s.absent() || l.outline != nil
	var errs []error
	if first {
		err := l.fromPack(ctx, s, refs, some, try)
		if err == nil || ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
	}
	err := l.fromCopies(ctx, s, refs[some[0]].Off, true, try)
	if err == nil || ctx.Err() != nil {
		return err
	}
	errs = append(errs, err)
	if !first {
		if err = l.fromPack(ctx, s, refs, some, try); err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// fromPack calls try with what one Source after the other has of the pack into which blocks of s
// moved, until it succeeds. If it did not move, it fails.
func (l *Log) fromPack(ctx context.Context, s *seg, refs []segment.BlockRef, some []int, try func(read readFunc, local bool) error) error {
	index, err := l.cfg.Moved(s.header.Seq)
	if err == nil && index == nil {
		err = errors.New("no pack has its blocks")
	}
	if err != nil {
		return fmt.Errorf("read segment %d in %s: %w: %w", s.header.Seq, l.cfg.Dir.Path(), ErrUnreadable, err)
	}
	blocks, err := blocksIn(index, refs, some)
	if err != nil {
		return fmt.Errorf("read segment %d in %s: %w: %w", s.header.Seq, l.cfg.Dir.Path(), ErrUnreadable, err)
	}
	var errs []error
	for _, src := range l.Sources() {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := try(func(p []byte, off uint64) error { return readMoved(ctx, index, src, blocks, p, off) }, false)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil { // it says nothing of the copy
			return ctx.Err()
		}
		l.badPack(index)
		errs = append(errs, fmt.Errorf("%s %s: %w", src, index.Name(), err))
	}
	return fmt.Errorf("read segment %d in %s: %w: %w", s.header.Seq, l.cfg.Dir.Path(), ErrUnreadable, errors.Join(errs...))
}

// badPack tells of a pack that a Source does not have as it should be.
func (l *Log) badPack(index *pack.Pack) {
	if l.cfg.BadPack != nil {
		l.cfg.BadPack(index.Name())
	}
}

// movedBlock is where a block is in a pack.
type movedBlock struct {
	segment.BlockRef
	at uint64 // its first byte in the pack
}

func (b movedBlock) end() uint64 { return b.at + uint64(b.Len) + pack.SumSize }

// blocksIn returns where blocks are in a pack, each once. They are in the order of the pack.
func blocksIn(index *pack.Pack, refs []segment.BlockRef, some []int) (out []movedBlock, err error) {
	for _, i := range some {
		if n := len(out); n > 0 && out[n-1].BlockRef == refs[i] {
			continue
		}
		b := movedBlock{BlockRef: refs[i]}
		if b.at, err = index.Find(refs[i]); err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// readMoved fills p from offset off of a segment, as far as it has the blocks. What lies between
// them is not filled. A block that does not verify is left as it is, all zeros, and does not open:
// so the others can be used.
func readMoved(ctx context.Context, index *pack.Pack, src Source, blocks []movedBlock, p []byte, off uint64) error {
	var errs []error
	good := 0
	for len(blocks) > 0 {
		n := 1
		for n < len(blocks) && blocks[n].at <= blocks[n-1].end()+maxSkip && blocks[n].end() <= blocks[0].at+maxRun {
			n++
		}
		b := make([]byte, blocks[n-1].end()-blocks[0].at)
		read := func() error {
			ctx, end := track.Begin(ctx, track.Fetch)
			defer end()
			return src.ReadSegment(ctx, index.Name(), int64(blocks[0].at), b)
		}
		if err := read(); err != nil {
			return err
		}
		for _, is := range blocks[:n] {
			from := is.at - blocks[0].at
			sealed, err := index.Check(is.BlockRef, b[from:from+uint64(is.Len)+pack.SumSize])
			if err != nil {
				errs = append(errs, err)
			} else if is.Off >= off && is.Off+uint64(is.Len) <= off+uint64(len(p)) {
				copy(p[is.Off-off:], sealed)
				good++
			}
		}
		blocks = blocks[n:]
	}
	if good == 0 {
		return errors.Join(errs...)
	}
	return nil
}

// cutBlock is where what is left of a block is in a pack.
type cutBlock struct {
	i   int // number of the block in a list
	cut *pack.Cut
	at  uint64
}

func (b cutBlock) end() uint64 { return b.at + uint64(b.cut.Size) + pack.SumSize }

// cachedCut is where what is left of a block is in the read cache, as it is in a pack.
func cachedCut(index *pack.Pack, seq uint64, cut *pack.Cut) (readcache.Segment, readcache.Block) {
	return readcache.Segment{Seq: seq, Hash: index.Salt()}, readcache.Block{Off: cut.Off, Len: cut.Size + pack.SumSize}
}

// cutOf returns where the read cache has what is left of a block, if it has it; false: the block is
// not cut, as far as is known.
func (l *Log) cutOf(ref segment.BlockRef) (of readcache.Segment, b readcache.Block, ok bool) {
	if l.cfg.Moved == nil {
		return of, b, false
	}
	index, err := l.cfg.Moved(ref.Seq)
	if err != nil || index == nil || !index.HasCuts() {
		return of, b, false
	}
	_, cut, err := index.At(ref)
	if err != nil || cut == nil {
		return of, b, false
	}
	of, b = cachedCut(index, ref.Seq, cut)
	return of, b, true
}

// readCuts reads those blocks of s that a pack has cut, as pack.Slice reads them, from the read
// cache, or else from each Source in turn: then they stay in the read cache. It returns the others.
func (l *Log) readCuts(ctx context.Context, s *seg, refs []segment.BlockRef, some []int, out [][]byte,
	how reading) (rest []int, err error) {
	index, err := l.cfg.Moved(s.header.Seq)
	if err != nil {
		return nil, fmt.Errorf("read segment %d in %s: %w: %w", s.header.Seq, l.cfg.Dir.Path(), ErrUnreadable, err)
	}
	if index == nil || !index.HasCuts() {
		return some, nil
	}
	var cuts []cutBlock
	for _, i := range some {
		at, cut, err := index.At(refs[i])
		if err != nil {
			return nil, fmt.Errorf("read segment %d in %s: %w: %w", s.header.Seq, l.cfg.Dir.Path(), ErrUnreadable, err)
		}
		if cut == nil {
			rest = append(rest, i)
		} else {
			cuts = append(cuts, cutBlock{i, cut, at})
		}
	}
	if len(cuts) == 0 {
		return rest, nil
	}
	key, ok := l.cfg.Keys.Get(index.Key())
	if !ok {
		return nil, fmt.Errorf("%s is sealed with data key %d: %w", index.Name(), index.Key(), ErrNoKey)
	}
	cuts = slices.DeleteFunc(cuts, func(b cutBlock) bool { return l.cutCached(index, &key, s.header.Seq, b, out, how) })
	if len(cuts) == 0 {
		return rest, nil
	}
	keep := how.pin
	if keep == nil {
		keep = func(of readcache.Segment, blocks []readcache.Block, sealed [][]byte) {
			l.cfg.Cache.Put(of, blocks, sealed)
		}
	}
	var errs []error
	for _, src := range l.Sources() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := openCuts(ctx, index, src, &key, s.header.Seq, cuts, out, keep)
		if err == nil {
			if how.counted {
				var bytes int64
				for _, b := range cuts {
					bytes += int64(b.cut.Size)
				}
				l.cfg.Cache.Missed(len(cuts), bytes)
			}
			return rest, nil
		}
		if ctx.Err() == nil {
			l.badPack(index)
		}
		errs = append(errs, fmt.Errorf("%s %s: %w", src, index.Name(), err))
	}
	return nil, fmt.Errorf("read segment %d in %s: %w: %w", s.header.Seq, l.cfg.Dir.Path(), ErrUnreadable, errors.Join(errs...))
}

// cutCached reads what is left of a block from the read cache, and reports whether it is there.
func (l *Log) cutCached(index *pack.Pack, key *segment.DataKey, seq uint64, is cutBlock, out [][]byte, how reading) bool {
	of, b := cachedCut(index, seq, is.cut)
	sealed := make([]byte, b.Len)
	was, ok := l.cfg.Cache.Get(of, b.Off, sealed)
	if !ok {
		return false
	}
	raw, err := index.Open(key, seq, is.cut, sealed)
	if err != nil {
		l.cfg.Cache.Forget(of, b.Off, was)
		return false
	}
	if how.pin != nil {
		how.pin(of, []readcache.Block{b}, [][]byte{sealed})
	}
	out[is.i] = raw
	return true
}

// openCuts reads and opens what a Source has of blocks that are cut. Those that lie near each other
// are one read. keep gets them as they are in the pack.
func openCuts(ctx context.Context, index *pack.Pack, src Source, key *segment.DataKey, seq uint64, cuts []cutBlock, out [][]byte,
	keep func(readcache.Segment, []readcache.Block, [][]byte)) error {
	for len(cuts) > 0 {
		n := 1
		for n < len(cuts) && cuts[n].at >= cuts[n-1].at && cuts[n].at <= cuts[n-1].end()+maxSkip && cuts[n].end() <= cuts[0].at+maxRun {
			n++
		}
		b := make([]byte, cuts[n-1].end()-cuts[0].at)
		read := func() error {
			ctx, end := track.Begin(ctx, track.Fetch)
			defer end()
			return src.ReadSegment(ctx, index.Name(), int64(cuts[0].at), b)
		}
		if err := read(); err != nil {
			return err
		}
		var blocks []readcache.Block
		var all [][]byte
		for _, is := range cuts[:n] {
			sealed := b[is.at-cuts[0].at : is.end()-cuts[0].at]
			raw, err := index.Open(key, seq, is.cut, sealed)
			if err != nil {
				return err
			}
			out[is.i] = raw
			if _, block := cachedCut(index, seq, is.cut); !slices.Contains(blocks, block) { // or it was asked for twice
				blocks, all = append(blocks, block), append(all, sealed)
			}
		}
		of, _ := cachedCut(index, seq, cuts[0].cut)
		keep(of, blocks, all)
		cuts = cuts[n:]
	}
	return nil
}

// OpenBlock verifies and unpacks the sealed bytes that ref names, in place. Errors: ErrNoKey; that
// the bytes are wrong.
func (l *Log) OpenBlock(ref segment.BlockRef, sealed []byte) ([]byte, error) {
	o, err := l.openerOf(ref)
	if err != nil {
		return nil, err
	}
	return o.OpenBlock(ref, sealed)
}

// OpenPacked is OpenBlock, but that what it returns is as it was compressed.
func (l *Log) OpenPacked(ref segment.BlockRef, sealed []byte) ([]byte, error) {
	o, err := l.openerOf(ref)
	if err != nil {
		return nil, err
	}
	return o.OpenPacked(ref, sealed)
}

// openerOf returns what opens blocks of a segment.
func (l *Log) openerOf(ref segment.BlockRef) (*segment.Opener, error) {
	l.mu.Lock()
	s, ok := l.find(ref.Seq)
	var h segment.Header
	if ok {
		h = s.header
	}
	l.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("open a block of segment %d: %w: this log has no such segment", ref.Seq, ErrUnreadable)
	}
	return l.opener(h)
}

// packTemp is the file in which a pack is until it is in a store. Open removes what a crash leaves.
const packTemp = "pack.tmp"

// PackFile is a file on the pool for a pack that is being made. One goroutine uses it. It
// implements io.Writer, which appends, and io.ReaderAt.
type PackFile struct {
	log  *Log
	file cachepool.File
	size int64 // written
	most int64 // reserved
}

// NewPackFile makes a file for a pack of at most so many bytes. There is one of a log at a time.
// Its room may come from what is reserved for removals: packs give room back (protocol-15). The
// caller closes it, which removes it. ErrFull.
func (l *Log) NewPackFile(most int64) (*PackFile, error) {
	if err := l.reserve(int(most), true); err != nil {
		return nil, err
	}
	f, err := createFresh(l.cfg.Dir, packTemp)
	if err != nil {
		l.cfg.Room.Release(most)
		return nil, fmt.Errorf("make %s in %s: %w", packTemp, l.cfg.Dir.Path(), err)
	}
	return &PackFile{log: l, file: f, most: most}, nil
}

// Write implements io.Writer.
func (f *PackFile) Write(p []byte) (int, error) {
	if f.size+int64(len(p)) > f.most {
		return 0, fmt.Errorf("write %s: it gets more than %d bytes", packTemp, f.most)
	}
	n, err := f.file.WriteAt(p, f.size)
	f.size += int64(n)
	return n, err
}

// ReadAt implements io.ReaderAt.
func (f *PackFile) ReadAt(p []byte, off int64) (int, error) { return f.file.ReadAt(p, off) }

// Close removes the file.
func (f *PackFile) Close() error {
	err := errors.Join(f.file.Close(), f.log.cfg.Dir.Remove(packTemp))
	f.log.cfg.Room.Release(f.most)
	return err
}

// FetchPack gets the whole pack of that hash and length from a Source, into a file. It verifies the
// hash. The caller closes the file. Errors: ErrFull; ErrUnreadable: no Source has it whole.
func (l *Log) FetchPack(ctx context.Context, hash pack.Hash, length uint64) (*PackFile, error) {
	name := pack.Name(l.cfg.Volume, hash)
	var errs []error
	for _, src := range l.Sources() {
		f, err := l.NewPackFile(int64(length))
		if err != nil {
			return nil, err
		}
		err = f.fill(ctx, src, name, length)
		if err == nil {
			err = pack.Verify(l.cfg.Volume, hash, length, func(p []byte, off uint64) error { return readFull(f, p, int64(off)) })
		}
		if err == nil {
			return f, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", src, errors.Join(err, f.Close())))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("fetch %s: %w: %w", name, ErrUnreadable, errors.Join(errs...))
}

func (f *PackFile) fill(ctx context.Context, src Source, name string, length uint64) error {
	b := make([]byte, min(maxRead, length))
	for off := uint64(0); off < length; {
		p := b[:min(uint64(len(b)), length-off)]
		if err := src.ReadSegment(ctx, name, int64(off), p); err != nil {
			return err
		}
		if _, err := f.Write(p); err != nil {
			return err
		}
		off += uint64(len(p))
	}
	return nil
}

var (
	_ io.Writer   = (*PackFile)(nil)
	_ io.ReaderAt = (*PackFile)(nil)
)
