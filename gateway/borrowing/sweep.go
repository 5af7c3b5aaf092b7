// SPDX-License-Identifier: Apache-2.0

package borrowing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/store"
)

// How often what is in the store is listed anew, how often it is looked whether it is to be listed
// earlier, and how much rarer than it takes time.
const (
	listEvery = time.Hour
	soonEvery = 5 * time.Second
	soonPart  = 20
	// listAgain is when a list is tried again that failed, and listLate how old the one before may
	// be.
	listAgain = time.Minute
	listLate  = 3 * listEvery
)

// list lists what is in the store if that is not known: at first, at once when a volume that is to
// have something there came here, whose former home may have put something there since, and soon
// when there may be something to delete.
func (l *lease) list(ctx context.Context) error {
	began := l.b.cfg.Now()
	leading := map[string]uint64{}
	fresh := l.whole
	for _, c := range l.b.copies.Leading() {
		if epoch, ok := c.Leading(); ok && !c.Blind() {
			leading[c.UUID] = epoch
			if l.seen[c.UUID] != epoch && (l.wants(c.UUID) || l.has(c.UUID)) {
				fresh = false
			}
		}
	}
	if fresh && !l.old(began, leading) {
		return nil
	}
	purged := l.purges(began)
	l.mu.Lock()
	l.came = []store.Info{}
	l.mu.Unlock()
	all := map[string]map[string]int64{}
	add := func(i store.Info) error {
		if uuid, _, ok := strings.Cut(i.Name, "/"); ok {
			if all[uuid] == nil {
				all[uuid] = map[string]int64{}
			}
			all[uuid][i.Name] = i.Size
		}
		return nil
	}
	err := l.room.List(ctx, "", add)
	now := l.b.cfg.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range l.came {
		_ = add(i)
	}
	if l.came = nil; err != nil {
		if l.soon = now.Add(listAgain); fresh && ctx.Err() == nil && now.Sub(l.listedAt) < listLate {
			l.b.cfg.Logger.Info("borrowed room does not say what is there; what was listed before counts on", "agreement", l.terms.ID,
				"host", l.terms.Host, "site", l.terms.Site, "error", err)
			return nil
		}
		return err
	}
	l.listed, l.whole, l.again, l.listedAt, l.seen, l.purged = all, true, false, began, leading, purged
	l.soon = now.Add(max(soonEvery, soonPart*now.Sub(began)))
	return nil
}

// old reports whether there may be something to delete that the list does not have: of volumes
// whose home came here, though their records name the agreement no more, and of purged ones.
func (l *lease) old(now time.Time, leading map[string]uint64) bool {
	if wait := l.soon.Sub(now); wait > 0 && wait <= listEvery { // else the clock was set
		return false
	}
	l.soon = now.Add(soonEvery)
	if age := now.Sub(l.listedAt); l.again || age >= listEvery || age < 0 {
		return true
	}
	for uuid, epoch := range leading {
		if l.seen[uuid] != epoch {
			return true
		}
	}
	for uuid := range l.purges(now) {
		if !l.purged[uuid] {
			return true
		}
	}
	return false
}

// overdue is how long after a purge any gateway deletes what the first one did not: that one may
// have no room there. Several that delete the same at once would each count it.
const overdue = 2 * time.Minute

// purges are the volumes whose objects this gateway is to delete, since they were purged.
func (l *lease) purges(now time.Time) map[string]bool {
	first := l.b.cfg.View.First(l.b.cfg.Gateway)
	out := map[string]bool{}
	for _, p := range l.b.cfg.View.Purges() {
		if first || now.Sub(p.At) >= overdue {
			out[p.Volume] = true
		}
	}
	return out
}

// sweepTime bounds how long things are deleted before it is looked what there is to put.
const sweepTime = 5 * time.Second

