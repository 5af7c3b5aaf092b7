// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-storage/weir/federation"
	"github.com/weir-storage/weir/gateway/forward"
	"github.com/weir-storage/weir/gateway/routing"
	"github.com/weir-storage/weir/volume"
)

// delete puts a volume in the trash.
func (c *cluster) delete(id string) {
	c.t.Helper()
	c.with(func(reg federation.Registry) error {
		v, rev, err := reg.GetVolume(context.Background(), id)
		if err != nil {
			return err
		}
		v.Deleted, v.DeletedAt, v.Generation = true, time.Now(), v.Generation+1
		_, err = reg.UpdateVolume(context.Background(), rev, v)
		return err
	})
}

// TestVolumeIsDeletedUnderLoad: a copy is closed only when nothing uses it any more.
func TestVolumeIsDeletedUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	ctx, cancel := context.WithCancel(context.Background())
	h := file(t, c.router("a", id), &client{name: "a"}, "f")
	var load sync.WaitGroup
	running := make(chan struct{}, 12)
	for i, site := range []string{"a", "b", "c", "a", "b", "c"} {
		r := c.router(site, id)
		cl := &client{name: string(rune('A' + i))}
		load.Go(func() {
			for first := true; ctx.Err() == nil; first = false {
				_, _ = r.GetAttr(ctx, volume.Request{}, h) // how these end does not matter
				_, _, _ = r.Read(ctx, volume.Request{}, h, 0, make([]byte, 10))
				_ = r.Hold(h)
				_, _ = r.Write(ctx, cl.next(), h, 0, content, i%2 == 0)
				r.Release(h)
				if first {
					running <- struct{}{}
				}
			}
		})
	}
	for range 6 {
		<-running
	}
	c.delete(id)
	c.until("it is closed everywhere", func() error {
		for _, s := range c.order {
			if c.nodes[s].gateway.copies.Copy(id) != nil {
				return errors.New("not at " + s)
			}
		}
		return nil
	})
	cancel()
	load.Wait()
}

// TestACopyInUseIsNotClosed: operations under way are cancelled and waited for.
func TestACopyInUseIsNotClosed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a")
	id := c.create("v", manifest("v", 1))
	r := c.router("a", id)
	h := file(t, r, &client{name: "a"}, "f")
	copied := r.Copy()
	ctx, done, err := copied.Use(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	c.at("a").copies.SetAside(id) // closes it, and begins anew
	<-ctx.Done()
	if _, _, err := copied.Use(context.Background()); !errors.Is(err, volume.ErrDelay) {
		t.Errorf("use of a copy that closes: %v", err)
	}
	time.Sleep(100 * time.Millisecond) // in which it would be closed if it were not waited for
	if c.at("a").copies.Copy(id) != copied {
		t.Fatal("the copy is closed")
	}
	if err := copied.Engine.Hold(h); err != nil {
		t.Errorf("hold: %v", err)
	}
	done()
	c.until("the copy is closed", func() error {
		if c.at("a").copies.Copy(id) == copied {
			return errors.New("it is open")
		}
		return nil
	})
}

// segments lists the files of the volume's log at a site.
func (c *cluster) segments(site, id string) []string {
	c.t.Helper()
	var out []string
	err := filepath.WalkDir(filepath.Join(c.dir, site), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".seg") && strings.Contains(path, id) && !strings.Contains(path, "salvage-") {
			out = append(out, path)
		}
		return err
	})
	if err != nil || len(out) == 0 {
		c.t.Fatalf("the log at %s has the files %v, %v", site, out, err)
	}
	slices.Sort(out)
	return out
}

// TestAMemberInDoubtDoesNotBeginAnew: its empty log would count as the volume's (protocol-3).
func TestAMemberInDoubtDoesNotBeginAnew(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"a part", "everything"} {
		t.Run(lost, func(t *testing.T) {
			c := newCluster(t, "a", "b", "c")
			id := c.create("v", manifest("v", 1))
			h := file(t, c.router("a", id), &client{name: "a"}, "f")
			c.stop("a")
			c.start("a") // so that there is a segment before the last one
			readable(t, c.router("a", id), h)
			c.stop("a")
			files := c.segments("a", id)
			gone := files[:1]
			if lost == "everything" {
				gone = []string{filepath.Dir(files[0])}
			}
			for _, f := range gone {
				if err := os.Rename(f, f+".lost"); err != nil {
					t.Fatal(err)
				}
			}
			c.start("a")
			g := c.nodes["a"].gateway
			c.until("the doubt is told", func() error {
				if s := g.reporter.Status(id); len(s) != 1 || !strings.Contains(s[0].Problem, "in doubt") {
					return errors.New("it is not")
				}
				return nil
			})
			if g.copies.Copy(id) != nil {
				t.Fatal("the copy is open")
			}
			c.stop("a")
			if lost == "everything" {
				if err := os.RemoveAll(gone[0]); err != nil { // made meanwhile
					t.Fatal(err)
				}
			}
			for _, f := range gone {
				if err := os.Rename(f+".lost", f); err != nil {
					t.Fatal(err)
				}
			}
			c.start("a")
			readable(t, c.router("a", id), h)
			readable(t, c.router("b", id), h)
		})
	}
}

// TestAFormerMemberInDoubtBeginsAnew: others have gone on without it.
func TestAFormerMemberInDoubtBeginsAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c")
	id := c.create("v", manifest("v", 2))
	cl := &client{name: "b"}
	h := file(t, c.router("b", id), cl, "f")
	c.stop("a")
	files := c.segments("a", id)
	if err := os.RemoveAll(filepath.Dir(files[0])); err != nil {
		t.Fatal(err)
	}
	c.start("a")
	a := c.router("a", id)
	readable(t, a, h)
	c.until("it has a copy again", func() error {
		if c.at("a").copies.Copy(id) == nil {
			return errors.New("not yet")
		}
		return nil
	})
	file(t, c.router("b", id), cl, "g")
	if _, err := a.Lookup(within(t, hang), volume.Request{}, volume.Root, "g"); err != nil {
		t.Error(err)
	}
}

// TestOnlySitesThatUseAVolume: the home executes nothing for other gateways.
func TestOnlySitesThatUseAVolume(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "a", "b", "c", "d")
	id := c.createAt("v", manifest("v", 2), []string{"a", "b", "c"})
	h := file(t, c.router("a", id), &client{name: "a"}, "f")
	g := c.nodes["d"].gateway
	var d *routing.Router
	c.until("d has heard of the volume and its home", func() (err error) {
		if home, _ := g.view.Home(id); home == "" {
			return errors.New("no home")
		}
		d, err = c.opened(g, id)
		return err
	})
	_, err := d.Once(within(t, hang), func(ctx context.Context, x forward.Home) error {
		_, err := x.GetAttr(ctx, volume.Request{}, h)
		return err
	})
	if !errors.Is(err, volume.ErrDelay) || !strings.Contains(err.Error(), "no copy") {
		t.Errorf("a gateway of a site without copy and clients: %v", err)
	}
	c.admit("d", id)
	readable(t, d, h)
	lock(t, d, h, exclusive("o", 0, 9))
	locked(t, c.router("b", id), h, exclusive("o", 5, 5))
}
