// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
)

// The trash (ADR 51). A directory from which something was removed has a directory of its own for
// that, its Inode.Trash, to which no entry leads. When the directory itself is removed, its trash
// takes its place in the trash of its parent. So a removed tree is a tree of the trash, and one
// Rename restores it.

// trash returns the trash of a directory that has one.
func (t *tree) trash(d *meta.Inode) (*meta.Inode, error) {
	s, err := t.find(d.Trash)
	if err == nil && (s == nil || s.Type != volume.Directory || s.Parent.Ino != d.Ino) {
		err = fmt.Errorf("directory %d, which is to have what was removed from directory %d, is not there: %w", d.Trash, d.Ino, errDamaged)
	}
	return s, err
}

// wasted reports whether an inode is a directory in the trash.
func (t *tree) wasted(d *meta.Inode) (bool, error) {
	for d.Wasted {
		up, err := t.find(d.Parent.Ino)
		if err == nil && (up == nil || up.Type != volume.Directory) {
			err = fmt.Errorf("directory %d, in which directory %d is, is not there: %w", d.Parent.Ino, d.Ino, errDamaged)
		}
		if err != nil || up.Trash == d.Ino {
			return err == nil, err
		}
		d = up
	}
	return false, nil
}

// part takes one name in d from n, into the trash or for good. The caller removes the entry.
func (t *tx) part(d, n *meta.Inode, name string, number uint64) error {
	if n.Trash != 0 { // it is an empty directory
		s, err := t.trash(n)
		if err != nil {
			return err
		}
		if s.Entries > 0 {
			n.Trash = 0
			if err := t.unlink(d, n, number); err != nil {
				return err
			}
			return t.waste(d, s, name, number)
		}
		if err := t.dropTrash(n, s, number); err != nil {
			return err
		}
	}
	keeps, err := t.keeps(d, n, name)
	if err != nil {
		return err
	}
	if !keeps {
		return t.unlink(d, n, number)
	}
	if n.Type == volume.Directory {
		d.Nlink--
	}
	return t.waste(d, n, name, number)
}

// keeps reports whether what loses a name goes into the trash.
func (t *tx) keeps(d, n *meta.Inode, name string) (bool, error) {
	if t.engine.tuned.Load().Trash <= 0 || n.Type != volume.Directory && n.Nlink > 1 || silly(name) {
		return false, nil
	}
	if in, err := t.wasted(d); err != nil || in {
		return false, err
	}
	if full, err := t.crowded(); err != nil || full {
		return false, err
	}
	if _, err := t.newest(); err != nil {
		return false, err
	}
	return t.raise(meta.TrashLevel), nil
}

// silly reports whether the Linux NFS client gave a file this name because somebody had removed it
// while it was open there. The client removes it when it is closed.
func silly(name string) bool {
	rest, ok := strings.CutPrefix(name, ".nfs")
	return ok && len(rest) == 24 && strings.Trim(rest, "0123456789abcdef") == ""
}

// crowded reports whether more than nine tenths of the volume's room is used. Then nothing goes
// into the trash, and the oldest of what is there goes for good: a full volume is emptied by
// removing files (protocol-15).
func (t *tx) crowded() (bool, error) {
	a, err := t.using()
	e := t.engine
	return err == nil && (a.Bytes > e.room.bytes.Load()/10*9 || a.Inodes > e.room.inodes.Load()/10*9), err
}

// waste makes an entry of d's trash for n, which has no other name.
func (t *tx) waste(d, n *meta.Inode, name string, number uint64) error {
	s, err := t.trashFor(d, number)
	if err != nil {
		return err
	}
	if name, err = t.freeName(s, name, number); err != nil {
		return err
	}
	if n.Type == volume.Directory {
		n.Parent, n.Wasted = s.Handle, true
		s.Nlink++
	}
	n.Ctime, n.Change = t.now, number
	t.changed(n)
	t.put(s, &meta.Dirent{Name: name, Cookie: number}, n)
	t.changedDir(s, number)
	t.set(meta.Wasted{Dir: s.Ino, Time: t.now}.Encode(number))
	return nil
}

// trashFor returns the trash of a directory, which gets one if it has none.
func (t *tx) trashFor(d *meta.Inode, number uint64) (*meta.Inode, error) {
	if d.Trash != 0 {
		return t.trash(d)
	}
	used, err := t.using()
	if err != nil {
		return nil, err
	}
	used.Inodes++ // also without room for it: it may come in place of what is removed
	t.used = &used
	s := &meta.Inode{Parent: d.Handle, Wasted: true}
	s.Attr = volume.Attr{Handle: volume.Handle{Ino: number, Gen: t.engine.epoch}, Type: volume.Directory, Nlink: 2,
		Mode: d.Mode, UID: d.UID, GID: d.GID, Atime: t.now, Mtime: t.now, Ctime: t.now, Btime: t.now, Change: number}
	t.add(s)
	d.Trash = s.Ino
	t.changed(d)
	return s, nil
}

// freeName returns the name under which the record with a number puts something into a trash.
func (t *tx) freeName(s *meta.Inode, name string, number uint64) (string, error) {
	stamp := "~" + t.now.Format("2006-01-02T15-04-05Z")
	for _, end := range []string{"", stamp, fmt.Sprintf("%s-%x", stamp, number)} {
		begin := name
		for n := len(begin); len(begin)+len(end) > volume.MaxName; begin = begin[:n] {
			for n--; n > 0 && !utf8.RuneStart(name[n]); n-- {
			}
		}
		_, is, _, err := t.view.Get(meta.NameKey(s.Ino, begin+end))
		if err != nil || !is {
			return begin + end, err
		}
	}
	return "", fmt.Errorf("directory %d has an entry of record %d already: %w", s.Ino, number, errDamaged)
}

