// SPDX-License-Identifier: Apache-2.0

package borrowing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-storage/weir/engine/log"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/gateway/copies"
	"github.com/weir-storage/weir/replica"
	"github.com/weir-storage/weir/store"
)

// lease is an agreement that can be used.
type lease struct {
	b        *Borrower
	terms    paper.Terms
	endpoint string
	room     Room
	end      context.CancelFunc

	mu     sync.Mutex
	life   paper.Life
	listed map[string]map[string]int64 // sizes of objects by volume and name, as far as is known

	// Used by run only.
	whole   bool              // listed has had everything
	seen    map[string]uint64 // epoch of each volume's home here when everything was listed
	told    paper.Counters    // to the registry
	toldAt  time.Time
	counted paper.Counters // when the store was met
	metAt   time.Time
	failed  string // that was logged
}

func (l *lease) set(life paper.Life) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.life = life
}

// has reports whether the store has something of a volume, as far as is known.
func (l *lease) has(uuid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.listed[uuid]) > 0
}

// How often both sides meet, when something was done, and how often counts are told: at once if
// much changed (paper.Much), or when the agreement ends.
const (
	meetEvery = time.Minute
	tellEvery = time.Hour
	tellSoon  = 5 * time.Second
	failAgain = 5 * time.Second
)

// run does what there is to do under the agreement, until ctx ends.
func (l *lease) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause := lookEvery
		if err := l.look(ctx); err != nil {
			pause = failAgain
			if ctx.Err() == nil && err.Error() != l.failed {
				l.failed = err.Error()
				l.b.cfg.Logger.Warn("borrowed room does not take or give what it should; it is tried again", "agreement", l.terms.ID,
					"host", l.terms.Host, "site", l.terms.Site, "error", err)
			}
		} else {
			l.failed = ""
		}
		l.b.wait(ctx, pause)
	}
}

// look does it once.
func (l *lease) look(ctx context.Context) error {
	err := l.list(ctx)
	if err == nil {
		var errs []error
		for _, c := range l.wanting() {
			if err := l.fill(ctx, c); err != nil {
				errs = append(errs, err)
			}
		}
		errs = append(errs, l.sweep(ctx))
		err = errors.Join(errs...)
	} else {
		for _, c := range l.wanting() {
			l.b.reached(c.UUID, replica.StoreAt{Agreement: l.terms.ID, Site: l.terms.Site, Problem: err.Error()})
		}
	}
	return errors.Join(err, l.count(ctx))
}

// wanting are the copies that are home here, of volumes that are to be in this store.
func (l *lease) wanting() []*copies.Copy {
	return slices.DeleteFunc(l.b.copies.Leading(), func(c *copies.Copy) bool {
		v, ok := l.b.cfg.View.Record(c.UUID)
		return !ok || c.Blind() || !slices.Contains(v.Stores, l.terms.ID)
	})
}

// list lists what is in the store if it is not known: at first, and when a volume came here, whose
// former home may have put something there since.
func (l *lease) list(ctx context.Context) error {
	leading := map[string]uint64{}
	fresh := l.whole
	for _, c := range l.b.copies.Leading() {
		if epoch, ok := c.Leading(); ok && !c.Blind() {
			leading[c.UUID] = epoch
			v, _ := l.b.cfg.View.Record(c.UUID)
			if l.seen[c.UUID] != epoch && (slices.Contains(v.Stores, l.terms.ID) || l.has(c.UUID)) {
				fresh = false
			}
		}
	}
	if fresh {
		return nil
	}
	all := map[string]map[string]int64{}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if err := l.room.List(ctx, "", func(i store.Info) error {
		if uuid, _, ok := strings.Cut(i.Name, "/"); ok {
			if all[uuid] == nil {
				all[uuid] = map[string]int64{}
			}
			all[uuid][i.Name] = i.Size
		}
		return nil
	}); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listed, l.whole, l.seen = all, true, leading
	return nil
}

// fill puts what is missing of a volume there, oldest first, and says how far that came.
func (l *lease) fill(ctx context.Context, c *copies.Copy) error {
	at := replica.StoreAt{Agreement: l.terms.ID, Site: l.terms.Site}
	ctx, done, err := c.Use(ctx)
	if err != nil {
		return nil // it is closed just now
	}
	defer done()
	commit := c.Replica.Status().Commit
	for _, s := range c.Log.Segments() {
		end := log.Position{Seq: s.Seq, Off: s.Len}
		if commit.Less(end) {
			break
		}
		var put bool
		if put, err = l.put(ctx, c, s); err != nil {
			at.Problem = err.Error()
			break
		}
		if at.End = end; put { // what was there before is no news
			l.b.reached(c.UUID, at)
		}
	}
	l.b.reached(c.UUID, at)
	return err
}

// putTime bounds one object's way, and stuckTime how long none of it may go (borrowing-4): writers
// wait for a store that takes segments.
const (
	putTime   = 10 * time.Minute
	stuckTime = 10 * time.Second
	// askTime bounds a list, a count or a deletion.
	askTime = time.Minute
)

