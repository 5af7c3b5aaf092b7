// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/volume"
)

// wish writes wishes into a volume's record.
func (c *cluster) wish(id string, wishes ...snapshots.Wish) {
	c.t.Helper()
	c.change(id, func(v *federation.Volume) { v.Snapshots = wishes })
}

// snapshots waits until a home says of a volume's snapshots "name state", sorted, and returns what
// it says.
func (c *cluster) snapshots(site, id string, want ...string) (r *snapshots.Report) {
	c.t.Helper()
	slices.Sort(want)
	c.until(fmt.Sprintf("home %s says %q", site, want), func() error {
		var got []string
		c.with(func(reg federation.Registry) error {
			all, err := reg.ListObserved(context.Background(), id)
			r = nil
			for _, o := range all {
				if o.Gateway == c.at(site).cfg.Name {
					r = o.Snapshots
				}
			}
			return err
		})
		if r == nil {
			return fmt.Errorf("it says nothing")
		}
		for _, s := range r.All {
			got = append(got, s.Name+" "+string(s.State))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("it says %q, and %q", got, r.Failing())
		}
		return nil
	})
	return r
}

// TestSnapshotsAreAskedFor: the home takes what the record asks for, says so, and drops it when it
// is asked to. What is missing from the record stays, also at another home.
func TestSnapshotsAreAskedFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 3))
	r, cl := c.router("a", id), &client{name: "x"}
	file(t, r, cl, "f")
	c.wish(id, snapshots.Wish{Name: "one", UID: "1"}, snapshots.Wish{Name: "two", UID: "2"})
	got := c.snapshots("a", id, "one Taken", "two Taken")
	if s, _ := got.Of("one"); s.UID != "1" || s.Time.IsZero() || s.Inodes == 0 || s.Bytes == 0 {
		t.Errorf("it says %+v", s)
	}
	list, err := c.at("a").copies.Copy(id).Engine.Snapshots(within(t, hang))
	if err != nil || len(list) != 2 {
		t.Fatalf("the engine has %v, %v", list, err)
	}

	c.wish(id, snapshots.Wish{Name: "one", UID: "1", Drop: true}) // and two is missing, as after a restore of the registry
	c.snapshots("a", id, "one Dropped", "two Taken")
	c.wish(id)
	c.snapshots("a", id, "two Taken")
	c.wish(id, snapshots.Wish{Name: "two", UID: "3", Drop: true}, snapshots.Wish{Name: "none", UID: "4", Drop: true},
		snapshots.Wish{Name: "one", UID: "5"})
	c.snapshots("a", id, "two Dropped", "none Dropped", "one Taken")

	if m := c.read("a")["weir_volume_snapshots"]; m == nil || m.GetMetric()[0].GetGauge().GetValue() != 1 {
		t.Errorf("the metric says %v", m)
	}
}

// TestScheduledSnapshots: each period has one snapshot, whoever is home; as many are kept as the
// schedule says, and what it made stays when it goes.
func TestScheduledSnapshots(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	begin := time.Date(2040, 11, 27, 15, 40, 0, 0, time.UTC)
	var later atomic.Int64
	ahead := time.Until(begin)
	c.now = func() time.Time { return time.Now().Add(ahead + time.Duration(later.Load())) }
	for _, s := range []string{"a", "b", "c"} {
		c.stop(s)
		c.start(s)
	}
	id := c.create("v", manifest("v", 2))
	c.change(id, func(v *federation.Volume) {
		v.Spec.Snapshots.Schedule = []snapshots.Schedule{{Every: snapshots.Hourly, Keep: 2}}
	})
	home := func(from string) string {
		c.router(from, id)
		g, _ := c.at(from).view.Home(id)
		return strings.TrimPrefix(g, "g")
	}
	first := home("a")
	c.snapshots(first, id, "hourly-2040-11-27T15-00Z Taken")
	later.Store(int64(time.Hour))
	c.snapshots(first, id, "hourly-2040-11-27T15-00Z Taken", "hourly-2040-11-27T16-00Z Taken")
	later.Store(int64(4 * time.Hour)) // periods that were missed are not made up
	c.snapshots(first, id, "hourly-2040-11-27T16-00Z Taken", "hourly-2040-11-27T19-00Z Taken")

	c.change(id, func(v *federation.Volume) { v.Spec.Snapshots.Schedule[0].Keep = 1 })
	was := c.snapshots(first, id, "hourly-2040-11-27T19-00Z Taken")
	c.change(id, func(v *federation.Volume) {
		v.Spec.Snapshots.Schedule = []snapshots.Schedule{{Every: snapshots.Daily, Keep: 1}}
	})
	c.snapshots(first, id, "hourly-2040-11-27T19-00Z Taken", "daily-2040-11-27T00-00Z Taken")

	other := "a"
	if first == other {
		other = "b"
	}
	c.stop(first)
	c.until("another gateway is home", func() error {
		if g, _ := c.at(other).view.Home(id); g == "g"+first {
			return fmt.Errorf("it is %s still", g)
		}
		return nil
	})
	is := c.snapshots(home(other), id, "hourly-2040-11-27T19-00Z Taken", "daily-2040-11-27T00-00Z Taken")
	if is.All[0] != was.All[0] {
		t.Errorf("it is another one: %+v, and was %+v", is.All[0], was.All[0])
	}
}

