// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// Format is the newest format level of a volume's metadata that this release knows.
const Format = meta.Format

// TailLevel is the format level from which a home counts on it that the end of the log goes to
// stores in pieces.
const TailLevel = meta.TailLevel

// maxSnapshots bounds the snapshots with names of a volume.
const maxSnapshots = 4096

// TakeSnapshot implements volume.Snapshotter. Its record has the same size however large the volume
// is.
func (e *Engine) TakeSnapshot(ctx context.Context, r volume.Request, name string) (volume.Snapshot, error) {
	return e.takeSnapshot(ctx, r, name, func() error { return nil })
}

// takeSnapshot takes a snapshot, unless may returns an error in the turn in which it is taken.
func (e *Engine) takeSnapshot(ctx context.Context, r volume.Request, name string, may func() error) (volume.Snapshot, error) {
	p := place{op: "take snapshot", ino: volume.Root.Ino, name: name}
	return change(ctx, e, r, p, snapshotResult, false, func(t *tx) (volume.Snapshot, error) {
		var none volume.Snapshot
		if err := may(); err != nil {
			return none, err
		}
		if err := t.newName(name); err != nil {
			return none, err
		}
		v, err := t.newest() // the second's moment stays when the snapshot is dropped
		if err != nil {
			return none, err
		}
		if !t.raise(meta.SnapshotLevel) {
			return none, fmt.Errorf("%w: snapshots need format level %d, and not all copies of the volume know it: upgrade their gateways",
				volume.ErrDelay, meta.SnapshotLevel)
		}
		at := t.now
		if at.Before(v.Time) { // the clock of an earlier home was ahead
			at = v.Time
		}
		s, err := t.take(meta.Snapshot{Time: at, Name: name}, false)
		if err != nil {
			return none, err
		}
		t.set(meta.EncodeNamed(name, s.Gen))
		return contract(s), nil
	})
}

// newName returns why no snapshot can be taken under a name.
func (t *tx) newName(name string) error {
	if err := volume.CheckSnapshotName(name); err != nil {
		return err
	}
	named, err := t.named()
	if err != nil {
		return err
	}
	for _, s := range named {
		if s.Name == name {
			return volume.ErrExist
		}
	}
	if len(named) >= maxSnapshots {
		return fmt.Errorf("the volume has %d snapshots, drop some: %w", len(named), volume.ErrNoSpace)
	}
	return nil
}

// contract is s in the words of the contract.
func contract(s meta.Snapshot) volume.Snapshot {
	return volume.Snapshot{Name: s.Name, Snap: s.Gen, Time: s.Time, Bytes: s.Used.Bytes, Inodes: s.Used.Inodes}
}

// Snapshots implements volume.Snapshotter.
func (e *Engine) Snapshots(ctx context.Context) ([]volume.Snapshot, error) {
	return read(ctx, e, place{op: "snapshots", ino: volume.Root.Ino}, func(t *tree) ([]volume.Snapshot, error) {
		named, err := t.named()
		if err != nil {
			return nil, err
		}
		out := make([]volume.Snapshot, len(named))
		for i, s := range named {
			out[i] = contract(s)
		}
		return out, nil
	})
}

// named returns the snapshots that have names, sorted by them.
func (t *tree) named() (out []meta.Snapshot, err error) {
	t.seen = append(t.seen, snapshotsIno)
	lo, hi := meta.AllNamed()
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			return nil, err
		}
		gen, err := meta.DecodeNamed(pair.Key, pair.Value)
		if err != nil {
			return nil, err
		}
		s, err := t.snapshot(gen)
		if err != nil {
			return nil, err
		}
		if s == nil {
			return nil, fmt.Errorf("snapshot %d, which a name leads to, is not there: %w", gen, errDamaged)
		}
		out = append(out, *s)
	}
	return out, nil
}

// snapshot returns a snapshot; nil: there is none.
func (t *tree) snapshot(gen uint32) (*meta.Snapshot, error) {
	key := meta.SnapshotKey(gen)
	value, ok, _, err := t.view.Get(key)
	if err != nil || !ok {
		return nil, err
	}
	s, err := meta.DecodeSnapshot(key, value)
	return &s, err
}

