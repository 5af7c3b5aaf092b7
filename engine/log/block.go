// SPDX-License-Identifier: Apache-2.0

package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/weir-storage/weir/cachepool/readcache"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
)

const (
	// maxRun is the most bytes of one ranged read of a Source.
	maxRun = 4 << 20
	// maxSkip is the most unwanted bytes between two blocks of a ranged read.
	maxSkip = 64 << 10
)

// maxFetches is how many ranged reads of Sources one ReadBlocks has under way.
const maxFetches = 8

// ReadBlocks returns the plaintext of blocks, which the caller then owns, in the order of refs. It
// reads the segment's file, or else the read cache and then each Source in turn, and verifies each
// copy by the block's tag. What came from a Source stays in the read cache. One read of a Source
// covers blocks that lie near each other, and some such reads are under way at once. It fails if
// any block fails: ErrUnreadable, which names the copies, if no copy has a block.
func (l *Log) ReadBlocks(ctx context.Context, refs []segment.BlockRef) ([][]byte, error) {
	if len(refs) == 1 {
		if b := l.readOne(refs[0]); b != nil {
			return [][]byte{b}, nil
		}
	}
	return l.readBlocks(ctx, refs, reading{counted: true})
}

// readOne reads a block that is in a segment's file, as most are, and right. nil: readBlocks has to
// look, which also finds out what is wrong.
func (l *Log) readOne(ref segment.BlockRef) []byte {
	l.mu.Lock()
	sp, ok := l.find(ref.Seq)
	if !ok || l.usable() != nil || !sp.local || sp.dropped || l.outline != nil ||
		ref.Off < segment.HeaderSize || ref.Len > segment.MaxBlock+1+segment.TagSize || ref.Off+uint64(ref.Len) > sp.len {
		l.mu.Unlock()
		return nil
	}
	s := *sp
	l.mu.Unlock()
	o, err := l.opener(s.header)
	if err != nil || o.CheckRef(ref) != nil {
		return nil
	}
	h, err := l.files.acquire(ref.Seq)
	if err != nil {
		return nil
	}
	sealed := segment.Buffer(int(ref.Len))
	err = readFull(h, sealed, int64(ref.Off))
	l.files.release(h)
	if err != nil {
		return nil
	}
	raw, err := o.OpenBlock(ref, sealed)
	if err != nil {
		return nil
	}
	if len(raw) == 0 || &raw[0] != &sealed[1] { // it was unpacked
		segment.Recycle(sealed)
	}
	if l.named(&s) {
		l.cfg.Cache.Used(l.cached(&s), readcache.Block{Off: uint32(ref.Off), Len: ref.Len})
	}
	return raw
}

// reading is how blocks are read.
type reading struct {
	counted bool // what comes from Sources counts as asked for
	// pin gets blocks as they are sealed, wherever they came from; nil: the read cache keeps what
	// came from Sources.
	pin func(s readcache.Segment, blocks []readcache.Block, sealed [][]byte)
}

// readBlocks is ReadBlocks.
func (l *Log) readBlocks(ctx context.Context, refs []segment.BlockRef, how reading) ([][]byte, error) {
	out := make([][]byte, len(refs))
	order := make([]int, len(refs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(refs[a].Seq, refs[b].Seq), cmp.Compare(refs[a].Off, refs[b].Off))
	})
	var runs []blockRun
	for len(order) > 0 {
		n := 1
		for n < len(order) && refs[order[n]].Seq == refs[order[0]].Seq {
			n++
		}
		more, err := l.readNear(refs, order[:n], out, how)
		if err != nil {
			return nil, err
		}
		runs = append(runs, more...)
		order = order[n:]
	}
	var far []blockRun
	var near [][]blockRun // those of one element are read one after the other
	for _, r := range runs {
		switch k := len(near); {
		case !r.s.local:
			far = append(far, r)
		case k == 0 || len(near[k-1]) == nearRuns:
			near = append(near, []blockRun{r})
		default:
			near[k-1] = append(near[k-1], r)
		}
	}
	readAll := func(ctx context.Context, some []blockRun) error {
		for _, r := range some {
			if err := l.readRun(ctx, r, refs, out, how); err != nil {
				return err
			}
		}
		return nil
	}
	switch {
	case len(near) == 1 && len(far) == 0:
		return out, readAll(ctx, near[0])
	case len(near) == 0 && len(far) == 1:
		return out, l.readFar(ctx, far[0], refs, out, how)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxFetches)
	for _, some := range near {
		g.Go(func() error { return readAll(ctx, some) })
	}
	for _, r := range far {
		g.Go(func() error { return l.readFar(ctx, r, refs, out, how) })
	}
	return out, g.Wait()
}

