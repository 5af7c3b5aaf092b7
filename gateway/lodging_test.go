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
	"github.com/weir-storage/weir/gateway/report"
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

// TestLodgedCopyIsEvicted: the guest lets its time go by. The copy goes when the host deletes,
// although the volume's record names the site. The volume goes on.
func TestLodgedCopyIsEvicted(t *testing.T) {
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
	c.counted(x, "b", func(u *paper.Usage) bool { return u.Erased != nil && u.Erased.Objects == 1 })
	c.nothing("b", id)
	fill(t, r, &client{name: "y"}, "g", 1)
	c.stop("b")
	c.start("b")
	c.until("b does not take it again", func() error {
		if s, ok := c.at("b").copies.State(id); !ok || s.Problem == nil || !strings.Contains(s.Problem.Error(), "agreement that is over") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	c.nothing("b", id)
}

// TestLodgedHomeIsNotEvicted: the copy that is the volume's home stays when the host deletes, also
// a blind one that took over, and after a restart. When another goes on, it goes.
func TestLodgedHomeIsNotEvicted(t *testing.T) {
	c := newCluster(t)
	c.own = true
	c.add("a")
	c.add("b")
	x := c.lodge(paper.KindCopy, "b", 25<<30)
	only := c.createAt("only", manifest("only", 1), []string{"b"})
	id := c.createBlind("v", manifest("v", 2), []string{"a", "b"}, "b")
	for _, v := range []string{only, id} {
		c.change(v, func(v *federation.Volume) { v.Agreed = []string{x} })
	}
	fill(t, c.router("b", only), &client{name: "x"}, "f", 1)
	a := c.router("a", id)
	c.members(id, "a", "b")
	written := c.load(a, "f")()
	c.stop("a")
	c.until("b has taken over", func() error {
		if s := c.at("b").reporter.Status(id); len(s) != 1 || s[0].Role != report.Steward {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	c.deletes(x)
	stays := func() {
		t.Helper()
		c.until("b keeps both, and says why", func() error {
			for _, v := range []string{only, id} {
				if s, _ := c.at("b").copies.State(v); s.Copy == nil || !strings.Contains(s.Leaving, "it is home") {
					return fmt.Errorf("%+v", s)
				}
			}
			return nil
		})
	}
	stays()
	c.stop("b")
	c.start("b")
	stays()
	c.start("a")
	c.until("b's copy of the volume that a has goes", func() error {
		if held, err := c.at("b").copies.Held(func(v string) bool { return v == id }); err != nil || held[id] {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	r := c.router("a", id)
	for _, name := range written {
		if _, err := r.Lookup(within(t, hang), volume.Request{}, volume.Root, name); err != nil {
			t.Errorf("%s is lost: %v", name, err)
		}
	}
	if held, err := c.at("b").copies.Held(func(v string) bool { return v == only }); err != nil || !held[only] {
		t.Errorf("the only copy of a volume is gone: %v", err)
	}
}

// TestLodgedCopyInTheTrash: a copy that others wait for stays while its volume is in the trash,
// whatever the host says.
func TestLodgedCopyInTheTrash(t *testing.T) {
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
	// Another Host of this gateway looks once at everything.
	clock, looked := clockwork.NewFakeClock(), make(chan struct{})
	b := c.at("b")
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(looked)
		lodging.New(lodging.Config{Gateway: "gb", Site: "b", Organization: "org-b", By: "gb", View: b.view, Registry: b.cfg.Registry,
			Copies: b.copies, Pools: b.pools, Store: b.cfg.Store, Now: time.Now, Timers: clock, Logger: b.cfg.Logger}).Run(ctx)
	}()
	if err := clock.BlockUntilContext(within(t, hang), 1); err != nil {
		t.Fatal(err)
	}
	stop()
	<-looked
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
