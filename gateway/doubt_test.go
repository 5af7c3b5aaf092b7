// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-storage/weir/cachepool"
	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// TestACopyWhoseDiskWentBackIsRefused: a member's folder goes back to an earlier state, watermark
// and all, so nothing on its pool tells. The home refuses it. It is kept aside, begins anew, and
// counts again when it has everything.
func TestACopyWhoseDiskWentBackIsRefused(t *testing.T) {
	t.Parallel()
	diskWentBack(t, func(*cluster) {})
}

// diskWentBack is a story of a member whose disk went back. before is called before it starts.
func diskWentBack(t *testing.T, before func(c *cluster)) {
	c := newClusterOf(t, 10*time.Second, "a", "b") // long, so that b cannot take over on a busy machine
	id := c.create("v", manifest("v", 2))
	cl := &client{name: "a"}
	early := file(t, c.router("a", id), cl, "early")
	c.stop("b")
	folder, old := filepath.Dir(c.segments("b", id)[0]), filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	c.start("b")
	late := file(t, c.router("a", id), cl, "late") // waits until b has it
	c.stop("b")
	if err := errors.Join(os.RemoveAll(folder), os.CopyFS(folder, os.DirFS(old))); err != nil {
		t.Fatal(err)
	}
	before(c)
	c.start("b")
	c.until("the copy that lost something is kept aside, and b has a new one", func() error {
		if len(c.at("b").copies.Salvaged(id)) == 0 || c.at("b").copies.Copy(id) == nil {
			return errors.New("not yet")
		}
		return nil
	})
	file(t, c.router("a", id), cl, "later") // waits until b counts again
	for _, s := range c.order {
		readable(t, c.router(s, id), early)
		readable(t, c.router(s, id), late)
	}
}

// forgetful is a pool on which it cannot be noted that a log was given up, before that was tried
// for so many times.
type forgetful struct {
	cachepool.Pool
	failures int
	again    *[]bool // for each attempt whether it was made before the log took part
}

func (p forgetful) Volume(uuid string) (cachepool.Dir, error) {
	d, err := p.Pool.Volume(uuid)
	return forgetfulDir{d, p}, err
}

type forgetfulDir struct {
	cachepool.Dir
	pool forgetful
}

func (d forgetfulDir) Open(name string) (cachepool.File, error) {
	f, err := d.Dir.Open(name)
	return forgetfulFile{f, d.pool}, err
}

type forgetfulFile struct {
	cachepool.File
	pool forgetful
}

func (f forgetfulFile) WriteAt(p []byte, off int64) (int, error) {
	if inside(".(*Log).Disown") {
		if *f.pool.again = append(*f.pool.again, inside(".(*Manager).noteAgain")); len(*f.pool.again) <= f.pool.failures {
			return 0, syscall.EIO
		}
	}
	return f.File.WriteAt(p, off)
}

// TestACopyIsGivenUpAlthoughThatIsNotNoted: the home refuses a log, and that cannot be noted on the
// pool. It does not take part again as if nothing had happened.
func TestACopyIsGivenUpAlthoughThatIsNotNoted(t *testing.T) {
	t.Parallel()
	for failures := 1; failures <= 2; failures++ {
		var again []bool
		diskWentBack(t, func(c *cluster) {
			c.pool = func(_ string, p cachepool.Pool) cachepool.Pool { return forgetful{p, failures, &again} }
		})
		// It stays closed while it is a member, and is then made anew: so it need not be noted.
		if len(again) < 2 || again[0] || slices.Contains(again[1:], false) {
			t.Errorf("after %d failures it is noted before the log takes part again: %v", failures, again)
		}
	}
}

