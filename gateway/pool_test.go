// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/cachepool/crashfs"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/spec"
	"github.com/weir-storage/weir/gateway/pools"
	"github.com/weir-storage/weir/volume"
)

// fastPools has each gateway of the sites started again, with two pools.
func (c *cluster) fastPools(sites ...string) {
	c.pools = func(string) []string { return []string{"fast"} }
	for _, s := range sites {
		c.stop(s)
		c.start(s)
	}
	c.until("all have told of their pools", func() error {
		for _, s := range sites {
			site, ok := c.at(s).view.Site(s)
			if !ok || len(site.Gateways) != 1 || len(site.Gateways[0].Pools) != 2 {
				return fmt.Errorf("%s: %+v", s, site)
			}
		}
		return nil
	})
}

// onPool waits until all that a site has of a volume is on a pool.
func (c *cluster) onPool(site, id, pool string) {
	c.t.Helper()
	folders := map[string]string{"main": filepath.Join(c.dir, site), "fast": filepath.Join(c.dir, site+"-fast")}
	c.until(fmt.Sprintf("it is on pool %s of %s", pool, site), func() error {
		if k := kept(c.at(site), id); k.Pool != pool || k.Moves != nil {
			return fmt.Errorf("it is on %q, and moves: %+v", k.Pool, k.Moves)
		}
		for name, at := range folders {
			_, err := os.Stat(filepath.Join(at, "volumes", id))
			if there := err == nil; there != (name == pool) || err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("pool %s has it: %t, %v", name, there, err)
			}
		}
		return nil
	})
}

// TestVolumesMoveToThePoolOfTheirPolicy: a volume is made on the pool that its policy asks for, and
// moves when that changes, at the home, at a member and at a site without a copy, while it is
// written. Nothing fails, nothing is lost, and what was kept to be read stays.
func TestVolumesMoveToThePoolOfTheirPolicy(t *testing.T) {
	t.Parallel()
	c := smallMemory(t, "a", "b", "d", "c")
	c.fastPools("a", "b", "d", "c")
	text := strings.Replace(bounded("v", 2), "spec:\n", "spec:\n  cache: {pool: {tier: fast}}\n", 1)
	id := c.createAt("v", text, []string{"a", "b", "d"})
	a, cl := c.router("a", id), &client{name: "x"}
	const size = 20
	f := fill(t, a, cl, "f", size)
	c.admit("c", id)
	far, other := c.router("c", id), &client{name: "y"}
	follows(c, "c", "a", id)
	for i := range size {
		same(t, far, other, f, i)
	}
	sites := []string{"a", "b", "c"}
	for _, s := range sites {
		c.onPool(s, id, "fast")
	}
	for _, pool := range []string{"main", "fast"} {
		stop := c.load(a, pool)
		c.change(id, func(v *federation.Volume) { v.Spec.Cache.Pool = map[string]string{"tier": pool} })
		for _, s := range sites {
			c.onPool(s, id, pool)
		}
		names := stop()
		t.Logf("%d files were made meanwhile", len(names))
		has(t, c.router("a", id), names)
		has(t, c.router("b", id), names)
		follows(c, "c", "a", id)
		_, before := reads(c, "c", id)
		for i := range size {
			same(t, far, other, f, i)
		}
		if _, after := reads(c, "c", id); after != before {
			t.Errorf("at a site without a copy %d bytes came once more", after-before)
		}
		for _, s := range sites {
			c.stop(s)
			c.start(s)
		}
		far, a = c.router("c", id), c.router("a", id)
		for _, s := range sites {
			c.onPool(s, id, pool)
		}
		has(t, c.router("b", id), names)
	}
	c.change(id, func(v *federation.Volume) { v.Spec.Cache.Pool = map[string]string{"tier": "tape"} })
	c.until("it is told that there is no such pool", func() error {
		k := kept(c.at("a"), id)
		if k.Pool != "fast" || !strings.Contains(k.Unmatched, "tier:tape") || !strings.Contains(k.Unmatched, "pool.labels") {
			return fmt.Errorf("it is on %s: %q", k.Pool, k.Unmatched)
		}
		return nil
	})
	var none *spec.PlaceError
	m, err := spec.Parse([]byte(strings.Replace(manifest("w", 1), "spec:\n", "spec:\n  cache: {pool: {tier: tape}}\n", 1)))
	if err != nil {
		t.Fatal(err)
	}
	c.with(func(r federation.Registry) error {
		var all []federation.Site
		statuses, err := r.Sites(t.Context())
		for _, s := range statuses {
			all = append(all, s.Site)
		}
		_, refused := spec.Place(m, "org-a", all)
		if !errors.As(refused, &none) || !strings.Contains(refused.Error(), "spec.cache.pool (tier=tape)") {
			t.Errorf("a new volume for a pool that is nowhere: %v", refused)
		}
		return err
	})
}

