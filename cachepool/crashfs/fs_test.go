// SPDX-License-Identifier: Apache-2.0

package crashfs_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/cachepool/pooltest"
)

// files opens the disk, and returns its files and the folder of a volume.
func files(t *testing.T, d *crashfs.Disk) (vfs.FS, cachepool.Dir) {
	t.Helper()
	v := volume(t, d)
	return d.FS(), v
}

// outcome is what the two file systems must agree on.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case oserror.IsNotExist(err):
		return "not exist"
	case oserror.IsExist(err):
		return "exist"
	}
	return "error"
}

// one is a random operation of TestLikeMemFS. What it returns must be equal for equal file systems.
type one struct {
	kind     int
	from, to string
	data     []byte
	off      int64
}

func randomOne(r *rand.Rand) one {
	dirs := []string{"", "d/", "d/e/"}
	names := []string{"a", "b", "c"}
	data := make([]byte, 1+r.IntN(20)) // MemFS grows by an empty write
	for i := range data {
		data[i] = byte('a' + r.IntN(26))
	}
	dir := dirs[r.IntN(len(dirs))]
	o := one{r.IntN(12), dir + names[r.IntN(3)], dir + names[r.IntN(3)], data, int64(r.IntN(10))}
	switch {
	case o.kind == 2:
		o.to = dir + "link" // which Rename leaves alone: MemFS loses one of two names of a file
	case o.kind != 4 && r.IntN(4) == 0:
		o.from = dir + "link"
	}
	return o
}

func (o one) do(f vfs.FS, base string, open map[string]vfs.File) string {
	from, to := path.Join(base, o.from), path.Join(base, o.to)
	keep := func(g vfs.File, err error) string {
		if err == nil {
			open[o.to] = g
		}
		return outcome(err)
	}
	switch o.kind {
	case 0, 1:
		return keep(f.Create(to, vfs.WriteCategoryUnspecified))
	case 2:
		return outcome(f.Link(from, to))
	case 3:
		return outcome(f.Remove(from))
	case 4:
		return outcome(f.Rename(from, to))
	case 5:
		g, err := f.Open(from)
		if err != nil {
			return outcome(err)
		}
		b, err := io.ReadAll(g)
		part := make([]byte, 5)
		n, aterr := g.ReadAt(part, o.off)
		i, serr := g.Stat()
		if err := errors.Join(serr, g.Close()); err != nil {
			return err.Error()
		}
		return fmt.Sprint(string(b), outcome(err), string(part[:n]), errors.Is(aterr, io.EOF), i.Name(), i.Size(), i.IsDir())
	case 6, 7:
		g := open[o.to]
		if g == nil {
			return "not open"
		}
		n, err := g.Write(slices.Clone(o.data))
		return fmt.Sprint(n, outcome(errors.Join(err, g.Sync())))
	case 8:
		i, err := f.Stat(from)
		if err != nil {
			return outcome(err)
		}
		return fmt.Sprint(i.Name(), i.Size(), i.IsDir(), i.Mode().IsDir())
	case 9:
		names, err := f.List(path.Dir(from))
		slices.Sort(names)
		return fmt.Sprint(names, outcome(err))
	case 10:
		g, err := f.OpenReadWrite(to, vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = g.WriteAt(o.data, o.off)
		}
		return keep(g, err)
	default:
		d, err := f.OpenDir(path.Dir(from))
		if err != nil {
			return outcome(err)
		}
		return outcome(errors.Join(d.Sync(), d.Close()))
	}
}

// TestLikeMemFS makes the same random changes through FS and on Pebble's own file system in memory.
// Both must say and have the same.
func TestLikeMemFS(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		got, v := files(t, newDisk(seed))
		want := vfs.NewMem()
		base := v.Path() + "/meta"
		opened := [2]map[string]vfs.File{{}, {}}
		for _, f := range []vfs.FS{got, want} {
			must(t, f.MkdirAll(base+"/d/e", 0o755))
			must(t, f.MkdirAll(base+"/d/e", 0o755))
		}
		for i := range 80 {
			o := randomOne(r)
			if _, err := want.Stat(path.Join(base, o.from)); err != nil && o.kind == 4 {
				continue // MemFS makes an entry of nothing
			}
			g, w := o.do(got, base, opened[0]), o.do(want, base, opened[1])
			if g != w {
				t.Fatalf("seed %d, change %d %+v: %s, MemFS: %s", seed, i, o, g, w)
			}
		}
		must(t, got.RemoveAll(base))
		must(t, got.RemoveAll(base))
		if _, err := got.Stat(base + "/d"); !oserror.IsNotExist(err) {
			t.Fatalf("seed %d: after RemoveAll: %v", seed, err)
		}
	}
}

// TestFilesOutside asks for what FS does not have.
func TestFilesOutside(t *testing.T) {
	f, v := files(t, newDisk(1))
	for _, name := range []string{"/elsewhere/a", "a", v.Path() + "/../../x/a"} {
		if _, err := f.Create(name, vfs.WriteCategoryUnspecified); err == nil {
			t.Errorf("%s was created", name)
		}
	}
	l, err := f.Lock(v.Path() + "/LOCK")
	must(t, err)
	if _, err := f.Lock(v.Path() + "/LOCK"); err == nil {
		t.Error("a file was locked twice")
	}
	must(t, l.Close())
	l, err = f.Lock(v.Path() + "/LOCK")
	must(t, err)
	must(t, l.Close())
	must(t, f.MkdirAll(v.Path()+"/meta", 0o755))
	if _, err := v.Open("meta"); err == nil {
		t.Error("a directory was opened as a file of the pool")
	}
	list, err := v.List()
	if err != nil || len(list) != 1 || list[0].Name != "LOCK" {
		t.Errorf("the pool lists %v, %v", list, err)
	}
	use, err := f.GetDiskUsage(v.Path())
	if err != nil || use.TotalBytes != pooltest.Limit {
		t.Errorf("usage %+v, %v", use, err)
	}
}

