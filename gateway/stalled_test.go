// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
)

// TestStalledVolume: a client has one session for all its volumes. One that lost its home takes
// nothing from the others: they go on, the list of volumes is answered, and the one that stalled
// goes on by itself when its home is back.
func TestStalledVolume(t *testing.T) {
	c := newCluster(t, "a", "b")
	x, y := c.createAt("vx", manifest("vx", 1), []string{"b"}), c.createAt("vy", manifest("vy", 1), []string{"a"})
	for _, id := range []string{x, y} {
		c.admit("a", id)
		c.router("a", id)
	}
	ctx, end := context.WithTimeout(t.Context(), 2*time.Minute) // a hang guard
	defer end()
	cl, err := nfsclient.Dial(ctx, c.nodes["a"].nfs, nfsclient.Options{Owner: "one", Slots: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Abandon()
	if err := cl.ReclaimComplete(ctx); err != nil {
		t.Fatal(err)
	}
	root := map[string]nfsclient.FH{}
	files := map[string]*nfsclient.File{}
	for _, name := range []string{"vx", "vy"} {
		e, err := cl.Mount(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		root[name] = e.FH
		if files[name], err = cl.Open(ctx, e.FH, "f", nfsclient.OpenArgs{Create: true, Mode: xdr.UNCHECKED4}); err != nil {
			t.Fatal(err)
		}
	}
	c.stop("b")
	c.until("the lease has ended that b lent to a", func() error {
		if o := c.at("a").copies.Outline(x); o != nil && o.Follower.Leased() {
			return errors.New("it lasts")
		}
		return nil
	})
	var done atomic.Int64
	var stalled sync.WaitGroup
	for i := range 96 { // more than there are slots
		stalled.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = files["vx"].WriteAt(ctx, []byte("x"), uint64(i), xdr.UNSTABLE4)
			} else {
				_, err = cl.Lookup(ctx, root["vx"], "f")
			}
			if err != nil {
				t.Errorf("an operation on the volume that stalled: %v", err)
			}
			done.Add(1)
		})
	}
	for began := time.Now(); time.Since(began) < 4*time.Second; { // while all of them wait
		if _, err := files["vy"].WriteAt(ctx, []byte("y"), 0, xdr.FILE_SYNC4); err != nil {
			t.Fatalf("the other volume: %v", err)
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				if _, err := cl.GetAttr(ctx, files["vy"].FH()); err != nil {
					t.Errorf("the other volume: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
	names, err := c.listed(ctx, cl)
	if err != nil || !slices.Equal(names, []string{"vx", "vy"}) {
		t.Errorf("the volumes are %v, %v", names, err)
	}
	if n := done.Load(); n != 0 {
		t.Errorf("%d operations on a volume without a home were answered", n)
	}
	c.start("b")
	stalled.Wait()
}

// listed lists the pseudo root.
func (c *cluster) listed(ctx context.Context, cl *nfsclient.Client) (names []string, err error) {
	root, err := cl.Mount(ctx, "")
	if err != nil {
		return nil, err
	}
	list, err := cl.List(ctx, root.FH)
	for _, e := range list {
		names = append(names, e.Name)
	}
	if err != nil {
		err = fmt.Errorf("list the volumes: %w", err)
	}
	slices.Sort(names)
	return names, err
}

// stalledFor returns a client of a with all its slots in requests to a volume that has a home and
// lacks a member. They are stalled, until leave is called. vy needs no other site than a.
func (c *cluster) stalledFor(ctx context.Context, before func(cl *nfsclient.Client)) (
	cl *nfsclient.Client, stalled *sync.WaitGroup, leave context.CancelFunc) {
	t := c.t
	x, y := c.createAt("vx", manifest("vx", 2), []string{"a", "b"}), c.createAt("vy", manifest("vy", 1), []string{"a"})
	for _, id := range []string{x, y} {
		c.admit("a", id)
	}
	c.router("a", y)
	here, there := c.router("a", x), c.router("b", x)
	c.members(x, "a", "b")
	c.until("vx has its home at a", func() error {
		if _, ok := here.Copy().Leading(); ok {
			return nil
		}
		there.Copy().Replica.Move("ga")
		return errors.New("not yet")
	})
	cl, err := nfsclient.Dial(ctx, c.nodes["a"].nfs, nfsclient.Options{Owner: "one", Slots: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Abandon)
	if err := cl.ReclaimComplete(ctx); err != nil {
		t.Fatal(err)
	}
	if before != nil {
		before(cl)
	}
	e, err := cl.Mount(ctx, "vx")
	if err != nil {
		t.Fatal(err)
	}
	f, err := cl.Open(ctx, e.FH, "f", nfsclient.OpenArgs{Create: true, Mode: xdr.UNCHECKED4})
	if err != nil {
		t.Fatal(err)
	}
	c.stop("b")
	ctx, leave = context.WithCancel(ctx)
	stalled = new(sync.WaitGroup)
	for i := range 96 { // more than there are slots
		stalled.Go(func() {
			if _, err := f.WriteAt(ctx, []byte("x"), uint64(i), xdr.FILE_SYNC4); err != nil && ctx.Err() == nil {
				t.Logf("a write to the volume that stalled: %v", err)
			}
		})
	}
	return cl, stalled, leave
}

// TestStalledForMembers: a volume that has a home and lacks a member holds no slots of the session
// that another volume needs, although it was the only one that was used.
func TestStalledForMembers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	ctx, end := context.WithTimeout(t.Context(), 2*time.Minute) // a hang guard
	defer end()
	cl, stalled, leave := c.stalledFor(ctx, nil)
	defer leave()
	c.until("all that may wait for vx do", func() error {
		if n := c.at("a").nfs.Waiting(time.Second)["vx"]; n < 32 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	e, err := cl.Mount(ctx, "vy")
	if err != nil {
		t.Fatal(err)
	}
	f, err := cl.Open(ctx, e.FH, "f", nfsclient.OpenArgs{Create: true, Mode: xdr.UNCHECKED4})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := f.WriteAt(ctx, []byte("y"), 0, xdr.FILE_SYNC4); err != nil {
			t.Fatalf("the other volume: %v", err)
		}
	}
	c.start("b")
	stalled.Wait()
}

// TestSilentClientOfStalledVolume: the locks of a client that is gone end with its lease, although
// its requests to another volume wait for a member.
func TestSilentClientOfStalledVolume(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, time.Second)
	c.lease = 2 * time.Second
	for _, s := range []string{"a", "b"} {
		c.add(s)
	}
	ctx, end := context.WithTimeout(t.Context(), 2*time.Minute) // a hang guard
	defer end()
	all := nfsclient.LockArgs{Owner: "l", Length: ^uint64(0), Exclusive: true}
	lock := func(cl *nfsclient.Client) error {
		e, err := cl.Mount(ctx, "vy")
		if err != nil {
			return err
		}
		f, err := cl.Open(ctx, e.FH, "f", nfsclient.OpenArgs{Create: true, Mode: xdr.UNCHECKED4})
		if err != nil {
			return err
		}
		return f.Lock(ctx, all)
	}
	cl, stalled, leave := c.stalledFor(ctx, func(cl *nfsclient.Client) {
		if err := lock(cl); err != nil {
			t.Fatal(err)
		}
	})
	c.until("its requests wait for vx", func() error {
		if n := c.at("a").nfs.Waiting(time.Second / 2)["vx"]; n < 8 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	cl.Abandon()
	leave()
	stalled.Wait()
	other, err := nfsclient.Dial(ctx, c.nodes["a"].nfs, nfsclient.Options{Owner: "other"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Abandon()
	if err := other.ReclaimComplete(ctx); err != nil {
		t.Fatal(err)
	}
	c.until("another client gets the lock", func() error { return lock(other) })
	c.start("b")
	c.until("no request waits any more", func() error {
		if n := c.at("a").nfs.Waiting(0); len(n) > 0 {
			return fmt.Errorf("%v", n)
		}
		return nil
	})
}
