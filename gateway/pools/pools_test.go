// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/dir"
)

// world is the disks of a gateway with pools.
type world struct {
	t      *testing.T
	at     string            // folder of the disks
	wanted map[string]string // the tier that a volume asks for
	step   func()            // called after each change of a folder's names on the pools; nil: nobody is told
	fail   map[string]error  // by a name that is synced: what fails
	hidden map[string]string // by pool, a folder that cannot be used
	back   error             // why the notes went back
	gone   map[string]error  // by pool, why folders of volumes went back
}

func newWorld(t *testing.T) *world {
	return &world{t: t, at: t.TempDir(), wanted: map[string]string{}, fail: map[string]error{}}
}

// open opens the pools of these names; the first is the main one.
func (w *world) open(names ...string) (*Pools, error) {
	w.t.Helper()
	var all []Pool
	closed := func() {
		for _, p := range all {
			_ = p.Close() // some tests closed it
		}
	}
	for _, name := range names {
		p, err := dir.Open(dir.Config{Path: filepath.Join(w.at, name), Gateway: "g", Limit: 64 << 20, Random: rand.Reader})
		if err != nil {
			closed()
			return nil, err
		}
		all = append(all, Pool{Name: name, Labels: map[string]string{"tier": name}, Pool: stepping{p, w, name}})
	}
	w.t.Cleanup(closed)
	p, err := Open(Config{Pools: all, Now: time.Now, Random: rand.Reader,
		Logger: slog.New(slog.DiscardHandler), Wanted: func(v string) map[string]string {
			if tier := w.wanted[v]; tier != "" {
				return map[string]string{"tier": tier}
			}
			return nil
		}})
	if err != nil {
		closed()
	}
	return p, err
}

func (w *world) must(names ...string) *Pools {
	w.t.Helper()
	p, err := w.open(names...)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) again(p *Pools, names ...string) *Pools {
	w.t.Helper()
	for _, one := range p.All() {
		if err := one.Close(); err != nil {
			w.t.Fatal(err)
		}
	}
	return w.must(names...)
}

// stepping is a pool that tells what happens to folders' names, and fails.
type stepping struct {
	cachepool.Pool
	w    *world
	name string
}

func (p stepping) happened(what string) error {
	if p.w.step != nil {
		p.w.step()
	}
	return p.w.fail[what]
}

func (p stepping) ListVolumes() ([]string, error) {
	all, err := p.Pool.ListVolumes()
	return slices.DeleteFunc(all, func(name string) bool { return p.w.hidden[p.name] == name }), err
}

func (p stepping) Rewound(name string) error {
	if name == notesFolder && p.w.back != nil {
		return p.w.back
	}
	if why := p.w.gone[p.name]; why != nil && name == volumeID {
		return why
	}
	return p.Pool.Rewound(name)
}

func (p stepping) Volume(name string) (cachepool.Dir, error) {
	if p.w.hidden[p.name] == name {
		return nil, errors.New("it cannot be used")
	}
	d, err := p.Pool.Volume(name)
	if err == nil {
		err = p.happened("make " + name)
	}
	return steppingDir{d, p, name}, err
}

func (p stepping) RemoveVolume(name string) error {
	if err := p.happened("remove " + name); err != nil {
		return err
	}
	return errors.Join(p.Pool.RemoveVolume(name), p.happened(""))
}

func (p stepping) RenameVolume(from, to string) error {
	if err := p.w.fail["rename "+from]; err != nil {
		return err
	}
	return errors.Join(p.Pool.RenameVolume(from, to), p.happened(""))
}

type steppingDir struct {
	cachepool.Dir
	p    stepping
	name string
}

func (d steppingDir) Sync() error { return errors.Join(d.Dir.Sync(), d.p.happened("sync "+d.name)) }

func (d steppingDir) Rename(from, to string) error {
	return errors.Join(d.Dir.Rename(from, to), d.p.happened("rename in "+d.name))
}

