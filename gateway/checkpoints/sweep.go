// SPDX-License-Identifier: Apache-2.0

package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/engine/checkpoint"
	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/packsource"
	"github.com/weir-storage/weir/store"
)

// condemn condemns what nothing uses at the newest checkpoint, once that is committed and all
// copies that answer have the log up to there (checkpoints-4).
func (k *Keeper) condemn(ctx context.Context, c Copy, now engine.Checkpoints, last made) error {
	if !c.Condemns || len(last.unused) == 0 || last.number != now.Made.Number || last.differs != 0 {
		return nil
	}
	if !k.mayCondemn(c, now) {
		return nil
	}
	if err := c.Engine.Condemn(ctx, last.number, last.unused); err != nil {
		return err
	}
	k.cfg.Logger.Info("segments are condemned: nothing uses them", "volume", c.UUID, "segments", len(last.unused),
		"checkpoint", last.number)
	k.mu.Lock()
	defer k.mu.Unlock()
	if is := k.last[c.UUID]; is.number == last.number {
		is.unused = nil
		k.last[c.UUID] = is
	}
	return nil
}

// mayCondemn reports whether all copies that answer have the log up to the newest checkpoint, and
// the home made that as it is committed.
func (k *Keeper) mayCondemn(c Copy, now engine.Checkpoints) bool {
	for _, r := range c.Replica.Lag() {
		durable := log.Position(r.Durable)
		if r.State != federation.ReplicaLost && r.State != federation.ReplicaHome && durable.Less(now.Made.At) {
			return false // it goes on from its own log
		}
	}
	last := k.of(c.UUID)
	return last.differs == 0 && last.alike >= now.Made.Number
}

// sweepEvery is how often copies are looked at for what is condemned, at most.
const sweepEvery = 15 * time.Second

// sweepEvery is how often sweepAll goes round.
func (k *Keeper) sweepEvery() time.Duration {
	if k.cfg.Due.Grace >= sweepEvery {
		return max(k.cfg.Due.Every, sweepEvery)
	}
	return k.cfg.Due.Every
}

// swept is how a copy is, as far as sweep is concerned.
type swept struct {
	engine        *engine.Engine
	space         uint64
	leads         bool
	number, alike uint64 // of checkpoints that were made here
}

func (k *Keeper) sweptOf(c Copy) swept {
	_, leads := c.Replica.Leading()
	last := k.of(c.UUID)
	return swept{c.Engine, c.Engine.SpaceChanges(), leads, last.number, last.alike}
}

// sweepAll drops what is condemned, and objects of earlier checkpoints.
func (k *Keeper) sweepAll(ctx context.Context, all []Copy) {
	now := k.cfg.Timers.Now()
	if k.cfg.Due.Grace >= sweepEvery && now.Sub(k.swept) < sweepEvery {
		return
	}
	k.swept = now
	here := map[string]bool{}
	for _, c := range all {
		here[c.UUID] = true
		k.renew(c)
		is := k.sweptOf(c)
		if was, ok := k.done[c.UUID]; ok && was == is && len(k.seen[c.UUID]) == 0 && !k.packsLeft(c.UUID) && !k.straysLeft(c) {
			delete(k.known, c.UUID)
			continue
		}
		err := k.sweep(ctx, c)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errFilling) {
			k.cfg.Logger.Warn("what is condemned stays for now", "volume", c.UUID, "error", err)
		}
		if k.done[c.UUID] = is; err != nil {
			delete(k.done, c.UUID)
		}
	}
	maps.DeleteFunc(k.done, func(id string, _ swept) bool { return !here[id] })
	maps.DeleteFunc(k.known, func(id string, _ *known) bool { return !here[id] })
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.packed, func(id string, _ *packing) bool { return !here[id] })
	for id := range k.seen {
		if !here[id] {
			delete(k.seen, id)
			delete(k.condemned, id)
		}
	}
	maps.DeleteFunc(k.strays, func(id string, _ *strays) bool { return !here[id] })
}

// packsLeft reports whether there is something to do for a volume's packs.
func (k *Keeper) packsLeft(id string) bool {
	p := k.packsOf(id)
	if !p.work.TryLock() {
		return true
	}
	left := p.wanted+len(p.seen)+len(k.suspects.Of(id)) > 0 || p.waits
	p.work.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	return left || k.plans[id] != nil
}

// mayGo reports whether a copy may drop what was condemned at the checkpoint of that number, and is
// known to be for that long: it made that checkpoint, or a later one, as the home did
// (checkpoints-5).
func (k *Keeper) mayGo(id string, number uint64, known time.Duration) bool {
	last := k.of(id)
	return known >= k.cfg.Due.Grace && number <= last.alike && last.differs == 0
}

// errFilling: the copy gets packs that it lacks.
var errFilling = errors.New("packs are being fetched")

