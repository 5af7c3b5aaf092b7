// SPDX-License-Identifier: Apache-2.0

package caching

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/volume"
)

const (
	pinEvery = 3 * time.Second  // looks for something to pin
	pinAgain = 10 * time.Second // after a pass that could not pin all
	// pinShare is how much longer than a pass took it waits until the next one, so that pins of
	// what changes all the time cost little.
	pinShare = 10
)

// Pins is what is pinned of a volume, in bytes of sealed data.
type Pins struct {
	Files  uint64 `json:"files"`
	Wanted int64  `json:"wanted"`
	Open   int64  `json:"open"` // of that, is not sealed yet: it is in the log
	// Left is for what there is no room.
	Left int64 `json:"left"`
	// Problem is why the last pass did not see all.
	Problem string `json:"problem,omitempty"`
}

// pinning is what is known of a volume's pins. While busy, only its pass changes it.
type pinning struct {
	busy  atomic.Bool
	paths []string
	by    *copies.Local    // of the last pass
	whole bool             // that was complete
	at    segment.Position // all up to here was seen by it
	lost  uint64           // of the read cache, before it
	next  time.Time        // not before
}

// pinPasses is how many volumes have a pass at a time.
const pinPasses = 4

// Run pins what volumes want, again after changes, until ctx ends.
func (c *Caching) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	known := map[string]*pinning{}
	turn := make(chan struct{}, pinPasses)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.cfg.Timers.After(pinEvery):
		}
		c.forgetPrefetches()
		_, kept := c.cfg.Pools.Reads()
		for id, v := range kept {
			record, ok := c.cfg.View.Record(id)
			copied := c.cfg.Copies.Local(id)
			if !ok || copied == nil {
				continue
			}
			if known[id] == nil {
				known[id] = &pinning{}
			}
			p, paths := known[id], pinsAt(c.cfg.View.Here(record), c.cfg.Site, c.cfg.Copies.Copy(id) != nil)
			if p.busy.Load() || !p.due(c.cfg.Now(), copied, paths, v.Pinned) {
				continue
			}
			p.busy.Store(true)
			work.Go(func() {
				defer p.busy.Store(false)
				select {
				case turn <- struct{}{}:
					defer func() { <-turn }()
					c.pin(ctx, p, copied, paths)
				case <-ctx.Done():
				}
			})
		}
		for id, p := range known {
			if _, ok := kept[id]; !ok && !p.busy.Load() {
				delete(known, id)
				c.show(id, nil)
			}
		}
	}
}

// show sets what is told of a volume's pins; nil: it has none.
func (c *Caching) show(id string, p *Pins) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.pins, id); p != nil {
		c.pins[id] = *p
	}
}

// pinsAt returns the paths of a volume that are pinned at a site: those that name it, and if it has
// a copy those that name none.
func pinsAt(v federation.Volume, site string, hasCopy bool) (paths []string) {
	for _, p := range v.Spec.Cache.Pin {
		if len(p.Sites) == 0 && hasCopy || slices.Contains(p.Sites, site) {
			paths = append(paths, p.Path)
		}
	}
	return paths
}

// due reports whether there is to be a pass: something may have changed since the last one, or that
// was not complete. there is how much is pinned now.
func (p *pinning) due(now time.Time, copied *copies.Local, paths []string, there int64) bool {
	if len(paths) == 0 && there == 0 && len(p.paths) == 0 {
		return false
	}
	if !slices.Equal(paths, p.paths) || copied != p.by {
		return true
	}
	unchanged := p.whole && copied.Engine.Applied() == p.at && copied.Cache.PinsLost() == p.lost
	return !unchanged && !now.Before(p.next)
}

// pin makes a pass over a volume's pins.
func (c *Caching) pin(ctx context.Context, p *pinning, copied *copies.Local, paths []string) {
	ctx, done, err := copied.Use(ctx)
	if err != nil {
		return
	}
	defer done()
	begin, at, lost, pass := c.cfg.Now(), copied.Engine.Applied(), copied.Cache.PinsLost(), copied.Cache.BeginPass()
	w := pinner{pass: pass, seen: map[uint64]bool{}, warmer: warmer{copy: copied, tell: func(*forwardpb.WarmProgress) error { return nil }}}
	w.skip, w.now = w.again, c.cfg.Now
	for _, where := range paths {
		if err == nil {
			err = w.all(engine.Recent(ctx), where)
		}
	}
	walked := c.cfg.Now().Sub(begin) - w.moving
	if err == nil {
		copied.Cache.EndPass(ctx, pass) // else what was not seen would not be pinned any more
	}
	if ctx.Err() != nil { // the copy closes
		return
	}
	p.paths, p.by, p.whole, p.at, p.lost = paths, copied, true, at, lost
	p.next = c.cfg.Now().Add(walked * pinShare)
	if err = errors.Join(err, w.failed); err != nil || w.left > 0 || w.open > 0 {
		p.whole, p.next = false, c.cfg.Now().Add(max(pinAgain, walked*pinShare)) // once more, whether something changes or not
	}
	if len(paths) == 0 {
		c.show(copied.UUID, nil)
		return
	}
	told := &Pins{Files: w.progress.Files, Wanted: w.wanted, Open: w.open, Left: w.left}
	if err != nil {
		told.Problem = err.Error()
	}
	c.show(copied.UUID, told)
}

