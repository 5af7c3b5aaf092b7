// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/upkeep"
	nfsclient "github.com/weir-storage/weir/gateway/nfs/client"
	"github.com/weir-storage/weir/gateway/nfs/xdr"
	"github.com/weir-storage/weir/volume"
)

// observed returns what a site's gateway reported of a volume.
func (c *cluster) observed(site, id string) (is federation.Observed) {
	c.t.Helper()
	c.with(func(reg federation.Registry) error {
		all, err := reg.ListObserved(context.Background(), id)
		for _, o := range all {
			if o.Gateway == "g"+site {
				is = o
			}
		}
		return err
	})
	return is
}

// TestQuotaOfFiles: a volume takes as many files as its owner says now, at every site, and clients
// are told what there is. What is above stays, and can be removed.
func TestQuotaOfFiles(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	c.members(id, "a", "b")
	c.admit("b", id)
	ctx := within(t, 4*hang)
	allow := func(files int64) {
		t.Helper()
		c.change(id, func(v *federation.Volume) { v.Spec.Quota.Files = files })
		for _, site := range []string{"a", "b"} {
			r := c.router(site, id)
			c.until("the quota is in force at "+site, func() error {
				if s, err := r.Copy().Engine.Space(ctx); err != nil || s.TotalInodes != (upkeep.Quota{Files: files}).Inodes() {
					return fmt.Errorf("there may be %d: %w", s.TotalInodes, err)
				}
				return nil
			})
		}
	}
	nfs, root := c.mount(ctx, "b", "client", "v")
	made := 0
	fill := func(want int) {
		t.Helper()
		for ; ; made++ {
			f, err := nfs.Open(ctx, root, fmt.Sprint("f", made), nfsclient.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH, Create: true})
			if errors.Is(err, xdr.NFS4ERR_NOSPC) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if made != want {
			t.Fatalf("%d files could be made, want %d", made, want)
		}
	}
	allow(10)
	fill(9) // and the root
	space, err := c.router("b", id).Space(ctx)
	if err != nil || space.TotalInodes != 10 || space.FreeInodes != 0 || space.FreeBytes == 0 {
		t.Errorf("clients see %+v, %v", space, err)
	}
	c.until("the home reports the files", func() error {
		if a, b := c.observed("a", id).Files, c.observed("b", id).Files; max(a, b) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	allow(12)
	fill(11)
	allow(5) // all that is there stays
	if _, err := nfs.Open(ctx, root, "more", nfsclient.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH,
		Create: true}); !errors.Is(err, xdr.NFS4ERR_NOSPC) {
		t.Errorf("above its quota the volume takes a file: %v", err)
	}
	if space, err = c.router("a", id).Space(ctx); err != nil || space.TotalInodes != 5 || space.FreeInodes != 0 {
		t.Errorf("clients see %+v, %v", space, err)
	}
	for made > 3 {
		made--
		if _, err := nfs.Remove(ctx, root, fmt.Sprint("f", made)); err != nil {
			t.Fatal(err)
		}
	}
	c.until("removed files do not count any more", func() error {
		if s, err := c.router("b", id).Space(ctx); err != nil || s.FreeInodes != 1 {
			return fmt.Errorf("%d are free: %w", s.FreeInodes, err)
		}
		return nil
	})
	fill(4)
	allow(0)
	if _, err := nfs.Open(ctx, root, "more", nfsclient.OpenArgs{Access: xdr.OPEN4_SHARE_ACCESS_BOTH, Create: true}); err != nil {
		t.Errorf("without a quota: %v", err)
	}
}

// TestCompactionByPolicy: live blocks move in the hours of which the volume's owner says so, and a
// change of these counts for what was planned.
func TestCompactionByPolicy(t *testing.T) {
	c := newCluster(t)
	c.due = packsEarly
	c.add("a")
	now := time.Now().UTC()
	hours := func(from, until time.Duration) string {
		return now.Add(from).Format("15:04") + "-" + now.Add(until).Format("15:04")
	}
	id := c.create("v", rolling("v", 1))
	c.change(id, func(v *federation.Volume) { v.Spec.Compaction.Hours = hours(2*time.Hour, 22*time.Hour) })
	o := &overwritten{c: c, id: id, rng: rand.New(rand.NewPCG(5, 6)), calls: &client{name: "x"}}
	r := c.router("a", id)
	c.until("the hours are in force", func() error {
		if v := c.at("a").view.Volume(id); v.Record.Spec.Compaction.Hours == "" {
			return errors.New("not yet")
		}
		return nil
	})
	for i := range 4 {
		o.model = append(o.model, make([]byte, 512<<10))
		o.files = append(o.files, file(t, r, o.calls, fmt.Sprint("file ", i)))
		if _, err := r.Write(t.Context(), o.calls.next(), o.files[i], 0, o.model[i], true); err != nil {
			t.Fatal(err)
		}
	}
	o.overwrite("a", 8<<20)
	planned := func() int { return c.at("a").copies.Checkpoints().Condition(id).Planned }
	end := rarely(func(n int) {
		file(t, r, o.calls, fmt.Sprint("tick ", n%4))
		r.Copy().Replica.Roll()
	})
	c.until("packs are planned", func() error {
		end()
		if planned() == 0 {
			return errors.New("none is")
		}
		return nil
	})
	time.Sleep(10 * packsEarly.Every) // rounds in which they would be made
	if packs := o.packsAt("a"); len(packs) > 0 || planned() == 0 {
		t.Errorf("outside of the hours, %d packs are made, and %d are planned", len(packs), planned())
	}
	c.change(id, func(v *federation.Volume) { v.Spec.Compaction.Hours = hours(-2*time.Hour, 2*time.Hour) })
	o.settled("a", "a")
	o.same(c.router("a", id), volume.Root, o.model)
}

// TestScrubIsReported: what gateways find when they read their copies again is in the registry,
// whether they are home or not. It is there too when they have restarted.
func TestScrubIsReported(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.look = 100 * time.Millisecond
	for _, s := range []string{"a", "b"} {
		c.add(s)
	}
	id := c.createAt("v", manifest("v", 2), []string{"a", "b"})
	c.change(id, func(v *federation.Volume) { v.Spec.Scrub.Rate = upkeep.MaxRate })
	c.members(id, "a", "b")
	c.fill("a", id, 0, 6)
	home := c.homeOf("a", id)[1:]
	other := map[string]string{"a": "b", "b": "a"}[home]
	c.settledAt(home, id, other)
	where, off := c.holding(other, id, 1)
	report := func(what string, is func(*upkeep.Scrubbed) bool) {
		t.Helper()
		for _, site := range []string{home, other} {
			c.until(what+" at "+site, func() error {
				if s := c.observed(site, id).Scrub; s == nil || !is(s) {
					return fmt.Errorf("it is %+v", s)
				}
				return nil
			})
		}
	}
	// Each gateway reads its copy when it starts.
	c.stop(other)
	whole := c.flip(other, id, where.Seq, off)
	c.start(other)
	c.router(other, id)
	report("all was read", func(s *upkeep.Scrubbed) bool { return !s.Ended.IsZero() && !s.Bad() })
	c.until("what is healed is told", func() error {
		if s := c.observed(other, id).Scrub; s == nil || s.Healed == 0 || s.Segments == 0 {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
	if is, err := os.ReadFile(c.poolFile(other, id, where.Seq)); err != nil || !bytes.Equal(is, whole) {
		t.Errorf("the segment is not as it was: %v", err)
	}
	healed := c.observed(other, id).Scrub.Healed
	c.stop(other)
	c.start(other)
	c.router(other, id)
	c.until("it is known after a restart", func() error {
		if s := c.at(other).scrubber.Scrubbed(id); s == nil || s.Healed != healed || s.Segments == 0 ||
			c.observed(other, id).Scrub.Healed != healed {
			return fmt.Errorf("it is %+v", s)
		}
		return nil
	})
}
