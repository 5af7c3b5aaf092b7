// SPDX-License-Identifier: Apache-2.0

package crashfs

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// change is one write (data at off) or, with data nil, a truncation to off.
type change struct {
	off  int64
	data []byte
}

func (c change) apply(to []byte) []byte {
	if c.data == nil {
		return resize(to, c.off)
	}
	if end := c.off + int64(len(c.data)); end > int64(len(to)) {
		to = resize(to, end)
	}
	copy(to[c.off:], c.data)
	return to
}

func resize(p []byte, size int64) []byte {
	if size <= int64(len(p)) {
		return p[:size:size]
	}
	return append(p, make([]byte, size-int64(len(p)))...)
}

// inode is a file or a directory, with or without a name.
type inode struct {
	dir     *directory // nil: a file; else nothing below is used
	data    []byte     // what reads see
	durable []byte     // what the disk has
	pending []change   // since the last Sync
	failed  []change   // of Syncs that failed; no later one brings them to the disk
}

func (n *inode) change(c change) {
	n.data = c.apply(n.data)
	n.pending = append(n.pending, c)
}

func (n *inode) sync() {
	for _, c := range n.pending {
		n.durable = c.apply(n.durable)
	}
	n.pending = nil
}

func (n *inode) syncFailed() {
	n.failed = append(n.failed, n.pending...)
	n.pending = nil
}

// forget drops what is in memory alone. Of what a failed sync did not make durable, the disk may
// have any part.
func (n *inode) forget(r *rand.Rand) {
	pending := n.pending
	n.pending = nil
	n.crash(r)
	for _, c := range pending {
		n.change(c)
	}
}

// crash brings an arbitrary part of what was not synced to the disk.
func (n *inode) crash(r *rand.Rand) {
	if n.dir != nil {
		n.dir.crash(r)
		return
	}
	all := slices.Concat(n.failed, n.pending)
	switch r.IntN(4) {
	case 0: // nothing
	case 1: // everything
		for _, c := range all {
			n.durable = c.apply(n.durable)
		}
	case 2: // a prefix, its last change torn
		if len(all) > 0 {
			last := r.IntN(len(all))
			for _, c := range all[:last] {
				n.durable = c.apply(n.durable)
			}
			n.durable = tear(all[last], r).apply(n.durable)
		}
	case 3: // any of them, any of those torn
		for _, c := range all {
			switch r.IntN(3) {
			case 0:
				n.durable = c.apply(n.durable)
			case 1:
				n.durable = tear(c, r).apply(n.durable)
			}
		}
	}
	n.data, n.pending, n.failed = slices.Clone(n.durable), nil, nil
}

// tear returns a part of a write: its beginning, its end, or the room for it without its bytes.
func tear(c change, r *rand.Rand) change {
	if len(c.data) == 0 {
		return c
	}
	cut := r.IntN(len(c.data) + 1)
	switch r.IntN(3) {
	case 0:
		return change{c.off, slices.Clip(c.data[:cut])}
	case 1:
		return change{c.off + int64(cut), c.data[cut:]}
	}
	// The size grew, the bytes did not come: a file system that keeps metadata and data apart.
	return change{c.off + int64(len(c.data)), []byte{}}
}

// naming is one change of a directory: from "" creates, to "" removes, else renames.
type naming struct {
	from, to string
	node     *inode
}

func (c naming) apply(names map[string]*inode) {
	if c.from != "" {
		delete(names, c.from)
	}
	if c.to != "" {
		names[c.to] = c.node
	}
}

// directory is one volume's, or one in it.
type directory struct {
	names   map[string]*inode
	durable map[string]*inode
	pending []naming
}

func newDirectory() *directory {
	return &directory{names: map[string]*inode{}, durable: map[string]*inode{}}
}

func (v *directory) change(c naming) {
	c.apply(v.names)
	v.pending = append(v.pending, c)
}

func (v *directory) sync() {
	for _, c := range v.pending {
		c.apply(v.durable)
	}
	v.pending = nil
}

func (v *directory) crash(r *rand.Rand) {
	for _, c := range v.pending[:r.IntN(len(v.pending)+1)] {
		c.apply(v.durable)
	}
	v.names, v.pending = maps.Clone(v.durable), nil
	for _, name := range sortedKeys(v.names) {
		v.names[name].crash(r)
	}
}

// copier copies directories. It keeps which names are of one inode.
type copier map[*inode]*inode

func (c copier) inode(n *inode) *inode {
	if n == nil {
		return nil
	}
	if c[n] != nil {
		return c[n]
	}
	// What was written is never changed, so it is shared.
	out := &inode{data: slices.Clone(n.data), durable: slices.Clone(n.durable), pending: slices.Clone(n.pending),
		failed: slices.Clone(n.failed)}
	c[n] = out
	if n.dir != nil {
		out.dir = c.directory(n.dir)
	}
	return out
}

func (c copier) names(names map[string]*inode) map[string]*inode {
	out := make(map[string]*inode, len(names))
	for name, n := range names {
		out[name] = c.inode(n)
	}
	return out
}

func (c copier) directory(v *directory) *directory {
	out := &directory{names: c.names(v.names), durable: c.names(v.durable), pending: slices.Clone(v.pending)}
	for i := range out.pending {
		out.pending[i].node = c.inode(out.pending[i].node)
	}
	return out
}

// size returns the bytes of all files below.
func (v *directory) size() (n int64) {
	for _, child := range v.names {
		if child.dir != nil {
			n += child.dir.size()
		}
		n += int64(len(child.data))
	}
	return n
}
