// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/keys"
	"github.com/weir-storage/weir/gateway/report"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/volume"
)

// change changes a volume's desired state, as its owner does.
func (c *cluster) change(id string, f func(*federation.Volume)) {
	c.t.Helper()
	c.with(func(r federation.Registry) error {
		v, rev, err := r.GetVolume(context.Background(), id)
		if err != nil {
			return err
		}
		f(&v)
		v.Generation++
		_, err = r.UpdateVolume(context.Background(), rev, v)
		return err
	})
}

// load creates files through a router until stop is called. stop fails the test if a file could not
// be created, and returns the names.
func (c *cluster) load(r *routing.Router, name string) (stop func() []string) {
	ctx, cancel := context.WithCancel(context.Background())
	var names []string
	var work sync.WaitGroup
	begun := make(chan struct{})
	cl := &client{name: name}
	work.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			n := fmt.Sprint(name, i)
			q := cl.next()
			_, err := r.Create(ctx, q, volume.Root, n, volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
			for errors.Is(err, volume.ErrDelay) && ctx.Err() == nil {
				_, err = r.Create(ctx, q, volume.Root, n, volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded})
			}
			if err == nil {
				if names = append(names, n); len(names) == 1 {
					close(begun)
				}
			} else if ctx.Err() == nil {
				c.t.Errorf("create %s: %v", n, err)
				return
			}
		}
	})
	select {
	case <-begun:
	case <-time.After(hang):
		c.t.Error("nothing is written")
	}
	return func() []string {
		cancel()
		work.Wait()
		return names
	}
}

// has fails unless all names are there at r.
func has(t *testing.T, r *routing.Router, names []string) {
	t.Helper()
	for _, n := range names {
		if _, err := r.Lookup(within(t, hang), volume.Request{}, volume.Root, n); err != nil {
			t.Errorf("%s at %s: %v", n, r.ID(), err)
			return
		}
	}
}

// members waits until the control record has members at these sites.
func (c *cluster) members(id string, sites ...string) {
	c.t.Helper()
	c.until(fmt.Sprintf("the members are at %v", sites), func() error {
		var got []string
		c.with(func(r federation.Registry) error {
			ctl, _, err := r.GetControl(context.Background(), id)
			for _, m := range ctl.Members {
				got = append(got, m.Site)
			}
			if errors.Is(err, federation.ErrNotFound) {
				return nil
			}
			return err
		})
		slices.Sort(got)
		if !slices.Equal(got, sites) {
			return fmt.Errorf("they are at %v", got)
		}
		return nil
	})
}

// dropped waits until a site has no copy of the volume, open or on the pool.
func (c *cluster) dropped(site, id string) {
	c.t.Helper()
	g := c.nodes[site].gateway
	c.until("the copy at "+site+" is gone", func() error {
		if g.copies.Copy(id) != nil {
			return fmt.Errorf("it is open: %+v", g.reporter.Status(id))
		}
		found, err := filepath.Glob(filepath.Join(c.dir, site, "*", id, "*"))
		found = slices.DeleteFunc(found, func(f string) bool { // what is read there is kept, see copies.Outline
			name := filepath.Base(f)
			return strings.HasPrefix(name, "outline") || strings.HasSuffix(name, ".cache")
		})
		if more, _ := filepath.Glob(filepath.Join(c.dir, site, id)); err != nil || len(found)+len(more) > 0 {
			return errors.Join(fmt.Errorf("%v %v is on the pool", found, more), err)
		}
		return nil
	})
}

// copied waits until the home reports a site's copy, and the data key is wrapped for that site.
func (c *cluster) copied(site, id string) {
	c.t.Helper()
	c.until("the home reports a copy at "+site, func() error {
		var seen []federation.Observed
		c.with(func(r federation.Registry) (err error) {
			seen, err = r.ListObserved(context.Background(), id)
			return err
		})
		for _, o := range seen {
			for _, r := range o.Replicas {
				if r.Site == site && (r.State == federation.ReplicaFollower || r.State == federation.ReplicaMember) {
					return nil
				}
			}
		}
		return fmt.Errorf("it reports %+v", seen)
	})
	c.with(func(r federation.Registry) error {
		ring, _, err := r.GetKeyring(context.Background(), id)
		if len(ring.Wrapped[site]) == 0 {
			c.t.Errorf("the data key is not wrapped for %s", site)
		}
		return err
	})
}

