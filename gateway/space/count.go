// SPDX-License-Identifier: Apache-2.0

package space

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
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

	out   Store
	parts map[Kind]*Amount
	seen  map[uint64]bool // segments of the log that are listed
	gone  map[uint64]bool // segments that were dropped before the store was listed
	loose []store.Info    // objects of checkpoints that nobody needs, as far as was known
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
	if err := c.compare(before); err != nil {
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
	case s.Dropped || is(c.usage.Condemned, s.Seq):
		c.parts[Condemned].add(i.Size)
		return
	}
	used := c.usage.Blocks[s.Seq]
	if used.Present+used.Past > s.Len {
		c.differs("%s has %d bytes, and files use %d of them", i.Name, s.Len, used.Present+used.Past)
	}
	live := min(used.Present, s.Len)
	past := min(used.Past, s.Len-live)
	rest := Log
	if s.Seq <= c.usage.Checkpoint.At.Seq {
		rest = Dead
	}
	counted := false
	for _, p := range []struct {
		kind  Kind
		bytes uint64
	}{{Live, live}, {Snapshots, past}, {rest, s.Len - live - past}} {
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
func (c *count) compare(before []log.SegmentInfo) error {
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