// sweep deletes what is not to be there any more (borrowing-3), for a while.
func (l *lease) sweep(ctx context.Context) error {
	l.mu.Lock()
	there := slices.Sorted(maps.Keys(l.listed))
	l.mu.Unlock()
	if i, _ := slices.BinarySearch(there, l.swept); i < len(there) { // on from where the last look ended
		there = append(slices.Clone(there[i:]), there[:i]...)
	}
	began := l.b.cfg.Now()
	var errs []error
	for _, uuid := range there {
		if l.b.cfg.Now().Sub(began) > sweepTime {
			break // the next look goes on
		}
		if err := l.drop(ctx, uuid, began); err != nil {
			errs = append(errs, fmt.Errorf("delete what volume %s does not need there: %w", uuid, err))
		}
		l.swept = uuid + "\x00" // the next one
	}
	return errors.Join(errs...)
}

// spare reports whether what a volume has there may be deleted by this gateway, as far as is known
// here. What is being put counts on what is there: then it is not.
func (l *lease) spare(uuid string) bool {
	l.mu.Lock()
	busy := l.busy[uuid]
	l.mu.Unlock()
	if busy {
		return false
	}
	v, known := l.b.cfg.View.Record(uuid)
	if _, purged := l.b.cfg.View.Purged(uuid); purged && !known {
		return l.purged[uuid]
	}
	return known && l.left(v)
}

// left reports whether a volume's record names the agreement no more, and everything is elsewhere
// by it. Only the volume's home knows.
func (l *lease) left(v federation.Volume) bool {
	if v.Deleted || slices.Contains(v.Stores, l.terms.ID) {
		return false
	}
	leading := l.b.copies.Leading()
	i := slices.IndexFunc(leading, func(c *copies.Copy) bool { return c.UUID == v.UUID && !c.Blind() })
	return i >= 0 && leading[i].MayServe() == nil && elsewhere(leading[i], v)
}

// needless reports whether what a volume has there may be deleted by this gateway, as the registry
// itself says.
func (l *lease) needless(ctx context.Context, uuid string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	registry := l.b.cfg.Registry
	v, _, err := registry.GetVolume(ctx, uuid)
	gone := errors.Is(err, federation.ErrNotFound)
	if err != nil && !gone {
		return false, err
	}
	if !gone {
		return l.left(v), registry.Trusted()
	}
	purges, err := registry.ListPurges(ctx)
	if err == nil {
		err = registry.Trusted()
	}
	return err == nil && slices.ContainsFunc(purges, func(p federation.Purge) bool { return p.Volume == uuid }), err
}

// elsewhere reports whether every copy and store that a volume's record names has everything, as
// its home sees it.
func elsewhere(c *copies.Copy, v federation.Volume) bool {
	all, stores := c.Replica.Lag(), c.Replica.Stores()
	for _, site := range v.Sites {
		if !slices.ContainsFunc(all, func(r federation.ObservedReplica) bool {
			return r.Site == site && (r.State == federation.ReplicaHome || r.State == federation.ReplicaMember ||
				r.State == federation.ReplicaFollower)
		}) {
			return false
		}
	}
	for _, id := range v.Stores {
		if !slices.ContainsFunc(stores, func(s federation.ObservedStore) bool { return s.Agreement == id && s.Whole }) {
			return false
		}
	}
	return c.Generation() == v.Generation
}

// drop deletes all of a volume, if it is not to be there any more, or what there is time for. That
// is looked at again before each object, and the registry is asked now and then.
func (l *lease) drop(ctx context.Context, uuid string, began time.Time) error {
	l.mu.Lock()
	names := slices.Sorted(maps.Keys(l.listed[uuid]))
	l.mu.Unlock()
	if !l.spare(uuid) {
		return nil
	}
	if may, err := l.needless(ctx, uuid); err != nil || !may {
		return err
	}
	l.b.forgets(uuid, l.terms.ID)
	for _, name := range names {
		if !l.spare(uuid) || l.b.cfg.Now().Sub(began) > sweepTime {
			return nil
		}
		l.mu.Lock()
		delete(l.listed[uuid], name) // whatever comes of it
		l.mu.Unlock()
		ask, cancel := context.WithTimeout(ctx, askTime)
		err := l.room.Delete(ask, name)
		cancel()
		if err != nil {
			l.again, l.soon = true, l.b.cfg.Now().Add(listAgain) // it may be there, or not
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.listed[uuid]) == 0 {
		delete(l.listed, uuid)
		l.b.cfg.Logger.Info("a volume has nothing in a borrowed store any more", "uuid", uuid, "agreement", l.terms.ID)
	}
	return nil
}
