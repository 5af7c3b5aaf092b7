// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/readcache"
)

// Pool is one of a gateway's pools.
type Pool struct {
	Name   string            // unique at the gateway
	Labels map[string]string // by which policies choose it
	cachepool.Pool
	// Watch looks at the pool until ctx ends. It tells of volumes whose folders on it may have lost
	// something meanwhile (protocol-3). nil: nobody does.
	Watch func(ctx context.Context, lost func(volume string, why error))
	// Report returns how the storage below the pool is; nil: nobody knows.
	Report func() cachepool.Report

	// Reads is the pool's read cache, which Open makes.
	Reads *readcache.Cache
	probe probe
}

// has reports whether the pool has all of these labels.
func (p *Pool) has(labels map[string]string) bool {
	for k, v := range labels {
		if have, ok := p.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// SalvagePrefix begins the name of a folder that was set aside. A volume's UUID follows.
const SalvagePrefix = "salvage-"

// Config is what Pools need.
type Config struct {
	// Pools are open. The first is the main one.
	Pools []Pool
	// Wanted returns the labels that the pool of a volume is to have; nil: any pool will do.
	Wanted func(volume string) map[string]string
	Now    func() time.Time
	Random io.Reader // of tokens
	Logger *slog.Logger
}

// Pools are all pools of a gateway.
type Pools struct {
	cfg Config
	all []*Pool

	noting sync.Mutex
	notes  *notes // nil: there is one pool, and nothing is noted; guarded by noting

	mu      sync.Mutex
	held    map[string]chan struct{} // folders that somebody makes, renames, removes or replaces
	where   map[string]*Pool         // by folder, for folders that are there, or were noted
	missing map[string]bool          // folders of where that were not found
	unsure  map[string]bool          // folders of which the notes on the disk may say something else
	rewound map[string]error         // by folder, what is noted
	moving  map[string]Move          // by folder, also those that failed
	copied  map[string]*copying      // by folder, the moves that go on
	left    map[string]*copying      // by folder, what was copied and could not be removed
	moved   map[string]time.Time     // by folder, when it moved
}

// Open finds which folder is on which pool. It closes no pool.
func Open(cfg Config) (*Pools, error) {
	p := &Pools{cfg: cfg, held: map[string]chan struct{}{}, where: map[string]*Pool{}, missing: map[string]bool{},
		unsure: map[string]bool{}, rewound: map[string]error{}, moving: map[string]Move{}, copied: map[string]*copying{},
		left: map[string]*copying{}, moved: map[string]time.Time{}}
	for i := range cfg.Pools {
		one := &cfg.Pools[i]
		one.probe.pool = one.Pool
		one.Reads = readcache.New(readcache.Config{Room: one.Room(), Now: cfg.Now, Logger: cfg.Logger})
		p.all = append(p.all, one)
	}
	return p, p.begin()
}

// Main returns the pool whose incarnation is the gateway's.
func (p *Pools) Main() *Pool { return p.all[0] }

// All returns the pools, the main one first.
func (p *Pools) All() []*Pool { return p.all }

// Of returns the pool that has a folder, or would get it.
func (p *Pools) Of(folder string) *Pool {
	p.mu.Lock()
	there := p.where[folder]
	p.mu.Unlock()
	if there != nil {
		return there
	}
	chosen, _ := p.choose(folder)
	return chosen
}

// choose returns the pool that a folder is to be on: the one where it is, if that has the labels.
// ok is false if none has them: the main one then will do.
func (p *Pools) choose(folder string) (_ *Pool, ok bool) {
	var labels map[string]string
	if p.cfg.Wanted != nil {
		labels = p.cfg.Wanted(folder)
	}
	if one, _ := p.there(folder); one != nil && len(labels) > 0 && one.has(labels) {
		return one, true
	}
	for _, one := range p.all {
		if one.has(labels) {
			return one, true
		}
	}
	return p.Main(), false
}

// Room returns the room of the pool that has a folder.
func (p *Pools) Room(folder string) *cachepool.Room { return p.Of(folder).Room() }

// hold waits until nobody else makes, renames, removes or replaces a folder, and keeps others from
// that until release. Folders do not wait for each other: a pool may hang.
func (p *Pools) hold(folder string) (release func()) {
	for {
		p.mu.Lock()
		other := p.held[folder]
		if other == nil {
			mine := make(chan struct{})
			p.held[folder] = mine
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				delete(p.held, folder)
				p.mu.Unlock()
				close(mine)
			}
		}
		p.mu.Unlock()
		<-other
	}
}

// there returns the pool that has a folder, or is noted to have it; nil: none. ready is false if
// that is not enough to use the folder there.
func (p *Pools) there(folder string) (one *Pool, ready bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one = p.where[folder]
	return one, one != nil && !p.missing[folder] && !p.unsure[folder]
}

// Volume is cachepool.Volumes' method. A folder that is missing is made where it is to be.
func (p *Pools) Volume(folder string) (cachepool.Dir, error) {
	if one, ready := p.there(folder); ready {
		return one.Volume(folder)
	}
	defer p.hold(folder)()
	if err := p.sure(folder); err != nil {
		return nil, err
	}
	if one, _ := p.there(folder); one != nil {
		dir, err := one.Volume(folder)
		if err == nil {
			p.set(folder, one)
		}
		return dir, err
	}
	return p.makeFolder(folder)
}

// makeFolder makes a folder that is nowhere, as far as is known. The caller holds it.
func (p *Pools) makeFolder(folder string) (dir cachepool.Dir, err error) {
	one, _ := p.choose(folder)
	at, noting := p.at(folder)
	note := func() error { return p.note(func(n *notes) { n.Folders[folder] = place{Pool: one.id()} }) }
	if noting && (at != place{} || one != p.Main()) { // what may be there is not what was noted
		dir, err = p.fresh(one, folder)
		if err == nil {
			err = note()
		}
	} else if err = note(); err == nil {
		dir, err = one.Volume(folder)
	}
	if err != nil {
		return nil, err
	}
	p.set(folder, one)
	return dir, nil
}

// set notes in memory where a folder is; nil: nowhere.
func (p *Pools) set(folder string, one *Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.missing, folder)
	if one == nil {
		delete(p.where, folder)
		return
	}
	p.where[folder] = one
}

