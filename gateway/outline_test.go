// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/metrics"
	"github.com/weir-storage/weir/volume"
)

// bounded is a rolling manifest whose readers may be shown an earlier state.
func bounded(name string, members int) string {
	return strings.Replace(rolling(name, members), "spec:\n", "spec:\n  consistency: {mode: Bounded, maxStaleness: 20s}\n", 1)
}

// follows waits until a site without a copy has what a volume's home has.
func follows(c *cluster, site, home, id string) {
	c.t.Helper()
	c.until(site+" has what is committed at "+home, func() error {
		o := c.at(site).copies.Outline(id)
		if o == nil {
			return errors.New("it follows nothing")
		}
		pos, ok := o.Follower.Bounded()
		if end := c.at(home).copies.Copy(id).Log.End(); !ok || pos.Less(end) {
			return fmt.Errorf("%v of %v, %v", pos, end, ok)
		}
		return nil
	})
}

// reads returns what a site without a copy asked others for: operations, and bytes of blocks.
func reads(c *cluster, site, id string) (operations, bytes uint64) {
	for _, m := range c.read(site)[metrics.Forwarded.Name].GetMetric() {
		operations += m.GetHistogram().GetSampleCount()
	}
	return operations, kept(c.at(site), id).Reads.ElsewhereBytes
}

// At a site without a copy, names are there, and what was read stays: a second read asks nobody for
// anything, also after a restart.
func TestCacheWithoutACopy(t *testing.T) {
	t.Parallel()
	c := smallMemory(t, "a", "b", "d", "c")
	id := c.createAt("far", bounded("far", 2), []string{"a", "b", "d"})
	a, cl := c.router("a", id), &client{name: "x"}
	const size = 20
	f := fill(t, a, cl, "f", size)
	c.admit("c", id)
	at, far := c.router("c", id), &client{name: "y"}
	follows(c, "c", "a", id)
	before, _ := reads(c, "c", id)
	attr, err := at.Lookup(within(t, hang), volume.Request{}, volume.Root, "f")
	if err != nil || attr.Handle != f || attr.Size != size<<20 {
		t.Fatalf("%+v, %v", attr, err)
	}
	for n := range size {
		same(t, at, far, f, n)
	}
	operations, first := reads(c, "c", id)
	if operations != before || first < size<<20 || first > size<<20*11/10 {
		t.Errorf("the first read of %d MiB asked the home for %d operations, and brought %d bytes", size, operations-before, first)
	}
	if k := kept(c.at("c"), id); k.Once+k.Often < size<<20 || k.Metadata == 0 || k.Log != 0 {
		t.Errorf("kept: %+v", k)
	}
	again := func(when string, r *routing.Router) {
		t.Helper()
		before, was := reads(c, "c", id)
		// What registers locks at any time, such as when this gateway has recovered, is no read.
		if _, err := r.Once(within(t, hang), func(context.Context, forward.Home) error { return nil }); err != nil {
			t.Error(err)
		}
		for n := range size {
			same(t, r, far, f, size-1-n)
		}
		if attr, err := r.GetAttr(within(t, hang), volume.Request{}, f); err != nil || attr.Size != size<<20 {
			t.Errorf("%s: %+v, %v", when, attr, err)
		}
		if operations, bytes := reads(c, "c", id); operations != before || bytes != was {
			t.Errorf("%s: the second read asked for %d operations and %d bytes", when, operations-before, bytes-was)
		}
	}
	again("at once", at)
	received := c.at("c").copies.Outline(id).Follower.Received()
	if received > size<<20/50 {
		t.Errorf("%d bytes of outlines came, for %d MiB", received, size)
	}
	c.stop("c")
	c.start("c")
	at = c.router("c", id)
	follows(c, "c", "a", id)
	again("after a restart", at)
	if n := c.at("c").copies.Outline(id).Follower.Received(); n > received/10 {
		t.Errorf("%d bytes of outlines came again", n)
	}
	// One byte is changed at home, and another home goes on.
	if _, err := a.Write(within(t, hang), cl.next(), f, 5, []byte{'!'}, true); err != nil {
		t.Fatal(err)
	}
	follows(c, "c", "a", id)
	p := make([]byte, 1)
	_, was := reads(c, "c", id)
	if _, _, err := at.Read(within(t, hang), far.next(), f, 5, p); err != nil || p[0] != '!' {
		t.Errorf("%q, %v", p, err)
	}
	if _, bytes := reads(c, "c", id); bytes-was > 256<<10 {
		t.Errorf("%d bytes came for one that was changed", bytes-was)
	}
	c.stop("a")
	home := "b" // or d
	c.until("there is another home", func() error {
		name, _ := c.at("c").view.Home(id)
		home = strings.TrimPrefix(name, "g")
		if home == "a" {
			return errors.New(name)
		}
		return nil
	})
	b := c.router(home, id)
	if _, err := b.Write(within(t, hang), cl.next(), f, 6, []byte{'?'}, false); err != nil {
		t.Fatal(err)
	}
	follows(c, "c", home, id)
	if _, _, err := at.Read(within(t, hang), far.next(), f, 6, p); err != nil || p[0] != '?' {
		t.Errorf("with another home: %q, %v", p, err)
	}
	// Nobody is left. What is kept is shown for as long as the volume allows.
	c.stop("b")
	c.stop("d")
	for n := 1; n < size; n++ {
		got, _, err := at.Read(within(t, time.Second), far.next(), f, uint64(n)<<20, p)
		if err != nil || got != 1 || p[0] != mib(n)[0] {
			t.Fatalf("alone, MiB %d: %v", n, err)
		}
	}
}

