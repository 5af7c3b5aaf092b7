// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/caching"
	"github.com/weir-storage/weir/gateway/forward/forwardpb"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/volume"
)

// mib is the n-th MiB of a test's data, which cannot be compressed.
func mib(n int) []byte {
	b := make([]byte, 1<<20)
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], uint64(n))
	_, _ = rand.NewChaCha8(seed).Read(b) // never fails
	return b
}

// fill writes n MiB to a new file.
func fill(t *testing.T, r *routing.Router, cl *client, name string, n int) volume.Handle {
	t.Helper()
	f := file(t, r, cl, name)
	for i := range n {
		if _, err := r.Write(within(t, hang), cl.next(), f, uint64(i)<<20, mib(i), i == n-1); err != nil {
			t.Fatalf("MiB %d of %s: %v", i, name, err)
		}
	}
	return f
}

// same reads the n-th MiB of a file and compares it.
func same(t *testing.T, r *routing.Router, cl *client, f volume.Handle, n int) {
	t.Helper()
	p := make([]byte, 1<<20)
	for errors.Is(func() error {
		got, _, err := r.Read(within(t, hang), cl.next(), f, uint64(n)<<20, p)
		if err == nil && (got != len(p) || !bytes.Equal(p, mib(n))) {
			t.Errorf("MiB %d is not what was written", n)
		}
		if err != nil && !errors.Is(err, volume.ErrDelay) {
			t.Fatalf("MiB %d: %v", n, err)
		}
		return err
	}(), volume.ErrDelay) {
	}
}

// rolling is a manifest of a volume whose segments are sealed after a second, so that they can go.
func rolling(name string, members int) string {
	return strings.Replace(manifest(name, members), "durability: {", "durability: {maxLag: {time: 1s}, ", 1)
}

// smallMemory starts gateways that keep little in memory.
func smallMemory(t *testing.T, sites ...string) *cluster {
	c := newCluster(t, sites...)
	c.memory = 1 << 20
	for _, s := range sites {
		c.stop(s)
		c.start(s)
	}
	return c
}

// kept returns what a gateway keeps of a volume.
func kept(g *Gateway, id string) caching.Volume {
	for _, v := range g.caching.Status().Volumes {
		if v.UUID == id {
			return v
		}
	}
	return caching.Volume{}
}

// push has a gateway give up all that it need not keep.
func push(c *cluster, site, id string) {
	c.t.Helper()
	c.until("all that can go is gone", func() error {
		g := c.at(site)
		g.pools.MakeRoom(id, 1<<40)
		if k := kept(g, id); k.Segments+k.Once+k.Often > 0 {
			return fmt.Errorf("%+v", k)
		}
		if n := g.copies.Copy(id).Log.LocalBytes(); n > 64<<10 {
			return fmt.Errorf("%d bytes of the log are here", n)
		}
		return nil
	})
}

// A file of ten times what may be kept of it is written and read back, in order and not, and what
// is kept never passes the limit. What was read stays, across a restart too. So it is at a site
// that has a copy, and at one that has none.
func TestFileTenTimesTheCache(t *testing.T) {
	t.Parallel()
	const size, limit = 100, 10 << 20
	c := smallMemory(t, "a", "b")
	id := c.createAt("big", rolling("big", 1), []string{"a"})
	c.change(id, func(v *federation.Volume) { v.Spec.Cache.Size = limit })
	f := fill(t, c.router("a", id), &client{name: "x"}, "f", size)
	c.until("what is in the store goes", func() error {
		if n := c.at("a").copies.Copy(id).Log.LocalBytes(); n > limit {
			return fmt.Errorf("%d bytes of the log are here", n)
		}
		return nil
	})
	c.admit("b", id)
	for _, site := range c.order {
		t.Run(site, func(t *testing.T) { tenTimes(t, c, site, id, f, size, limit) })
	}
}

