// SPDX-License-Identifier: Apache-2.0

// Package caching tells what a gateway keeps on its pool and in memory, and brings data there that
// somebody will need.
package caching

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/readcache"
	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/pools"
)

// Config has what a Caching needs.
type Config struct {
	Gateway, Site string
	Incarnation   string // of the main pool
	View          *view.View
	Copies        *copies.Manager
	Pools         *pools.Pools
	Memory        *engine.BlockCache
	Now           func() time.Time
	Timers        clockwork.Clock
	Logger        *slog.Logger
	// Own returns an error of gRPC unless who calls may know of all this, and may have it changed.
	Own func(ctx context.Context) error
}

// Caching is what a gateway keeps. Its methods may be called from any goroutine.
type Caching struct {
	cfg Config

	turn chan struct{} // of those that fetch what will probably be read

	mu         sync.Mutex
	pins       map[string]Pins      // by volume
	prefetches map[string]*prefetch // by volume
}

// New returns a Caching.
func New(cfg Config) *Caching {
	return &Caching{cfg: cfg, turn: make(chan struct{}, prefetchVolumes), pins: map[string]Pins{}, prefetches: map[string]*prefetch{}}
}

// Status is what a gateway keeps, as `weir cache -o json` has it. Amounts are in bytes.
type Status struct {
	Pool    Pool     `json:"pool"`  // the main one, once more
	Pools   []Pool   `json:"pools"` // the main one first
	Memory  Memory   `json:"memory"`
	Volumes []Volume `json:"volumes"` // that have a copy here, by name
}

// Pool is one of the gateway's cache pools.
type Pool struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`

	Limit int64 `json:"limit"`
	Used  int64 `json:"used"`
	// Kept is what is there to be read, and goes when the room is needed.
	Kept int64 `json:"kept"`
	// ReservedForDelete is the part of the limit that only deletes may use.
	ReservedForDelete int64 `json:"reservedForDelete"`
	// Incarnation is the pool's identity.
	Incarnation string `json:"incarnation"`
	// Report is how the storage below it is.
	Report *cachepool.Report `json:"report,omitempty"`
}

// Memory is the plaintext blocks in memory.
type Memory struct {
	Limit  int64  `json:"limit"`
	Used   int64  `json:"used"`
	Hits   uint64 `json:"hits"` // blocks, since the gateway started
	Misses uint64 `json:"misses"`
}

// Volume is what is kept of one volume on the pool.
type Volume struct {
	Volume string `json:"volume"`
	UUID   string `json:"uuid"`
	// Pool is the one that it is on. Moves is how far its move to another one is; nil: it does not
	// move. Unmatched says why it is not on one that its policy asks for.
	Pool      string      `json:"pool"`
	Moves     *pools.Move `json:"moves,omitempty"`
	Unmatched string      `json:"unmatched,omitempty"`
	// Segments is the part of the log that could go: a store has it too. Once is what was read from
	// elsewhere, and not again. Often is what is read often.
	Segments int64 `json:"segments"`
	Once     int64 `json:"once"`
	Often    int64 `json:"often"`
	// Pinned is what is kept for its pins, and Pins what they want; nil: there are none.
	Pinned int64 `json:"pinned"`
	Pins   *Pins `json:"pins,omitempty"`
	// Limit is the volume's cache.size, 0 for none. Reserve is what others cannot push out: its
	// cache.reserve, unless the reserves of all volumes are too much for the pool.
	Limit   int64 `json:"limit"`
	Reserve int64 `json:"reserve"`
	// Asked is its cache.reserve.
	Asked int64 `json:"asked,omitempty"`
	// Log is all of the log that is on the pool, Segments too; Metadata is what the volume's names
	// and attributes take there.
	Log      int64 `json:"log"`
	Metadata int64 `json:"metadata"`
	// Outlined is how many bytes of the log came without its blocks since the volume was opened
	// here, at a site without a copy; 0 elsewhere.
	Outlined uint64 `json:"outlined,omitempty"`
	// Leased: reads ask nobody now, at a site without a copy (ADR 23).
	Leased bool `json:"leased,omitempty"`
	// Prefetched is how many bytes came before anybody read them, since the volume was opened here.
	Prefetched uint64 `json:"prefetched,omitempty"`
	Reads      Reads  `json:"reads"`
}

// Reads says from where blocks came that were not in memory, since the copy was opened.
type Reads struct {
	Log            uint64 `json:"log"` // the log's own files on the pool
	Cache          uint64 `json:"cache"`
	Elsewhere      uint64 `json:"elsewhere"` // a store, or another gateway
	LogBytes       uint64 `json:"logBytes"`
	CacheBytes     uint64 `json:"cacheBytes"`
	ElsewhereBytes uint64 `json:"elsewhereBytes"`
}

// Status returns what is kept.
func (c *Caching) Status() Status {
	m := c.cfg.Memory.Status()
	out := Status{Memory: Memory{Limit: m.Limit, Used: m.Bytes, Hits: m.Hits, Misses: m.Misses}, Volumes: []Volume{}}
	moves := c.cfg.Pools.Moves()
	for _, p := range c.cfg.Pools.All() {
		s := p.Reads.Status()
		one := Pool{Name: p.Name, Labels: p.Labels, Limit: s.Room.Limit, Used: s.Room.Used, ReservedForDelete: s.Room.ReservedForDelete,
			Kept: s.Closed, Incarnation: p.Incarnation().String()}
		if p.Report != nil {
			one.Report = new(p.Report())
		}
		for id, v := range s.Volumes {
			one.Kept += v.Used()
			said := c.volume(id, v)
			said.Pool = p.Name
			if move, ok := moves[id]; ok {
				said.Moves = &move
			}
			if why := c.cfg.Pools.Unmatched(id); why != nil {
				said.Unmatched = why.Error()
			}
			out.Volumes = append(out.Volumes, said)
		}
		out.Pools = append(out.Pools, one)
	}
	out.Pool = out.Pools[0]
	slices.SortFunc(out.Volumes, func(a, b Volume) int { return cmp.Compare(a.Volume, b.Volume) })
	return out
}

// volume is what is kept of one volume.
func (c *Caching) volume(id string, v readcache.VolumeStatus) Volume {
	name, asked := id, int64(0)
	if r, ok := c.cfg.View.Record(id); ok {
		name, asked = r.Name, int64(c.cfg.View.Here(r).Spec.Cache.Reserve)
	}
	one := Volume{Volume: name, UUID: id, Asked: asked, Segments: v.Segments, Once: v.Small, Often: v.Main, Pinned: v.Pinned,
		Limit: v.Limit, Reserve: v.Reserve, Reads: Reads(v.Counters)}
	c.mu.Lock()
	if p, ok := c.pins[id]; ok {
		one.Pins = &p
	}
	if p := c.prefetches[id]; p != nil {
		one.Prefetched = p.fetched.Load()
	}
	c.mu.Unlock()
	if copied := c.cfg.Copies.Local(id); copied != nil {
		if _, done, err := copied.Use(context.Background()); err == nil {
			one.Log, one.Metadata = int64(copied.Log.LocalBytes()), copied.MetadataBytes()
			done()
		}
	}
	if o := c.cfg.Copies.Outline(id); o != nil {
		one.Outlined, one.Leased = o.Follower.Received(), o.Follower.Leased()
	}
	return one
}
