// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/store"
)

// left lists what a site has of a volume on its pool and in its store.
func (c *cluster) left(site, id string) (out []string) {
	c.t.Helper()
	out, err := filepath.Glob(filepath.Join(c.dir, site, "volumes", "*"+id+"*"))
	if err == nil {
		err = c.nodes[site].store.List(context.Background(), id+"/", func(i store.Info) error {
			out = append(out, i.Name)
			return nil
		})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// TestPurge: when its time in the trash is over, a deleted volume goes with its keys, its data at
// all sites and its name, also from a gateway that slept. Until then it can come back.
func TestPurge(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	c := newCluster(t, "a", "b", "c")
	c.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	for _, s := range c.order {
		c.stop(s)
		c.start(s)
	}
	id, kept := c.create("gone", manifest("gone", 2)), c.create("kept", manifest("kept", 2))
	cl := &client{name: "a"}
	h := file(t, c.router("a", id), cl, "f")
	other := file(t, c.router("a", kept), cl, "f")
	taken := map[string]int64{}
	for _, s := range c.order {
		taken[s] = c.at(s).pools.Main().Room().Status().Used
	}
	data := strings.Repeat("x", 1<<20)
	big := file(t, c.router("a", id), cl, "big")
	if _, err := c.router("a", id).Write(t.Context(), cl.next(), big, 0, []byte(data), true); err != nil {
		t.Fatal(err)
	}
	mark := func(f func(v *federation.Volume)) {
		c.with(func(reg federation.Registry) error {
			for {
				v, rev, err := reg.GetVolume(context.Background(), id)
				if err != nil {
					return err
				}
				f(&v)
				if _, err = reg.UpdateVolume(context.Background(), rev, v); !errors.Is(err, federation.ErrConflict) {
					return err
				}
			}
		})
	}
	closed := func(s string) error {
		if c.at(s).copies.Copy(id) != nil {
			return errors.New("it is open at " + s)
		}
		return nil
	}
	trash := func(v *federation.Volume) {
		v.Deleted, v.DeletedAt = true, time.Now().UTC()
		v.PurgeAfter = v.DeletedAt.Add(time.Hour)
	}
	mark(trash)
	for _, s := range c.order {
		c.until("it is closed", func() error { return closed(s) })
	}
	mark(func(v *federation.Volume) { v.Deleted = false })
	readable(t, c.router("b", id), h)
	c.stop("c")
	mark(trash)
	for _, s := range []string{"a", "b"} {
		c.until("it is closed again", func() error { return closed(s) })
		if len(c.left(s, id)) == 0 {
			t.Errorf("its data is gone from %s already", s)
		}
	}
	ahead.Store(int64(2 * time.Hour))
	c.with(func(reg federation.Registry) error { // gateways look when something changes
		return reg.PutAdmission(context.Background(),
			federation.Admission{Volume: kept, Site: "a", Client: "10.0.0.1", Access: federation.ReadOnly})
	})
	gone := func(s string) func() error {
		return func() error {
			if left := c.left(s, id); len(left) > 0 {
				return fmt.Errorf("there is still %v", left)
			}
			return nil
		}
	}
	c.until("it is gone from a", gone("a"))
	c.until("it is gone from b", gone("b"))
	if len(c.left("c", id)) == 0 {
		t.Error("who slept has nothing to delete")
	}
	pending := func(want ...string) func() error {
		return func() (err error) {
			c.with(func(reg federation.Registry) error {
				purges, e := reg.ListPurges(context.Background())
				if e == nil && (len(purges) != 1 || !slices.Equal(purges[0].Pending, want)) {
					err = fmt.Errorf("purges are %+v", purges)
				}
				return e
			})
			return err
		}
	}
	c.until("c alone has some of it", pending("gc"))
	for s, want := range map[string]int32{"a": 1, "b": 1, "c": 2} {
		c.until("promises end with the data", func() error {
			if _, copies := c.at("a").view.Promised(s); copies != want {
				return fmt.Errorf("of %s: copies are %d, want %d", s, copies, want)
			}
			return nil
		})
	}
	c.with(func(reg federation.Registry) error {
		_, _, ring := reg.GetKeyring(context.Background(), id)
		_, _, ctl := reg.GetControl(context.Background(), id)
		_, _, name := reg.FindVolume(context.Background(), "gone")
		for _, err := range []error{ring, ctl, name} {
			if !errors.Is(err, federation.ErrNotFound) {
				t.Errorf("a record is still there: %v", err)
			}
		}
		return nil
	})
	c.start("c")
	c.until("it is gone from c", gone("c"))
	c.until("nobody has some of it", pending())
	for _, s := range c.order {
		readable(t, c.router(s, kept), other)
		if used := c.at(s).pools.Main().Room().Status().Used; s != "c" && used >= taken[s]+1<<20 {
			t.Errorf("%s: the pool's room was %d and is %d", s, taken[s], used)
		}
	}
	again := c.create("gone", manifest("gone", 2))
	file(t, c.router("b", again), cl, "f")
}

// TestPurgeWaitsForTheCopy: the folder of a copy that is still in use goes when it is closed.
func TestPurgeWaitsForTheCopy(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	id := c.create("gone", manifest("gone", 1))
	cl := &client{name: "a"}
	file(t, c.router("a", id), cl, "f")
	_, done, err := c.at("a").copies.Copy(id).Use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.trash(id)
	c.until("it is purged", func() error {
		if _, ok := c.at("a").view.Purged(id); !ok {
			return errors.New("not yet")
		}
		return nil
	})
	time.Sleep(3 * time.Second) // in which it would go if nobody waited: a gateway looks once a second
	if len(c.left("a", id)) == 0 {
		t.Error("the folder of a copy that is open is gone")
	}
	done()
	c.until("it is gone", func() error {
		if left := c.left("a", id); len(left) > 0 {
			return fmt.Errorf("left is %v", left)
		}
		return nil
	})
}

// TestManyPurgedAtOnce: nothing is left of many volumes, and their gateway goes on.
func TestManyPurgedAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	cl := &client{name: "a"}
	var ids []string
	for i := range 12 {
		name := fmt.Sprintf("gone%d", i)
		id := c.create(name, manifest(name, 2))
		f := file(t, c.router("a", id), cl, "big")
		if _, err := c.router("a", id).Write(t.Context(), cl.next(), f, 0, []byte(strings.Repeat("x", 1<<20)), true); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		c.trash(id)
	}
	c.until("the purges are done", func() (err error) {
		c.with(func(reg federation.Registry) error {
			purges, e := reg.ListPurges(context.Background())
			n := 0
			for _, p := range purges {
				n += len(p.Pending)
			}
			if len(purges) != len(ids) || n != 0 {
				err = fmt.Errorf("%d purges with %d pending", len(purges), n)
			}
			return e
		})
		return err
	})
	file(t, c.router("b", c.create("next", manifest("next", 2))), cl, "f")
	for _, s := range c.order {
		for _, id := range ids {
			if left := c.left(s, id); len(left) > 0 {
				t.Errorf("%s: left: %v", s, left)
			}
		}
	}
}

// trash deletes a volume, for which there is no time in the trash.
func (c *cluster) trash(id string) {
	c.with(func(reg federation.Registry) error {
		for {
			v, rev, err := reg.GetVolume(context.Background(), id)
			if err != nil {
				return err
			}
			v.Deleted, v.DeletedAt = true, time.Now().UTC()
			v.PurgeAfter = v.DeletedAt
			if _, err = reg.UpdateVolume(context.Background(), rev, v); !errors.Is(err, federation.ErrConflict) {
				return err
			}
		}
	})
}