// nearRuns is how many runs of blocks in files one goroutine reads: so many take longer than a
// goroutine costs.
const nearRuns = 4

// blockRun is blocks of one segment, by their number in a list, that one read may cover.
type blockRun struct {
	s      seg
	opener *segment.Opener
	blocks []int
}

// readNear checks the blocks refs[i] of one segment, for each i of order, which is ascending by
// position. It reads those that the read cache has. It returns how to read the others.
func (l *Log) readNear(refs []segment.BlockRef, order []int, out [][]byte, how reading) ([]blockRun, error) {
	seq := refs[order[0]].Seq
	l.mu.Lock()
	err := l.usable()
	var s seg
	if sp, ok := l.find(seq); ok {
		s = *sp
	} else if err == nil {
		err = fmt.Errorf("read block in segment %d: %w: this log has no such segment", seq, ErrUnreadable)
	}
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for _, i := range order {
		if ref := refs[i]; ref.Off < segment.HeaderSize || ref.Off+uint64(ref.Len) > s.len || ref.Len > segment.MaxBlock+1+segment.TagSize {
			return nil, fmt.Errorf("read block: %w", &segment.CorruptError{Seq: seq, Off: ref.Off, Field: "block reference"})
		}
	}
	o, err := l.opener(s.header)
	if err != nil {
		return nil, err
	}
	for _, i := range order {
		if err := o.CheckRef(refs[i]); err != nil {
			return nil, fmt.Errorf("read block: %w", err)
		}
	}
	missing := order
	if !s.local {
		missing = slices.DeleteFunc(slices.Clone(order), func(i int) bool { return l.readCached(o, &s, refs[i], &out[i], how) })
	}
	var runs []blockRun
	for len(missing) > 0 {
		n := cutRun(refs, missing, s.local)
		runs = append(runs, blockRun{s, o, missing[:n]})
		missing = missing[n:]
	}
	return runs, nil
}

// readCached reads a block from the read cache, and reports whether it is there.
func (l *Log) readCached(o *segment.Opener, s *seg, ref segment.BlockRef, out *[]byte, how reading) bool {
	sealed := make([]byte, ref.Len)
	if !l.named(s) {
		return false
	}
	was, ok := l.cfg.Cache.Get(l.cached(s), uint32(ref.Off), sealed)
	if !ok {
		return false
	}
	before := sealed
	if how.pin != nil {
		before = slices.Clone(sealed) // opening works in place
	}
	raw, err := o.OpenBlock(ref, sealed)
	if err != nil {
		l.cfg.Cache.Forget(l.cached(s), uint32(ref.Off), was)
		return false
	}
	if how.pin != nil {
		how.pin(l.cached(s), []readcache.Block{{Off: uint32(ref.Off), Len: ref.Len}}, [][]byte{before})
	}
	*out = raw
	return true
}

// cached names a segment for the read cache. An outline takes the salt, which a segment has before
// it is closed, and which its blocks are bound to.
func (l *Log) cached(s *seg) readcache.Segment {
	if l.outline != nil {
		return readcache.Segment{Seq: s.header.Seq, Hash: s.header.Salt}
	}
	return readcache.Segment{Seq: s.header.Seq, Hash: s.hash}
}

// movedTries is how often a run is read whose blocks moved while it was read.
const movedTries = 4

// readRun reads the blocks of a run, see readBlocks. They may move into a pack meanwhile, or into
// another one, and be cut there: then it looks again where they are.
func (l *Log) readRun(ctx context.Context, r blockRun, refs []segment.BlockRef, out [][]byte, how reading) error {
	cut := l.cfg.Moved != nil && (r.s.dropped || r.s.absent() || l.outline != nil)
	for try := 1; ; try++ {
		if cut {
			rest, err := l.readCuts(ctx, &r.s, refs, r.blocks, out, how)
			if err != nil || len(rest) == 0 {
				return err
			}
			r.blocks = rest
		}
		err := l.readWhole(ctx, r, refs, out, how)
		if err == nil || !errors.Is(err, pack.ErrNoBlock) || ctx.Err() != nil || try == movedTries {
			return err
		}
		cut = true
	}
}

