// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/weir-storage/weir/cachepool"
)

// Move is how far the move of a volume to another pool is.
type Move struct {
	To      string `json:"to"`                // name of the pool
	Bytes   int64  `json:"bytes"`             // that are there
	Problem string `json:"problem,omitempty"` // why it waits; "": it goes on
}

// Moves returns the moves that go on or wait, by volume.
func (p *Pools) Moves() map[string]Move {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.moving)
}

func (p *Pools) tell(folder string, m Move) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moving[folder] = m
}

func (p *Pools) done(folder string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.moving, folder)
}

// Movers are what KeepMoving needs of those who have volumes open.
type Movers struct {
	// Open returns the volumes that are open.
	Open func() []string
	// Closed closes a volume, calls f, and opens it again. Its error is f's, or that the volume was
	// not open.
	Closed func(ctx context.Context, volume string, f func() error) error
	// Lost tells that a volume may have lost something, as Rewound says.
	Lost func(volume string, why error)
	// Tuning returns how the storage below a pool is to treat a volume.
	Tuning func(volume string) cachepool.Tuning
	// Changed returns a channel that closes when policies may have changed.
	Changed func() <-chan struct{}
	// After is a clock's.
	After func(time.Duration) <-chan time.Time
}

// KeepMoving moves volumes to the pools that their policies ask for, one after the other, until
// ctx ends. A volume is used while most of it is copied.
func (p *Pools) KeepMoving(ctx context.Context, m Movers) {
	if len(p.all) == 1 {
		return
	}
	waits := map[string]*retry{}
	for ctx.Err() == nil {
		changed := m.Changed()
		open := m.Open()
		p.forgetMoves(open)
		for _, volume := range open {
			to, ok := p.choose(volume)
			if one, _ := p.there(volume); !ok || to == one {
				p.done(volume)
				delete(waits, volume)
				continue
			}
			if waits[volume] == nil {
				waits[volume] = &retry{}
			}
			if wait := waits[volume]; !p.cfg.Now().Before(wait.at) {
				if err := p.move(ctx, volume, to, m); err != nil && ctx.Err() == nil {
					wait.failed(p.cfg.Now())
					p.cfg.Logger.Warn("a volume stays on its pool for now", "volume", volume, "pool", p.Of(volume).Name, "to", to.Name,
						"error", err)
					p.tell(volume, Move{To: to.Name, Problem: err.Error()})
				}
			}
		}
		every := moveEvery
		if p.tidy(m.Lost) {
			every = 0
		}
		select {
		case <-m.After(moveAgain):
		case <-ctx.Done():
		}
		select {
		case <-changed:
		case <-m.After(every):
		case <-ctx.Done():
		}
	}
}

// retry is when a move that failed is tried again. Each attempt costs disks and clients much.
type retry struct {
	at   time.Time
	wait time.Duration
}

func (r *retry) failed(now time.Time) {
	r.wait = min(max(2*r.wait, retryFirst), retryMost)
	r.at = now.Add(r.wait)
}

const (
	retryFirst = 4 * time.Second
	retryMost  = time.Hour
)

// forgetMoves forgets moves of volumes that are not open.
func (p *Pools) forgetMoves(open []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.moving, func(volume string, _ Move) bool { return !slices.Contains(open, volume) })
}

const (
	moveAgain = 2 * time.Second
	moveEvery = time.Minute
	// A volume is closed for the rest when a pass copied no more than this, or after so many
	// passes.
	moveRest   = 64 << 20
	movePasses = 5
	// A volume is closed no longer than this, if its other pool hangs.
	closedMost = 5 * time.Minute
	// What a move has left is kept for so long: pools tell within seconds that something went back.
	keepLeft = 8 * time.Second
)

var (
	// errGone: the folder was set aside or removed.
	errGone = errors.New("its folder is gone")
	// errChanged: the policy did.
	errChanged = errors.New("its policy asks for another pool now")
	// errSlow: the volume was closed for long.
	errSlow = fmt.Errorf("it was not done within %v", closedMost)
	// errMoves: the folder is copied to another pool just now.
	errMoves = errors.New("it moves to another pool: that ends now")
)

