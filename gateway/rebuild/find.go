// SPDX-License-Identifier: Apache-2.0

package rebuild

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/store"
)

// atOnce is how many objects are asked for at a time.
const atOnce = 16

// node is a segment that the store has, or that a checkpoint lists.
type node struct {
	log.SegmentInfo        // Uploaded: the store has it, of the right length
	why             string // the store's object cannot be used; empty: it can
	known           bool   // its header was read, or a checkpoint has it
	open            *open  // the store has a part of it, in pieces; nil: it has it whole, or nothing
	best            *node  // the end of the best chain that goes on from here
}

func (n *node) link() segment.Link { return segment.Link{Seq: n.Seq, Len: n.Len, Hash: n.Hash} }

func (n *node) end() log.Position { return log.Position{Seq: n.Seq, Off: n.Len} }

// found is what a store has of a volume.
type found struct {
	volume    segment.VolumeID
	nodes     map[string]*node     // by name
	packs     map[pack.Hash]uint64 // their lengths
	manifests []checkpoint.Head
	hashes    map[checkpoint.Head]checkpoint.Hash
	bad       []string // checkpoints that cannot be used, and why
	objects   int
}

// chain is a way to make the volume's state.
type chain struct {
	head     *checkpoint.Head // of the checkpoint that it begins with; nil: with nothing
	manifest *checkpoint.Manifest
	past     []*node // up to the checkpoint
	tail     []*node // to be applied
}

// last is the end of the chain; nil: it is empty.
func (c *chain) last() *node {
	if n := len(c.tail); n > 0 {
		return c.tail[n-1]
	}
	if n := len(c.past); n > 0 {
		return c.past[n-1]
	}
	return nil
}

