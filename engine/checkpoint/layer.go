// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"golang.org/x/sync/errgroup"

	"github.com/weir-storage/weir/engine/segment"
)

// The first byte of a value in a chunk of changes.
const (
	isGone = 0 // the key is gone, and nothing follows
	isSet  = 1 // the value follows
)

// changesPart: a chunk is cut anew when the changes over it have more than this part of its bytes.
const changesPart = 8

// scattered reports whether m has many small chunks. Nothing is made as a change of such a one.
func (m *Manifest) scattered() bool {
	return len(m.Chunks) > 16 && m.Bytes/uint64(len(m.Chunks)) < uint64(standard.min)
}

// WriteOver is Write of a checkpoint that is a change of base, an earlier one of the volume. It
// keeps base's chunks, and puts what changed since into chunks of their own. Where much changed it
// cuts anew. former are all pairs of base, as ReadPairs iterates over them. Whoever has the same
// base and the same pairs makes the same checkpoint. A chunk of base that the store does not have
// is got from to and put.
func WriteOver(ctx context.Context, at Head, key *segment.DataKey, base *Manifest, former, pairs iter.Seq2[Pair, error],
	to Objects) (*Manifest, Stats, error) {
	w, err := newWriter(at, key, to)
	switch {
	case err != nil:
		return nil, Stats{}, err
	case base.Volume != at.Volume || base.Key != at.Key:
		return nil, Stats{}, fmt.Errorf("write checkpoint at %s: the one at %s is of volume %x and data key %d", at.At, base.At,
			base.Volume, base.Key)
	case base.scattered() || len(base.Chunks) == 0:
		return w.write(ctx, pairs)
	}
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	l := &layerer{writer: w, ctx: inner, group: group, base: base, changes: newCutter(w.secret, standard)}
	err = l.cutAll(former, pairs)
	if werr := group.Wait(); werr != nil {
		err = werr
	}
	if err != nil {
		return nil, w.stats, fmt.Errorf("write checkpoint at %s, over the one at %s: %w", at.At, base.At, err)
	}
	return w.finish(ctx)
}

// layerer is one WriteOver.
type layerer struct {
	*writer
	ctx     context.Context
	group   *errgroup.Group
	base    *Manifest
	changes *cutter // of chunks of changes

	former, now, over pull
	// part is what is known of the present chunk of base.
	part struct {
		anew    bool  // it is cut anew
		changed int   // bytes of changes
		pairs   pairs // all that are there now, unless it is cut anew
		changes pairs
	}
}

// cutAll cuts all chunks. Those of base are kept over which there are few changes.
func (l *layerer) cutAll(former, now iter.Seq2[Pair, error]) error {
	for _, p := range []struct {
		*pull
		of iter.Seq2[Pair, error]
	}{{&l.former, former}, {&l.now, now}, {&l.over, l.base.read(l.ctx, l.base.Changes, l.to)}} {
		p.next, p.stop = iter.Pull2(p.of)
		defer p.stop()
		if err := p.advance(); err != nil {
			return err
		}
	}
	for i := range l.base.Chunks {
		c := &l.base.Chunks[i]
		var end []byte
		if i+1 < len(l.base.Chunks) {
			end = l.base.Chunks[i+1].First
		}
		if err := l.cutPart(c, end); err != nil {
			return err
		}
	}
	l.endMain()
	l.endChanges()
	return l.ctx.Err()
}

// cutPart goes on with the pairs before end, which are those of the chunk c of base.
func (l *layerer) cutPart(c *Chunk, end []byte) error {
	p := &l.part
	p.anew, p.changed = false, 0
	p.pairs.reset()
	p.changes.reset()
	for {
		key := least(end, &l.former, &l.now, &l.over)
		if key == nil {
			break
		}
		if err := l.ctx.Err(); err != nil {
			return err
		}
		was, is, change := l.former.has(key), l.now.has(key), l.over.has(key)
		switch {
		case is && (!was || !bytes.Equal(l.former.pair.Value, l.now.pair.Value)):
			l.change(key, isSet, l.now.pair.Value)
		case was && !is:
			l.change(key, isGone, nil)
		case change:
			l.change(key, l.over.pair.Value[0], l.over.pair.Value[1:])
		}
		if p.changed > int(c.Bytes/changesPart) && !p.anew {
			p.anew = true
			for q := range p.pairs.all {
				l.add(q)
			}
		}
		switch {
		case is && p.anew:
			l.add(l.now.pair)
		case is:
			p.pairs.add(l.now.pair.Key, nil, l.now.pair.Value)
		}
		// The key may be in the memory of one of these.
		for _, from := range []struct {
			*pull
			here bool
		}{{&l.former, was}, {&l.over, change}, {&l.now, is}} {
			if from.here {
				if err := from.advance(); err != nil {
					return err
				}
			}
		}
	}
	if p.anew {
		return nil
	}
	l.endMain()
	kept := &Chunk{Hash: c.Hash, First: c.First, Pairs: c.Pairs, Bytes: c.Bytes}
	l.chunks = append(l.chunks, kept)
	l.group.Go(func() error { return l.keep(kept) })
	for q := range p.changes.all {
		if !l.changes.fits(q) {
			l.endChanges()
		}
		if l.changes.add(q) {
			l.endChanges()
		}
	}
	l.gained += p.pairs.count()
	return nil
}

