// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"testing"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/volume"
)

// What is pinned at a site is there whatever else is read, again after it changed, and nowhere
// else. When it is not pinned any more, its room comes back.
func TestPins(t *testing.T) {
	t.Parallel()
	c := smallMemory(t, "a", "b")
	id := c.create("v", rolling("v", 1))
	r, cl := c.router("a", id), &client{name: "x"}
	dir := func(in volume.Handle, name string) volume.Handle {
		t.Helper()
		made, err := r.Create(within(t, hang), cl.next(), in, name, volume.CreateArgs{Type: volume.Directory, Mode: volume.Guarded})
		if err != nil {
			t.Fatal(err)
		}
		return made.Attr.Handle
	}
	write := func(in volume.Handle, name string, from, n int) volume.Handle {
		t.Helper()
		made, err := r.Create(within(t, hang), cl.next(), in, name, volume.CreateArgs{Type: volume.Regular, Mode: volume.Unchecked})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if _, err := r.Write(within(t, hang), cl.next(), made.Attr.Handle, uint64(i)<<20, mib(from+i), i == n-1); err != nil {
				t.Fatal(err)
			}
		}
		return made.Attr.Handle
	}
	reference := dir(volume.Root, "reference")
	deep := dir(dir(reference, "2026"), "deep")
	write(reference, "genome", 0, 4)
	write(deep, "x.h5", 10, 2)
	write(deep, "x.txt", 20, 2)
	write(volume.Root, "other", 100, 30)
	pins := func(site string) (bytes int64, files uint64) {
		k := kept(c.at(site), id)
		if k.Pins == nil {
			return k.Pinned, 0
		}
		return k.Pinned, k.Pins.Files
	}
	pinned := func(what string, site string, files uint64, least, most int64) {
		t.Helper()
		c.until(what, func() error {
			if bytes, n := pins(site); n != files || bytes < least || bytes > most {
				return fmt.Errorf("%d files, %d bytes: %+v", n, bytes, kept(c.at(site), id).Pins)
			}
			return nil
		})
	}
	change := func(list ...federation.Pin) {
		t.Helper()
		c.change(id, func(v *federation.Volume) { v.Spec.Cache.Pin = list })
	}
	const slack = 1 << 20
	change(federation.Pin{Path: "/reference/genome", Sites: []string{"b"}}, federation.Pin{Path: "/**/*.h5", Sites: []string{"b"}},
		federation.Pin{Path: "/reference/none/*"})
	pinned("two files are pinned at b", "b", 2, 6<<20, 6<<20+slack)
	pinned("nothing is pinned at a", "a", 0, 0, 0)

	// All else goes, and is read again.
	push(c, "b", id)
	before := kept(c.at("b"), id).Reads
	w := c.at("b").copies.Copy(id)
	read := func(h volume.Handle, from, n int) {
		t.Helper()
		p := make([]byte, 1<<20)
		for i := range n {
			got, _, err := w.Engine.Read(engine.Recent(within(t, hang)), volume.Request{}, h, uint64(i)<<20, p)
			if err != nil || got != len(p) || string(p) != string(mib(from+i)) {
				t.Fatalf("MiB %d: %d bytes, %v", i, got, err)
			}
		}
	}
	find := func(names ...string) volume.Handle {
		t.Helper()
		at := volume.Root
		for _, n := range names {
			a, err := w.Engine.Lookup(engine.Recent(within(t, hang)), volume.Request{}, at, n)
			if err != nil {
				t.Fatal(err)
			}
			at = a.Handle
		}
		return at
	}
	read(find("reference", "genome"), 0, 4)
	read(find("reference", "2026", "deep", "x.h5"), 10, 2)
	if now := kept(c.at("b"), id).Reads; now.Elsewhere != before.Elsewhere {
		t.Errorf("%d blocks of what is pinned were read from elsewhere", now.Elsewhere-before.Elsewhere)
	}
	read(find("other"), 100, 30)
	if now := kept(c.at("b"), id).Reads; now.Elsewhere == before.Elsewhere {
		t.Error("what is not pinned was there too: the test shows nothing")
	}
	push(c, "b", id)
	pinned("they still are", "b", 2, 6<<20, 6<<20+slack)

	// It changes, and is pinned again.
	write(reference, "genome", 50, 5)
	c.until("b has it", func() error {
		a, err := w.Engine.GetAttr(engine.Recent(within(t, hang)), volume.Request{}, find("reference", "genome"))
		if err == nil && a.Size != 5<<20 {
			err = fmt.Errorf("%d bytes", a.Size)
		}
		return err
	})
	c.until("the new contents are pinned", func() error {
		p := kept(c.at("b"), id).Pins
		if p == nil || p.Wanted < 7<<20 || p.Open+p.Left > 0 || p.Problem != "" {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	push(c, "b", id)
	before = kept(c.at("b"), id).Reads
	read(find("reference", "genome"), 50, 5)
	if now := kept(c.at("b"), id).Reads; now.Elsewhere != before.Elsewhere {
		t.Errorf("%d blocks of the new contents were read from elsewhere", now.Elsewhere-before.Elsewhere)
	}
	change()
	pinned("nothing is pinned any more", "b", 0, 0, 0)
}
