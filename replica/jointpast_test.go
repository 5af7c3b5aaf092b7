// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// What a crowd does with the past of its log: checkpoints, which all copies make alike, what is
// condemned and dropped, and copies that begin anew (ADR 47, 52).

// past is what a crowd knows of checkpoints.
type past struct {
	objects  *sharedObjects
	made     map[uint64]*checkpoint.Manifest // by number, as somebody made it
	unused   map[uint64][]uint64             // by number
	compared int                             // times that a copy made what another one had made
	dropped  int                             // segments
	anew     int                             // times that a copy began anew
	away     *site                           // is down for long; nil: none is
	moving   moving
}

// sharedObjects is a store that all sites reach.
type sharedObjects struct {
	sync.Mutex
	all map[string][]byte
}

func (o *sharedObjects) Has(_ context.Context, name string) (bool, error) {
	o.Lock()
	defer o.Unlock()
	return o.all[name] != nil, nil
}

func (o *sharedObjects) Put(_ context.Context, name string, b []byte) error {
	o.Lock()
	defer o.Unlock()
	if o.all[name] == nil {
		o.all[name] = bytes.Clone(b)
	}
	return nil
}

func (o *sharedObjects) Get(_ context.Context, name string) ([]byte, error) {
	o.Lock()
	defer o.Unlock()
	if o.all[name] == nil {
		return nil, errors.New("no such object")
	}
	return bytes.Clone(o.all[name]), nil
}

// closedOf returns what KnowSegments needs.
func closedOf(l *log.Log) func(uint64) (engine.Segment, bool) {
	return func(seq uint64) (engine.Segment, bool) {
		s, ok := l.Segment(seq)
		return engine.Segment{Seq: s.Seq, Epoch: s.Epoch, Key: s.Key, Salt: s.Salt, Len: s.Len, Hash: s.Hash}, ok
	}
}

// make makes the checkpoints that copies have cut, and compares them.
func (c *crowd) make() {
	c.Helper()
	for _, s := range c.sites {
		if s.node == nil {
			continue
		}
		cut := c.engines[s.name].TakeCut()
		if cut == nil {
			continue
		}
		keys := func(uint32) (segment.DataKey, bool) { return segment.DataKey(testKey), true }
		m, _, err := cut.Write(context.Background(), keys, c.past.objects)
		c.must(err)
		uses, err := cut.Uses(context.Background())
		c.must(err)
		c.plan(cut, uses)
		if c.random.IntN(2) == 0 { // else the next one reads what it is a change of
			c.must(c.engines[s.name].Keep(cut))
		} else {
			c.must(cut.Close())
		}
		if was := c.past.made[cut.Number]; was != nil {
			c.past.compared++
			if was.Hash() != m.Hash() {
				c.Fatalf("checkpoint %d of %s, at %s of %d pairs, is not what another copy made, at %s of %d", cut.Number, s.name, m.At,
					m.Pairs, was.At, was.Pairs)
			}
		}
		c.past.made[cut.Number], c.past.unused[cut.Number] = m, uses.Unused
	}
}

// ask has the home do something, whose outcome may stay unknown.
func (c *crowd) ask(home *site, f func(ctx context.Context, e *engine.Engine) error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	result := make(chan error, 1)
	e := c.engines[home.name]
	go func() { result <- f(ctx, e) }()
	steps := 0
	c.until("it is done", func() bool {
		if steps++; steps == 50 {
			cancel()
		}
		select {
		case err := <-result:
			if what, again := outcomeOf(err); err != nil && !again && !errors.Is(err, volume.ErrInvalid) {
				c.Fatalf("the home cannot do that: %s", what)
			}
			return true
		default:
			return false
		}
	})
}

// tend does one of the things that gateways do now and then.
func (c *crowd) tend() {
	c.Helper()
	c.make()
	home := c.home()
	if home == nil {
		return
	}
	now, err := c.engines[home.name].Checkpoints()
	if err != nil {
		return // it is about to end
	}
	kind := c.random.IntN(9)
	if m := &c.past.moving; c.random.IntN(2) == 0 {
		switch {
		case len(m.plans[now.Made.Number]) > 0:
			kind = 6
		}
	}
	switch newest := c.past.made[now.Placed.Number]; { // while one is away, all is done soon
	case c.past.away == nil:
	case newest != nil && now.Placed.Number > now.Made.Number:
		kind = 2
	case len(c.past.unused[now.Made.Number]) > 0 && kind > 3 && kind < 6:
		kind = 3
	}
	switch kind {
	case 0, 1:
		home.replica.Roll()
		whole := c.random.IntN(6) == 0
		c.ask(home, func(ctx context.Context, e *engine.Engine) error { return e.AskCheckpoint(ctx, 0, whole) })
	case 2:
		if m := c.past.made[now.Placed.Number]; m != nil && now.Placed.Number > now.Made.Number {
			c.ask(home, func(ctx context.Context, e *engine.Engine) error {
				return e.MadeCheckpoint(ctx, m, now.Placed.Number, 0)
			})
		}
	case 3:
		for _, s := range c.sites { // those that answer have the log up to there
			if s.node != nil && s.log.Durable().Less(now.Made.At) {
				return
			}
		}
		if gone := c.past.unused[now.Made.Number]; len(gone) > 0 {
			c.ask(home, func(ctx context.Context, e *engine.Engine) error { return e.Condemn(ctx, now.Made.Number, gone) })
		}
	case 6, 7, 8:
		for _, s := range c.sites {
			if s.node != nil && s.log.Durable().Less(now.Made.At) {
				return
			}
		}
		c.packs(home, now.Made.Number)
	default:
		c.drop(c.sites[c.random.IntN(len(c.sites))])
	}
}