// TestACopyIsMadeAnewInAFullPool: a copy that takes most of the pool damages what it had stored.
// What the store has of it leaves the pool, once the store says so, and there is room for the new
// copy.
func TestACopyIsMadeAnewInAFullPool(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, 10*time.Second, "a", "b")
	c.limit = 100 << 20
	unlisted := new(atomic.Bool)
	c.store = func(_ string, s store.Store) store.Store { return listing{s, unlisted} }
	for _, s := range c.order {
		c.stop(s)
		c.start(s)
	}
	id := c.create("v", manifest("v", 2))
	cl := &client{name: "a"}
	r := c.router("a", id)
	f := file(t, r, cl, "f")
	const mib = 80
	for i := range mib {
		data := make([]byte, 1<<20)
		_, _ = rand.Read(data) // never fails; what can be compressed takes no room
		if _, err := r.Write(within(t, hang), cl.next(), f, uint64(i)<<20, data, true); err != nil {
			t.Fatalf("MiB %d: %v", i, err)
		}
	}
	b := c.at("b")
	c.until("b's store has all but the last segment", func() error {
		if n := b.copies.Copy(id).Replica.UploadQueue(); n > 0 {
			return fmt.Errorf("%d bytes wait", n)
		}
		return nil
	})
	c.stop("b")
	segments := c.segments("b", id)
	damage(t, segments, -10)
	unlisted.Store(true)
	c.start("b")
	c.until("the damaged copy is set aside", func() error {
		if len(c.at("b").copies.Salvaged(id)) != 1 {
			return errors.New("it is not")
		}
		return nil
	})
	time.Sleep(time.Second) // in it the store is asked, and fails
	aside := func() []string {
		folders, err := filepath.Glob(filepath.Join(c.dir, "b", "volumes", "salvage-*", "*.seg"))
		if err != nil {
			t.Fatal(err)
		}
		return folders
	}
	if n := len(aside()); n != len(segments) {
		t.Errorf("the store lists nothing, and of %d segments %d are set aside", len(segments), n)
	}
	unlisted.Store(false)
	c.until("b has a new copy with all there is", func() error {
		if all := c.at("b").reporter.Status(id); len(all) != 1 || all[0].Commit != c.at("a").reporter.Status(id)[0].Commit {
			return fmt.Errorf("it is %+v", all)
		}
		return nil
	})
	c.until("what the store has of the old copy leaves the pool, and the rest stays", func() error { // perhaps after the new one is there
		if n := len(aside()); n == 0 || n >= len(segments) {
			return fmt.Errorf("of %d segments %d are set aside", len(segments), n)
		}
		return nil
	})
	file(t, c.router("a", id), cl, "later") // b counts again
}

// TestAPersonBelievesALogInDoubt: all members of a volume damaged what they had stored. Only a
// person gives up what is lost; then the volume goes on with what is left.
func TestAPersonBelievesALogInDoubt(t *testing.T) {
	t.Parallel()
	for _, members := range []int{1, 2} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "a", "b")
			id := c.create("v", manifest("v", members))
			cl := &client{name: "a"}
			h := file(t, c.router("a", id), cl, "kept")
			sites := c.order[:members]
			c.stop("b")
			c.stop("a")
			for _, s := range sites {
				c.start(s)
			}
			readable(t, c.router("a", id), h)
			segments := c.segments("a", id)
			before := written(t, segments[len(segments)-1])
			file(t, c.router("a", id), cl, "lost")
			for _, s := range sites {
				c.stop(s)
				damage(t, c.segments(s, id), before+10)
			}
			for _, s := range c.order {
				c.start(s)
			}
			c.doubted(id, sites...)
			c.until("b's copy is open, or in doubt", func() error {
				if all := c.at("b").reporter.Status(id); len(all) != 1 || all[0].Problem != "" && !all[0].Doubt {
					return fmt.Errorf("it is %+v", all)
				}
				return nil
			})
			if err := c.failover(t, "a", id, false); err == nil || !strings.Contains(err.Error(), "--accept-loss") {
				t.Fatalf("without --accept-loss: %v", err)
			}
			if err := c.failover(t, "a", id, true); err != nil {
				t.Fatal(err)
			}
			r := c.router("a", id)
			readable(t, r, h)
			if _, err := r.Lookup(within(t, hang), volume.Request{}, volume.Root, "lost"); !errors.Is(err, volume.ErrNotExist) {
				t.Errorf("what was lost: %v", err)
			}
			file(t, r, cl, "later")
			readable(t, c.router("b", id), h)
		})
	}
}

