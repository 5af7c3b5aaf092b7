// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"sort"
	"time"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

const (
	// cleanBatch is the most keys that one record of Clean deletes.
	cleanBatch = 512
	// cleanLook is the most keys that one critical section of Clean looks at.
	cleanLook = 4096
)

// Clean does what snapshots and the trash need now and then, at the home. It takes a moment when
// nothing changed for a second, drops moments that are older than the volume's window, removes what
// no snapshot shows that is kept, and empties the trash. It returns how many keys of the history
// and entries of the trash it removed. It works in small records, and ends with ctx. Nothing goes
// for its age while Config.Agreed returns an error; the rest is done, and Clean returns that.
func (e *Engine) Clean(ctx context.Context) (removed int, err error) {
	var disputed error
	defer func() { err = errors.Join(err, disputed) }()
	v, err := read(Recent(ctx), e, place{op: "clean"}, (*tree).versionsOf)
	if e.home() != nil || err != nil || v.Level < meta.SnapshotLevel {
		return 0, err // the home cleans, if there may be something
	}
	if e.rolling.Load() != 0 {
		if err := e.roll(ctx); err != nil {
			return 0, err
		}
	}
	if waits, err := read(Recent(ctx), e, place{op: "clean"}, (*tree).waits); err != nil || waits {
		if err == nil {
			var oldest time.Time
			if oldest, disputed, err = e.horizon(ctx, e.tuned.Load().Trash, (*tree).oldestWaste); err == nil {
				removed, err = e.emptyTrash(ctx, oldest)
			}
		}
		if err != nil {
			return removed, err
		}
	}
	if v.Last == 0 {
		return removed, nil
	}
	p := place{op: "clean", ino: volume.Root.Ino}
	step := func(f func(t *tx) (int, error)) (int, error) {
		return change(ctx, e, volume.Request{}, p, countResult, false, f)
	}
	if _, err := step(func(t *tx) (int, error) { return 0, t.idle() }); err != nil {
		return removed, err
	}
	oldest, why, err := e.horizon(ctx, e.tuned.Load().Window, (*tree).oldestMoment)
	if disputed = errors.Join(disputed, why); err != nil {
		return removed, err
	}
	for {
		n, err := step(func(t *tx) (int, error) { return t.expire(oldest) })
		if err != nil {
			return removed, err
		}
		if n == 0 {
			break
		}
	}
	c, err := read(ctx, e, p, newCleaner)
	if err != nil {
		return removed, err
	}
	for !c.done {
		next := c
		n, err := step(func(t *tx) (int, error) {
			next = c // a change may be computed again
			return next.step(t)
		})
		if err != nil {
			return removed, err
		}
		c = next
		removed += n
	}
	return removed, nil
}

// idle takes a moment if there were changes since the last one, and none of this second.
func (t *tx) idle() error {
	v, err := t.versionsOf()
	if err != nil || t.engine.tuned.Load().Window <= 0 || v.Covered.IsZero() || v.Idle || v.Newest != v.Last {
		return err
	}
	second := t.now.Truncate(time.Second)
	if !second.After(v.Time) {
		return nil
	}
	t.versions = &v
	_, err = t.take(meta.Snapshot{Time: second, Moment: true}, true)
	return err
}

// horizon returns what is old enough to go of what is kept for so long: what is of a time before
// it. first finds the time of the oldest; zero: there is none. If that is to go, other clocks must
// agree with the one here. disputed is why they do not; then nothing is old enough.
func (e *Engine) horizon(ctx context.Context, keep time.Duration, first func(*tree, time.Time) (time.Time, error)) (
	oldest time.Time, disputed, err error) {
	now := e.cfg.Now()
	at, err := read(Recent(ctx), e, place{op: "clean"}, func(t *tree) (time.Time, error) { return first(t, now) })
	if oldest = now.Add(-keep); err != nil || keep <= 0 {
		return oldest, nil, err
	}
	if at.IsZero() || !at.Before(oldest) { // what comes until it is looked for is not old either
		return time.Time{}, nil, nil
	}
	if now, disputed = e.cfg.Agreed(ctx); disputed != nil {
		return time.Time{}, disputed, nil
	}
	return now.Add(-keep), nil, nil
}

// oldestMoment returns the time of the oldest moment that may go.
func (t *tree) oldestMoment(time.Time) (time.Time, error) {
	v, err := t.versionsOf()
	if err != nil {
		return time.Time{}, err
	}
	lo, hi := meta.SnapshotRange(1)
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			return time.Time{}, err
		}
		s, err := meta.DecodeSnapshot(pair.Key, pair.Value)
		if err != nil || s.Moment && !(v.Idle && s.Gen == v.Last) {
			return s.Time, err
		}
	}
	return time.Time{}, nil
}

