// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// What a crowd does with blocks that live among dead ones: packs, which all copies make alike, and
// what is left of blocks, which the home writes again (ADR 56, 59). Sites fail between any two
// steps.

// moving is what a crowd knows of packs.
type moving struct {
	uses    map[uint64]engine.Uses // by checkpoint, as somebody made it
	plans   map[uint64][]engine.PackPlan
	made    int // packs that copies made, or fetched
	fetched int
	again   int  // packs of packs
	moved   int  // segments that were dropped because of a pack
	gone    int  // packs that were deleted
	cut     int  // blocks of packs that are cut
	anew    int  // blocks of packs that are sealed anew, and not cut
	calm    bool // nothing fails any more
}

// jointKeys has another data key, which nothing but packs is sealed with.
var jointKeys = func() *segment.Keys {
	keys := segment.NewKeys(testKey)
	keys.Add(map[uint32]segment.DataKey{0: testKey, 1: {67}})
	return keys
}()

func newMoving() moving {
	return moving{uses: map[uint64]engine.Uses{}, plans: map[uint64][]engine.PackPlan{}}
}

// soon is a rule by which everything is packed that has something that is dead.
var soon = pack.Rule{Percent: 112, Write: 1 << 20, Share: 1, Small: 64 << 10, Merge: 3}

// plan plans packs at a checkpoint.
func (c *crowd) plan(cut *engine.Cut, uses engine.Uses) {
	c.Helper()
	newest := uint32(0)
	if cut.Number%3 == 0 { // all that lives under the first data key is to be sealed anew
		newest = 1
	}
	plans, _, err := cut.Plan(context.Background(), uses, soon, newest)
	c.must(err)
	m := &c.past.moving
	m.uses[cut.Number], m.plans[cut.Number] = uses, plans
}

// maybe has something fail, now and then, and reports whether a site is up after that.
func (c *crowd) maybe(s *site) bool {
	if !c.past.moving.calm && c.random.IntN(12) == 0 {
		c.trouble()
	}
	return s.node != nil
}

// packs has the home settle what packs there are, make one that was planned at its newest
// checkpoint, and commit it.
func (c *crowd) packs(home *site, number uint64) {
	c.Helper()
	m, e := &c.past.moving, c.engines[home.name]
	if uses := m.uses[number]; len(uses.Emptied)+len(uses.Empty) > 0 {
		c.ask(home, func(ctx context.Context, e *engine.Engine) error { return e.Settle(ctx, number, uses) })
	}
	if len(m.plans[number]) == 0 || !c.maybe(home) {
		return
	}
	plan := m.plans[number][0]
	if e.MayPack(plan, pack.Built{}) != nil {
		m.plans[number] = m.plans[number][1:]
		return
	}
	b, whole, err := c.build(home, plan.Kept, plan.From)
	if err != nil || !c.maybe(home) || e.MayPack(plan, b) != nil {
		return // a source has gone since, or the site has
	}
	c.put(home, b.Hash, whole)
	if !c.maybe(home) {
		return
	}
	c.ask(home, func(ctx context.Context, e *engine.Engine) error {
		if e.MayPack(plan, b) != nil { // or the plan is of an earlier reign
			return volume.ErrInvalid
		}
		return e.Pack(ctx, number, plan, b)
	})
}

func (c *crowd) put(s *site, hash pack.Hash, whole []byte) {
	c.Helper()
	name := pack.Name(segment.VolumeID(jointID), hash)
	c.must(s.store.Put(context.Background(), name, int64(len(whole)), bytes.NewReader(whole)))
}

func (c *crowd) has(s *site, p engine.Pack) bool {
	i, err := s.store.Stat(context.Background(), pack.Name(segment.VolumeID(jointID), p.Hash))
	return err == nil && uint64(i.Size) == p.Len
}