// TestAWholeMemberGoesOn: a person cannot make a home of a log in doubt while a member is whole, or
// may be, nor of one that has less than another copy.
func TestAWholeMemberGoesOn(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, 10*time.Second, "a", "b") // long, so that b does not take over before it is asked
	id := c.create("v", manifest("v", 2))
	cl := &client{name: "a"}
	h := file(t, c.router("a", id), cl, "kept")
	c.stop("a")
	damage(t, c.segments("a", id), -10)
	c.start("a")
	c.doubted(id, "a")
	if err := c.failover(t, "a", id, true); err == nil || !strings.Contains(err.Error(), "gb at site b has a copy that is not in doubt") {
		t.Fatalf("a person makes a home of a log in doubt: %v", err)
	}
	c.until("b goes on", func() error {
		if home, _ := c.at("b").view.Home(id); home != "gb" {
			return errors.New("home is " + home)
		}
		return nil
	})
	readable(t, c.router("a", id), h)
	file(t, c.router("b", id), cl, "later")
}

// TestTheLongerOfTwoIsKept: both members lost something. A person cannot go on with the one that
// has less, or nothing.
func TestTheLongerOfTwoIsKept(t *testing.T) {
	t.Parallel()
	for says, spoil := range map[string]func(t *testing.T, segments []string, before int64){
		"nothing is left of its copy":   func(t *testing.T, segments []string, _ int64) { damage(t, segments[:1], 9) },
		"gateway gb at site b has more": func(t *testing.T, segments []string, before int64) { damage(t, segments, before+10) },
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "a", "b")
			id := c.create("v", manifest("v", 2))
			cl := &client{name: "a"}
			h := file(t, c.router("a", id), cl, "kept")
			segments := c.segments("a", id)
			before := written(t, segments[len(segments)-1])
			for i := range 5 {
				file(t, c.router("a", id), cl, fmt.Sprint("more", i))
			}
			for _, s := range c.order {
				c.stop(s)
			}
			spoil(t, segments, before)
			damage(t, c.segments("b", id), -10)
			for _, s := range c.order {
				c.start(s)
			}
			c.doubted(id, c.order...)
			if err := c.failover(t, "a", id, true); err == nil || !strings.Contains(err.Error(), says) {
				t.Fatalf("the shorter one is kept: %v", err)
			}
			if err := c.failover(t, "b", id, true); err != nil {
				t.Fatal(err)
			}
			readable(t, c.router("b", id), h)
			file(t, c.router("a", id), cl, "later")
		})
	}
}

// TestACopyWithMoreIsNotGivenUp: the only member lost something that a follower has.
func TestACopyWithMoreIsNotGivenUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.create("v", manifest("v", 1))
	cl := &client{name: "a"}
	h := file(t, c.router("a", id), cl, "kept")
	c.until("b has all", func() error {
		if b := c.at("b").reporter.Status(id); len(b) != 1 || b[0].End != c.at("a").reporter.Status(id)[0].End {
			return fmt.Errorf("it has %+v", b)
		}
		return nil
	})
	c.stop("a")
	damage(t, c.segments("a", id), -10)
	c.start("a")
	c.doubted(id, "a")
	if err := c.failover(t, "a", id, true); err == nil || !strings.Contains(err.Error(), "gateway gb at site b has more") {
		t.Fatalf("what b has is given up: %v", err)
	}
	if err := c.failover(t, "b", id, true); err != nil {
		t.Fatal(err)
	}
	readable(t, c.router("b", id), h)
	readable(t, c.router("a", id), h)
}

// doubted waits until sites' gateways tell that they do not believe their logs of a volume.
func (c *cluster) doubted(id string, sites ...string) {
	c.t.Helper()
	for _, s := range sites {
		c.until("the doubt is told at "+s, func() error {
			if all := c.at(s).reporter.Status(id); len(all) != 1 || !all[0].Doubt {
				return fmt.Errorf("it is %+v", all)
			}
			return nil
		})
	}
}

// written is how much of a log's last segment is written.
func written(t *testing.T, file string) int64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	got, err := segment.Scan(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return int64(got.Valid)
}

// damage changes a byte of a log's last segment; at counts from its end if it is negative.
func damage(t *testing.T, segments []string, at int64) {
	t.Helper()
	last := segments[len(segments)-1]
	text, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	if at < 0 {
		at += written(t, last)
	}
	text[at] ^= 1
	if err := os.WriteFile(last, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// listing is a store that cannot be listed while failing is set.
type listing struct {
	store.Store
	failing *atomic.Bool
}

func (s listing) List(ctx context.Context, prefix string, fn func(store.Info) error) error {
	if s.failing.Load() {
		return errors.New("the store does not answer")
	}
	return s.Store.List(ctx, prefix, fn)
}
