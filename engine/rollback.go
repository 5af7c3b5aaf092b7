// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"fmt"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// rollBatch is about how many keys one record of a rollback changes.
const rollBatch = 256

// rollBytes is about how many bytes one record of a rollback has at most.
const rollBytes = 1 << 20

// Rollback implements volume.Snapshotter. Its first record says that the volume is being rolled
// back. Small records follow, each of which may come twice, and a last one that says that it is
// done. A home that begins meanwhile goes on with it (Clean).
func (e *Engine) Rollback(ctx context.Context, r volume.Request, to, before string) error {
	p := place{op: "rollback", ino: volume.Root.Ino, name: to}
	again := context.WithValue(ctx, rollingKey{}, true)
	_, err := change(again, e, r, p, noResult, false, func(t *tx) (struct{}, error) {
		if err := e.notRolling(ctx); err != nil { // this one would be another rollback
			return struct{}{}, err
		}
		if err := t.newName(before); err != nil {
			return struct{}{}, err
		}
		to, err := t.snapshotNamed(to)
		if err == nil && to == nil {
			err = volume.ErrNotExist
		}
		if err != nil {
			return struct{}{}, err
		}
		v, err := t.newest() // the second's moment stays when the snapshot of before is dropped
		if err != nil {
			return struct{}{}, err
		}
		v.Rolling = to.Gen
		at := t.now
		if at.Before(v.Time) {
			at = v.Time
		}
		s, err := t.take(meta.Snapshot{Time: at, Name: before}, false)
		if err != nil {
			return struct{}{}, err
		}
		t.set(meta.EncodeNamed(before, s.Gen))
		return struct{}{}, nil
	})
	if err != nil {
		return err
	}
	return e.roll(ctx)
}

// roll goes on with a rollback that was begun, to its end.
func (e *Engine) roll(ctx context.Context) error {
	ctx = context.WithValue(ctx, rollingKey{}, true)
	p := place{op: "roll back", ino: volume.Root.Ino}
	for r := (roller{}); !r.done; {
		next := r
		_, err := change(ctx, e, volume.Request{}, p, countResult, false, func(t *tx) (int, error) {
			next = r // a change may be computed again
			return 0, next.step(t)
		})
		if err != nil {
			return err
		}
		r = next
	}
	return nil
}

// roller makes a volume what it was in a snapshot. It goes through the history, then through what
// was made later.
type roller struct {
	begun uint64 // number of the rollback's first record
	from  []byte // the next key of the history; nil: the first
	last  []byte // the key that the last entry was of
	later int    // which of laterTables is next
	next  []byte // the next key of that; nil: the first
	phase int
	done  bool
}

// laterTables are those whose keys begin with a number that only grows, in which what is greater
// than a snapshot's number is deleted one by one.
var laterTables = []meta.Table{meta.Names, meta.Cookies, meta.Targets, meta.Xattrs, meta.Orphans, meta.Waste, meta.Inodes}

func (r *roller) step(t *tx) error {
	v, err := t.versionsOf()
	if err != nil {
		return err
	}
	t.versions = &v // no moment is taken for this
	if v.Rolling == 0 {
		r.done = true
		return nil
	}
	if v.Changed != r.begun { // this is another rollback
		*r = roller{begun: v.Changed}
	}
	to, err := t.snapshot(v.Rolling)
	if err == nil && to == nil {
		err = fmt.Errorf("snapshot %d, which the volume is rolled back to, is not there: %w", v.Rolling, errDamaged)
	}
	if err != nil {
		return err
	}
	switch {
	case r.phase == 0:
		return r.restore(t, to)
	case r.later < len(laterTables):
		return r.removeLater(t, to)
	}
	v.Rolling = 0
	t.set(v.Encode())
	t.engine.rolledBack++
	used, err := t.using()
	if err != nil {
		return err
	}
	used.Bytes, used.Inodes = to.Used.Bytes, to.Used.Inodes
	t.used = &used
	t.touched = append(t.touched, snapshotsIno)
	r.done = true
	return nil
}

