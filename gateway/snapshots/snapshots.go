// SPDX-License-Identifier: Apache-2.0

// Package snapshots takes and drops the snapshots of volumes whose home is here, as their records
// say, and reports which there are (ADR 46, and the rules of federation/snapshots). What is to be
// done follows from the record, the clock and the engine's list alone: another home goes on without
// being told anything. It also fills volumes that are made of a snapshot of another one (ADR 53,
// and the rules of gateway/fill).
package snapshots

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// Config has what a Keeper needs.
type Config struct {
	View   *view.View
	Copies *copies.Manager
	// Routers has the volumes of which others are made.
	Routers *routing.Routers
	Now     func() time.Time // the clock of schedules
	Timers  clockwork.Clock
	// Agreed and Disputed are those of a clocks.Watch.
	Agreed   func(ctx context.Context) (time.Time, error)
	Disputed func() error
	Logger   *slog.Logger
}

// Keeper takes and drops snapshots. Its methods may be called from many goroutines.
type Keeper struct {
	cfg   Config
	slots chan struct{} // one for each volume that is worked on
	fills chan struct{} // one for each volume that is filled
	work  sync.WaitGroup

	mu   sync.Mutex
	kept map[string]*kept // by UUID, of volumes whose home is here
}

// kept is what the home knows of a volume's snapshots. While it is busy, only the goroutine that
// works on it uses what is below busy.
type kept struct {
	copy  *copies.Copy
	epoch uint64
	// report is the last one; nil: nothing is known yet. It is never modified.
	report *snapshots.Report
	busy   bool
	// filled is how far the volume is with what it is made of, as far as this reign knows.
	filled *snapshots.Filled
	held   map[string]string // see plan

	known   bool // list is what the engine had at the time read, by the clock of Timers
	read    time.Time
	list    []volume.Snapshot // oldest first
	dropped map[string]string // see plan
	failed  map[string]string // why, by name
	rolled  snapshots.Rolled  // of the last rollback in this reign
	tokens  map[string]string // of the holds of this reign, by name
	wait    time.Duration     // after a failure; 0: the last attempt did not fail
	next    time.Time         // when it is tried again, by the clock of Timers
	agree   time.Time         // when old ones may go, if clocks agree then, by the same clock
	logged  string
	quiet   quiet
}

// quiet is a record, and what its schedule takes now, for which nothing is to be done. Nobody asks
// again until one of them is another.
type quiet struct {
	generation uint64 // of records none is 0
	wishes     []snapshots.Wish
	rollback   *snapshots.Rollback
	due        string
	disputed   string // see there
}

func quietOf(v federation.Volume, now time.Time) quiet {
	q := quiet{generation: v.Generation, wishes: v.Snapshots, rollback: v.Rollback}
	for _, s := range v.Spec.Snapshots.Schedule {
		q.due += s.Every.Name(now)
	}
	return q
}

func (q quiet) is(other quiet) bool {
	return q.generation == other.generation && q.due == other.due && q.disputed == other.disputed && slices.Equal(q.wishes, other.wishes) &&
		(q.rollback == nil) == (other.rollback == nil) && (q.rollback == nil || *q.rollback == *other.rollback)
}

// How often the Keeper looks what there is to do. It works on so many volumes at a time, and does
// so many steps for one before it looks again. Each step has a limit of time: writes of a volume
// may wait for a member. After a failure it waits, longer each time. A rollback takes a snapshot
// too, so the engine's list is read again now and then.
const (
	lookEvery = time.Second
	readEvery = time.Minute
	// agreeEvery is how long what goes for its age waits when clocks did not agree.
	agreeEvery = 10 * time.Second
	atOnce     = 16
	steps      = 16
	stepTime   = 10 * time.Second
	rollTime   = 10 * time.Minute
	waitLeast  = time.Second
	waitMost   = time.Minute
)

