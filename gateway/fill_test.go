// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/federation/snapshots"
	"github.com/weir-storage/weir/gateway/admission"
	"github.com/weir-storage/weir/gateway/nfs"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/volume"
)

// sourceOf is the source for a volume that is to be made of a snapshot, as an operator makes it of
// what the home reports.
func (c *cluster) sourceOf(site, id, name string) *snapshots.Source {
	c.t.Helper()
	s, _ := c.snapshots(site, id, name+" Taken").Of(name)
	if s.Snap == 0 {
		c.t.Fatalf("the home reports %+v", s)
	}
	return &snapshots.Source{Volume: id, Snapshot: name, Snap: s.Snap, Time: s.Time, Bytes: s.Bytes, Inodes: s.Inodes}
}

// makeOf makes a volume of a source.
func (c *cluster) makeOf(src *snapshots.Source, name, manifest string, sites ...string) string {
	c.t.Helper()
	c.source = src
	defer func() { c.source = nil }()
	return c.createAt(name, manifest, sites)
}

// filled waits until a home reports that a volume has all of its source, or a message.
func (c *cluster) filled(id, message string) {
	c.t.Helper()
	c.until("the volume has all, or says "+message, func() error {
		var all []federation.Observed
		c.with(func(reg federation.Registry) (err error) {
			all, err = reg.ListObserved(context.Background(), id)
			return err
		})
		for _, o := range all {
			if r := o.Snapshots; r != nil && r.Filled != nil &&
				(r.Filled.Done && message == "" || message != "" && strings.Contains(r.Filled.Message, message)) {
				return nil
			}
		}
		return fmt.Errorf("it says %+v", all)
	})
}

// tree lists what is below a directory, sorted.
func treeOf(t *testing.T, v volume.Reader, h volume.Handle) []string {
	t.Helper()
	var out []string
	var walk func(path string, h volume.Handle)
	walk = func(path string, h volume.Handle) {
		for after, eof := uint64(0), false; !eof; {
			entries, last, err := v.ReadDir(within(t, hang), volume.Request{}, h, after, 100)
			if err != nil {
				t.Fatalf("list %s: %v", path, err)
			}
			for _, e := range entries {
				after = e.Cookie
				a, line := e.Attr, ""
				if a.Type == volume.Regular {
					p := make([]byte, 1000)
					n, _, err := v.Read(within(t, hang), volume.Request{}, a.Handle, 0, p)
					if err != nil {
						t.Fatalf("read %s: %v", path+e.Name, err)
					}
					line = string(p[:n])
				}
				out = append(out, fmt.Sprintf("%s%s %d %o %d %d.%d %d %q", path, e.Name, a.Type, a.Mode, a.Nlink, a.UID, a.GID,
					a.Mtime.UnixNano(), line))
				if a.Type == volume.Directory {
					walk(path+e.Name+"/", a.Handle)
				}
			}
			eof = last
		}
	}
	walk("/", h)
	slices.Sort(out)
	return out
}

// grown makes a volume with a tree of some files, and a snapshot one of it, and changes it then.
func (c *cluster) grown(name string, files int, sites ...string) (id string, src *snapshots.Source, want []string) {
	c.t.Helper()
	t := c.t.(*testing.T)
	id = c.createAt(name, manifest(name, 1), sites)
	r, cl := c.router(sites[0], id), &client{name: "x"}
	d, err := r.Create(within(t, hang), cl.next(), volume.Root, "d",
		volume.CreateArgs{Type: volume.Directory, Mode: volume.Guarded, Attr: volume.SetAttr{Mode: new(uint32(0o2750))}})
	if err != nil {
		t.Fatal(err)
	}
	f := file(t, r, cl, "f")
	if _, err := r.Link(within(t, hang), cl.next(), f, d.Attr.Handle, "g"); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		file(t, r, cl, fmt.Sprint("n", i))
	}
	c.wish(id, snapshots.Wish{Name: "one", UID: "1"})
	home := strings.TrimPrefix(c.homeOf(sites[0], id), "g")
	src = c.sourceOf(home, id, "one")
	want = treeOf(t, r, volume.Handle{Ino: volume.Root.Ino, Snap: src.Snap})
	if len(want) != files+3 {
		t.Fatalf("the snapshot has %q", want)
	}
	file(t, r, cl, "later")
	remove(t, r, cl, "f")
	return id, src, want
}