// TestACopyIsAdded: copies 2 to 3 under writes. The new site has no key at first.
func TestACopyIsAdded(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	stop := c.load(c.router("a", id), "f")
	c.change(id, func(v *federation.Volume) {
		v.Spec.Replication.Copies, v.Sites = 3, []string{"a", "b", "c"}
	})
	c.copied("c", id)
	has(t, c.router("c", id), stop())
	if c.nodes["c"].gateway.copies.Copy(id) == nil {
		t.Error("c answers, and has no copy")
	}
	c.until("the home reports the change", func() error { return c.inForce(id, 2) })
}

// inForce returns an error unless the home reports that the volume's generation is in force.
func (c *cluster) inForce(id string, generation uint64) error {
	var seen []federation.Observed
	c.with(func(r federation.Registry) (err error) {
		seen, err = r.ListObserved(context.Background(), id)
		return err
	})
	for _, o := range seen {
		if o.Generation == generation {
			return nil
		}
	}
	return fmt.Errorf("it reports %+v", seen)
}

// TestACopyIsRemoved: copies 3 to 2 under writes, with one that is a member and one that is not,
// and then the home itself.
func TestACopyIsRemoved(t *testing.T) {
	t.Parallel()
	for _, removed := range []string{"b", "c", "a"} {
		t.Run(removed, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "a", "b", "c")
			c.stop("c")
			id := c.create("v", manifest("v", 2))
			c.members(id, "a", "b")
			c.start("c")
			c.copied("c", id)
			sites := slices.DeleteFunc(slices.Clone(c.order), func(s string) bool { return s == removed })
			stop := c.load(c.router(sites[1], id), "f")
			c.change(id, func(v *federation.Volume) { v.Spec.Replication.Copies, v.Sites = 2, sites })
			c.dropped(removed, id)
			c.members(id, sites...)
			names := stop()
			for _, s := range sites {
				has(t, c.router(s, id), names)
			}
			// It stays away after a restart, and may come again.
			c.stop(removed)
			c.start(removed)
			c.until("it knows the volume again", func() error {
				_, err := c.opened(c.nodes[removed].gateway, id)
				return err
			})
			if c.nodes[removed].gateway.copies.Copy(id) != nil {
				t.Error("the copy is back")
			}
			c.change(id, func(v *federation.Volume) { v.Spec.Replication.Copies, v.Sites = 3, append(sites, removed) })
			c.copied(removed, id)
			has(t, c.router(removed, id), names)
		})
	}
}

// TestACopyStaysWhileItIsNeeded: one site is replaced by another, which is not there yet.
func TestACopyStaysWhileItIsNeeded(t *testing.T) {
	t.Parallel()
	for _, removed := range []string{"a", "b"} { // the home, or the only other site with a copy
		t.Run(removed, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "a", "b", "c")
			id := c.createAt("v", manifest("v", 1), []string{"a", "b"})
			h := file(t, c.router("b", id), &client{name: "b"}, "f")
			c.copied("b", id)
			c.stop("c")
			if removed == "a" {
				c.stop("b") // so that nobody can take over
			}
			left := map[string]string{"a": "b", "b": "a"}[removed]
			c.change(id, func(v *federation.Volume) { v.Sites = []string{left, "c"} })
			g := c.nodes[removed].gateway
			c.until("it is told why the copy stays", func() error {
				if s := g.reporter.Status(id); len(s) != 1 || !strings.Contains(s[0].Leaving, "it stays for now") ||
					!strings.Contains(s[0].Leaving, map[string]string{"a": "no copy at b, c", "b": "site c"}[removed]) {
					return fmt.Errorf("%+v", s)
				}
				return nil
			})
			if removed == "a" { // goes on serving
				readable(t, c.router("a", id), h)
			}
			c.stop(removed)
			c.start(removed) // it does not forget
			if removed == "a" {
				readable(t, c.router("a", id), h)
				c.start("b")
			}
			c.start("c")
			c.dropped(removed, id)
			readable(t, c.router("c", id), h)
			readable(t, c.router(left, id), h)
		})
	}
}

