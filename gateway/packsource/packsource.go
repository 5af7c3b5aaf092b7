// SPDX-License-Identifier: Apache-2.0

// Package packsource finds what packs are built from at a site: files of segments, and objects of
// the site's store (ADR 56, ADR 64).
package packsource

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/store"
)

// ErrNotHere is of what a pack is to be built from, and that was never at this site, or went.
var ErrNotHere = errors.New("neither the pool nor the store of this site has it")

// VolumeOf returns the volume of a UUID, as segments and packs name it.
func VolumeOf(id string) (segment.VolumeID, error) {
	v, err := uuid.Parse(id)
	if err != nil {
		return segment.VolumeID{}, fmt.Errorf("volume %q: %w", id, err)
	}
	return segment.VolumeID(v), nil
}

// Copy is a copy of a volume, and its site's store.
type Copy struct {
	Volume segment.VolumeID
	Log    *log.Log
	Keys   *segment.Keys
	Store  store.Store
}

// Of returns what a pack is built from: each segment of which this copy still has the bytes, and
// else the pack that its blocks are in. seal is for those blocks that are sealed anew, with the
// data key of that number; nil: that is not here. Both read with ctx. An error wraps ErrNotHere if
// the site has none of them.
func Of(ctx context.Context, c Copy, kept []pack.Kept, from []engine.Pack, number uint32) (out []pack.Source, seal *pack.Sealing,
	err error) {
	blocks := map[uint64]finds{}
	object := func(name string) pack.Read {
		return func(p []byte, off uint64) error { return c.Store.GetRange(ctx, name, int64(off), p) }
	}
	former := make([]*pack.Pack, len(from))
	last := -1 // the pack of from that the last source is
	for _, some := range kept {
		s, ok := c.Log.Segment(some.Seq)
		if !ok || s.Hash != some.Hash {
			return nil, nil, fmt.Errorf("segment %d is another one here", some.Seq)
		}
		if s.Local || s.Uploaded {
			read := object(s.Name)
			if s.Local {
				read = File(c.Log, s.Seq)
			}
			out = append(out, pack.Source{Hash: s.Hash, Len: s.Len, Kept: []pack.Kept{some}, Read: read})
			blocks[s.Seq] = ofSegment(c, s.Name, read)
			last = -1
			continue
		}
		i := -1
		for n := range from {
			if former[n] == nil {
				p, err := pack.Open(c.Volume, from[n].Hash, from[n].Len, object(pack.Name(c.Volume, from[n].Hash)))
				if err != nil {
					return nil, nil, err
				}
				former[n] = p
			}
			first := segment.BlockRef{Seq: some.Seq, Off: uint64(some.Blocks[0].Off), Len: some.Blocks[0].Len}
			if _, _, err := former[n].At(first); err == nil {
				i = n
				break
			}
		}
		switch {
		case i < 0:
			return nil, nil, fmt.Errorf("segment %d, also in %d packs: %w", some.Seq, len(from), ErrNotHere)
		case i == last:
			same := &out[len(out)-1]
			same.Kept = append(same.Kept, some)
		default:
			out = append(out, pack.Source{Pack: true, Hash: from[i].Hash, Len: from[i].Len, Kept: []pack.Kept{some},
				Read: object(former[i].Name())})
			last = i
		}
		if i >= 0 {
			blocks[some.Seq] = ofPack(c, former[i], out[len(out)-1].Read)
		}
	}
	texts := func(packed bool) func([]segment.BlockRef) ([][]byte, error) {
		return func(refs []segment.BlockRef) ([][]byte, error) { return texts(refs, blocks, packed) }
	}
	if key, ok := c.Keys.Get(number); ok {
		seal = &pack.Sealing{Key: number, Data: &key, Raw: texts(false), Packed: texts(true)}
	}
	return out, seal, nil
}

// Most is the most bytes that a pack of these blocks has.
func Most(kept []pack.Kept) int64 {
	most := int64(1 << 10)
	for _, s := range kept {
		most += 64 + int64(len(s.Blocks))*(pack.SumSize+16)
		for _, b := range s.Blocks {
			most += int64(b.Len)
		}
		for _, cut := range s.Cuts {
			most += 64 + int64(cut.Bytes()) + 16*int64(len(cut.Ranges))
		}
	}
	return most
}

// File reads a segment's file.
func File(l *log.Log, seq uint64) pack.Read {
	return func(p []byte, off uint64) error {
		n, err := l.ReadSegmentFile(seq, p, int64(off))
		if n == len(p) {
			return nil
		}
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
}

// List returns the packs of a volume that a store has, by their hash, and their lengths. With an
// error it returns nil.
func List(ctx context.Context, s store.Store, volume string) (map[pack.Hash]uint64, error) {
	out := map[pack.Hash]uint64{}
	if err := s.List(ctx, volume+"/p/", func(i store.Info) error {
		if _, hash, err := pack.ParseName(i.Name); err == nil {
			out[hash] = uint64(i.Size)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return out, nil
}

// Alike returns an error if a pack is not the one that the home made.
func Alike(b pack.Built, want engine.Pack) error {
	if b.Hash != want.Hash || b.Len != want.Len {
		return fmt.Errorf("pack %d is %x here, %d bytes, and %x at the home, %d bytes", want.Number, b.Hash, b.Len, want.Hash, want.Len)
	}
	return nil
}
