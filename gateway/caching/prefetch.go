// SPDX-License-Identifier: Apache-2.0

package caching

import (
	"cmp"
	"context"
	"errors"
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
	// prefetchAgain is how long a file or directory is not looked at again, and prefetchTime how
	// long one is at most. After an error it is tried again sooner.
	prefetchAgain, prefetchTime = 5 * time.Minute, 5 * time.Minute
	prefetchRetry               = 10 * time.Second
	// prefetchPlaces is of how many files it is remembered where they are, and prefetchDirs of how
	// many directories what was read of them. The rest is forgotten.
	prefetchPlaces, prefetchDirs = 16384, 256
	// prefetchRecent is how many of the files that are read of a directory are told apart.
	prefetchRecent = 64
	// prefetchQueue is how many files and directories may wait. More are not fetched.
	prefetchQueue = 1024
	// prefetchVolumes is for how many volumes something is fetched at a time.
	prefetchVolumes = 4
	// prefetchAhead is how many files are fetched ahead of who reads in the order of names, and
	// prefetchStep how many names may lie between two.
	prefetchAhead, prefetchStep = 4, 16
	// prefetchNames is of how large a directory the order is followed.
	prefetchNames = 10000
)

// prefetch is what clients read of a volume lately, as far as that tells what they will read.
type prefetch struct {
	fetched atomic.Uint64 // bytes

	mu     sync.Mutex
	places map[volume.Handle]place
	dirs   map[volume.Handle]*reading
	begun  map[volume.Handle]time.Time // files that are read, and files and directories that were fetched
	queue  []task
	works  bool
}

// place is where a file is.
type place struct {
	dir  volume.Handle
	name string
}

// reading is what is read of a directory: the newest names, without repeats, the last one last.
type reading struct{ names []string }

// task is a directory or a file to fetch, or what follows names in the order of a directory.
type task struct {
	at    volume.Handle
	names []string
}

// room makes room in a map that is to have at most so many entries: any of them go.
func room[K comparable, V any](m map[K]V, most int) {
	if len(m) < most {
		return
	}
	for k := range m {
		if delete(m, k); len(m) <= most/2 {
			return
		}
	}
}

func (c *Caching) prefetchOf(id string) *prefetch {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.prefetches[id]
	if p == nil {
		p = &prefetch{places: map[volume.Handle]place{}, dirs: map[volume.Handle]*reading{}, begun: map[volume.Handle]time.Time{}}
		c.prefetches[id] = p
	}
	return p
}

// forgetPrefetches forgets volumes of which nothing is open here.
func (c *Caching) forgetPrefetches() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.prefetches {
		if c.cfg.Copies.Local(id) == nil {
			delete(c.prefetches, id)
		}
	}
}

// Found notes that a client of this gateway learned that a directory has a file of a name. local is
// what is open here of the volume.
func (c *Caching) Found(local *copies.Local, dir volume.Handle, name string, f volume.Attr) {
	if mode := local.Prefetch(); f.Type != volume.Regular || mode != federation.PrefetchDirectory && mode != federation.PrefetchPattern {
		return
	}
	p := c.prefetchOf(local.UUID)
	p.mu.Lock()
	defer p.mu.Unlock()
	room(p.places, prefetchPlaces)
	p.places[f.Handle] = place{dir, name}
}

// Reads notes that a client of this gateway reads a file, and begins to fetch what it will probably
// read next. It does not wait.
func (c *Caching) Reads(local *copies.Local, f volume.Handle) {
	mode := local.Prefetch()
	if mode == "" || mode == federation.PrefetchNone {
		return
	}
	p, now := c.prefetchOf(local.UUID), c.cfg.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	at, known := p.places[f]
	if !p.begins(f, now) && mode == federation.PrefetchFile {
		return
	}
	switch {
	case mode == federation.PrefetchFile:
		p.add(task{at: f})
	case known:
		r := p.dirs[at.dir]
		if r == nil {
			room(p.dirs, prefetchDirs)
			r = &reading{}
			p.dirs[at.dir] = r
		}
		if slices.Contains(r.names, at.name) {
			return
		}
		r.names = append(r.names[max(0, len(r.names)-prefetchRecent+1):], at.name)
		n := len(r.names)
		switch {
		case mode == federation.PrefetchDirectory && n >= 2 && p.begins(at.dir, now):
			p.add(task{at: at.dir})
		case mode == federation.PrefetchPattern && n >= 3:
			p.add(task{at: at.dir, names: slices.Clone(r.names[n-3:])})
		}
	}
	if len(p.queue) > 0 && !p.works {
		p.works = true
		go c.prefetchAll(local, p)
	}
}

// begins reports whether something has not been looked at lately, and notes that it is. The caller
// holds mu.
func (p *prefetch) begins(h volume.Handle, now time.Time) bool {
	if at, ok := p.begun[h]; ok && now.Sub(at) < prefetchAgain && !now.Before(at) {
		return false
	}
	room(p.begun, prefetchPlaces)
	p.begun[h] = now
	return true
}

// add adds a task, instead of one that waits for the same directory. The caller holds mu.
func (p *prefetch) add(t task) {
	if i := slices.IndexFunc(p.queue, func(x task) bool { return x.at == t.at }); i >= 0 {
		p.queue[i] = t
	} else if len(p.queue) < prefetchQueue {
		p.queue = append(p.queue, t)
	} else {
		delete(p.begun, t.at)
	}
}