// move copies a folder to another pool, and has that one count from then on (pools-1).
func (p *Pools) move(ctx context.Context, folder string, to *Pool, m Movers) (err error) {
	if why := p.Rewound(folder); why != nil {
		return fmt.Errorf("it may have lost something, and is looked at first: %w", why)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := p.beginMove(folder, to, m, cancel)
	if err != nil {
		return err
	}
	p.cfg.Logger.Info("a volume moves to another pool", "volume", folder, "from", c.from.Name, "to", to.Name)
	defer func() {
		defer p.hold(folder)()
		_ = c.root.Close() // nothing is written by it
		p.mu.Lock()
		dead := c.dead
		p.mu.Unlock()
		if !dead { // else somebody still copies
			c.giveAhead()
			if err != nil {
				err = errors.Join(err, p.giveUp(folder, c))
			}
		}
		p.mu.Lock()
		delete(p.copied, folder)
		p.mu.Unlock()
	}()
	for range movePasses {
		copied, err := c.pass(ctx, true)
		if err != nil {
			return err
		}
		if copied <= moveRest {
			break
		}
	}
	if now, ok := p.choose(folder); !ok || now != to {
		return errChanged
	}
	err = m.Closed(ctx, folder, func() error {
		return p.bounded(c, m.After, func() error {
			if _, err := c.pass(ctx, false); err != nil {
				return err
			}
			return p.replace(folder, c)
		})
	})
	if one, _ := p.there(folder); one != to {
		return err
	}
	p.done(folder)
	p.cfg.Logger.Info("a volume is on another pool", "volume", folder, "from", c.from.Name, "to", to.Name)
	return nil
}

// bounded calls f, which copies. It does not wait for one that hangs, unless it may have noted that
// the copy counts.
func (p *Pools) bounded(c *copying, after func(time.Duration) <-chan time.Time, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-after(closedMost):
	}
	p.mu.Lock()
	c.dead = !c.counts
	dead := c.dead
	p.mu.Unlock()
	if dead {
		c.cancel()
		return errSlow
	}
	return <-done
}

// tidy removes what moves have left, once it is old enough, and reports whether some is not. What
// went back at either end is told.
func (p *Pools) tidy(lost func(volume string, why error)) (more bool) {
	p.noting.Lock()
	var left []string
	for folder, at := range p.notes.Folders {
		if at.To != "" && p.opened(at.To) != nil || at.From != "" && p.opened(at.From) != nil {
			left = append(left, folder)
		}
	}
	p.noting.Unlock()
	slices.Sort(left)
	for _, folder := range left {
		p.mu.Lock()
		copies, since := p.copied[folder] != nil, p.moved[folder]
		p.mu.Unlock()
		if copies || p.cfg.Now().Sub(since) < keepLeft && !p.cfg.Now().Before(since) {
			more = true
			continue
		}
		if err := p.leave(folder, lost); err != nil {
			p.cfg.Logger.Warn("what a move has left stays for now", "volume", folder, "error", err)
			continue
		}
		p.mu.Lock()
		delete(p.moved, folder)
		p.mu.Unlock()
	}
	return more
}

// leave removes what a move has left, unless it may be all that is left. If the former folder went
// back before it was copied, so did the copy.
func (p *Pools) leave(folder string, lost func(volume string, why error)) error {
	defer p.hold(folder)()
	at, _ := p.at(folder)
	if from := p.opened(at.From); from != nil {
		if why := from.Rewound(folder); why != nil {
			text := fmt.Sprintf("it moved from pool %s, where: %v", from.Name, why)
			if err := p.note(func(n *notes) { n.Rewound[folder] = text }); err != nil {
				return err
			}
			p.mu.Lock()
			p.rewound[folder] = errors.New(text)
			p.mu.Unlock()
			if lost != nil {
				lost(folder, why)
			}
			return p.setAside(from, folder) // and the note of it goes with the next look
		}
	}
	return p.abandon(folder, false)
}

// beginMove notes that a folder on another pool does not count yet, and makes it.
func (p *Pools) beginMove(folder string, to *Pool, m Movers, cancel func()) (*copying, error) {
	defer p.hold(folder)()
	if err := p.abandon(folder, false); err != nil { // of a former attempt
		return nil, err
	}
	from, ready := p.there(folder)
	if !ready || from == to {
		return nil, errGone
	}
	c := &copying{folder: folder, from: from, to: to, cancel: cancel, now: p.cfg.Now, seen: map[string]stamp{}, sizes: map[string]int64{}}
	if err := p.note(func(n *notes) { n.Folders[folder] = place{Pool: from.id(), To: to.id()} }); err != nil {
		return nil, err
	}
	src, err := from.Volume(folder)
	var dst cachepool.Dir
	if err == nil {
		dst, err = p.fresh(to, folder)
	}
	if err != nil { // nothing of it is there
		return nil, errors.Join(err, p.note(func(n *notes) { n.Folders[folder] = place{Pool: from.id()} }))
	}
	c.src, c.dst = src.Path(), dst.Path()
	if c.root, err = os.OpenRoot(c.dst); err != nil {
		return nil, errors.Join(err, p.giveUp(folder, c))
	}
	if m.Tuning != nil {
		to.Tune(folder, m.Tuning(folder))
	}
	p.mu.Lock()
	p.copied[folder] = c
	p.mu.Unlock()
	c.told = func(n int64) { p.tell(folder, Move{To: to.Name, Bytes: n}) }
	c.told(0)
	return c, nil
}