// pinner pins what paths name.
type pinner struct {
	warmer
	now          func() time.Time
	pass         uint8
	wanted, left int64
	open         int64 // is not sealed yet
	failed       error // the first block that could not be read
	inARow       int   // how many calls of Pin failed, the last ones
	moving       time.Duration
	seen         map[uint64]bool // directories that were walked, and files that have several names
}

// again reports whether something was walked already, since a pattern, or two, may name it twice.
func (w *pinner) again(a volume.Attr) bool {
	if a.Type != volume.Directory && a.Nlink < 2 {
		return false
	}
	again := w.seen[a.Handle.Ino]
	w.seen[a.Handle.Ino] = true
	return again
}

// all pins what a path names: names may have the wildcards of path.Match, and ** stands for any
// number of directories. A directory stands for all below. What is not there is no error.
func (w *pinner) all(ctx context.Context, where string) error {
	root, err := w.copy.Engine.GetAttr(ctx, volume.Request{}, volume.Root)
	if err != nil {
		return err
	}
	var names []string
	for name := range strings.SplitSeq(path.Clean("/"+where), "/") {
		if name != "" {
			names = append(names, name)
		}
	}
	return w.match(ctx, root, names)
}

func (w *pinner) match(ctx context.Context, at volume.Attr, names []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(names) == 0 {
		return w.walk(ctx, at, w.keep)
	}
	if at.Type != volume.Directory {
		return nil
	}
	name, rest := names[0], names[1:]
	if !strings.ContainsAny(name, `*?[\`) {
		below, err := w.copy.Engine.Lookup(ctx, volume.Request{}, at.Handle, name)
		if errors.Is(err, volume.ErrNotExist) || errors.Is(err, volume.ErrStale) {
			return nil
		}
		if err != nil {
			return err
		}
		return w.match(ctx, below, rest)
	}
	if name == "**" {
		if err := w.match(ctx, at, rest); err != nil || len(rest) == 0 {
			return err
		}
	}
	return w.each(ctx, at, func(e volume.Entry) error {
		if name == "**" {
			if e.Attr.Type != volume.Directory || w.seen[e.Attr.Handle.Ino] {
				return nil
			}
			return w.match(ctx, e.Attr, names)
		}
		if ok, err := path.Match(name, e.Name); err != nil || !ok {
			return err
		}
		return w.match(ctx, e.Attr, rest)
	})
}

// each calls do for each entry of a directory.
func (w *pinner) each(ctx context.Context, dir volume.Attr, do func(volume.Entry) error) error {
	var after uint64
	for {
		entries, eof, err := w.copy.Engine.ReadDir(ctx, volume.Request{}, dir.Handle, after, warmNames)
		if errors.Is(err, volume.ErrStale) || errors.Is(err, volume.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := do(e); err != nil {
				return err
			}
			after = e.Cookie
		}
		if eof || len(entries) == 0 {
			return nil
		}
	}
}

// keep pins blocks. One that cannot be read keeps no others from being pinned.
func (w *pinner) keep(ctx context.Context, refs []segment.BlockRef) error {
	w.wanted += int64(sizeOf(refs))
	begin := w.now()
	left, open, err := w.copy.Log.Pin(ctx, refs, w.pass, w.left > 0)
	w.moving += w.now().Sub(begin)
	w.left += left
	w.open += open
	if err == nil {
		w.inARow = 0
		return ctx.Err()
	}
	if w.failed == nil {
		w.failed = err
	}
	if w.inARow++; w.inARow >= pinFailures { // nobody may be there who has it
		return err
	}
	return ctx.Err()
}

// pinFailures is after how many failures in a row a pass ends.
const pinFailures = 3
