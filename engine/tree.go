// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/journal"
	"github.com/weir-storage/weir/volume"
)

// errDamaged reports metadata that parses and contradicts itself. Like all errors without a
// volume.Err it becomes ErrIO.
var errDamaged = errors.New("metadata contradicts itself")

// tree looks at the volume at one moment. It remembers which inodes it showed.
type tree struct {
	engine   *Engine
	view     *meta.View
	over     *meta.Overlay // of view; nil: none
	rows     *rowsOf       // of view; nil: none
	near     *meta.Cursor  // nil, or what find reads inodes with
	home     bool
	epoch    uint64           // the epoch in which this gateway is home
	end      segment.Position // end of the last record that the view may show
	applied  segment.Position // at least the end of the last record in the store
	cacheGen uint64
	inodes   inodes
	seen     []uint64
	first    [4]uint64      // where seen begins
	past     *meta.Snapshot // view is that of a snapshot; nil: of the present
	changing bool           // it is a change's, which is about the present
	rolling  bool           // the volume may be half of what it was in a snapshot
}

// reveal notes that the outcome says something about ino. What a snapshot has does not change any
// more: it is there if its own record is.
func (t *tree) reveal(ino uint64) {
	if t.past != nil {
		return
	}
	if t.seen == nil {
		t.seen = t.first[:0]
	}
	t.seen = append(t.seen, ino)
}

// find returns the inode with the given number, or nil.
func (t *tree) find(ino uint64) (*meta.Inode, error) {
	if n := t.inodes.get(ino); n != nil {
		return n, nil
	}
	t.reveal(ino)
	key, get := meta.InodeKey(ino), t.view.Get
	if t.near != nil {
		get = t.near.Get
	}
	value, ok, _, err := get(key)
	if err != nil || !ok {
		return nil, err
	}
	n, err := meta.DecodeInode(key, value)
	if err != nil {
		return nil, err
	}
	if t.past != nil {
		n.Snap, n.Parent.Snap = t.past.Gen, t.past.Gen
	}
	t.inodes.put(n)
	return n, nil
}

// inode returns the inode of h. It returns ErrStale if there is none, and ErrDelay for the root of
// a volume without one: its first home has not begun, or this gateway has not heard of it.
func (t *tree) inode(h volume.Handle) (*meta.Inode, error) {
	if h.Snap == volume.SnapshotDir {
		return t.snapshotDir(h)
	}
	if err := t.enter(h.Snap); err != nil {
		return nil, err
	}
	if h.Snap == 0 && !t.changing && t.rolling {
		return nil, fmt.Errorf("the volume is being made what it was in a snapshot: %w", volume.ErrDelay)
	}
	n, err := t.find(h.Ino)
	switch {
	case err != nil:
		return nil, err
	case n == nil && h == volume.Root:
		return nil, fmt.Errorf("the volume has no root yet: %w", volume.ErrDelay)
	case n == nil || n.Gen != h.Gen:
		return nil, volume.ErrStale
	case n.Nlink == 0 && !t.engine.held(h):
		// No client of this gateway holds it. Reap deletes it when no other gateway's client does
		// either.
		return nil, volume.ErrStale
	}
	return n, nil
}

func (t *tree) directory(h volume.Handle) (*meta.Inode, error) {
	n, err := t.inode(h)
	if err != nil {
		return nil, err
	}
	if n.Type != volume.Directory {
		return nil, volume.ErrNotDir
	}
	return n, nil
}

func (t *tree) file(h volume.Handle) (*meta.Inode, error) {
	n, err := t.inode(h)
	switch {
	case err != nil:
		return nil, err
	case n.Type == volume.Directory:
		return nil, volume.ErrIsDir
	case n.Type != volume.Regular:
		return nil, volume.ErrInvalid
	}
	return n, nil
}

// entry returns what name names in dir, or nil, nil if there is nothing.
func (t *tree) entry(dir *meta.Inode, name string) (*meta.Dirent, *meta.Inode, error) {
	key := meta.NameKey(dir.Ino, name)
	value, ok, _, err := t.view.Get(key)
	if err != nil || !ok {
		return nil, nil, err
	}
	d, err := meta.DecodeName(key, value, name)
	if err != nil {
		return nil, nil, err
	}
	n, err := t.target(dir, d)
	return &d, n, err
}