// fresh makes a folder that has nothing. What there is under its name, which nobody knew of, is set
// aside: it was in a dataset that could not be used.
func (p *Pools) fresh(to *Pool, folder string) (cachepool.Dir, error) {
	dir, err := to.Volume(folder)
	if err != nil {
		return nil, err
	}
	empty := true
	err = walk(dir.Path(), func(string, fs.FileInfo) error {
		empty = false
		return fs.SkipAll
	})
	if err != nil || empty {
		return dir, err
	}
	if err := p.setAside(to, folder); err != nil {
		return nil, err
	}
	return to.Volume(folder)
}

// replace has the folder on the other pool count. Nobody has either open.
func (p *Pools) replace(folder string, c *copying) error {
	defer p.hold(folder)()
	if at, _ := p.at(folder); at.Pool != c.from.id() || at.To != c.to.id() {
		return errGone
	}
	if why := errors.Join(p.Rewound(folder), c.to.Rewound(folder)); why != nil {
		return fmt.Errorf("it may have lost something meanwhile: %w", why)
	}
	p.mu.Lock()
	c.counts = !c.dead
	counts := c.counts
	p.mu.Unlock()
	if !counts {
		return errSlow
	}
	if err := p.note(func(n *notes) { n.Folders[folder] = place{Pool: c.to.id(), From: c.from.id()} }); err != nil {
		p.mu.Lock()
		p.unsure[folder] = true // that it was not noted
		p.mu.Unlock()
		return err
	}
	p.set(folder, c.to)
	p.mu.Lock()
	p.moved[folder] = p.cfg.Now()
	p.mu.Unlock()
	c.settle()
	dst, err := c.to.Volume(folder)
	if err == nil {
		err = c.to.Reads.Leave(folder, dst)
	}
	if err != nil {
		p.cfg.Logger.Warn("what was kept of a volume to be read stays until it is open", "volume", folder, "error", err)
	}
	return nil
}

// giveUp removes what was copied. The caller holds the folder.
func (p *Pools) giveUp(folder string, c *copying) error {
	if at, _ := p.at(folder); at.To != c.to.id() {
		return nil // it counts
	}
	p.mu.Lock()
	p.left[folder] = c
	delete(p.copied, folder)
	p.mu.Unlock()
	return p.abandon(folder, false)
}

// sure makes durable what the notes say of a folder, if that is not known. The caller holds the
// folder.
func (p *Pools) sure(folder string) error {
	p.mu.Lock()
	unsure := p.unsure[folder]
	p.mu.Unlock()
	if !unsure {
		return nil
	}
	if err := p.note(func(*notes) {}); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.unsure, folder)
	return nil
}

// abandon removes what another pool has of a folder that does not count: what a move that failed
// has begun, or one that succeeded has left. If that may be all that is left, it is set aside,
// unless the volume is to go. It ends a move that copies: errMoves. The caller holds the folder.
func (p *Pools) abandon(folder string, goes bool) error {
	p.mu.Lock()
	c := p.copied[folder]
	p.mu.Unlock()
	at, _ := p.at(folder)
	if c != nil && at.To != "" {
		c.cancel()
		return errMoves
	}
	if err := p.sure(folder); err != nil { // or what counts might be removed
		return err
	}
	if at.To == "" && at.From == "" {
		return nil
	}
	one, ready := p.there(folder)
	well := goes || ready && p.Rewound(folder) == nil
	if well && !goes {
		there, err := one.ListVolumes()
		if err != nil {
			return err
		}
		well = slices.Contains(there, folder)
	}
	for _, id := range []string{at.To, at.From} {
		other := p.opened(id)
		if other == nil {
			continue // it is known when it is there again
		}
		var err error
		if well {
			err = p.clear(other, folder)
		} else if there, lerr := other.ListVolumes(); lerr != nil {
			err = lerr
		} else if slices.Contains(there, folder) {
			err = p.setAside(other, folder)
		}
		if err != nil {
			return fmt.Errorf("remove what pool %s has of %s: %w", other.Name, folder, err)
		}
		at = at.without(id)
	}
	return p.note(func(n *notes) { n.Folders[folder] = at })
}

// clear removes a folder that nobody has open from a pool, if it is there, and gives its room back.
// The caller holds the folder.
func (p *Pools) clear(one *Pool, folder string) error {
	there, err := one.ListVolumes()
	if err != nil {
		return err
	}
	p.mu.Lock()
	c := p.left[folder]
	p.mu.Unlock()
	if c != nil && c.to == one {
		if err := one.RemoveVolume(folder); err != nil {
			return err
		}
		one.Room().Release(c.reserved)
		p.mu.Lock()
		delete(p.left, folder)
		p.mu.Unlock()
		return nil
	}
	if !slices.Contains(there, folder) {
		return nil
	}
	dir, err := one.Volume(folder)
	if err == nil {
		err = one.Reads.Drop(folder, dir)
	}
	var n [counted + 1]int64
	if err == nil {
		n, err = size(dir.Path())
	}
	if err == nil {
		err = one.RemoveVolume(folder)
	}
	if err == nil {
		one.Room().Release(n[reserved])
		one.Room().Count(-n[counted])
	}
	return err
}