// snapshotsFrom returns the snapshots from a generation on, oldest first.
func (t *tree) snapshotsFrom(gen uint32) (out []meta.Snapshot, err error) {
	lo, hi := meta.SnapshotRange(gen)
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			return nil, err
		}
		s, err := meta.DecodeSnapshot(pair.Key, pair.Value)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// DropSnapshot implements volume.Snapshotter. What only the snapshot showed goes later, by Clean.
func (e *Engine) DropSnapshot(ctx context.Context, r volume.Request, name string) error {
	p := place{op: "drop snapshot", ino: volume.Root.Ino, name: name}
	_, err := change(ctx, e, r, p, noResult, false, func(t *tx) (struct{}, error) {
		key := meta.NamedKey(name)
		value, ok, _, err := t.view.Get(key)
		if err != nil {
			return struct{}{}, err
		}
		t.seen = append(t.seen, snapshotsIno)
		if !ok {
			return struct{}{}, volume.ErrNotExist
		}
		gen, err := meta.DecodeNamed(key, value)
		if err != nil {
			return struct{}{}, err
		}
		t.delete(key)
		return struct{}{}, t.drop(gen)
	})
	return err
}

// drop deletes snapshots.
func (t *tx) drop(gens ...uint32) error {
	v, err := t.versionsOf()
	if err != nil {
		return err
	}
	gone := map[uint32]bool{}
	for _, gen := range gens {
		gone[gen] = true
		t.delete(meta.SnapshotKey(gen))
	}
	number, err := t.number()
	if err != nil {
		return err
	}
	v.Changed, v.Dropped = number, number
	if gone[v.Newest] {
		all, err := t.snapshotsFrom(1)
		if err != nil {
			return err
		}
		v.Newest, v.Number = 0, 0
		for _, s := range all {
			if !gone[s.Gen] {
				v.Newest, v.Number = s.Gen, s.Number
			}
		}
	}
	t.versions = &v
	t.set(v.Encode())
	t.touched = append(t.touched, snapshotsIno)
	return nil
}

// enter makes t look at the volume as of a snapshot; 0: as it is.
func (t *tree) enter(snap uint32) error {
	switch {
	case snap == 0 && t.past == nil || t.past != nil && t.past.Gen == snap:
		return nil
	case t.changing:
		return volume.ErrReadOnly
	case t.past != nil:
		return fmt.Errorf("one look at snapshots %d and %d: %w", t.past.Gen, snap, errDamaged)
	}
	t.seen = append(t.seen, snapshotsIno)
	s, err := t.snapshot(snap)
	if err != nil {
		return err
	}
	if s == nil {
		return volume.ErrStale
	}
	t.past, t.view = s, t.view.At(*s)
	t.inodes = inodes{}
	return nil
}

// snapshotDir returns the directory of a directory's snapshots. It has the directory's attributes.
func (t *tree) snapshotDir(h volume.Handle) (*meta.Inode, error) {
	switch {
	case t.changing:
		return nil, volume.ErrReadOnly
	case t.engine.tuned.Load().NoSnapshotDir:
		return nil, volume.ErrStale
	}
	of := h
	of.Snap = 0
	n, err := t.directory(of)
	if err != nil {
		return nil, err
	}
	v, err := t.versionsOf()
	if err != nil {
		return nil, err
	}
	t.seen = append(t.seen, snapshotsIno)
	dir := *n
	dir.Handle, dir.Parent = h, n.Handle
	dir.Mode &^= 0o222
	dir.Nlink = 2
	dir.Xattrs, dir.Entries = 0, 0
	dir.Change, dir.Mtime, dir.Ctime = max(v.Changed, 1), v.Time, v.Time
	return &dir, nil
}

// SnapshotDirName is the name of the directory of snapshots that each directory has. Listings do
// not show it.
const SnapshotDirName = ".snapshots"

// hasSnapshotDir reports whether a directory of the present has one.
func (t *tree) hasSnapshotDir(dir volume.Handle) bool {
	return dir.Snap == 0 && !t.engine.tuned.Load().NoSnapshotDir
}

