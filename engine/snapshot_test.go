// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/engine/meta"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/memvol"
)

// histories is how many random histories TestSnapshotsOfARandomHistory makes.
var histories = flag.Uint64("histories", 12, "random histories of snapshots")

// look describes everything below a directory, by names.
func look(t testing.TB, v volume.Volume, dir volume.Handle) string {
	t.Helper()
	var b strings.Builder
	var walk func(dir volume.Handle, path string)
	walk = func(dir volume.Handle, path string) {
		var all []volume.Entry
		for after, eof := uint64(0), false; !eof; {
			entries, end, err := v.ReadDir(context.Background(), asRoot, dir, after, 7)
			if err != nil {
				t.Fatalf("list %s: %v", path, err)
			}
			all, eof = append(all, entries...), end
			if len(entries) > 0 {
				after = entries[len(entries)-1].Cookie
			}
		}
		slices.SortFunc(all, func(a, b volume.Entry) int { return strings.Compare(a.Name, b.Name) })
		for _, x := range all {
			at := path + "/" + x.Name
			fmt.Fprintf(&b, "%s %d %o links %d size %d", at, x.Attr.Type, x.Attr.Mode, x.Attr.Nlink, x.Attr.Size)
			if x.Attr.Type == volume.Regular {
				p := make([]byte, x.Attr.Size)
				if _, _, err := v.Read(context.Background(), asRoot, x.Attr.Handle, 0, p); err != nil {
					t.Fatalf("read %s: %v", at, err)
				}
				fmt.Fprintf(&b, " %x", sha256.Sum256(p))
			}
			if x.Attr.Type == volume.Symlink {
				target, err := v.ReadLink(context.Background(), asRoot, x.Attr.Handle)
				fmt.Fprintf(&b, " -> %s %v", target, err)
			}
			names, err := v.ListXattr(context.Background(), asRoot, x.Attr.Handle)
			if err != nil {
				t.Fatalf("attributes of %s: %v", at, err)
			}
			for _, name := range names {
				value, err := v.GetXattr(context.Background(), asRoot, x.Attr.Handle, name)
				if err != nil {
					t.Fatalf("attribute %s of %s: %v", name, at, err)
				}
				fmt.Fprintf(&b, " %s=%x", name, value)
			}
			b.WriteByte('\n')
			if x.Attr.Type == volume.Directory {
				walk(x.Attr.Handle, at)
			}
		}
	}
	walk(dir, "")
	return b.String()
}

// stirrer makes the same random changes to two volumes.
type stirrer struct {
	testing.TB
	r     *rand.Rand
	sides [2]volume.Volume
	dirs  [][2]volume.Handle
	files [][2]volume.Handle
	large int // of files, about, in bytes
	held  [][2]volume.Handle
}

// release ends all holds.
func (s *stirrer) release() {
	for _, h := range s.held {
		s.sides[0].Release(h[0])
		s.sides[1].Release(h[1])
	}
	s.held = nil
}

func newStirrer(t testing.TB, seed uint64, a, b volume.Volume) *stirrer {
	return &stirrer{TB: t, r: rand.New(rand.NewPCG(seed, 1)), sides: [2]volume.Volume{a, b},
		dirs: [][2]volume.Handle{{volume.Root, volume.Root}}, large: 200 << 10}
}

