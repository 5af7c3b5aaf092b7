// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation/view"
	"github.com/weir-storage/weir/gateway/mending"
	"github.com/weir-storage/weir/gateway/objects"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/replica/peer/peerpb"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// Copy is a copy with a key that is open here.
type Copy struct {
	UUID    string
	Engine  *engine.Engine
	Log     *log.Log
	Replica *replica.Replica
	Keys    *segment.Keys
	Use     func(ctx context.Context) (_ context.Context, done func(), err error)
	// Condemns: the home may condemn segments of the volume.
	Condemns bool
	// Aside reports whether a copy of the volume is kept aside here: it may need what is condemned.
	Aside func() bool
	// Tails returns in which time what is committed is to be in stores, if the end of the log goes
	// there in pieces; 0: it does not. It is what the replica has.
	Tails func() time.Duration
}

// Due says when the home of a volume asks for another checkpoint, and when what is condemned goes.
type Due struct {
	Bytes    int64  // by which the log grew since the last one, or a quarter of what the volume uses
	Least    int64  // at least, if Bytes are more; 0: that quarter does not count
	Shrunk   int64  // bytes by which what the volume uses became less
	Segments uint64 // that ended since the last one
	Cost     int64  // times what the last one put into the store, by which the log grew
	// Grace is how long what is condemned stays: readers of an earlier state may still look for it.
	Grace time.Duration
	Pack  pack.Rule // when live blocks move into packs; zero: ADR 54
	// Every is how often it is looked what is to be done; zero: 3 s.
	Every time.Duration
}

// standard is when a checkpoint is due, unless a test wants other ones.
var standard = Due{Bytes: 128 << 20, Least: 32 << 20, Shrunk: 32 << 20, Segments: 64, Cost: 2, Grace: 10 * time.Minute}

// Config is what a Keeper needs.
type Config struct {
	Gateway string // this one
	Site    string
	View    *view.View
	Client  func(gateway string) (peerpb.PeerClient, error)
	Store   store.Store // of this site; nil: it has none
	Timers  clockwork.Clock
	Logger  *slog.Logger
	Due     Due // zero: the usual
}

// Keeper makes the checkpoints of one gateway's copies. Any goroutine may call its methods.
type Keeper struct {
	cfg Config

	mu   sync.Mutex
	last map[string]made // by UUID
	// condemned has bytes of segments that are condemned and not dropped, by UUID.
	condemned map[string]uint64
	// seen is since when segments of a volume are known here to be condemned. Only sweepAll uses
	// it.
	seen  map[string]map[uint64]time.Time
	known map[string]*known // by UUID; only sweepAll uses it
	swept time.Time         // the last time; only sweepAll uses it
	held  map[string]bool   // copies of which last stays known although they are closed, by UUID
	// plans are what homes have to do for packs, by UUID.
	plans  map[string]*plan
	packed map[string]*packing // by UUID
	// fetched counts, by UUID, packs that could not be made here, and came from another gateway.
	fetched  map[string]int
	tails    map[string]*tail   // by UUID; only tailAll uses it
	strays   map[string]*strays // by UUID; only sweepAll uses it
	suspects mending.Suspects
	// packBytes are the bytes of packs in the site's store, by UUID.
	packBytes map[string]uint64
	// ended and done are how the copies were that tendAll and sweepAll last looked at and left with
	// nothing to do, so that idle volumes cost nothing. Each is only that one's.
	ended map[string]state
	done  map[string]swept

	making sync.Mutex // a checkpoint is being made, or objects removed; taken before mu
}