// TestCrashOfFiles: files of databases lose what was not synced, as those of the pool do.
func TestCrashOfFiles(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(300) {
		d := newDisk(seed)
		f, v := files(t, d)
		meta := v.Path() + "/meta"
		must(t, f.MkdirAll(meta, 0o755))
		must(t, v.Sync())
		g, err := f.Create(meta+"/a", vfs.WriteCategoryUnspecified)
		must(t, err)
		_, err = g.Write([]byte("synced"))
		must(t, err)
		must(t, g.Sync())
		folder, err := f.OpenDir(meta)
		must(t, err)
		must(t, folder.Sync())
		_, err = g.Write([]byte("unsynced"))
		must(t, err)
		if full, err := g.SyncTo(14); full || err != nil {
			t.Fatalf("SyncTo: %t, %v", full, err)
		}
		must(t, f.Rename(meta+"/a", meta+"/b"))
		d.Crash()
		if _, err := g.Write([]byte("x")); !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatalf("a file of before the crash: %v", err)
		}
		if _, err := f.List(meta); !errors.Is(err, crashfs.ErrCrashed) {
			t.Fatalf("the files of before the crash: %v", err)
		}
		f, _ = files(t, d)
		names, err := f.List(meta)
		must(t, err)
		if len(names) != 1 {
			t.Fatalf("seed %d: %v", seed, names)
		}
		g, err = f.Open(path.Join(meta, names[0]))
		must(t, err)
		b, err := io.ReadAll(g)
		must(t, err)
		rest, ok := strings.CutPrefix(string(b), "synced")
		if !ok {
			t.Fatalf("seed %d: %q is left", seed, b)
		}
		seen[names[0]]++
		seen[rest]++
	}
	for _, k := range []string{"a", "b", "", "unsynced"} {
		if seen[k] < 10 {
			t.Errorf("%q in %d of 300 crashes", k, seen[k])
		}
	}
	if len(seen) < 5 {
		t.Errorf("nothing was torn: %v", seen)
	}
}

// TestCloneIsApart: what happens to a clone or to the disk afterwards is not seen by the other.
func TestCloneIsApart(t *testing.T) {
	d := newDisk(1)
	v := volume(t, d)
	var clones []*crashfs.Disk
	var steps []string
	d.Watch(func(s crashfs.Step) {
		steps = append(steps, string(s.Op)+" "+s.Name)
		clones = append(clones, s.Clone("clone", rand.New(rand.NewPCG(1, 1))))
	})
	f, err := v.Create("a")
	must(t, err)
	for _, text := range []string{"one", "two"} {
		_, err := f.WriteAt([]byte(text), 0)
		must(t, err)
	}
	must(t, v.Rename("a", "b"))
	d.Watch(nil)
	must(t, v.Sync())
	if want := []string{"create v/a", "write v/a", "write v/a", "rename v/a b"}; !slices.Equal(steps, want) {
		t.Fatalf("steps are %q", steps)
	}
	for i, want := range []string{"", "", "one", "two"} {
		c := clones[i]
		got, ok := contents(t, volume(t, c), "a")
		if ok != (i > 0) || string(got) != want {
			t.Errorf("clone %d has %q, %t", i, got, ok)
		}
		c.Crash()
	}
	if got, _ := contents(t, v, "b"); string(got) != "two" {
		t.Errorf("the disk has %q", got)
	}
}

// TestDatabaseAtEveryStep runs a database, and at each change of its disk looks at what a loss of
// power would leave: what was flushed before must be there, and it must open.
func TestDatabaseAtEveryStep(t *testing.T) {
	points := 0
	for seed := range uint64(3) {
		d := newDisk(seed)
		type point struct {
			disk    *crashfs.Disk
			flushed int
		}
		var all []point
		flushed := func(n int) {
			d.Watch(func(s crashfs.Step) {
				all = append(all, point{s.Clone(fmt.Sprint("gw", s.Number), rand.New(rand.NewPCG(seed, uint64(s.Number)))), n})
			})
		}
		f, v := files(t, d)
		flushed(0)
		open := func(f vfs.FS, folder string) (*pebble.DB, error) {
			return pebble.Open(folder, &pebble.Options{FS: f, DisableWAL: true, DisableAutomaticCompactions: true,
				Logger: silent{}})
		}
		db, err := open(f, v.Path()+"/meta")
		must(t, err)
		for i := range 12 {
			must(t, db.Set(fmt.Appendf(nil, "%03d", i), []byte("value"), pebble.NoSync))
			if i%3 == 2 {
				must(t, db.Flush())
				flushed(i + 1)
			}
		}
		d.Watch(nil)
		must(t, db.Close())
		for n, p := range all {
			p.disk.Crash()
			f, v := files(t, p.disk)
			db, err := open(f, v.Path()+"/meta")
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, n, err)
			}
			for i := range p.flushed {
				_, c, err := db.Get(fmt.Appendf(nil, "%03d", i))
				if err != nil {
					t.Fatalf("seed %d, step %d: key %d of %d: %v", seed, n, i, p.flushed, err)
				}
				must(t, c.Close())
			}
			must(t, db.Close())
			points++
		}
	}
	if points < 100 {
		t.Errorf("only %d steps", points)
	}
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(f string, a ...any) {
	panic(fmt.Sprintf(f, a...))
}