// Readers of a Strong volume at a site without a copy see each change that was acknowledged before
// they asked, and the data that they have is not read again.
func TestStrongCacheWithoutACopy(t *testing.T) {
	t.Parallel()
	c := smallMemory(t, "a", "b")
	id := c.createAt("strong", rolling("strong", 1), []string{"a"})
	a, cl := c.router("a", id), &client{name: "x"}
	f := fill(t, a, cl, "f", 4)
	c.admit("b", id)
	at, far := c.router("b", id), &client{name: "y"}
	follows(c, "b", "a", id)
	for n := range 4 {
		same(t, at, far, f, n)
	}
	before, was := reads(c, "b", id)
	p := make([]byte, 1)
	for i := range byte(100) {
		writer, r := cl, a
		if i%4 == 3 {
			writer, r = far, at
		}
		if _, err := r.Write(within(t, hang), writer.next(), f, 3<<20+7, []byte{i}, i%2 == 0); err != nil {
			t.Fatal(err)
		}
		if _, _, err := at.Read(within(t, hang), far.next(), f, 3<<20+7, p); err != nil || p[0] != i {
			t.Fatalf("after %d was written, %d is read, %v", i, p[0], err)
		}
		name := fmt.Sprintf("g%d", i)
		if _, err := a.Create(within(t, hang), cl.next(), volume.Root, name, volume.CreateArgs{Type: volume.Regular}); err != nil {
			t.Fatal(err)
		}
		if _, err := at.Lookup(within(t, hang), volume.Request{}, volume.Root, name); err != nil {
			t.Fatalf("after %s was made: %v", name, err)
		}
	}
	operations, bytes := reads(c, "b", id)
	t.Logf("of 200 reads and 25 writes the home was asked for %d; %d bytes of blocks came", operations-before, bytes-was)
	if operations-before > 25+20 {
		t.Errorf("the home was asked for %d operations", operations-before)
	}
	same(t, at, far, f, 2)
	if _, now := reads(c, "b", id); now != bytes {
		t.Errorf("%d bytes came again", now-bytes)
	}
	// Without a home nothing is shown.
	c.stop("a")
	c.until("nothing is shown", func() error {
		if _, _, err := at.Read(within(t, 300*time.Millisecond), far.next(), f, 0, p); err == nil {
			return errors.New("it is read")
		}
		return nil
	})
}