// TestSnapshotSettings: the window and the directory of a volume's snapshots are in force while it
// is used.
func TestSnapshotSettings(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	id := c.create("v", manifest("v", 1))
	r, cl := c.router("a", id), &client{name: "x"}
	file(t, r, cl, "f")
	e := c.at("a").copies.Copy(id).Engine
	look := func() error {
		_, err := e.Lookup(within(t, hang), volume.Request{}, volume.Root, ".snapshots")
		return err
	}
	if err := look(); err != nil {
		t.Fatal(err)
	}
	c.change(id, func(v *federation.Volume) {
		v.Spec.Snapshots.Directory, v.Spec.Snapshots.Window = snapshots.DirectoryNone, snapshots.MaxWindow
	})
	c.until("there is no directory of snapshots", func() error {
		if err := look(); err == nil {
			return fmt.Errorf("there is one")
		}
		return nil
	})
	before := time.Now().Truncate(time.Second)
	file(t, r, cl, "g")
	c.change(id, func(v *federation.Volume) { v.Spec.Snapshots.Directory = "" })
	c.until("the volume can be looked at as of a second", func() error {
		file(t, r, cl, "h"+strings.ReplaceAll(fmt.Sprint(time.Now().UnixNano()), "-", ""))
		dir, err := e.Lookup(within(t, hang), volume.Request{}, volume.Root, ".snapshots")
		if err != nil {
			return err
		}
		_, err = e.Lookup(within(t, hang), volume.Request{}, dir.Handle, fmt.Sprintf("@%d", before.Unix()+1))
		return err
	})
}

// TestUndeletedVolumeHasItsSnapshots: a volume that is taken out of the trash has the snapshots
// that it had, and clients find in them what was there.
func TestUndeletedVolumeHasItsSnapshots(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	id := c.create("v", manifest("v", 1))
	r, cl := c.router("a", id), &client{name: "x"}
	file(t, r, cl, "f")
	c.wish(id, snapshots.Wish{Name: "one", UID: "1"})
	was := c.snapshots("a", id, "one Taken")
	if _, err := r.Remove(within(t, hang), volume.Request{}, volume.Root, "f"); err != nil {
		t.Fatal(err)
	}
	c.delete(id)
	c.until("it is closed", func() error {
		if c.at("a").copies.Copy(id) != nil {
			return errors.New("it is open")
		}
		return nil
	})
	c.change(id, func(v *federation.Volume) { v.Deleted, v.DeletedAt = false, time.Time{} }) // weir volume undelete
	r = c.router("a", id)
	dir, err := r.Lookup(within(t, hang), volume.Request{}, volume.Root, ".snapshots")
	if err != nil {
		t.Fatal(err)
	}
	one, err := r.Lookup(within(t, hang), volume.Request{}, dir.Handle, "one")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Lookup(within(t, hang), volume.Request{}, one.Handle, "f"); err != nil {
		t.Errorf("the file in the snapshot: %v", err)
	}
	if is := c.snapshots("a", id, "one Taken"); is.All[0] != was.All[0] {
		t.Errorf("the snapshot is %+v, and was %+v", is.All[0], was.All[0])
	}
}