// stir makes one change, which may fail, in the same way on both sides.
func (s *stirrer) stir() {
	dir, to := s.dirs[s.r.IntN(len(s.dirs))], s.dirs[s.r.IntN(len(s.dirs))]
	name, other := string(rune('a'+s.r.IntN(6))), string(rune('a'+s.r.IntN(6)))
	kind, off, size := s.r.IntN(24), uint64(s.r.IntN(s.large)), s.r.IntN(s.large/2)+1
	var file [2]volume.Handle
	if len(s.files) > 0 {
		file = s.files[s.r.IntN(len(s.files))]
	}
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(s.r.Uint32())
	}
	ctx := context.Background()
	var made [2]volume.Handle
	var errs [2]error
	for i, v := range s.sides {
		switch {
		case kind == 0:
			c, err := v.Create(ctx, asRoot, dir[i], name, volume.CreateArgs{Type: volume.Directory, Mode: volume.Guarded})
			made[i], errs[i] = c.Attr.Handle, err
		case kind < 6:
			c, err := v.Create(ctx, asRoot, dir[i], name, volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
			made[i], errs[i] = c.Attr.Handle, err
		case kind < 8:
			_, errs[i] = v.Remove(ctx, asRoot, dir[i], name)
		case kind < 10:
			_, _, errs[i] = v.Rename(ctx, asRoot, dir[i], name, to[i], other)
		case kind < 15:
			_, errs[i] = v.Write(ctx, asRoot, file[i], off, data, true)
		case kind == 15:
			zero := uint64(0)
			_, errs[i] = v.SetAttr(ctx, asRoot, file[i], volume.SetAttr{Size: &zero})
		case kind == 16:
			_, errs[i] = v.SetAttr(ctx, asRoot, file[i], volume.SetAttr{Size: &off})
		case kind == 17:
			_, errs[i] = v.Punch(ctx, asRoot, file[i], off, uint64(size))
		case kind == 18:
			_, errs[i] = v.Link(ctx, asRoot, file[i], to[i], other)
		case kind == 20:
			_, errs[i] = v.RemoveXattr(ctx, asRoot, file[i], "user."+name)
		case kind == 21:
			c, err := v.Create(ctx, asRoot, dir[i], name, volume.CreateArgs{Type: volume.Symlink, Mode: volume.Guarded, Target: other})
			made[i], errs[i] = c.Attr.Handle, err
		case kind == 22:
			errs[i] = v.Hold(file[i])
		case kind == 23:
			_, errs[i] = v.SetXattr(ctx, asRoot, dir[i], "user."+name, data[:min(size, 30)], volume.XattrEither)
		default:
			_, errs[i] = v.SetXattr(ctx, asRoot, file[i], "user."+name, data[:min(size, 30)], volume.XattrEither)
		}
	}
	if outcomeOf(errs[0]) != outcomeOf(errs[1]) {
		s.Fatalf("change %d: %v on one side, %v on the other", kind, errs[0], errs[1])
	}
	switch {
	case errs[0] != nil:
	case kind == 22:
		s.held = append(s.held, file)
	case kind == 0:
		s.dirs = append(s.dirs, made)
	case kind < 6:
		s.files = append(s.files, made)
	}
}

// leftovers counts the keys of the tables of the history.
func (h *host) leftovers() (n int) {
	h.Helper()
	tree, err := h.look()
	if err != nil {
		h.Fatal(err)
	}
	defer func() { _ = tree.view.Close() }()
	hlo, hhi := meta.AllHistory(nil)
	dlo, dhi := meta.AllDead()
	for _, r := range [][2][]byte{{hlo, hhi}, {dlo, dhi}} {
		for _, err := range tree.view.Range(r[0], r[1]) {
			if err != nil {
				h.Fatal(err)
			}
			n++
		}
	}
	return n
}