// restore gives keys what they had in the snapshot, of which the history speaks.
func (r *roller) restore(t *tx, to *meta.Snapshot) error {
	n, looked := 0, 0
	lo, hi := meta.AllHistory(r.from)
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			return err
		}
		if looked++; looked > cleanLook || n >= rollBatch || t.size >= rollBytes {
			r.from = bytes.Clone(pair.Key)
			return nil
		}
		k, gen, err := meta.SplitHistory(pair.Key)
		if err != nil {
			return err
		}
		if gen < to.Gen || bytes.Equal(k, r.last) {
			continue
		}
		r.last = k
		value, exists, err := meta.DecodeHistory(pair.Key, pair.Value)
		if err != nil {
			return err
		}
		if !meta.Seen(k, to.Number) {
			continue
		}
		if err := t.restoreKey(k, bytes.Clone(value), exists, to); err != nil {
			return err
		}
		n++
	}
	r.phase = 1
	return nil
}

// restoreKey gives one key what it had in a snapshot.
func (t *tx) restoreKey(k, value []byte, exists bool, to *meta.Snapshot) error {
	now, is, _, err := t.view.Get(k)
	if err != nil || is == exists && bytes.Equal(now, value) {
		return err
	}
	switch meta.Table(k[0]) {
	case meta.Names:
		if is { // the cookie of what was made later is in no history
			name := meta.XattrName(k)
			d, err := meta.DecodeName(k, now, name)
			if err != nil {
				return err
			}
			if d.Cookie > to.Number {
				t.delete(meta.CookieKey(meta.Of(k), d.Cookie))
			}
		}
	case meta.Inodes:
		if value, err = t.restoreInode(k, now, is, value, exists); err != nil {
			return err
		}
	}
	if exists {
		t.set(k, value)
	} else {
		t.delete(k)
	}
	t.touched = append(t.touched, meta.Of(k))
	return nil
}

// restoreInode returns the value that an inode gets. It has a new change attribute: clients take
// one that went back for an old answer (protocol-21).
func (t *tx) restoreInode(k, now []byte, is bool, value []byte, exists bool) ([]byte, error) {
	var was, n *meta.Inode
	var err error
	if is {
		if n, err = meta.DecodeInode(k, now); err != nil {
			return nil, err
		}
	}
	if exists {
		if was, err = meta.DecodeInode(k, value); err != nil {
			return nil, err
		}
	}
	if n != nil && n.Type == volume.Regular && (was == nil || was.ContentID() != n.ContentID()) {
		t.discard(n.ContentID(), n.Used)
	}
	if was == nil {
		return nil, nil
	}
	if was.Type == volume.Regular && (n == nil || n.ContentID() != was.ContentID()) {
		if err := t.revive(was.ContentID()); err != nil {
			return nil, err
		}
	}
	if was.Change, err = t.number(); err != nil {
		return nil, err
	}
	_, value = was.Encode()
	return value, nil
}

// revive notes that an inode has a content again.
func (t *tx) revive(content uint64) error {
	key := meta.DeadKey(content)
	value, is, _, err := t.view.Get(key)
	if err != nil || !is {
		return err
	}
	_, d, err := meta.DecodeDead(key, value)
	t.held -= int64(d.Bytes)
	t.delete(key)
	return err
}

// removeLater deletes what was made after the snapshot.
func (r *roller) removeLater(t *tx, to *meta.Snapshot) error {
	table := laterTables[r.later]
	n := 0
	lo, hi := meta.After(table, to.Number)
	if r.next != nil {
		lo = r.next
	}
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			return err
		}
		k := bytes.Clone(pair.Key)
		if n++; n > rollBatch || t.size >= rollBytes {
			r.next = k
			return nil
		}
		if table == meta.Inodes {
			i, err := meta.DecodeInode(k, pair.Value)
			if err != nil {
				return err
			}
			if i.Type == volume.Regular && (i.Used > 0 || t.shown(i.ContentID())) { // see purge
				t.discard(i.ContentID(), i.Used)
			}
		}
		t.delete(k)
		t.touched = append(t.touched, meta.Of(k))
	}
	r.later, r.next = r.later+1, nil
	return nil
}
