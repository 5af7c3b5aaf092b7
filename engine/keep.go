// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/volume"
)

// keeping is what a change knows of the volume's snapshots.
type keeping struct {
	versions *meta.VersionsOf // nil: not read yet
	kept     map[string]bool  // keys that the change has put into the history
	touched  []uint64         // inodes besides those of the change
	broken   error            // why the change cannot be made
	held     int64            // how many bytes more only snapshots hold (meta-12)
	counts   bool             // from this record on that is counted
}

// keepMost is about how many bytes one record puts into the history for a range of keys. The rest
// comes in records before it.
const keepMost = 8 << 20

// mostAhead is how far an earlier home's clock may have been ahead.
const mostAhead = time.Minute

// moreError says that a range of keys must be in the history before a change can be made: its
// record would have no room for it.
type moreError struct{ lo, hi []byte }

func (e *moreError) Error() string {
	return "the change puts more into the history than one record has room for"
}

// snapshotsIno stands for the list of snapshots among the inodes that records touch. No inode has
// this number.
const snapshotsIno = 2

// versionsOf returns what the volume's snapshots have in common.
func (t *tree) versionsOf() (meta.VersionsOf, error) {
	key := meta.VersionsKey()
	value, ok, _, err := t.view.Get(key)
	if err != nil || !ok {
		return meta.VersionsOf{Level: 1}, err
	}
	return meta.DecodeVersions(key, value)
}

// newest returns what the volume's snapshots have in common. If the volume can be looked at as of
// any second, the first change of a second takes a moment before itself.
func (t *tx) newest() (*meta.VersionsOf, error) {
	if t.versions != nil {
		return t.versions, nil
	}
	v, err := t.versionsOf()
	if err != nil {
		return nil, err
	}
	t.versions = &v
	second := t.now.Truncate(time.Second)
	// If the clock of an earlier home was far ahead, seconds are missing until this one is there.
	on := t.engine.tuned.Load().Window > 0 && v.Time.Sub(t.now) <= mostAhead && t.raise(meta.SnapshotLevel)
	if v.Covered.IsZero() { // something may have changed in this second
		second = t.now
	}
	if second.Before(v.Time) {
		second = v.Time
	}
	switch {
	case !on && !v.Covered.IsZero(): // from now on seconds are missing
		v.Covered = time.Time{}
		t.set(v.Encode())
	case on && (second.After(v.Time) || v.Idle || v.Covered.IsZero()):
		if v.Covered.IsZero() {
			v.Covered = second
		}
		_, err = t.take(meta.Snapshot{Time: second, Moment: true}, false)
	}
	return t.versions, err
}

// raise raises the volume's format level to what all copies know, if that is enough, and reports
// whether it is enough now. The change has read the versions.
func (t *tx) raise(level uint32) bool {
	v := t.versions
	if known := min(meta.Format, t.engine.cfg.Level()); v.Level < known && known >= level {
		v.Level = known
		t.counts = known >= meta.TrashLevel && v.Newest == 0 && v.Dropped == 0 // there is no history
		t.set(v.Encode())
	}
	return v.Level >= level
}

// take adds a snapshot of what is there before the change. What the change itself makes has the
// number of its record, and is not in the snapshot.
func (t *tx) take(s meta.Snapshot, idle bool) (meta.Snapshot, error) {
	used, err := t.accounting()
	if err != nil {
		return s, err
	}
	number, err := t.number()
	if err != nil {
		return s, err
	}
	v := t.versions
	s.Gen, s.Used, s.Number = v.Last+1, used, number-1
	if s.Gen == volume.SnapshotDir {
		return s, fmt.Errorf("the volume had %d snapshots, which is the most there can be: %w", v.Last, volume.ErrNoSpace)
	}
	v.Last, v.Newest, v.Number, v.Changed, v.Time, v.Idle = s.Gen, s.Gen, s.Number, number, s.Time, idle
	t.touched = append(t.touched, snapshotsIno)
	t.set(s.Encode())
	t.set(v.Encode())
	return s, nil
}

// preserve puts what a key has into the history, if the newest snapshot shows it and the history
// does not have it (meta-6). It is called before each change of a key.
func (t *tx) preserve(key []byte) {
	if t.broken != nil || !meta.Seen(key, ^uint64(0)) {
		return
	}
	v, err := t.newest()
	if err == nil && v.Newest != 0 && meta.Seen(key, v.Number) && !t.kept[string(key)] {
		err = t.keep(key, v.Newest)
	}
	if err != nil {
		t.broken = err
	}
}

func (t *tx) keep(key []byte, gen uint32) error {
	if t.kept == nil {
		t.kept = map[string]bool{}
	}
	t.kept[string(key)] = true
	if has, err := t.view.Preserved(key, gen); err != nil || has {
		return err
	}
	value, ok, _, err := t.view.Get(key)
	if err != nil {
		return err
	}
	return t.enterHistory(key, gen, value, ok)
}

