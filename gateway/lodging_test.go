// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/paper"
	"github.com/weir-storage/weir/federation/quantity"
	"github.com/weir-storage/weir/gateway/lodging"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// lodge has org-a and a site's organization sign an agreement about room there, and returns its ID.
func (c *cluster) lodge(kind paper.Kind, site string, amount quantity.Bytes) (id string) {
	c.t.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	r := paper.Request{Terms: paper.Terms{ID: uuid.NewString(), Guest: "org-a", Host: "org-" + site, Offer: "room", Kind: kind,
		Site: site, Amount: amount, Until: now.Add(24 * time.Hour), AnswerBy: now.Add(time.Hour)},
		Made: paper.Moment{At: now, By: "a person"}}
	a := paper.Answer{ID: r.ID, Guest: r.Guest, Host: r.Host, Accepted: &paper.Acceptance{Moment: paper.Moment{At: now, By: "another"},
		Terms: r.Digest()}, Ready: &paper.Place{}}
	c.with(func(reg federation.Registry) error {
		return reg.PutPapers(context.Background(), paper.At{Paper: paper.Paper{Request: &r}}, paper.At{Paper: paper.Paper{Answer: &a}})
	})
	return r.ID
}

// deletes has the host of an agreement say that it deletes everything.
func (c *cluster) deletes(id string) {
	c.t.Helper()
	c.with(func(reg federation.Registry) error {
		a, err := reg.GetPaper(c.t.Context(), paper.AnswerName(id))
		if err != nil {
			return err
		}
		next := *a.Answer
		next.Deleting = &paper.Moment{At: time.Now().UTC().Truncate(time.Second), By: "another"}
		a.Answer = &next
		return reg.PutPapers(c.t.Context(), a)
	})
}

// counted waits until a host's gateway has said something of an agreement.
func (c *cluster) counted(id, site string, holds func(*paper.Usage) bool) {
	c.t.Helper()
	c.until("the host's gateway says what is there", func() error {
		var u *paper.Usage
		c.with(func(reg federation.Registry) error {
			p, err := reg.GetPaper(c.t.Context(), paper.UsageName(id, paper.Host, "g"+site))
			if errors.Is(err, federation.ErrNotFound) {
				return nil
			}
			u = p.Usage
			return err
		})
		if u == nil || !holds(u) {
			return fmt.Errorf("it says %+v", u)
		}
		return nil
	})
}

