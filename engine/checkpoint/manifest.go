// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/weir-storage/weir/engine/segment"
)

// Head says what a checkpoint is of.
type Head struct {
	Volume segment.VolumeID
	At     segment.Position // all records up to here, and no others, are in the pairs
	Epoch  uint64           // the greatest epoch of a record up to At
	Key    uint32           // number of the data key
}

// Manifest lists the chunks of a checkpoint. Write and Open make one. Nobody changes it.
type Manifest struct {
	Head
	Chunks []Chunk
	// Changes are chunks of pairs that are otherwise than in Chunks.
	Changes []Chunk
	Pairs   uint64
	Bytes   uint64 // of all chunks' content, before compression

	hash   Hash
	secret *secrets
}

// Chunk is a run of pairs.
type Chunk struct {
	Hash  Hash   // of its content; its name in a store has it
	First []byte // key of its first pair
	Pairs uint64
	Bytes uint64 // of its content, before compression

	changes bool // it is one of changes
}

// Hash identifies the checkpoint: two copies that made it of the same pairs have the same.
func (m *Manifest) Hash() Hash { return m.hash }

// Names returns the names of the checkpoint's objects in a store: its chunks, and the manifest
// last.
func (m *Manifest) Names() []string {
	names := make([]string, 0, len(m.Chunks)+len(m.Changes)+1)
	for _, h := range m.refs() {
		names = append(names, name(m.Volume, chunkKind, h))
	}
	return append(names, name(m.Volume, manifestKind, m.hash))
}

// Diff returns the names of the objects of former that m does not need, sorted. m is of the same
// volume.
func (m *Manifest) Diff(former *Manifest) []string {
	needed := make(map[string]bool, len(m.Chunks)+1)
	for _, n := range m.Names() {
		needed[n] = true
	}
	gone := slices.DeleteFunc(former.Names(), func(n string) bool { return needed[n] })
	slices.Sort(gone)
	return gone
}

// finish sets what follows from the chunks. With changes, Pairs is set.
func (m *Manifest) finish() {
	if m.Bytes = 0; len(m.Changes) == 0 {
		m.Pairs = 0
		for i := range m.Chunks {
			m.Pairs += m.Chunks[i].Pairs
		}
	}
	for _, all := range [][]Chunk{m.Chunks, m.Changes} {
		for i := range all {
			m.Bytes += all[i].Bytes
		}
	}
}

func (m *Manifest) refs() []Hash {
	refs := make([]Hash, 0, len(m.Chunks)+len(m.Changes))
	for _, all := range [][]Chunk{m.Chunks, m.Changes} {
		for i := range all {
			refs = append(refs, all[i].Hash)
		}
	}
	return refs
}

// appendContent appends the sealed part of m before it is packed.
func (m *Manifest) appendContent(b []byte) []byte {
	version := byte(contentVersion)
	if len(m.Changes) > 0 {
		version = changesVersion
	}
	b = append(b, version)
	for _, n := range []uint64{m.At.Seq, m.At.Off, m.Epoch} {
		b = binary.AppendUvarint(b, n)
	}
	b = appendChunks(b, m.Chunks)
	if version == changesVersion {
		b = binary.AppendUvarint(b, m.Pairs)
		b = appendChunks(b, m.Changes)
	}
	return b
}

func appendChunks(b []byte, all []Chunk) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for i := range all {
		c := &all[i]
		b = binary.AppendUvarint(b, c.Bytes)
		b = binary.AppendUvarint(b, c.Pairs)
		b = binary.AppendUvarint(b, uint64(len(c.First)))
		b = append(b, c.First...)
	}
	return b
}

// decodeManifest fills a manifest from its content and its references. Errors wrap ErrCorrupt.
func decodeManifest(content []byte, refs []Hash) (*Manifest, error) {
	d := decoderOf(content, changesVersion)
	m := &Manifest{}
	m.At.Seq, m.At.Off, m.Epoch = d.number(), d.number(), d.number()
	m.Chunks, refs = d.chunks(refs)
	if d.err == nil && content[0] == changesVersion {
		m.Pairs = d.number()
		if m.Changes, refs = d.chunks(refs); len(m.Changes) == 0 && d.err == nil {
			d.err = corrupt("changes", "there are none")
		}
		for i := range m.Changes {
			m.Changes[i].changes = true
		}
	}
	switch {
	case d.err != nil:
		return nil, d.err
	case len(d.b) > 0:
		return nil, corrupt("end", "%d bytes too many", len(d.b))
	case len(refs) > 0:
		return nil, corrupt("chunks", "%d references too many", len(refs))
	}
	m.finish()
	return m, nil
}

// chunks reads a list of chunks, which have the first of refs. It returns the other ones.
func (r *reader) chunks(refs []Hash) ([]Chunk, []Hash) {
	n := r.number()
	if r.err == nil && n > uint64(len(refs)) {
		r.err = corrupt("chunks", "%d, but %d references", n, len(refs))
	}
	if r.err != nil {
		return nil, nil
	}
	all := make([]Chunk, n)
	for i := range all {
		c := &all[i]
		c.Hash = refs[i]
		c.Bytes, c.Pairs = r.number(), r.number()
		n := r.number()
		switch {
		case r.err != nil:
			return nil, nil
		case n == 0 || n > uint64(len(r.b)) || c.Pairs == 0 || c.Bytes > maxContent:
			r.err = corrupt("lengths", "of chunk %d", i)
			return nil, nil
		}
		if c.First, r.b = r.b[:n:n], r.b[n:]; i > 0 && bytes.Compare(all[i-1].First, c.First) >= 0 {
			r.err = corrupt("order of keys", "at chunk %d", i)
			return nil, nil
		}
	}
	return all, refs[n:]
}
