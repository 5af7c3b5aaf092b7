// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/volume"
	"github.com/weir-storage/weir/volume/volumetest"
)

// client makes requests with an OpID each, as the NFS server does.
type client struct {
	name string
	seq  uint32
}

func (c *client) next() volume.Request {
	c.seq++
	return volume.Request{ID: volume.OpID{Slot: c.name, Seq: c.seq}}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestWritesAtOneSiteAreReadAtTheOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("shared", manifest("shared", 2))
	ctx := within(t, time.Minute)
	a, b := c.router("a", id), c.router("b", id)
	for i, w := range []*routing.Router{a, b, a, b} {
		cl := &client{name: fmt.Sprint("w", i)}
		name := fmt.Sprint("file", i)
		f, err := w.Create(ctx, cl.next(), volume.Root, name,
			volume.CreateArgs{Type: volume.Regular, Attr: volume.SetAttr{Mode: new(uint32(0o644))}})
		if err != nil {
			t.Fatal(err)
		}
		data := bytes.Repeat([]byte(name), 50000)
		if _, err := w.Write(ctx, cl.next(), f.Attr.Handle, 0, data, false); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Commit(ctx, cl.next(), f.Attr.Handle); err != nil {
			t.Fatal(err)
		}
		for _, site := range c.order {
			r := c.router(site, id)
			got, err := r.Lookup(ctx, volume.Request{}, volume.Root, name)
			if err != nil || got.Handle != f.Attr.Handle || got.Size != uint64(len(data)) {
				t.Fatalf("%s at %s: %+v, %v", name, site, got, err)
			}
			p := make([]byte, len(data)+1)
			n, eof, err := r.Read(ctx, volume.Request{}, got.Handle, 0, p)
			if err != nil || !eof || !bytes.Equal(p[:n], data) {
				t.Fatalf("%s at %s: read %d bytes of %d, %v", name, site, n, len(data), err)
			}
		}
	}
}

func TestTheVolumeGoesOnWithoutItsHome(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	ctx := within(t, 2*time.Minute)
	b := c.router("b", id)
	cl := &client{name: "b"}
	var names []string
	write := func() {
		name := fmt.Sprint("n", len(names))
		if _, err := b.Create(ctx, cl.next(), volume.Root, name,
			volume.CreateArgs{Type: volume.Regular, Mode: volume.Guarded}); err != nil {
			t.Fatalf("create %s: %v", name, err)
		}
		names = append(names, name)
	}
	for range 20 {
		write()
	}
	for range 3 {
		home, epoch := c.nodes["b"].gateway.view.Home(id)
		lost := home[1:]
		c.stop(lost)
		if lost == "b" { // its own clients are lost with it
			c.start("b")
			b = c.router("b", id)
		}
		for range 10 {
			write()
		}
		if lost != "b" {
			if _, now := c.nodes["b"].gateway.view.Home(id); now <= epoch {
				t.Fatalf("epoch %d after %d", now, epoch)
			}
			c.start(lost)
		}
		write()
	}
	for _, site := range c.order {
		r := c.router(site, id)
		entries, _, err := r.ReadDir(ctx, volume.Request{}, volume.Root, 0, 1000)
		if err != nil || len(entries) != len(names) {
			t.Fatalf("%s lists %d names of %d, %v", site, len(entries), len(names), err)
		}
	}
}

// TestConformance runs the contract's suite on volumes as clients of the home's gateway and of
// another site's see them.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ at, site string }{{"home", "a"}, {"elsewhere", "b"}} {
		t.Run(c.at, func(t *testing.T) {
			w := newClusterOf(t, time.Minute, "a", "b", "c")
			n := 0
			volumetest.Run(t, func(t *testing.T) volumetest.Subject {
				return volumetest.Subject{Trails: c.site != "a", Open: func() volume.Volume {
					n++
					name := fmt.Sprint("v", n)
					id := w.create(name, manifest(name, 2))
					t.Cleanup(func() { w.delete(id) }) // or its copies and their heartbeats slow all later parts
					return w.router(c.site, id)
				}}
			})
		})
	}
}
