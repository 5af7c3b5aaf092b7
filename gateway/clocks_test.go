// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/volume"
)

// TestClockThatIsAhead: a home whose clock is years ahead drops nothing of what the volume keeps
// for a time, and says why: not the trash, nor moments, nor snapshots of a schedule, nor a deleted
// volume. It does as soon as its clock is right.
func TestClockThatIsAhead(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	var all, wrong atomic.Int64 // by which all clocks are ahead, and that of a
	id, gone := c.create("v", manifest("v", 1)), c.create("gone", manifest("gone", 1))
	c.now = func() time.Time { return time.Now().Add(time.Duration(all.Load() + wrong.Load())) }
	c.stop("a")
	c.start("a")
	c.now = func() time.Time { return time.Now().Add(time.Duration(all.Load())) }
	c.stop("b")
	c.start("b")
	r, cl := c.router("a", id), &client{name: "x"}
	if g, _ := c.at("a").view.Home(id); g != "ga" {
		t.Fatalf("the home is %s", g)
	}
	c.change(id, func(v *federation.Volume) {
		v.Spec.Trash.Keep, v.Spec.Snapshots.Window = federation.Duration(time.Hour), federation.Duration(time.Hour)
		v.Spec.Snapshots.Schedule = []snapshots.Schedule{{Every: snapshots.Monthly, Keep: 1}}
	})
	binned := func(name string) error {
		bin, err := r.Lookup(within(t, hang), volume.Request{}, volume.Root, volume.TrashDir)
		if err == nil {
			_, err = r.Lookup(within(t, hang), volume.Request{}, bin.Handle, name)
		}
		return err
	}
	number, last := 0, ""
	c.until("what is removed goes into the trash", func() error {
		number++
		last = fmt.Sprint("f", number)
		file(t, r, cl, last)
		if _, err := r.Remove(within(t, hang), volume.Request{}, volume.Root, last); err != nil {
			t.Fatal(err)
		}
		return binned(last)
	})
	report := func() *snapshots.Report { return c.at("a").snapshots.Report(id) }
	var first string
	c.until("the schedule has a snapshot", func() error {
		if s := report(); s != nil && s.Count() == 1 && s.All[0].State == snapshots.StateTaken {
			first = s.All[0].Name
			return nil
		}
		return fmt.Errorf("it is %+v", report())
	})
	c.with(func(reg federation.Registry) error {
		v, rev, err := reg.GetVolume(context.Background(), gone)
		if err != nil {
			return err
		}
		v.Deleted, v.DeletedAt = true, time.Now().UTC()
		v.PurgeAfter = v.DeletedAt.Add(time.Hour)
		_, err = reg.UpdateVolume(context.Background(), rev, v)
		return err
	})
	there := func() bool {
		var err error
		c.with(func(reg federation.Registry) error {
			_, _, err = reg.GetVolume(context.Background(), gone)
			return nil
		})
		if err != nil && !errors.Is(err, federation.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}

	const years = 3 * 365 * 24 * time.Hour
	wrong.Store(int64(years))
	c.until("it says why nothing goes", func() error {
		s := report()
		if s == nil || s.Count() < 2 || !strings.Contains(s.Failing(), "gateway gb is") || !strings.Contains(s.Failing(), "behind") {
			return fmt.Errorf("it says %+v", s)
		}
		return nil
	})
	cleans := 0
	c.until("it was to clean up", func() error { // Run does it now and then; here it is seen to be done
		for _, k := range c.at("a").copies.Leading() {
			if k.UUID == id {
				if _, err := k.Engine.Clean(within(t, hang)); err != nil {
					cleans++
				}
			}
		}
		if cleans < 3 {
			return errors.New("nothing was to go")
		}
		return nil
	})
	if err := binned(last); err != nil {
		t.Errorf("the trash has %s no more: %v", last, err)
	}
	if s := report(); s.All[0].Name != first {
		t.Errorf("snapshot %s went", first)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c.at("a").copies.KeepPurging(ctx) // it looks at once
	if !there() {
		t.Error("the deleted volume was purged")
	}
	wrong.Store(0)
	c.until("what the wrong clock took goes, and nothing else", func() error {
		if s := report(); s == nil || s.Count() != 1 || s.All[0].Name != first {
			return fmt.Errorf("snapshots: %+v", s)
		}
		return nil
	})
	all.Store(int64(years))
	c.until("all goes, since it is time", func() error {
		s := report()
		switch {
		case !errors.Is(binned(last), volume.ErrNotExist):
			return errors.New("the trash is not empty")
		case s == nil || s.Count() != 1 || s.All[0].Name == first || s.Problem != "":
			return fmt.Errorf("snapshots: %+v", s)
		case there():
			return errors.New("the deleted volume is there")
		}
		return nil
	})
}
