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
)

// Config has what a Caching needs.
type Config struct {
	Gateway, Site string
	Incarnation   string // of the pool
	View          *view.View
	Copies        *copies.Manager
	Cache         *readcache.Cache
	Memory        *engine.BlockCache
	Now           func() time.Time
	Timers        clockwork.Clock
	Logger        *slog.Logger
	// Own returns an error of gRPC unless who calls may know of all this, and may have it changed.
	Own func(ctx context.Context) error
	// Report returns how the storage below the pool is; nil: nobody knows.
	Report func() cachepool.Report
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
	Pool    Pool     `json:"pool"`
	Memory  Memory   `json:"memory"`
	Volumes []Volume `json:"volumes"` // that have a copy here, by name
}

// Pool is the gateway's cache pool.
type Pool struct {
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
	s, m := c.cfg.Cache.Status(), c.cfg.Memory.Status()
	out := Status{Pool: poolOf(s.Room), Memory: Memory{Limit: m.Limit, Used: m.Bytes, Hits: m.Hits, Misses: m.Misses}, Volumes: []Volume{}}
	out.Pool.Kept, out.Pool.Incarnation = s.Closed, c.cfg.Incarnation
	if c.cfg.Report != nil {
		out.Pool.Report = new(c.cfg.Report())
	}
	for id, v := range s.Volumes {
		out.Pool.Kept += v.Used()
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
		out.Volumes = append(out.Volumes, one)
	}
	slices.SortFunc(out.Volumes, func(a, b Volume) int { return cmp.Compare(a.Volume, b.Volume) })
	return out
}

func poolOf(r cachepool.RoomStatus) Pool {
	return Pool{Limit: r.Limit, Used: r.Used, ReservedForDelete: r.ReservedForDelete}
}