// newestOf returns the name of a volume's newest snapshot.
func newestOf(t testing.TB, v *memvol.Volume) string {
	t.Helper()
	all, err := v.Snapshots(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return slices.MaxFunc(all, func(a, b volume.Snapshot) int { return cmp.Compare(a.Snap, b.Snap) }).Name
}

// rollBack rolls the volume back, and keeps what was there under the name before. The home is lost
// after that many of its records, and the next one goes on.
func (h *host) rollBack(name, before string, after int) {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h.journal.appended = func() {
		if after--; after < 0 {
			cancel()
		}
	}
	err := h.Rollback(ctx, asRoot, name, before)
	h.journal.appended = nil
	if err == nil {
		return
	}
	if ctx.Err() == nil {
		h.Fatal(err)
	}
	if _, err := h.GetAttr(context.Background(), asRoot, volume.Root); !errors.Is(err, volume.ErrDelay) {
		h.Fatalf("in the middle of a rollback: %v", err)
	}
	h.crash()
	_, err = h.Create(context.Background(), asRoot, volume.Root, "meanwhile", volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
	if !errors.Is(err, volume.ErrDelay) {
		h.Fatalf("a change in the middle of a rollback: %v", err)
	}
	if _, err := h.Clean(context.Background()); err != nil {
		h.Fatal(err)
	}
}

// beforeRollback begins the names of snapshots that rollbacks take here.
const beforeRollback = "before-"

func at(h volume.Handle, snap uint32) volume.Handle {
	h.Snap = snap
	return h
}

// TestSnapshotsOfARandomHistory: whatever is taken, dropped and cleaned in which order, each
// snapshot that is kept has what the volume had, and nothing is left when all are dropped.
func TestSnapshotsOfARandomHistory(t *testing.T) {
	if raced {
		t.Skip("one goroutine's long history, which takes the race detector gigabytes: it runs without")
	}
	type kept struct {
		volume.Snapshot
		want string
		ref  string // its name at the reference
	}
	for seed := range *histories {
		h := newHost(t, nil)
		reference := memvol.New(volume.ID{9})
		s := newStirrer(t, seed, withLocks(h.Engine), reference)
		var snaps []kept
		taken := 0
		for i := range 400 {
			s.stir()
			if s.r.IntN(40) == 0 {
				wantHealthy(t, h.Engine)
			}
			switch s.r.IntN(25) {
			case 0, 1:
				taken++
				snap, err := h.TakeSnapshot(context.Background(), asRoot, fmt.Sprint("s", taken))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := reference.TakeSnapshot(context.Background(), asRoot, snap.Name); err != nil {
					t.Fatal(err)
				}
				snaps = append(snaps, kept{snap, look(t, reference, volume.Root), snap.Name})
			case 2:
				if n := len(snaps); n > 0 {
					i := s.r.IntN(n)
					if err := h.DropSnapshot(context.Background(), asRoot, snaps[i].Name); err != nil {
						t.Fatal(err)
					}
					snaps = slices.Delete(snaps, i, i+1)
				}
			case 3:
				if _, err := h.Clean(context.Background()); err != nil {
					t.Fatal(err)
				}
			case 6:
				if s.r.IntN(2) == 0 {
					s.release()
				}
				if _, err := h.Reap(context.Background(), nil); err != nil {
					t.Fatal(err)
				}
			case 4:
				if s.r.IntN(4) == 0 {
					s.release()
					h.crash()
					s.sides[0] = withLocks(h.Engine)
				}
			case 5:
				if n := len(snaps); n > 0 && s.r.IntN(3) == 0 {
					s.release()
					k, before := snaps[s.r.IntN(n)], look(t, reference, volume.Root)
					taken++
					h.rollBack(k.Name, fmt.Sprint(beforeRollback, taken), s.r.IntN(6))
					s.sides[0] = withLocks(h.Engine)
					if err := reference.Rollback(context.Background(), asRoot, k.ref, fmt.Sprint(beforeRollback, taken)); err != nil {
						t.Fatal(err)
					}
					all, err := h.Snapshots(context.Background())
					if err != nil {
						t.Fatal(err)
					}
					for _, x := range all {
						known := slices.ContainsFunc(snaps, func(k kept) bool { return k.Name == x.Name })
						if strings.HasPrefix(x.Name, beforeRollback) && !known {
							snaps = append(snaps, kept{x, before, newestOf(t, reference)})
						}
					}
				}
			}
			if i%10 == 0 {
				h.checkUsed()
			}
		}
		h.checkUsed()
		v := withLocks(h.Engine)
		if got, want := look(t, v, volume.Root), look(t, reference, volume.Root); got != want {
			t.Fatalf("seed %d: the volume has\n%swant\n%s", seed, got, want)
		}
		for _, k := range snaps {
			if got := look(t, v, at(volume.Root, k.Snap)); got != k.want {
				t.Fatalf("seed %d: snapshot %s has\n%swant\n%s", seed, k.Name, got, k.want)
			}
		}
		for _, k := range snaps {
			if err := h.DropSnapshot(context.Background(), asRoot, k.Name); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := h.Clean(context.Background()); err != nil {
			t.Fatal(err)
		}
		wantHealthy(t, h.Engine)
		if n := h.leftovers(); n != 0 {
			t.Fatalf("seed %d: %d keys are left of snapshots that were dropped", seed, n)
		}
		if held, known, err := h.HeldBySnapshots(context.Background()); err != nil || held != 0 || !known {
			t.Fatalf("seed %d: without snapshots they hold %d bytes, %t, %v", seed, held, known, err)
		}
		if got, want := look(t, v, volume.Root), look(t, reference, volume.Root); got != want {
			t.Fatalf("seed %d: after that the volume has\n%swant\n%s", seed, got, want)
		}
	}
}

// TestAnySecond: a volume with a window can be looked at as of any second of it, and of no other.
func TestAnySecond(t *testing.T) {
	if raced {
		t.Skip("one goroutine's long history, which takes the race detector gigabytes: it runs without")
	}
	begin := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	clock := clockwork.NewFakeClockAt(begin)
	window := 1000 * time.Second
	h := newHost(t, func(c *Config) {
		c.Now = clock.Now
		c.Tuning.Window = window
	})
	reference := memvol.New(volume.ID{9})
	s := newStirrer(t, 5, withLocks(h.Engine), reference)
	s.large = 20 << 10
	wants := map[int64]string{} // by second: what the volume had when it began
	var names []string
	for range 1500 {
		now := clock.Now()
		clock.Advance(now.Truncate(time.Second).Add(time.Second).Sub(now))
		wants[clock.Now().Unix()] = look(t, reference, volume.Root)
		for range s.r.IntN(3) {
			clock.Advance(time.Millisecond)
			s.stir()
		}
		switch s.r.IntN(40) { // what has a name comes and goes
		case 0:
			names = append(names, fmt.Sprint("s", clock.Now().UnixNano()))
			h.take(names[len(names)-1])
			if _, err := reference.TakeSnapshot(context.Background(), asRoot, names[len(names)-1]); err != nil {
				t.Fatal(err)
			}
			s.stir()
		case 1, 2:
			all, err := h.Snapshots(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if len(all) > 0 {
				name := all[s.r.IntN(len(all))].Name
				if err := h.DropSnapshot(context.Background(), asRoot, name); err != nil {
					t.Fatal(err)
				}
				names = slices.DeleteFunc(names, func(n string) bool { return n == name })
			}
		case 3:
			if n := len(names); n > 0 && s.r.IntN(4) == 0 {
				s.release()
				name := names[s.r.IntN(n)]
				before := fmt.Sprint(beforeRollback, clock.Now().UnixNano())
				if err := errors.Join(h.Rollback(context.Background(), asRoot, name, before),
					reference.Rollback(context.Background(), asRoot, name, before)); err != nil {
					t.Fatal(err)
				}
				s.stir()
			}
		}
		if s.r.IntN(100) == 0 {
			if _, err := h.Clean(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	clock.Advance(3 * time.Second)
	if _, err := h.Clean(context.Background()); err != nil {
		t.Fatal(err)
	}
	v := withLocks(h.Engine)
	last := clock.Now().Unix()
	wants[last] = look(t, reference, volume.Root)
	snapshots, err := v.Lookup(context.Background(), asRoot, volume.Root, SnapshotDirName)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for at, want := range wants {
		name := fmt.Sprint("@", at)
		if at%2 == 0 {
			name = "@" + time.Unix(at, 0).In(time.FixedZone("", 3600)).Format(time.RFC3339)
		}
		root, err := v.Lookup(context.Background(), asRoot, snapshots.Handle, name)
		if age := time.Duration(last-at) * time.Second; err != nil {
			if !errors.Is(err, volume.ErrNotExist) || age < window-2*time.Second {
				t.Fatalf("%s, %v ago: %v", name, age, err)
			}
			continue
		}
		seen++
		if got := look(t, v, root.Handle); got != want {
			t.Fatalf("%s has\n%swant\n%s", name, got, want)
		}
	}
	t.Logf("%d seconds of %d can be looked at", seen, len(wants))
	if seen < 990 || seen > 1010 {
		t.Fatalf("%d seconds can be looked at, the window is %v", seen, window)
	}
	for _, name := range []string{"@", "@x", "@2026", fmt.Sprint("@", begin.Unix()-1), fmt.Sprint("@", last-1200)} {
		if _, err := v.Lookup(context.Background(), asRoot, snapshots.Handle, name); !errors.Is(err, volume.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.checkUsed()
	all, err := h.Snapshots(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		if err := h.DropSnapshot(context.Background(), asRoot, x.Name); err != nil {
			t.Fatal(err)
		}
	}
	h.Tune(Tuning{})
	clock.Advance(time.Hour)
	s.stir()
	if _, err := h.Clean(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := h.leftovers(); n != 0 {
		t.Errorf("%d keys are left of moments", n)
	}
}