// What a site keeps of a volume that it has no copy of goes when it gets a copy, and when the
// volume is deleted; and a copy that leaves makes room for it.
func TestCacheBecomesACopy(t *testing.T) {
	t.Parallel()
	c := smallMemory(t, "a", "b")
	id := c.createAt("moves", rolling("moves", 1), []string{"a"})
	a, cl := c.router("a", id), &client{name: "x"}
	f := fill(t, a, cl, "f", 3)
	c.admit("b", id)
	at, far := c.router("b", id), &client{name: "y"}
	follows(c, "b", "a", id)
	if got, err := warm(t, c.at("b"), id, ""); err != nil || got.Moved < 3<<20 {
		t.Fatalf("%+v, %v", got, err)
	}
	_, was := reads(c, "b", id)
	for n := range 3 {
		same(t, at, far, f, n)
	}
	if _, now := reads(c, "b", id); now != was {
		t.Errorf("%d bytes came of what was warm", now-was)
	}
	// An import at b says what is kept there; a keeps what the owner says.
	claim := federation.Claim{Volume: id, Site: "b", Namespace: "team", Name: "data", Kind: federation.ClaimGeoVolume, UID: "u",
		Access: federation.ReadWrite, Cache: &federation.Cache{Size: 2 << 20}}
	c.with(func(r federation.Registry) error { return r.PutClaim(t.Context(), claim) })
	c.until("what is too much goes", func() error {
		if k := kept(c.at("b"), id); k.Limit != 2<<20 || k.Once+k.Often > 2<<20 {
			return fmt.Errorf("%+v", k)
		}
		return nil
	})
	if k := kept(c.at("a"), id); k.Limit != 0 {
		t.Errorf("at a: %+v", k)
	}
	// What the owner pins is kept where there are copies; what the import pins, here.
	c.change(id, func(v *federation.Volume) { v.Spec.Cache.Pin = []federation.Pin{{Path: "/none"}} })
	claim.Cache = &federation.Cache{Pin: []federation.Pin{{Path: "/f"}}}
	c.with(func(r federation.Registry) error { return r.PutClaim(t.Context(), claim) })
	c.until("what the import pins is there", func() error {
		if k := kept(c.at("b"), id); k.Limit != 0 || k.Pins == nil || k.Pins.Left > 0 || k.Pinned < 3<<20 {
			return fmt.Errorf("%+v, %+v", k, k.Pins)
		}
		return nil
	})
	c.until("a keeps what the owner pins", func() error {
		if k := kept(c.at("a"), id); k.Pins == nil || k.Pins.Files != 0 {
			return fmt.Errorf("%+v", k.Pins)
		}
		return nil
	})
	claim.Cache = nil
	c.with(func(r federation.Registry) error { return r.PutClaim(t.Context(), claim) })
	c.until("nothing is pinned at a site without a copy that no pin names", func() error {
		if k := kept(c.at("b"), id); k.Pins != nil {
			return fmt.Errorf("%+v", k.Pins)
		}
		return nil
	})
	c.change(id, func(v *federation.Volume) { v.Sites = []string{"a", "b"} })
	c.until("b has a copy", func() error {
		g := c.at("b")
		if x := g.copies.Copy(id); x == nil || g.copies.Outline(id) != nil || x.Engine.Applied().Less(c.at("a").copies.Copy(id).Log.End()) {
			return errors.New("not yet")
		}
		return nil
	})
	for n := range 3 {
		same(t, at, far, f, n)
	}
	c.change(id, func(v *federation.Volume) { v.Sites = []string{"a"} })
	follows(c, "b", "a", id)
	for n := range 3 {
		same(t, at, far, f, n)
	}
	c.change(id, func(v *federation.Volume) { v.Deleted = true })
	c.until("nothing is kept of a deleted volume", func() error {
		g := c.at("b")
		there, err := g.pools.ListVolumes()
		if g.copies.Outline(id) != nil || slices.Contains(there, id) {
			return fmt.Errorf("%v, %v", there, err)
		}
		return nil
	})
	if used := c.at("b").pools.Main().Room().Status().Used; used > 1<<20 {
		t.Errorf("%d bytes are taken of an empty pool", used)
	}
}