// ListVolumes is cachepool.Volumes' method: the folders of all pools. With several, it asks none of
// them: one may hang.
func (p *Pools) ListVolumes() ([]string, error) {
	if len(p.all) == 1 {
		all, err := p.Main().ListVolumes()
		return slices.DeleteFunc(all, func(folder string) bool { return folder == notesFolder || folder == keysFolder }), err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for folder := range p.where {
		if !p.missing[folder] {
			out = append(out, folder)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Keys returns a folder of the main pool for what opens the data keys of volumes. No volume has it.
func (p *Pools) Keys() (cachepool.Dir, error) { return p.Main().Volume(keysFolder) }

// Remove removes a folder that nobody has open, if it is there, and gives its room back.
func (p *Pools) Remove(folder string) error {
	defer p.hold(folder)()
	if err := p.abandon(folder, true); err != nil {
		return err
	}
	one, _ := p.there(folder)
	if len(p.all) == 1 {
		one = p.Main() // which may have met it later
	}
	if one != nil {
		if err := p.clear(one, folder); err != nil {
			return err
		}
	}
	p.set(folder, nil)
	return p.forget(folder)
}

// RenameVolume is cachepool.Volumes' method. The folder stays on its pool.
func (p *Pools) RenameVolume(from, to string) error {
	defer p.hold(from)()
	if err := p.abandon(from, false); err != nil {
		return err
	}
	one := p.Of(from)
	if err := p.rename(one, from, to); err != nil {
		return err
	}
	p.set(from, nil)
	return p.forget(from)
}

// rename gives a folder of a pool a name that is new, and notes where that is.
func (p *Pools) rename(one *Pool, from, to string) error {
	err := p.note(func(n *notes) { n.Folders[to] = place{Pool: one.id()} })
	if err == nil {
		if err = one.RenameVolume(from, to); err != nil {
			err = errors.Join(err, p.note(func(n *notes) { delete(n.Folders, to) }))
		}
	}
	if err == nil {
		p.set(to, one)
	}
	return err
}

// setAside sets a folder of a pool aside that does not count.
func (p *Pools) setAside(one *Pool, folder string) error {
	aside := fmt.Sprintf("%s%s-%s-%d", SalvagePrefix, folder, one.Name, p.cfg.Now().Unix())
	if err := p.rename(one, folder, aside); err != nil {
		return fmt.Errorf("set aside what pool %s has of %s: %w", one.Name, folder, err)
	}
	p.cfg.Logger.Warn("a folder is set aside: it does not count, or its pool is not there", "folder", folder, "pool", one.Name,
		"aside", aside)
	return nil
}

// forget forgets what is noted of a folder that is gone. The caller holds it.
func (p *Pools) forget(folder string) error {
	err := p.note(func(n *notes) {
		delete(n.Folders, folder)
		delete(n.Rewound, folder)
	})
	if err == nil {
		p.mu.Lock()
		delete(p.rewound, folder)
		p.mu.Unlock()
	}
	return err
}

// rewound is why a folder may have lost something, as the notes say, and as its pool does.
type rewound struct{ noted, below error }

func (r *rewound) Error() string   { return errors.Join(r.noted, r.below).Error() }
func (r *rewound) Unwrap() []error { return []error{r.noted, r.below} }

// Rewound is cachepool.Volumes' method.
func (p *Pools) Rewound(folder string) error {
	below := p.Of(folder).Rewound(folder)
	p.mu.Lock()
	noted := p.rewound[folder]
	p.mu.Unlock()
	if noted == nil {
		return below
	}
	return &rewound{noted, below}
}

// Settled is cachepool.Volumes' method.
func (p *Pools) Settled(folder string, why error) error {
	var r *rewound
	if !errors.As(why, &r) {
		return p.Of(folder).Settled(folder, why)
	}
	if r.below != nil {
		if err := p.Of(folder).Settled(folder, r.below); err != nil {
			return err
		}
	}
	if err := p.note(func(n *notes) { delete(n.Rewound, folder) }); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(p.rewound[folder], r.noted) {
		delete(p.rewound, folder)
	}
	return nil
}

// Tune is cachepool.Volumes' method.
func (p *Pools) Tune(folder string, t cachepool.Tuning) { p.Of(folder).Tune(folder, t) }

// MakeRoom is replica.Evictor's method.
func (p *Pools) MakeRoom(volume string, n int64) int64 { return p.Of(volume).Reads.MakeRoom(volume, n) }

// Stored is replica.Evictor's method.
func (p *Pools) Stored(volume string) { p.Of(volume).Reads.Stored(volume) }

// Reads returns what all read caches keep.
func (p *Pools) Reads() (total readcache.Counters, volumes map[string]readcache.VolumeStatus) {
	volumes = map[string]readcache.VolumeStatus{}
	for _, one := range p.all {
		s := one.Reads.Status()
		total = total.Plus(s.Total)
		for id, v := range s.Volumes {
			volumes[id] = v
		}
	}
	return total, volumes
}

// Watch has all pools looked at until ctx ends.
func (p *Pools) Watch(ctx context.Context, lost func(volume string, why error)) {
	var work sync.WaitGroup
	for _, one := range p.all {
		if one.Watch != nil {
			work.Go(func() { one.Watch(ctx, lost) })
		}
	}
	work.Wait()
}

// Unmatched returns why a volume is not on a pool that its policy asks for; nil: it is, or it moves
// there.
func (p *Pools) Unmatched(volume string) error {
	if _, ok := p.choose(volume); ok {
		return nil
	}
	return fmt.Errorf("cache.pool: no pool here has the labels %v: give one of them to a pool (pool.labels), or change the policy; "+
		"the volume is on pool %s", p.cfg.Wanted(volume), p.Of(volume).Name)
}