// New makes a Keeper.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, slots: make(chan struct{}, atOnce), fills: make(chan struct{}, fillsAtOnce), kept: map[string]*kept{}}
}

// Report returns what the home here knows of a volume's snapshots; nil: the home is not here, or
// knows nothing yet. The caller does not modify it.
func (k *Keeper) Report(uuid string) *snapshots.Report {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.kept[uuid]; s != nil {
		return s.report
	}
	return nil
}

// Run takes and drops snapshots until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	defer k.work.Wait()
	t := k.cfg.Timers.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.Chan():
		}
		k.look(ctx)
	}
}

// look begins to work on volumes for which there is something to do.
func (k *Keeper) look(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	there := map[string]bool{}
	for _, c := range k.cfg.Copies.Leading() {
		epoch, leads := c.Leading()
		v, known := k.cfg.View.Record(c.UUID)
		if !leads || !known || v.Deleted || c.Blind() {
			continue
		}
		there[c.UUID] = true
		s := k.kept[c.UUID]
		if s != nil && s.busy {
			continue // also if that is of a former reign: what it may still take has to be dropped after it
		}
		if s == nil || s.copy != c || s.epoch != epoch {
			s = &kept{copy: c, epoch: epoch, dropped: map[string]string{}, failed: map[string]string{},
				tokens: map[string]string{}}
			k.kept[c.UUID] = s
		}
		if v.Source.Unfinished() && (s.filled == nil || !s.filled.Done) {
			k.begin(s, k.fills, func() { k.fill(ctx, s, v) })
			continue
		}
		if slices.ContainsFunc(v.Snapshots, s.holds().ready) {
			s.next = time.Time{} // changes are not held for long: this does not wait for what failed before
		}
		fresh := k.cfg.Timers.Now().Sub(s.read) < readEvery
		if s.known && fresh {
			now := k.cfg.Now()
			q := quietOf(v, now)
			q.disputed = k.disputed(v)
			if q.is(s.quiet) {
				continue
			}
			s.held = k.beingMade(c.UUID)
			holds := s.holds()
			held := holds.now() // before it is told: it may end at any time
			s.tell(v, q.disputed)
			waits := k.cfg.Timers.Now().Before(s.agree)
			if t := plan(v, s.list, s.dropped, s.held, s.rolled, holds, now); t.nothing(waits) {
				// Else another volume's record decides when, or the time of a hold, or clocks do.
				if len(s.held) == 0 && !held && !waits {
					s.quiet = q
				}
				continue
			}
		}
		k.begin(s, k.slots, func() { k.keep(ctx, s, v) })
	}
	for uuid, s := range k.kept {
		if !there[uuid] && !s.busy {
			delete(k.kept, uuid)
		}
	}
}

// begin begins to work on a volume, if that is to be tried again now and there is a slot. The
// caller holds mu.
func (k *Keeper) begin(s *kept, slots chan struct{}, work func()) {
	if k.cfg.Timers.Now().Before(s.next) {
		return
	}
	select {
	case slots <- struct{}{}:
		s.busy = true
		k.work.Go(func() {
			work()
			<-slots
		})
	default: // at the next look
	}
}

// keep does what is to be done for one volume.
func (k *Keeper) keep(ctx context.Context, s *kept, v federation.Volume) {
	err := k.step(ctx, s, v)
	k.mu.Lock()
	defer k.mu.Unlock()
	s.busy, s.quiet = false, quiet{}
	if err != nil {
		s.wait = min(waitMost, max(waitLeast, 2*s.wait))
		s.next = k.cfg.Timers.Now().Add(s.wait)
	} else {
		s.wait, s.next = 0, time.Time{}
	}
	if s.known {
		s.tell(v, k.disputed(v))
	}
	if err == nil || passes(err) || ctx.Err() != nil {
		s.logged = ""
		return
	}
	if text := err.Error(); text != s.logged {
		k.cfg.Logger.Warn("snapshots are not as the volume's record says; it is tried again", "volume", v.Name, "error", err)
		s.logged = text
	}
}

