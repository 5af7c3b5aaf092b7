// SPDX-License-Identifier: Apache-2.0

package fill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// target is a volume in memory that can lose power: from the operation cut on nothing changes it.
type target struct {
	*memvol.Volume
	mu     sync.Mutex
	cut    int // operations that are left; -1: any number
	marked bool
}

var errPower = errors.New("no power")

func newTarget(cut int) *target {
	t := &target{cut: cut}
	t.Volume = memvol.New(volume.ID{2}, memvol.WithBefore(func(op string, _ volume.Handle) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.cut == 0 {
			return errPower
		}
		if t.cut > 0 {
			t.cut--
		}
		return nil
	}))
	return t
}

func (t *target) SetAttr(ctx context.Context, r volume.Request, h volume.Handle, set volume.SetAttr) (volume.Attr, error) {
	a, err := t.Volume.SetAttr(ctx, r, h, set)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.marked = t.marked || err == nil && r.ID == Mark
	return a, err
}

func (t *target) Executed(id volume.OpID) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.marked && id == Mark, nil
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// tree makes a tree with one of everything, and returns the number of its snapshot. Afterwards the
// volume is changed.
func tree(t *testing.T) (*memvol.Volume, uint32) {
	ctx, r := context.Background(), volume.Request{}
	v := memvol.New(volume.ID{1}, memvol.WithRoot(0o1755, 3, 4))
	made := must[volume.Created](t)
	at := time.Unix(1700000000, 123456789).UTC()
	attr := func(mode, uid, gid uint32) volume.SetAttr {
		return volume.SetAttr{Mode: &mode, UID: &uid, GID: &gid, Atime: &at, Mtime: &at}
	}
	file := func(dir volume.Handle, name string, mode uint32, parts map[uint64]string) volume.Handle {
		h := made(v.Create(ctx, r, dir, name, volume.CreateArgs{Type: volume.Regular, Attr: attr(mode, 7, 8)})).Attr.Handle
		for off, text := range parts {
			must[volume.Written](t)(v.Write(ctx, r, h, off, []byte(text), true))
		}
		later := at.Add(time.Hour)
		must[volume.Attr](t)(v.SetAttr(ctx, r, h, volume.SetAttr{Mtime: &later, Mode: &mode}))
		return h
	}
	dir := func(in volume.Handle, name string, mode uint32) volume.Handle {
		args := volume.CreateArgs{Type: volume.Directory, Mode: volume.Guarded, Attr: attr(mode, 1, 2)}
		return made(v.Create(ctx, r, in, name, args)).Attr.Handle
	}
	a := dir(volume.Root, "a", 0o2750)
	b := dir(a, "b", volume.Sticky)
	_ = dir(a, "empty", 0o700)
	two := file(a, "two names", 0o640, map[uint64]string{0: "shared"})
	made(v.Link(ctx, r, two, b, "its other"))
	made(v.Link(ctx, r, two, volume.Root, "its third"))
	suid := file(b, "suid", 0o4755, map[uint64]string{0: strings.Repeat("x", volume.MaxIO), volume.MaxIO: "yyyyy"})
	must[volume.DirChange](t)(v.SetXattr(ctx, r, suid, "user.color", []byte("red"), volume.XattrEither))
	must[volume.DirChange](t)(v.SetXattr(ctx, r, a, "user.of", []byte{0, 1}, volume.XattrEither))
	must[volume.DirChange](t)(v.SetXattr(ctx, r, volume.Root, "user.root", nil, volume.XattrEither))
	sparse := file(volume.Root, "sparse", 0o600, map[uint64]string{1 << 22: "in the middle"})
	must[volume.Attr](t)(v.SetAttr(ctx, r, sparse, volume.SetAttr{Size: new(uint64(1 << 30))}))
	file(volume.Root, "sticky", volume.Sticky, map[uint64]string{0: "s"})
	file(volume.Root, "none", 0, nil)
	for i := range 300 { // more than one page
		file(b, fmt.Sprintf("f%03d", i), 0o644, map[uint64]string{0: fmt.Sprint(i)})
	}
	for name, args := range map[string]volume.CreateArgs{
		"link":   {Type: volume.Symlink, Target: "a/b/suid"},
		"device": {Type: volume.Char, Rdev: 5<<32 | 1},
		"fifo":   {Type: volume.FIFO},
		"socket": {Type: volume.Socket},
	} {
		args.Mode, args.Attr = volume.Guarded, attr(0o620, 9, 10)
		made(v.Create(ctx, r, volume.Root, name, args))
	}
	s := must[volume.Snapshot](t)(v.TakeSnapshot(ctx, r, "one"))
	file(volume.Root, "later", 0o644, map[uint64]string{0: "not in the snapshot"})
	must[volume.Written](t)(v.Write(ctx, r, suid, 0, []byte("changed later"), true))
	must[volume.DirChange](t)(v.Remove(ctx, r, volume.Root, "link"))
	return v, s.Snap
}

