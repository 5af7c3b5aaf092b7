// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/volume"
)

// count is a client that makes files 1, 2, 3 and so on, each when the one before it was
// acknowledged, in one volume after the other. It returns how many there are when ctx ends.
func count(ctx context.Context, t *testing.T, name string, routers ...*routing.Router) int {
	cl := &client{name: name}
	for n := 1; ; n++ {
		_, err := routers[n%len(routers)].Create(context.WithoutCancel(ctx), cl.next(), volume.Root, fmt.Sprintf("%s-%d", name, n),
			volume.CreateArgs{Type: volume.Regular, Attr: volume.SetAttr{Mode: new(uint32(0o644))}})
		if err != nil {
			t.Errorf("%s-%d: %v", name, n, err)
			return n - 1
		}
		if ctx.Err() != nil {
			return n
		}
	}
}

// names adds the names of a snapshot's files to all.
func names(t *testing.T, r *routing.Router, snap uint32, all map[string]bool) {
	t.Helper()
	root := volume.Root
	root.Snap = snap
	for after, eof := uint64(0), false; !eof; {
		var page []volume.Entry
		var err error
		if page, eof, err = r.ReadDir(within(t, hang), volume.Request{}, root, after, 1000); err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			all[e.Name], after = true, e.Cookie
		}
	}
}

// wished waits until a volume's home says that a wish has come to a state.
func (c *cluster) wished(id string, w snapshots.Wish, state snapshots.State) (s snapshots.Snapshot) {
	c.t.Helper()
	home := c.homeOf("a", id)
	c.until(fmt.Sprintf("%s is %s", w.Name, state), func() error {
		s = snapshots.Snapshot{}
		c.with(func(reg federation.Registry) error {
			all, err := reg.ListObserved(context.Background(), id)
			for _, o := range all {
				if o.Gateway == home {
					s, _ = o.Snapshots.Of(w.Name)
				}
			}
			return err
		})
		if s.State != state || s.UID != w.UID {
			return fmt.Errorf("home %s says %+v", home, s)
		}
		return nil
	})
	return s
}

func heldWish(uid string) snapshots.Wish {
	return snapshots.Wish{Name: snapshots.HeldName("group", uid), UID: uid, Hold: true}
}

// TestGroupOfTwoHomes: snapshots of two volumes whose homes are at different sites are of one
// moment, for clients that write to both meanwhile (protocol-29).
func TestGroupOfTwoHomes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	ids := []string{c.createAt("v", manifest("v", 2), []string{"a", "b"}), c.createAt("w", manifest("w", 2), []string{"b", "a"})}
	routers := []*routing.Router{c.router("a", ids[0]), c.router("a", ids[1])}
	if x, y := c.homeOf("a", ids[0]), c.homeOf("a", ids[1]); x == y {
		t.Fatalf("both volumes have the home %s", x)
	}
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() { count(ctx, t, fmt.Sprint("c", i), routers...) })
	}
	for round := range 3 {
		w := []snapshots.Wish{heldWish(fmt.Sprint("a", round)), heldWish(fmt.Sprint("b", round))}
		for i := range ids {
			c.wish(ids[i], w[i])
		}
		for i := range ids {
			w[i].Take = c.wished(ids[i], w[i], snapshots.StateHeld).Token
		}
		var taken [2]snapshots.Snapshot
		for i := range ids {
			c.wish(ids[i], w[i])
		}
		all := map[string]bool{}
		for i := range ids {
			taken[i] = c.wished(ids[i], w[i], snapshots.StateTaken)
			names(t, routers[i], taken[i].Snap, all)
		}
		for name := range all {
			client, number, _ := strings.Cut(name, "-")
			var n int
			if _, err := fmt.Sscan(number, &n); err == nil && n > 1 && !all[fmt.Sprintf("%s-%d", client, n-1)] {
				t.Errorf("round %d: the snapshots have %s, and not what was acknowledged before that", round, name)
			}
		}
		if len(all) < 4 {
			t.Errorf("round %d: the snapshots have %d files only", round, len(all))
		}
	}
	stop()
	work.Wait() // changes go on
}

// TestHoldEnds: changes wait while they are held, and no longer than the time of the hold; reads go
// on. What is to be taken then never is, also not by another home.
func TestHoldEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	r, cl := c.router("a", id), &client{name: "x"}
	f := file(t, r, cl, "f")
	w := heldWish("1")
	c.wish(id, w)
	token := c.wished(id, w, snapshots.StateHeld).Token
	home := c.at(strings.TrimPrefix(c.homeOf("a", id), "g"))
	// Who cannot wait is told to come again by the home. At another gateway it waits.
	var others sync.WaitGroup
	for _, site := range []string{"a", "b", "c"} {
		ask := func() error {
			q := (&client{name: "y" + site}).next()
			yield, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			q.Yield = yield
			_, err := c.router(site, id).Write(within(t, hang), q, f, 0, []byte("from "+site), true)
			return err
		}
		if "g"+site == home.cfg.Name {
			if err := ask(); !errors.Is(err, volume.ErrDelay) || errors.Is(err, volume.ErrIO) {
				t.Errorf("a change at home while changes are held: %v, want ErrDelay", err)
			}
			continue
		}
		others.Go(func() {
			if err := ask(); err != nil {
				t.Errorf("a change at site %s while changes are held: %v", site, err)
			}
		})
	}
	began := time.Now()
	done := make(chan time.Time, 1)
	go func() {
		_, err := r.Write(context.Background(), cl.next(), f, 0, []byte("later"), true)
		if err != nil {
			t.Errorf("write: %v", err)
		}
		done <- time.Now()
	}()
	if _, err := r.GetAttr(within(t, hang), volume.Request{}, f); err != nil {
		t.Errorf("a read of a volume whose changes are held: %v", err)
	}
	time.Sleep(time.Second)
	if len(done) > 0 && home.copies.Copy(id).Engine.HoldsChanges(token) {
		t.Error("a change did not wait")
	}
	select {
	case at := <-done:
		if at.Sub(began) > snapshots.HoldTime+5*time.Second {
			t.Errorf("the change waited for %v", at.Sub(began))
		}
	case <-time.After(hang):
		t.Fatal("changes are held for ever")
	}
	others.Wait()
	c.wished(id, w, snapshots.StateMissed)
	w.Take = token
	c.wish(id, w)
	c.wished(id, w, snapshots.StateMissed)

	c.stop(strings.TrimPrefix(home.cfg.Name, "g"))
	site := "a"
	if home.cfg.Name == "ga" {
		site = "b"
	}
	c.until("another gateway is home", func() error {
		if g, _ := c.at(site).view.Home(id); g == home.cfg.Name {
			return fmt.Errorf("it is %s still", g)
		}
		return nil
	})
	c.router(site, id)
	c.until("the new home says that it is missed", func() error {
		var s snapshots.Snapshot
		g, _ := c.at(site).view.Home(id)
		c.with(func(reg federation.Registry) error {
			all, err := reg.ListObserved(context.Background(), id)
			for _, o := range all {
				if o.Gateway == g {
					s, _ = o.Snapshots.Of(w.Name)
				}
			}
			return err
		})
		if s.State != snapshots.StateMissed {
			return fmt.Errorf("home %s says %+v", g, s)
		}
		return nil
	})
}
