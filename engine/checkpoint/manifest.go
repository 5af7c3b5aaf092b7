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
	Pairs  uint64
	Bytes  uint64 // of all chunks' content, before compression

	hash   Hash
	secret *secrets
}

// Chunk is a run of pairs.
type Chunk struct {
	Hash  Hash   // of its content; its name in a store has it
	First []byte // key of its first pair
	Pairs uint64
	Bytes uint64 // of its content, before compression
}

// Hash identifies the checkpoint: two copies that made it of the same pairs have the same.
func (m *Manifest) Hash() Hash { return m.hash }

// Names returns the names of the checkpoint's objects in a store: its chunks, and the manifest
// last.
func (m *Manifest) Names() []string {
	names := make([]string, 0, len(m.Chunks)+1)
	for i := range m.Chunks {
		names = append(names, name(m.Volume, chunkKind, m.Chunks[i].Hash))
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

// finish sets what follows from the chunks.
func (m *Manifest) finish() {
	m.Pairs, m.Bytes = 0, 0
	for i := range m.Chunks {
		m.Pairs += m.Chunks[i].Pairs
		m.Bytes += m.Chunks[i].Bytes
	}
}

func (m *Manifest) refs() []Hash {
	refs := make([]Hash, len(m.Chunks))
	for i := range m.Chunks {
		refs[i] = m.Chunks[i].Hash
	}
	return refs
}

// appendContent appends the sealed part of m before it is packed.
func (m *Manifest) appendContent(b []byte) []byte {
	b = append(b, contentVersion)
	for _, n := range []uint64{m.At.Seq, m.At.Off, m.Epoch, uint64(len(m.Chunks))} {
		b = binary.AppendUvarint(b, n)
	}
	for i := range m.Chunks {
		c := &m.Chunks[i]
		b = binary.AppendUvarint(b, c.Bytes)
		b = binary.AppendUvarint(b, c.Pairs)
		b = binary.AppendUvarint(b, uint64(len(c.First)))
		b = append(b, c.First...)
	}
	return b
}

// decodeManifest fills a manifest from its content and its references. Errors wrap ErrCorrupt.
func decodeManifest(content []byte, refs []Hash) (*Manifest, error) {
	d := decoderOf(content)
	m := &Manifest{}
	m.At.Seq, m.At.Off, m.Epoch = d.number(), d.number(), d.number()
	if n := d.number(); d.err == nil && n != uint64(len(refs)) {
		return nil, corrupt("chunks", "%d, but %d references", n, len(refs))
	}
	m.Chunks = make([]Chunk, len(refs))
	for i := range m.Chunks {
		c := &m.Chunks[i]
		c.Hash = refs[i]
		c.Bytes, c.Pairs = d.number(), d.number()
		n := d.number()
		if d.err != nil {
			return nil, d.err
		}
		if n == 0 || n > uint64(len(d.b)) || c.Pairs == 0 || c.Bytes > maxContent {
			return nil, corrupt("lengths", "of chunk %d", i)
		}
		if c.First, d.b = d.b[:n:n], d.b[n:]; i > 0 && bytes.Compare(m.Chunks[i-1].First, c.First) >= 0 {
			return nil, corrupt("order of keys", "at chunk %d", i)
		}
	}
	if d.err == nil && len(d.b) > 0 {
		return nil, corrupt("end", "%d bytes too many", len(d.b))
	}
	m.finish()
	return m, d.err
}