// made is the newest checkpoint that this gateway made of a volume.
type made struct {
	engine   *engine.Engine // that has the metadata; nil: the next one that is seen
	number   uint64
	manifest *checkpoint.Manifest
	used     uint64 // bytes by the volume
	put      int64  // bytes that it took in the store
	whole    bool   // the next one is not to be made as a change of this, which can not be read
	differs  uint64
	alike    uint64 // the newest that was found to be what the home made
	// agreed is the newest that is what another gateway made as home, and led the newest that this
	// one made as home.
	agreed, led uint64
	// hashes are those of the last ones by number: the home may commit one when another is made.
	hashes map[uint64]checkpoint.Hash
	mine   map[uint64]bool // those that this gateway made as home, of the last ones
	unused []uint64        // segments that nothing uses, if the home made it
	// tried is the data key with which something was to be sealed anew of what lived then, and
	// clean the same number if nothing was left for that. 0: nobody looked.
	tried, clean uint32
	at           time.Time       // when it was made, or another one asked for
	moved        bool            // since then a pack was made
	idle         int             // how many in a row were made without a pack since the one before
	failed       int             // how many in a row could not be made since: the store is away, say
	former       map[string]bool // objects of the one before
	swept        bool            // objects of earlier ones are removed
}

// New returns a Keeper.
func New(cfg Config) *Keeper {
	if cfg.Due == (Due{}) {
		cfg.Due = standard
	}
	if cfg.Due.Pack == (pack.Rule{}) {
		cfg.Due.Pack = pack.DefaultRule()
	}
	if cfg.Due.Every == 0 {
		cfg.Due.Every = every
	}
	return &Keeper{cfg: cfg, last: map[string]made{}, condemned: map[string]uint64{}, seen: map[string]map[uint64]time.Time{},
		plans: map[string]*plan{}, fetched: map[string]int{}, packBytes: map[string]uint64{}, packed: map[string]*packing{},
		strays: map[string]*strays{}, ended: map[string]state{}, done: map[string]swept{},
		tails: map[string]*tail{}, held: map[string]bool{}, known: map[string]*known{}}
}

// every is how often it is looked what is to be done, usually.
const every = 3 * time.Second

// Run tends and fills all copies until ctx ends.
func (k *Keeper) Run(ctx context.Context, all func() []Copy) {
	keep := func(do func(context.Context, []Copy)) {
		t := k.cfg.Timers.NewTicker(k.cfg.Due.Every)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.Chan():
				do(ctx, all())
			}
		}
	}
	var work sync.WaitGroup
	work.Go(func() { keep(k.tendAll) })
	work.Go(func() { keep(k.fillAll) })
	work.Go(func() { keep(k.sweepAll) })
	work.Go(func() { keep(k.tailAll) })
	work.Wait()
}

// tendAll makes the checkpoints that copies have cut, and asks for those that are due.
func (k *Keeper) tendAll(ctx context.Context, all []Copy) {
	k.forget(all)
	for _, c := range all {
		k.renew(c)
		is := k.stateOf(c)
		if was, ok := k.ended[c.UUID]; ok && was == is {
			continue
		}
		idle, err := k.tend(ctx, c)
		if err != nil && ctx.Err() == nil && !errors.Is(err, volume.ErrDelay) {
			k.cfg.Logger.Warn("checkpoint of the volume is made later", "volume", c.UUID, "error", err)
		}
		if idle {
			k.ended[c.UUID] = is
		} else {
			delete(k.ended, c.UUID)
		}
	}
}

// forget forgets volumes without a copy here.
func (k *Keeper) forget(all []Copy) {
	k.mu.Lock()
	defer k.mu.Unlock()
	here := map[string]bool{}
	for _, c := range all {
		here[c.UUID] = true
	}
	maps.DeleteFunc(k.last, func(id string, _ made) bool { return !here[id] && !k.held[id] })
	maps.DeleteFunc(k.ended, func(id string, _ state) bool { return !here[id] })
	maps.DeleteFunc(k.plans, func(id string, _ *plan) bool { return !here[id] })
}

// state is how a copy is, as far as this package is concerned: if it is the same, there is nothing
// else to do.
type state struct {
	end, applied log.Position
	leads        bool
	reseals      uint32
}

func (k *Keeper) stateOf(c Copy) state {
	_, leads := c.Replica.Leading()
	return state{c.Log.End(), c.Engine.Applied(), leads, k.reseals(c)}
}