// leave ends the process of a copy that is no member, for long.
func (c *crowd) leave() {
	home := c.home()
	if home == nil {
		return
	}
	for _, s := range c.sites {
		if ctl := home.replica.Control(); s.node != nil && ctl != nil && !ctl.IsMember(s.replica.self) {
			c.down(s, c.random.IntN(2) == 0)
			c.past.away = s
			return
		}
	}
}

// drop lets a copy drop what is condemned, and get what it lacks.
func (c *crowd) drop(s *site) {
	if s.node == nil {
		return
	}
	gone, err := c.engines[s.name].Condemned()
	if err != nil {
		return
	}
	table, err := c.engines[s.name].Packs()
	if err != nil {
		return
	}
	good := c.gather(s, &table)
	for seq := range gone {
		n, moved := table.Moved[seq]
		if now, _ := table.Now(n); moved && !good[now.Number] {
			continue
		}
		if x, ok := s.log.Segment(seq); ok && !x.Dropped {
			c.must(s.store.Delete(context.Background(), x.Name))
			if !c.maybe(s) {
				return
			}
			if s.replica.Drop(seq) == nil {
				c.past.dropped++
				if moved {
					c.past.moving.moved++
				}
			}
		}
	}
	c.dropPacks(s, &table, good)
	_ = s.replica.FetchPast(context.Background(), func(string, uint64) bool { return false })
}

// beginAnew lets the copies begin with a checkpoint that are behind, as gateway/checkpoints does.
func (c *crowd) beginAnew() {
	c.Helper()
	for _, s := range c.sites {
		if s.anew.Swap(0) == 0 {
			continue
		}
		var made uint64
		for _, o := range c.sites {
			if o.node != nil {
				if now, err := c.engines[o.name].Checkpoints(); err == nil {
					made = max(made, now.Made.Number)
				}
			}
		}
		c.down(s, false)
		m := c.past.made[made]
		if m == nil {
			continue
		}
		pool, err := s.disk.Open()
		c.must(err)
		dir, err := pool.Volume(testVolume)
		c.must(err)
		if c.install(s, dir, m, pool) {
			c.past.anew++
		}
		s.disk.Kill()
	}
}

func (c *crowd) install(s *site, dir cachepool.Dir, m *checkpoint.Manifest, pool cachepool.Pool) (done bool) {
	l, err := log.Open(log.Config{Dir: dir, Room: pool.Room(), Volume: segment.VolumeID(jointID), DataKey: testKey, Keys: jointKeys,
		Rand: rand.Reader,
		Now:  time.Now, SegmentSize: segmentSize})
	c.must(err)
	if !l.End().Less(m.At) {
		c.must(l.Close())
		return false
	}
	folder := filepath.Join(dir.Path(), "meta")
	c.must(engine.Install(context.Background(), engine.Config{ID: jointID, FS: s.disk.FS(), Dir: folder, DataKey: testKey,
		Rand: rand.Reader, Logger: slog.New(slog.DiscardHandler)}, m, c.past.objects,
		func(all []engine.Segment, gone map[uint64]uint64) error {
			infos := make([]log.SegmentInfo, len(all))
			for i, x := range all {
				_, dropped := gone[x.Seq]
				infos[i] = log.SegmentInfo{Seq: x.Seq, Epoch: x.Epoch, Key: x.Key, Salt: x.Salt, Len: x.Len, Hash: x.Hash, Dropped: dropped}
				if was, ok := l.Segment(x.Seq); ok && !dropped {
					infos[i].Local, infos[i].Uploaded = was.Local, was.Uploaded
				}
			}
			if err := errors.Join(l.Close(), s.disk.FS().RemoveAll(folder)); err != nil {
				return err
			}
			return log.Rebase(dir, infos)
		}))
	return true
}
