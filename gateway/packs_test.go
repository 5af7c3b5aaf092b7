// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine/fsck"
	"github.com/weir-storage/weir/engine/pack"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/checkpoints"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/gateway/space"
	"github.com/weir-storage/weir/store"
	"github.com/weir-storage/weir/volume"
)

// packsEarly is a rule as ADR 54 has it, for a volume of some megabytes.
var packsEarly = checkpoints.Due{Bytes: 1 << 20, Shrunk: 1 << 20, Segments: 8, Grace: time.Millisecond, Every: 200 * time.Millisecond,
	Pack: pack.Rule{Percent: 120, Spare: 256 << 10, Write: 1 << 20, Share: 4, Small: 64 << 10, Merge: 8}}

// overwritten is files that are written at random places, and what they have.
type overwritten struct {
	c     *cluster
	id    string
	rng   *rand.Rand
	model [][]byte
	files []volume.Handle
	calls *client
}

// overwrite writes some bytes at random places, through a site's gateway, which is the home's.
func (o *overwritten) overwrite(site string, total int) {
	o.c.t.Helper()
	r := o.c.router(site, o.id)
	for n := 0; total > 0; n++ {
		i := o.rng.IntN(len(o.model))
		off := o.rng.IntN(len(o.model[i]) - 1)
		p := make([]byte, min(1+o.rng.IntN(96<<10), len(o.model[i])-off))
		for k := range p {
			p[k] = byte(o.rng.Uint32())
		}
		if _, err := r.Write(o.c.t.Context(), o.calls.next(), o.files[i], uint64(off), p, true); err != nil {
			o.c.t.Fatal(err)
		}
		copy(o.model[i][off:], p)
		if total -= len(p); n%6 == 5 {
			r.Copy().Replica.Roll()
		}
	}
}

// same checks what the files have, as a site's gateway shows them below a folder.
func (o *overwritten) same(r *routing.Router, folder volume.Handle, model [][]byte) {
	o.c.t.Helper()
	for i, want := range model {
		a, err := r.Lookup(o.c.t.Context(), volume.Request{}, folder, fmt.Sprint("file ", i))
		if err != nil {
			o.c.t.Fatal(err)
		}
		p := make([]byte, len(want))
		for off := 0; off < len(p); {
			n, _, err := r.Read(o.c.t.Context(), volume.Request{}, a.Handle, uint64(off), p[off:])
			if err != nil || n == 0 {
				o.c.t.Fatalf("file %d from byte %d: %d bytes, %v", i, off, n, err)
			}
			off += n
		}
		if !bytes.Equal(p, want) {
			o.c.t.Fatalf("file %d has other bytes", i)
		}
	}
}

// begin makes n files of 512 KiB of random bytes, through the router of a site.
func (o *overwritten) begin(site string, n int) {
	t := o.c.t.(*testing.T)
	t.Helper()
	r := o.c.router(site, o.id)
	for i := range n {
		p := make([]byte, 512<<10)
		for k := range p {
			p[k] = byte(o.rng.Uint32())
		}
		o.model = append(o.model, p)
		h := file(t, r, o.calls, fmt.Sprint("file ", i))
		o.files = append(o.files, h)
		if _, err := r.Write(t.Context(), o.calls.next(), h, 0, p, true); err != nil {
			t.Fatal(err)
		}
	}
}

// packsAt returns the packs that a site's store has.
func (o *overwritten) packsAt(site string) map[string]int64 {
	o.c.t.Helper()
	out := map[string]int64{}
	if err := o.c.nodes[site].store.List(o.c.t.Context(), o.id+"/p/", func(i store.Info) error {
		out[i.Name] = i.Size
		return nil
	}); err != nil {
		o.c.t.Fatal(err)
	}
	return out
}

// settled waits until stores have little that nothing uses, and all packs that count, whole.
func (o *overwritten) settled(home string, sites ...string) {
	o.c.t.Helper()
	end := rarely(func(n int) {
		r := o.c.router(home, o.id)
		file(o.c.t.(*testing.T), r, o.calls, fmt.Sprint("tick ", n%4))
		r.Copy().Replica.Roll()
	})
	for _, site := range sites {
		o.c.until("space comes back at "+site, func() error {
			end() // so that a checkpoint is due
			is := o.c.spaceAt(site, o.id).Store
			live := is.Of(space.Live).Bytes + is.Of(space.Snapshots).Bytes
			if is.Bytes > live*13/10+(2<<20) {
				return fmt.Errorf("the store has %d bytes, %d are live: %+v", is.Bytes, live, is)
			}
			table, err := o.c.router(site, o.id).Copy().Engine.Packs()
			if err != nil {
				return err
			}
			has, kept, old := o.packsAt(site), 0, 0
			for _, p := range table.All {
				name := pack.Name([16]byte(o.c.router(site, o.id).Copy().Engine.ID()), p.Hash)
				switch there := has[name]; {
				case p.Condemned != 0 && there > 0:
					old++
				case p.Condemned != 0:
				case there != int64(p.Len):
					return fmt.Errorf("pack %s is not in the store", name)
				default:
					kept++
				}
			}
			if len(has) != kept+old || old > 2 || kept == 0 {
				return fmt.Errorf("the store has %d packs, %d count, and %d are condemned", len(has), kept, old)
			}
			return nil
		})
	}
}

