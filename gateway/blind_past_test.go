// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-storage/weir/engine/segment"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/report"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// newPast returns a volume whose home, at the first site, has dropped segments of which live blocks
// moved into packs. The last site has a copy that was away meanwhile.
func newPast(t *testing.T, away string, others ...string) *overwritten {
	t.Helper()
	c := newCluster(t)
	c.due = packsEarly
	for _, s := range append([]string{"a", away}, others...) {
		c.add(s)
	}
	c.signed()
	id := c.createAt("v", rolling("v", 1), []string{"a", away})
	o := &overwritten{c: c, id: id, rng: rand.New(rand.NewPCG(3, 4)), calls: &client{name: "x"}}
	o.begin("a", 6)
	c.whole("a", id, away)
	c.stop(away)
	o.overwrite("a", 8<<20)
	o.settled("a", "a")
	if base := c.at("a").copies.Copy(id).Log.Base(); base == (segment.Position{}) {
		t.Fatal("nothing was dropped")
	}
	return o
}

// joins adds a copy without a key.
func joins(v *federation.Volume, site string) {
	v.Sites, v.Blind = append(v.Sites, site), []string{site}
	v.Grants = slices.DeleteFunc(v.Grants, func(g federation.Grant) bool { return g.Site == site })
}

// hosts waits until the copy without a key at a site has the whole past, and a checkpoint.
func (o *overwritten) hosts(home, site string) {
	c := o.c
	c.t.Helper()
	c.isBlind(o.id, site, true)
	c.whole(home, o.id, site)
	c.until("a checkpoint is noted at "+site, func() error {
		s, _ := c.at(site).copies.State(o.id)
		if s.Copy == nil {
			return s.Problem
		}
		if n := s.Copy.Log.AbsentBytes(); n != 0 || s.Copy.Log.Base() == (segment.Position{}) {
			return fmt.Errorf("it lacks %d bytes, and its log's base is %v", n, s.Copy.Log.Base())
		}
		_, err := c.at(site).blind.Newest(c.t.Context(), o.id)
		return err
	})
	has := o.packsAt(site)
	table, err := c.router(home, o.id).Copy().Engine.Packs()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range table.All {
		found := false
		for name, size := range has {
			found = found || strings.Contains(name, fmt.Sprintf("%x", p.Hash[:8])) && uint64(size) == p.Len
		}
		if p.Condemned == 0 && !found {
			c.t.Errorf("the store of %s lacks pack %d", site, p.Number)
		}
	}
}

