// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/gateway/packsource"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// packing is what is known of one volume's packs here.
type packing struct {
	// work is held by who makes, fetches or drops something. It guards the others. It is taken
	// before all locks of a Keeper.
	work sync.Mutex
	// stored are the packs that the site's store has, by their hash, and their lengths; nil: it was
	// not listed yet.
	stored map[pack.Hash]uint64
	// covered are the packs, by number, that are known to have all blocks that the metadata here
	// name of their segments (checkpoints-8).
	covered map[uint64]bool
	engine  *engine.Engine       // that covered, seen and proved are of
	seen    map[uint64]time.Time // since when packs are known to be condemned, by number
	// proved is by a pack's number the last segment that may have its record. When the site's store
	// has all up to there, whoever has only that store knows of the pack. 0: it has.
	proved map[uint64]uint64
	// loose are packs of the store that the metadata do not name, by their hash.
	loose map[pack.Hash]loose
	// bad are packs that this process put, or verified. True: the site's store has it damaged, or
	// lacks it, and it is replaced.
	bad    map[pack.Hash]bool
	waits  bool // one of them has only to wait for its grace
	wanted int  // packs that the site's store does not have yet
	told   bool // that the site has no store
	// next is when the home may make another pack, by the owner's rate.
	next time.Time
}

// plan is what the home has to do for packs.
type plan struct {
	number uint64 // of the checkpoint
	uses   engine.Uses
	packs  []engine.PackPlan
}

// plan plans what is to go, and notes what nothing uses.
func (k *Keeper) plan(ctx context.Context, c Copy, cut *engine.Cut, is *made) (*plan, error) {
	is.tried = k.reseals(c)
	uses, err := cut.Uses(ctx)
	if err != nil {
		return nil, err
	}
	var packs []engine.PackPlan
	if k.cfg.Store != nil {
		if packs, is.clean, err = cut.Plan(ctx, uses, k.cfg.Due.Pack, is.tried); err != nil {
			return nil, err
		}
	}
	if is.unused = uses.Unused; len(packs)+len(uses.Empty)+len(uses.Emptied) == 0 {
		return nil, nil
	}
	return &plan{is.number, uses, packs}, nil
}

// packsOf returns what is known of a volume's packs.
func (k *Keeper) packsOf(id string) *packing {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.packed[id]
	if p == nil {
		p = &packing{covered: map[uint64]bool{}, seen: map[uint64]time.Time{}, proved: map[uint64]uint64{}, loose: map[pack.Hash]loose{},
			bad: map[pack.Hash]bool{}}
		k.packed[id] = p
	}
	return p
}

// pack has the home make the packs that were planned, and commits each (checkpoints-7).
func (k *Keeper) pack(ctx context.Context, c Copy) error {
	k.mu.Lock()
	plan := k.plans[c.UUID]
	k.mu.Unlock()
	if plan == nil {
		return nil
	}
	if _, leads := c.Replica.Leading(); !leads || !c.Condemns {
		k.planned(c.UUID, plan, nil)
		return nil
	}
	now, err := c.Engine.Checkpoints()
	if err != nil || plan.number > now.Made.Number || !k.mayCondemn(c, now) {
		return err
	}
	if err := c.Engine.Settle(ctx, plan.number, plan.uses); err != nil {
		return err
	}
	if k.cfg.Store != nil {
		if err := k.list(ctx, c, k.packsOf(c.UUID)); err != nil {
			return err
		}
	}
	left := *plan
	left.uses.Empty, left.uses.Emptied = nil, nil
	for len(left.packs) > 0 {
		next := left.packs[0]
		if k.cfg.Store == nil {
			break // nobody else makes what the home does not have
		}
		says, began := k.compaction(c.UUID), k.cfg.Timers.Now()
		if p := k.packsOf(c.UUID); !says.May(p.next, began) {
			return nil // it goes on in a later round
		}
		var built pack.Built
		may := func(b pack.Built) error { return c.Engine.MayPack(next, b) }
		if err = may(built); err == nil {
			number, _ := c.Keys.Newest()
			built, err = k.build(ctx, c, next.Kept, next.From, number, may)
		}
		if err == nil {
			err = c.Engine.Pack(ctx, left.number, next, built)
		}
		if name, bad := damaged(err); bad && ctx.Err() == nil {
			k.suspects.Tell(c.UUID, name)
			// What is in it stays where it is, and others go on. The next plan tries it again.
			k.cfg.Logger.Error("a pack is not made: an object is damaged, or missing", "volume", c.UUID, "object", name, "error", err)
		} else if errors.Is(err, pack.ErrTooLarge) {
			k.cfg.Logger.Error("a pack is not made: what is planned for it does not fit", "volume", c.UUID, "error", err)
		} else if err != nil && !errors.Is(err, volume.ErrInvalid) {
			return fmt.Errorf("make a pack: %w", err)
		}
		if err == nil {
			k.cfg.Logger.Info("live blocks moved into a pack", "volume", c.UUID, "checkpoint", left.number,
				"segments", len(next.Kept), "packs", len(next.From), "bytes", built.Len)
			k.packsOf(c.UUID).moved(says, began, built.Len, k.sweepEvery())
			k.madePack(c.UUID)
		}
		left.packs = left.packs[1:]
		after := left
		if !k.planned(c.UUID, plan, &after) {
			return nil // there is another plan
		}
		if plan = &after; err == nil && next.Reseals && len(left.packs) > 0 {
			return nil // it takes long, and other volumes go on meanwhile (ADR 67)
		}
	}
	k.planned(c.UUID, plan, nil)
	return nil
}