// write writes a file of a volume, as its owner does that has it open.
func (w *world) write(p *Pools, volume, name, text string) {
	w.t.Helper()
	d, err := p.Volume(volume)
	if err != nil {
		w.t.Fatal(err)
	}
	path := filepath.Join(d.Path(), name)
	var was int64
	if i, err := os.Stat(path); err == nil {
		was = i.Size()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	switch useOf(name) {
	case counted:
		p.Room(volume).Count(int64(len(text)) - was)
	case reserved:
		w.reserve(p, volume, int64(len(text))-was)
	}
}

func (w *world) reserve(p *Pools, volume string, n int64) {
	w.t.Helper()
	if n < 0 {
		p.Room(volume).Release(-n)
	} else if err := p.Room(volume).Reserve(n); err != nil {
		w.t.Fatal(err)
	}
}

// read returns the files of a volume, by name.
func (w *world) read(p *Pools, volume string) map[string]string {
	w.t.Helper()
	d, err := p.Volume(volume)
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]string{}
	if err := walk(d.Path(), func(name string, _ fs.FileInfo) error {
		text, err := os.ReadFile(filepath.Join(d.Path(), name))
		out[name] = string(text)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// used checks that each pool's room counts what is there.
func (w *world) used(p *Pools) {
	w.t.Helper()
	for _, one := range p.All() {
		var n int64
		if err := walk(filepath.Join(w.at, one.Name, "volumes"), func(name string, i fs.FileInfo) error {
			if !strings.HasPrefix(name, notesFolder) && !strings.HasPrefix(name, probeName) {
				n += i.Size()
			}
			return nil
		}); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.t.Fatal(err)
		}
		if got := one.Room().Status().Used; got < n-64<<10 || got > n+64<<10 { // of small files
			w.t.Errorf("pool %s has %d bytes, and its room counts %d", one.Name, n, got)
		}
	}
}

// tidy has what moves left removed at once.
func (w *world) tidy(p *Pools) {
	w.t.Helper()
	p.mu.Lock()
	clear(p.moved)
	p.mu.Unlock()
	if p.tidy(nil) {
		w.t.Error("something of a move is left")
	}
}

// movers are those of a volume that is open always.
func movers(closed func(f func() error) error) Movers {
	return Movers{Closed: func(_ context.Context, _ string, f func() error) error {
		if closed == nil {
			return f()
		}
		return closed(f)
	}, After: time.After}
}

const volumeID = "11111111-1111-1111-1111-111111111111"

// TestPlaces: a volume is on a pool that its policy asks for, else on the main one, and stays there
// over restarts, whatever pools are called.
func TestPlaces(t *testing.T) {
	w := newWorld(t)
	p := w.must("main", "fast")
	w.wanted["a"], w.wanted["c"] = "fast", "tape"
	for _, v := range []string{"a", "b", "c"} {
		w.write(p, v, "f", v)
	}
	check := func(p *Pools, fast string) {
		t.Helper()
		for v, want := range map[string]string{"a": fast, "b": "main", "c": "main"} {
			if got := p.Of(v).Name; got != want || w.read(p, v)["f"] != v || p.Rewound(v) != nil {
				t.Errorf("volume %s is on %s, want %s; it has %v, and went back: %v", v, got, want, w.read(p, v), p.Rewound(v))
			}
		}
		if all, err := p.ListVolumes(); err != nil || !slices.Equal(all, []string{"a", "b", "c"}) {
			t.Errorf("folders %v, %v", all, err)
		}
		w.used(p)
	}
	check(p, "fast")
	if err := p.Unmatched("c"); err == nil || !strings.Contains(err.Error(), "tier:tape") || !strings.Contains(err.Error(), "pool main") {
		t.Errorf("of a selector that matches none: %v", err)
	}
	if err := errors.Join(p.Unmatched("a"), p.Unmatched("b")); err != nil {
		t.Error(err)
	}
	p = w.again(p, "main", "fast")
	check(p, "fast")
	for _, one := range p.All() {
		_ = one.Close()
	}
	if err := os.Rename(filepath.Join(w.at, "fast"), filepath.Join(w.at, "nvme")); err != nil {
		t.Fatal(err)
	}
	p = w.must("main", "nvme")
	check(p, "nvme")
	if err := p.RenameVolume("a", SalvagePrefix+"a-x"); err != nil {
		t.Fatal(err)
	}
	if got := p.Of(SalvagePrefix + "a-x").Name; got != "nvme" {
		t.Errorf("what is set aside is on %s", got)
	}
	if err := errors.Join(p.Remove(SalvagePrefix+"a-x"), p.Remove("b"), p.Remove("c"), p.Remove("c")); err != nil {
		t.Fatal(err)
	}
	if all, err := p.ListVolumes(); err != nil || len(all) > 0 {
		t.Errorf("left are %v, %v", all, err)
	}
	w.used(p)
}

// TestTakenBack: what a pool has counts as taken back when it is not what it was (pools-3).
func TestTakenBack(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		names  []string // of the pools afterwards
		why    string   // "": it is well
		text   string
	}{
		"nothing":      {func(*world) {}, []string{"main", "fast"}, "", "new"},
		"another disk": {func(w *world) { w.remove("fast/pool.json") }, []string{"main", "fast"}, "is not what it was", "new"},
		"an old copy of it": {func(w *world) { w.copy("old", "fast") }, []string{"main", "fast"},
			"went back: it has an earlier token", "old"},
		"moved by hand":    {func(w *world) { w.rename("fast/volumes/a", "main/volumes/a") }, []string{"main", "fast"}, "", ""},
		"moved, pool gone": {func(w *world) { w.rename("fast/volumes/a", "main/volumes/a") }, []string{"main"}, "was on pool fast", "new"},
		"notes are gone":   {func(w *world) { w.remove("main/volumes/places") }, []string{"main", "fast"}, "was not one of", "new"},
		"copied by hand":   {func(w *world) { w.copy("fast/volumes/a", "main/volumes/a") }, []string{"main", "fast"}, "", "new"},
		"notes gone, copied": {func(w *world) { w.copy("fast/volumes/a", "main/volumes/a"); w.remove("main/volumes/places") },
			[]string{"main", "fast"}, "nothing says which one counts", "new"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.wanted["a"] = "fast"
			p := w.must("main", "fast")
			w.write(p, "a", "f", "old")
			_ = p.All()[1].Close()
			w.copy("fast", "old")
			_ = p.All()[0].Close()
			p = w.must("main", "fast")
			w.write(p, "a", "f", "new")
			for _, one := range p.All() {
				_ = one.Close()
			}
			c.change(w)
			p = w.must(c.names...)
			for range 2 { // it is remembered
				why := p.Rewound("a")
				if (why == nil) != (c.why == "") || why != nil && !strings.Contains(why.Error(), c.why) {
					t.Fatalf("it went back: %v, want %q", why, c.why)
				}
				if got := w.read(p, "a")["f"]; got != c.text {
					t.Errorf("it has %q, want %q", got, c.text)
				}
				p = w.again(p, c.names...)
			}
			if why := p.Rewound("a"); why != nil {
				if err := p.Settled("a", why); err != nil || p.Rewound("a") != nil {
					t.Errorf("settled: %v, %v", err, p.Rewound("a"))
				}
				p = w.again(p, c.names...)
				if why := p.Rewound("a"); why != nil {
					t.Errorf("after it was settled: %v", why)
				}
			}
			w.used(p)
		})
	}
	t.Run("another main one", func(t *testing.T) {
		w := newWorld(t)
		p := w.must("main", "fast")
		for _, one := range p.All() {
			_ = one.Close()
		}
		if _, err := w.open("fast", "main"); err == nil || !strings.Contains(err.Error(), "pool main was the main one") {
			t.Errorf("with another pool as the main one: %v", err)
		}
	})
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := os.RemoveAll(filepath.Join(w.at, name)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) rename(from, to string) {
	w.t.Helper()
	if err := os.Rename(filepath.Join(w.at, from), filepath.Join(w.at, to)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) copy(from, to string) {
	w.t.Helper()
	w.remove(to)
	if err := os.CopyFS(filepath.Join(w.at, to), os.DirFS(filepath.Join(w.at, from))); err != nil {
		w.t.Fatal(err)
	}
}