// target returns the inode of an entry of dir.
func (t *tree) target(dir *meta.Inode, d meta.Dirent) (*meta.Inode, error) {
	n, err := t.find(d.Handle.Ino)
	d.Handle.Snap = dir.Snap
	if err == nil && (n == nil || n.Handle != d.Handle) {
		err = fmt.Errorf("inode %d, which an entry of directory %d names, is not there: %w", d.Handle.Ino, dir.Ino, errDamaged)
	}
	return n, err
}

// bytes returns the content of a key of Targets or Xattrs, and reports whether it exists.
func (t *tree) bytes(key []byte) ([]byte, bool, error) {
	value, ok, _, err := t.view.Get(key)
	if err != nil || !ok {
		return nil, false, err
	}
	b, err := meta.DecodeBytes(key, value)
	return b, true, err
}

// accounting returns what the volume uses.
func (t *tree) accounting() (meta.Accounting, error) {
	key := meta.AccountingKey()
	value, ok, _, err := t.view.Get(key)
	if err != nil {
		return meta.Accounting{}, err
	}
	if !ok {
		return meta.Accounting{}, fmt.Errorf("the volume has no root yet: %w", volume.ErrDelay)
	}
	return meta.DecodeAccounting(key, value)
}

// errClosed: the engine is closed, or about to be.
var errClosed = fmt.Errorf("the copy is being closed: %w", volume.ErrDelay)

// look returns a tree for a reader. The caller closes its view.
func (e *Engine) look() (*tree, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.failed != nil:
		return nil, e.failed
	case e.closed: // nobody may ask, and no process ends because of it
		return nil, errClosed
	}
	t := &tree{engine: e, home: e.leading, epoch: e.epoch, end: e.end, applied: e.applied, cacheGen: e.cacheGen,
		rolling: e.rolling.Load() != 0}
	if e.leading && !e.overlay.Empty() {
		t.over = e.overlay.Copy()
	}
	t.view, t.rows = e.present(t.over)
	return t, nil
}

// answers reports that what t saw at home may be returned at once: nothing of it is uncommitted,
// and this gateway still leads.
func (e *Engine) answers(t *tree) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.leading || e.epoch != t.epoch {
		return false
	}
	for _, ino := range t.seen {
		if e.commit.Less(segment.Earlier(e.names[ino], t.end)) || e.commit.Less(segment.Earlier(e.data[ino], t.end)) {
			return false
		}
	}
	return true
}

// waitFor returns the position that must be committed before what t saw may be returned. At a
// follower it must be applied instead. The position is zero if there is nothing to wait for.
func (e *Engine) waitFor(t *tree) segment.Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	var pos segment.Position
	for _, ino := range t.seen {
		if p := e.names[ino]; pos.Less(p) {
			pos = p
		}
	}
	if t.end.Less(pos) {
		pos = t.end
	}
	return pos
}

// dataFor returns the end of the last pending record with data of what t has looked at.
func (e *Engine) dataFor(t *tree) (pos segment.Position) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ino := range t.seen {
		if p := e.data[ino]; pos.Less(p) {
			pos = p
		}
	}
	if pos = segment.Earlier(pos, t.end); pos.Compare(e.commit) <= 0 {
		return segment.Position{}
	}
	return pos
}