// damaged returns the name of the object of which an error says that its bytes are wrong, or that
// it is not there, or not all of it. A store that is away says nothing of it.
func damaged(err error) (object string, is bool) {
	s := new(pack.ObjectError)
	switch {
	case !errors.As(err, &s):
		return "", errors.Is(err, packsource.ErrNotHere)
	case errors.Is(err, store.ErrUnavailable): // its answer broke off, say
		return s.Name, false
	}
	return s.Name, slices.ContainsFunc([]error{pack.ErrCorrupt, pack.ErrNoBlock, store.ErrNotExist, store.ErrShort, fs.ErrNotExist,
		io.ErrUnexpectedEOF}, func(bad error) bool { return errors.Is(err, bad) })
}

// planned replaces a plan, unless there is another one: false.
func (k *Keeper) planned(id string, was, is *plan) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.plans[id] != was {
		return false
	}
	if k.plans[id] = is; is == nil {
		delete(k.plans, id)
	}
	return true
}

// build makes a pack from what this copy has, and puts it into the site's store, if may returns
// nil.
func (k *Keeper) build(ctx context.Context, c Copy, kept []pack.Kept, from []engine.Pack, number uint32,
	may func(pack.Built) error) (b pack.Built, err error) {
	of, err := packsource.VolumeOf(c.UUID)
	if err != nil {
		return b, err
	}
	sources, seal, err := packsource.Of(ctx, packsource.Copy{Volume: of, Log: c.Log, Keys: c.Keys, Store: k.cfg.Store}, kept, from, number)
	if err != nil {
		return b, err
	}
	f, err := c.Log.NewPackFile(packsource.Most(kept))
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if b, err = pack.Build(of, sources, seal, f); err != nil {
		return b, err
	}
	if err := may(b); err != nil {
		return b, err
	}
	return b, k.put(ctx, c, b.Hash, b.Len, f)
}

// put puts a pack into the site's store.
func (k *Keeper) put(ctx context.Context, c Copy, hash pack.Hash, length uint64, from io.ReaderAt) error {
	of, err := packsource.VolumeOf(c.UUID)
	if err != nil {
		return err
	}
	name := pack.Name(of, hash)
	body := func() io.ReadSeeker { return io.NewSectionReader(from, 0, int64(length)) }
	p := k.packsOf(c.UUID)
	if p.bad[hash] {
		err = store.Replace(ctx, k.cfg.Store, name, int64(length), body())
	} else {
		err = k.cfg.Store.Put(ctx, name, int64(length), body())
	}
	if errors.Is(err, store.ErrConflict) { // what is there is no pack of that hash: nothing reads it
		err = store.Replace(ctx, k.cfg.Store, name, int64(length), body())
	}
	if err != nil {
		return err
	}
	if p.bad[hash] = false; p.stored != nil {
		p.stored[hash] = length
	}
	return nil
}

// gather has the site's store get the packs that count and that it lacks. What this copy has is
// built here; else the pack comes from another gateway (checkpoints-8).
func (k *Keeper) gather(ctx context.Context, c Copy, table *engine.Packs) error {
	p := k.packsOf(c.UUID)
	if p.engine != c.Engine { // it may have other metadata
		p.engine = c.Engine
		clear(p.covered)
		clear(p.seen)
		clear(p.proved)
	}
	if len(table.All) == 0 {
		return nil
	}
	if k.cfg.Store == nil {
		if !p.told && len(table.Moved) > 0 {
			p.told = true
			k.cfg.Logger.Warn("the volume has packs, which are kept in stores only: this site has none, so what moved into them stays on "+
				"the pool, and a copy that does not have it does not get it: give the site a store", "volume", c.UUID)
		}
		return nil
	}
	if err := k.list(ctx, c, p); err != nil {
		return err
	}
	defer func() {
		var n uint64
		for _, length := range p.stored {
			n += length
		}
		k.mu.Lock()
		k.packBytes[c.UUID] = n
		k.mu.Unlock()
	}()
	p.wanted = 0
	errs := []error{k.examine(ctx, c, p, table)}
	var unsure []engine.Pack
	for _, is := range table.All {
		if is.Condemned != 0 {
			continue
		}
		if _, ok := p.proved[is.Number]; !ok {
			end := c.Log.End()
			if end.Off <= segment.HeaderSize { // nothing is in it yet
				end.Seq--
			}
			p.proved[is.Number] = end.Seq
		}
		if p.stored[is.Hash] != is.Len || p.bad[is.Hash] {
			if err := k.get(ctx, c, is, table); err != nil {
				p.wanted++
				errs = append(errs, err)
				continue
			}
		}
		if !p.covered[is.Number] {
			unsure = append(unsure, is)
		}
	}
	if len(unsure) > 0 && c.Engine.Covers(ctx, unsure) == nil {
		for _, is := range unsure {
			p.covered[is.Number] = true
		}
		unsure = nil
	}
	for _, is := range unsure { // one that lacks something does not hold up the others
		if err := c.Engine.Covers(ctx, []engine.Pack{is}); err != nil {
			errs = append(errs, err)
			continue
		}
		p.covered[is.Number] = true
	}
	return errors.Join(errs...)
}

