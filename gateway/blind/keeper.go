// SPDX-License-Identifier: Apache-2.0

package blind

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/store"
)

// Config is what a Keeper needs.
type Config struct {
	Gateway string // this one
	View    *view.View
	Client  func(gateway string) (peerpb.PeerClient, error)
	Store   store.Store // of this site; nil: it has none
	Timers  clockwork.Clock
	Logger  *slog.Logger
	Every   time.Duration // how often copies are looked at; zero: 3 s
	// Dir returns the folder of a volume's copy on the pool.
	Dir func(volume string) (cachepool.Dir, error)
}

// Keeper keeps the checkpoints of one gateway's copies without a key. Any goroutine may call its
// methods, of which Manage comes first. One calls Run.
type Keeper struct {
	cfg    Config
	copies *copies.Manager
	looks  map[string]*looked // by UUID; only Run uses it
}

// looked is how a copy was when it was last looked at.
type looked struct {
	log    *log.Log
	end    log.Position
	again  time.Time       // a failure is tried again
	failed string          // what was logged
	whole  map[string]bool // objects that the site's store was found to have undamaged, by name
}

const (
	every   = 3 * time.Second
	askTime = time.Minute
	again   = 5 * time.Second
)

// New returns a Keeper.
func New(cfg Config) *Keeper {
	if cfg.Every == 0 {
		cfg.Every = every
	}
	return &Keeper{cfg: cfg, looks: map[string]*looked{}}
}

// Manage says which copies there are.
func (k *Keeper) Manage(all *copies.Manager) { k.copies = all }

// Run keeps the checkpoints of all copies, and gets what they lack, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	t := k.cfg.Timers.NewTicker(k.cfg.Every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.Chan():
			k.keepAll(ctx)
		}
	}
}

// keepAll looks at each copy whose log grew, or that lacks something. An idle one costs nothing.
func (k *Keeper) keepAll(ctx context.Context) {
	now := k.cfg.Timers.Now()
	here := map[string]bool{}
	for _, id := range k.copies.Opened() {
		is, _ := k.copies.State(id)
		c := is.Copy
		if c == nil || !c.Blind() {
			continue
		}
		here[id] = true
		was := k.looks[c.UUID]
		if was == nil || was.log != c.Log {
			was = &looked{log: c.Log, whole: map[string]bool{}}
			k.looks[c.UUID] = was
		}
		end, lacks := c.Log.End(), c.Log.AbsentBytes() > 0
		if now.Before(was.again) || !lacks && end == was.end && was.failed == "" {
			continue
		}
		was.again = now.Add(min(again, 2*k.cfg.Every))
		err := k.keep(ctx, c, was)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			was.end, was.failed = end, ""
		case err.Error() != was.failed:
			was.failed = err.Error()
			k.cfg.Logger.Warn("this copy without a key does not have the newest checkpoint, or lacks something of the past; trying again",
				"volume", c.UUID, "lacks", c.Log.AbsentBytes(), "error", err)
		}
	}
	for id := range k.looks {
		if !here[id] {
			delete(k.looks, id)
		}
	}
}

// told asks the volume's home (blind-1). nil: the home is here, or there is none.
func (k *Keeper) told(ctx context.Context, id string) (*past, error) {
	v := k.cfg.View.Volume(id)
	if v == nil || v.Control == nil || v.Control.Home.Gateway == k.cfg.Gateway {
		return nil, nil
	}
	c, err := k.cfg.Client(v.Control.Home.Gateway)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	p, err := ask(ctx, c, id)
	if err != nil {
		return nil, fmt.Errorf("gateway %s does not tell of a checkpoint: %w", v.Control.Home.Gateway, err)
	}
	return &p, nil
}

// Begin lets the log of a copy, which nobody has open, begin with the newest checkpoint, since what
// comes after its end is not there any more. What the copy has stays. Run gets the rest. An error
// leaves the log as it is.
func (k *Keeper) Begin(ctx context.Context, b checkpoints.Beginning) (err error) {
	defer func() { b.Anew.End(err) }()
	if k.cfg.Store == nil {
		return errNoStore
	}
	p, err := k.told(ctx, b.Volume)
	if err != nil {
		return err
	}
	if p == nil {
		return errors.New("the home is here, and nobody tells of a checkpoint")
	}
	l, err := log.Open(b.Log)
	if err != nil {
		return err
	}
	end := l.End()
	err = errors.Join(l.Recovered().Doubt, p.same(l))
	if err == nil && !end.Less(p.At) {
		err = fmt.Errorf("nobody tells of a checkpoint after its log, which ends at %s", end)
	}
	segments := slices.Clone(p.Segments)
	for i := range segments {
		s := &segments[i]
		was, ok := l.Segment(s.Seq)
		s.Local, s.Uploaded, s.Dropped = ok && was.Local, ok && was.Uploaded, ok && was.Dropped // blind-3
	}
	if err = errors.Join(err, l.Close()); err != nil {
		return err
	}
	if err := log.Rebase(b.Log.Dir, segments); err != nil {
		return err
	}
	b.Log.Logger.Info("this copy without a key begins with a checkpoint of the volume", "at", p.At, "ended", end)
	return nil
}

var errNoStore = errors.New("what comes after this copy's log was dropped, and a copy without a key begins with a checkpoint only " +
	"where the site has a store: give it one")