// unwritable is a pool that takes no small writes while it is told so.
type unwritable struct {
	cachepool.Pool
	is *atomic.Bool
}

var errUnwritable = errors.New("it takes no writes")

func (p unwritable) Volume(name string) (cachepool.Dir, error) {
	d, err := p.Pool.Volume(name)
	return unwritableDir{d, p.is, name == "probe"}, err
}

type unwritableDir struct {
	cachepool.Dir
	is    *atomic.Bool
	probe bool
}

func (d unwritableDir) Create(name string) (cachepool.File, error) {
	f, err := d.Dir.Create(name)
	if d.probe && err == nil {
		return unwritableFile{f, d.is}, nil
	}
	return f, err
}

type unwritableFile struct {
	cachepool.File
	is *atomic.Bool
}

func (f unwritableFile) Sync() error {
	if f.is.Load() {
		return errUnwritable
	}
	return f.File.Sync()
}

// TestAPoolThatFailsLeavesTheOthersAlone: a disk that takes no writes ends the promises for the
// volumes that are on it, and for no others.
func TestAPoolThatFailsLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	var is atomic.Bool
	c.pool = func(site string, p cachepool.Pool) cachepool.Pool {
		if site == "b" {
			return unwritable{p, &is}
		}
		return p
	}
	c.fastPools("a", "b")
	both := manifest("x", 2)
	slow := c.createAt("slow", strings.Replace(both, "name: x", "name: slow", 1), []string{"b", "a"})
	onFast := strings.Replace(both, "spec:\n", "spec:\n  cache: {pool: {tier: fast}}\n", 1)
	fast := c.createAt("fast", strings.Replace(onFast, "name: x", "name: fast", 1), []string{"b", "a"})
	cl := &client{name: "x"}
	file(t, c.router("b", slow), cl, "f")
	file(t, c.router("b", fast), cl, "f")
	homeIs := func(id, gateway string) func() error {
		return func() error {
			if home, _ := c.at("a").view.Home(id); home != gateway {
				return fmt.Errorf("it is %s", home)
			}
			return nil
		}
	}
	is.Store(true)
	c.until("the other site is home of what is on the pool that fails", homeIs(slow, "ga"))
	if err := homeIs(fast, "gb")(); err != nil {
		t.Errorf("home of what is on the other pool: %v", err)
	}
	if err := c.at("b").cfg.Health.Ready(); err == nil || !strings.Contains(err.Error(), errUnwritable.Error()) {
		t.Errorf("ready: %v", err)
	}
	if _, err := c.router("b", fast).Lookup(within(t, hang), volume.Request{}, volume.Root, "f"); err != nil {
		t.Error(err)
	}
	is.Store(false)
	c.until("it is ready again", c.at("b").cfg.Health.Ready)
}

// TestToldPools: a gateway registers its pools once there is something to choose by.
func TestToldPools(t *testing.T) {
	t.Parallel()
	open := func(all ...pools.Pool) *Gateway {
		for i := range all {
			disk := crashfs.NewDisk(crashfs.Config{Gateway: "g", Limit: 64 << 20, Rand: mathrand.New(mathrand.NewPCG(1, uint64(i)))})
			p, err := disk.Open()
			if err != nil {
				t.Fatal(err)
			}
			all[i].Pool = p
		}
		p, err := pools.Open(pools.Config{Pools: all, Now: time.Now, Random: rand.Reader, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return &Gateway{pools: p}
	}
	if got := open(pools.Pool{Name: "main"}).told(); got != nil {
		t.Errorf("of one without labels it tells %+v, which earlier releases cannot read", got)
	}
	got := open(pools.Pool{Name: "main", Labels: map[string]string{"tier": "hdd"}}).told()
	if len(got) != 1 || got[0].Labels["tier"] != "hdd" {
		t.Errorf("of one with a label it tells %+v", got)
	}
	if got := open(pools.Pool{Name: "main"}, pools.Pool{Name: "fast"}).told(); len(got) != 2 || got[1].Name != "fast" {
		t.Errorf("of two it tells %+v", got)
	}
}