// A copy is never taken for what is kept of a volume without one, whatever lies beside it; and what
// does not fit together begins anew without a copy's help.
func TestOutlineBesideACopy(t *testing.T) {
	t.Parallel()
	c := smallMemory(t, "a", "b")
	id := c.createAt("v", rolling("v", 1), []string{"a"})
	f := fill(t, c.router("a", id), &client{name: "x"}, "f", 2)
	c.stop("a")
	beside := filepath.Join(c.dir, "a", "volumes", id, "outline-meta")
	if err := os.MkdirAll(beside, 0o700); err != nil {
		t.Fatal(err)
	}
	c.start("a")
	a := c.router("a", id)
	for n := range 2 {
		same(t, a, &client{name: "y"}, f, n)
	}
	// At b the headers are lost, or the metadata damaged.
	c.admit("b", id)
	b, far := c.router("b", id), &client{name: "z"}
	follows(c, "b", "a", id)
	for n := range 2 {
		same(t, b, far, f, n)
	}
	at := filepath.Join(c.dir, "b", "volumes", id)
	for what, harm := range map[string]func() error{
		"the headers are lost": func() error { return os.Truncate(filepath.Join(at, "outline"), 0) },
		"the metadata are lost, but their folder": func() error {
			return errors.Join(os.RemoveAll(filepath.Join(at, "outline-meta")), os.Mkdir(filepath.Join(at, "outline-meta"), 0o700))
		},
		"the metadata are damaged": func() error {
			names, err := filepath.Glob(filepath.Join(at, "outline-meta", "MANIFEST*"))
			for _, name := range names {
				err = errors.Join(err, os.WriteFile(name, []byte("nonsense"), 0o600))
			}
			return err
		},
	} {
		c.stop("b")
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		c.start("b")
		b = c.router("b", id)
		follows(c, "b", "a", id)
		_, was := reads(c, "b", id)
		for n := range 2 {
			same(t, b, far, f, n)
		}
		if _, now := reads(c, "b", id); now != was {
			t.Errorf("%s: %d bytes that were kept came again", what, now-was)
		}
	}
}

// While commits stall, readers at a site without a copy see what the home shows, and do not wait.
func TestOutlineOfAStalledHome(t *testing.T) {
	t.Parallel()
	c := smallMemory(t, "a", "b", "d")
	id := c.createAt("v", rolling("v", 2), []string{"a", "b"})
	a, cl := c.router("a", id), &client{name: "x"}
	f := fill(t, a, cl, "f", 1)
	c.members(id, "a", "b")
	home, _ := c.at("a").view.Home(id)
	home = strings.TrimPrefix(home, "g")
	c.admit("d", id)
	d, far := c.router("d", id), &client{name: "y"}
	follows(c, "d", home, id)
	// The member's pool takes nothing in, and it goes on promising.
	member := map[string]string{"a": "b", "b": "a"}[home]
	room := c.at(member).pools.Main().Room()
	full := room.Status()
	took := full.Limit - full.ReservedForDelete - full.Used
	if err := room.Reserve(took); err != nil {
		t.Fatal(err)
	}
	defer room.Release(took)
	h := c.router(home, id)
	if _, err := h.Write(within(t, hang), cl.next(), f, 3, []byte{'!'}, false); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 1)
	for range 50 {
		if _, _, err := d.Read(within(t, hang), far.next(), f, 3, p); err != nil || p[0] != '!' {
			t.Fatalf("%q, %v", p, err)
		}
	}
}

// A home that asks which files without a name are open at a site without a copy is told the truth
// for good: no state before the removal of their names is shown there any more.
func TestHeldAtAnOutline(t *testing.T) {
	t.Parallel()
	c := smallMemory(t, "a", "b")
	id := c.createAt("v", bounded("v", 1), []string{"a"})
	fill(t, c.router("a", id), &client{name: "x"}, "f", 1)
	c.admit("b", id)
	b := c.router("b", id)
	follows(c, "b", "a", id)
	look := func() (asked uint64) {
		t.Helper()
		before, _ := reads(c, "b", id)
		if _, err := b.Lookup(within(t, hang), volume.Request{}, volume.Root, "f"); err != nil {
			t.Fatal(err)
		}
		after, _ := reads(c, "b", id)
		return after - before
	}
	if n := look(); n != 0 {
		t.Errorf("the home was asked %d times", n)
	}
	home, err := c.at("a").peers.Forward("gb")
	if err != nil {
		t.Fatal(err)
	}
	end := c.at("a").copies.Copy(id).Log.End()
	reply, err := home.Held(within(t, hang), &forwardpb.HeldRequest{Volume: id, Seq: end.Seq, Off: end.Off + 1})
	if err != nil || len(reply.GetHandles()) != 0 {
		t.Fatalf("%v, %v", reply, err)
	}
	if n := look(); n == 0 {
		t.Error("a state is shown from before what the home told of")
	}
}
