// SPDX-License-Identifier: Apache-2.0

package space

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/store"
)

// most is the most names, and the most differences, that a report has.
const most = 10

// count counts the objects of one volume.
type count struct {
	volume string // UUID
	store  store.Store
	log    *log.Log
	usage  *engine.Usage // nil: there is no key here
	// needed returns which objects of checkpoints are needed, of the manifests in the store.
	needed func(ctx context.Context, manifests []string) (checkpoints.Needed, error)
	// condemned returns the segments that are condemned now.
	condemned func() (map[uint64]uint64, error)
	// now returns the packs that count now.
	now func() (engine.Packs, error)

	out   Store
	parts map[Kind]*Amount
	seen  map[uint64]bool           // segments of the log that are listed
	packs map[pack.Hash]engine.Pack // those that count, or were condemned
	gone  map[uint64]bool           // segments that were dropped before the store was listed
	// By the numbers of packs: what is used of their segments, and those that the store does not
	// list, of which some segment was dropped.
	inPacks map[uint64]engine.Blocks
	absent  map[uint64]engine.Pack
	loose   []store.Info // objects of checkpoints that nobody needs, as far as was known
}

// run counts. It reads the store's list once, and that of manifests before.
func (c *count) run(ctx context.Context) (*Store, error) {
	c.parts, c.seen, c.gone = map[Kind]*Amount{}, map[uint64]bool{}, map[uint64]bool{}
	for _, k := range kinds {
		c.parts[k] = &Amount{}
	}
	before := c.log.Segments()
	for _, s := range before {
		if s.Dropped {
			c.gone[s.Seq] = true
		}
	}
	c.begin()
	needed, err := c.need(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.store.List(ctx, c.volume+"/", func(i store.Info) error {
		c.out.add(i.Size)
		c.object(i, needed)
		return ctx.Err()
	}); err != nil {
		return nil, fmt.Errorf("list the store: %w", err)
	}
	if err := c.settle(ctx, needed); err != nil {
		return nil, err
	}
	if err := c.compare(ctx, before); err != nil {
		return nil, err
	}
	if c.usage != nil {
		c.out.Checkpoint = c.usage.Checkpoint.Number
	}
	for _, k := range kinds {
		c.out.Parts = append(c.out.Parts, Part{k, *c.parts[k]})
	}
	return &c.out, nil
}

// begin says what is known of packs before the store is listed.
func (c *count) begin() {
	c.packs, c.inPacks, c.absent = map[pack.Hash]engine.Pack{}, map[uint64]engine.Blocks{}, map[uint64]engine.Pack{}
	if c.usage == nil {
		return
	}
	for _, p := range c.usage.Packs.All {
		if was, ok := c.packs[p.Hash]; !ok || was.Condemned != 0 {
			c.packs[p.Hash] = p
		}
	}
	for seq, n := range c.usage.Packs.Moved {
		used, more := c.inPacks[n], c.usage.Blocks[seq]
		c.inPacks[n] = engine.Blocks{Present: used.Present + more.Present, Past: used.Past + more.Past}
		if is := c.usage.Packs.All[n-1]; c.gone[seq] && is.Condemned == 0 {
			c.absent[n] = is
		}
	}
}

// need returns which objects of checkpoints are needed.
func (c *count) need(ctx context.Context) (checkpoints.Needed, error) {
	var manifests []string
	if err := c.store.List(ctx, c.volume+"/m/", func(i store.Info) error {
		manifests = append(manifests, i.Name)
		return nil
	}); err != nil {
		return checkpoints.Needed{}, fmt.Errorf("list the store: %w", err)
	}
	return c.needed(ctx, manifests)
}

// object counts one object.
func (c *count) object(i store.Info, needed checkpoints.Needed) {
	switch _, _, _, err := segment.ParseName(i.Name); {
	case err == nil:
		c.segment(i)
	case c.packed(i), c.piece(i):
	case needed.Names[i.Name]:
		c.parts[Checkpoints].add(i.Size)
	case strings.HasPrefix(i.Name, c.volume+"/c/"), strings.HasPrefix(i.Name, c.volume+"/m/"):
		c.loose = append(c.loose, i)
	default:
		c.stray(i)
	}
}

// segment counts a segment.
func (c *count) segment(i store.Info) {
	s, ok := c.log.Find(i.Name)
	switch {
	case !ok || c.gone[s.Seq]:
		c.stray(i)
		return
	case uint64(i.Size) != s.Len:
		c.seen[s.Seq] = true
		c.differs("%s has %d bytes, and the log says %d", i.Name, i.Size, s.Len)
		c.stray(i)
		return
	}
	c.seen[s.Seq] = true
	switch {
	case c.usage == nil:
		c.parts[Uncounted].add(i.Size)
		return
	case c.usage.Packs.Moved[s.Seq] != 0:
		c.parts[Moved].add(i.Size)
		return
	case s.Dropped || is(c.usage.Condemned, s.Seq):
		c.parts[Condemned].add(i.Size)
		return
	}
	rest := Log
	if s.Seq <= c.usage.Checkpoint.At.Seq {
		rest = Dead
	}
	c.used(i, c.usage.Blocks[s.Seq], rest)
}

// piece counts an object that is a part of the last segment, or was until that ended; false: it is
// none.
func (c *count) piece(i store.Info) bool {
	_, p, err := segment.ParsePieceName(i.Name)
	if err != nil {
		return false
	}
	s, closed := c.log.Segment(p.Seq)
	if closed && !p.Of(s.Seq, s.Salt) || !closed && p.Seq != c.log.End().Seq {
		return false
	}
	c.parts[Log].add(i.Size)
	return true
}

// packed counts a pack, and reports whether it is one that the metadata know.
func (c *count) packed(i store.Info) bool {
	_, hash, err := pack.ParseName(i.Name)
	p, ok := c.packs[hash]
	if err != nil || !ok {
		return false
	}
	c.out.Packs.add(i.Size)
	delete(c.absent, p.Number)
	switch {
	case uint64(i.Size) != p.Len:
		c.differs("%s has %d bytes, and the volume's metadata say %d", i.Name, i.Size, p.Len)
		c.stray(i)
	case p.Condemned != 0:
		c.parts[Condemned].add(i.Size)
	default:
		c.used(i, c.inPacks[p.Number], Dead)
	}
	return true
}

// used counts an object of which files and snapshots use some bytes. The others are of a kind.
func (c *count) used(i store.Info, used engine.Blocks, rest Kind) {
	size := uint64(i.Size)
	if used.Present+used.Past > size {
		c.differs("%s has %d bytes, and files use %d of them", i.Name, size, used.Present+used.Past)
	}
	live := min(used.Present, size)
	past := min(used.Past, size-live)
	counted := false
	for _, p := range []struct {
		kind  Kind
		bytes uint64
	}{{Live, live}, {Snapshots, past}, {rest, size - live - past}} {
		if p.bytes > 0 && !counted {
			counted = true
			c.parts[p.kind].Objects++
		}
		c.parts[p.kind].Bytes += int64(p.bytes)
	}
}

// settle counts objects of checkpoints that no manifest listed. A checkpoint may have been made
// since, or is being made.
func (c *count) settle(ctx context.Context, needed checkpoints.Needed) error {
	if len(c.loose) == 0 {
		return nil
	}
	now, err := c.need(ctx)
	if err != nil {
		return err
	}
	for _, i := range c.loose {
		if needed.Making || now.Making || now.Names[i.Name] {
			c.parts[Checkpoints].add(i.Size)
		} else {
			c.stray(i)
		}
	}
	return nil
}

// compare finds what is not in the store: what waits for it, and what should be there (space-2).
func (c *count) compare(ctx context.Context, before []log.SegmentInfo) error {
	var condemned map[uint64]uint64
	known := false
	for _, s := range before {
		if s.Dropped || c.seen[s.Seq] {
			continue
		}
		if !s.Uploaded {
			if s.Local {
				c.out.Waiting.add(int64(s.Len))
			}
			continue
		}
		if !known { // what is condemned goes from the store first
			var err error
			if condemned, err = c.condemned(); err != nil {
				return err
			}
			known = true
		}
		if now, ok := c.log.Segment(s.Seq); ok && now.Uploaded && !now.Dropped && !is(condemned, s.Seq) {
			c.differs("the store does not list %s, %d bytes, which was stored", s.Name, s.Len)
		}
	}
	var now engine.Packs
	if len(c.absent) > 0 { // what took the place of one may be there already
		var err error
		if now, err = c.now(); err != nil {
			return err
		}
		maps.DeleteFunc(c.absent, func(n uint64, _ engine.Pack) bool { return now.All[n-1].Condemned != 0 })
	}
	of, err := uuid.Parse(c.volume)
	if err != nil {
		return err
	}
	for _, n := range slices.Sorted(maps.Keys(c.absent)) {
		// It may have come after the store was listed, and before the metadata were read.
		p := c.absent[n]
		var failed error
		has := func(p engine.Pack) bool {
			i, err := c.store.Stat(ctx, pack.Name(segment.VolumeID(of), p.Hash))
			if err != nil && !errors.Is(err, store.ErrNotExist) {
				failed = err
			}
			return err == nil && uint64(i.Size) == p.Len
		}
		// The packs that it was made of stay until it is there.
		former := len(p.From) > 0 && !slices.ContainsFunc(p.From, func(n uint64) bool { return !has(now.All[n-1]) })
		if there := has(p); failed != nil {
			return fmt.Errorf("look for pack %d: %w", n, failed)
		} else if there || former {
			continue
		}
		c.differs("the store does not list pack %d, %d bytes, which has what was in segments that are gone", n, c.absent[n].Len)
	}
	if end := c.log.End(); end.Off > 0 {
		if _, closed := c.log.Segment(end.Seq); !closed {
			c.out.Waiting.add(int64(end.Off))
		}
	}
	return nil
}

// stray counts an object that nobody knows.
func (c *count) stray(i store.Info) {
	c.parts[Orphans].add(i.Size)
	if len(c.out.Strays) < most {
		c.out.Strays = append(c.out.Strays, i.Name)
	}
}

func (c *count) differs(format string, args ...any) {
	if c.out.Differs = append(c.out.Differs, fmt.Sprintf(format, args...)); len(c.out.Differs) > most {
		c.out.Differs = append(slices.Clip(c.out.Differs[:most-1]), "there is more")
	}
}

// is reports whether a segment is condemned.
func is(condemned map[uint64]uint64, seq uint64) bool {
	_, yes := condemned[seq]
	return yes
}

func (a *Amount) add(bytes int64) {
	a.Objects++
	a.Bytes += bytes
}
