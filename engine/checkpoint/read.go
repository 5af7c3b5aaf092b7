// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/weir-storage/weir/engine/segment"
)

// Open reads the manifest with that hash and verifies it. keys returns the volume's data key with a
// number; segment.Keys.Get is one. Errors about the object are ObjectErrors.
func Open(ctx context.Context, volume segment.VolumeID, hash Hash, keys func(number uint32) (segment.DataKey, bool),
	from Objects) (*Manifest, error) {
	object := name(volume, manifestKind, hash)
	b, err := from.Get(ctx, object)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", about(object, err))
	}
	m, err := openManifest(object, b, keys)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", about(object, err))
	}
	return m, nil
}

func openManifest(object string, b []byte, keys func(uint32) (segment.DataKey, bool)) (*Manifest, error) {
	p, err := parseAs(object, b)
	if err != nil {
		return nil, err
	}
	s, err := secretsOf(p, keys)
	if err != nil {
		return nil, err
	}
	content, err := s.open(p)
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(content, p.refs)
	if err != nil {
		return nil, err
	}
	m.Volume, m.Key, m.hash, m.secret = p.volume, p.number, p.hash, s
	return m, nil
}

// ReadPairs iterates over all pairs of the checkpoint in order of their keys. It reads some chunks
// ahead. Pairs stay valid, and nobody changes them. An error ends the iteration and comes last. It
// is an ObjectError if a chunk is missing or damaged, and the pairs before it are right.
func (m *Manifest) ReadPairs(ctx context.Context, from Objects) iter.Seq2[Pair, error] {
	if len(m.Changes) == 0 {
		return m.read(ctx, m.Chunks, from)
	}
	return over(m.read(ctx, m.Chunks, from), m.read(ctx, m.Changes, from))
}

// ReadRange iterates over the pairs whose keys are in [lo, hi), as ReadPairs does. It reads only
// the chunks that may have some.
func (m *Manifest) ReadRange(ctx context.Context, lo, hi []byte, from Objects) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		for p, err := range over(m.read(ctx, within(m.Chunks, lo, hi), from), m.read(ctx, within(m.Changes, lo, hi), from)) {
			if err == nil && (bytes.Compare(p.Key, lo) < 0 || bytes.Compare(p.Key, hi) >= 0) {
				continue
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

// within returns the chunks of all that may have keys in [lo, hi).
func within(all []Chunk, lo, hi []byte) []Chunk {
	first, end := 0, len(all)
	for i := range all {
		if bytes.Compare(all[i].First, lo) <= 0 {
			first = i
		}
		if bytes.Compare(all[i].First, hi) >= 0 {
			end = i
			break
		}
	}
	return all[min(first, end):end]
}

// read iterates over the pairs of some chunks that follow each other.
func (m *Manifest) read(ctx context.Context, some []Chunk, from Objects) iter.Seq2[Pair, error] {
	return func(yield func(Pair, error) bool) {
		var last []byte
		for pairs, err := range m.chunks(ctx, some, from) {
			if err == nil && last != nil && bytes.Compare(last, pairs[0].Key) >= 0 {
				err = corrupt("order of keys", "between chunks of manifest %x", m.hash[:8])
			}
			if err != nil {
				yield(Pair{}, fmt.Errorf("read checkpoint at %s: %w", m.At, err))
				return
			}
			for _, p := range pairs {
				if !yield(p, nil) {
					return
				}
			}
			last = pairs[len(pairs)-1].Key
		}
	}
}

// chunks iterates over the verified pairs of some chunks in order, of which workers are read ahead.
func (m *Manifest) chunks(ctx context.Context, some []Chunk, from Objects) iter.Seq2[[]Pair, error] {
	return func(yield func([]Pair, error) bool) {
		type result struct {
			pairs []Pair
			err   error
		}
		ctx, cancel := context.WithCancel(ctx)
		var reads sync.WaitGroup
		defer reads.Wait()
		defer cancel()
		var ahead []chan result
		for next := 0; next < len(some) || len(ahead) > 0; {
			for ; next < len(some) && len(ahead) < workers; next++ {
				done, c := make(chan result, 1), &some[next]
				ahead = append(ahead, done)
				reads.Go(func() {
					pairs, err := m.readChunk(ctx, c, from)
					done <- result{pairs, err}
				})
			}
			r := <-ahead[0]
			ahead = ahead[1:]
			if !yield(r.pairs, r.err) || r.err != nil {
				return
			}
		}
	}
}

// readChunk reads and verifies one chunk.
func (m *Manifest) readChunk(ctx context.Context, c *Chunk, from Objects) ([]Pair, error) {
	object := name(m.Volume, chunkKind, c.Hash)
	b, err := from.Get(ctx, object)
	if err != nil {
		return nil, about(object, err)
	}
	pairs, err := m.openChunk(object, b, c)
	return pairs, about(object, err)
}

func (m *Manifest) openChunk(object string, b []byte, c *Chunk) ([]Pair, error) {
	p, err := parseAs(object, b)
	if err != nil {
		return nil, err
	}
	content, err := m.secret.open(p)
	if err != nil {
		return nil, err
	}
	pairs, err := decodeChunk(content)
	if err != nil {
		return nil, err
	}
	if uint64(len(pairs)) != c.Pairs || uint64(len(content)) != c.Bytes || !bytes.Equal(pairs[0].Key, c.First) {
		return nil, corrupt("chunk", "it is not as the manifest says")
	}
	if c.changes {
		if err := checkChanges(pairs); err != nil {
			return nil, err
		}
	}
	return pairs, nil
}