// checked checks the metadata at a site, and reads all blocks.
func (o *overwritten) checked(site string) {
	o.c.t.Helper()
	c := o.c.router(site, o.id).Copy()
	report, err := c.Engine.Check(o.c.t.Context(), fsck.Config{Segments: func(seq uint64) (uint64, bool) {
		if end := c.Log.End(); end.Seq == seq {
			return end.Off, true
		}
		s, ok := c.Log.Segment(seq)
		return s.Len, ok
	}})
	if err != nil || !report.Complete || len(report.Findings) > 0 {
		o.c.t.Errorf("the check at %s: %+v, %v", site, report, err)
	}
}

// TestPacks: what is overwritten at random comes back in every store, though each segment has
// something that lives. All copies make the same packs. What is read is what was written: at every
// site, in a snapshot, after a restart, a fail-over, and at a copy that began with a checkpoint.
func TestPacks(t *testing.T) {
	c := newCluster(t)
	c.due = packsEarly
	for _, s := range []string{"a", "b", "c", "d"} {
		c.add(s)
	}
	id := c.createAt("v", rolling("v", 2), []string{"a", "b"})
	c.admit("d", id)
	o := &overwritten{c: c, id: id, rng: rand.New(rand.NewPCG(3, 4)), calls: &client{name: "x"}}
	o.begin("a", 6)
	o.overwrite("a", 8<<20)
	o.settled("a", "a", "b")
	o.same(c.router("b", id), volume.Root, o.model)
	o.same(c.router("d", id), volume.Root, o.model)

	// A snapshot keeps what it has.
	if _, err := c.router("a", id).Copy().Engine.TakeSnapshot(t.Context(), volume.Request{}, "s"); err != nil {
		t.Fatal(err)
	}
	var then [][]byte
	for _, p := range o.model {
		then = append(then, bytes.Clone(p))
	}
	o.overwrite("a", 8<<20)
	o.settled("a", "a", "b")
	snapshot := func(site string) {
		t.Helper()
		r := c.router(site, id)
		dir, err := r.Lookup(t.Context(), volume.Request{}, volume.Root, ".snapshots")
		if err == nil {
			dir, err = r.Lookup(t.Context(), volume.Request{}, dir.Handle, "s")
		}
		if err != nil {
			t.Fatal(err)
		}
		o.same(r, dir.Handle, then)
	}
	for _, s := range []string{"a", "b"} {
		snapshot(s)
		o.same(c.router(s, id), volume.Root, o.model)
		o.checked(s)
	}

	// A copy that begins with a checkpoint gets the packs. It is no member before.
	c.change(id, func(v *federation.Volume) { v.Spec.Replication.Copies, v.Sites = 3, []string{"a", "b", "c"} })
	c.whole("a", id, "c")
	moved := 0
	for _, s := range c.at("c").copies.Copy(id).Log.Segments() {
		if s.Dropped {
			moved++
		}
	}
	if moved == 0 {
		t.Error("the new copy has all segments")
	}
	o.settled("a", "a", "b", "c")
	snapshot("c")
	o.same(c.router("c", id), volume.Root, o.model)

	// Another home goes on.
	c.stop("a")
	home := ""
	c.until("another home", func() error {
		for _, s := range []string{"b", "c"} {
			copied := c.at(s).copies.Copy(id)
			if copied == nil {
				continue
			}
			if _, leads := copied.Replica.Leading(); leads && copied.MayServe() == nil {
				home = s
				return nil
			}
		}
		return errors.New("there is none")
	})
	o.same(c.router(home, id), volume.Root, o.model)
	snapshot(home)
	o.overwrite(home, 4<<20)
	c.start("a")
	c.whole(home, id, "a")
	o.settled(home, "a", "b", "c")
	for _, s := range []string{"a", "b", "c"} {
		o.same(c.router(s, id), volume.Root, o.model)
		snapshot(s)
		o.checked(s)
		if n := c.at(s).copies.Checkpoints().Condition(id); n.Differs != 0 {
			t.Errorf("checkpoint %d at %s is not the home's", n.Differs, s)
		}
	}
	o.same(c.router("d", id), volume.Root, o.model)

	// All goes.
	e := c.router(home, id).Copy().Engine
	if err := e.DropSnapshot(t.Context(), volume.Request{}, "s"); err != nil {
		t.Fatal(err)
	}
	for i := range o.model {
		if _, err := c.router(home, id).Remove(t.Context(), o.calls.next(), volume.Root, fmt.Sprint("file ", i)); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	defer func() { t.Log("all went in", time.Since(began)) }()
	end := rarely(func(n int) {
		r := c.router(home, id)
		file(t, r, o.calls, fmt.Sprint("brief ", n))
		r.Copy().Replica.Roll()
	})
	c.until("stores are empty but for the last segments", func() error {
		end()
		for _, s := range []string{"a", "b", "c"} {
			has := c.sealedAt(s, id)
			for _, n := range o.packsAt(s) {
				has += n
			}
			if has > 512<<10 {
				return fmt.Errorf("%s has %d bytes of segments and packs", s, has)
			}
		}
		return nil
	})
	if _, err := c.router(home, id).Lookup(t.Context(), volume.Request{}, volume.Root, "file 0"); !errors.Is(err, volume.ErrNotExist) {
		t.Error(err)
	}
}