// nothing fails if a site has anything of a volume: on its pool, or in its store.
func (c *cluster) nothing(site, id string) {
	c.t.Helper()
	if err := filepath.WalkDir(filepath.Join(c.dir, site), func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, id) {
			c.t.Errorf("%s is there", path)
		}
		return err
	}); err != nil {
		c.t.Fatal(err)
	}
	if err := c.nodes[site].store.List(c.t.Context(), id, func(i store.Info) error {
		c.t.Errorf("%s is in the store", i.Name)
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
}

// whole waits until a site has a copy that has everything.
func (c *cluster) whole(home, id, site string) {
	c.t.Helper()
	c.until("the copy at "+site+" is whole", func() error {
		for _, r := range c.router(home, id).Copy().Replica.Lag() {
			if r.Site == site && (r.State == federation.ReplicaFollower || r.State == federation.ReplicaMember) {
				return nil
			}
		}
		return errors.New("not yet")
	})
}

// TestLodgedCopy: a site that lends nothing takes a copy by an agreement, counts what it takes
// also after a restart, and deletes everything when the copy is elsewhere and the agreement over.
func TestLodgedCopy(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.own = true
	for _, s := range []string{"a", "b", "c"} {
		c.add(s)
	}
	x := c.lodge(paper.KindCopy, "b", 15<<30)
	id := c.createBlind("v", rolling("v", 1), []string{"a", "b"}, "b")
	c.until("b refuses the copy", func() error {
		if s, _ := c.at("b").copies.State(id); s.Problem == nil || !strings.Contains(s.Problem.Error(), "lends no room: agree on some") {
			return fmt.Errorf("it says %w", s.Problem)
		}
		return nil
	})
	c.change(id, func(v *federation.Volume) { v.Agreed = []string{x} })
	fill(t, c.router("a", id), &client{name: "x"}, "f", 4)
	c.whole("a", id, "b")
	const size = 10 << 30
	c.counted(x, "b", func(u *paper.Usage) bool { return u.Of["b"].Stored == size && u.Organization == "org-b" })
	c.stop("b")
	c.start("b")
	c.change(id, func(v *federation.Volume) { v.Spec.Size += 1 << 30 })
	c.counted(x, "b", func(u *paper.Usage) bool { return u.Of["b"].Stored == size+1<<30 && u.Of["b"].ByteHours > 0 })

	// The copy is to be elsewhere. Until it is, nothing goes, whatever the host says, and nothing
	// is counted.
	y := c.lodge(paper.KindCopy, "c", 15<<30)
	c.stop("c")
	c.change(id, func(v *federation.Volume) {
		v.Sites, v.Blind, v.Agreed, v.Grants = []string{"a", "c"}, []string{"c"}, []string{y}, nil
	})
	c.deletes(x)
	c.until("b keeps it, and says why", func() error {
		if s, _ := c.at("b").copies.State(id); s.Copy == nil || s.Leaving == "" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	c.counted(x, "b", func(u *paper.Usage) bool { return u.Of["b"].Stored == 0 && u.Erased == nil })
	c.start("c")
	c.counted(x, "b", func(u *paper.Usage) bool {
		return u.Erased != nil && u.Erased.Objects == 1 && u.Erased.Bytes == size+1<<30 && u.Of["b"].Stored == 0
	})
	c.nothing("b", id)
	c.whole("a", id, "c")
	c.counted(y, "c", func(u *paper.Usage) bool { return u.Of["c"].Stored == size+1<<30 })
}

// TestLodgedCopyStays: the guest lets its time go by, and the host says that it deletes. Nobody
// deletes a copy by force: it stays, also the only one, and is counted, until the guest's record
// does not name the site any more.
func TestLodgedCopyStays(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.own = true
	c.add("a")
	c.add("b")
	x := c.lodge(paper.KindCopy, "b", 15<<30)
	id := c.createBlind("v", manifest("v", 1), []string{"a", "b"}, "b")
	c.change(id, func(v *federation.Volume) { v.Agreed = []string{x} })
	r := c.router("a", id)
	fill(t, r, &client{name: "x"}, "f", 1)
	c.whole("a", id, "b")
	c.deletes(x)
	c.looks("b")
	c.stop("b")
	c.start("b")
	c.whole("a", id, "b")
	c.looks("b")
	fill(t, r, &client{name: "y"}, "g", 1)
	c.whole("a", id, "b")
	c.counted(x, "b", func(u *paper.Usage) bool { return u.Erased == nil && u.Of["b"].Stored == 10<<30 })
	c.change(id, func(v *federation.Volume) { v.Sites, v.Blind, v.Agreed = []string{"a"}, nil, nil })
	c.counted(x, "b", func(u *paper.Usage) bool { return u.Erased != nil && u.Erased.Objects == 1 })
	c.nothing("b", id)
}

// looks has another Host of a site's gateway look once at everything.
func (c *cluster) looks(site string) {
	c.t.Helper()
	clock, looked, g := clockwork.NewFakeClock(), make(chan struct{}), c.at(site)
	c.until("it is synced", func() error {
		if !g.view.Synced() {
			return errors.New("not yet")
		}
		return nil
	})
	ctx, stop := context.WithTimeout(c.t.Context(), hang)
	defer stop()
	go func() {
		defer close(looked)
		lodging.New(lodging.Config{Gateway: "g" + site, Site: site, Organization: "org-" + site, By: "g" + site, View: g.view,
			Registry: g.cfg.Registry, Copies: g.copies, Pools: g.pools, Store: g.cfg.Store, Now: time.Now, Timers: clock,
			Logger: g.cfg.Logger}).Run(ctx)
	}()
	if err := clock.BlockUntilContext(ctx, 1); err != nil {
		c.t.Fatal(err)
	}
	stop()
	<-looked
}

// TestLodgedCopyInTheTrash: a copy that others wait for stays while its volume is in the trash,
// whatever the host says.
func TestLodgedCopyInTheTrash(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.own = true
	for _, s := range []string{"a", "b", "c"} {
		c.add(s)
	}
	x := c.lodge(paper.KindCopy, "b", 15<<30)
	id := c.createAt("v", manifest("v", 1), []string{"b"})
	c.change(id, func(v *federation.Volume) { v.Agreed = []string{x} })
	written := c.load(c.router("b", id), "f")()
	c.stop("c")
	c.change(id, func(v *federation.Volume) { v.Sites, v.Agreed = []string{"c"}, nil })
	c.deletes(x)
	c.delete(id)
	c.until("it is closed", func() error {
		if _, managed := c.at("b").copies.State(id); managed {
			return errors.New("not yet")
		}
		return nil
	})
	c.looks("b")
	c.change(id, func(v *federation.Volume) { v.Deleted, v.DeletedAt = false, time.Time{} })
	c.start("c")
	r := c.router("c", id)
	for _, name := range written {
		if _, err := r.Lookup(within(t, hang), volume.Request{}, volume.Root, name); err != nil {
			t.Errorf("%s is lost: %v", name, err)
		}
	}
}

// TestLodgedReserve: a site that lends nothing keeps nothing of its cache pool for another
// organization's volumes but what was agreed on, of which each volume has its part.
func TestLodgedReserve(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.own = true
	c.add("a")
	c.add("b")
	reserving := strings.Replace(manifest("v", 1), "  durability:", "  cache: {reserve: 60Mi}\n  durability:", 1)
	id := c.createAt("v", reserving, []string{"a"})
	reserves := func(site string, want int64) {
		t.Helper()
		c.until("site "+site+" keeps what it should", func() error {
			for _, v := range c.at(site).caching.Status().Volumes {
				if v.UUID == id && v.Reserve == want {
					return nil
				}
			}
			return fmt.Errorf("%+v", c.at(site).caching.Status().Volumes)
		})
	}
	c.admit("b", id)
	c.router("b", id)
	reserves("a", 60<<20)
	reserves("b", 0)
	x := c.lodge(paper.KindCache, "b", 80<<20)
	reserves("b", 60<<20)
	c.counted(x, "b", func(u *paper.Usage) bool { return u.Of["b"].Stored == 60<<20 })
	c.createAt("w", strings.Replace(reserving, "name: v", "name: w", 1), []string{"a"})
	reserves("b", 40<<20)
	c.counted(x, "b", func(u *paper.Usage) bool { return u.Of["b"].Stored == 80<<20 })
	c.change(id, func(v *federation.Volume) {
		v.Grants = slices.DeleteFunc(v.Grants, func(g federation.Grant) bool { return g.Site == "b" })
	})
	c.counted(x, "b", func(u *paper.Usage) bool { return u.Of["b"].Stored == 60<<20 })
}