// listSnapshots is ReadDir of the directory of d's snapshots. It lists those with names in which d
// is.
func (t *tree) listSnapshots(d *meta.Inode, after uint64, limit int) (listing, error) {
	named, err := t.named()
	if err != nil {
		return listing{}, err
	}
	slices.SortFunc(named, func(a, b meta.Snapshot) int { return cmp.Compare(a.Gen, b.Gen) })
	var l listing
	for _, s := range named {
		cookie := uint64(s.Gen) + 2
		if cookie <= after {
			continue
		}
		if len(l.entries) == limit {
			return l, nil
		}
		look := *t
		h := d.Parent
		h.Snap = s.Gen
		n, err := look.directory(h)
		if errors.Is(err, volume.ErrStale) {
			continue
		}
		if err != nil {
			return listing{}, err
		}
		l.entries = append(l.entries, volume.Entry{Name: s.Name, Cookie: cookie, Attr: n.Attr})
	}
	l.eof = true
	return l, nil
}

// lookupSnapshot finds a name in the directory of d's snapshots.
func (t *tree) lookupSnapshot(dir *meta.Inode, name string) (*meta.Inode, error) {
	h := dir.Parent // the directory itself
	switch name {
	case ".":
		return dir, nil
	case "..":
		return t.find(h.Ino)
	}
	s, err := t.snapshotNamed(name)
	if err != nil || s == nil {
		return nil, err
	}
	h.Snap = s.Gen
	n, err := t.directory(h)
	if errors.Is(err, volume.ErrStale) {
		return nil, nil // the directory was made later
	}
	return n, err
}

// snapshotNamed returns the snapshot of a name, or of a time after "@"; nil: there is none.
func (t *tree) snapshotNamed(name string) (*meta.Snapshot, error) {
	t.seen = append(t.seen, snapshotsIno)
	if strings.HasPrefix(name, "@") {
		return t.asOf(name[1:])
	}
	key := meta.NamedKey(name)
	value, ok, _, err := t.view.Get(key)
	if err != nil || !ok {
		return nil, err
	}
	gen, err := meta.DecodeNamed(key, value)
	if err != nil {
		return nil, err
	}
	return t.snapshot(gen)
}

// asOf returns the snapshot that has what the volume had when a second began, which is in RFC 3339
// or in seconds since 1970; nil: there is none.
//
// The first change of each second takes a moment before itself. So the first snapshot that is not
// earlier than a time has what was there at that time, while moments are taken. After the last
// change it is the last moment, if that was taken when nothing changed any more.
func (t *tree) asOf(text string) (*meta.Snapshot, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		seconds, nerr := strconv.ParseInt(text, 10, 64)
		if nerr != nil {
			return nil, nil // no such name
		}
		at = time.Unix(seconds, 0)
	}
	at = at.Truncate(time.Second)
	v, err := t.versionsOf()
	if err != nil || v.Newest == 0 {
		return nil, err
	}
	if at.After(v.Time) {
		if at.After(t.engine.cfg.Now()) || !v.Idle || v.Newest != v.Last || v.Covered.IsZero() {
			return nil, nil
		}
		return t.snapshot(v.Last)
	}
	// The times of snapshots grow with their generations.
	var found *meta.Snapshot
	for lo, hi := uint32(1), v.Last; lo <= hi; {
		mid := lo + (hi-lo)/2
		s, err := t.snapshotFrom(mid)
		if err != nil {
			return nil, err
		}
		switch {
		case s == nil || s.Gen > hi:
			hi = mid - 1
		case s.Time.Before(at):
			lo = s.Gen + 1
		default:
			found, hi = s, mid-1
		}
	}
	covered := !v.Covered.IsZero() && !at.Before(v.Covered)
	if found == nil || !covered && (found.Moment || !found.Time.Truncate(time.Second).Equal(at)) {
		return nil, nil
	}
	return found, nil
}

// snapshotFrom returns the first snapshot from gen on; nil: there is none.
func (t *tree) snapshotFrom(gen uint32) (*meta.Snapshot, error) {
	lo, hi := meta.SnapshotRange(gen)
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			return nil, err
		}
		s, err := meta.DecodeSnapshot(pair.Key, pair.Value)
		return &s, err
	}
	return nil, nil
}