// TestACopyWaitsForItsKey: a copy waits for its key, which the home wraps when it is back.
func TestACopyWaitsForItsKey(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.createAt("v", manifest("v", 1), []string{"a"})
	h := file(t, c.router("a", id), &client{name: "a"}, "f")
	c.stop("a")
	c.change(id, func(v *federation.Volume) { v.Spec.Replication.Copies, v.Sites = 2, []string{"a", "b"} })
	c.until("it says what it waits for", func() error {
		if s := c.nodes["b"].gateway.reporter.Status(id); len(s) != 1 || s[0].Problem != keys.ErrAwaited.Error() {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	c.start("a")
	c.copied("b", id)
	readable(t, c.router("b", id), h)
}

// TestAcknowledgeAtTwoSites: from one to two, live; what is written then outlives the home.
func TestAcknowledgeAtTwoSites(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 1))
	b := c.router("b", id)
	stop := c.load(b, "f")
	c.members(id, "a")
	c.change(id, func(v *federation.Volume) {
		v.Spec.Durability.Acknowledge, v.Spec.Durability.Sites = federation.AcknowledgeSites, 2
		v.Spec.Size = 1 << 30
	})
	c.until("there are two members", func() error {
		if s := c.nodes["a"].gateway.reporter.Status(id); len(s) != 1 || len(s[0].Members) != 2 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	names := stop()
	if s, err := b.Space(within(t, hang)); err != nil || s.TotalBytes != 1<<30 {
		t.Errorf("space %+v, %v", s, err)
	}
	c.stop("a")
	has(t, b, names)
	file(t, b, &client{name: "later"}, "later")
}

// TestObservedIsWrittenWhenSomethingChanges: it is not written otherwise, even after a long time.
func TestObservedIsWrittenWhenSomethingChanges(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.create("v", manifest("v", 2))
	h := file(t, c.router("b", id), &client{name: "b"}, "f")
	c.members(id, "a", "b")
	g := c.nodes["a"].gateway
	last := new(report.Written)
	ctx := within(t, hang)
	const observeEvery = 30 * time.Second
	write := func(age time.Duration) bool {
		t.Helper()
		before := last.Observed.At
		last.At = time.Now().Add(-age)
		if err := g.reporter.Observe(ctx, g.copies.Copy(id), last); err != nil {
			t.Fatal(err)
		}
		return last.Observed.At != before
	}
	c.until("nothing is under way", func() error {
		write(time.Hour)
		if write(time.Hour) || last.Observed.Message != "" {
			return fmt.Errorf("%+v", last.Observed)
		}
		return nil
	})
	o := last.Observed
	if o.Used == 0 || len(o.Replicas) != 2 || o.Generation != 1 || o.Home != "ga" {
		t.Errorf("it wrote %+v", o)
	}
	if _, err := c.router("a", id).Write(ctx, (&client{name: "x"}).next(), h, 0, []byte("something else"), true); err != nil {
		t.Fatal(err)
	}
	if write(observeEvery / 2) {
		t.Errorf("it wrote that a little was written: %+v after %+v", last.Observed, o)
	}
	if !write(observeEvery) || last.Observed.Used <= o.Used {
		t.Errorf("half a minute later, it wrote %+v", last.Observed)
	}
	c.change(id, func(v *federation.Volume) { v.Spec.Size = 1 << 30 })
	c.until("a change is written at once", func() error {
		if !write(0) || last.Observed.Generation != 2 {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestWherePoolsKeepVolumes: dropped relies on it.
func TestWherePoolsKeepVolumes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	id := c.create("v", manifest("v", 1))
	c.router("a", id)
	found, _ := filepath.Glob(filepath.Join(c.dir, "a", "*", id))
	more, _ := filepath.Glob(filepath.Join(c.dir, "a", id))
	if len(found)+len(more) != 1 {
		list, _ := os.ReadDir(filepath.Join(c.dir, "a"))
		t.Errorf("found %v %v in %v", found, more, list)
	}
}