// change notes a change over the present chunk.
func (l *layerer) change(key []byte, what byte, value []byte) {
	p := &l.part
	p.changed += len(key) + 1 + len(value)
	if len(key)+1+len(value) > MaxPair {
		p.changed = maxContent // it does not fit into a chunk of changes
	}
	if p.changed <= maxContent && !p.anew {
		p.changes.add(key, []byte{what}, value)
	}
}

// add adds a pair to a chunk that is cut anew.
func (l *layerer) add(p Pair) {
	if !l.cut.fits(p) {
		l.endMain()
	}
	l.gained++
	if l.cut.add(p) {
		l.endMain()
	}
}

func (l *layerer) endMain() { l.end(l.cut, &l.chunks) }

func (l *layerer) endChanges() { l.end(l.changes, &l.changed) }

// end ends a chunk, if there is one, and puts it.
func (l *layerer) end(of *cutter, to *[]*Chunk) {
	if len(of.chunk) == 0 {
		return
	}
	content, first, n := of.take(*l.buffers.Get().(*[]byte))
	c := &Chunk{First: first, Pairs: uint64(n), Bytes: uint64(len(content))}
	*to = append(*to, c)
	l.group.Go(func() error { return l.putChunk(l.ctx, c, content) })
}

// keep has the store have a chunk of base.
func (l *layerer) keep(c *Chunk) error {
	object := name(l.at.Volume, chunkKind, c.Hash)
	there, err := l.to.Has(l.ctx, object)
	n := 0
	if err == nil && !there {
		var b []byte
		if b, err = l.to.Get(l.ctx, object); err == nil {
			n = len(b)
			if _, err = l.base.openChunk(object, bytes.Clone(b), c); err == nil { // which opens it in place
				err = l.to.Put(l.ctx, object, b)
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Chunks++
	if err == nil && !there {
		l.stats.Uploaded++
		l.stats.Sealed += int64(n)
	}
	return about(object, err)
}

// pull is the next pair of an iterator.
type pull struct {
	next func() (Pair, error, bool)
	stop func()
	pair Pair // without a key: there is none
	last []byte
	n    uint64
}

// advance goes on to the next pair.
func (p *pull) advance() error {
	p.last = append(p.last[:0], p.pair.Key...)
	pair, err, ok := p.next()
	if !ok {
		p.pair = Pair{}
		return nil
	}
	last := p.last
	if p.n == 0 {
		last = nil
	}
	if err == nil {
		err = check(p.n, last, pair)
	}
	p.n++
	p.pair = pair
	return err
}

// has reports whether the next pair has that key.
func (p *pull) has(key []byte) bool { return len(p.pair.Key) > 0 && bytes.Equal(p.pair.Key, key) }

// least returns the first key before end of the next pairs; nil: there is none.
func least(end []byte, all ...*pull) (key []byte) {
	for _, p := range all {
		k := p.pair.Key
		if len(k) > 0 && (end == nil || bytes.Compare(k, end) < 0) && (key == nil || bytes.Compare(k, key) < 0) {
			key = k
		}
	}
	return key
}

// pairs are some pairs in one piece of memory.
type pairs struct {
	bytes []byte
	ends  []int // of each key and each value
}

func (p *pairs) reset() { p.bytes, p.ends = p.bytes[:0], p.ends[:0] }

// add copies a pair whose value has two parts.
func (p *pairs) add(key, mark, value []byte) {
	p.bytes = append(p.bytes, key...)
	p.ends = append(p.ends, len(p.bytes))
	p.bytes = append(append(p.bytes, mark...), value...)
	p.ends = append(p.ends, len(p.bytes))
}

func (p *pairs) count() uint64 { return uint64(len(p.ends) / 2) }

// all iterates over the pairs, which are valid until the next add or reset.
func (p *pairs) all(yield func(Pair) bool) {
	start := 0
	for i := 0; i < len(p.ends); i += 2 {
		key, value := p.ends[i], p.ends[i+1]
		if !yield(Pair{Key: p.bytes[start:key], Value: p.bytes[key:value]}) {
			return
		}
		start = value
	}
}

// checkChanges returns an error if pairs are not those of a chunk of changes. Errors wrap
// ErrCorrupt.
func checkChanges(all []Pair) error {
	for i, p := range all {
		if len(p.Value) == 0 || p.Value[0] > isSet || p.Value[0] == isGone && len(p.Value) > 1 {
			return corrupt("change", "of pair %d", i)
		}
	}
	return nil
}

// over iterates over pairs with the changes made.
func over(main, changes iter.Seq2[Pair, error]) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		next, stop := iter.Pull2(changes)
		defer stop()
		change, cerr, more := next()
		// until yields what is set before key, or at it; changed: there is a change at it.
		until := func(key []byte) (changed, goOn bool) {
			for more && !changed {
				if cerr != nil {
					yield(Pair{}, cerr)
					return false, false
				}
				at := -1
				if key != nil {
					at = bytes.Compare(change.Key, key)
				}
				if at > 0 {
					break
				}
				changed = at == 0
				if change.Value[0] == isSet && !yield(Pair{Key: change.Key, Value: change.Value[1:]}, nil) {
					return false, false
				}
				change, cerr, more = next()
			}
			return changed, true
		}
		for p, err := range main {
			if err != nil {
				yield(Pair{}, err)
				return
			}
			changed, goOn := until(p.Key)
			if !goOn || !changed && !yield(p, nil) {
				return
			}
		}
		until(nil)
	}
}
