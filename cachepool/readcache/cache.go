// SPDX-License-Identifier: Apache-2.0

package readcache

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/cachepool"
)

// Segment names a sealed segment of a volume's log.
type Segment struct {
	Seq  uint64
	Hash [32]byte // of its contents
}

// Block is where a sealed block lies in its segment, in bytes.
type Block struct{ Off, Len uint32 }

// File is a segment's own file in the log, which a store has too.
type File struct {
	Segment
	Len int64
}

// Segments are the files of a volume's log. The cache counts those that can go as part of itself,
// and has them removed when their turn comes.
type Segments interface {
	// Evictable returns the files that can go, oldest first. settled is false if more of them can
	// go soon without a call of Stored.
	Evictable() (files []File, settled bool)
	// Evict removes one, and returns how many bytes of the pool's room that gave back. 0: it could
	// not. before is called when it is going to be removed, and can still be read.
	Evict(seq uint64, before func()) (freed int64)
	// ReadSegmentFile reads from one, as io.ReaderAt does.
	ReadSegmentFile(seq uint64, p []byte, off int64) (int, error)
}

// Share is what one volume may keep, in bytes.
type Share struct {
	Limit   int64 // 0: no limit of its own
	Reserve int64 // that other volumes cannot push out
}

// Config is what a Cache needs. Room is required.
type Config struct {
	Room *cachepool.Room
	// FileSize is how many bytes of blocks a file takes, at least a block; default a 1024th of the
	// room, at least 1 MiB and at most 32 MiB. Files of a volume with a small Limit take less.
	FileSize int64
	// Blocks bounds how many blocks are kept, as each takes about 40 bytes of memory; default 4 Mi.
	Blocks int
	// Slack is how much of the room is left free for logs, in bytes; default a sixteenth of it, at
	// most 128 MiB.
	Slack int64
	// Now is when a file is made, as far as others are older; nil: files of volumes that are opened
	// later count as newer.
	Now    func() time.Time
	Logger *slog.Logger // nil: nothing is logged
}

// Cache is the read cache of one gateway.
type Cache struct {
	cfg Config

	evicting sync.Mutex

	mu      sync.Mutex
	volumes map[string]*Volume
	closed  map[string]*closed // folders that nobody has open
	next    uint64             // number of the next file; also the time of the queues
	blocks  int                // entries of all indexes that have a file
	uses    int                // entries of all indexes that have none
	freed   int64              // bytes, since the start
	ghosts  ghosts
	open    map[*file]bool // files that have a handle
	moved   int64          // bytes of blocks that moved to the main queue
	count   Counters       // of all volumes, since the start
}