// TestVolumeMadeOfASnapshot: it equals the snapshot at all sites, is served when it has all, and
// needs nothing of the other volume then.
func TestVolumeMadeOfASnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	parent, src, want := c.grown("v", 20, "a", "b", "c")
	id := c.makeOf(src, "w", manifest("w", 2), "a", "b", "c")
	c.filled(id, "")
	for _, site := range []string{"a", "b", "c"} {
		c.until("it is whole at "+site, func() error {
			if c.router(site, id).Filling() {
				return errors.New("it is not")
			}
			return nil
		})
		if got := treeOf(t, c.router(site, id), volume.Root); !slices.Equal(got, want) {
			t.Errorf("at %s there are\n%s\nwant\n%s", site, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	c.change(id, func(v *federation.Volume) { v.Source.Done = true })
	c.delete(parent)
	c.until("the other volume is closed", func() error {
		if c.at("a").copies.Copy(parent) != nil {
			return errors.New("it is open")
		}
		return nil
	})
	for _, site := range c.order {
		c.stop(site)
	}
	for _, site := range c.order {
		c.start(site)
	}
	c.admit("b", id)
	c.router("b", id)
	nfs, root := c.mount(context.Background(), "b", "client", "w")
	defer func() { _ = nfs.Close(context.Background()) }()
	if _, err := nfs.Walk(context.Background(), root, "d/g"); err != nil {
		t.Error(err)
	}
	if got := treeOf(t, c.router("c", id), volume.Root); !slices.Equal(got, want) {
		t.Errorf("after a restart and without its parent there are\n%s", strings.Join(got, "\n"))
	}
	file(t, c.router("a", id), &client{name: "y"}, "new")
}

// TestUnfilledVolumeIsNotServed: nobody sees a volume that does not have all (fill-1), and the home
// says why.
func TestUnfilledVolumeIsNotServed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b")
	_, src, _ := c.grown("v", 1, "a")
	src.Snap += 7
	id := c.makeOf(src, "w", manifest("w", 1), "a")
	c.filled(id, "snapshot one of volume "+src.Volume+" is not there any more")
	c.admit("a", id)
	c.admit("b", id)
	for _, site := range []string{"a", "b"} {
		x := admission.Exports{View: c.at(site).view, Routers: c.at(site).routers}
		here := netip.MustParseAddr("127.0.0.1")
		r, err := c.opened(c.at(site), id)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := x.Open(here, r.ID()); !errors.Is(err, nfs.ErrNoVolume) || errors.Is(err, nfs.ErrDeleted) {
			t.Errorf("at %s it opens with %v", site, err)
		}
		if len(x.Exports(here)) != 0 || !x.Unsettled(here) || !errors.Is(x.Named("w"), nfs.ErrNoVolume) {
			t.Errorf("at %s clients are told %v, %v, %v", site, x.Exports(here), x.Unsettled(here), x.Named("w"))
		}
	}
}

// TestFillingGoesOnElsewhere: another home goes on with a copy that the first has begun, at a site
// that has no copy of the other volume too. Its snapshot is not dropped before (fill-3).
func TestFillingGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	parent, src, want := c.grown("v", 300, "a")
	c.stop("b")
	c.stop("c")
	id := c.makeOf(src, "w", manifest("w", 2), "b", "c")
	c.wish(parent, snapshots.Wish{Name: "one", UID: "1", Drop: true})
	r := c.snapshots("a", parent, "one Pending")
	if s, _ := r.Of("one"); !strings.Contains(s.Message, "volume w is being made of it") {
		t.Errorf("the home says %+v", s)
	}
	c.start("b")
	c.start("c")
	some := func(site string) error { // through the engine: nobody else sees it
		e := c.at(site).copies.Copy(id)
		if e == nil {
			return errors.New("there is no copy")
		}
		entries, _, err := e.Engine.ReadDir(within(t, hang), volume.Request{}, volume.Root, 0, 400)
		if err == nil && len(entries) < 5 {
			err = fmt.Errorf("it has %d entries", len(entries))
		}
		return err
	}
	c.until("a part is there", func() error { return some("b") })
	var first *routing.Router
	c.until("b knows it", func() (err error) { first, err = c.opened(c.at("b"), id); return err })
	begun := first.Filling()
	c.stop("b")
	t.Logf("b stops while it is being filled: %v", begun)
	time.Sleep(10 * time.Millisecond)
	c.start("b")
	c.filled(id, "")
	if got := treeOf(t, c.router("c", id), volume.Root); !slices.Equal(got, want) {
		t.Errorf("there are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	c.change(id, func(v *federation.Volume) { v.Source.Done = true })
	c.snapshots("a", parent, "one Dropped")
}
