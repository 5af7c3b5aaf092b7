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
	"github.com/weir-storage/weir/store"
)

// TestBorrowedStoreIsPurgedByOthers: what a purged volume has in a lent store is deleted by a
// gateway that never had it, and if that one has no room there, by another.
func TestBorrowedStoreIsPurgedByOthers(t *testing.T) {
	t.Parallel()
	c := borrowers(t)
	var later atomic.Int64
	c.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	c.add("a")
	c.add("b")
	x := c.agree("https://store")
	made := func(name string) string {
		id := c.createAt(name, rolling(name, 1), []string{"b"})
		c.change(id, func(v *federation.Volume) { v.Stores = []string{x} })
		fill(t, c.router("b", id), &client{name: name}, "f", 2)
		c.stored("b", id, x)
		return id
	}
	c.looked(x, "a")
	one := made("one")
	c.purged(one)
	c.emptied(x, one)

	two := made("two")
	c.lent.mu.Lock()
	c.lent.closed["ga"] = true
	c.lent.mu.Unlock()
	c.purged(two)
	c.until("it is purged", func() error {
		if _, purged := c.at("b").view.Purged(two); !purged {
			return errors.New("not yet")
		}
		return nil
	})
	later.Store(int64(3 * time.Minute))
	c.emptied(x, two)
}

// TestBorrowedStoreIsLeftOnTheMove: what a volume has in a store that it left, while its home was
// to be another gateway, that one finds and deletes, though it never had to do with it.
func TestBorrowedStoreIsLeftOnTheMove(t *testing.T) {
	t.Parallel()
	c := borrowers(t, "a", "b", "c")
	x, y := c.agree("https://store"), c.agree("https://store")
	for _, site := range c.order {
		c.looked(x, site)
		c.looked(y, site)
	}
	c.lent.at(y).SetFault(func(op, _ string) error {
		if op == "put" {
			return store.ErrUnavailable
		}
		return nil
	})
	id := c.createAt("v", rolling("v", 2), c.order)
	c.change(id, func(v *federation.Volume) { v.Stores = []string{x} })
	fill(t, c.router("a", id), &client{name: "x"}, "f", 2)
	c.stored("a", id, x)
	c.change(id, func(v *federation.Volume) { v.Stores = []string{y} })
	c.stop("a")
	fill(t, c.router("b", id), &client{name: "y"}, "g", 1)
	if len(c.lent.has(t, x, id)) == 0 {
		t.Fatal("nothing is left")
	}
	c.lent.at(y).SetFault(nil)
	c.start("a")
	c.emptied(x, id)
}

// sealed writes until a volume has some segments.
func (c *cluster) sealed(site, id string, n int) {
	c.t.Helper()
	r := c.router(site, id)
	for i := 0; len(c.at(site).copies.Copy(id).Log.Segments()) < n; i++ {
		fill(c.t.(*testing.T), r, &client{name: fmt.Sprint("s", i)}, fmt.Sprint("sealed", i), 1)
		have := len(c.at(site).copies.Copy(id).Log.Segments())
		c.until("a segment is sealed", func() error {
			if len(c.at(site).copies.Copy(id).Log.Segments()) == have {
				return errors.New("not yet")
			}
			return nil
		})
	}
}