// TestTrashSetting: removed files are in the trash while the record says so, and go when it does
// not any more. How much only snapshots hold is reported.
func TestTrashSetting(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	id := c.create("v", manifest("v", 1))
	r, cl := c.router("a", id), &client{name: "x"}
	in := func(name string) error {
		bin, err := r.Lookup(within(t, hang), volume.Request{}, volume.Root, volume.TrashDir)
		if err == nil {
			_, err = r.Lookup(within(t, hang), volume.Request{}, bin.Handle, name)
		}
		return err
	}
	c.change(id, func(v *federation.Volume) { v.Spec.Trash.Keep = federation.Duration(time.Hour) })
	number := 0
	var last string
	c.until("what is removed goes into the trash", func() error {
		number++
		last = fmt.Sprint("f", number)
		file(t, r, cl, last)
		if _, err := r.Remove(within(t, hang), volume.Request{}, volume.Root, last); err != nil {
			t.Fatal(err)
		}
		return in(last)
	})
	c.wish(id, snapshots.Wish{Name: "one", UID: "1"})
	c.snapshots("a", id, "one Taken")
	c.change(id, func(v *federation.Volume) { v.Spec.Trash.Keep = 0 })
	c.until("the trash is empty", func() error {
		if err := in(last); !errors.Is(err, volume.ErrNotExist) {
			return fmt.Errorf("it has %s: %w", last, err)
		}
		return nil
	})
	c.until("what the snapshot holds is reported", func() error {
		var all []federation.Observed
		c.with(func(reg federation.Registry) (err error) {
			all, err = reg.ListObserved(context.Background(), id)
			return err
		})
		if len(all) != 1 || all[0].Held == nil || *all[0].Held == 0 {
			return fmt.Errorf("the home says %+v", all)
		}
		return nil
	})
}

// TestRollbackIsAskedFor: the home rolls the volume back once, whoever is home, and refuses what
// cannot be done or comes too late.
func TestRollbackIsAskedFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	r, cl := c.router("a", id), &client{name: "x"}
	file(t, r, cl, "old")
	c.wish(id, snapshots.Wish{Name: "one", UID: "1"})
	home := strings.TrimPrefix(c.homeOf("a", id), "g")
	c.snapshots(home, id, "one Taken")
	file(t, r, cl, "undone")
	ask := func(number int, to string, until time.Time) snapshots.Rollback {
		t.Helper()
		x := snapshots.Rollback{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", number), To: to, Until: until}
		c.change(id, func(v *federation.Volume) { v.Rollback = &x })
		return x
	}
	settled := func(site string, x snapshots.Rollback, state snapshots.State, says string) {
		t.Helper()
		c.until(fmt.Sprintf("home %s says %s", site, state), func() error {
			g := c.at(site)
			if is := g.snapshots.Report(id); is == nil || is.Rolled == nil || is.Rolled.ID != x.ID || is.Rolled.State != state ||
				!strings.Contains(is.Rolled.Message, says) {
				return fmt.Errorf("it says %+v", is)
			}
			return nil
		})
	}
	there := func(site, name string, want bool) {
		t.Helper()
		c.until(fmt.Sprintf("%s is there: %t", name, want), func() error {
			_, err := c.router(site, id).Lookup(within(t, hang), volume.Request{}, volume.Root, name)
			if (err == nil) != want || err != nil && !errors.Is(err, volume.ErrNotExist) {
				return fmt.Errorf("it says %w", err)
			}
			return nil
		})
	}
	later := time.Now().Add(time.Hour)
	settled(home, ask(1, "one", time.Now().Add(-time.Second)), snapshots.StateRefused, "could not begin it until")
	settled(home, ask(2, "none", later), snapshots.StateRefused, "there is no snapshot none")
	there("a", "undone", true)
	x := ask(3, "one", later)
	settled(home, x, snapshots.StateDone, "")
	there("a", "undone", false)
	there("a", "old", true)
	file(t, c.router("a", id), cl, "new")
	c.snapshots(home, id, "one Taken", x.Before()+" Taken")

	c.stop(home) // the record still asks for it
	other := "a"
	if home == other {
		other = "b"
	}
	c.until("another gateway is home", func() error {
		if c.homeOf(other, id) == "g"+home {
			return fmt.Errorf("it is %s still", home)
		}
		return nil
	})
	home = strings.TrimPrefix(c.homeOf(other, id), "g")
	settled(home, x, snapshots.StateDone, "")
	there(other, "new", true)
	ask(4, "none", later)
	x = ask(3, "one", time.Now().Add(-time.Second)) // a registry that was restored asks again
	settled(home, x, snapshots.StateDone, "")
	there(other, "new", true)
}

// homeOf is the gateway that a site takes for a volume's home.
func (c *cluster) homeOf(site, id string) string {
	c.t.Helper()
	c.router(site, id)
	g, _ := c.at(site).view.Home(id)
	return g
}