// TestBlindCopyBehindWhatWasDropped: a volume that has dropped something gets a copy without a key.
// It begins with the checkpoint, gets all packs, and becomes a member. The home is lost. The copy
// leads as a steward, and a keyed copy that was away for all of that begins anew with the
// checkpoint that the steward kept. Then the copy gets the key, and reads everything.
func TestBlindCopyBehindWhatWasDropped(t *testing.T) {
	o := newPast(t, "c", "b")
	c, id := o.c, o.id
	c.change(id, func(v *federation.Volume) {
		joins(v, "b")
		v.Spec.Durability.Acknowledge, v.Spec.Durability.Sites = federation.AcknowledgeSites, 2
	})
	o.hosts("a", "b")
	c.members(id, "a", "b")
	o.overwrite("a", 1<<20)
	c.stop("b") // what it noted stays
	c.start("b")
	o.hosts("a", "b")
	c.members(id, "a", "b")
	c.stop("a")
	c.until("b leads", func() error {
		if s := c.at("b").reporter.Status(id); len(s) != 1 || s[0].Role != report.Steward {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	c.start("c")
	o.same(c.router("c", id), volume.Root, o.model)
	c.members(id, "b", "c")
	o.checked("c")
	o.overwrite("c", 1<<20)

	c.blind(id)
	c.isBlind(id, "b", false)
	o.same(c.router("b", id), volume.Root, o.model)
	o.checked("b")
	dir, err := c.at("b").pools.Volume(id)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := c.at("b").blind.Noted(dir); err != nil || h != [32]byte{} {
		t.Errorf("a copy that has the key still has a note: %x, %v", h, err)
	}
}

// TestBlindCopyKeepsTwoCheckpoints: it keeps up with the home's checkpoints, and its store has the
// objects of the two newest.
func TestBlindCopyKeepsTwoCheckpoints(t *testing.T) {
	o := newPast(t, "c", "b")
	c, id := o.c, o.id
	c.change(id, func(v *federation.Volume) { joins(v, "b") })
	o.hosts("a", "b")
	for range 4 {
		before := c.checkpointed("a", id, 0).Made.Number
		o.overwrite("a", 2<<20)
		c.router("a", id).Copy().Replica.Roll()
		made := c.checkpointed("a", id, before).Made
		tick := rarely(func(n int) {
			file(t, c.router("a", id), o.calls, fmt.Sprint("tick ", n%4))
			c.router("a", id).Copy().Replica.Roll()
		})
		c.until("b keeps the checkpoint", func() error {
			tick()
			r, err := c.at("b").blind.Newest(t.Context(), id)
			if err == nil && r.GetNumber() < made.Number {
				err = fmt.Errorf("it has number %d, and not %d", r.GetNumber(), made.Number)
			}
			return err
		})
	}
	c.until("b has two manifests", func() error {
		n := 0
		if err := c.nodes["b"].store.List(t.Context(), id+"/m/", func(store.Info) error { n++; return nil }); err != nil {
			return err
		}
		if n != 2 {
			return fmt.Errorf("it has %d", n)
		}
		return nil
	})
	o.hosts("a", "b")
}

// roomless has no room for packs while full is set.
type roomless struct {
	store.Store
	full *atomic.Bool
}

func (s roomless) Put(ctx context.Context, name string, size int64, body io.ReadSeeker) error {
	if s.full.Load() && strings.Contains(name, "/p/") {
		return errors.New("there is no room for packs")
	}
	return s.Store.Put(ctx, name, size, body)
}

// TestKeyForACopyThatLacksThePast: a copy without a key began behind what was dropped, and gets the
// key before it has all. It begins anew with a checkpoint, and reads everything.
func TestKeyForACopyThatLacksThePast(t *testing.T) {
	o := newPast(t, "c", "b")
	c, id := o.c, o.id
	var full atomic.Bool
	full.Store(true)
	c.stop("b")
	c.store = func(site string, s store.Store) store.Store {
		if site == "b" {
			return roomless{s, &full}
		}
		return s
	}
	c.start("b")
	c.change(id, func(v *federation.Volume) { joins(v, "b") })
	c.until("b begins", func() error {
		if s, _ := c.at("b").copies.State(id); s.Copy == nil || s.Copy.Log.AbsentBytes() == 0 {
			return fmt.Errorf("it does not lack anything: %w", s.Problem)
		}
		return nil
	})
	o.overwrite("a", 1<<20)
	c.until("b has what is written since", func() error {
		s, _ := c.at("b").copies.State(id)
		if end := c.at("a").copies.Copy(id).Log.End(); s.Copy == nil || s.Copy.Log.Durable().Less(end) || s.Copy.Log.Bare() {
			return fmt.Errorf("it has not what is before %v: %w", end, s.Problem)
		}
		return nil
	})
	c.stop("b")
	c.blind(id)
	c.start("b")
	c.isBlind(id, "b", false)
	full.Store(false)
	o.same(c.router("b", id), volume.Root, o.model)
	c.whole("a", id, "b")
	o.checked("b")
}

// TestBlindCopyWithoutAStore: it can not begin behind what was dropped, and says why.
func TestBlindCopyWithoutAStore(t *testing.T) {
	o := newPast(t, "c", "b")
	c, id := o.c, o.id
	c.stop("b")
	c.store = func(site string, s store.Store) store.Store {
		if site == "b" {
			return nil
		}
		return s
	}
	c.start("b")
	c.change(id, func(v *federation.Volume) { joins(v, "b") })
	c.until("b says why it has no copy", func() error {
		if s, _ := c.at("b").copies.State(id); s.Problem == nil || !strings.Contains(s.Problem.Error(), "only where the site has a store") {
			return fmt.Errorf("it says %w", errors.Join(s.Problem, errors.New("nothing of a store")))
		}
		return nil
	})
}