// dropTrash removes the trash s of d, in which nothing is.
func (t *tx) dropTrash(d, s *meta.Inode, number uint64) error {
	d.Trash, d.Change = 0, number
	t.changed(d)
	d.Nlink++ // unlink takes that again: a trash is not counted
	return t.unlink(d, s, number)
}

// taken notes that an entry of d is removed: it may have been in the trash.
func (t *tx) taken(d *meta.Inode, cookie uint64) error {
	if !d.Wasted {
		return nil
	}
	key := meta.WasteKey(cookie)
	_, is, _, err := t.view.Get(key)
	if err == nil && is {
		t.delete(key)
	}
	return err
}

// likewise gives a directory's trash the directory's mode and owner.
func (t *tx) likewise(d *meta.Inode, number uint64) error {
	if d.Trash == 0 {
		return nil
	}
	s, err := t.trash(d)
	if err != nil || s.Mode == d.Mode && s.UID == d.UID && s.GID == d.GID {
		return err
	}
	s.Mode, s.UID, s.GID, s.Ctime, s.Change = d.Mode, d.UID, d.GID, t.now, number
	t.changed(s)
	return nil
}

const (
	// emptyBatch is the most entries of the trash that one record removes.
	emptyBatch = 64
	// emptyLook is the most that it looks at.
	emptyLook = 1024
)

// emptier removes what has been in the trash for long enough, oldest first.
type emptier struct {
	oldest time.Time // what came into the trash before goes
	from   uint64    // the record that the next entry is of
	done   bool
}

// oldestWaste returns since when the oldest is in the trash whose time is not to come yet.
func (t *tree) oldestWaste(now time.Time) (time.Time, error) {
	lo, hi := meta.WasteRange(0)
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			return time.Time{}, err
		}
		_, w, err := meta.DecodeWasted(pair.Key, pair.Value)
		if err != nil || !w.Time.After(now.Add(mostAhead)) {
			return w.Time, err
		}
	}
	return time.Time{}, nil
}

// emptyTrash removes what came into the trash before a time, and returns how many entries. While
// the volume is crowded, it removes what is later, too.
func (e *Engine) emptyTrash(ctx context.Context, oldest time.Time) (removed int, err error) {
	p := place{op: "empty trash", ino: volume.Root.Ino}
	for x := (emptier{oldest: oldest}); !x.done; {
		next := x
		n, err := change(ctx, e, volume.Request{}, p, countResult, false, func(t *tx) (int, error) {
			next = x // a change may be computed again
			return next.step(t)
		})
		if err != nil {
			return removed, err
		}
		x = next
		removed += n
	}
	return removed, nil
}

// waits reports whether something is in the trash.
func (t *tree) waits() (bool, error) {
	lo, hi := meta.WasteRange(0)
	for _, err := range t.view.Range(lo, hi) {
		return err == nil, err
	}
	return false, nil
}

func (x *emptier) step(t *tx) (removed int, err error) {
	lo, hi := meta.WasteRange(x.from)
	looked := 0
	for pair, err := range t.view.Range(lo, hi) {
		if err != nil {
			return 0, err
		}
		number, w, err := meta.DecodeWasted(pair.Key, pair.Value)
		if err != nil {
			return 0, err
		}
		if looked++; looked > emptyLook || removed >= emptyBatch || t.size >= rollBytes {
			x.from = number
			return removed, nil
		}
		full, err := t.crowded()
		switch {
		case err != nil:
			return 0, err
		case !full && w.Time.After(t.now.Add(mostAhead)): // the clock of an earlier home was ahead
			continue
		case !full && !w.Time.Before(x.oldest):
			x.done = true
			return removed, nil
		}
		n, err := t.expel(number, w)
		if err != nil {
			return 0, err
		}
		removed += n
	}
	x.done = true
	return removed, nil
}

// expel removes an entry of the trash for good, if it still is in the trash. It returns how many it
// removed.
func (t *tx) expel(of uint64, w meta.Wasted) (int, error) {
	d, err := t.find(w.Dir)
	if err != nil {
		return 0, err
	}
	key := meta.CookieKey(w.Dir, of)
	value, is, _, err := t.view.Get(key)
	if err == nil && is && d == nil {
		err = fmt.Errorf("directory %d, which has an entry with cookie %d, is not there: %w", w.Dir, of, errDamaged)
	}
	if err == nil && is {
		is, err = t.wasted(d)
	}
	if err != nil {
		return 0, err
	}
	if !is { // a directory above it was restored
		t.delete(meta.WasteKey(of))
		return 0, nil
	}
	de, err := meta.DecodeCookie(key, value)
	if err != nil {
		return 0, err
	}
	n, err := t.target(d, de)
	if err != nil || n.Entries > 0 { // what is in it goes first, and was put there by an earlier record
		return 0, err
	}
	number, err := t.number()
	if err != nil {
		return 0, err
	}
	t.delete(meta.WasteKey(of))
	t.delete(meta.NameKey(d.Ino, de.Name))
	t.delete(key)
	d.Entries--
	if err := t.unlink(d, n, number); err != nil {
		return 0, err
	}
	t.changedDir(d, number)
	up, err := t.find(d.Parent.Ino)
	if err != nil || up == nil || up.Trash != d.Ino || d.Entries > 0 {
		return 1, err
	}
	return 1, t.dropTrash(up, d, number)
}