// list describes all that is below a directory, a line for each name. Inodes with several names
// have the first name of them.
func list(t *testing.T, v volume.Reader, root volume.Handle) string {
	t.Helper()
	ctx, r := context.Background(), volume.Request{}
	var out []string
	first := map[uint64]string{}
	var walk func(path string, a volume.Attr)
	walk = func(path string, a volume.Attr) {
		line := fmt.Sprintf("%s type %d mode %o owner %d.%d rdev %d links %d mtime %d atime %d", path, a.Type, a.Mode, a.UID, a.GID, a.Rdev,
			a.Nlink, a.Mtime.UnixNano(), a.Atime.UnixNano())
		if a.Type == volume.Regular || a.Type == volume.Directory {
			for _, n := range must[[]string](t)(v.ListXattr(ctx, r, a.Handle)) {
				line += fmt.Sprintf(" %s=%q", n, must[[]byte](t)(v.GetXattr(ctx, r, a.Handle, n)))
			}
		}
		if was, ok := first[a.Ino]; ok {
			line += " is " + was
		}
		first[a.Ino] = path
		switch a.Type {
		case volume.Symlink:
			line += " to " + must[string](t)(v.ReadLink(ctx, r, a.Handle))
		case volume.Regular:
			line += fmt.Sprintf(" size %d used %d ", a.Size, a.Used)
			for off := uint64(0); off < a.Size; {
				begin, err := v.Seek(ctx, r, a.Handle, off, false)
				if errors.Is(err, volume.ErrNoData) {
					break
				}
				end := must[uint64](t)(v.Seek(ctx, r, a.Handle, begin, true))
				p := make([]byte, min(end-begin, volume.MaxIO))
				n, _, err := v.Read(ctx, r, a.Handle, begin, p)
				if err != nil {
					t.Fatal(err)
				}
				line += fmt.Sprintf("[%d %d %q]", begin, end, bytes.TrimRight(p[:n], "x"))
				off = end
			}
		}
		out = append(out, line)
		if a.Type != volume.Directory {
			return
		}
		entries, _, err := v.ReadDir(ctx, r, a.Handle, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]volume.Attr{}
		for _, e := range entries {
			byName[e.Name] = e.Attr
		}
		for range 2000 { // in the order of names
			least := ""
			for n := range byName {
				if least == "" || n < least {
					least = n
				}
			}
			if least == "" {
				break
			}
			walk(path+"/"+least, byName[least])
			delete(byName, least)
		}
	}
	a, err := v.GetAttr(ctx, r, root)
	if err != nil {
		t.Fatal(err)
	}
	walk("", a)
	return strings.Join(out, "\n")
}

func config(from volume.Reader, snap uint32, to Target) Config {
	return Config{From: from, Snap: snap, To: to, Leads: func() error { return nil }, After: time.After, Tell: func(uint64, uint64) {}}
}

func equal(t *testing.T, is, want string) {
	t.Helper()
	a, b := strings.Split(is, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			t.Fatalf("line %d of %d and %d is\n%.400s\nand should be\n%.400s", i, len(a), len(b), a[min(i, len(a)-1)], b[min(i, len(b)-1)])
		}
	}
}