// passes reports whether a failure passes without anybody's doing.
func passes(err error) bool {
	return errors.Is(err, journal.ErrNotHome) || errors.Is(err, context.Canceled) || errors.Is(err, volume.ErrUnknown)
}

// step reads the engine's list, and takes and drops what the record says by it.
func (k *Keeper) step(ctx context.Context, s *kept, v federation.Volume) error {
	ctx, done, err := s.copy.Use(ctx)
	if err != nil {
		return err
	}
	defer done()
	s.known = false
	if s.list, err = k.read(ctx, s); err != nil {
		return err
	}
	s.known = true
	clear(s.failed) // what still fails is tried again now
	s.held = k.beingMade(v.UUID)
	t := plan(v, s.list, s.dropped, s.held, s.rolled, s.holds(), k.cfg.Now())
	for _, token := range t.release {
		s.copy.Engine.ReleaseChanges(token)
	}
	if t.roll != nil {
		if err := k.roll(ctx, s, v); err != nil {
			return err
		}
	}
	var failures error
	left := steps
	do := func(what, name string, f func(ctx context.Context) error) {
		if epoch, leads := s.copy.Leading(); !leads || epoch != s.epoch {
			failures = cmp.Or(failures, journal.ErrNotHome)
			return
		}
		if left--; left < 0 {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, stepTime)
		defer cancel()
		if err := f(ctx); err != nil {
			s.failed[name] = err.Error()
			failures = cmp.Or(failures, err)
			return
		}
		k.cfg.Logger.Info("snapshot "+what, "volume", v.Name, "snapshot", name)
	}
	for _, w := range t.finish {
		do("taken while changes were held", w.Name, func(ctx context.Context) error {
			_, err := s.copy.Engine.TakeHeld(ctx, w.Name, w.Take)
			if errors.Is(err, engine.ErrHoldOver) { // which the report says then
				return nil
			}
			return err
		})
	}
	drop := func(ctx context.Context, name string) error {
		err := s.copy.Engine.DropSnapshot(ctx, volume.Request{}, name)
		if errors.Is(err, volume.ErrNotExist) {
			return nil
		}
		return err
	}
	for _, name := range t.drop {
		do("dropped", name, func(ctx context.Context) error {
			err := drop(ctx, name)
			if w, asked := snapshots.Find(v.Snapshots, name); err == nil && asked {
				s.dropped[name] = w.UID
			}
			return err
		})
	}
	for _, name := range t.take {
		do("taken", name, func(ctx context.Context) error {
			_, err := s.copy.Engine.TakeSnapshot(ctx, volume.Request{}, name)
			if errors.Is(err, volume.ErrExist) { // an attempt whose outcome was not known
				return nil
			}
			return err
		})
	}
	// What schedules have too many of waits while clocks do not agree. Nothing else waits for that.
	if len(t.old) > 0 {
		now, err := k.cfg.Agreed(ctx)
		if ctx.Err() != nil {
			return cmp.Or(failures, ctx.Err())
		}
		if t.old = nil; err == nil {
			t.old = old(v, s.list, s.held, now)
		} else {
			s.agree = k.cfg.Timers.Now().Add(agreeEvery)
		}
	}
	for _, name := range t.old {
		do("dropped", name, func(ctx context.Context) error { return drop(ctx, name) })
	}
	for _, w := range t.hold {
		do("waits, and changes are held for it", w.Name, func(ctx context.Context) error {
			token := rand.Text()
			err := s.copy.Engine.HoldChanges(ctx, w.Name, token, snapshots.HoldTime)
			if err == nil {
				s.tokens[w.Name] = token
			}
			return err
		})
	}
	if t.nothing(false) {
		return nil
	}
	s.known = false
	if s.list, err = k.read(ctx, s); err != nil {
		return cmp.Or(failures, err)
	}
	s.known = true
	return failures
}