func tenTimes(t *testing.T, c *cluster, site, id string, f volume.Handle, size int, limit int64) {
	r, cl := c.router(site, id), &client{name: "reader at " + site}
	if site != "a" {
		follows(c, site, "a", id)
	}
	within := func(when string) {
		t.Helper()
		if k := kept(c.at(site), id); k.Once+k.Often > limit {
			t.Fatalf("%s: %+v is more than the limit", when, k)
		}
	}
	for n := range size {
		same(t, r, cl, f, n)
		within(fmt.Sprint("in order ", n))
	}
	for range size / 2 {
		same(t, r, cl, f, rand.IntN(size))
		within("anywhere")
	}
	for range 5 { // a part that fits, again and again
		for n := range 3 {
			same(t, r, cl, f, n)
		}
	}
	_, was := reads(c, site, id)
	for n := range 3 {
		same(t, r, cl, f, n)
	}
	if _, now := reads(c, site, id); now-was > 1<<20 {
		t.Errorf("what is read all the time is read elsewhere: %d bytes", now-was)
	}
	c.stop(site)
	c.start(site)
	r = c.router(site, id)
	if site != "a" {
		follows(c, site, "a", id)
	}
	for n := range 3 {
		same(t, r, cl, f, n)
	}
	if _, got := reads(c, site, id); got > 1<<20 {
		t.Errorf("after a restart %d bytes come from elsewhere", got)
	}
	if used := c.at(site).pools.Main().Room().Status().Used; used > limit+4<<20 {
		t.Errorf("%d bytes of the pool are used", used)
	}
}

// warm runs Warm to its end.
func warm(t *testing.T, g *Gateway, id, path string) (*forwardpb.WarmProgress, error) {
	t.Helper()
	var last *forwardpb.WarmProgress
	err := g.caching.Bring(within(t, hang), id, path, func(p *forwardpb.WarmProgress) error {
		last = &forwardpb.WarmProgress{Counting: p.Counting, Done: p.Done, Files: p.Files, Bytes: p.Bytes, Missing: p.Missing,
			Moved: p.Moved, Left: p.Left}
		return nil
	})
	return last, err
}

// Data is brought to a site before it is read there. The second time nothing moves. A damaged cache
// costs a read elsewhere, and shows nothing wrong.
func TestWarm(t *testing.T) {
	t.Parallel()
	c := smallMemory(t, "a", "b")
	id := c.create("set", rolling("set", 2))
	r, cl := c.router("a", id), &client{name: "x"}
	dir, err := r.Create(within(t, hang), cl.next(), volume.Root, "runs",
		volume.CreateArgs{Type: volume.Directory, Mode: volume.Guarded, Attr: volume.SetAttr{Mode: new(uint32(0o777))}})
	if err != nil {
		t.Fatal(err)
	}
	one := fill(t, r, cl, "one", 10)
	if _, _, err := r.Rename(within(t, hang), cl.next(), volume.Root, "one", dir.Attr.Handle, "one"); err != nil {
		t.Fatal(err)
	}
	fill(t, r, cl, "two", 5)
	fill(t, r, cl, "empty", 0)
	b := c.router("b", id)
	same(t, b, cl, one, 9)
	c.until("b has all", func() error {
		if has, end := c.at("b").copies.Copy(id).Engine.Applied(), c.at("a").copies.Copy(id).Log.End(); has.Less(end) {
			return fmt.Errorf("%v of %v", has, end)
		}
		return nil
	})
	push(c, "b", id)
	store := c.nodes["b"].store
	was := store.BytesOut.Load()

	got, err := warm(t, c.at("b"), id, "/runs")
	if err != nil || !got.Done || got.Files != 1 || got.Moved == 0 || got.Moved != got.Missing || got.Left != 0 || got.Bytes < 10<<20 {
		t.Fatalf("%+v, %v", got, err)
	}
	if out := store.BytesOut.Load() - was; out < int64(got.Moved) || out > int64(got.Moved)*11/10 {
		t.Errorf("%d bytes came from the store for %d", out, got.Moved)
	}
	was = store.BytesOut.Load()
	again, err := warm(t, c.at("b"), id, "runs/one")
	if err != nil || again.Moved != 0 || again.Missing != 0 || again.Bytes != got.Bytes || store.BytesOut.Load() != was {
		t.Errorf("the second time: %+v, %v, and %d bytes from the store", again, err, store.BytesOut.Load()-was)
	}
	for n := range 10 {
		same(t, b, cl, one, n)
	}
	if out := store.BytesOut.Load() - was; out != 0 {
		t.Errorf("reading what was brought takes %d bytes from the store", out)
	}
	if k := kept(c.at("b"), id); k.Reads.Cache == 0 || k.Reads.Elsewhere != 0 {
		t.Errorf("%+v", k.Reads)
	}
	all, err := warm(t, c.at("b"), id, "")
	if err != nil || all.Files != 3 || all.Moved == 0 || all.Bytes < 15<<20 {
		t.Errorf("everything: %+v, %v", all, err)
	}

	// Damage each file of the cache in one place.
	c.stop("b")
	files, err := filepath.Glob(filepath.Join(c.dir, "b", "volumes", id, "*.cache"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		damage(t, []string{f}, 1000)
	}
	c.start("b")
	b = c.router("b", id)
	c.until("b answers itself", func() error {
		if x := c.at("b").copies.Copy(id); x != nil {
			return x.MayServe()
		}
		return errors.New("no copy")
	})
	was = store.BytesOut.Load()
	for n := range 10 {
		same(t, b, cl, one, n)
	}
	if out := store.BytesOut.Load() - was; out == 0 || out > int64(len(files))<<20 {
		t.Errorf("with %d damaged blocks %d bytes come from the store", len(files), out)
	}
	was = store.BytesOut.Load()
	for n := range 10 {
		same(t, b, cl, one, n)
	}
	if out := store.BytesOut.Load() - was; out > 256<<10 { // the home may have answered some of the first
		t.Errorf("what was damaged is read from the store again: %d bytes", out)
	}

	for _, x := range []struct {
		path string
		code codes.Code
		says string
	}{
		{"runs/three", codes.NotFound, `there is no "three": write a path from the volume's root`},
		{"two/x", codes.NotFound, `there is no "x"`},
	} {
		if _, err := warm(t, c.at("b"), id, x.path); status.Code(err) != x.code || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v", x.path, err)
		}
	}
}