// New returns a Cache with no volumes.
func New(cfg Config) *Cache {
	if cfg.FileSize == 0 {
		cfg.FileSize = max(1<<20, min(cfg.Room.Status().Limit/1024, 32<<20))
	}
	if cfg.Blocks == 0 {
		cfg.Blocks = 4 << 20
	}
	if cfg.Slack == 0 {
		cfg.Slack = min(cfg.Room.Status().Limit/16, 128<<20)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cache{cfg: cfg, volumes: map[string]*Volume{}, closed: map[string]*closed{}, open: map[*file]bool{}, next: 1}
	if cfg.Now != nil {
		c.next = uint64(max(1, cfg.Now().UnixNano()))
	}
	return c
}

// Open finds what is kept of a volume in its folder. Files that do not verify are removed. The
// caller closes the Volume before it opens it again. The pool's room counts the files already.
func (c *Cache) Open(name string, dir cachepool.Dir, share Share) (*Volume, error) {
	v := &Volume{cache: c, name: name, dir: dir, share: share, index: map[Segment]*index{}, dirty: true}
	c.evicting.Lock() // nobody removes files of the folder from now on
	c.mu.Lock()
	there := c.volumes[name] != nil
	delete(c.closed, name)
	c.mu.Unlock()
	c.evicting.Unlock()
	if there {
		return nil, fmt.Errorf("open the read cache in %s: volume %s is open already", dir.Path(), name)
	}
	list, err := dir.List()
	if err != nil {
		return nil, fmt.Errorf("open the read cache in %s: %w", dir.Path(), err)
	}
	var newest uint64
	for _, i := range list {
		id, queue, ok := parseName(i.Name)
		if !ok {
			continue
		}
		f := &file{v: v, id: id, queue: queue, size: i.Size, full: true, indexed: true, made: true}
		newest = max(newest, id)
		if err := f.load(); err != nil {
			c.cfg.Logger.Info("a file of the read cache has no index: it is removed", "path", f.path(), "why", err)
			if err := dir.Remove(i.Name); err != nil {
				c.cfg.Logger.Warn("a file of the read cache stays, and takes room", "path", f.path(), "error", err)
				continue
			}
			c.cfg.Room.Release(i.Size)
			continue
		}
		v.files[queue] = append(v.files[queue], f)
		v.bytes[queue] += f.size
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for q := range v.files {
		slices.SortFunc(v.files[q], func(a, b *file) int { return cmp.Compare(a.id, b.id) })
		for _, f := range v.files[q] {
			v.adopt(f)
		}
	}
	c.next = max(c.next, newest+1)
	c.volumes[name] = v
	return v, nil
}

// closed is the read cache in a folder that nobody has open. Its files can go.
type closed struct {
	dir   cachepool.Dir
	files []closedFile // oldest first, what was pinned last
	bytes int64
}

type closedFile struct {
	name string
	id   uint64
	size int64
	last int // 1: it goes after the others
}

func closedFileOf(name string, id uint64, q queue, size int64) closedFile {
	f := closedFile{name: name, id: id, size: size}
	if q == pinned {
		f.last = 1
	}
	return f
}

func (f closedFile) compare(o closedFile) int {
	return cmp.Or(cmp.Compare(f.last, o.last), cmp.Compare(f.id, o.id))
}

// Leave says that a folder of the pool is there, which nobody has open. What is kept in it is of
// use when it is opened, and goes as all else does.
func (c *Cache) Leave(name string, dir cachepool.Dir) error {
	list, err := dir.List()
	if err != nil {
		return fmt.Errorf("look for the read cache in %s: %w", dir.Path(), err)
	}
	x := &closed{dir: dir}
	for _, i := range list {
		if id, q, ok := parseName(i.Name); ok {
			x.files = append(x.files, closedFileOf(i.Name, id, q, i.Size))
			x.bytes += i.Size
		}
	}
	slices.SortFunc(x.files, closedFile.compare)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.volumes[name] == nil && len(x.files) > 0 {
		c.closed[name] = x
	}
	return nil
}

// Drop removes what is kept in a folder that nobody has open, and gives its room back.
func (c *Cache) Drop(name string, dir cachepool.Dir) error {
	c.evicting.Lock()
	defer c.evicting.Unlock()
	c.mu.Lock()
	delete(c.closed, name)
	c.mu.Unlock()
	files, err := dir.List()
	if err != nil {
		return err
	}
	for _, f := range files {
		if _, _, ok := parseName(f.Name); !ok {
			continue
		}
		if err := dir.Remove(f.Name); err != nil {
			return fmt.Errorf("remove the read cache in %s: %w", dir.Path(), err)
		}
		c.cfg.Room.Release(f.Size)
	}
	return nil
}

// Status is a Cache at one moment.
type Status struct {
	Room    cachepool.RoomStatus
	Blocks  int   // kept, outside the logs
	Moved   int64 // bytes of blocks that moved to the main queue, since the start
	Total   Counters
	Closed  int64 // bytes of volumes that are not open
	Volumes map[string]VolumeStatus
}

// VolumeStatus is what is kept of one volume, in bytes, and what was asked for since it was opened.
type VolumeStatus struct {
	Share             // Reserve is what is kept in fact
	Small, Main int64 // files of blocks, by their queue
	Pinned      int64
	Segments    int64 // the log's files that can go
	Counters
}

// Counters say from where blocks were read.
type Counters struct {
	Log, Cache, Elsewhere                uint64 // blocks
	LogBytes, CacheBytes, ElsewhereBytes uint64
}

// Plus returns the sum of both.
func (n Counters) Plus(m Counters) Counters {
	return Counters{n.Log + m.Log, n.Cache + m.Cache, n.Elsewhere + m.Elsewhere,
		n.LogBytes + m.LogBytes, n.CacheBytes + m.CacheBytes, n.ElsewhereBytes + m.ElsewhereBytes}
}

func (n *Counters) log(blocks int, bytes int64) {
	n.Log += uint64(blocks)
	n.LogBytes += uint64(bytes)
}

func (n *Counters) cache(blocks int, bytes int64) {
	n.Cache += uint64(blocks)
	n.CacheBytes += uint64(bytes)
}

func (n *Counters) elsewhere(blocks int, bytes int64) {
	n.Elsewhere += uint64(blocks)
	n.ElsewhereBytes += uint64(bytes)
}

// Used is all that is kept.
func (s VolumeStatus) Used() int64 { return s.Small + s.Main + s.Pinned + s.Segments }

// Status returns what is kept.
func (c *Cache) Status() Status {
	if c.evicting.TryLock() { // else the logs are asked by somebody else, or were a moment ago
		c.askAll()
		c.evicting.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.keptShare()
	s := Status{Room: c.cfg.Room.Status(), Blocks: c.blocks, Moved: c.moved, Total: c.count,
		Volumes: make(map[string]VolumeStatus, len(c.volumes))}
	for name, v := range c.volumes {
		s.Volumes[name] = VolumeStatus{Share: Share{v.share.Limit, min(kept(v), v.share.Reserve)},
			Small: v.bytes[small], Main: v.bytes[main],
			Pinned: v.bytes[pinned], Segments: v.segmentBytes(), Counters: v.count}
	}
	for _, x := range c.closed {
		s.Closed += x.bytes
	}
	return s
}

// all returns the volumes, by name. The caller holds mu.
func (c *Cache) all() []*Volume {
	out := make([]*Volume, 0, len(c.volumes))
	for _, name := range slices.Sorted(maps.Keys(c.volumes)) {
		out = append(out, c.volumes[name])
	}
	return out
}

// Stored reports that more of a volume's segments can go, such as after an upload. It keeps the
// volume within its limit.
func (c *Cache) Stored(volume string) {
	c.mu.Lock()
	v := c.volumes[volume]
	if v != nil {
		v.dirty = true
	}
	c.mu.Unlock()
	if v != nil {
		c.trim(v)
	}
}

// queue is a queue of files.
type queue int

const (
	small queue = iota
	main
	pinned // no queue: what is in it goes only when logs need its room
	queues
)

var suffixes = [queues]string{small: "-small.cache", main: "-main.cache", pinned: "-pinned.cache"}

// parseName is the inverse of file.name.
func parseName(name string) (id uint64, q queue, ok bool) {
	for q, suffix := range suffixes {
		if digits, is := strings.CutSuffix(name, suffix); is {
			var f file
			if _, err := fmt.Sscanf(digits, "%016x", &f.id); err != nil {
				return 0, 0, false
			}
			f.queue = queue(q)
			return f.id, f.queue, f.name() == name
		}
	}
	return 0, 0, false
}

var errIndex = errors.New("no index")