// build makes a pack of what a site has.
func (c *crowd) build(s *site, kept []pack.Kept, from []engine.Pack) (pack.Built, []byte, error) {
	var sources []pack.Source
	type opens = func(ref segment.BlockRef, packed bool) ([]byte, error)
	blocks := map[uint64]opens{}
	open := func(ref segment.BlockRef, b []byte, packed bool) ([]byte, error) {
		if packed {
			return s.log.OpenPacked(ref, b)
		}
		return s.log.OpenBlock(ref, b)
	}
	whole := func(read pack.Read) opens {
		return func(ref segment.BlockRef, packed bool) ([]byte, error) {
			b := make([]byte, ref.Len)
			if err := read(b, ref.Off); err != nil {
				return nil, err
			}
			return open(ref, b, packed)
		}
	}
	object := func(name string) pack.Read {
		return func(p []byte, off uint64) error { return s.store.GetRange(context.Background(), name, int64(off), p) }
	}
	for _, k := range kept {
		x, ok := s.log.Segment(k.Seq)
		switch {
		case !ok || x.Hash != k.Hash:
			return pack.Built{}, nil, fmt.Errorf("segment %d is another one", k.Seq)
		case x.Local:
			sources = append(sources, pack.Source{Hash: x.Hash, Len: x.Len, Kept: []pack.Kept{k}, Read: func(p []byte, off uint64) error {
				n, err := s.log.ReadSegmentFile(x.Seq, p, int64(off))
				if n < len(p) && err == nil {
					err = io.ErrUnexpectedEOF
				}
				if n == len(p) {
					err = nil
				}
				return err
			}})
			blocks[k.Seq] = whole(sources[len(sources)-1].Read)
			continue
		case x.Uploaded:
			sources = append(sources, pack.Source{Hash: x.Hash, Len: x.Len, Kept: []pack.Kept{k}, Read: object(x.Name)})
			blocks[k.Seq] = whole(object(x.Name))
			continue
		}
		found := false
		for _, p := range from {
			name := pack.Name(segment.VolumeID(jointID), p.Hash)
			index, err := pack.Open(segment.VolumeID(jointID), p.Hash, p.Len, object(name))
			if err != nil {
				return pack.Built{}, nil, err
			}
			if _, _, err := index.At(segment.BlockRef{Seq: k.Seq, Off: uint64(k.Blocks[0].Off), Len: k.Blocks[0].Len}); err == nil {
				found = true
				blocks[k.Seq] = func(ref segment.BlockRef, packed bool) ([]byte, error) {
					at, cut, err := index.At(ref)
					if err != nil {
						return nil, err
					}
					if cut == nil {
						b, err := index.Read(ref, object(name))
						if err != nil {
							return nil, err
						}
						return open(ref, b, packed)
					}
					b := make([]byte, cut.Size+pack.SumSize)
					if err := object(name)(b, at); err != nil {
						return nil, err
					}
					sealKey, _ := jointKeys.Get(index.Key())
					if packed {
						return index.OpenPacked(&sealKey, ref.Seq, cut, b)
					}
					return index.Open(&sealKey, ref.Seq, cut, b)
				}
				sources = append(sources, pack.Source{Pack: true, Hash: p.Hash, Len: p.Len, Kept: []pack.Kept{k}, Read: object(name)})
				break
			}
		}
		if !found {
			return pack.Built{}, nil, fmt.Errorf("segment %d is not here", k.Seq)
		}
	}
	var out bytes.Buffer
	sealKey, _ := jointKeys.Get(1)
	texts := func(packed bool) func(refs []segment.BlockRef) ([][]byte, error) {
		return func(refs []segment.BlockRef) (all [][]byte, err error) {
			for _, ref := range refs {
				b, err := blocks[ref.Seq](ref, packed)
				if err != nil {
					return nil, err
				}
				all = append(all, b)
			}
			return all, nil
		}
	}
	seal := &pack.Sealing{Key: 1, Data: &sealKey, Raw: texts(false), Packed: texts(true)}
	b, err := pack.Build(segment.VolumeID(jointID), sources, seal, &out)
	for _, k := range kept {
		for i := range k.Cuts {
			if k.Cuts[i].Whole() {
				c.past.moving.anew++
			} else {
				c.past.moving.cut++
			}
		}
	}
	return b, out.Bytes(), err
}

// gather gets the packs for a site's store that count and that it lacks, and returns those with all
// that its own metadata need.
func (c *crowd) gather(s *site, table *engine.Packs) map[uint64]bool {
	c.Helper()
	m, e := &c.past.moving, c.engines[s.name]
	good := map[uint64]bool{}
	for _, p := range table.All {
		if p.Condemned != 0 {
			continue
		}
		if !c.has(s, p) {
			index, err := e.PackIndex(p)
			if err != nil {
				return good
			}
			var from []engine.Pack
			for _, n := range p.From {
				from = append(from, table.All[n-1])
			}
			b, whole, err := c.build(s, index.Kept(), from)
			if err == nil && (b.Hash != p.Hash || b.Len != p.Len) {
				c.Fatalf("pack %d is another one at %s", p.Number, s.name)
			}
			if err != nil {
				f, err := s.log.FetchPack(context.Background(), p.Hash, p.Len)
				if err != nil {
					continue
				}
				whole = make([]byte, p.Len)
				_, err = f.ReadAt(whole, 0)
				if cerr := f.Close(); err != nil && !errors.Is(err, io.EOF) || cerr != nil {
					continue
				}
				m.fetched++
			}
			c.put(s, p.Hash, whole)
			m.made++
			m.again += len(p.From)
		}
		if c.must(ended(e.Covers(context.Background(), []engine.Pack{p}))); c.has(s, p) {
			good[p.Number] = true
		}
	}
	return good
}

// ended returns nil for an error that says that an engine's disk, or its process, has gone.
func ended(err error) error {
	if errors.Is(err, volume.ErrIO) || errors.Is(err, volume.ErrDelay) {
		return nil
	}
	return err
}

// dropPacks deletes packs that were condemned from a site's store.
func (c *crowd) dropPacks(s *site, table *engine.Packs, good map[uint64]bool) {
	c.Helper()
	live := map[pack.Hash]bool{}
	for _, p := range table.All {
		if p.Condemned == 0 {
			live[p.Hash] = true
		}
	}
	for _, p := range table.All {
		if p.Condemned == 0 || live[p.Hash] || !c.has(s, p) {
			continue
		}
		if now, lives := table.Now(p.Number); lives && !good[now.Number] {
			continue
		}
		c.must(s.store.Delete(context.Background(), pack.Name(segment.VolumeID(jointID), p.Hash)))
		c.past.moving.gone++
	}
}
