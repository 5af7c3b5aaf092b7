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

// Raw opens blocks: what pack.Sealing has. An error tells of the first that can not be opened.
type Raw = func(refs []segment.BlockRef) ([][]byte, error)

// rawOfSegment opens a block of a segment.
func rawOfSegment(c Copy, read pack.Read) func(segment.BlockRef) ([]byte, error) {
	return func(ref segment.BlockRef) ([]byte, error) {
		b := make([]byte, ref.Len)
		if err := read(b, ref.Off); err != nil {
			return nil, err
		}
		return c.Log.OpenBlock(ref, b)
	}
}

// rawOfPack opens a block of a pack, whole or cut.
func rawOfPack(c Copy, p *pack.Pack, read pack.Read) func(segment.BlockRef) ([]byte, error) {
	return func(ref segment.BlockRef) ([]byte, error) {
		off, cut, err := p.At(ref)
		if err != nil {
			return nil, err
		}
		if cut == nil {
			b, err := p.Read(ref, read)
			if err != nil {
				return nil, err
			}
			return c.Log.OpenBlock(ref, b)
		}
		key, ok := c.Keys.Get(p.Key())
		if !ok {
			return nil, fmt.Errorf("%s is sealed with data key %d: %w", p.Name(), p.Key(), log.ErrNoKey)
		}
		b := make([]byte, cut.Size+pack.SumSize)
		if err := read(b, off); err != nil {
			return nil, err
		}
		return p.Open(&key, ref.Seq, cut, b)
	}
}

// Of returns what a pack is built from: each segment of which this copy still has the bytes, and
// else the pack that its blocks are in. raw opens blocks of it, for those that are cut. Both read
// with ctx. An error wraps ErrNotHere if the site has none of them.
func Of(ctx context.Context, c Copy, kept []pack.Kept, from []engine.Pack) (out []pack.Source, raw Raw, err error) {
	blocks := map[uint64]func(segment.BlockRef) ([]byte, error){}
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
			blocks[s.Seq] = rawOfSegment(c, read)
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
			blocks[some.Seq] = rawOfPack(c, former[i], out[len(out)-1].Read)
		}
	}
	return out, func(refs []segment.BlockRef) ([][]byte, error) {
		all := make([][]byte, len(refs))
		for i, ref := range refs {
			if all[i], err = blocks[ref.Seq](ref); err != nil {
				return nil, err
			}
		}
		return all, nil
	}, nil
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

// Alike returns an error if a pack is not the one that the home made.
func Alike(b pack.Built, want engine.Pack) error {
	if b.Hash != want.Hash || b.Len != want.Len {
		return fmt.Errorf("pack %d is %x here, %d bytes, and %x at the home, %d bytes", want.Number, b.Hash, b.Len, want.Hash, want.Len)
	}
	return nil
}