// What has no place on the pool is told.
func TestWarmTooMuch(t *testing.T) {
	t.Parallel()
	c := smallMemory(t, "a")
	id := c.create("set", rolling("set", 1))
	r, cl := c.router("a", id), &client{name: "x"}
	fill(t, r, cl, "f", 15)
	push(c, "a", id)
	c.change(id, func(v *federation.Volume) { v.Spec.Cache.Size = 2 << 20 })
	c.until("the limit is in force", func() error {
		if k := kept(c.at("a"), id); k.Limit != 2<<20 {
			return fmt.Errorf("%+v", k)
		}
		return nil
	})
	got, err := warm(t, c.at("a"), id, "f")
	if err != nil || !got.Done {
		t.Fatal(got, err)
	}
	if k := kept(c.at("a"), id); k.Segments+k.Once+k.Often > 2<<20 {
		t.Errorf("%+v", k)
	}
	// What was brought first went for what came last: the caller is to know.
	if again, err := warm(t, c.at("a"), id, "f"); err != nil || again.Missing < got.Missing/2 {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := warm(t, c.at("a"), "11111111-1111-4111-8111-111111111111", ""); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
}

// A log that needs room takes it from what is kept to be read, of any volume, but for a reserve.
func TestLogsComeFirst(t *testing.T) {
	t.Parallel()
	c := smallMemory(t, "a")
	c.limit = 64 << 20
	c.stop("a")
	c.start("a")
	cl := &client{name: "x"}
	idle := c.create("idle", rolling("idle", 1))
	fill(t, c.router("a", idle), cl, "f", 40)
	push(c, "a", idle)
	c.change(idle, func(v *federation.Volume) { v.Spec.Cache.Reserve = 8 << 20 })
	if got, err := warm(t, c.at("a"), idle, ""); err != nil || got.Left != 0 {
		t.Fatal(got, err)
	}
	busy := c.create("busy", rolling("busy", 1))
	fill(t, c.router("a", busy), cl, "f", 100)
	k := kept(c.at("a"), idle)
	if all := k.Segments + k.Once + k.Often; all < 4<<20 || all > 30<<20 || k.Reserve != 8<<20 {
		t.Errorf("of 40 MiB with a reserve of 8 this is left: %+v", k)
	}
}