// readWhole reads blocks of a run that are whole.
func (l *Log) readWhole(ctx context.Context, r blockRun, refs []segment.BlockRef, out [][]byte, how reading) error {
	keep := func(blocks []readcache.Block, sealed [][]byte) { l.cfg.Cache.Put(l.cached(&r.s), blocks, sealed) }
	here := false
	err := l.fromAnywhere(ctx, &r.s, refs, r.blocks, func(read readFunc, local bool) error {
		here = local
		switch {
		case how.pin != nil:
			return openRun(r.opener, read, refs, r.blocks, out, func(blocks []readcache.Block, sealed [][]byte) {
				how.pin(l.cached(&r.s), blocks, sealed)
			})
		case local:
			return openRun(r.opener, read, refs, r.blocks, out, nil)
		}
		return openRun(r.opener, read, refs, r.blocks, out, keep)
	})
	if err != nil || !l.named(&r.s) {
		return err
	}
	var bytes int64
	for _, i := range r.blocks {
		bytes += int64(refs[i].Len)
		if here && how.pin == nil {
			l.cfg.Cache.Used(l.cached(&r.s), readcache.Block{Off: uint32(refs[i].Off), Len: refs[i].Len})
		}
	}
	if !here && how.counted {
		l.cfg.Cache.Missed(len(r.blocks), bytes)
	}
	return nil
}

// Missing returns those of the blocks that are not on the pool.
func (l *Log) Missing(refs []segment.BlockRef) (missing []segment.BlockRef) {
	for _, ref := range refs {
		l.mu.Lock()
		var s seg
		if sp, ok := l.find(ref.Seq); ok {
			s = *sp
		}
		l.mu.Unlock()
		if !l.named(&s) || s.local || l.cfg.Cache.Has(l.cached(&s), readcache.Block{Off: uint32(ref.Off), Len: ref.Len}) {
			continue
		}
		if of, b, cut := l.cutOf(ref); !cut || !l.cfg.Cache.Has(of, b) {
			missing = append(missing, ref)
		}
	}
	return missing
}

// Fetch brings those blocks to the pool that are not there, into the read cache, and returns how
// many bytes it brought, and how many found no place there. It does not count as use.
func (l *Log) Fetch(ctx context.Context, refs []segment.BlockRef) (moved, left int64, err error) {
	missing := l.Missing(refs)
	if len(missing) == 0 {
		return 0, 0, nil
	}
	if _, err := l.readBlocks(ctx, missing, reading{}); err != nil {
		return 0, 0, err
	}
	for _, ref := range missing {
		moved += int64(ref.Len)
	}
	for _, ref := range l.Missing(missing) {
		left += int64(ref.Len)
	}
	return moved - left, left, nil
}

// Pin keeps blocks of sealed segments on the pool until no pass of the read cache wants them any
// more, and returns for how many bytes there is no room. Blocks of segments that are not sealed are
// in the log, and left out: open counts them. If it is known to be full, nothing is brought. It
// does not count as use.
func (l *Log) Pin(ctx context.Context, refs []segment.BlockRef, pass uint8, full bool) (left, open int64, err error) {
	refs = slices.Clone(refs)
	slices.SortFunc(refs, func(a, b segment.BlockRef) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Off, b.Off))
	})
	var todo []segment.BlockRef
	for _, ref := range slices.Compact(refs) { // an extent may lie between two of one block
		s, ok := l.sealed(ref.Seq)
		if !ok {
			open += int64(ref.Len)
		} else if !l.keep(&s, ref, pass) {
			todo = append(todo, ref)
		}
	}
	var refused atomic.Int64
	for some := range slices.Chunk(todo, pinBlocks) {
		var size int64
		for _, ref := range some {
			size += int64(ref.Len)
		}
		if full = full || !l.cfg.Cache.MayPin(size, len(some)); full { // nobody reads it from far away in vain
			left += size
			continue
		}
		how := reading{pin: func(s readcache.Segment, blocks []readcache.Block, sealed [][]byte) {
			refused.Add(l.cfg.Cache.Pin(s, blocks, sealed, pass))
		}}
		if _, bad := l.readBlocks(ctx, some, how); bad != nil {
			err = errors.Join(err, l.pinEach(ctx, some, pass, how))
		}
		if ctx.Err() != nil {
			return left + refused.Load(), open, errors.Join(err, ctx.Err())
		}
		full = refused.Load() > 0
	}
	return left + refused.Load(), open, err
}

