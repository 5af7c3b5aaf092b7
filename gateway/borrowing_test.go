// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/gateway/borrowing"
	"github.com/weir-storage/weir/store"
	storemem "github.com/weir-storage/weir/store/memory"
)

// lentRooms are stores that another organization lends, by agreement, in memory. Package
// exchange/lent has the real ones, and test/e2e uses them from gateways.
type lentRooms struct {
	mu     sync.Mutex
	all    map[string]*storemem.Store
	told   map[string]int
	closed map[string]bool // gateways without room
	lists  map[string]int  // how often everything was listed, by agreement and gateway
	hung   atomic.Bool     // whatever is put takes for ever
	// putting, if it is not nil, is called while an object is being put. Set it under mu.
	putting func(ctx context.Context, name string) error
	// deleted, if it is not nil, is called when an object was deleted, and says what comes of it.
	// Set it under mu.
	deleted func(name string) error
}

// room is one of them at a gateway.
type room struct {
	store.Store
	l           *lentRooms
	gateway, id string
}

// Put implements store.Store.
func (r room) Put(ctx context.Context, name string, size int64, body io.ReadSeeker) error {
	if r.l.hung.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	r.l.mu.Lock()
	putting := r.l.putting
	r.l.mu.Unlock()
	if putting != nil {
		if err := putting(ctx, name); err != nil {
			return err
		}
	}
	return r.Store.Put(ctx, name, size, body)
}

// Delete implements store.Store.
func (r room) Delete(ctx context.Context, name string) error {
	err := r.Store.Delete(ctx, name)
	r.l.mu.Lock()
	deleted := r.l.deleted
	r.l.mu.Unlock()
	if err == nil && deleted != nil {
		err = deleted(name)
	}
	return err
}

// List implements store.Store.
func (r room) List(ctx context.Context, prefix string, f func(store.Info) error) error {
	r.l.mu.Lock()
	closed := r.l.closed[r.gateway]
	defer func() {
		r.l.mu.Lock()
		defer r.l.mu.Unlock()
		r.l.lists[r.id+" "+r.gateway]++
	}()
	r.l.mu.Unlock()
	if closed {
		return fmt.Errorf("%w: its organization says no room for gateway %s", store.ErrAccess, r.gateway)
	}
	return r.Store.List(ctx, prefix, f)
}

// onPut has f called while an object is being put.
func (l *lentRooms) onPut(f func(ctx context.Context, name string) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.putting = f
}

func (room) Count(context.Context) error { return nil }

func (r room) Tell(context.Context) error {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	r.l.told[r.id]++
	return nil
}

func (l *lentRooms) open(gateway string) func(paper.Terms, string) (borrowing.Room, error) {
	return func(t paper.Terms, endpoint string) (borrowing.Room, error) {
		if l == nil || endpoint != "https://store" {
			return nil, fmt.Errorf("no store at %q", endpoint)
		}
		return room{l.at(t.ID), l, gateway, t.ID}, nil
	}
}

func (l *lentRooms) at(id string) *storemem.Store {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all[id] == nil {
		l.all[id] = storemem.New()
	}
	return l.all[id]
}