// tend does for one copy what is to be done now. idle: there is nothing more to do before its
// state is another one.
func (k *Keeper) tend(ctx context.Context, c Copy) (idle bool, err error) {
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	if cut := c.Engine.TakeCut(); cut != nil {
		if err := k.make(ctx, c, cut); err != nil {
			k.notMade(ctx, c.UUID, err)
			return false, errors.Join(err, cut.Close(), c.Engine.Keep(nil))
		}
		if err := c.Engine.Keep(cut); err != nil {
			return false, err
		}
	}
	now, err := c.Engine.Checkpoints()
	if err != nil {
		return false, err
	}
	k.compare(c, now)
	idle = now.Asked.Number == now.Placed.Number && now.Placed.Number == now.Made.Number
	if _, leads := c.Replica.Leading(); !leads {
		return idle, nil
	}
	last := k.of(c.UUID)
	if last.number > now.Made.Number && last.number == now.Placed.Number {
		k.commits(c.UUID, last.number)
		if err := c.Engine.MadeCheckpoint(ctx, last.manifest, last.number, last.used); err != nil {
			return false, err
		}
		// The next one may be there when this is looked at again: condemn would never come.
		if now, err = c.Engine.Checkpoints(); err != nil {
			return false, err
		}
		k.compare(c, now)
	}
	if err := k.condemn(ctx, c, now, last); err != nil {
		return false, err
	}
	asked, err := k.ask(ctx, c, now, last)
	left, _ := k.resealing(c, now)
	return idle && !asked && !left && len(last.unused) == 0, err
}