// put puts a segment there, unless it is there, and reports whether it did.
func (l *lease) put(ctx context.Context, c *copies.Copy, s log.SegmentInfo) (put bool, err error) {
	l.mu.Lock()
	size, there := l.listed[c.UUID][s.Name]
	writes := l.life.Writes(l.b.cfg.Now())
	why := l.life.Why
	l.mu.Unlock()
	if there && uint64(size) == s.Len {
		return false, nil
	}
	if !writes {
		return false, fmt.Errorf("agreement %s takes nothing any more: %s", l.terms.ID, why)
	}
	ctx, cancel := context.WithTimeout(ctx, putTime)
	defer cancel()
	if err := c.Log.Heal(ctx, s.Seq); err != nil {
		return false, fmt.Errorf("read segment %s: %w", s.Name, err)
	}
	stuck := l.b.cfg.Timers.AfterFunc(stuckTime, cancel)
	defer stuck.Stop()
	body := file{c.Log, s.Seq, func() {
		stuck.Reset(stuckTime)
		l.b.goes(c.UUID, l.terms.ID)
	}}
	err = l.room.Put(ctx, s.Name, int64(s.Len), io.NewSectionReader(body, 0, int64(s.Len)))
	if !s.Local { // it was brought back for this
		c.Replica.Evict(s.Seq, func() {})
	}
	if err != nil {
		return false, err
	}
	l.b.cfg.Logger.Debug("segment is in a borrowed store", "segment", s.Name, "bytes", s.Len, "agreement", l.terms.ID)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listed[c.UUID] == nil {
		l.listed[c.UUID] = map[string]int64{}
	}
	l.listed[c.UUID][s.Name] = int64(s.Len)
	return true, nil
}

// file reads a segment's file, and tells each time.
type file struct {
	log  *log.Log
	seq  uint64
	read func()
}

func (f file) ReadAt(p []byte, off int64) (int, error) {
	f.read()
	return f.log.ReadSegmentFile(f.seq, p, off)
}

// sweep deletes what is not to be there any more (borrowing-3).
func (l *lease) sweep(ctx context.Context) error {
	l.mu.Lock()
	var there []string
	for uuid := range l.listed {
		there = append(there, uuid)
	}
	l.mu.Unlock()
	for _, uuid := range there {
		needless, err := l.needless(ctx, uuid)
		if err == nil && needless {
			err = l.drop(ctx, uuid)
		}
		if err != nil {
			return fmt.Errorf("delete what volume %s does not need there: %w", uuid, err)
		}
	}
	return nil
}

// needless reports whether what a volume has there may be deleted, by this gateway.
func (l *lease) needless(ctx context.Context, uuid string) (bool, error) {
	cfg := l.b.cfg
	if _, purged := cfg.View.Purged(uuid); purged {
		if !cfg.View.First(cfg.Gateway) {
			return false, nil
		}
		_, _, err := cfg.Registry.GetVolume(ctx, uuid)
		if !errors.Is(err, federation.ErrNotFound) {
			return false, err
		}
		purges, err := cfg.Registry.ListPurges(ctx)
		if err == nil {
			err = cfg.Registry.Trusted()
		}
		return slices.ContainsFunc(purges, func(p federation.Purge) bool { return p.Volume == uuid }), err
	}
	v, known := cfg.View.Record(uuid)
	if !known || v.Deleted || slices.Contains(v.Stores, l.terms.ID) {
		return false, nil
	}
	leading := l.b.copies.Leading()
	i := slices.IndexFunc(leading, func(c *copies.Copy) bool { return c.UUID == uuid && !c.Blind() })
	if i < 0 || !elsewhere(leading[i], v) {
		return false, nil
	}
	v, _, err := cfg.Registry.GetVolume(ctx, uuid)
	if err == nil {
		err = cfg.Registry.Trusted()
	}
	return err == nil && !slices.Contains(v.Stores, l.terms.ID) && elsewhere(leading[i], v), err
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

// drop deletes all of a volume.
func (l *lease) drop(ctx context.Context, uuid string) error {
	l.mu.Lock()
	var names []string
	for name := range l.listed[uuid] {
		names = append(names, name)
	}
	l.mu.Unlock()
	slices.Sort(names)
	for _, name := range names {
		ask, cancel := context.WithTimeout(ctx, askTime)
		err := l.room.Delete(ask, name)
		cancel()
		if err != nil {
			return err
		}
		l.mu.Lock()
		delete(l.listed[uuid], name)
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.listed, uuid)
	l.b.cfg.Logger.Info("a volume has nothing in a borrowed store any more", "uuid", uuid, "agreement", l.terms.ID, "objects", len(names))
	return nil
}

// count has both sides meet, and tells what was counted.
func (l *lease) count(ctx context.Context) error {
	now := l.b.cfg.Now()
	of := func() paper.Counters {
		c := l.b.ledger.Of(l.terms.ID)[l.b.cfg.Gateway].Counters
		c.ByteHours = 0
		return c
	}
	l.mu.Lock()
	empty, life := len(l.listed) == 0, l.life
	l.mu.Unlock()
	is := of()
	// When the agreement ends, what is there is told anew: nothing, at last.
	noticed := life.Phase == paper.Ending && l.toldAt.Before(life.Ends.Add(-time.Duration(l.terms.Notice)))
	if empty && is == (paper.Counters{}) && !noticed {
		return nil // it never used any
	}
	since := now.Sub(l.metAt)
	if is != l.counted && since >= meetEvery || since >= tellEvery {
		ask, cancel := context.WithTimeout(ctx, askTime)
		err := l.room.Count(ask)
		cancel()
		if err != nil {
			return err
		}
		is = of()
		l.counted, l.metAt = is, now
	}
	more := paper.Much(l.terms.Amount, l.told.Stored, is.Stored)
	since = now.Sub(l.toldAt)
	if since < tellSoon || !more && !noticed && since < tellEvery {
		return nil
	}
	if err := l.room.Tell(ctx); err != nil {
		return err
	}
	l.told, l.toldAt = is, now
	return nil
}