// keep reports whether a block is pinned, whole or what is left of it, which it stays then.
func (l *Log) keep(s *seg, ref segment.BlockRef, pass uint8) bool {
	if l.cfg.Cache.Keep(l.cached(s), readcache.Block{Off: uint32(ref.Off), Len: ref.Len}, pass) {
		return true
	}
	of, b, cut := l.cutOf(ref)
	return cut && l.cfg.Cache.Keep(of, b, pass)
}

// pinBlocks is how many blocks Pin reads at a time. If one of them fails, it reads them one by one,
// until pinBad failed.
const (
	pinBlocks = 64
	pinBad    = 4
)

// pinEach pins those of the blocks that can be read, and returns the first error.
func (l *Log) pinEach(ctx context.Context, refs []segment.BlockRef, pass uint8, how reading) (first error) {
	bad := 0
	for i, ref := range refs {
		s, ok := l.sealed(ref.Seq)
		if ok && l.keep(&s, ref, pass) {
			continue
		}
		_, err := l.readBlocks(ctx, refs[i:i+1], how)
		if err == nil {
			continue
		}
		if first == nil {
			first = err
		}
		if bad++; bad == pinBad || ctx.Err() != nil {
			return first
		}
	}
	return first
}

// sealed returns a sealed segment; false: there is none of that number.
func (l *Log) sealed(seq uint64) (seg, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, ok := l.find(seq); ok && l.named(s) {
		return *s, true
	}
	return seg{}, false
}

// cutRun returns how many of the ascending blocks one read may cover. From a file it is one
// block. There reading on costs little, and one bad block does not send its neighbours to a Source.
func cutRun(refs []segment.BlockRef, order []int, local bool) int {
	first := refs[order[0]]
	end, n := first.Off+uint64(first.Len), 1
	for ; !local && n < len(order); n++ {
		r := refs[order[n]]
		if r.Off > end+maxSkip || r.Off+uint64(r.Len) > first.Off+maxRun {
			break
		}
		end = max(end, r.Off+uint64(r.Len))
	}
	return n
}

// openRun reads one range and opens those blocks in it that are not in out yet. So if a source has
// one bad block, its other blocks are still used. keep, if not nil, gets what was opened as it was
// sealed.
func openRun(o *segment.Opener, read readFunc, refs []segment.BlockRef, run []int, out [][]byte,
	keep func([]readcache.Block, [][]byte)) error {
	start, end := refs[run[0]].Off, uint64(0)
	for _, i := range run {
		end = max(end, refs[i].Off+uint64(refs[i].Len))
	}
	buf := segment.Buffer(int(end - start))
	if err := read(buf, start); err != nil {
		return err
	}
	var sealedBefore []byte
	var blocks []readcache.Block
	var sealedBlocks [][]byte
	if keep != nil {
		sealedBefore = slices.Clone(buf) // opening works in place
	}
	var errs []error
	for k, i := range run {
		if out[i] != nil {
			continue
		}
		ref := refs[i]
		if k > 0 && refs[run[k-1]] == ref && out[run[k-1]] != nil {
			out[i] = slices.Clone(out[run[k-1]]) // the block was asked for twice, and buf is decrypted already
			continue
		}
		sealed := buf[ref.Off-start : ref.Off-start+uint64(ref.Len)]
		raw, err := o.OpenBlock(ref, sealed)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(run) > 1 && len(raw) > 0 && &raw[0] == &sealed[1] {
			raw = slices.Clone(raw) // a block that is kept must not keep the whole range in memory
		}
		out[i] = raw
		if keep != nil {
			blocks = append(blocks, readcache.Block{Off: uint32(ref.Off), Len: ref.Len})
			sealedBlocks = append(sealedBlocks, sealedBefore[ref.Off-start:ref.Off-start+uint64(ref.Len)])
		}
	}
	if len(blocks) > 0 {
		keep(blocks, sealedBlocks)
	}
	return errors.Join(errs...)
}