// prefetchAll carries out the tasks of a volume until there are none, or what is open of it closes.
func (c *Caching) prefetchAll(local *copies.Local, p *prefetch) {
	ctx, done, err := local.Use(context.Background())
	if err != nil {
		p.next(false)
		return
	}
	defer done()
	for {
		t, ok := p.next(ctx.Err() == nil)
		if !ok {
			return
		}
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done(): // it closes
			continue
		}
		once, cancel := context.WithTimeout(engine.Recent(ctx), prefetchTime)
		err := c.prefetchOne(once, local, p, t)
		cancel()
		<-c.turn
		if err != nil && ctx.Err() == nil {
			c.cfg.Logger.Debug("what will probably be read is not fetched", "volume", local.UUID, "error", err)
			p.mu.Lock()
			p.begun[t.at] = c.cfg.Now().Add(prefetchRetry - prefetchAgain)
			p.mu.Unlock()
		}
	}
}

// next returns the next task; false: there is none, or it does not go on. Then nothing works any
// more.
func (p *prefetch) next(goOn bool) (t task, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !goOn {
		p.queue = nil
	}
	if len(p.queue) == 0 {
		p.works = false
		return t, false
	}
	t = p.queue[0]
	p.queue = p.queue[1:]
	return t, true
}

// prefetchOne carries out a task. It fetches no more than there is room for without pushing out
// what it fetched first.
func (c *Caching) prefetchOne(ctx context.Context, local *copies.Local, p *prefetch, t task) error {
	w := warmer{copy: local, tell: func(*forwardpb.WarmProgress) error { return nil }}
	start, err := local.Engine.GetAttr(ctx, volume.Request{}, t.at)
	if err != nil {
		return err
	}
	files := []volume.Attr{start}
	if start.Type == volume.Directory {
		var entries []volume.Entry
		if entries, err = w.entries(ctx, t.at); err != nil {
			return err
		}
		files = chosen(entries, t.names)
	}
	left := c.prefetchRoom(local.UUID)
	fetch := func(ctx context.Context, refs []segment.BlockRef) error {
		missing := local.Log.Missing(refs)
		if len(missing) == 0 {
			return ctx.Err()
		}
		if left -= int64(sizeOf(missing)); left < 0 {
			return errNoRoom
		}
		before := w.progress.Moved
		err := w.fetch(ctx, missing)
		p.fetched.Add(w.progress.Moved - before)
		if err == nil && w.progress.Left > 0 { // it came, and could not be kept
			err = errNoRoom
		}
		return err
	}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		p.mu.Lock()
		p.begins(f.Handle, c.cfg.Now())
		p.mu.Unlock()
		if err := w.file(ctx, f, fetch); errors.Is(err, errNoRoom) {
			return nil // what is fetched already is to stay
		} else if err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

var errNoRoom = errors.New("it is more than may be fetched at once")

// prefetchRoom is how much of a volume is fetched for one task: what is free, and a part of what is
// kept. What was read once, or not yet, may take about a tenth before it goes (ADR 18).
func (c *Caching) prefetchRoom(id string) int64 {
	s := c.cfg.Pools.Of(id).Reads.Status()
	var kept int64
	for _, v := range s.Volumes {
		kept += v.Used()
	}
	n := max(0, s.Room.Limit-s.Room.ReservedForDelete-s.Room.Used) + kept/16
	if v, ok := s.Volumes[id]; ok && v.Limit > 0 {
		n = min(n, max(0, v.Limit-v.Used())+v.Used()/16)
	}
	return n
}

// entries lists the first of what a directory has.
func (w *warmer) entries(ctx context.Context, dir volume.Handle) (all []volume.Entry, err error) {
	var after uint64
	for len(all) < prefetchNames && ctx.Err() == nil {
		some, eof, err := w.copy.Engine.ReadDir(ctx, volume.Request{}, dir, after, warmNames)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if eof || len(some) == 0 {
			return all, nil
		}
		after = some[len(some)-1].Cookie
	}
	return all, ctx.Err()
}

// chosen returns the regular files of a directory in the order of their names. If some were read,
// the last of them at equal distances in that order, it returns only those that follow.
func chosen(entries []volume.Entry, read []string) (out []volume.Attr) {
	entries = slices.DeleteFunc(entries, func(e volume.Entry) bool { return e.Attr.Type != volume.Regular })
	slices.SortFunc(entries, func(a, b volume.Entry) int { return byNumber(a.Name, b.Name) })
	if len(read) == 0 {
		for _, e := range entries {
			out = append(out, e.Attr)
		}
		return out
	}
	var at [3]int
	for i := range at {
		n, ok := slices.BinarySearchFunc(entries, read[i], func(e volume.Entry, name string) int { return byNumber(e.Name, name) })
		if !ok {
			return nil
		}
		at[i] = n
	}
	step := at[2] - at[1]
	if step != at[1]-at[0] || step == 0 || step > prefetchStep || step < -prefetchStep {
		return nil
	}
	for k := 1; k <= prefetchAhead; k++ {
		if n := at[2] + k*step; n >= 0 && n < len(entries) {
			out = append(out, entries[n].Attr)
		}
	}
	return out
}

// byNumber orders names as people do: frame-9 comes before frame-10.
func byNumber(a, b string) int {
	digits := func(s string) int {
		return len(s) - len(strings.TrimLeft(s, "0123456789"))
	}
	x, y := a, b
	for x != "" && y != "" {
		if n, m := digits(x), digits(y); n > 0 && m > 0 {
			p, q := strings.TrimLeft(x[:n], "0"), strings.TrimLeft(y[:m], "0")
			if d := cmp.Or(cmp.Compare(len(p), len(q)), cmp.Compare(p, q)); d != 0 {
				return d
			}
			x, y = x[n:], y[m:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}