// list lists the packs of the site's store, once.
func (k *Keeper) list(ctx context.Context, c Copy, p *packing) error {
	if p.stored != nil {
		return nil
	}
	var err error
	p.stored, err = packsource.List(ctx, k.cfg.Store, c.UUID)
	return err
}

// get makes or fetches a pack.
func (k *Keeper) get(ctx context.Context, c Copy, is engine.Pack, table *engine.Packs) error {
	index, err := c.Engine.PackIndex(is)
	if err != nil {
		return err
	}
	var from []engine.Pack
	for _, n := range is.From {
		from = append(from, table.All[n-1])
	}
	_, err = k.build(ctx, c, index.Kept(), from, index.Key(), func(b pack.Built) error { return packsource.Alike(b, is) })
	if err == nil || ctx.Err() != nil || errors.Is(err, log.ErrFull) {
		return err
	}
	if s := new(pack.ObjectError); errors.As(err, &s) && errors.Is(err, pack.ErrCorrupt) {
		k.suspects.Tell(c.UUID, s.Name)
		k.cfg.Logger.Error("an object is damaged", "volume", c.UUID, "object", s.Name, "error", err)
	}
	level := slog.LevelWarn
	if errors.Is(err, packsource.ErrNotHere) {
		level = slog.LevelInfo // a copy that began with a checkpoint
	}
	k.cfg.Logger.Log(ctx, level, "a pack is not made here, and comes from another gateway", "volume", c.UUID,
		"pack", is.Number, "bytes", is.Len, "error", err)
	f, err := c.Log.FetchPack(ctx, is.Hash, is.Len)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.fetched[c.UUID]++
	k.mu.Unlock()
	return errors.Join(k.put(ctx, c, is.Hash, is.Len, f), f.Close())
}

// holds reports whether the site's store has a pack that counts, which has all that the metadata
// here need of it, and whether the store has the record of it, too. It asks the store: what is
// dropped because of the pack is gone for good (checkpoints-8).
func (k *Keeper) holds(ctx context.Context, c Copy, is engine.Pack) (bool, error) {
	p := k.packsOf(c.UUID)
	record, known := p.proved[is.Number]
	if k.cfg.Store == nil || !p.covered[is.Number] || !known || record > 0 && (c.Log.End().Seq <= record ||
		len(c.Log.Unstored(0, log.Position{Seq: record, Off: math.MaxUint64}, 1)) > 0) {
		return false, nil
	}
	of, err := packsource.VolumeOf(c.UUID)
	if err != nil {
		return false, err
	}
	i, err := k.cfg.Store.Stat(ctx, pack.Name(of, is.Hash))
	if errors.Is(err, store.ErrNotExist) || err == nil && uint64(i.Size) != is.Len {
		delete(p.stored, is.Hash) // it is made, or fetched, again
		return false, nil
	}
	if _, known := p.bad[is.Hash]; err == nil && !known { // who put it is not known: an earlier process, say
		err = k.verify(ctx, c, p, is)
	}
	return err == nil && !p.bad[is.Hash], err
}

// fillMoved gets, for a copy that began with a checkpoint, the packs in which live blocks of
// segments are that it lacks, and drops those segments.
func (k *Keeper) fillMoved(ctx context.Context, c Copy, there map[string]int64) error {
	p := k.packsOf(c.UUID)
	p.work.Lock()
	defer p.work.Unlock()
	gone, err := c.Engine.Condemned()
	if err != nil {
		return err
	}
	table, err := c.Engine.Packs()
	if err != nil {
		return err
	}
	gerr := k.gather(ctx, c, &table)
	var lacks []uint64
	dead := map[uint64]bool{} // condemned since that checkpoint, so others drop them
	for seq := range gone {
		if _, moved := table.Moved[seq]; !moved {
			dead[seq] = true
		}
	}
	lost, err := c.Engine.LostIn(func(seq uint64) bool { return dead[seq] })
	if err != nil {
		return err
	}
	for seq := range gone {
		if lost.Need[seq] > 0 {
			continue // the metadata here name it
		}
		if s, ok := c.Log.Segment(seq); ok && !s.Local && !s.Uploaded && !s.Dropped && there[s.Name] != int64(s.Len) {
			lacks = append(lacks, seq)
		}
	}
	slices.Sort(lacks)
	have, err := k.movable(ctx, c, &table, lacks)
	if err == nil && len(have) > 0 {
		err = c.Replica.Drop(have...)
	}
	return errors.Join(gerr, err)
}