// TestCopyEqualsTheSnapshot: names, links, holes, modes, owners, times, devices and user
// attributes, and nothing of what was changed after the snapshot.
func TestCopyEqualsTheSnapshot(t *testing.T) {
	from, snap := tree(t)
	want := list(t, from, volume.Handle{Ino: 1, Snap: snap})
	to := newTarget(-1)
	cfg := config(from, snap, to)
	var mu sync.Mutex
	var inodes uint64
	cfg.Tell = func(_, n uint64) { mu.Lock(); defer mu.Unlock(); inodes = max(inodes, n) }
	if err := Copy(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	equal(t, list(t, to, volume.Root), want)
	if !to.marked || inodes != 312 {
		t.Errorf("marked: %v, and %d inodes are told", to.marked, inodes)
	}
}

// TestCopyGoesOnAfterACrash: whatever the operation at which it ends, another attempt makes the
// same of it, and before the end there is no mark (fill-1, fill-2).
func TestCopyGoesOnAfterACrash(t *testing.T) {
	from, snap := tree(t)
	want := list(t, from, volume.Handle{Ino: 1, Snap: snap})
	all := newTarget(1 << 30)
	if err := Copy(context.Background(), config(from, snap, all)); err != nil {
		t.Fatal(err)
	}
	steps := 1<<30 - all.cut
	t.Logf("%d operations", steps)
	for cut := 0; cut < steps; cut += 1 + cut/60 { // each of the first, then fewer
		to := newTarget(cut)
		if err := Copy(context.Background(), config(from, snap, to)); !errors.Is(err, errPower) || to.marked {
			t.Fatalf("cut at %d: %v, marked: %v", cut, err, to.marked)
		}
		to.cut = cut // and once more
		if err := Copy(context.Background(), config(from, snap, to)); err != nil && !errors.Is(err, errPower) {
			t.Fatal(err)
		}
		to.cut = -1
		if err := Copy(context.Background(), config(from, snap, to)); err != nil {
			t.Fatalf("after a cut at %d: %v", cut, err)
		}
		equal(t, list(t, to, volume.Root), want)
	}
}

// TestMarkedVolumeIsLeftAlone: a volume that has all is not copied into again, and what users
// wrote in one without a mark stays.
func TestMarkedVolumeIsLeftAlone(t *testing.T) {
	ctx, r := context.Background(), volume.Request{}
	from, snap := tree(t)
	to := newTarget(-1)
	if err := Copy(ctx, config(from, snap, to)); err != nil {
		t.Fatal(err)
	}
	edit := func() string {
		a := must[volume.Attr](t)(to.Lookup(ctx, r, volume.Root, "sparse"))
		must[volume.Written](t)(to.Write(ctx, r, a.Handle, 0, []byte("mine"), true))
		must[volume.Attr](t)(to.SetAttr(ctx, r, a.Handle, volume.SetAttr{Mode: new(uint32(0o644))}))
		return list(t, to, a.Handle)
	}
	must[volume.DirChange](t)(to.Remove(ctx, r, volume.Root, "fifo"))
	mine := edit()
	was := list(t, to, volume.Root)
	if err := Copy(ctx, config(from, snap, to)); err != nil {
		t.Fatal(err)
	}
	equal(t, list(t, to, volume.Root), was)
	to.marked = false
	if err := Copy(ctx, config(from, snap, to)); err != nil {
		t.Fatal(err)
	}
	a := must[volume.Attr](t)(to.Lookup(ctx, r, volume.Root, "sparse"))
	equal(t, list(t, to, a.Handle), mine)
}

// TestCopyFailsWithoutTheSnapshot: it ends with an error, and without a mark.
func TestCopyFailsWithoutTheSnapshot(t *testing.T) {
	from, snap := tree(t)
	if err := from.DropSnapshot(context.Background(), volume.Request{}, "one"); err != nil {
		t.Fatal(err)
	}
	to := newTarget(-1)
	if err := Copy(context.Background(), config(from, snap, to)); !errors.Is(err, volume.ErrStale) || to.marked {
		t.Errorf("it ends with %v, marked: %v", err, to.marked)
	}
	lost := errors.New("another home")
	from, snap = tree(t)
	cfg := config(from, snap, to)
	cfg.Leads = func() error { return lost }
	if err := Copy(context.Background(), cfg); !errors.Is(err, lost) || to.marked {
		t.Errorf("at another home it ends with %v, marked: %v", err, to.marked)
	}
}