// read runs f, which changes nothing, and returns its answer when that may be given. At a follower
// it waits for the records that were in the log when read was called, and may run f again. These
// records are all that was acknowledged by then only if the follower was allowed to answer at that
// time. To ask after the look is not enough: the others may have gone on without this follower in
// between.
func read[T any](ctx context.Context, e *Engine, p place, f func(t *tree) (T, error)) (T, error) {
	var zero T
	if ctx.Value(recentKey{}) != nil {
		return peek(e, p, f)
	}
	if told, ok := journal.ToldBy(ctx); ok {
		return readEarlier(e, p, told, f)
	}
	var until segment.Position
	for first := true; ; first = false {
		var before error
		if first {
			before = e.mayServe()
		}
		t, err := e.look()
		if err != nil {
			return zero, e.wrap(p, err)
		}
		if first {
			until = t.end
		}
		// A follower shows only what is applied. It need not wait for records that the log got
		// since.
		if !t.home {
			if before != nil {
				return zero, e.wrap(p, errors.Join(before, t.view.Close()))
			}
			t.end = segment.Earlier(t.end, until)
		}
		value, err := f(t)
		if cerr := t.view.Close(); cerr != nil && err == nil {
			err = cerr
		}
		if t.home && err == nil && e.mayServe() == nil && e.answers(t) { // as below, under one lock
			return value, nil
		}
		pos := e.waitFor(t)
		if t.home {
			werr := e.waitCommitted(ctx, pos)
			if data := e.dataFor(t); werr == nil && pos.Less(data) { // it is shown before it is committed
				werr = e.journal.WaitKnown(ctx, data)
			}
			if werr != nil {
				return zero, e.wrap(p, werr)
			}
		} else if t.applied.Less(pos) {
			// A takeover may drop the record instead of having it applied.
			werr := e.wait(ctx, func() bool { return segment.Earlier(pos, e.end).Compare(e.applied) <= 0 })
			if werr != nil {
				return zero, e.wrap(p, werr)
			}
			continue
		} else if e.passed(t, until) {
			continue
		}
		if merr := e.mayServe(); merr != nil {
			return zero, e.wrap(p, merr)
		}
		// This is asked last. MayServe may have answered for a follower, or for another reign.
		if t.home && !e.leads(t.epoch) {
			// What t shows may have been dropped, and another record may end at pos now.
			return zero, e.wrap(p, journal.ErrNotHome)
		}
		if err != nil {
			return zero, e.wrap(p, err)
		}
		return value, nil
	}
}

type recentKey struct{}

// Recent returns a context in which reads answer with what this engine has now, also where that may
// be an earlier state, or one that is undone. It is for work that nobody sees the answers of, such
// as fetching what somebody will read.
func Recent(ctx context.Context) context.Context { return context.WithValue(ctx, recentKey{}, true) }

// peek runs f once, for Recent.
func peek[T any](e *Engine, p place, f func(t *tree) (T, error)) (T, error) {
	var zero T
	t, err := e.look()
	if err != nil {
		return zero, e.wrap(p, err)
	}
	value, err := f(t)
	if err := errors.Join(err, t.view.Close()); err != nil {
		return zero, e.wrap(p, err)
	}
	return value, nil
}

// readEarlier runs f on the state as it is, for journal.Earlier. It fails with ErrDelay where that
// is not to be shown.
func readEarlier[T any](e *Engine, p place, told segment.Position, f func(t *tree) (T, error)) (T, error) {
	var zero T
	pos, ok := e.journal.Bounded()
	if !ok {
		return zero, e.wrap(p, journal.ErrNotHome)
	}
	t, err := e.look()
	if err != nil {
		return zero, e.wrap(p, err)
	}
	if t.home || t.applied.Less(pos) || t.applied.Less(told) { // a home shows what is not committed
		return zero, e.wrap(p, errors.Join(journal.ErrNotHome, t.view.Close()))
	}
	value, err := f(t)
	if cerr := t.view.Close(); cerr != nil && err == nil {
		err = cerr
	}
	if err != nil {
		return zero, e.wrap(p, err)
	}
	return value, nil
}

// leads reports whether this gateway still leads in an epoch.
func (e *Engine) leads(epoch uint64) bool {
	now, err := e.verifiedEpoch()
	return err == nil && now == epoch
}

// passed reports whether t may lack a record before until, because the record was applied while t
// was in use and is no longer pending.
func (e *Engine) passed(t *tree, until segment.Position) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return t.applied.Less(segment.Earlier(e.applied, until))
}

// waitCommitted waits until everything up to pos is committed. It returns at once if that is known.
func (e *Engine) waitCommitted(ctx context.Context, pos segment.Position) error {
	e.mu.Lock()
	done := pos.Compare(e.commit) <= 0
	e.mu.Unlock()
	if done {
		return nil
	}
	return e.journal.WaitCommitted(ctx, pos)
}