// expire drops moments of before a time, and returns how many.
func (t *tx) expire(oldest time.Time) (int, error) {
	v, err := t.versionsOf()
	if err != nil || v.Newest == 0 {
		return 0, err
	}
	window := t.engine.tuned.Load().Window
	var gens []uint32
	var last time.Time
	lo, hi := meta.SnapshotRange(1)
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			return 0, err
		}
		s, err := meta.DecodeSnapshot(pair.Key, pair.Value)
		if err != nil {
			return 0, err
		}
		if !s.Time.Before(oldest) || len(gens) == cleanBatch {
			break
		}
		if s.Moment && !(window > 0 && v.Idle && s.Gen == v.Last) { // that one is what the volume still has
			gens, last = append(gens, s.Gen), s.Time
		}
	}
	if len(gens) == 0 {
		return 0, nil
	}
	if err := t.drop(gens...); err != nil {
		return 0, err
	}
	if !t.versions.Covered.IsZero() && !t.versions.Covered.After(last) {
		t.versions.Covered = last.Add(time.Second)
		t.set(t.versions.Encode())
	}
	return len(gens), nil
}

// cleaner removes what no snapshot shows. It goes through the dead contents, then through the
// history.
type cleaner struct {
	dropped uint64 // number of the record that had last dropped a snapshot when it began
	kept    []meta.Snapshot
	from    []byte // the next key of the history; nil: dead contents come first
	key     []byte // of which the last entry of the history was
	before  uint32 // that entry's generation
	dead    []byte // the next dead content
	within  []byte // the next key of its history; nil: the first
	history bool
	done    bool
}

func newCleaner(t *tree) (c cleaner, err error) {
	v, err := t.versionsOf()
	if err != nil || v.Dropped == 0 {
		return cleaner{done: true}, err
	}
	t.seen = append(t.seen, snapshotsIno)
	c.dropped = v.Dropped
	c.kept, err = t.snapshotsFrom(1)
	return c, err
}

// step looks at some keys, and removes those that are not needed. Of snapshots that were dropped
// since the cleaner began, it leaves everything to the next one.
func (c *cleaner) step(t *tx) (int, error) {
	v, err := t.versionsOf()
	if err != nil {
		return 0, err
	}
	t.seen = append(t.seen, snapshotsIno) // what c knows of snapshots is committed before the next step
	from := uint32(1)
	if n := len(c.kept); n > 0 {
		from = c.kept[n-1].Gen + 1
	}
	later, err := t.snapshotsFrom(from)
	if err != nil {
		return 0, err
	}
	c.kept = append(c.kept, later...)
	t.versions = &v // no moment is taken for this
	if !c.history {
		return c.stepDead(t)
	}
	return c.stepHistory(t, &v)
}

func (c *cleaner) stepDead(t *tx) (n int, err error) {
	lo, hi := meta.AllDead()
	if c.dead != nil {
		lo = c.dead
	}
	looked := 0
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			return 0, err
		}
		if looked++; looked > cleanLook || n >= cleanBatch {
			c.dead = append([]byte(nil), pair.Key...)
			return n, nil
		}
		content, d, err := meta.DecodeDead(pair.Key, pair.Value)
		if err != nil {
			return 0, err
		}
		// Some snapshot from the content's beginning to its end has it.
		i := sort.Search(len(c.kept), func(i int) bool { return c.kept[i].Number >= content })
		if i < len(c.kept) && c.kept[i].Gen <= d.Gen {
			continue
		}
		elo, ehi := meta.AllExtents(content)
		if done, err := c.forget(t, elo, ehi, &looked); err != nil || !done {
			c.dead = append([]byte(nil), pair.Key...)
			return n, err
		}
		t.deleteRange(elo, ehi)
		t.held -= int64(d.Bytes)
		t.delete(append([]byte(nil), pair.Key...))
		n++
	}
	c.history = true
	return n, nil
}

// forget deletes the history of a range of keys from c.within on, as far as a critical section
// looks, and reports whether all of it is deleted.
func (c *cleaner) forget(t *tx, lo, hi []byte, looked *int) (bool, error) {
	lo, hi = meta.HistoryRange(lo, hi)
	if c.within != nil {
		lo = c.within
	}
	c.within = nil
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			return false, err
		}
		if *looked++; *looked > cleanLook {
			c.within = append([]byte(nil), pair.Key...)
			t.deleteRange(lo, c.within)
			return false, nil
		}
		n, err := heldIn(pair)
		if err != nil {
			return false, err
		}
		t.held -= n
	}
	t.deleteRange(lo, hi)
	return true, nil
}

func (c *cleaner) stepHistory(t *tx, v *meta.VersionsOf) (n int, err error) {
	looked := 0
	lo, hi := meta.AllHistory(c.from)
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			return 0, err
		}
		if looked++; looked > cleanLook || n >= cleanBatch {
			c.from = append([]byte(nil), pair.Key...)
			return n, nil
		}
		k, gen, err := meta.SplitHistory(pair.Key)
		if err != nil {
			return 0, err
		}
		if string(k) != string(c.key) {
			c.key, c.before = k, 0
		}
		i := sort.Search(len(c.kept), func(i int) bool { return c.kept[i].Gen > c.before })
		c.before = gen
		if i < len(c.kept) && c.kept[i].Gen <= gen {
			continue
		}
		held, err := heldIn(pair)
		if err != nil {
			return 0, err
		}
		t.held -= held
		t.delete(append([]byte(nil), pair.Key...))
		n++
	}
	c.done = true
	if v.Dropped == c.dropped {
		v.Dropped = 0
		t.counts = v.Newest == 0 && v.Level >= meta.TrashLevel // there is no history
		t.set(v.Encode())
	}
	return n, nil
}
