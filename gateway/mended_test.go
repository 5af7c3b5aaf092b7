// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/gateway/checking"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// counting returns the names of the packs that count, as a site's metadata say.
func (o *overwritten) counting(site string) (names []string) {
	o.c.t.Helper()
	e := o.c.router(site, o.id).Copy().Engine
	table, err := e.Packs()
	if err != nil {
		o.c.t.Fatal(err)
	}
	for _, is := range table.All {
		if is.Condemned == 0 {
			names = append(names, pack.Name([16]byte(e.ID()), is.Hash))
		}
	}
	return names
}

// damagePacks damages most of the blocks of all packs that count in a site's store.
func (o *overwritten) damagePacks(site string) {
	o.c.t.Helper()
	in := o.c.nodes[site].store
	for _, name := range o.counting(site) {
		i, err := in.Stat(o.c.t.Context(), name)
		b := make([]byte, i.Size)
		if err == nil {
			err = in.GetRange(o.c.t.Context(), name, 0, b)
		}
		if err == nil {
			err = in.Delete(o.c.t.Context(), name)
		}
		for n := len(b) / 8; n < len(b); n += 256 {
			b[n] ^= 1
		}
		if err == nil {
			err = in.Put(o.c.t.Context(), name, int64(len(b)), bytes.NewReader(b))
		}
		if err != nil {
			o.c.t.Fatal(err)
		}
	}
}

// wholePacks returns how many of the packs that count are whole in a site's store, and how many
// there are.
func (o *overwritten) wholePacks(site string) (n, all int) {
	o.c.t.Helper()
	in := o.c.nodes[site].store
	names := o.counting(site)
	for _, name := range names {
		of, hash, err := pack.ParseName(name)
		if err != nil {
			o.c.t.Fatal(err)
		}
		i, err := in.Stat(o.c.t.Context(), name)
		if err == nil && pack.Verify(of, hash, uint64(i.Size), func(p []byte, off uint64) error {
			return in.GetRange(o.c.t.Context(), name, int64(off), p)
		}) == nil {
			n++
		}
	}
	return n, len(names)
}

// TestDamagedPacks: a pack that is damaged in a site's store, or missing, is read from another
// copy, and replaced: when a read finds it, or when a person asks for a check with --repair.
func TestDamagedPacks(t *testing.T) {
	c := newCluster(t)
	c.due = packsEarly
	for _, s := range []string{"a", "b"} {
		c.add(s)
	}
	id := c.createAt("v", rolling("v", 2), []string{"a", "b"})
	o := &overwritten{c: c, id: id, rng: rand.New(rand.NewPCG(5, 6)), calls: &client{name: "x"}}
	o.begin("a", 6)
	o.overwrite("a", 6<<20)
	o.settled("a", "a", "b")
	all := func(site string) {
		t.Helper()
		if n, all := o.wholePacks(site); n != all || all == 0 {
			t.Fatalf("%d of %d packs at %s are whole", n, all, site)
		}
	}
	for _, site := range []string{"a", "b"} {
		c.until("packs are in the store of "+site, func() error {
			if n, all := o.wholePacks(site); n != all || all == 0 {
				return fmt.Errorf("%d of %d", n, all)
			}
			return nil
		})
	}

	// A read finds it.
	o.damagePacks("b")
	if n, _ := o.wholePacks("b"); n > 0 {
		t.Fatalf("%d packs are whole", n)
	}
	o.same(c.router("b", id), volume.Root, o.model)
	c.until("a pack is replaced that a read found damaged", func() error {
		if n, _ := o.wholePacks("b"); n == 0 {
			return errors.New("none is whole")
		}
		return nil
	})

	// A check finds the others.
	report := c.checked("b", id, true, true)
	for _, d := range report.Damage {
		if d.Kind != checking.KindPack || !d.Repaired || d.Where != checking.Store {
			t.Errorf("%+v", d)
		}
	}
	all("b")
	if report = c.checked("b", id, true, false); report.Left() > 0 || report.Packs == 0 {
		t.Errorf("%+v", report)
	}

	// The home gets them from the other copy. Without its data nobody sees that a pack is damaged.
	o.damagePacks("a")
	c.damages(c.checked("a", id, false, true))
	c.damages(c.checked("a", id, true, true), "store Pack true")
	all("a")
	names := o.counting("a")
	if err := c.nodes["a"].store.Delete(t.Context(), names[0]); err != nil {
		t.Fatal(err)
	}
	c.damages(c.checked("a", id, false, false), "store Pack false")
	if report = c.checked("a", id, false, true); report.Left() > 0 { // or what tends packs was faster
		t.Errorf("%+v", report)
	}
	all("a")

	// What no copy has stays as it is: most of it can be read.
	c.stop("b")
	before := o.counting("a")
	o.damagePacks("a")
	report = c.checked("a", id, true, true)
	if n, all := o.wholePacks("a"); report.Left() == 0 && n < all { // the newest may be made again of what is not dropped yet
		t.Errorf("%d of %d packs are whole, and the check says %+v", n, all, report)
	}
	for _, name := range before {
		if _, err := c.nodes["a"].store.Stat(t.Context(), name); err != nil {
			t.Errorf("pack %s, which no copy has: %v", name, err)
		}
	}
	c.start("b")
	c.until("the packs come from the other copy", func() error {
		if n, all := o.wholePacks("a"); n < all {
			return fmt.Errorf("%d of %d are whole", n, all)
		}
		return nil
	})
	o.same(c.router("a", id), volume.Root, o.model)
	o.same(c.router("b", id), volume.Root, o.model)
}

// undeleted is a store that deletes nothing while it is told not to.
type undeleted struct {
	store.Store
	off *atomic.Bool
}

func (u undeleted) Delete(ctx context.Context, name string) error {
	if u.off.Load() {
		return &store.Error{Op: "delete", Store: "test", Name: name, Err: store.ErrUnavailable}
	}
	return u.Store.Delete(ctx, name)
}

// TestRepairThatIsInterrupted: a repair notes that the store does not have a segment, and ends
// before it deleted what is damaged there. Nobody takes that for the segment, which stays on the
// pool; a gateway that starts again replaces it.
func TestRepairThatIsInterrupted(t *testing.T) {
	t.Parallel()
	var off atomic.Bool
	c := newClusterOf(t, 5*time.Second)
	c.store = func(_ string, s store.Store) store.Store { return undeleted{s, &off} }
	c.add("a")
	c.add("b")
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	c.fill("a", id, 0, 10)
	c.settledAt("a", id, "a")
	c.settledAt("a", id, "b")
	s, at := c.holding("b", id, 4)
	whole, err := os.ReadFile(c.poolFile("b", id, s.Seq))
	if err != nil {
		t.Fatal(err)
	}
	c.spoil("b", s, at)
	off.Store(true)
	c.damages(c.checked("b", id, true, true), "store Segment false", "store Unreadable false /file 4")
	off.Store(false)
	c.fill("a", id, 10, 12)
	c.settledAt("a", id, "b") // later ones are uploaded
	if now, _ := c.router("b", id).Copy().Log.Segment(s.Seq); now.Uploaded || !now.Local {
		t.Fatalf("what is damaged in the store counts: %+v", now)
	}
	c.stop("b")
	c.start("b")
	c.until("the store of b has the segment", func() error {
		copied := c.at("b").copies.Copy(id)
		if copied == nil {
			return errors.New("no copy is open")
		}
		if now, _ := copied.Log.Segment(s.Seq); !now.Uploaded {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
	if !c.inStore("b", s, whole) {
		t.Error("it counts as stored, and is damaged there")
	}
	c.damages(c.checked("b", id, true, false))
}