// has lists what an agreement's store has of a volume.
func (l *lentRooms) has(t testing.TB, agreement, volume string) (names []string) {
	t.Helper()
	if err := l.at(agreement).List(t.Context(), volume+"/", func(i store.Info) error {
		names = append(names, i.Name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return names
}

// borrowers are gateways of one organization, which others lend room.
func borrowers(t *testing.T, sites ...string) *cluster {
	c := newCluster(t)
	c.of, c.lent = "org-a", &lentRooms{all: map[string]*storemem.Store{}, told: map[string]int{}, closed: map[string]bool{},
		lists: map[string]int{}}
	c.memory = 1 << 20
	for _, s := range sites {
		c.add(s)
	}
	return c
}

// agree has both sides sign an agreement, whose room is at a URL, and returns its ID.
func (c *cluster) agree(endpoint string) (id string) {
	c.t.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	r := paper.Request{Terms: paper.Terms{ID: uuid.NewString(), Guest: "org-a", Host: "SURF", Offer: "disks", Kind: paper.KindStore,
		Site: "ams", Amount: 1 << 40, Until: now.Add(24 * time.Hour), AnswerBy: now.Add(time.Hour)},
		Made: paper.Moment{At: now, By: "a person"}}
	a := paper.Answer{ID: r.ID, Guest: r.Guest, Host: r.Host, Accepted: &paper.Acceptance{Moment: paper.Moment{At: now, By: "another"},
		Terms: r.Digest()}, Ready: &paper.Place{Endpoint: endpoint}}
	c.with(func(reg federation.Registry) error {
		return reg.PutPapers(context.Background(), paper.At{Paper: paper.Paper{Request: &r}}, paper.At{Paper: paper.Paper{Answer: &a}})
	})
	return r.ID
}

// stored waits until lent stores have all that is written, as the home sees it.
func (c *cluster) stored(home, id string, agreements ...string) {
	c.t.Helper()
	c.until("the stores have everything", func() error {
		cp := c.at(home).copies.Copy(id)
		if cp == nil {
			return errors.New("no copy is open")
		}
		all := cp.Replica.Stores()
		if len(all) != len(agreements) {
			return fmt.Errorf("%+v", all)
		}
		for _, s := range all {
			if !s.Whole || s.LagBytes > 0 || s.Problem != "" || !slices.Contains(agreements, s.Agreement) {
				return fmt.Errorf("%+v", all)
			}
		}
		return nil
	})
}

// TestBorrowedStore: the home puts what is sealed into a lent store; another home goes on; what a
// store is to have no more leaves it when another has it; what is nowhere else is read from there.
func TestBorrowedStore(t *testing.T) {
	t.Parallel()
	c := borrowers(t, "a", "b", "c")
	x, y := c.agree("https://store"), c.agree("https://store")
	id := c.createAt("v", rolling("v", 2), c.order)
	c.change(id, func(v *federation.Volume) { v.Stores = []string{x} })
	const size = 4
	f := fill(t, c.router("a", id), &client{name: "x"}, "f", size)
	c.stored("a", id, x)
	if n := len(c.lent.has(t, x, id)); n == 0 || n != len(c.at("a").copies.Copy(id).Log.Segments()) {
		t.Errorf("%d objects are in the store, and the log has %d", n, len(c.at("a").copies.Copy(id).Log.Segments()))
	}
	c.until("the home reports it", func() error {
		var all []federation.Observed
		c.with(func(reg federation.Registry) (err error) {
			all, err = reg.ListObserved(t.Context(), id)
			return err
		})
		for _, o := range all {
			if len(o.Stores) == 1 && o.Stores[0].Whole && o.Stores[0].Site == "ams" {
				return nil
			}
		}
		return fmt.Errorf("%+v", all)
	})

	// Another home puts there what comes then, and what is there once.
	before := c.lent.has(t, x, id)
	c.stop("a")
	g := fill(t, c.router("b", id), &client{name: "y"}, "g", size)
	home := "b"
	if _, leads := c.at("c").copies.Copy(id).Leading(); leads {
		home = "c"
	}
	c.stored(home, id, x)
	if after := c.lent.has(t, x, id); len(after) <= len(before) || !contains(after, before) {
		t.Errorf("the other home has put %d objects to the %d", len(after), len(before))
	}

	// The volume is to be in another store. Nothing leaves the first one while that gets nothing.
	c.start("a")
	var tries atomic.Int64
	c.lent.at(y).SetFault(func(op, _ string) error {
		if op == "put" {
			tries.Add(1)
			return store.ErrUnavailable
		}
		return nil
	})
	c.change(id, func(v *federation.Volume) { v.Stores = []string{y} })
	c.until("the home tells that it takes nothing", func() error {
		if s := c.at(home).copies.Copy(id).Replica.Stores(); len(s) != 1 || s[0].Agreement != y || s[0].Problem == "" || s[0].Whole {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	fill(t, c.router(home, id), &client{name: "z"}, "h", 1) // nobody waits for it
	c.until("all copies have everything", func() error {
		for _, r := range c.at(home).copies.Copy(id).Replica.Lag() {
			if r.State == federation.ReplicaLost || r.State == federation.ReplicaJoining {
				return fmt.Errorf("%+v", r)
			}
		}
		return nil
	})
	tried := tries.Load()
	c.until("the home has looked again", func() error {
		if tries.Load() < tried+2 {
			return errors.New("not yet")
		}
		return nil
	})
	if n := len(c.lent.has(t, x, id)); n < len(before) {
		t.Fatalf("%d objects are left in the first store", n)
	}
	c.lent.at(y).SetFault(nil)
	c.stored(home, id, y)
	c.until("the first store is empty", func() error {
		if n := len(c.lent.has(t, x, id)); n > 0 {
			return fmt.Errorf("%d objects", n)
		}
		return nil
	})

	// All else loses what is sealed.
	push(c, home, id)
	for _, site := range c.order {
		for _, name := range c.left(site, id) {
			if strings.HasPrefix(name, id+"/") {
				if err := c.nodes[site].store.Delete(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
		}
		if site != home {
			push(c, site, id)
		}
	}
	for n := range size {
		same(t, c.router(home, id), &client{name: "r"}, f, n)
		same(t, c.router(home, id), &client{name: "r"}, g, n)
	}
}

func contains(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// TestBorrowedStoreIsPurged: of a volume that was purged nothing stays in a lent store.
func TestBorrowedStoreIsPurged(t *testing.T) {
	t.Parallel()
	c := borrowers(t, "a")
	x, nowhere := c.agree("https://store"), c.agree("https://elsewhere")
	id := c.createAt("v", rolling("v", 1), []string{"a"})
	c.change(id, func(v *federation.Volume) { v.Stores = []string{x} })
	fill(t, c.router("a", id), &client{name: "x"}, "f", 2)
	c.stored("a", id, x)
	c.change(id, func(v *federation.Volume) { v.Stores = []string{x, nowhere, "0a6b4c1e-7a0b-4a42-9a2e-0000000000aa"} })
	c.until("what cannot be used is told", func() error {
		said := map[string]string{}
		for _, s := range c.at("a").copies.Copy(id).Replica.Stores() {
			said[s.Agreement] = s.Problem
		}
		if len(said) != 3 || said[x] != "" || !strings.Contains(said[nowhere], "until") ||
			said["0a6b4c1e-7a0b-4a42-9a2e-0000000000aa"] != "this site is not shown the agreement" {
			return fmt.Errorf("%q", said)
		}
		return nil
	})
	c.purged(id)
	c.emptied(x, id)
}

// looked waits until a gateway has listed what is in a lent store.
func (c *cluster) looked(agreement, site string) {
	c.t.Helper()
	c.until("a gateway has listed what is there", func() error {
		c.lent.mu.Lock()
		defer c.lent.mu.Unlock()
		if c.lent.lists[agreement+" g"+site] == 0 {
			return errors.New("not yet")
		}
		return nil
	})
}

// purged has a volume purged now.
func (c *cluster) purged(id string) {
	c.t.Helper()
	c.change(id, func(v *federation.Volume) {
		v.Deleted, v.DeletedAt, v.PurgeAfter = true, time.Now().UTC(), time.Now().UTC()
	})
}

// emptied waits until a volume has nothing in a lent store.
func (c *cluster) emptied(agreement, id string) {
	c.t.Helper()
	c.until("the store is empty", func() error {
		if n := len(c.lent.has(c.t, agreement, id)); n > 0 {
			return fmt.Errorf("%d objects", n)
		}
		return nil
	})
}

// TestHungStore: a lent store that takes for ever is given up soon, so that no writer waits for it.
func TestHungStore(t *testing.T) {
	t.Parallel()
	c := borrowers(t, "a")
	x := c.agree("https://store")
	id := c.createAt("v", rolling("v", 1), []string{"a"})
	c.change(id, func(v *federation.Volume) { v.Stores = []string{x} })
	fill(t, c.router("a", id), &client{name: "x"}, "f", 1)
	c.stored("a", id, x)
	c.lent.hung.Store(true)
	fill(t, c.router("a", id), &client{name: "y"}, "g", 1)
	c.until("the home tells that it takes nothing", func() error {
		if s := c.at("a").copies.Copy(id).Replica.Stores(); len(s) != 1 || s[0].Problem == "" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	fill(t, c.router("a", id), &client{name: "z"}, "h", 1)
	c.lent.hung.Store(false)
	c.stored("a", id, x)
}
