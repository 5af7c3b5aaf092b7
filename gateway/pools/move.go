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
	"github.com/weir-storage/weir/gateway/backoff"
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

func (p *Pools) tell(folder string, change func(m *Move)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.moving[folder]
	change(&m)
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
	waits := map[string]*backoff.Backoff{}
	for ctx.Err() == nil {
		changed := m.Changed()
		for _, volume := range m.Open() {
			to, ok := p.choose(volume)
			if !ok || to == p.Of(volume) {
				p.done(volume)
				delete(waits, volume)
				continue
			}
			wait := waits[volume]
			if wait == nil {
				wait = new(backoff.Backoff)
				waits[volume] = wait
			}
			if wait.Waits(p.cfg.Now()) {
				continue
			}
			wait.Opened(p.cfg.Now())
			if err := p.move(ctx, volume, to, m); err != nil && ctx.Err() == nil {
				p.cfg.Logger.Warn("a volume stays on its pool for now", "volume", volume, "pool", p.Of(volume).Name, "to", to.Name,
					"error", err)
				wait.Failed(p.cfg.Now())
				p.tell(volume, func(m *Move) { *m = Move{To: to.Name, Problem: err.Error()} })
			}
		}
		select {
		case <-m.After(moveAgain):
		case <-ctx.Done():
		}
		select {
		case <-changed:
		case <-m.After(moveEvery):
		case <-ctx.Done():
		}
	}
}

const (
	moveAgain = 2 * time.Second
	moveEvery = time.Minute
	// A volume is closed for the rest when a pass copied no more than this, or after so many
	// passes.
	moveRest   = 64 << 20
	movePasses = 5
)

var (
	// errGone: the folder was set aside or removed.
	errGone = errors.New("its folder is gone")
	// errChanged: the policy did.
	errChanged = errors.New("its policy asks for another pool now")
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
		c.giveAhead()
		if err != nil {
			err = errors.Join(err, p.giveUp(folder, c))
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
	if err := c.takeAhead(); err != nil { // it is not closed for nothing
		return err
	}
	err = m.Closed(ctx, folder, func() error {
		if _, err := c.pass(ctx, false); err != nil {
			return err
		}
		return p.replace(folder, c)
	})
	if one, _ := p.there(folder); one != to {
		return err
	}
	if err == nil {
		err = p.leave(folder, to)
	}
	if err != nil {
		p.cfg.Logger.Warn("what a volume left on its former pool goes when the gateway starts", "volume", folder, "error", err)
	}
	p.done(folder)
	p.cfg.Logger.Info("a volume is on another pool", "volume", folder, "from", c.from.Name, "to", to.Name)
	return nil
}

// leave removes what a volume that has moved left on its former pool, unless it may be all that is
// left.
func (p *Pools) leave(folder string, to *Pool) error {
	defer p.hold(folder)()
	if err := to.Rewound(folder); err != nil {
		return err
	}
	return p.abandon(folder)
}

// beginMove notes that a folder on another pool does not count yet, and makes it.
func (p *Pools) beginMove(folder string, to *Pool, m Movers, cancel func()) (*copying, error) {
	defer p.hold(folder)()
	if err := p.abandon(folder); err != nil { // of a former attempt
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
	if err == nil {
		c.src, c.dst = src.Path(), dst.Path()
		c.root, err = os.OpenRoot(c.dst)
	}
	if err != nil {
		return nil, errors.Join(err, p.giveUp(folder, c))
	}
	if m.Tuning != nil {
		to.Tune(folder, m.Tuning(folder))
	}
	p.mu.Lock()
	p.copied[folder] = c
	p.mu.Unlock()
	c.told = func(n int64) { p.tell(folder, func(m *Move) { *m = Move{To: to.Name, Bytes: n} }) }
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
	aside := fmt.Sprintf("%s%s-%s-%d", SalvagePrefix, folder, to.Name, p.cfg.Now().Unix())
	if err := p.note(func(n *notes) { n.Folders[aside] = place{Pool: to.id()} }); err != nil {
		return nil, err
	}
	if err := to.RenameVolume(folder, aside); err != nil {
		return nil, err
	}
	p.set(aside, to)
	p.cfg.Logger.Warn("a folder is set aside: it does not count", "folder", folder, "pool", to.Name, "aside", aside)
	return to.Volume(folder)
}

// replace has the folder on the other pool count. Nobody has either open.
func (p *Pools) replace(folder string, c *copying) error {
	defer p.hold(folder)()
	if at := p.at(folder); at.Pool != c.from.id() || at.To != c.to.id() {
		return errGone
	}
	if why := errors.Join(p.Rewound(folder), c.to.Rewound(folder)); why != nil {
		return fmt.Errorf("it may have lost something meanwhile: %w", why)
	}
	if err := p.note(func(n *notes) { n.Folders[folder] = place{Pool: c.to.id(), From: c.from.id()} }); err != nil {
		p.mu.Lock()
		p.unsure[folder] = true // that it was not noted
		p.mu.Unlock()
		return err
	}
	p.set(folder, c.to)
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
	if p.at(folder).To != c.to.id() {
		return nil // it counts
	}
	p.mu.Lock()
	p.left[folder] = c
	delete(p.copied, folder)
	p.mu.Unlock()
	return p.abandon(folder)
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
// has begun, or one that succeeded has left. It ends one that copies: errMoves. The caller holds
// the folder.
func (p *Pools) abandon(folder string) error {
	p.mu.Lock()
	c := p.copied[folder]
	p.mu.Unlock()
	at := p.at(folder)
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
	for _, id := range []string{at.To, at.From} {
		if one := p.opened(id); one != nil {
			if err := p.clear(one, folder); err != nil {
				return fmt.Errorf("remove what pool %s has of %s: %w", one.Name, folder, err)
			}
		}
	}
	return p.note(func(n *notes) { n.Folders[folder] = place{Pool: at.Pool} })
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
