// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/weir-storage/weir/engine/segment"
)

// Objects is a store of objects that never change. Any number of goroutines may call its methods.
// Nobody keeps or changes the bytes after a call has returned, but who gets them may change them.
type Objects interface {
	// Has reports whether there is an object of that name.
	Has(ctx context.Context, name string) (bool, error)
	// Put makes an object durable if there is none of that name. If there is one, of whatever bytes
	// and size, Put leaves it and succeeds: another release may have packed the same content
	// otherwise.
	Put(ctx context.Context, name string, object []byte) error
	// Get returns a whole object. It is an error if there is none.
	Get(ctx context.Context, name string) ([]byte, error)
}

// workers is how many chunks are hashed, packed, sealed and put at a time, and how many are read
// ahead.
const workers = 3

// Stats are what a Write did.
type Stats struct {
	Chunks   int   // of the checkpoint
	Uploaded int   // chunks that the store did not have
	Sealed   int64 // bytes of the objects that were put, the manifest among them
}

// Write makes a checkpoint of pairs, which must come in order of their keys, each key once. It puts
// the chunks that the store does not have, and then the manifest. It keeps about 16 MiB in memory,
// or 32 MiB if there are pairs of MaxPair bytes, and besides what the manifest takes. A pair is not
// used after the next one was asked for. key is the volume's data key with the number at.Key.
//
// An error of pairs or of the store ends the Write. Nothing but chunks is in the store then, and
// the next Write uses them.
func Write(ctx context.Context, at Head, key *segment.DataKey, pairs iter.Seq2[Pair, error], to Objects) (*Manifest, Stats, error) {
	w, err := newWriter(at, key, to)
	if err != nil {
		return nil, Stats{}, err
	}
	return w.write(ctx, pairs)
}

// writer is one Write.
type writer struct {
	to      Objects
	secret  *secrets
	cut     *cutter
	pack    packer
	at      Head
	buffers sync.Pool // of *[]byte, for contents of chunks

	chunks  []*Chunk
	changed []*Chunk // of changes
	gained  uint64   // pairs, if it is a change of another checkpoint

	mu    sync.Mutex
	stats Stats
}

func newWriter(at Head, key *segment.DataKey, to Objects) (*writer, error) {
	s, err := newSecrets(at.Volume, at.Key, key)
	if err != nil {
		return nil, err
	}
	w := &writer{to: to, secret: s, cut: newCutter(s, standard), pack: fast, at: at}
	w.buffers.New = func() any { return new([]byte) }
	return w, nil
}

func (w *writer) write(ctx context.Context, pairs iter.Seq2[Pair, error]) (*Manifest, Stats, error) {
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	err := w.cutAll(inner, pairs, func(c *Chunk, content []byte) {
		group.Go(func() error { return w.putChunk(inner, c, content) })
	})
	if werr := group.Wait(); werr != nil {
		err = werr // if the store failed, cutAll only saw that its context ended
	}
	if err != nil {
		return nil, w.stats, fmt.Errorf("write checkpoint at %s: %w", w.at.At, err)
	}
	return w.finish(ctx)
}

// finish puts the manifest, when all chunks are put.
func (w *writer) finish(ctx context.Context) (*Manifest, Stats, error) {
	m := &Manifest{Head: w.at, secret: w.secret, Chunks: make([]Chunk, len(w.chunks)), Pairs: w.gained}
	for i, c := range w.chunks {
		m.Chunks[i] = *c
	}
	for _, c := range w.changed {
		c.changes = true
		m.Changes = append(m.Changes, *c)
	}
	m.finish()
	if err := w.putManifest(ctx, m); err != nil {
		return nil, w.stats, fmt.Errorf("write checkpoint at %s: %w", w.at.At, err)
	}
	return m, w.stats, nil
}

// cutAll calls put with each chunk in order. put owns the content.
func (w *writer) cutAll(ctx context.Context, pairs iter.Seq2[Pair, error], put func(*Chunk, []byte)) error {
	end := func() {
		content, first, n := w.cut.take(*w.buffers.Get().(*[]byte))
		c := &Chunk{First: first, Pairs: uint64(n), Bytes: uint64(len(content))}
		w.chunks = append(w.chunks, c)
		put(c, content)
	}
	n := uint64(0)
	for p, err := range pairs {
		if err == nil {
			err = check(n, w.cut.last, p)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if !w.cut.fits(p) {
			end()
		}
		if w.cut.add(p) {
			end()
		}
		n++
	}
	if len(w.cut.chunk) > 0 {
		end()
	}
	return ctx.Err()
}

// putChunk names a chunk, and puts it if the store does not have it.
func (w *writer) putChunk(ctx context.Context, c *Chunk, content []byte) error {
	defer w.buffers.Put(&content)
	c.Hash = w.secret.hash(chunkKind, nil, content)
	object := name(w.at.Volume, chunkKind, c.Hash)
	put, n, err := w.put(ctx, object, chunkKind, c.Hash, nil, content)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Chunks++
	if put {
		w.stats.Uploaded++
	}
	w.stats.Sealed += int64(n)
	return about(object, err)
}

func (w *writer) putManifest(ctx context.Context, m *Manifest) error {
	refs, content := m.refs(), m.appendContent(nil)
	if len(content) > maxContent {
		return fmt.Errorf("manifest has %d bytes, at most %d fit", len(content), maxContent)
	}
	m.hash = w.secret.hash(manifestKind, refs, content)
	object := name(w.at.Volume, manifestKind, m.hash)
	_, n, err := w.put(ctx, object, manifestKind, m.hash, refs, content)
	w.stats.Sealed += int64(n)
	return about(object, err)
}

// put seals and puts an object that the store does not have. n is its bytes.
func (w *writer) put(ctx context.Context, object string, k kind, hash Hash, refs []Hash, content []byte) (put bool, n int, err error) {
	if there, err := w.to.Has(ctx, object); err != nil || there {
		return false, 0, err
	}
	b, err := w.secret.seal(k, hash, refs, content, w.pack)
	if err != nil {
		return false, 0, err
	}
	if err := w.to.Put(ctx, object, b); err != nil {
		return false, 0, err
	}
	return true, len(b), nil
}