// look lists the volume's objects and opens the manifests.
func (b *builder) look(ctx context.Context) error {
	f := &found{volume: segment.VolumeID(b.cfg.Volume), nodes: map[string]*node{}, packs: map[pack.Hash]uint64{},
		hashes: map[checkpoint.Head]checkpoint.Hash{}}
	b.found = f
	prefix := b.cfg.Volume.String() + "/"
	var manifests []checkpoint.Hash
	var pieces []piece
	err := b.cfg.Store.List(ctx, prefix, func(i store.Info) error {
		f.objects++
		if v, seq, hash, err := segment.ParseName(i.Name); err == nil && v == f.volume {
			n := &node{SegmentInfo: log.SegmentInfo{Seq: seq, Hash: hash, Len: uint64(i.Size), Name: i.Name, Uploaded: true}}
			if n.Len < segment.HeaderSize || n.Len > segment.MaxOffset {
				n.Uploaded, n.why = false, fmt.Sprintf("it has %d bytes", n.Len)
			}
			f.nodes[i.Name] = n
		} else if v, hash, err := pack.ParseName(i.Name); err == nil && v == f.volume {
			f.packs[hash] = uint64(i.Size)
		} else if v, p, err := segment.ParsePieceName(i.Name); err == nil && v == f.volume {
			pieces = append(pieces, piece{p, i.Name, i.Size})
		} else if text, ok := strings.CutPrefix(i.Name, prefix+"m/"); ok {
			if h, err := hex.DecodeString(text); err == nil && len(h) == len(checkpoint.Hash{}) {
				manifests = append(manifests, checkpoint.Hash(h))
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list the objects of volume %s: %w", b.cfg.Volume, err)
	}
	if f.objects == 0 {
		return fmt.Errorf("the store has nothing of volume %s: give the store of a site that has a copy of it", b.cfg.Volume)
	}
	if err := b.assemble(ctx, pieces); err != nil {
		return err
	}
	var mu sync.Mutex
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, h := range manifests {
		g.Go(func() error {
			m, err := checkpoint.Open(inner, f.volume, h, b.cfg.Keys.Get, b.objects())
			if inner.Err() != nil {
				return inner.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				f.bad = append(f.bad, err.Error())
				return nil
			}
			f.manifests = append(f.manifests, m.Head)
			f.hashes[m.Head] = h
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	slices.Sort(f.bad)
	slices.SortFunc(f.manifests, func(a, b checkpoint.Head) int {
		return cmp.Or(cmp.Compare(b.Epoch, a.Epoch), b.At.Compare(a.At))
	})
	return nil
}

// readHeaders reads the headers of the segments after number after, and of all that are not known
// from a checkpoint, since they lie beside it.
func (b *builder) readHeaders(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, n := range b.found.nodes {
		if n.known || n.why != "" {
			continue
		}
		g.Go(func() error {
			p := make([]byte, segment.HeaderSize)
			err := b.cfg.Store.GetRange(ctx, n.Name, 0, p)
			if errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrAccess) || ctx.Err() != nil {
				return fmt.Errorf("read segment %s: %w", n.Name, err) // it says nothing of the segment
			}
			n.known = true
			var h segment.Header
			if err == nil {
				h, err = segment.DecodeHeader(p)
			}
			if err == nil && (h.Volume != b.found.volume || h.Seq != n.Seq) {
				err = fmt.Errorf("it is segment %d of volume %x", h.Seq, h.Volume)
			}
			if _, ok := b.cfg.Keys.Get(h.Key); err == nil && !ok {
				err = fmt.Errorf("it is sealed with data key %d, which is not given", h.Key)
			}
			if err != nil {
				n.Uploaded, n.why = false, err.Error()
				return nil
			}
			n.Epoch, n.Key, n.Salt, n.Prev = h.Epoch, h.Key, h.Salt, h.Prev
			return nil
		})
	}
	return g.Wait()
}

// listed takes in the segments that a checkpoint lists.
func (b *builder) listed(all []engine.Segment) []*node {
	var link segment.Link
	out := make([]*node, len(all))
	for i, s := range all {
		name := segment.Name(b.found.volume, s.Seq, s.Hash)
		n := b.found.nodes[name]
		switch {
		case n == nil:
			n = &node{why: "the store does not have it"}
			b.found.nodes[name] = n
		case n.why == "" && n.Len != s.Len:
			n.why = fmt.Sprintf("it has %d bytes, and should have %d", n.Len, s.Len)
		}
		n.SegmentInfo = log.SegmentInfo{Seq: s.Seq, Epoch: s.Epoch, Key: s.Key, Salt: s.Salt, Prev: link, Len: s.Len, Hash: s.Hash,
			Name: name, Uploaded: n.why == ""}
		n.known = true
		link = n.link()
		out[i] = n
	}
	return out
}

// follow returns the best chain of segments after a link (rebuild-1).
func (b *builder) follow(after segment.Link) (out []*node) {
	next := map[segment.Link][]*node{}
	var all []*node
	for _, n := range b.found.nodes {
		if n.Uploaded && n.known && n.Seq > after.Seq {
			next[n.Prev] = append(next[n.Prev], n)
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b *node) int { return cmp.Compare(b.Seq, a.Seq) })
	best := func(of segment.Link) *node {
		return slices.MaxFunc(next[of], func(a, b *node) int {
			return cmp.Or(cmp.Compare(a.best.Epoch, b.best.Epoch), cmp.Compare(a.best.Seq, b.best.Seq),
				cmp.Compare(a.best.Len, b.best.Len), bytes.Compare(a.best.Hash[:], b.best.Hash[:]),
				-cmp.Compare(boolean(a.best.open != nil), boolean(b.best.open != nil))) // pieces of all of it are no more than it
		})
	}
	for _, n := range all {
		n.best = n
		if n.open == nil && len(next[n.link()]) > 0 {
			n.best = best(n.link()).best
		}
	}
	for len(next[after]) > 0 {
		n := best(after)
		out = append(out, n)
		if n.open != nil {
			break
		}
		after = n.link()
	}
	return out
}

// beside returns the segments of the store that are not in a chain: of branches that were left out,
// and those that the chain does not reach though they are as new. Both are sorted.
func (b *builder) beside(c *chain) (left, unreached []*node) {
	in := map[*node]bool{}
	for _, n := range slices.Concat(c.past, c.tail) {
		in[n] = true
	}
	last := c.last()
	for _, n := range b.found.nodes {
		switch {
		case in[n] || c.superseded(n) || n.why != "" && last != nil && n.Seq <= last.Seq:
		case n.why == "" && last != nil && n.Epoch < last.Epoch:
			left = append(left, n)
		default:
			unreached = append(unreached, n)
		}
	}
	order := func(a, b *node) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), strings.Compare(a.Name, b.Name)) }
	slices.SortFunc(left, order)
	slices.SortFunc(unreached, order)
	return left, unreached
}

// chains iterates over the ways to make the state, the best first. What branches off after a
// checkpoint is in its chain. So a chain is set aside only for what branches off before.
func (b *builder) chains(ctx context.Context) func(yield func(*chain, error) bool) {
	return func(yield func(*chain, error) bool) {
		var later []*chain
		for i := range b.found.manifests {
			c, err := b.from(ctx, &b.found.manifests[i])
			if err != nil && ctx.Err() == nil {
				b.found.bad = append(b.found.bad, err.Error())
				continue
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if _, unreached := b.beside(c); len(unreached) > 0 && unreached[0].Seq <= c.head.At.Seq {
				later = append(later, c)
				continue
			}
			if !yield(c, nil) {
				return
			}
		}
		err := b.readHeaders(ctx)
		later = append(later, &chain{tail: b.follow(segment.Link{})})
		slices.SortStableFunc(later, func(x, y *chain) int {
			a, b := x.last(), y.last()
			if a == nil || b == nil {
				return cmp.Compare(boolean(a == nil), boolean(b == nil))
			}
			return cmp.Or(cmp.Compare(b.Epoch, a.Epoch), b.end().Compare(a.end()))
		})
		for _, c := range later {
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

func boolean(is bool) int {
	if is {
		return 1
	}
	return 0
}

// from returns the chain that begins with a checkpoint.
func (b *builder) from(ctx context.Context, head *checkpoint.Head) (*chain, error) {
	m, err := checkpoint.Open(ctx, b.found.volume, b.found.hashes[*head], b.cfg.Keys.Get, b.objects())
	if err != nil {
		return nil, err
	}
	all, err := engine.SegmentsOf(ctx, m, b.objects())
	if err != nil {
		return nil, err
	}
	c := &chain{head: head, manifest: m, past: b.listed(all)}
	if err := b.readHeaders(ctx); err != nil {
		return nil, err
	}
	c.tail = b.follow(c.past[len(c.past)-1].link())
	return c, nil
}