// make makes the checkpoint of what was cut.
func (k *Keeper) make(ctx context.Context, c Copy, cut *engine.Cut) error {
	k.making.Lock()
	defer k.making.Unlock()
	began := k.cfg.Timers.Now()
	to := k.objects(c.UUID)
	to.Keys = c.Keys.Get
	if now, err := c.Engine.Checkpoints(); err == nil { // the store has lost something: what else?
		to.Doubts = now.Asked.Whole && now.Asked.Number == cut.Number
	}
	m, stats, err := cut.Write(ctx, c.Keys.Get, to)
	if errors.Is(err, engine.ErrBase) && ctx.Err() == nil {
		k.mu.Lock()
		was := k.last[c.UUID]
		was.whole = true
		k.last[c.UUID] = was
		k.mu.Unlock()
	}
	if err != nil {
		return err
	}
	k.cfg.Logger.Info("checkpoint is made", "volume", c.UUID, "number", cut.Number, "at", m.At, "pairs", m.Pairs, "bytes", m.Bytes,
		"chunks", stats.Chunks, "put", stats.Uploaded, "sealed", stats.Sealed, "took", k.cfg.Timers.Since(began).Round(time.Millisecond))
	is := made{engine: c.Engine, number: cut.Number, manifest: m, put: stats.Sealed}
	if is.used, err = cut.Used(); err != nil {
		return err
	}
	var next *plan
	_, leads := c.Replica.Leading()
	if leads && c.Condemns {
		if next, err = k.plan(ctx, c, cut, &is); err != nil { // the checkpoint is made all the same
			k.cfg.Logger.Error("what the volume uses can not be counted: nothing of it is condemned", "volume", c.UUID, "error", err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.plans[c.UUID] = next; next == nil {
		delete(k.plans, c.UUID)
	}
	was := k.last[c.UUID]
	is.hashes, is.mine = map[uint64]checkpoint.Hash{is.number: m.Hash()}, map[uint64]bool{}
	for number, hash := range was.hashes {
		if number+16 > is.number {
			is.hashes[number], is.mine[number] = hash, was.mine[number]
		}
	}
	is.follows(was, began)
	if is.led, is.agreed = was.led, was.agreed; leads {
		is.mine[is.number], is.led = true, is.number
	}
	if is.differs, is.alike = was.differs, was.alike; was.manifest != nil {
		is.former = map[string]bool{}
		for _, name := range was.manifest.Names() {
			is.former[name] = true
		}
	}
	k.last[c.UUID] = is
	return nil
}

// Objects returns those of a volume's checkpoints, here and elsewhere. Without a key it finds
// damage, and no forgery.
func (k *Keeper) Objects(id string) checkpoint.Objects { return k.objects(id) }

func (k *Keeper) objects(id string) objects.Set {
	o := objects.Set{Store: k.cfg.Store, Volume: id}
	if v := k.cfg.View.Volume(id); v != nil && v.Control != nil {
		o.Others = (&Beginning{Gateway: k.cfg.Gateway, Control: v.Control, Client: k.cfg.Client}).others()
	}
	return o
}

func (k *Keeper) of(id string) made {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last[id]
}

// ask asks for a checkpoint if one is due, and has the one placed that was asked for. asked: it did
// something.
func (k *Keeper) ask(ctx context.Context, c Copy, now engine.Checkpoints, last made) (asked bool, err error) {
	if now.Asked.Number == now.Placed.Number {
		end := c.Log.End()
		grown := c.Log.Distance(now.Placed.At, end)
		shrunk := max(0, int64(now.Made.Used)-int64(now.Used))
		bytes := k.cfg.Due.Bytes
		if least := k.cfg.Due.Least; least > 0 { // a small volume is not to have many times of what it uses
			bytes = min(bytes, max(least, int64(now.Used/4)))
		}
		_, reseal := k.resealing(c, now)
		due := grown >= bytes || shrunk >= k.cfg.Due.Shrunk || end.Seq >= now.Placed.At.Seq+k.cfg.Due.Segments
		if due = due && grown+shrunk >= k.cfg.Due.Cost*last.put || last.whole || reseal; !due || grown == 0 || !k.mayAsk(last) {
			return false, nil
		}
		number, _ := c.Keys.Newest()
		if err := c.Engine.AskCheckpoint(ctx, number, last.whole); err != nil {
			return true, err
		}
		k.asked(c.UUID)
		if now, err = c.Engine.Checkpoints(); err != nil {
			return true, err
		}
	}
	// The record is at or before the end of the log as it is now.
	end := c.Log.End()
	if now.Placed.Next == end.Seq || now.Placed.Next == 0 {
		c.Replica.Roll()
		if c.Log.End().Seq == end.Seq {
			return true, nil // the event loop has not come to it yet
		}
	}
	return true, c.Engine.AskCheckpoint(ctx, now.Asked.Key, now.Asked.Whole)
}

// fillAll fetches what copies lack of the past (checkpoints-3).
func (k *Keeper) fillAll(ctx context.Context, all []Copy) {
	for _, c := range all {
		if c.Log.AbsentBytes() == 0 {
			continue
		}
		if err := k.fill(ctx, c); err != nil && ctx.Err() == nil {
			k.cfg.Logger.Warn("this copy does not have the whole past yet; trying again", "volume", c.UUID, "bytes", c.Log.AbsentBytes(),
				"error", err)
		}
	}
}

func (k *Keeper) fill(ctx context.Context, c Copy) error {
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return err
	}
	defer done()
	there := map[string]int64{}
	if k.cfg.Store != nil {
		if err := k.cfg.Store.List(ctx, c.UUID+"/", func(i store.Info) error {
			there[i.Name] = i.Size
			return nil
		}); err != nil {
			return err
		}
	}
	err = k.fillMoved(ctx, c, there)
	return errors.Join(err, c.Replica.FetchPast(ctx, func(name string, size uint64) bool {
		n, ok := there[name]
		return ok && uint64(n) == size
	}))
}

// Newest returns the newest checkpoint of a volume that is committed, as far as its copy among all
// knows, for another gateway.
func (k *Keeper) Newest(ctx context.Context, id string, all []Copy) (*peerpb.CheckpointReply, error) {
	i := slices.IndexFunc(all, func(c Copy) bool { return c.UUID == id })
	if i < 0 {
		return nil, fmt.Errorf("there is no copy with a key of volume %s", id)
	}
	_, done, err := all[i].Use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	now, err := all[i].Engine.Checkpoints()
	switch differs := k.of(id).differs; {
	case err != nil:
	case now.Made.Number == 0:
		err = fmt.Errorf("no checkpoint of volume %s is committed", id)
	case differs == now.Made.Number: // it is not to be passed on
		err = fmt.Errorf("checkpoint %d of volume %s is not what this copy made: it is in question", differs, id)
	}
	if err != nil {
		return nil, err
	}
	return &peerpb.CheckpointReply{Number: now.Made.Number, At: &peerpb.Position{Seq: now.Made.At.Seq, Off: now.Made.At.Off},
		Hash: now.Made.Hash[:]}, nil
}