// enterHistory puts what a key has into the history.
func (t *tx) enterHistory(key []byte, gen uint32, value []byte, ok bool) error {
	h := meta.HistoryKey(key, gen)
	t.set(h, meta.EncodeHistory(h, value, ok))
	n, err := extentIn(key, value, ok)
	t.held += n
	return err
}

// extentIn is how many bytes of a file the value of a key holds.
func extentIn(key, value []byte, ok bool) (int64, error) {
	if !ok || meta.Table(key[0]) != meta.Extents {
		return 0, nil
	}
	x, err := meta.DecodeExtent(key, value)
	return int64(x.Len), err
}

// heldIn is how many bytes an entry of the history holds.
func heldIn(pair meta.Pair) (int64, error) {
	if len(pair.Key) < 2 || meta.Table(pair.Key[1]) != meta.Extents {
		return 0, nil
	}
	value, ok, err := meta.DecodeHistory(pair.Key, pair.Value)
	if err != nil {
		return 0, err
	}
	k, _, err := meta.SplitHistory(pair.Key)
	if err != nil {
		return 0, err
	}
	return extentIn(k, value, ok)
}

// shown reports whether the newest snapshot shows what has the given number.
func (t *tx) shown(number uint64) bool {
	v, err := t.newest()
	if err != nil {
		t.broken = errors.Join(t.broken, err)
		return true
	}
	return v.Newest != 0 && number <= v.Number
}

// discard deletes a content that no inode has any more, of so many bytes. What a snapshot shows
// stays until that is dropped.
func (t *tx) discard(content, bytes uint64) {
	if t.shown(content) {
		d := meta.DeadContent{Gen: t.versions.Newest}
		if t.versions.Level >= meta.TrashLevel {
			d.Bytes = bytes
		}
		t.held += int64(d.Bytes)
		t.set(d.Encode(content, t.versions.Level))
		return
	}
	t.deleteRange(meta.AllExtents(content))
}

// empty gives a file a content without extents.
func (t *tx) empty(n *meta.Inode) error {
	if n.Used == 0 {
		return nil
	}
	t.discard(n.ContentID(), n.Used)
	if !t.shown(n.ContentID()) {
		return nil
	}
	number, err := t.number()
	n.Content = number
	return err
}

// discardXattrs deletes all extended attributes of an inode.
func (t *tx) discardXattrs(ino uint64) error {
	lo, hi := meta.XattrRange(ino)
	if err := t.preserveRange(lo, hi); err != nil {
		return err
	}
	t.deleteRange(lo, hi)
	return nil
}

// preserveRange is preserve for all keys that are in a range of one table. It returns a *moreError
// if one record has no room for them.
func (t *tx) preserveRange(lo, hi []byte) error {
	v, err := t.newest()
	if err != nil || v.Newest == 0 {
		return err
	}
	next, stop := iter.Pull2(t.view.Range(meta.HistoryRange(lo, hi)))
	defer stop()
	was, err, more := next()
	for pair, perr := range t.view.Range(lo, hi) {
		if perr != nil {
			return perr
		}
		if !meta.Seen(pair.Key, v.Number) || t.kept[string(pair.Key)] {
			continue
		}
		has := false
		for more && err == nil {
			k, gen, bad := meta.SplitHistory(was.Key)
			if bad != nil {
				return bad
			}
			c := bytes.Compare(k, pair.Key)
			if c > 0 {
				break
			}
			has = has || c == 0 && gen >= v.Newest
			was, err, more = next()
		}
		if err != nil {
			return err
		}
		if has {
			continue
		}
		if t.size >= keepMost {
			return &moreError{bytes.Clone(pair.Key), hi}
		}
		if t.kept == nil {
			t.kept = map[string]bool{}
		}
		t.kept[string(pair.Key)] = true
		if err := t.enterHistory(pair.Key, v.Newest, pair.Value, true); err != nil {
			return err
		}
	}
	return nil
}

// keepRange puts what a range of keys has into the history, in several records. What the volume has
// does not change.
func (e *Engine) keepRange(ctx context.Context, p place, lo, hi []byte) error {
	for lo != nil {
		var rest *moreError
		_, err := change(ctx, e, volume.Request{}, p, noResult, false, func(t *tx) (struct{}, error) {
			err := t.preserveRange(lo, hi)
			if rest = nil; errors.As(err, &rest) {
				err = nil
			}
			return struct{}{}, err
		})
		if err != nil {
			return err
		}
		if lo = nil; rest != nil {
			lo = rest.lo
		}
	}
	return nil
}

// versionsIn returns what records say last of the volume's snapshots; nil: nothing. It returns a
// *meta.NewerError if one raises the volume's format level beyond what this release knows.
func versionsIn(records [][]segment.Op) (last *meta.VersionsOf, err error) {
	key := meta.VersionsKey()
	for _, ops := range records {
		for _, op := range ops {
			if op.Kind == segment.Set && bytes.Equal(op.Key, key) {
				v, err := meta.DecodeVersions(op.Key, op.Value)
				if err != nil {
					return nil, err
				}
				last = &v
			}
		}
	}
	return last, nil
}