// roll rolls a volume back as its record says, or goes on with that (snapshots-4). It returns why
// that is not done yet; a refusal is done.
func (k *Keeper) roll(ctx context.Context, s *kept, v federation.Volume) error {
	if epoch, leads := s.copy.Leading(); !leads || epoch != s.epoch {
		return journal.ErrNotHome
	}
	r := *v.Rollback
	ctx, cancel := context.WithTimeout(ctx, rollTime)
	defer cancel()
	to, refused := r.To, "there is no snapshot "+r.To
	if k.cfg.Now().After(r.Until) {
		// No snapshot has this name. So one that the log has goes on, and no other begins.
		to, refused = "", "the volume's home could not begin it until "+r.Until.UTC().Format(time.RFC3339)
	}
	id := volume.OpID{Slot: "rollback/" + r.ID, Seq: 1}
	err := s.copy.Engine.Rollback(ctx, volume.Request{ID: id}, to, r.Before())
	s.rolled = snapshots.Rolled{ID: r.ID, State: snapshots.StateDone}
	switch {
	case errors.Is(err, volume.ErrNotExist):
		s.rolled.State, s.rolled.Message = snapshots.StateRefused, refused+": nothing was changed"
		return nil
	case err != nil:
		s.rolled.State, s.rolled.Message = snapshots.StatePending, err.Error()
		return err
	}
	k.cfg.Logger.Info("volume rolled back", "volume", v.Name, "snapshot", r.To, "before", r.Before())
	return nil
}

// read returns the engine's list, oldest first.
func (k *Keeper) read(ctx context.Context, s *kept) ([]volume.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	s.read = k.cfg.Timers.Now()
	list, err := s.copy.Engine.Snapshots(ctx)
	slices.SortFunc(list, func(a, b volume.Snapshot) int { return cmp.Compare(a.Snap, b.Snap) })
	return list, err
}

func (s *kept) holds() holds { return holds{s.tokens, s.copy.Engine.HoldsChanges} }

// disputed says why nothing of a volume goes for its age; empty: it goes, or nothing is kept for a
// time.
func (k *Keeper) disputed(v federation.Volume) string {
	is := v.Spec.Snapshots
	if err := k.cfg.Disputed(); err != nil && (is.Window > 0 || len(is.Schedule) > 0 || v.Spec.Trash.Keep > 0) {
		return err.Error()
	}
	return ""
}

// tell makes a report of a record's wishes, if there is something new to say. The caller holds mu,
// and nobody works on the volume.
func (s *kept) tell(v federation.Volume, disputed string) {
	for name, uid := range s.dropped { // a wish that was taken out of the record may come again
		if w, ok := snapshots.Find(v.Snapshots, name); !ok || !w.Drop || w.UID != uid {
			delete(s.dropped, name)
		}
	}
	s.holds().forget(v.Snapshots)
	r := report(v.Snapshots, s.list, s.dropped, s.failed, s.held, s.holds())
	r.Filled = s.filled
	if v.Rollback != nil {
		rolled := snapshots.Rolled{ID: v.Rollback.ID, State: snapshots.StatePending}
		if s.rolled.ID == rolled.ID {
			rolled = s.rolled
		}
		r.Rolled = &rolled
	}
	for _, name := range slices.Sorted(maps.Keys(s.failed)) {
		if !asked(v, name) && r.Problem == "" {
			r.Problem = name + ": " + s.failed[name]
		}
	}
	r.Problem = cmp.Or(r.Problem, disputed)
	if s.report == nil || !same(s.report, r) {
		s.report = r
	}
}

func same(a, b *snapshots.Report) bool {
	return a.Filled == b.Filled && a.More == b.More && a.Problem == b.Problem && slices.Equal(a.All, b.All) &&
		(a.Rolled == nil) == (b.Rolled == nil) && (a.Rolled == nil || *a.Rolled == *b.Rolled)
}