// TestBorrowedStoreTakesSeveral: several objects of a volume go at once, and another volume does
// not wait for them. What the record names no more is put no more.
func TestBorrowedStoreTakesSeveral(t *testing.T) {
	t.Parallel()
	c := borrowers(t, "a")
	x := c.agree("https://store")
	big, small := c.createAt("big", rolling("big", 1), []string{"a"}), c.createAt("small", rolling("small", 1), []string{"a"})
	c.sealed("a", big, 8)
	c.sealed("a", small, 1)
	var most, now atomic.Int64
	go1 := make(chan struct{})
	c.lent.onPut(func(ctx context.Context, name string) error {
		if !strings.HasPrefix(name, big) {
			return nil
		}
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		select {
		case <-go1:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	c.change(big, func(v *federation.Volume) { v.Stores = []string{x} })
	c.until("several go at once", func() error {
		if n := most.Load(); n != 4 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	c.change(small, func(v *federation.Volume) { v.Stores = []string{x} })
	c.stored("a", small, x)
	if n := len(c.lent.has(t, x, big)); n > 0 {
		t.Errorf("%d objects of the other volume came meanwhile", n)
	}
	c.change(big, func(v *federation.Volume) { v.Stores = nil })
	c.until("the gateway has heard of it", func() error { return c.names(big) })
	close(go1)
	c.until("what was under way is there", func() error {
		if n := now.Load(); n > 0 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	c.emptied(x, big)
	if n := most.Load(); n != 4 {
		t.Errorf("%d went at once", n)
	}
}

// names returns an error if the gateway of a takes a volume's record to name lent stores.
func (c *cluster) names(id string, stores ...string) error {
	if v, _ := c.at("a").view.Record(id); !slices.Equal(v.Stores, stores) {
		return fmt.Errorf("%q", v.Stores)
	}
	return nil
}

// TestBorrowedStoreIsToStay: a volume that is to be in a store after all, while what it has there
// is being deleted, keeps the rest.
func TestBorrowedStoreIsToStay(t *testing.T) {
	t.Parallel()
	c := borrowers(t, "a")
	x := c.agree("https://store")
	id := c.createAt("v", rolling("v", 1), []string{"a"})
	c.change(id, func(v *federation.Volume) { v.Stores = []string{x} })
	c.sealed("a", id, 5)
	c.stored("a", id, x)
	var gone, puts atomic.Int64
	c.lent.at(x).SetFault(func(op, _ string) error {
		switch {
		case op == "put":
			puts.Add(1)
		case op == "delete" && gone.Add(1) == 1:
			c.change(id, func(v *federation.Volume) { v.Stores = []string{x} })
			c.until("the gateway has heard of it", func() error { return c.names(id, x) })
		}
		return nil
	})
	c.change(id, func(v *federation.Volume) { v.Stores = nil })
	c.until("something is deleted, and put again", func() error {
		if puts.Load() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if n := gone.Load(); n != 1 {
		t.Errorf("%d objects were deleted", n)
	}
	c.stored("a", id, x)
}

// lentTo is how a volume's home sees the one lent store that it has.
func (c *cluster) lentTo(site, id string) (out federation.ObservedStore) {
	if all := c.at(site).copies.Copy(id).Replica.Stores(); len(all) == 1 {
		out = all[0]
	}
	return out
}

// TestBorrowedStoreLosesSomething: what the host has lost is not whole from when a list tells it,
// though what is put anew takes its time. A list that fails changes nothing.
func TestBorrowedStoreLosesSomething(t *testing.T) {
	t.Parallel()
	c := borrowers(t)
	var later atomic.Int64
	c.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	c.add("a")
	x := c.agree("https://store")
	id := c.createAt("v", rolling("v", 1), []string{"a"})
	c.change(id, func(v *federation.Volume) { v.Stores = []string{x} })
	c.sealed("a", id, 3)
	c.stored("a", id, x)

	var lists atomic.Int64
	c.lent.at(x).SetFault(func(op, _ string) error {
		if op == "list" {
			lists.Add(1)
			return store.ErrUnavailable
		}
		return nil
	})
	later.Add(int64(61 * time.Minute))
	c.until("a list fails", func() error {
		if lists.Load() == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	fill(t, c.router("a", id), &client{name: "z"}, "z", 1)
	c.stored("a", id, x) // what is put meanwhile comes

	c.lent.at(x).SetFault(nil)
	end := make(chan struct{})
	c.lent.onPut(func(ctx context.Context, _ string) error {
		select {
		case <-end:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	for _, name := range c.lent.has(t, x, id) {
		if err := c.lent.at(x).Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	later.Add(int64(61 * time.Minute))
	c.until("it is known that something is lost", func() error {
		if s := c.lentTo("a", id); s.Whole {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	close(end)
	c.stored("a", id, x)
}

// TestDeletionWithoutAnAnswer: an object may be gone though its deletion failed. If the volume is
// to be there after all, it is put again.
func TestDeletionWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	c := borrowers(t, "a")
	x := c.agree("https://store")
	id := c.createAt("v", rolling("v", 1), []string{"a"})
	c.change(id, func(v *federation.Volume) { v.Stores = []string{x} })
	c.sealed("a", id, 4)
	c.stored("a", id, x)
	all := c.lent.has(t, x, id)
	var once atomic.Bool
	c.lent.mu.Lock()
	c.lent.deleted = func(string) error {
		if once.Swap(true) {
			return nil
		}
		c.change(id, func(v *federation.Volume) { v.Stores = []string{x} })
		return store.ErrUnavailable
	}
	c.lent.mu.Unlock()
	c.change(id, func(v *federation.Volume) { v.Stores = nil })
	c.until("a deletion has failed", func() error {
		if !once.Load() {
			return errors.New("not yet")
		}
		return nil
	})
	c.until("everything is there", func() error {
		if is := c.lent.has(t, x, id); len(is) < len(all) {
			return fmt.Errorf("%d of %d", len(is), len(all))
		}
		return nil
	})
	c.stored("a", id, x)
}
