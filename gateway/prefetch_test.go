// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-storage/weir/engine"
	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/volume"
)

// TestPrefetch: what a policy says of it is brought to the pool of a site without a copy before it
// is read: all of a file, all files of a directory, or those that follow in the order of names. A
// change of the policy is in force at once.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	c := smallMemory(t, "a", "b", "d", "c")
	id := c.createAt("far", bounded("far", 2), []string{"a", "b", "d"})
	a, cl := c.router("a", id), &client{name: "x"}
	files := map[string]volume.Handle{}
	directory := func(name string) volume.Handle {
		d, err := a.Create(within(t, hang), cl.next(), volume.Root, name, volume.CreateArgs{Type: volume.Directory, Mode: volume.Guarded,
			Attr: volume.SetAttr{Mode: new(uint32(0o755))}})
		if err != nil {
			t.Fatal(err)
		}
		return d.Attr.Handle
	}
	in := func(dir volume.Handle, name string, size int) {
		f, err := a.Create(within(t, hang), cl.next(), dir, name, volume.CreateArgs{Type: volume.Regular,
			Attr: volume.SetAttr{Mode: new(uint32(0o644))}})
		if err != nil {
			t.Fatal(err)
		}
		files[name] = f.Attr.Handle
		for i := range size {
			if _, err := a.Write(within(t, hang), cl.next(), files[name], uint64(i)<<20, mib(i), true); err != nil {
				t.Fatal(err)
			}
		}
	}
	in(volume.Root, "large", 4)
	in(volume.Root, "other", 1)
	set, frames := directory("set"), directory("frames")
	for i := range 6 {
		in(set, fmt.Sprint("x", i), 1)
	}
	for i := range 16 {
		in(frames, fmt.Sprint("frame-", i), 1)
	}
	c.admit("c", id)
	at := c.router("c", id)
	follows(c, "c", "a", id)
	o := c.at("c").copies.Outline(id)
	whole := func() (out []string) {
		for name, f := range files {
			var missing int
			for off := uint64(0); ; {
				refs, next, err := o.Engine.Blocks(engine.Recent(within(t, hang)), f, off, 100)
				if err != nil {
					t.Fatal(err)
				}
				if missing += len(o.Log.Missing(refs)); next == 0 {
					break
				}
				off = next
			}
			if missing == 0 {
				out = append(out, name)
			}
		}
		slices.Sort(out)
		return out
	}
	read := func(dir volume.Handle, names ...string) {
		t.Helper()
		for _, name := range names {
			f, err := at.Lookup(within(t, hang), volume.Request{}, dir, name)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := at.Read(within(t, hang), volume.Request{}, f.Handle, 0, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	are := func(when string, want ...string) {
		t.Helper()
		slices.Sort(want)
		defer func() { // nothing else comes
			time.Sleep(100 * time.Millisecond)
			if got := whole(); !slices.Equal(got, want) {
				t.Fatalf("%s: then %q are whole, and not %q", when, got, want)
			}
		}()
		c.until(when, func() error {
			if got := whole(); !slices.Equal(got, want) {
				return fmt.Errorf("%q are whole, and not %q", got, want)
			}
			return nil
		})
	}
	policy := func(p federation.Prefetch) {
		c.change(id, func(v *federation.Volume) {
			v.Spec.Cache.Prefetch, v.Spec.Cache.ReadAhead = p, new(federation.Bytes(0))
		})
		c.until("the policy is in force", func() error {
			if got := o.Prefetch(); got != p {
				return fmt.Errorf("%q", got)
			}
			return nil
		})
	}
	policy(federation.PrefetchNone)
	read(volume.Root, "large")
	are("nothing is fetched")
	policy(federation.PrefetchFile)
	read(volume.Root, "large")
	are("a file is fetched", "large")
	policy(federation.PrefetchDirectory)
	read(set, "x1")
	are("one file tells nothing", "large")
	read(set, "x4")
	all := []string{"large", "x0", "x1", "x2", "x3", "x4", "x5"}
	are("the files of a directory are fetched", all...)
	policy(federation.PrefetchPattern)
	read(frames, "frame-1", "frame-3", "frame-5")
	all = append(all, "frame-7", "frame-9", "frame-11", "frame-13")
	are("the files that follow are fetched", all...)
	read(frames, "frame-7")
	all = append(all, "frame-15")
	are("and the one after them", all...)
	read(frames, "frame-2", "frame-9", "frame-0") // in no order
	are("and no others", all...)
	if n := kept(c.at("c"), id).Prefetched; n < 14<<20 {
		t.Errorf("%d bytes were fetched before they were read", n)
	}
}
