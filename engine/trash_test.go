// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// mended matches what the trash adds to a name that is taken.
var mended = regexp.MustCompile(`~[-0-9T]+Z(-[0-9a-f]+)?`)

var linksOf = regexp.MustCompile(` links \d+`)

// lookTrash describes the directories of what was removed from the directories below one, in the
// order in which it was removed.
func lookTrash(t testing.TB, v volume.Volume, dir volume.Handle) string {
	t.Helper()
	var b strings.Builder
	list := func(dir volume.Handle) (all []volume.Entry) {
		for after, eof := uint64(0), false; !eof; {
			entries, end, err := v.ReadDir(context.Background(), asRoot, dir, after, 7)
			if err != nil {
				t.Fatal(err)
			}
			all, eof = append(all, entries...), end
			if len(entries) > 0 {
				after = entries[len(entries)-1].Cookie
			}
		}
		return all
	}
	var inside, walk func(dir volume.Handle, path string)
	inside = func(dir volume.Handle, path string) {
		for _, x := range list(dir) {
			at := path + "/" + mended.ReplaceAllString(x.Name, "")
			fmt.Fprintf(&b, "%s %d %o links %d size %d\n", at, x.Attr.Type, x.Attr.Mode, x.Attr.Nlink, x.Attr.Size)
			if x.Attr.Type == volume.Directory {
				inside(x.Attr.Handle, at)
			}
		}
	}
	walk = func(dir volume.Handle, path string) {
		if s, err := v.Lookup(context.Background(), asRoot, dir, volume.TrashDir); err == nil {
			inside(s.Handle, path+"/"+volume.TrashDir)
		} else if !errors.Is(err, volume.ErrNotExist) {
			t.Fatal(err)
		}
		names := map[string]volume.Handle{}
		for _, x := range list(dir) {
			if x.Attr.Type == volume.Directory {
				names[x.Name] = x.Attr.Handle
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			walk(names[name], path+"/"+name)
		}
	}
	walk(dir, "")
	return b.String()
}

// checkTree compares inodes, entries, links and the trash with each other: nothing is without a way
// to it, and all that is in the trash goes some day.
func (h *host) checkTree() {
	h.Helper()
	t, err := h.look()
	if err != nil {
		h.Fatal(err)
	}
	defer func() { _ = t.view.Close() }()
	each := func(lo, hi []byte, f func(p meta.Pair) error) {
		h.Helper()
		for pair, err := range t.view.Range(lo, hi) {
			if err == nil {
				err = f(pair)
			}
			if err != nil {
				h.Fatal(err)
			}
		}
	}
	inodes, links, wasted := map[uint64]*meta.Inode{}, map[uint64]uint32{}, map[uint64]uint64{}
	lo, hi := meta.After(meta.Inodes, 0)
	each(lo, hi, func(p meta.Pair) error {
		n, err := meta.DecodeInode(p.Key, p.Value)
		if err == nil {
			inodes[n.Ino] = n
		}
		return err
	})
	lo, hi = meta.WasteRange(0)
	each(lo, hi, func(p meta.Pair) error {
		number, w, err := meta.DecodeWasted(p.Key, p.Value)
		wasted[number] = w.Dir
		return err
	})
	seen := map[uint64]bool{}
	var walk func(d, up *meta.Inode, trash bool)
	walk = func(d, up *meta.Inode, trash bool) {
		switch {
		case seen[d.Ino]:
			h.Fatalf("two ways lead to directory %d", d.Ino)
		case d.Parent != up.Handle:
			h.Fatalf("directory %d says that it is in %v, and is in %v", d.Ino, d.Parent, up.Handle)
		case trash && (!d.Wasted || d.Trash != 0):
			h.Fatalf("directory %d in the trash is %+v", d.Ino, d)
		}
		if is, err := t.wasted(d); err != nil || is != trash {
			h.Fatalf("directory %d is in the trash: %t, %v, want %t", d.Ino, is, err, trash)
		}
		seen[d.Ino] = true
		entries, subs := uint64(0), uint32(2)
		lo, hi := meta.CookieRange(d.Ino, 0)
		each(lo, hi, func(p meta.Pair) error {
			de, err := meta.DecodeCookie(p.Key, p.Value)
			if err != nil {
				return err
			}
			entries++
			n := inodes[de.Handle.Ino]
			if n == nil || n.Handle != de.Handle {
				return fmt.Errorf("entry %s of directory %d leads to %v", de.Name, d.Ino, de.Handle)
			}
			links[n.Ino]++
			if trash && wasted[de.Cookie] != d.Ino {
				return fmt.Errorf("entry %s of directory %d is in the trash for ever", de.Name, d.Ino)
			}
			if n.Type == volume.Directory {
				subs++
				walk(n, d, trash)
			}
			return nil
		})
		if entries != d.Entries || subs != d.Nlink {
			h.Fatalf("directory %d has %d entries and %d links, and says %d and %d", d.Ino, entries, subs, d.Entries, d.Nlink)
		}
		if d.Trash != 0 {
			s := inodes[d.Trash]
			if s == nil {
				h.Fatalf("directory %d has no trash %d", d.Ino, d.Trash)
			}
			walk(s, d, true)
		}
	}
	root := inodes[volume.Root.Ino]
	up := *root
	up.Handle = root.Parent
	walk(root, &up, false)
	for ino, n := range inodes {
		if n.Type != volume.Directory && links[ino] != n.Nlink || n.Type == volume.Directory && !seen[ino] && n.Nlink != 0 {
			h.Fatalf("no way leads to inode %d (type %d): it has %d names and says %d", ino, n.Type, links[ino], n.Nlink)
		}
	}
}

// TestTrashOfARandomHistory: whatever is removed, restored, rolled back and expired in which order,
// the volume and its trash are what they are in memvol, and nothing is left at last.
func TestTrashOfARandomHistory(t *testing.T) {
	if raced {
		t.Skip("one goroutine's long history, which takes the race detector gigabytes: it runs without")
	}
	for seed := range *histories {
		clock := &fakeNow{now: time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)}
		h := newHost(t, func(c *Config) { c.Tuning.Trash, c.Now = time.Hour, clock.Now })
		reference := memvol.New(volume.ID{9}, memvol.WithClock(clock.Now))
		reference.SetTrash(true)
		s := newStirrer(t, seed, withLocks(h.Engine), reference)
		s.large = 20 << 10
		ctx := context.Background()
		var snaps []string
		for i := range 600 {
			clock.advance(time.Duration(s.r.IntN(3)) * time.Second)
			s.stir()
			switch s.r.IntN(12) {
			case 0, 1, 2:
				s.restore()
			case 3:
				s.removeTree()
			case 4:
				if s.r.IntN(6) == 0 {
					s.release()
					h.crash()
					s.sides[0] = withLocks(h.Engine)
				}
			case 5:
				if s.r.IntN(2) == 0 {
					snaps = append(snaps, fmt.Sprint("s", i))
					h.take(snaps[len(snaps)-1])
					if _, err := reference.TakeSnapshot(ctx, asRoot, snaps[len(snaps)-1]); err != nil {
						t.Fatal(err)
					}
				}
			case 6:
				if _, err := h.Reap(ctx, nil); err != nil {
					t.Fatal(err)
				}
				h.clean()
			case 7:
				if n := len(snaps); n > 0 && s.r.IntN(4) == 0 {
					s.release()
					name := snaps[s.r.IntN(n)]
					h.rollBack(name, fmt.Sprint("before ", i), s.r.IntN(6))
					s.sides[0] = withLocks(h.Engine)
					if err := reference.Rollback(ctx, asRoot, name, fmt.Sprint("before ", i)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if i%20 == 0 {
				h.checkTree()
				h.checkUsed()
				wantHealthy(t, h.Engine)
			}
		}
		v := withLocks(h.Engine)
		plain := func(text string) string { return mended.ReplaceAllString(text, "~") }
		if got, want := plain(look(t, v, volume.Root)), plain(look(t, reference, volume.Root)); got != want {
			t.Fatalf("seed %d: the volume has\n%swant\n%s", seed, got, want)
		}
		if got, want := lookTrash(t, v, volume.Root), lookTrash(t, reference, volume.Root); got != want {
			t.Fatalf("seed %d: the trash has\n%swant\n%s", seed, got, want)
		}
		h.checkTree()
		h.checkUsed()
		s.release()
		clock.advance(2 * time.Hour)
		h.clean()
		if _, err := h.Reap(ctx, nil); err != nil {
			t.Fatal(err)
		}
		h.checkTree()
		h.checkUsed()
		if got := lookTrash(t, v, volume.Root); got != "" {
			t.Fatalf("seed %d: after its time the trash has\n%s", seed, got)
		}
		bare := func(text string) string { return linksOf.ReplaceAllString(plain(text), "") } // one may have been in the trash
		if got, want := bare(look(t, v, volume.Root)), bare(look(t, reference, volume.Root)); got != want {
			t.Fatalf("seed %d: without its trash the volume has\n%swant\n%s", seed, got, want)
		}
		if n := h.wastes(); n != 0 {
			t.Fatalf("seed %d: %d notes of the trash are left", seed, n)
		}
	}
}

// wastes counts the keys of the trash.
func (h *host) wastes() (n int) {
	h.Helper()
	t, err := h.look()
	if err != nil {
		h.Fatal(err)
	}
	defer func() { _ = t.view.Close() }()
	lo, hi := meta.WasteRange(0)
	for _, err := range t.view.Range(lo, hi) {
		if err != nil {
			h.Fatal(err)
		}
		n++
	}
	return n
}

// restore renames something out of the trash of a directory, or removes it there.
func (s *stirrer) restore() {
	dir, to := s.dirs[s.r.IntN(len(s.dirs))], s.dirs[s.r.IntN(len(s.dirs))]
	name, which, forGood := string(rune('a'+s.r.IntN(6))), s.r.IntN(4), s.r.IntN(4) == 0
	ctx := context.Background()
	var errs [2]error
	for i, v := range s.sides {
		errs[i] = func() error {
			bin, err := v.Lookup(ctx, asRoot, dir[i], volume.TrashDir)
			if err != nil {
				return nil //nolint:nilerr // one may have a trash without entries, the other none
			}
			for {
				entries, _, err := v.ReadDir(ctx, asRoot, bin.Handle, 0, 4)
				if err != nil || len(entries) == 0 {
					return err
				}
				x := entries[min(which, len(entries)-1)]
				if x.Attr.Type == volume.Directory && which%2 == 0 { // something below it
					if below, _, err := v.ReadDir(ctx, asRoot, x.Attr.Handle, 0, 1); err != nil {
						return err
					} else if len(below) > 0 {
						bin = x.Attr
						continue
					}
				}
				if forGood {
					_, err = v.Remove(ctx, asRoot, bin.Handle, x.Name)
				} else {
					_, _, err = v.Rename(ctx, asRoot, bin.Handle, x.Name, to[i], name)
				}
				return err
			}
		}()
	}
	if outcomeOf(errs[0]) != outcomeOf(errs[1]) {
		s.Fatalf("restore: %v on one side, %v on the other", errs[0], errs[1])
	}
}

// removeTree removes a name and all below it.
func (s *stirrer) removeTree() {
	dir, name := s.dirs[s.r.IntN(len(s.dirs))], string(rune('a'+s.r.IntN(6)))
	ctx := context.Background()
	var errs [2]error
	for i, v := range s.sides {
		var remove func(dir volume.Handle, name string) error
		remove = func(dir volume.Handle, name string) error {
			n, err := v.Lookup(ctx, asRoot, dir, name)
			if err != nil {
				return err
			}
			for n.Type == volume.Directory {
				below, _, err := v.ReadDir(ctx, asRoot, n.Handle, 0, 1)
				if err == nil && len(below) > 0 {
					err = remove(n.Handle, below[0].Name)
				}
				if err != nil {
					return err
				}
				if len(below) == 0 {
					break
				}
			}
			_, err = v.Remove(ctx, asRoot, dir, name)
			return err
		}
		errs[i] = remove(dir[i], name)
	}
	if outcomeOf(errs[0]) != outcomeOf(errs[1]) {
		s.Fatalf("remove a tree: %v on one side, %v on the other", errs[0], errs[1])
	}
}

// fakeNow is a clock that stands until it is advanced.
type fakeNow struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fakeNow) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeNow) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