// sweep drops segments of one copy, from the pool and from the site's store (checkpoints-5).
func (k *Keeper) sweep(ctx context.Context, c Copy) error {
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return err
	}
	defer done()
	p := k.packsOf(c.UUID)
	if !p.work.TryLock() {
		return errFilling
	}
	defer p.work.Unlock()
	perr := k.pack(ctx, c)
	is, err := k.know(c)
	if err != nil {
		return err
	}
	table := &is.packs
	// What is not gathered yet keeps its segments.
	perr = errors.Join(perr, k.gather(ctx, c, table))
	seen := k.seen[c.UUID]
	if seen == nil {
		seen = map[uint64]time.Time{}
		k.seen[c.UUID] = seen
	}
	now := k.cfg.Timers.Now()
	var due []uint64
	var left uint64
	for seq, number := range is.condemned {
		s, ok := c.Log.Segment(seq)
		if !ok || s.Dropped {
			delete(seen, seq)
			if ok {
				delete(is.condemned, seq)
			}
			continue
		}
		left += s.Len
		if since, ok := seen[seq]; !ok {
			seen[seq] = now
		} else if k.mayGo(c.UUID, number, now.Sub(since)) {
			due = append(due, seq)
		}
	}
	defer func() {
		k.mu.Lock()
		k.condemned[c.UUID] = left
		k.mu.Unlock()
	}()
	if c.Aside() || k.Shared(c.UUID) { // a person looks at what was left out first
		return perr
	}
	slices.Sort(due)
	if due, err = k.movable(ctx, c, table, due); err != nil {
		return err
	}
	for _, seq := range due {
		s, _ := c.Log.Segment(seq)
		if k.cfg.Store != nil {
			if err := k.cfg.Store.Delete(ctx, s.Name); err != nil {
				return err
			}
		}
		if err := c.Replica.Drop(seq); err != nil {
			return err
		}
		delete(seen, seq)
		left -= s.Len
	}
	if len(due) > 0 {
		k.cfg.Logger.Info("segments that were condemned are dropped", "volume", c.UUID, "segments", len(due))
	}
	return errors.Join(perr, k.sweepStrays(ctx, c, table), k.sweepPacks(ctx, c, table), k.sweepObjects(ctx, c))
}

// movable returns those of the segments, in order, that this copy may drop as far as packs are
// concerned: nothing of them lives, or the site's store has the pack that they moved into.
func (k *Keeper) movable(ctx context.Context, c Copy, table *engine.Packs, seqs []uint64) (out []uint64, err error) {
	has := map[uint64]bool{}
	for _, seq := range seqs {
		n, moved := table.Moved[seq]
		if !moved {
			out = append(out, seq)
			continue
		}
		yes, known := has[n]
		if is, lives := table.Now(n); !known && lives {
			if yes, err = k.holds(ctx, c, is); err != nil {
				return nil, err
			}
			has[n] = yes
		}
		if yes {
			out = append(out, seq)
		}
	}
	return out, nil
}

// sweepObjects removes objects from the site's store that are neither of the newest checkpoint,
// which is committed, nor of the one before.
func (k *Keeper) sweepObjects(ctx context.Context, c Copy) error {
	now, err := c.Engine.Checkpoints()
	last := k.of(c.UUID)
	if err != nil || k.cfg.Store == nil || last.former == nil || last.swept || last.number != now.Made.Number || last.differs != 0 {
		return err
	}
	keep := map[string]bool{}
	for _, name := range last.manifest.Names() {
		keep[name] = true
	}
	var old []string
	for _, folder := range []string{"/c/", "/m/"} {
		if err := k.cfg.Store.List(ctx, c.UUID+folder, func(i store.Info) error {
			if !keep[i.Name] && !last.former[i.Name] {
				old = append(old, i.Name)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	// Another gateway of this site may have made a later one: this one is behind, or was paused.
	if later, err := k.later(ctx, c, now, old); err != nil || later {
		return err
	}
	// Nobody makes a checkpoint meanwhile that would count on what is removed.
	k.making.Lock()
	defer k.making.Unlock()
	if k.of(c.UUID).number != last.number {
		return nil
	}
	// Manifests first: one whose chunks go must not be found.
	slices.SortFunc(old, func(a, b string) int { return -strings.Compare(a, b) })
	for _, name := range old {
		if err := k.cfg.Store.Delete(ctx, name); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if is := k.last[c.UUID]; is.number == last.number {
		is.swept = true
		k.last[c.UUID] = is
	}
	return nil
}

// Shared reports whether another gateway of this site may have a copy of a volume: one is
// registered there, or counts. It has the same store, may know less, and may become home by a
// person's word (checkpoints-9). What is told of followers does not come to gateways.
func (k *Keeper) Shared(id string) bool {
	another := func(m federation.Member) bool { return m.Site == k.cfg.Site && m.Gateway != k.cfg.Gateway }
	if slices.ContainsFunc(k.cfg.View.Members(), another) {
		return true
	}
	v := k.cfg.View.Volume(id)
	return v != nil && v.Control != nil && (another(v.Control.Home) || slices.ContainsFunc(v.Control.Members, another))
}

// later reports whether a manifest among objects of the site's store is of a checkpoint after the
// newest that is known here. Nothing is removed then, nor when one can not be read; one that is
// damaged is none.
func (k *Keeper) later(ctx context.Context, c Copy, now engine.Checkpoints, names []string) (bool, error) {
	of, err := packsource.VolumeOf(c.UUID)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, c.UUID+"/m/") {
			continue
		}
		hash, err := checkpoint.ManifestHash(name)
		if err != nil {
			continue
		}
		m, err := checkpoint.Open(ctx, of, hash, c.Keys.Get, Objects(k.cfg.Store, c.UUID))
		if errors.Is(err, checkpoint.ErrCorrupt) {
			continue
		} else if err != nil {
			return false, fmt.Errorf("is there a later checkpoint: %w", err)
		}
		if now.Made.At.Less(m.At) {
			return true, nil
		}
	}
	return false, nil
}
